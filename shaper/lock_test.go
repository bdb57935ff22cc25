package shaper

import (
	"runtime"
	"sync"
	"testing"
	"time"
)

// TestLockExcludes has goroutines and one thread take a lock in turns; under the race
// detector nothing but the lock orders what they do.
func TestLockExcludes(t *testing.T) {
	c, err := newClock()
	if err != nil {
		t.Fatal(err)
	}
	const turns = 20000
	var l lock
	var count int
	var all sync.WaitGroup
	for range 3 {
		all.Go(func() {
			for range turns {
				l.lock()
				count++
				l.unlock()
			}
		})
	}
	all.Go(func() {
		runtime.LockOSThread() // never unlocked: as the pacing thread
		for range turns {
			l.lockAsThread(c)
			count++
			l.unlock()
		}
	})
	all.Wait()
	if count != 4*turns {
		t.Errorf("counted %d, want %d", count, 4*turns)
	}
}

// TestLockWakesThread: the pacing thread, which sleeps for a lock, is woken by who
// unlocks it. It comes to see by itself too, so one time that it slept is enough.
func TestLockWakesThread(t *testing.T) {
	c, err := newClock()
	if err != nil {
		t.Fatal(err)
	}
	woken := 0
	for range 50 {
		var l lock
		l.lock()
		got := make(chan struct{})
		go func() {
			runtime.LockOSThread()
			l.lockAsThread(c)
			l.unlock()
			close(got)
		}()
		for l.wanted.Load() == 0 { // it has spun, and is about to sleep
			time.Sleep(10 * time.Microsecond)
		}
		time.Sleep(time.Millisecond)
		if l.unlock() {
			woken++
		}
		<-got
	}
	if woken == 0 {
		t.Error("the thread has not slept for the lock, or nobody has woken it")
	}
}
