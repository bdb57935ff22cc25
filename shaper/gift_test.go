package shaper

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"testing"
)

// What the nodes of these tests share: a link of 100 Mb/s, of which each has a quarter,
// and may send some bytes ahead.
const (
	giftWhole = 100e6
	giftOwn   = giftWhole / 4
	giftExtra = 15 << 10
	giftLife  = 4 * ms
)

// giver is a node of a site with a link to another, and its flow.
type giver struct {
	*world
	l     *Link
	f     *Flow
	asked int64
	seq   uint64
}

func newGiver(t *testing.T) *giver {
	w := newWorld(t)
	l := w.link(giftOwn)
	w.m.setMost(w.now, l, giftWhole, giftExtra)
	return &giver{world: w, l: l, f: w.flow(l)}
}

// fill has so many bytes wait in stage 2.
func (g *giver) fill(bytes int) {
	for g.l.out.bytes < bytes {
		g.seq++
		g.send(g.f, sealed(g.seq, 1452))
	}
}

// giftTown is four nodes that ask each other for gifts. What they tell each other takes
// as long as delay says, below 0 it is lost.
type giftTown struct {
	nodes []*giver
	delay func() int64
	mail  []giftMail
}

type giftMail struct {
	at    int64
	to    *giver
	from  *giver
	bytes int
	asked int64
	gives bool
}

func newGiftTown(t *testing.T, delay func() int64) *giftTown {
	town := &giftTown{delay: delay}
	for range 4 {
		town.nodes = append(town.nodes, newGiver(t))
	}
	return town
}

// run lets time pass; load keeps queues filled.
func (town *giftTown) run(d int64, load func(i int, g *giver)) {
	const tick = 50 * us
	for end := town.nodes[0].now + d; town.nodes[0].now < end; {
		for i, g := range town.nodes {
			load(i, g)
			if short := g.m.short(g.now, g.l); short >= Backlog && g.now >= g.asked+ms {
				g.asked = g.now
				for _, to := range town.nodes {
					if to != g {
						town.post(giftMail{to: to, from: g, bytes: short, asked: g.now})
					}
				}
			}
			g.run(g.now+tick, nil)
		}
		mail := town.mail
		town.mail = nil
		for _, m := range mail {
			now := m.to.now
			switch {
			case m.at > now:
				town.mail = append(town.mail, m)
			case m.gives:
				m.to.m.accept(now, m.to.l, m.bytes, m.asked+giftLife)
			default:
				if got, _ := m.to.m.give(now, m.to.l, m.bytes, now+giftLife); got > 0 {
					town.post(giftMail{to: m.from, from: m.to, bytes: got, asked: m.asked, gives: true})
				}
			}
		}
	}
}

func (town *giftTown) post(m giftMail) {
	if d := town.delay(); d >= 0 {
		m.at = m.from.now + d
		town.mail = append(town.mail, m)
	}
}

// log is what all have sent, in order.
func (town *giftTown) log() (all []departure) {
	for _, g := range town.nodes {
		all = append(all, g.log...)
	}
	slices.SortStableFunc(all, func(a, b departure) int { return cmp.Compare(a.at, b.at) })
	return all
}

// TestGiftsOfIdle: who sends alone has nearly the whole link by what the others give it,
// and no more; by its own share it would have a quarter.
func TestGiftsOfIdle(t *testing.T) {
	town := newGiftTown(t, func() int64 { return 200 * us })
	town.run(20*ms, func(int, *giver) {}) // until they have what they may send ahead
	from := town.nodes[0].now
	town.run(100*ms, func(i int, g *giver) {
		if i == 0 {
			g.fill(40_000)
		}
	})
	got := float64(town.nodes[0].bytes(from, from+100*ms, nil)) * 8e9 / float64(100*ms)
	if got < 0.9*giftWhole || got > 1.06*giftWhole {
		t.Errorf("one that sends alone has %.3g bit/s of %.3g", got, giftWhole)
	}
	checkWindows(t, town.log(), giftWhole, 4*(giftExtra+Pair))
}

// TestGiftsAddNothing: whoever sends when, and however long notices take or if they are
// lost, all together never send more than each could by itself: the link's rate, and what
// each may send ahead.
func TestGiftsAddNothing(t *testing.T) {
	var given, taken uint64
	for seed := range uint64(12) {
		r := rand.New(rand.NewPCG(seed, 1))
		town := newGiftTown(t, func() int64 {
			switch r.IntN(8) {
			case 0:
				return -1
			case 1:
				return r.Int64N(6 * ms)
			}
			return r.Int64N(ms)
		})
		mean := []int64{ms, 5 * ms, 20 * ms}[seed%3]
		busy, until := [4]bool{}, [4]int64{}
		town.run(400*ms, func(i int, g *giver) {
			if g.now >= until[i] {
				busy[i], until[i] = !busy[i], g.now+r.Int64N(2*mean)
				if seed%4 == 3 && !busy[i] { // all begin in one moment
					until[i] = (g.now/(10*ms) + 1) * 10 * ms
				}
			}
			if busy[i] {
				g.fill(3000 + r.IntN(30_000))
			}
		})
		checkWindows(t, town.log(), giftWhole*1.005, 4*(giftExtra+Pair)+int(giftOwn/8e9*float64(giftLife)))
		for _, g := range town.nodes {
			given, taken = given+g.l.given, taken+g.l.taken
		}
	}
	if taken < 100_000 || taken > given {
		t.Errorf("%d bytes were given and %d taken", given, taken)
	}
}

// TestGiftEnds: what is not sent in time is lost, as is what comes when nothing waits.
func TestGiftEnds(t *testing.T) {
	g := newGiver(t)
	if g.m.accept(g.now, g.l, 10_000, g.now+giftLife) {
		t.Error("a link that has nothing to send accepts a gift")
	}
	g.run(g.now+20*ms, nil)
	g.fill(100_000)
	g.run(g.now+20*ms, nil) // what may be sent ahead has gone
	from := g.now
	if !g.m.accept(g.now, g.l, 30_000, g.now+ms) {
		t.Fatal("a link that waits does not accept a gift")
	}
	g.run(g.now+10*ms, nil)
	own := giftOwn / 8e9 * float64(9*ms)
	got, gift := float64(g.bytes(from, g.now, nil)), giftWhole/8e9*float64(ms)
	if got > gift+own+2*Pair || got < gift+own*7/8-2*Pair { // it pays back what it has had ahead
		t.Errorf("%.0f bytes left in 10 ms, of which a gift was good for the first, want %.0f and %.0f", got, gift, own)
	}
}

// TestGiveOfOwn: a node gives what it does not use itself, once, and has it again when its
// share has made up for it and nobody can use it any more.
func TestGiveOfOwn(t *testing.T) {
	g := newGiver(t)
	give := func() int {
		got, soon := g.m.give(g.now, g.l, 1<<20, g.now+giftLife)
		if want := got == 0 && !g.l.waits() && g.l.down.extra > 0; soon != want {
			t.Errorf("it gives %d bytes, and will have more soon: %v, want %v", got, soon, want)
		}
		return got
	}
	g.run(g.now+20*ms, nil)
	first := give()
	if first < giftExtra || first > giftExtra+Pair {
		t.Errorf("an idle node gives %d bytes of %d", first, giftExtra)
	}
	if again := give(); again != 0 {
		t.Errorf("it gives %d bytes more at once", again)
	}
	g.run(g.now+giftLife-us, nil)
	if again := give(); again != 0 {
		t.Errorf("it gives %d bytes while as much may still be used", again)
	}
	g.run(g.now+2*us, nil)
	if again, want := give(), int(giftOwn/8e9*float64(giftLife)); again < want*9/10 || again > want*11/10 {
		t.Errorf("after %d ms at its share it gives %d bytes, want %d", giftLife/ms, again, want)
	}
	g.run(g.now+20*ms, nil)
	g.fill(20_000)
	if got := give(); got != 0 {
		t.Errorf("a node that waits itself gives %d bytes", got)
	}
	g.run(g.now+100*ms, nil)
	g.m.setMost(g.now, g.l, 0, 0)
	if got := give(); got != 0 {
		t.Errorf("a node that may send nothing ahead gives %d bytes", got)
	}
	if g.fill(20_000); g.m.accept(g.now, g.l, 10_000, g.now+giftLife) {
		t.Error("it takes what nothing would space")
	}
}

// TestGiverWithoutHead: a node that has given all it had and then loses its extra bytes
// still sends at its share as soon as it has something to send.
func TestGiverWithoutHead(t *testing.T) {
	g := newGiver(t)
	g.run(g.now+20*ms, nil)
	if got, _ := g.m.give(g.now, g.l, 1<<20, g.now+giftLife); got < giftExtra {
		t.Fatalf("it gives %d bytes", got)
	}
	g.m.setMost(g.now, g.l, 0, 0)
	g.run(g.now+us, nil)
	from := g.now
	g.fill(20_000)
	g.run(from+3*ms, nil)
	if got, want := g.bytes(from, g.now, nil), int(giftOwn/8e9*float64(2*ms)); got < want {
		t.Errorf("it sends %d bytes in 3 ms, want at least %d", got, want)
	}
}

// TestManyGifts: more gifts than are kept in mind count all, until the first of them ends.
func TestManyGifts(t *testing.T) {
	var g gifts
	for i := range int64(mostGifts + 4) {
		g.take(gift{100, 10 + i})
	}
	if want := 100 * (mostGifts + 4); g.taken != want {
		t.Errorf("%d bytes of gifts count, want %d", g.taken, want)
	}
	if left := g.use(150); left != 0 || g.taken != 100*(mostGifts+4)-150 {
		t.Errorf("of 150 bytes that are sent %d are no gift, and %d are left", left, g.taken)
	}
	g.lapse(10)
	if most := 100 * (mostGifts - 1); g.taken != most {
		t.Errorf("when the first has ended %d bytes count, want %d", g.taken, most)
	}
	g.lapse(10 + mostGifts + 4)
	if g.taken != 0 {
		t.Errorf("%d bytes count for ever", g.taken)
	}
}

// TestGiftsAreNoLateness: what its own rate leaves unused while gifts are sent has not been
// lost by lateness, and is not caught up.
func TestGiftsAreNoLateness(t *testing.T) {
	g := newGiver(t)
	g.run(g.now+20*ms, nil)
	g.fill(100_000)
	g.run(g.now+300*us, nil)
	for range 3 {
		g.m.accept(g.now, g.l, 12_500, g.now+giftLife)
	}
	g.run(g.now+4*ms, nil)
	if got := g.l.down.late; got > 0 {
		t.Errorf("a thread that was never late has %d µs to catch up", got/us)
	}
}

// TestFreed: who was asked while something waited says, once, when nothing does any more;
// where the uplink is what limits, when nothing waits for it on any link.
func TestFreed(t *testing.T) {
	g := newGiver(t)
	other := g.link(0)
	f := g.flow(other)
	g.m.setUplinkMost(g.now, giftWhole, giftExtra)
	freed := func(what string, want bool) {
		t.Helper()
		if got := g.m.takeFreed(); got != want {
			t.Errorf("%s: freed %v, want %v", what, got, want)
		}
	}
	give := func() {
		t.Helper()
		if got, soon := g.m.give(g.now, g.l, 1<<20, g.now+giftLife); got != 0 || soon {
			t.Errorf("a node that waits gives %d bytes, more soon: %v", got, soon)
		}
	}
	g.run(g.now+20*ms, nil)
	g.fill(20_000)
	freed("before anybody asks", false)
	give()
	give()
	freed("while it waits", false)
	g.run(g.now+100*ms, nil)
	freed("when all has left", true)
	freed("then", false)
	g.m.setUplink(g.now, giftOwn)
	g.run(g.now+20*ms, nil)
	for other.out.bytes < 20_000 {
		g.seq++
		g.send(f, sealed(g.seq, 1452))
	}
	give()
	freed("while another link waits", false)
	g.run(g.now+100*ms, nil)
	freed("when that has sent all", true)
}

// TestSealing: where nothing waits but what is just being sealed there will be something to
// give soon.
func TestSealing(t *testing.T) {
	g := newGiver(t)
	g.run(g.now+20*ms, nil)
	g.m.release(g.now, g.f, 200)
	if got, soon := g.m.give(g.now, g.l, 1<<20, g.now+giftLife); got != 0 || !soon {
		t.Errorf("a node that seals gives %d bytes, more soon: %v", got, soon)
	}
	if g.m.takeFreed() {
		t.Error("it owes a word, too")
	}
}

// TestGiftAfterALostPacket: what was let through and never sealed keeps a node from giving
// for a moment only, though it sends nothing more.
func TestGiftAfterALostPacket(t *testing.T) {
	g := newGiver(t)
	if !g.admits(g.f, packet(0, 1, 1400, false)) {
		t.Fatal("an idle link does not let a packet through")
	}
	if given, soon := g.m.give(g.now, g.l, giftExtra, g.now+giftLife); given > 0 || !soon {
		t.Errorf("while a packet is being sealed it gives %d, more soon: %v", given, soon)
	}
	g.now += healAfter
	if given, _ := g.m.give(g.now, g.l, giftExtra, g.now+giftLife); given < giftExtra/2 {
		t.Errorf("when that packet must be lost it gives %d of %d", given, giftExtra)
	}
}
