package shaper

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

var rates = []Rate{10e6, 25e6, 100e6, 333_333_333, 1e9, 10e9}

// saturate keeps stage 2 of a flow fed for a while and returns what left.
func saturate(w *world, f *Flow, size sizer, d int64) {
	r := rand.New(rand.NewPCG(1, 2))
	end := w.now + d
	w.run(end, func() {
		for f.out.packets < 200 && f.out.bytes < outLeast/2 {
			w.sent[f]++
			w.send(f, sealed(w.sent[f], size(r)))
		}
	})
}

func TestRateAndWindows(t *testing.T) {
	sizes := map[string]sizer{"64": fixed(64), "576": fixed(576), "1452": fixed(1452), "1500": fixed(1500), "mixed": mixture}
	for _, r := range rates {
		for name, size := range sizes {
			t.Run(fmt.Sprintf("%d/%s", r, name), func(t *testing.T) {
				w := newWorld(t)
				f := w.flow(w.link(r))
				d := max(int64(1600*Pair*8e9/float64(r)), 20*ms)
				saturate(w, f, size, d)
				// Between two departures, each excluding what leaves after it.
				from, to := w.log[len(w.log)/50].at, w.log[len(w.log)-1].at
				got := float64(w.bytes(from, to, nil)) * 8e9 / float64(to-from)
				if math.Abs(got/float64(r)-1) > 1e-3 {
					t.Errorf("rate %.0f, want %d (%.3f %%)", got, r, 100*got/float64(r))
				}
				checkWindows(t, w.log, float64(r), f.link.down.bytes)
				for i, d := range w.log {
					if d.seq != uint64(i+1) {
						t.Fatalf("datagram %d has number %d", i+1, d.seq)
					}
				}
			})
		}
	}
}

// TestLateThread: what is lost by waking late is made up for, at 2.5 % above the
// rate and not in bursts; and no millisecond sees more than the rate and a burst.
func TestLateThread(t *testing.T) {
	for _, r := range []Rate{10e6, 100e6, 1e9} {
		w := newWorld(t)
		f := w.flow(w.link(r))
		rnd := rand.New(rand.NewPCG(3, 4))
		w.late = func() int64 {
			if rnd.IntN(4000) == 0 {
				return rnd.Int64N(7 * ms)
			}
			return rnd.Int64N(60 * us)
		}
		from, d := w.now, int64(20e9)/max(1, int64(r)/100e6)
		saturate(w, f, fixed(1452), d)
		got, want := float64(w.bytes(from, w.now+1, nil)), float64(r)/8e9*float64(d)
		if math.Abs(got-want) > want*0.02 {
			t.Errorf("%d bit/s: sent %.2f %%", r, 100*got/want)
		}
		// The end of catching up may fall into a burst.
		checkWindows(t, w.log, float64(r)*1.025, beyond(r, f.link.down.bytes)+f.link.down.bytes/100)
		checkMilliseconds(t, w.log, r, f.link.down.burst)
		checkBursts(t, w.log, beyond(r, f.link.down.burst))
	}
}

// TestMilliseconds: whatever the rate and the size of datagrams, a thread that is late as
// threads are, and once in a while by much, has no millisecond hold more than the rate and
// a burst of what is sent, and loses nothing. (At 94, 141 and 300 Mb/s a pair of 1474 bytes
// more fits one if it is by some microseconds too early.)
func TestMilliseconds(t *testing.T) {
	for _, wire := range []int{1274, 1474, 1514} {
		for _, r := range []Rate{10e6, 30e6, 94e6, 100e6, 141e6, 200e6, 230e6, 250e6, 300e6, 350e6, 400e6, 450e6, 490e6, 1e9} {
			w := newWorld(t)
			f := w.flow(w.link(r))
			rnd := rand.New(rand.NewPCG(3, 4))
			w.late = func() int64 {
				switch n := rnd.IntN(4000); {
				case n == 0:
					return rnd.Int64N(3 * ms)
				case n <= 80:
					return rnd.Int64N(40 * us)
				}
				return rnd.Int64N(10 * us)
			}
			saturate(w, f, fixed(wire-overheadIPv4), 20*ms) // until it knows the size
			from, begin, d := len(w.log), w.now, 2*int64(1e9)
			saturate(w, f, fixed(wire-overheadIPv4), d)
			log := w.log[from:]
			if log[0].wire != wire {
				t.Fatalf("%d bytes on the wire, want %d", log[0].wire, wire)
			}
			if got, want := float64(w.bytes(begin, w.now+1, nil)), float64(r)/8e9*float64(d); math.Abs(got-want) > want*0.002 {
				t.Errorf("%d bit/s, %d bytes: sent %.2f %%", r, wire, 100*got/want)
			}
			checkMilliseconds(t, log, r, max(2*wire, int(r)/80_000))
		}
	}
}

// TestSlowSends: a send that takes longer than most do makes what follows no bunch, nor
// is its time lost.
func TestSlowSends(t *testing.T) {
	for _, r := range []Rate{10e6, 100e6} {
		w := newWorld(t)
		f := w.flow(w.link(r))
		rnd := rand.New(rand.NewPCG(7, 8))
		w.takes = func() int64 {
			if rnd.IntN(25) == 0 {
				return 40*us + rnd.Int64N(250*us)
			}
			return 30*us + rnd.Int64N(10*us)
		}
		saturate(w, f, fixed(1452), 200*ms) // until it knows what is usual
		from, d := len(w.log), int64(20e9)/max(1, int64(r)/100e6)
		begin := w.now
		saturate(w, f, fixed(1452), d)
		got, want := float64(w.bytes(begin, w.now+1, nil)), float64(r)/8e9*float64(d)
		if math.Abs(got-want) > want*0.01 {
			t.Errorf("%d bit/s: sent %.2f %%", r, 100*got/want)
		}
		checkWindows(t, w.log[from:], float64(r)*1.025, beyond(r, f.link.down.bytes)+f.link.down.bytes/100+int(r)/8*20/1e6)
		checkMilliseconds(t, w.log[from:], r, f.link.down.burst)
	}
}

// TestSlowSendBesideOthers: while a send takes long, others use the time, which they have
// used then: the link goes on at its rate.
func TestSlowSendBesideOthers(t *testing.T) {
	const r = 25e6
	w := newWorld(t)
	l := w.link(r)
	slow, f := w.flow(l), w.flow(l)
	begin := w.now
	if n := w.m.direct(w.now, slow, [][]byte{sealed(1, 1452)}); n != 1 {
		t.Fatalf("%d datagrams leave at once, want 1", n)
	}
	saturate(w, f, fixed(1452), 20*ms)
	w.m.sent(w.now, slow)
	saturate(w, f, fixed(1452), 20*ms)
	if got, want := float64(w.bytes(begin, w.now+1, nil)), r/8*0.04; got < want*0.95 {
		t.Errorf("sent %.1f %%", 100*got/want)
	}
}

// TestLongLateness: of a time in which nothing was sent at all only a little is caught up,
// since those who share the link go on at their rates.
func TestLongLateness(t *testing.T) {
	const r = 25e6
	w := newWorld(t)
	f := w.flow(w.link(r))
	saturate(w, f, fixed(1452), 50*ms)
	stalled := false
	w.late = func() int64 {
		if stalled {
			return 0
		}
		stalled = true
		return 100 * ms
	}
	saturate(w, f, fixed(1452), 101*ms)
	begin := w.now
	saturate(w, f, fixed(1452), 1000*ms)
	const whole = int(r) / 8
	got := w.bytes(begin, w.now+1, nil)
	if most := whole + whole*6/1000 + 2*f.link.down.burst; got > most || got < whole {
		t.Errorf("%d bytes in the second after it, want %d to %d", got, whole, most)
	}
}

// checkMilliseconds verifies that of 1000 windows of 1 ms 999 do not exceed the rate by
// more than a burst.
func checkMilliseconds(t *testing.T, log []departure, r Rate, burst int) {
	t.Helper()
	first, sum, worst, many := 0, 0, 0, 0
	most := int(r)/8000 + burst
	for _, d := range log {
		for sum += d.wire; d.at-log[first].at >= ms; first++ {
			sum -= log[first].wire
		}
		if worst = max(worst, sum); sum > most {
			many++
		}
	}
	if many*1000 > len(log) {
		t.Errorf("%d bit/s: %d of %d milliseconds have more than %d bytes, the worst %d", r, many, len(log), most, worst)
	}
}

// TestSpacing: at a rate at which a burst is no more than two datagrams they
// leave two by two, evenly, once what lateness may add has gone.
func TestSpacing(t *testing.T) {
	w := newWorld(t)
	f := w.flow(w.link(100e6))
	saturate(w, f, fixed(1458), 100*ms)
	for i := 4; i < len(w.log); i++ {
		want := int64(i+1) % 2 * 240 * us
		if gap := w.log[i].at - w.log[i-1].at; gap < want-10 || gap > want+10 {
			t.Fatalf("gap before datagram %d is %d ns, want %d", i, gap, want)
		}
	}
	if len(w.log) < 800 {
		t.Errorf("only %d datagrams left", len(w.log))
	}
}

// TestExtra: after a pause, extra bytes leave at the rate that the whole site has,
// spaced, and the rest at the link's; in no time more than both allow.
func TestExtra(t *testing.T) {
	const own, whole, extra = 25e6, 100e6, 12 << 10
	for _, uplink := range []bool{false, true} {
		w := newWorld(t)
		l := w.link(own)
		if uplink {
			w.m.setRate(w.now, l, 0)
			w.m.setUplink(w.now, own)
			w.m.setUplinkMost(w.now, whole, extra)
		} else {
			w.m.setMost(w.now, l, whole, extra)
		}
		w.now += 10 * ms // until it is saved up
		f := w.flow(l)
		for range 5 {
			var pkts [][]byte
			for range 30 {
				w.sent[f]++
				pkts = append(pkts, sealed(w.sent[f], 1452))
			}
			w.send(f, pkts...)
			w.run(w.now+100*ms, nil)
		}
		if len(w.log) != 150 {
			t.Fatalf("%d of 150 datagrams have left", len(w.log))
		}
		checkWindows(t, w.log, whole*1.025, Pair)
		checkWindows(t, w.log, own*1.025, extra)
		// 46 kB: a third more than extra at the whole rate, the rest at the own, while
		// that is paid back.
		took, want := w.log[29].at-w.log[0].at, int64((29*1494-extra)*8e9/own*(payBack+1)/payBack)
		if took > want*11/10 || took < want*8/10 {
			t.Errorf("uplink %v: 30 datagrams took %v ms, want %v", uplink, took/ms, want/ms)
		}
		w.m.setMost(w.now, l, 0, 0)
		w.m.setUplinkMost(w.now, 0, 0)
		w.log = nil
		w.send(f, sealed(200, 1452), sealed(201, 1452), sealed(202, 1452))
		w.run(w.now+10*ms, nil)
		checkWindows(t, w.log, own*1.025, Pair)
	}
}

// TestBatchAfterIdle: a batch that comes when nothing is owed, because WireGuard was
// late for example, does not leave at once, neither by the link's rate nor by the
// uplink's.
func TestBatchAfterIdle(t *testing.T) {
	for _, r := range rates {
		for _, uplink := range []bool{false, true} {
			w := newWorld(t)
			l := w.link(r)
			b := &l.down
			if uplink {
				w.m.setRate(w.now, l, 0)
				w.m.setUplink(w.now, r)
				b = &w.m.uplink
			}
			f := w.flow(l)
			for range 5 {
				var pkts [][]byte
				for range 100 {
					w.sent[f]++
					pkts = append(pkts, sealed(w.sent[f], 1452))
				}
				w.send(f, pkts...)
				w.run(w.now+int64(100*1542*8e9/float64(r))+50*ms, nil)
			}
			if len(w.log) != 500 {
				t.Errorf("%d bit/s: %d of 500 datagrams have left", r, len(w.log))
			}
			checkWindows(t, w.log, float64(r)*1.025, b.bytes)
		}
	}
}

// TestUplinkSharedByMany: a link is not starved by others that come for less at a time,
// be it that they are slower than the uplink or that their flows have a datagram each.
func TestUplinkSharedByMany(t *testing.T) {
	for name, tc := range map[string]struct {
		rates []Rate // of the links, the first has one flow
		flows int    // of each of the others
		most  int    // datagrams of theirs that wait
	}{
		"slower links":            {[]Rate{0, 60e6, 60e6}, 1, 100},
		"a datagram of each flow": {[]Rate{0, 0}, 40, 1},
	} {
		w := newWorld(t)
		w.m.setUplink(w.now, 100e6)
		var flows []*Flow
		for i, r := range tc.rates {
			l, n := w.link(r), tc.flows
			if i == 0 {
				n = 1
			}
			for range n {
				flows = append(flows, w.flow(l))
			}
		}
		from, d := w.now, 1000*ms
		w.run(w.now+d, func() {
			for i, f := range flows {
				most := tc.most
				if i == 0 {
					most = 100
				}
				for f.out.packets < most {
					w.send(f, sealed(0, 1452))
				}
			}
		})
		want := 100e6 / float64(len(tc.rates))
		if got := float64(w.bytes(from, w.now+1, flows[0])) * 8e9 / float64(d); math.Abs(got-want) > want*0.02 {
			t.Errorf("%s: the first link got %.4g bit/s, want %.4g", name, got, want)
		}
	}
}

// TestLateExtra: extra bytes leave at the whole site's rate although the thread is late.
func TestLateExtra(t *testing.T) {
	const own, whole, extra, rounds = 25e6, 100e6, 24 << 10, 50
	for _, uplink := range []bool{false, true} {
		w := newWorld(t)
		l := w.link(0)
		if uplink {
			w.m.setUplink(w.now, own)
			w.m.setUplinkMost(w.now, whole, extra)
		} else {
			w.m.setRate(w.now, l, own)
			w.m.setMost(w.now, l, whole, extra)
		}
		f := w.flow(l)
		r := rand.New(rand.NewPCG(1, 9))
		w.late = func() int64 { return r.Int64N(60 * us) }
		took := int64(0)
		for range rounds {
			w.run(w.now+50*ms, nil) // until it is saved up
			from := len(w.log)
			for range 16 {
				w.send(f, sealed(0, 1458))
			}
			w.run(w.now+50*ms, nil)
			took += w.log[from+15].at - w.log[from].at
		}
		if want := int64(14 * 120 * us); took/rounds > want*105/100 {
			t.Errorf("uplink %v: 24 kB take %d us, want %d", uplink, took/rounds/us, want/us)
		}
	}
}

// TestLateJumbo: lateness is kept, too, where two datagrams are nearly what may leave at
// once.
func TestLateJumbo(t *testing.T) {
	w := newWorld(t)
	f := w.flow(w.link(1e9))
	r := rand.New(rand.NewPCG(1, 9))
	w.late = func() int64 { return r.Int64N(60 * us) }
	from, d := w.now, 300*ms
	saturate(w, f, fixed(6000), d)
	if got := float64(w.bytes(from, w.now+1, nil)) * 8e9 / float64(d); got < 0.99e9 || got > 1.01e9 {
		t.Errorf("the link carried %.4g bit/s of 1e9", got)
	}
}

// TestSlowPairs: where two datagrams take long the first does not wait for the other.
func TestSlowPairs(t *testing.T) {
	w := newWorld(t)
	f := w.flow(w.link(1e6))
	saturate(w, f, fixed(1458), 500*ms)
	for i := 3; i < len(w.log); i++ {
		if gap := w.log[i].at - w.log[i-1].at; gap < 11_990*us || gap > 12_010*us {
			t.Fatalf("gap before datagram %d is %d ns, want 12 ms", i, gap)
		}
	}
}

func TestUplinkShared(t *testing.T) {
	for _, tc := range []struct {
		up, a, b     Rate
		wantA, wantB float64
	}{
		{100e6, 0, 0, 50e6, 50e6},
		{100e6, 100e6, 100e6, 50e6, 50e6},
		{100e6, 20e6, 100e6, 20e6, 80e6},
		{100e6, 30e6, 30e6, 30e6, 30e6},
		{100e6, 0, 90e6, 50e6, 50e6},
		{100e6, 0, 60e6, 50e6, 50e6},
		{1e9, 0, 200e6, 800e6, 200e6},
	} {
		w := newWorld(t)
		w.m.setUplink(w.now, tc.up)
		a, b := w.flow(w.link(tc.a)), w.flow(w.link(tc.b))
		r := rand.New(rand.NewPCG(5, 6))
		from, d := w.now, 2000*ms
		w.run(w.now+d, func() {
			for _, f := range []*Flow{a, b} {
				for f.out.packets < 100 {
					w.send(f, sealed(0, mixture(r)))
				}
			}
		})
		for _, x := range []struct {
			f    *Flow
			want float64
		}{{a, tc.wantA}, {b, tc.wantB}} {
			got := float64(w.bytes(from, w.now+1, x.f)) * 8e9 / float64(d)
			if math.Abs(got-x.want) > x.want*0.005 {
				t.Errorf("%+v: a link got %.4g bit/s, want %.4g", tc, got, x.want)
			}
		}
		checkWindows(t, w.log, float64(tc.up), w.m.uplink.bytes)
	}
}

// TestRateChanges: a new rate holds from the moment it is set, with datagrams
// waiting; setting it every millisecond loses nothing.
func TestRateChanges(t *testing.T) {
	w := newWorld(t)
	f := w.flow(w.link(10e6))
	r := rand.New(rand.NewPCG(7, 8))
	for step := range 300 {
		rate := []Rate{10e6, 400e6, 50e6, 1e9, 100e6}[step%5]
		if step >= 200 {
			rate = 50e6 + Rate(r.IntN(1e6)) // jitter every millisecond
		}
		d := 20 * ms
		if step >= 200 {
			d = ms
		}
		w.m.setRate(w.now, f.link, rate)
		from := len(w.log)
		saturate(w, f, fixed(1452), d)
		checkWindows(t, w.log[from:], float64(rate), f.link.down.bytes)
		sum := 0
		for _, d := range w.log[from:] {
			sum += d.wire
		}
		want := float64(rate) / 8e9 * float64(d)
		if math.Abs(float64(sum)-want) > float64(f.link.down.bytes)+1e-3*want {
			t.Fatalf("step %d at %d bit/s: sent %d bytes, want %.0f", step, rate, sum, want)
		}
	}
	from, sum := w.now-100*ms, 0
	for _, d := range w.log {
		if d.at >= from {
			sum += d.wire
		}
	}
	if got := float64(sum) * 8e9 / float64(100*ms); got < 50e6 || got > 51.5e6 {
		t.Errorf("with a new rate every millisecond: %.4g bit/s", got)
	}
}

// TestLimitLifted: what waits leaves at once, and in order, when a limit goes.
func TestLimitLifted(t *testing.T) {
	w := newWorld(t)
	f := w.flow(w.link(1e6))
	for i := range 50 {
		w.send(f, sealed(uint64(i+1), 1452))
	}
	if f.link.open.Load() {
		t.Error("a limited link is open")
	}
	w.m.setRate(w.now, f.link, 0)
	if f.link.open.Load() {
		t.Error("the link is open while datagrams wait")
	}
	w.run(w.now+1, nil)
	if len(w.log) != 50 || !f.link.open.Load() || len(w.m.busy) != 0 {
		t.Errorf("%d of 50 left, open %v, busy links %d", len(w.log), f.link.open.Load(), len(w.m.busy))
	}
	for i, d := range w.log {
		if d.seq != uint64(i+1) {
			t.Fatalf("datagram %d has number %d", i+1, d.seq)
		}
	}
}

// TestUrgent: handshakes and keepalives go before what waits, within the rate.
func TestUrgent(t *testing.T) {
	w := newWorld(t)
	l := w.link(1e6)
	f, g := w.flow(l), w.flow(l)
	for i := range 20 {
		w.send(f, sealed(uint64(i+1), 1452))
	}
	handshake := make([]byte, 148)
	handshake[0] = 1
	keepalive := sealed(77, 32)
	w.send(g, handshake)
	w.send(f, keepalive)
	before := len(w.log)
	w.run(w.now+100*ms, nil)
	if got := w.log[before]; got.flow != g || got.wire != 148+42 {
		t.Errorf("first came %+v, want the handshake", got)
	}
	if got := w.log[before+1]; got.flow != f || got.wire != 32+42 {
		t.Errorf("then came %+v, want the keepalive", got)
	}
	checkWindows(t, w.log, 1e6, l.down.bytes)
	if l.released != 0 {
		t.Errorf("released %d, want 0", l.released)
	}
}

// TestFullQueue: stage 2 is bounded, and says what it drops.
func TestFullQueue(t *testing.T) {
	w := newWorld(t)
	f := w.flow(w.link(10e6))
	for i := range 2000 {
		w.send(f, sealed(uint64(i+1), 1452))
	}
	if f.link.out.bytes > outLeast {
		t.Errorf("stage 2 holds %d bytes", f.link.out.bytes)
	}
	w.run(w.now+10_000*ms, nil)
	if got := uint64(len(w.log)) + f.stats.Dropped; got != 2000 || f.stats.Dropped == 0 {
		t.Errorf("sent %d, dropped %d, want 2000 together", len(w.log), f.stats.Dropped)
	}
}

// TestFairStage2: flows that only stage 2 sees get equal shares too.
func TestFairStage2(t *testing.T) {
	w := newWorld(t)
	l := w.link(1e9)
	flows := []*Flow{w.flow(l), w.flow(l), w.flow(l)}
	sizes := []int{1452, 200, 700}
	w.run(w.now+200*ms, func() {
		for i, f := range flows {
			for f.out.bytes < 100_000 {
				w.send(f, sealed(0, sizes[i]))
			}
		}
	})
	for i, f := range flows {
		got := float64(f.stats.SentBytes) * 8e9 / float64(200*ms)
		if got < 330e6 || got > 336e6 {
			t.Errorf("flow %d of datagrams of %d bytes: %.4g bit/s, want a third of 1e9", i, sizes[i], got)
		}
	}
}

// TestMessagesFollow: messages that came one after another leave one after another, so that
// the first is there when its last byte can be, and not when all are. A datagram of who has
// sent nothing does not wait for what of a long one is more than its first part.
func TestMessagesFollow(t *testing.T) {
	const message, long = 12, 100
	w := newWorld(t)
	l := w.link(25e6)
	var flows []*Flow
	for range 3 {
		f := w.flow(l)
		flows = append(flows, f)
		for range message {
			w.send(f, sealed(0, 1452))
		}
	}
	w.run(w.now+1000*ms, nil)
	if len(w.log) != len(flows)*message {
		t.Fatalf("%d datagrams have left", len(w.log))
	}
	for i, d := range w.log {
		if d.flow != flows[i/message] {
			t.Errorf("datagram %d is of another message than those around it", i)
		}
	}
	w.log = nil
	for range long {
		w.send(flows[0], sealed(0, 1452))
	}
	w.send(flows[1], sealed(0, 100))
	w.run(w.now+1000*ms, nil)
	at := slices.IndexFunc(w.log, func(d departure) bool { return d.flow == flows[1] })
	if most := freshBytes/1452 + 2; at < 0 || at > most {
		t.Errorf("a small datagram leaves as number %d of %d, want %d at most", at, len(w.log), most)
	}
}
