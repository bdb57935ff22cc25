package shaper

import (
	"math/rand/v2"
	"testing"
)

// TestConservation: whatever happens, every packet is sent, waits, or is counted
// as dropped or was lost by WireGuard, in order; and nothing is left in the end.
func TestConservation(t *testing.T) {
	for seed := range uint64(20) {
		r := rand.New(rand.NewPCG(seed, 9))
		p := &pipe{world: newWorld(t)}
		links := []*Link{p.link(20e6), p.link(200e6), p.link(0)}
		for i := range 7 {
			p.flows = append(p.flows, p.flow(links[i%3]))
		}
		offered, lost := 0, 0
		var seq [7]uint64
		offer := func() {
			for range r.IntN(40) {
				i := r.IntN(7)
				seq[i]++
				offered++
				before := len(p.flight)
				p.admit(i, seq[i], 40+r.IntN(1380), r.IntN(2) == 0)
				if len(p.flight) > before && r.IntN(500) == 0 {
					p.flight = p.flight[:before]
					lost++
				}
			}
			if r.IntN(4) == 0 {
				offered++
				p.send(p.flows[r.IntN(7)], sealed(0, 32)) // a keepalive
			}
		}
		for range 300 {
			switch offer(); r.IntN(12) {
			case 0:
				p.m.setRate(p.now, links[r.IntN(3)], Rate(r.IntN(4))*Rate(r.IntN(3e8)))
			case 1:
				p.m.setUplink(p.now, Rate(r.IntN(2))*Rate(1e6+r.IntN(5e8)))
			case 2:
				p.delay = r.Int64N(5 * ms)
			}
			p.goOn(r.Int64N(3 * ms))
			checkSums(t, p, offered-lost)
		}
		for _, l := range links {
			p.m.setRate(p.now, l, 0)
		}
		p.m.setUplink(p.now, 0)
		p.goOn(100 * ms)
		checkSums(t, p, offered-lost)
		for _, l := range links {
			if l.wait.packets+l.out.packets+l.urgent.packets+l.wait.bytes+l.out.bytes+l.urgent.bytes != 0 || !l.open.Load() {
				t.Fatalf("seed %d: a link is left with %+v", seed, l.linkState)
			}
		}
		checkDataOrder(t, p.world)
	}
}

// checkSums compares what was offered with what can be seen of it.
func checkSums(t *testing.T, p *pipe, want int) {
	t.Helper()
	got, sent := len(p.flight), 0
	for _, f := range p.flows {
		got += int(f.stats.Sent+f.stats.Dropped) + f.wait.packets + f.out.packets + f.urgent.packets
		sent += int(f.stats.SentBytes)
	}
	wire := 0
	for _, d := range p.log {
		wire += d.wire
	}
	if got != want || wire != sent {
		t.Fatalf("%d packets accounted for, want %d; %d bytes sent, %d counted", got, want, wire, sent)
	}
}

// checkDataOrder is checkOrder without the keepalives, which go first.
func checkDataOrder(t *testing.T, w *world) {
	t.Helper()
	last := map[*Flow]uint64{}
	for _, d := range w.log {
		if d.seq == 0 {
			continue
		}
		if d.seq <= last[d.flow] {
			t.Fatalf("number %d came after %d", d.seq, last[d.flow])
		}
		last[d.flow] = d.seq
	}
}

// TestWaking: a limited link reports that it wakes, once after a rest.
func TestWaking(t *testing.T) {
	p := newPipe(t, 100e6, 1)
	p.admit(0, 1, 100, false)
	if n := len(p.m.takeWoken()); n != 1 {
		t.Errorf("first packet: %d links woke", n)
	}
	p.goOn(9 * ms)
	p.admit(0, 2, 100, false)
	if n := len(p.m.takeWoken()); n != 0 {
		t.Errorf("after 9 ms: %d links woke", n)
	}
	p.goOn(11 * ms)
	p.admit(0, 3, 100, false)
	if n := len(p.m.takeWoken()); n != 1 {
		t.Errorf("after 11 ms: %d links woke", n)
	}
}

// TestIdle: a link that rested owes and is owed nothing: the next burst is no
// larger than any, and lateness of long ago is not caught up.
func TestIdle(t *testing.T) {
	w := newWorld(t)
	f := w.flow(w.link(100e6))
	w.m.uplink.set(w.now, 500e6, w.m.two)
	for range 5 {
		w.late = func() int64 { return 3 * ms }
		saturate(w, f, fixed(1452), 20*ms)
		w.late = nil
		for f.out.packets > 0 {
			w.run(w.now+ms, nil)
		}
		w.now += 500 * ms
		from := len(w.log)
		saturate(w, f, fixed(1452), 20*ms)
		checkWindows(t, w.log[from:], 100e6, Pair)
		checkBursts(t, w.log[from:], Pair)
	}
}

// TestNoAllocation: once its memory has grown, a limited link allocates nothing.
func TestNoAllocation(t *testing.T) {
	p := newPipe(t, 100e6, 3)
	for _, f := range p.flows {
		f.send = func([][]byte) {}
	}
	pkts := [][]byte{sealed(1, 1452), sealed(2, 1452), sealed(3, 1452), sealed(4, 700)}
	in := packet(0, 1, 1400, true)
	round := func() {
		for i, f := range p.flows {
			for range 5 {
				if !p.admits(f, in) && i == 0 {
					p.m.take(p.now, p.buf, p.sizes, 16)
				}
			}
			p.send(f, pkts...)
		}
		p.now += 2 * ms
		p.serve1()
		p.m.due()
		p.m.kick()
	}
	for range 200 {
		round()
	}
	if n := testing.AllocsPerRun(200, round); n != 0 {
		t.Errorf("%v allocations in a round", n)
	}
}

// TestJumbo: where datagrams are larger than Ethernet's, two of them are a burst.
func TestJumbo(t *testing.T) {
	w := newWorld(t)
	f := w.flow(w.link(100e6))
	saturate(w, f, fixed(8972), 200*ms)
	checkWindows(t, w.log, 100e6, 2*(8972+overheadIPv4))
	checkBursts(t, w.log, 2*(8972+overheadIPv4))
	if got := float64(w.bytes(0, w.now, nil)) * 8e9 / float64(200*ms); got < 98e6 || got > 102e6 {
		t.Errorf("sent %.4g bit/s", got)
	}
}

// TestSplit: datagrams of one burst lie back to back, in few pieces, with no room behind
// a piece that is not its own, so that a path may join them in place.
func TestSplit(t *testing.T) {
	w := newWorld(t)
	f := w.flow(w.link(1e9))
	most, bursts, pieces := 0, 0, 0
	f.send = func(pkts [][]byte) {
		most = max(most, len(pkts))
		if f.from == nil {
			return // they are the caller's
		}
		bursts++
		for i := 0; i < len(pkts); {
			joined := pkts[i]
			for i++; i < len(pkts) && len(joined)+len(pkts[i]) <= cap(joined); i++ {
				end := len(joined)
				if joined = joined[:end+len(pkts[i])]; &joined[end] != &pkts[i][0] {
					t.Error("a batch cannot be joined in place")
				}
			}
			if pieces++; len(joined) != cap(joined) {
				t.Errorf("a piece of %d bytes has room for %d", len(joined), cap(joined))
			}
		}
	}
	w.late = func() int64 { return 50 * us }
	saturate(w, f, fixed(1452), 5*ms)
	if most < 4 || most > 8 {
		t.Errorf("bursts of up to %d datagrams at 1 Gb/s, want 4 to 8", most)
	}
	if pieces > bursts*5/4 {
		t.Errorf("%d bursts lie in %d pieces", bursts, pieces)
	}
}
