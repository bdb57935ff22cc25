package shaper

import "testing"

// TestFairBursts: who sends a burst whenever the one before has gone has about half of
// the link beside who always has something waiting, and never more; its bursts pass by
// what waits with no more than half a window.
func TestFairBursts(t *testing.T) {
	for _, r := range []Rate{20e6, 100e6, 1e9} {
		for _, burst := range []int{3, 10, 46, 400} {
			p := newPipe(t, r, 2)
			a, b, l := p.flows[0], p.flows[1], p.flows[0].link
			seq, beyond := uint64(0), 0
			p.offers = func() {
				for a.wait.bytes < 50_000 {
					seq++
					p.admit(0, seq, 1400, true)
				}
				for n := burst; n > 0 && (n < burst || b.wait.packets+b.released == 0); n-- {
					seq++
					p.admit(1, seq, 1400, true)
				}
				beyond = max(beyond, l.released-p.m.windowBytes(l))
			}
			p.goOn(100 * ms)
			sentA, sentB := a.stats.SentBytes, b.stats.SentBytes
			p.goOn(1000 * ms)
			sentA, sentB = a.stats.SentBytes-sentA, b.stats.SentBytes-sentB
			if part := float64(sentB) / float64(sentA+sentB); part < 0.4 || part > 0.505 {
				t.Errorf("%d bit/s: bursts of %d packets have %.3f of the link, want about half", r, burst, part)
			}
			if most := p.m.windowBytes(l) + turnBytes; beyond > most {
				t.Errorf("%d bit/s: with bursts of %d packets %d bytes more than the window were released, want at most %d", r, burst, beyond, most)
			}
			if l.released != a.released+b.released {
				t.Errorf("%d bit/s: %d bytes are released, of the flows %d and %d", r, l.released, a.released, b.released)
			}
			checkOrder(t, p.world)
		}
	}
}

// TestReleasedOfClosed: what a closed flow had on its way no longer fills the window.
func TestReleasedOfClosed(t *testing.T) {
	p := newPipe(t, 10e6, 2)
	p.delay = 5 * ms
	for i := range 20 {
		p.admit(0, uint64(i+1), 1400, false)
	}
	a, l := p.flows[0], p.flows[0].link
	if l.released == 0 || l.released != a.released {
		t.Fatalf("%d bytes are released, of the only flow %d", l.released, a.released)
	}
	if !p.m.removeFlow(a) || l.released != 0 {
		t.Errorf("after its end %d bytes are released", l.released)
	}
	p.admit(1, 1, 1400, false)
	was := l.released
	p.now += 5 * ms
	for _, x := range p.flight[:len(p.flight)-1] {
		p.send(x.f, x.pkt)
	}
	if l.released != was || was == 0 {
		t.Errorf("what comes of a closed flow takes %d bytes to %d", was, l.released)
	}
}

// TestExtraIsSavedUp: who never rests is given no extra bytes when they are allowed,
// and loses none of its own when they no longer are.
func TestExtraIsSavedUp(t *testing.T) {
	const own, whole, extra = 25e6, 100e6, 12 << 10
	for _, uplink := range []bool{false, true} {
		w := newWorld(t)
		l := w.link(own)
		most := func(r Rate, extra int) { w.m.setMost(w.now, l, r, extra) }
		if uplink {
			w.m.setRate(w.now, l, 0)
			w.m.setUplink(w.now, own)
			most = func(r Rate, extra int) { w.m.setUplinkMost(w.now, r, extra) }
		}
		f := w.flow(l)
		from := w.now
		for range 50 {
			most(whole, extra)
			saturate(w, f, fixed(1452), 3*ms)
			most(0, 0)
			saturate(w, f, fixed(1452), 2*ms)
		}
		checkWindows(t, w.log, own, Pair)
		if got := float64(w.bytes(from, w.now, nil)) * 8e9 / float64(w.now-from); got < own*0.99 {
			t.Errorf("uplink %v: while extra bytes come and go it sends %.4g bit/s of %.4g", uplink, got, own)
		}
	}
}

// TestExtraIsPaidBack: who goes on after its extra bytes has soon sent no more than its
// rate, and from then on sends as much; after a rest it has them again.
func TestExtraIsPaidBack(t *testing.T) {
	const own, whole, extra = 25e6, 100e6, 16 << 10
	w := newWorld(t)
	l := w.link(own)
	w.m.setMost(w.now, l, whole, extra)
	f := w.flow(l)
	for range 3 {
		w.now += 10 * ms // until it is saved up
		from := w.now
		ahead := func() float64 { return float64(w.bytes(from, w.now, nil)) - own/8e9*float64(w.now-from) }
		saturate(w, f, fixed(1452), 4*ms)
		if most := ahead(); most < extra*0.8 {
			t.Errorf("after 4 ms it is %.0f bytes ahead of its rate, want most of %d", most, extra)
		}
		saturate(w, f, fixed(1452), extra*payBack*8e9/own)
		if rest := ahead(); rest > Pair {
			t.Errorf("when it should have paid back it is %.0f bytes ahead of its rate", rest)
		}
		since := w.now
		saturate(w, f, fixed(1452), 200*ms)
		if got := float64(w.bytes(since, w.now, nil)) * 8e9 / float64(w.now-since); got < own*0.99 || got > own*1.01 {
			t.Errorf("then it sends %.4g bit/s of %.4g", got, own)
		}
		w.run(w.now+300*ms, nil)
	}
}
