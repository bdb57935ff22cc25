package shaper

import (
	"encoding/binary"
	"math/rand/v2"
	"strings"
	"testing"
)

// packet is an inner IPv4 packet of n bytes, ECT(0) if ecn, with a number and
// the number of its flow inside.
func packet(flow byte, seq uint64, n int, ecn bool) []byte {
	p := make([]byte, max(n, 32))
	p[0] = 0x45
	if ecn {
		p[1] = 2
	}
	p[19] = flow
	binary.BigEndian.PutUint64(p[20:], seq)
	return p
}

// seal does to a packet what WireGuard does.
func seal(pkt []byte, mtu int) []byte {
	n := min((len(pkt)+15)&^15, max(mtu, len(pkt)))
	return sealed(binary.BigEndian.Uint64(pkt[20:]), n+sealing)
}

// pipe drives both stages of some flows: what stage 1 lets through is sealed and
// sent, after delay ns.
type pipe struct {
	*world
	flows  []*Flow
	delay  int64
	flight []flying
	marked int
	offers func() // adds packets, before every pass
	broken bool   // WireGuard loses everything
}

type flying struct {
	at  int64
	f   *Flow
	pkt []byte
}

func (p *pipe) through(pkt []byte) {
	f := p.flows[pkt[19]]
	if pkt[1]&3 == ce {
		p.marked++
	}
	if !p.broken {
		p.flight = append(p.flight, flying{p.now + p.delay, f, seal(pkt, 1420)})
	}
}

func (p *pipe) admit(f int, seq uint64, n int, ecn bool) {
	if pkt := packet(byte(f), seq, n, ecn); p.admits(p.flows[f], pkt) {
		p.through(pkt)
	}
}

// goOn runs everything for d ns.
func (p *pipe) goOn(d int64) {
	end := p.now + d
	for {
		if p.offers != nil {
			p.offers()
		}
		if p.m.kick() {
			for p.taken(p.through) > 0 {
			}
		}
		for len(p.flight) > 0 && p.flight[0].at <= p.now {
			p.send(p.flight[0].f, p.flight[0].pkt)
			p.flight = p.flight[1:]
		}
		p.serve1()
		next := p.m.due()
		if len(p.flight) > 0 {
			next = min(next, p.flight[0].at)
		}
		if p.m.kick() {
			p.m.kicked, next = false, p.now // the reader comes
		}
		if next > end {
			p.now = end
			return
		}
		p.now = max(p.now, next)
	}
}

func (w *world) serve1() {
	for {
		f := w.m.pick(w.now)
		if f == nil {
			return
		}
		f.send(f.batch)
		w.m.sent(w.now, f)
	}
}

func newPipe(t *testing.T, r Rate, flows int) *pipe {
	p := &pipe{world: newWorld(t)}
	l := p.link(r)
	for range flows {
		p.flows = append(p.flows, p.flow(l))
	}
	return p
}

// TestFairStage1: flows get equal shares whatever the sizes of their packets
// are, within a datagram for each of what they are given at a time.
func TestFairStage1(t *testing.T) {
	p := newPipe(t, 100e6, 4)
	sizes := []int{1420, 100, 700, 333}
	seq := uint64(0)
	p.offers = func() {
		for i, f := range p.flows {
			for f.wait.bytes < 50_000 {
				seq++
				p.admit(i, seq, sizes[i], true)
			}
		}
	}
	p.goOn(50 * ms) // the first window is one flow's
	var before []uint64
	for _, f := range p.flows {
		before = append(before, f.stats.SentBytes)
	}
	p.goOn(500 * ms)
	var least, most uint64
	for i, f := range p.flows {
		n := f.stats.SentBytes - before[i]
		if i == 0 || n < least {
			least = n
		}
		most = max(most, n)
	}
	// Shares are of bytes as counted; padding at the MTU is counted, not sent.
	if most-least > most/100+2*turnBytes {
		t.Errorf("flows sent between %d and %d bytes", least, most)
	}
	if got := float64(p.bytes(p.log[0].at, p.now, nil)) * 8e9 / float64(550*ms); got < 99.5e6 {
		t.Errorf("the link carried %.4g bit/s of 100e6", got)
	}
	checkWindows(t, p.log, 100e6, Pair)
	checkOrder(t, p.world)
}

// checkOrder verifies that numbers grow within each flow.
func checkOrder(t *testing.T, w *world) {
	t.Helper()
	last := map[*Flow]uint64{}
	for _, d := range w.log {
		if d.seq <= last[d.flow] {
			t.Fatalf("number %d came after %d", d.seq, last[d.flow])
		}
		last[d.flow] = d.seq
	}
}

// TestFairTurns: within one call of take no flow that is not fresh is ahead of another
// by more than a turn.
func TestFairTurns(t *testing.T) {
	p := newPipe(t, 1e9, 3)
	p.flows[0].link.released = 1 << 30 // nothing passes
	p.flows[0].link.progress = p.now
	for i := range 40 {
		p.admit(0, uint64(i), 1420, false)
		p.admit(1, uint64(i), 60, false)
		p.admit(2, uint64(i), 900, false)
	}
	p.flows[0].link.released = 0
	p.flows[0].link.wait.fresh = 0
	for _, f := range p.flows {
		f.wait.credit, f.wait.topped = 0, false
	}
	var got [3]int
	p.m.take(p.now, p.buf[:20], p.sizes, 0)
	for i := range 20 {
		pkt := p.buf[i][:p.sizes[i]]
		got[pkt[19]] += counted(len(pkt))
	}
	for i, a := range got {
		for j, b := range got {
			if a-b > 2*turnBytes {
				t.Errorf("flow %d was given %d bytes, flow %d %d", i, a, j, b)
			}
		}
	}
}

// TestFreshFirst: a message that comes while others' queues stand goes before them, after
// those that came before it, and no more of it than freshBytes, which the others get back.
func TestFreshFirst(t *testing.T) {
	p := newPipe(t, 100e6, 4)
	l := p.flows[0].link
	seq := uint64(0)
	come := func(f, packets int) {
		for range packets {
			seq++
			p.admit(f, seq, 1400, false)
		}
	}
	come(0, 400)
	for l.wait.fresh > 0 {
		p.goOn(ms)
	}
	l.released, l.progress = 1<<30, p.now // nothing passes
	come(1, 10)
	come(2, 100)
	come(3, 1)
	l.released = 0
	served := ""
	for len(served) < 60 {
		n := p.m.take(p.now, p.buf[:1], p.sizes, 0)
		if n == 0 {
			l.released = 0
			continue
		}
		served += string('0' + p.buf[0][19])
	}
	whole := freshBytes / counted(1400)
	want := "1111111111" + strings.Repeat("2", whole) + "3" + strings.Repeat("0", whole)
	rest := strings.TrimPrefix(served, want)
	if rest = strings.TrimLeft(rest, "0"); len(rest) < 60-len(want)-2 || strings.Trim(rest, "02") != "" || strings.Contains(rest, "22") || strings.Contains(rest, "00") {
		t.Errorf("flows were served as %s, want %s and then 0 and 2 in turns", served, want)
	}
}

// TestFreshInParts: who has not used up its first bytes may come again for the rest, and
// acknowledgements are no part of them, however many; but who has sent what it may directly
// owes no more than freshBytes.
func TestFreshInParts(t *testing.T) {
	p := newPipe(t, 100e6, 2)
	l, b := p.flows[0].link, p.flows[1]
	p.offers = func() {
		for p.flows[0].wait.bytes < 200_000 {
			p.admit(0, 1, 1400, false)
		}
	}
	p.goOn(40 * ms)
	for range 5000 {
		p.admits(b, tcpPacket(false, 12, 0x10, 0))
		l.released, b.released = 0, 0
	}
	if b.wait.in {
		t.Errorf("acknowledgements alone wait for others, credit %d", b.wait.credit)
	}
	fresh := func(packets int) (n int) {
		l.released, l.progress = 1<<30, p.now // nothing passes
		for range packets {
			p.admit(1, 1, 1400, false)
		}
		l.released = 0
		for p.m.take(p.now, p.buf[:1], p.sizes, 0) == 1 && p.buf[0][19] == 1 {
			l.released, n = 0, n+1
		}
		l.released = 0
		return n
	}
	whole := freshBytes / counted(1400)
	if a, b := fresh(5), fresh(20); a != 5 || a+b < whole-2 || a+b > whole {
		t.Errorf("of 5 and then 20 packets %d and %d go first, want %d together", a, b, whole)
	}
	for range 5000 { // a packet at a time, each to an empty queue
		b.wait.drain(&p.m.pool)
		p.admits(b, packet(1, 1, 1400, false))
		l.released, b.released = 0, 0
	}
	if b.wait.credit < -2*freshBytes {
		t.Errorf("in the end it owes %d bytes", -b.wait.credit)
	}
}

// TestMarksBeforeDrops: many flows are marked before they fill what a link holds.
func TestMarksBeforeDrops(t *testing.T) {
	p := newPipe(t, 20e6, 24)
	for seq := range 25 {
		for i := range p.flows {
			p.admit(i, uint64(seq+1), 1400, true)
		}
	}
	p.goOn(1000 * ms)
	for i, f := range p.flows {
		if f.stats.Dropped > 0 {
			t.Errorf("%d packets of flow %d were dropped", f.stats.Dropped, i)
		}
	}
	if p.marked < 5*len(p.flows) {
		t.Errorf("%d of %d packets were marked", p.marked, len(p.log))
	}
}

// TestMarking: packets that waited for long are marked if they may be, and none
// is dropped below the limit.
func TestMarking(t *testing.T) {
	for _, ecn := range []bool{true, false} {
		p := newPipe(t, 100e6, 1)
		for i := range 250 { // 30 ms, of which 20 are let through at once
			p.admit(0, uint64(i+1), 1420, ecn)
		}
		p.goOn(100 * ms)
		f := p.flows[0]
		if len(p.log) != 250 || f.stats.Dropped != 0 {
			t.Errorf("sent %d of 250, dropped %d", len(p.log), f.stats.Dropped)
		}
		if int(f.stats.Marked) != p.marked || ecn != (p.marked > 15) || p.marked > 80 {
			t.Errorf("ECN %v: marked %d, counted %d", ecn, p.marked, f.stats.Marked)
		}
		if w := f.worst[0].last(p.now); w < 17e6 || w > 25e6 {
			t.Errorf("the worst wait is said to be %v", w)
		}
	}
}

// TestMarkingBeforeMore: while the rate may become four times what it is, packets
// are marked at what would be markAfter then.
func TestMarkingBeforeMore(t *testing.T) {
	marked := func(most Rate) int {
		p := newPipe(t, 25e6, 1)
		p.flows[0].link.most = most
		for i := range 180 { // 87 ms
			p.admit(0, uint64(i+1), 1420, true)
		}
		p.goOn(100 * ms)
		return p.marked
	}
	// All but the last markBytes, from 10 ms on; what waits for less than that at the
	// rate that there may be is 62 packets more.
	if now, later := marked(0), marked(100e6); now < 80 || later < now-70 || later > now-50 {
		t.Errorf("%d marked at a rate of 25 Mb/s, %d where it may be 100 Mb/s", now, later)
	}
}

// TestMarkingAfterMore: what has waited for long at a low rate is not marked when there
// is a higher one, at which that is not long; when it is hardly higher it is.
func TestMarkingAfterMore(t *testing.T) {
	for _, more := range []Rate{100e6, 30e6} {
		p := newPipe(t, 25e6, 1)
		l := p.flows[0].link
		l.most = 100e6
		for i := range 180 {
			p.admit(0, uint64(i+1), 1420, true)
		}
		p.goOn(30 * ms) // not yet late for a quarter of the most
		p.m.setRate(p.now, l, more)
		p.goOn(100 * ms)
		if len(p.log) != 180 || (p.marked > 0) != (more == 30e6) {
			t.Errorf("%d were sent, %d of them marked, when there were %d Mb/s", len(p.log), p.marked, more/1e6)
		}
	}
}

// TestMarksSpareMessages: as much as a message, or what others have said, waits unmarked
// however slow the link is, and is held.
func TestMarksSpareMessages(t *testing.T) {
	for _, burst := range []int{0, 1 << 20} {
		p := newPipe(t, 1e6, 2)
		l := p.flows[0].link
		l.burst = burst
		n := max(burst, markBytes) / 1542
		for i := range n {
			p.admit(0, uint64(i+1), 1420, true)
			p.admit(1, uint64(i+1), 1420, true)
		}
		p.goOn(20_000 * ms)
		if w := p.flows[0].worst[0].last(p.now); len(p.log) != 2*n || p.marked > 0 || w < 500e6 {
			t.Errorf("%d bytes: %d were sent, the last after %v; %d are marked", burst, len(p.log), w, p.marked)
		}
	}
}

// TestLimits: the queues of a flow and of a link are bounded; a flow that uses
// little still gets some room.
func TestLimits(t *testing.T) {
	p := newPipe(t, 10e6, 20)
	for i := range 19 {
		for seq := range 1000 {
			p.admit(i, uint64(seq+1), 1420, false)
		}
	}
	l := p.flows[0].link
	for range 5 {
		p.admit(19, 1, 1420, false)
	}
	if f := p.flows[0]; f.wait.bytes > flowBursts*markBytes || f.stats.Dropped == 0 {
		t.Errorf("a flow holds %d bytes, dropped %d", f.wait.bytes, f.stats.Dropped)
	}
	if l.wait.bytes > linkLeast+20*share {
		t.Errorf("the link holds %d bytes", l.wait.bytes)
	}
	if f := p.flows[19]; f.stats.Dropped != 0 {
		t.Errorf("the modest flow lost %d packets", f.stats.Dropped)
	}
	var offered, dropped, waiting int
	for _, f := range p.flows {
		dropped += int(f.stats.Dropped)
		waiting += f.wait.packets
	}
	offered = 19*1000 + 5
	if got := dropped + waiting + len(p.flight); got != offered {
		t.Errorf("%d packets accounted for, want %d", got, offered)
	}
	if d := l.demand.waiting.Load(); d != int64(l.wait.bytes) {
		t.Errorf("demand says %d bytes wait, want %d", d, l.wait.bytes)
	}
}

// TestWindow: what is released and has not left stays below the window.
func TestWindow(t *testing.T) {
	for _, r := range []Rate{1e6, 10e6, 100e6, 1e9} {
		p := newPipe(t, r, 2)
		p.delay = 300 * us
		most, seq := 0, uint64(0)
		p.offers = func() {
			for i, f := range p.flows {
				for f.wait.packets < 50 {
					seq++
					p.admit(i, seq, 1420, true)
				}
			}
			most = max(most, p.flows[0].link.released)
		}
		p.goOn(300 * ms)
		// The first window is on its way before anything can leave, so it grows.
		if want := 2 * max(Pair*3/2, int(int64(r)/8*windowTime/1e9)*6/5); most > want {
			t.Errorf("%d bit/s: %d bytes released at once, want at most %d", r, most, want)
		}
		if got := float64(p.bytes(p.log[0].at, p.now, nil)) * 8e9 / float64(300*ms); got < float64(r)*0.98 {
			t.Errorf("%d bit/s: only %.4g passed", r, got)
		}
		checkOrder(t, p.world)
	}
}

// TestHealing: when WireGuard loses what it was given, as while it has no
// session, the link goes on.
func TestHealing(t *testing.T) {
	p := newPipe(t, 100e6, 1)
	p.broken = true
	for i := range 400 {
		p.admit(0, uint64(i+1), 1420, false)
	}
	p.goOn(15 * ms)
	l := p.flows[0].link
	if l.healed != 0 || l.released == 0 {
		t.Fatalf("after 15 ms: healed %d, released %d", l.healed, l.released)
	}
	p.goOn(10 * ms)
	if l.healed != 1 {
		t.Fatalf("after 25 ms: healed %d", l.healed)
	}
	p.broken = false
	p.goOn(200 * ms)
	if l.wait.packets > 0 || len(p.log) < 100 || l.released != 0 {
		t.Errorf("%d still wait, %d came, released %d", l.wait.packets, len(p.log), l.released)
	}
}

// TestStarved: when the goroutines between the stages are late by milliseconds,
// the window grows, what was lost is made up for, and the rate holds.
func TestStarved(t *testing.T) {
	p := newPipe(t, 100e6, 3)
	r := rand.New(rand.NewPCG(1, 1))
	seq := uint64(0)
	p.offers = func() {
		p.delay = 50 * us
		if r.IntN(50) == 0 {
			p.delay = 5 * ms
		}
		for i, f := range p.flows {
			for f.wait.packets < 100 {
				seq++
				p.admit(i, seq, 1420, true)
			}
		}
	}
	p.goOn(2000 * ms)
	if got := float64(p.bytes(p.now-1500*ms, p.now, nil)) * 8e9 / float64(1500*ms); got < 99e6 || got > 101e6 {
		t.Errorf("sent %.4g bit/s, want 100e6 within 1 %%", got)
	}
	checkWindows(t, p.log, 102.5e6, beyond(100e6, Pair)+Pair/100)
	if w := p.flows[0].link.window; w <= windowTime || w > windowMax {
		t.Errorf("the window is %d ns", w)
	}
}

// TestOpen: without limits nothing is kept, and packets that wait when a limit
// is lifted come out in order before later ones.
func TestOpen(t *testing.T) {
	p := newPipe(t, 0, 1)
	l := p.flows[0].link
	if !l.open.Load() {
		t.Error("a link without a limit is not open")
	}
	p.m.setUplink(p.now, 1e6)
	if l.open.Load() {
		t.Error("a link is open although the uplink is limited")
	}
	for i := range 20 {
		p.admit(0, uint64(i+1), 1420, false)
	}
	p.m.setUplink(p.now, 0)
	if l.open.Load() {
		t.Error("the link is open while packets wait")
	}
	p.admit(0, 21, 1420, false) // not past those that wait
	p.goOn(ms)
	if len(p.log) != 21 || !l.open.Load() || l.released != 0 {
		t.Errorf("%d of 21 came, open %v, released %d", len(p.log), l.open.Load(), l.released)
	}
	checkOrder(t, p.world)
}

// TestStage2StaysShort: whatever passes beside stage 1 or is counted wrong, what waits
// behind it for its time is no more than it shall be, however long the link is full.
func TestStage2StaysShort(t *testing.T) {
	for _, counts := range []bool{true, false} {
		p := newPipe(t, 20e6, 1)
		p.delay = 300 * us
		f := p.flows[0]
		seq, next, worst := uint64(0), p.now, 0
		p.offers = func() {
			for f.wait.packets < 40 {
				seq++
				p.admit(0, seq, 1420, true)
			}
			for p.now >= next { // a notice
				next += 5 * ms
				if counts {
					p.m.release(p.now, f, counted(60))
				}
				p.send(f, sealed(seq, 60+4+sealing))
			}
			worst = max(worst, f.link.out.bytes)
		}
		p.goOn(20000 * ms)
		if most := 2 * p.m.windowBytes(f.link); worst > most {
			t.Errorf("notices counted: %v: %d bytes waited in stage 2, want %d at most", counts, worst, most)
		}
		if counts && f.link.released < f.link.out.bytes {
			t.Errorf("%d bytes count as released, %d wait", f.link.released, f.link.out.bytes)
		}
	}
}
