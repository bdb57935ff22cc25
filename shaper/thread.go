package shaper

import (
	"errors"
	"log/slog"
	"runtime"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// clock reads CLOCK_MONOTONIC, by which the kernel's timers wake, through Go's
// own clock, which is cheaper than a system call.
type clock struct {
	base time.Time
	ns   int64 // CLOCK_MONOTONIC at base
}

func newClock() (clock, error) {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		return clock{}, err
	}
	return clock{base: time.Now(), ns: ts.Nano()}, nil
}

func (c clock) now() int64              { return c.ns + int64(time.Since(c.base)) }
func (c clock) at(t time.Time) int64    { return c.ns + int64(t.Sub(c.base)) }
func (c clock) time(ns int64) time.Time { return c.base.Add(time.Duration(ns - c.ns)) }

const (
	// While there is traffic the thread sleeps without telling Go's scheduler,
	// that is, it keeps its processor. Otherwise it would have to be given one
	// when it wakes; measured beside two spinning processes with Go half busy
	// on two cores, that is 154 µs late at p99 and 4.4 ms at p99.9, this 39 µs
	// and 1.0 ms. Besides, the scheduler's monitor would look every 75 µs for
	// a processor to take away, and wake threads for it. A signal ends the
	// sleep when the world is to stop; slices, lest one is missed.
	near  = int64(5 * time.Millisecond)
	slice = int64(5 * time.Millisecond)
	still = int64(20 * time.Millisecond) // without anything to send, the traffic has ended

	// What is sooner than so is not worth a sleep.
	leastNap = int64(10 * time.Microsecond)

	// How often somebody is to poll while packets wait.
	pollSleep = int64(2 * time.Millisecond)
)

// thread is the pacing thread. While there is traffic it sleeps on a futex, with an
// absolute time to wake, and is woken earlier by a change of the word; else it parks as
// goroutines do. (In a system call it would take its processor along, which is Go's only
// one in an idle daemon, and Go's monitor, itself asleep then, looks for it after 10 to
// 20 ms: all that the first packets of a burst would bring forth waited for that. Where it
// is refused one, as in a program that has one only, it sleeps in a system call.)
type thread struct {
	s      *Shaper
	word   atomic.Uint32
	parked atomic.Bool
	unpark chan struct{} // one for each time that somebody else has made parked false
	timer  *time.Timer
	lead   octile // by how much timers are late
	until  int64  // when it will look by itself, 0 while it looks; guarded by Shaper.mu
	busy   int64  // when there was last something to send
	quit   atomic.Bool
	ended  chan struct{}
}

func newThread(s *Shaper) *thread {
	return &thread{s: s, unpark: make(chan struct{}, 1), timer: time.NewTimer(0), ended: make(chan struct{})}
}

// stop ends the thread and waits until it has ended.
func (t *thread) stop() {
	t.quit.Store(true)
	t.wake()
	<-t.ended
}

// wake makes the thread look again.
func (t *thread) wake() {
	t.word.Add(1)
	if t.parked.CompareAndSwap(true, false) {
		t.unpark <- struct{}{}
		return
	}
	futexWakeOne(&t.word)
}

func (t *thread) run() {
	defer close(t.ended)
	runtime.LockOSThread() // never unlocked: the thread ends with the goroutine, and its priority with it
	hurry(t.s.cfg.Log)
	for traffic := false; !t.quit.Load(); {
		if traffic {
			t.s.pollLate()
		}
		word, due := t.s.pass()
		t.sleep(word, due)
		traffic = due != never
		if traffic {
			t.busy = t.s.clock.now()
		}
	}
}

// sleep returns at the time due, or soon after the word has changed.
func (t *thread) sleep(word uint32, due int64) {
	for t.word.Load() == word && !t.quit.Load() {
		now := t.s.clock.now()
		left := due - now
		if left <= 0 {
			return
		}
		traffic := left <= near || now-t.busy <= still
		switch {
		case left <= leastNap:
			t.await(word, due)
		case t.s.hold(traffic):
			t.nap(word, min(due, now+slice), futexWait)
		case traffic:
			t.nap(word, due, futexWaitParting)
		case due == never:
			t.park(word, nil)
		default:
			t.timer.Reset(time.Duration(left - near/2)) // in time to hold a processor
			t.park(word, t.timer.C)
		}
	}
}

// park leaves the processor to others at once, until the word has changed or something
// comes.
func (t *thread) park(word uint32, sooner <-chan time.Time) {
	t.parked.Store(true)
	if t.word.Load() == word {
		select {
		case <-t.unpark:
			return
		case <-sooner:
		}
	}
	if !t.parked.CompareAndSwap(true, false) {
		<-t.unpark // who has changed the word says so
	}
}

// nap sleeps in the kernel until the time due or until the word has changed. It asks for
// the lead by which timers are late, and what one is early by the thread waits for awake.
func (t *thread) nap(word uint32, due int64, wait func(*atomic.Uint32, uint32, *unix.Timespec) (timedOut bool)) {
	ask := max(due-int64(t.lead), t.s.clock.now()+leastNap)
	ts := unix.NsecToTimespec(ask)
	if wait(&t.word, word, &ts) {
		t.lead.note(t.s.clock.now() - ask)
		t.await(word, due)
	}
}

// await lets the little time until due pass, or until the word has changed.
func (t *thread) await(word uint32, due int64) {
	for t.word.Load() == word && t.s.clock.now() < due {
	}
}

// pass sends all that is due and returns when the next is, with the word to
// sleep on until then.
func (s *Shaper) pass() (word uint32, due int64) {
	s.mu.lockAsThread(s.clock)
	s.thread.until = 0
	for {
		f := s.m.pick(s.clock.now())
		kick, freed := s.m.kick(), s.m.takeFreed()
		if f == nil && !kick && !freed {
			break
		}
		s.mu.unlock()
		if kick {
			s.cfg.Kick()
		}
		if freed && s.cfg.Freed != nil {
			s.cfg.Freed()
		}
		if f != nil {
			f.send(f.batch)
		}
		s.mu.lockAsThread(s.clock)
		if f != nil {
			s.m.sent(s.clock.now(), f)
		}
	}
	defer s.mu.unlock()
	due = s.m.due()
	if due == never {
		s.thread.until = never
		return s.thread.word.Load(), never
	}
	now := s.clock.now()
	if s.cfg.PollLate != nil {
		due = min(due, now+pollSleep)
	}
	due = max(due, now+int64(5*time.Microsecond)) // with such a priority, spin for as long at most
	s.thread.until = due
	return s.thread.word.Load(), due
}

// hurry gives the calling thread the best priority it can have and says which.
func hurry(log *slog.Logger) {
	// Wake at the time asked for, not up to 50 µs later; see PR_SET_TIMERSLACK
	// in prctl(2). A failure shows in accuracy alone.
	_ = unix.Prctl(unix.PR_SET_TIMERSLACK, 1, 0, 0, 0)
	attr := unix.SchedAttr{
		Size: unix.SizeofSchedAttr, Policy: unix.SCHED_FIFO, Priority: 1,
		Flags: unix.SCHED_FLAG_RESET_ON_FORK, // what it starts is ordinary
	}
	fifo := unix.SchedSetAttr(0, &attr, 0)
	if fifo == nil {
		log.Debug("pacing thread", "priority", "SCHED_FIFO")
		return
	}
	if nice := unix.Setpriority(unix.PRIO_PROCESS, unix.Gettid(), -20); nice != nil {
		log.Warn("the pacing thread has no priority and may be late by milliseconds: allow it CAP_SYS_NICE",
			"err", errors.Join(fifo, nice))
		return
	}
	log.Debug("pacing thread", "priority", "nice -20")
}
