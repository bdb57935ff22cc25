package mesh

import (
	"testing"
	"time"

	"github.com/meshmpi/meshmpi/mesh/peer"
)

func TestMTU(t *testing.T) {
	for _, tc := range []struct{ passes, want int }{{0, 1400}, {1300, 1280}, {600, 576}} {
		w := newWorld(t)
		c := w.add(near, peer.KindUDP)
		w.alive[near], w.mtu[near] = 10*time.Millisecond, tc.passes
		took := w.run(10*time.Second, func() bool { return c.mtu.found != 0 && !c.mtu.search })
		if c.mtu.found != tc.want {
			t.Errorf("path that passes %d: found %d, want %d", tc.passes, c.mtu.found, tc.want)
		}
		if took > 4*time.Second {
			t.Errorf("path that passes %d: search took %v", tc.passes, took)
		}
		if c.state != up || c.misses != 0 {
			t.Errorf("the search counted as losses: %+v", c)
		}
	}
}

// TestMTUShrinks: what passes may become less while the path is in use.
func TestMTUShrinks(t *testing.T) {
	w := newWorld(t)
	c := w.add(near, peer.KindUDP)
	w.alive[near] = 10 * time.Millisecond
	w.run(time.Minute, nil)
	for _, tc := range []struct {
		passes, want int
		within       time.Duration
	}{
		{0, 1400, 0},
		{1300, 1280, 15 * time.Second},
		{600, 576, 15 * time.Second},
		{100, 576, 15 * time.Second}, // even less: the smallest stays
		{1300, 1280, mtuRecheck + 10*time.Second},
		{0, 1400, mtuRecheck + 10*time.Second},
	} {
		w.mtu[near] = tc.passes
		took := w.run(tc.within, func() bool { return c.mtu.found == tc.want && !c.mtu.search })
		w.run(time.Minute, nil) // and no less later
		if c.mtu.found != tc.want {
			t.Errorf("path that passes %d now: MTU %d after %v, want %d", tc.passes, c.mtu.found, took, tc.want)
		}
		if c.state != up || c.loss > 0.01 {
			t.Errorf("path that passes %d now: state %d, loss %.2f", tc.passes, c.state, c.loss)
		}
	}
}

// TestMTUIsNotDoubtedForLosses: neither two lost probes nor a path that is
// silent altogether for a while say anything of its MTU.
func TestMTUIsNotDoubtedForLosses(t *testing.T) {
	w := newWorld(t)
	c := w.add(near, peer.KindUDP)
	w.alive[near] = 10 * time.Millisecond
	w.run(time.Minute, nil)
	for round := range 30 {
		w.mtu[near] = 600
		w.run(time.Minute, func() bool { return c.mtu.doubts == 1+round%2 })
		w.mtu[near] = 0
		w.run(20*time.Second, nil)
		delete(w.alive, near)
		w.set.recheck(w.now)
		w.run(1500*time.Millisecond, nil)
		if c.mtu.found != 1400 || c.mtu.search {
			t.Fatalf("round %d: a silent path's MTU is %d", round, c.mtu.found)
		}
		w.alive[near] = 10 * time.Millisecond
		w.run(20*time.Second, nil)
		if c.mtu.found != 1400 || c.state != up {
			t.Fatalf("MTU %d, state %d after round %d of losses", c.mtu.found, c.state, round)
		}
	}
}

// TestMTUDoesNotSpin: while the MTU in use is being proved, the time to look for a larger
// one comes: the loop must sleep, not spin until the answer is there.
func TestMTUDoesNotSpin(t *testing.T) {
	w := newWorld(t)
	w.add(near, peer.KindUDP)
	w.alive[near] = 100 * time.Millisecond
	w.mtu[near] = 1280
	w.run(30*time.Second, nil)
	c := w.set.current
	if c.mtu.found != 1280 || c.mtu.search {
		t.Fatalf("%+v", c.mtu)
	}
	w.now = c.mtu.next.Add(-20 * time.Millisecond)
	c.pings, c.next, c.mtu.verify = nil, w.now, w.now
	w.set.tick(w.now) // sends the proof
	if !c.mtu.wait {
		t.Fatal("no proof was sent")
	}
	w.now = w.now.Add(21 * time.Millisecond)
	for range 3 {
		w.set.tick(w.now)
		w.set.choose(w.now)
	}
	if at := w.set.deadline(); !at.After(w.now) {
		t.Errorf("the set wants to be called %v ago, again and again: the loop spins until the proof is answered or lost", w.now.Sub(at))
	}
}
