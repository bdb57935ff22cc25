package mesh

import (
	"net/netip"
	"testing"
	"time"

	"github.com/meshmpi/meshmpi/mesh/peer"
)

// fakePath is a path of a kind that goes nowhere.
type fakePath struct{ kind peer.Kind }

func (f fakePath) Send([][]byte) error { return nil }
func (f fakePath) Info() peer.PathInfo { return peer.PathInfo{Kind: f.kind} }
func (f fakePath) Close() error        { return nil }

// world runs a set against a clock of its own. alive says which paths answer,
// and how fast; the time moves from deadline to deadline.
type world struct {
	t     *testing.T
	set   set
	now   time.Time
	alive map[via]time.Duration // round-trip time; absent: silent
	mtu   map[via]int           // what passes; 0: everything
	sent  map[via]int
	due   []answer
}

type answer struct {
	at   time.Time
	txid uint64
}

func newWorld(t *testing.T) *world {
	w := &world{t: t, now: time.Unix(1e9, 0), alive: map[via]time.Duration{}, mtu: map[via]int{}, sent: map[via]int{}}
	n := uint64(0)
	w.set = set{txid: func() uint64 { n++; return n }, sizes: []int{1400, 1280, 576}, busy: true}
	return w
}

func (w *world) add(v via, kind peer.Kind) *candidate {
	o := told
	if v.relay != "" {
		o = kept
	}
	return w.set.add(w.now, v, o, func() peer.Path { return fakePath{kind} })
}

// run lets time pass until d is over or done says so.
func (w *world) run(d time.Duration, done func() bool) time.Duration {
	start, end := w.now, w.now.Add(d)
	for w.now.Before(end) {
		for _, o := range w.set.tick(w.now) {
			w.sent[o.c.via]++
			rtt, ok := w.alive[o.c.via]
			if limit := w.mtu[o.c.via]; ok && (limit == 0 || o.size <= limit) {
				w.due = append(w.due, answer{w.now.Add(rtt), o.txid})
			}
		}
		w.set.choose(w.now)
		if done != nil && done() {
			break
		}
		w.step(end)
	}
	return w.now.Sub(start)
}

// step moves to the next thing that happens.
func (w *world) step(end time.Time) {
	next, first := end, -1
	if at := w.set.deadline(); !at.IsZero() && at.Before(next) {
		next = at
	}
	for i, a := range w.due {
		if !a.at.After(next) {
			next, first = a.at, i
		}
	}
	if next.After(w.now) {
		w.now = next
	} else if first < 0 {
		w.now = w.now.Add(time.Millisecond)
	}
	if first >= 0 {
		txid := w.due[first].txid
		w.due = append(w.due[:first], w.due[first+1:]...)
		w.set.pong(w.now, txid, false)
	}
	w.set.choose(w.now)
}

func (w *world) wantCurrent(v via) {
	w.t.Helper()
	if c := w.set.current; c == nil || c.via != v {
		w.t.Fatalf("current path is %+v, want %v", c, v)
	}
}

var (
	relayed = via{relay: "hub"}
	near    = via{addr: netip.MustParseAddrPort("192.0.2.1:1")}
	far     = via{addr: netip.MustParseAddrPort("192.0.2.2:1")}
)

func TestMovesUpToDirect(t *testing.T) {
	w := newWorld(t)
	w.add(relayed, peer.KindRelayUDP)
	w.alive[relayed] = 10 * time.Millisecond
	w.run(time.Second, nil)
	w.wantCurrent(relayed)
	w.add(near, peer.KindUDP)
	w.alive[near] = 30 * time.Millisecond // slower, yet a better rung
	took := w.run(time.Second, func() bool { return w.set.current.via == near })
	if took > 50*time.Millisecond {
		t.Errorf("the direct path was taken after %v", took)
	}
}

// TestDeadPathIsLeft: within three seconds.
func TestDeadPathIsLeft(t *testing.T) {
	w := newWorld(t)
	w.add(relayed, peer.KindRelayUDP)
	w.add(near, peer.KindUDP)
	w.alive[relayed], w.alive[near] = 20*time.Millisecond, 5*time.Millisecond
	w.run(20*time.Second, nil)
	w.wantCurrent(near)
	delete(w.alive, near)
	took := w.run(10*time.Second, func() bool { return w.set.current.via == relayed })
	if w.wantCurrent(relayed); took > 3*time.Second {
		t.Errorf("a dead path was used for %v", took)
	}
	w.alive[near] = 5 * time.Millisecond
	w.run(40*time.Second, func() bool { return w.set.current.via == near })
	w.wantCurrent(near)
}

// TestUsersPings: that many users ping at once does not have a path given up that is silent
// for no longer than a loss or two explain; their answers tell of it as any others.
func TestUsersPings(t *testing.T) {
	w := newWorld(t)
	c := w.add(near, peer.KindUDP)
	w.alive[near] = 5 * time.Millisecond
	w.run(20*time.Second, nil)
	delete(w.alive, near)
	began := w.now
	for range 2 * maxMissesRx {
		c.pings = append(c.pings, ping{txid: w.set.txid(), sent: w.now, waiter: make(chan time.Duration, 1)})
	}
	w.run(10*time.Second, func() bool { return c.state != up })
	if took := w.now.Sub(began); took < 4*pongTimeout || took > 3*time.Second {
		t.Errorf("the path was given up after %v", took)
	}
}

// TestDeadPathIsLeftAgain: an answer that came late, as all do when an outage ends, does
// not make the next one last longer; and when this host's network has changed, less is
// enough.
func TestDeadPathIsLeftAgain(t *testing.T) {
	for _, tc := range []struct {
		rechecks bool
		within   time.Duration
	}{{false, 2500 * time.Millisecond}, {true, 900 * time.Millisecond}} {
		w := newWorld(t)
		w.add(relayed, peer.KindRelayUDP)
		w.add(near, peer.KindUDP)
		w.alive[relayed], w.alive[near] = 20*time.Millisecond, 5*time.Millisecond
		w.run(10*time.Second, nil)
		for range 4 {
			w.alive[near] = 1500 * time.Millisecond
			w.run(600*time.Millisecond, nil) // what is sent now waits
			delete(w.alive, near)
			w.run(900*time.Millisecond, nil)
			w.alive[near] = 5 * time.Millisecond
			w.run(2*time.Second, nil)
		}
		w.wantCurrent(near)
		delete(w.alive, near)
		if tc.rechecks {
			w.set.recheck(w.now)
		}
		if took := w.run(10*time.Second, func() bool { return w.set.current.via == relayed }); took > tc.within {
			t.Errorf("a dead path was used for %v, want %v; rechecked: %v", took, tc.within, tc.rechecks)
		}
	}
}

// TestCongestionIsNotDeath: while datagrams still arrive, lost probes alone do
// not condemn a path as fast.
func TestCongestionIsNotDeath(t *testing.T) {
	w := newWorld(t)
	c := w.add(near, peer.KindUDP)
	var rx uint64
	c.rx = func() uint64 { rx++; return rx }
	w.alive[near] = 5 * time.Millisecond
	w.run(5*time.Second, nil)
	delete(w.alive, near)
	w.run(3*time.Second, nil)
	if c.state != up {
		t.Error("a path that still carries data was given up within 3 s")
	}
	w.run(5*time.Second, nil)
	if c.state == up {
		t.Error("a path whose probes are never answered stays up")
	}
}

func TestFasterOfOneRungNeedsToBeClearlyFaster(t *testing.T) {
	w := newWorld(t)
	w.add(far, peer.KindUDP)
	w.alive[far] = 20 * time.Millisecond
	w.run(time.Second, nil)
	w.add(near, peer.KindUDP)
	w.alive[near] = 19 * time.Millisecond
	w.run(60*time.Second, nil)
	w.wantCurrent(far)
	w.alive[near] = 5 * time.Millisecond
	w.run(20*time.Minute, func() bool { return w.set.current.via == near })
	w.wantCurrent(near)
}

func TestGivesUpWhatNeverAnswers(t *testing.T) {
	w := newWorld(t)
	w.add(near, peer.KindUDP)
	w.add(relayed, peer.KindRelayUDP)
	w.run(time.Minute, nil)
	if w.set.find(near) != nil {
		t.Error("an address that never answered is still probed after a minute")
	}
	if w.set.find(relayed) == nil {
		t.Error("a relay was given up")
	}
	if n := w.sent[relayed]; n > 20 {
		t.Errorf("a silent relay was probed %d times in a minute", n)
	}
}

// TestSlowPaths: a round trip beyond the first time-out is learnt, and one that
// grows beyond it does not end the path.
func TestSlowPaths(t *testing.T) {
	w := newWorld(t)
	c := w.add(near, peer.KindUDP)
	w.alive[near] = 900 * time.Millisecond
	w.run(20*time.Second, nil)
	if c.state != up || c.rtt.smoothed < 800*time.Millisecond {
		t.Fatalf("a path of 900 ms is in state %d, measured %v", c.state, c.rtt.smoothed)
	}
	w = newWorld(t)
	c = w.add(near, peer.KindUDP)
	w.alive[near] = 20 * time.Millisecond
	w.run(5*time.Second, nil)
	w.alive[near] = 1500 * time.Millisecond // a queue filled up somewhere
	w.run(30*time.Second, nil)
	if c.state != up {
		t.Error("a path that became slow is lost")
	}
}

func TestIdlePathsAreQuiet(t *testing.T) {
	w := newWorld(t)
	w.add(near, peer.KindUDP)
	w.alive[near] = time.Millisecond
	w.run(time.Second, nil)
	w.set.use(w.now, false)
	w.run(time.Second, nil)
	w.sent = map[via]int{}
	w.run(10*time.Minute, nil)
	if n := w.sent[near]; n < 30 || n > 50 {
		t.Errorf("%d probes in ten idle minutes; want about one in 15 s", n)
	}
}

// TestSilenceIsCapped: bytes that arrive keep no path for long that answers
// nothing, however slow it was.
func TestSilenceIsCapped(t *testing.T) {
	for _, rtt := range []time.Duration{time.Millisecond, 900 * time.Millisecond, 1800 * time.Millisecond} {
		w := newWorld(t)
		c := w.add(near, peer.KindUDP)
		var rx uint64
		c.rx = func() uint64 { rx++; return rx }
		w.alive[near] = rtt
		w.run(time.Minute, nil)
		delete(w.alive, near)
		if took := w.run(time.Minute, func() bool { return c.state != up }); took > 10*time.Second {
			t.Errorf("a path of %v that answers nothing stayed up for %v because something arrived from there", rtt, took)
		}
	}
}

// TestHeardAddress: an address of which only a datagram's word is known gets
// nothing unasked and carries nothing, until it answers.
func TestHeardAddress(t *testing.T) {
	w := newWorld(t)
	c := w.set.add(w.now, near, heard, func() peer.Path { return fakePath{peer.KindUDP} })
	w.set.pinged(w.now, c)
	w.run(3*time.Second, nil)
	if w.sent[near] != 0 || w.set.current != nil {
		t.Errorf("%d pings went to an address that proved nothing; current %v", w.sent[near], w.set.current)
	}
	ask := w.set.pinged(w.now, c)
	w.run(20*time.Millisecond, nil)
	w.alive[near] = 20 * time.Millisecond
	w.set.pong(w.now, ask, false)
	w.run(time.Second, nil)
	w.wantCurrent(near)
	if c.state != up || !c.free || c.rtt.smoothed != 20*time.Millisecond {
		t.Errorf("after its answer the address is in state %d, measured %v", c.state, c.rtt.smoothed)
	}
	c = w.set.add(w.now, far, heard, func() peer.Path { return fakePath{peer.KindUDP} })
	w.set.pinged(w.now, c)
	w.run(2*lateFor, nil)
	if w.set.find(far) != nil || w.sent[far] != 0 {
		t.Error("an address that never answered is still a candidate")
	}
}

// TestAskedAgain: while the peer's pongs ask, it does not know that the path
// works, and hears of us soon again.
func TestAskedAgain(t *testing.T) {
	w := newWorld(t)
	w.set.busy = false
	c := w.add(near, peer.KindUDP)
	o := w.set.tick(w.now)
	w.set.pong(w.now, o[0].txid, true)
	if at := c.next.Sub(w.now); at != busyInterval {
		t.Errorf("next ping in %v, want %v", at, busyInterval)
	}
}

// TestKeepersLeaveRoom: neither relays nor advertised addresses, however many,
// keep a path out that a finder found, nor each other.
func TestKeepersLeaveRoom(t *testing.T) {
	w := newWorld(t)
	advertised := func(i byte) via {
		return via{addr: netip.AddrPortFrom(netip.AddrFrom4([4]byte{198, 51, 100, i}), 1)}
	}
	for i := range byte(20) {
		w.add(via{relay: string('a' + rune(i))}, peer.KindRelayUDP)
		w.set.add(w.now, advertised(i), kept, func() peer.Path { return fakePath{peer.KindUDP} })
	}
	w.run(30*time.Second, nil)
	w.alive[near], w.alive[relayed] = time.Millisecond, time.Millisecond
	if w.add(near, peer.KindUDP) == nil || w.add(relayed, peer.KindRelayUDP) == nil {
		t.Fatalf("no room for a new path among %d", len(w.set.cands))
	}
	w.run(time.Second, nil)
	w.wantCurrent(near)
	if r, a := w.set.count(isRelayed), w.set.count(isAdvertised); r != maxRelays || a != maxAdvertised {
		t.Errorf("%d relays and %d advertised addresses are kept, want %d and %d", r, a, maxRelays, maxAdvertised)
	}
	w.set.unkeep() // the peer advertises another address now
	w.set.add(w.now, far, kept, func() peer.Path { return fakePath{peer.KindUDP} })
	w.run(time.Minute, nil)
	if a := w.set.count(isAdvertised); a != 1 || w.set.find(far) == nil {
		t.Errorf("%d advertised addresses are kept after the last, want 1", a)
	}
}

func TestCandidatesAreBounded(t *testing.T) {
	w := newWorld(t)
	w.add(relayed, peer.KindRelayUDP)
	w.add(near, peer.KindUDP)
	w.alive[near], w.alive[relayed] = time.Millisecond, time.Millisecond
	w.run(time.Second, nil)
	for i := range 1000 {
		a := netip.AddrPortFrom(netip.MustParseAddr("203.0.113.1"), uint16(i+1))
		w.add(via{addr: a}, peer.KindUDP)
		w.set.add(w.now, via{addr: netip.AddrPortFrom(a.Addr(), a.Port()+2000)}, heard, func() peer.Path { return fakePath{peer.KindUDP} })
	}
	if n := len(w.set.cands); n > maxCandidates {
		t.Errorf("%d candidates, want at most %d", n, maxCandidates)
	}
	if n := w.set.count(isUnproven); n > maxUnproven {
		t.Errorf("%d unproven addresses, want at most %d", n, maxUnproven)
	}
	if w.set.find(near) == nil || w.set.find(relayed) == nil {
		t.Error("a flood of addresses displaced paths that work")
	}
}
