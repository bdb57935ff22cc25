package shaper

import (
	"testing"
	"time"
)

// TestNoCreditForLimits: two links under one uplink; A was held to a tenth for 10 s with a
// standing queue; then its limit is lifted: B must still get half.
func TestNoCreditForLimits(t *testing.T) {
	p := &pipe{world: newWorld(t)}
	a, b := p.link(10e6), p.link(100e6)
	p.m.setUplink(p.now, 100e6)
	p.flows = []*Flow{p.flow(a), p.flow(b)}
	seq := uint64(0)
	p.offers = func() {
		for i, f := range p.flows {
			for f.wait.packets < 100 {
				seq++
				p.admit(i, seq, 1400, false)
			}
		}
	}
	p.goOn(10000 * ms)
	p.m.setRate(p.now, a, 100e6)
	at := p.now
	p.goOn(1000 * ms)
	if got := float64(p.bytes(at, at+1000*ms, p.flows[1])) * 8; got < 40e6 {
		t.Errorf("in the second after B had %.1f Mb/s of 100", got/1e6)
	}
}

// TestDeadPeerOfSite: of two peers of a site one has no session, and WireGuard loses what is for it.
func TestDeadPeerOfSite(t *testing.T) {
	for _, dead := range []int{0, 1, 9} {
		p := newPipe(t, 100e6, 1+dead)
		seq := uint64(0)
		through := func(pkt []byte) {
			if pkt[19] == 0 {
				p.through(pkt)
			}
		}
		offer := func() {
			for i, f := range p.flows {
				for f.wait.packets < 100 {
					seq++
					pkt := packet(byte(i), seq, 1400, false)
					if p.admits(f, pkt) {
						through(pkt)
					}
				}
			}
		}
		end := p.now + 2000*ms
		p.delay = 200 * us
		for p.now < end {
			offer()
			for p.m.kick() {
				for n := 1; n > 0; {
					n = p.taken(through)
				}
			}
			for len(p.flight) > 0 && p.flight[0].at <= p.now {
				p.send(p.flight[0].f, p.flight[0].pkt)
				p.flight = p.flight[1:]
			}
			p.serve1()
			p.now += 100 * us
		}
		got := float64(p.bytes(end-1000*ms, end, p.flows[0])) * 8
		if got < 90e6 {
			t.Errorf("%d dead peers: the living one has %.1f Mb/s of 100", dead, got/1e6)
		}
	}
}

// TestManySitesStage2: what waits in stage 2 must not grow with the number of sites.
func TestManySitesStage2(t *testing.T) {
	for _, n := range []int{1, 4, 10, 30} {
		p := &pipe{world: newWorld(t)}
		p.m.setUplink(p.now, 100e6)
		for range n {
			p.flows = append(p.flows, p.flow(p.link(100e6)))
		}
		p.delay = 300 * us
		seq := uint64(0)
		p.offers = func() {
			for i, f := range p.flows {
				for f.wait.packets < 50 {
					seq++
					p.admit(i, seq, 1400, false)
				}
			}
		}
		p.goOn(1000 * ms)
		p.flows[0].worst[1] = worst{} // of the beginning
		was := p.now
		p.goOn(1000 * ms)
		if got := float64(p.bytes(was, p.now, nil)) * 8; got < 99e6 {
			t.Errorf("%d sites: %.1f Mb/s of 100", n, got/1e6)
		}
		if w := p.flows[0].worst[1].last(p.now); w > 30*time.Millisecond {
			t.Errorf("%d sites: a packet waited %v in stage 2", n, w)
		}
	}
}
