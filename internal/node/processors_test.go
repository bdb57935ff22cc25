package node

import (
	"runtime"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// TestProcessors: more are used while those in use are full, fewer when fewer have
// been enough for a while, and one more while the pacing thread wants its own.
func TestProcessors(t *testing.T) {
	var sets []int
	p := &processors{least: 1, most: 6, n: 1, set: func(n int) { sets = append(sets, n) }}
	looks := func(times int, used float64) {
		t.Helper()
		for range times {
			p.look(used)
		}
	}
	check := func(want ...int) {
		t.Helper()
		if !slices.Equal(sets, want) {
			t.Errorf("processors were set to %v, want %v", sets, want)
		}
		sets = nil
	}
	looks(20, 0.8)
	check()
	looks(1, 0.95)
	check(2)
	looks(1, 1.9)
	looks(10, 5.9) // never more than 6
	check(4, 6)
	looks(processorsCalm-1, 0.1)
	check()
	looks(1, 2.5) // needed again: the calm begins anew
	looks(processorsCalm-1, 0.1)
	check()
	looks(1, 0.1)
	check(3)
	p.extra.Store(true)
	p.held.Store(true)
	looks(processorsCalm, 0.1)
	check(3, 1) // first the thread's own is gone
	if p.extra.Load() {
		t.Error("the pacing thread keeps a processor that it does not use")
	}
}

// TestHold: the pacing thread has one of its own from its first packet on, and until
// there have been none for a while.
func TestHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var now atomic.Int64
		p := &processors{
			least: 1, most: 2, n: 1, set: func(n int) { now.Store(int64(n)) },
			used: func() time.Duration { return 0 },
		}
		go p.run(t.Context())
		if p.hold(false) {
			t.Error("it may hold the only one")
		}
		if !p.hold(true) || !p.hold(false) || now.Load() != 2 {
			t.Errorf("with %d it may not hold one", now.Load())
		}
		time.Sleep((processorsIdle + 2) * processorsLook)
		if now.Load() != 1 || p.hold(false) {
			t.Errorf("%d processors are used when nothing is paced", now.Load())
		}
	})
}

// TestHoldInProgram: in a program that is a node the pacing thread never holds the
// only processor, whatever the program makes of their number.
func TestHoldInProgram(t *testing.T) {
	was := runtime.GOMAXPROCS(0)
	defer runtime.GOMAXPROCS(was)
	synctest.Test(t, func(t *testing.T) {
		may := (&daemon{}).mayHold()
		for _, n := range []int{1, 2, 1, 3} {
			runtime.GOMAXPROCS(n)
			time.Sleep(programLook)
			if got := may(true); got != (n > 1) || may(false) {
				t.Errorf("of %d processors it may hold one: %v", n, got)
			}
		}
	})
}

func TestBell(t *testing.T) {
	rung := make(chan struct{}, 1)
	b, err := newBell(func() {
		select {
		case rung <- struct{}{}:
		default:
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		b.ring()
		<-rung
	}
	if n := testing.AllocsPerRun(3, func() { b.ring(); <-rung }); n != 0 {
		t.Errorf("to ring takes %v allocations", n)
	}
	going, ended := make(chan struct{}), make(chan struct{})
	go func() { // who rings while it is closed touches no other file
		defer close(ended)
		close(going)
		for range 1000 {
			b.ring()
		}
	}()
	<-going
	if err := b.Close(); err != nil {
		t.Error(err)
	}
	<-ended
	b.ring() // does nothing
}
