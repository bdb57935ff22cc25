package shaper

import (
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// lock is a mutex for which no goroutine is ever parked. The pacing thread could not
// afford that: it would come back through Go's scheduler, and whom it wakes
// would wait for the processor that it holds. That thread alone sleeps for it, in the
// kernel, until it is unlocked.
type lock struct {
	mu     sync.Mutex
	wanted atomic.Uint32 // by the pacing thread, which sleeps on this word
}

// spins are tries of a lock that somebody holds: less than half a nanosecond each, so
// a microsecond in all, for which it is held at most by who has a processor.
const spins = 2000

// lockSleep is how long the pacing thread sleeps for the lock before it tries again by
// itself.
const lockSleep = 5 * time.Millisecond

// lock is for goroutines.
func (l *lock) lock() {
	for i := 0; !l.mu.TryLock(); i++ {
		switch {
		case i < spins:
		case i < spins+30:
			runtime.Gosched()
		default: // its holder has no processor
			time.Sleep(20 * time.Microsecond)
		}
	}
}

// lockAsThread is for the pacing thread. It may have taken the processor of the
// system from the lock's holder, and then must leave it until that is through; or Go's,
// when the world stops just then, and must let it stop.
func (l *lock) lockAsThread(c clock) {
	for i := 0; !l.mu.TryLock(); i++ {
		switch {
		case i < spins:
		case i < spins+20:
			l.wanted.Store(1) // who unlocks from here on sees it, or is seen below
			if l.mu.TryLock() {
				l.wanted.Store(0)
				return
			}
			ts := unix.NsecToTimespec(c.now() + int64(lockSleep))
			futexWait(&l.wanted, 1, &ts)
		default:
			runtime.Gosched()
		}
	}
	l.wanted.Store(0)
}

// unlock reports whether it has woken the pacing thread, which slept for the lock.
func (l *lock) unlock() (woken bool) {
	l.mu.Unlock()
	return l.wanted.Load() != 0 && l.wanted.Swap(0) != 0 && futexWakeOne(&l.wanted)
}

// Of futex(2): FUTEX_WAIT_BITSET takes an absolute time of CLOCK_MONOTONIC.
const (
	futexWake       = 1
	futexWaitBitset = 9
	futexPrivate    = 128
	futexAnyBit     = 0xffffffff
)

// futexWait sleeps while word is value, until a time at most, which it reports to have
// come, and keeps Go's processor, unless a signal says that Go wants to stop the
// goroutine, which it can where a function is entered.
//
//go:noinline
func futexWait(word *atomic.Uint32, value uint32, until *unix.Timespec) (timedOut bool) {
	_, _, errno := syscall.RawSyscall6(unix.SYS_FUTEX, uintptr(unsafe.Pointer(word)),
		futexWaitBitset|futexPrivate, uintptr(value), uintptr(unsafe.Pointer(until)), 0, futexAnyBit)
	return errno == unix.ETIMEDOUT
}

// futexWaitParting is futexWait, but leaves the processor to others, once Go's monitor
// finds that it has one.
func futexWaitParting(word *atomic.Uint32, value uint32, until *unix.Timespec) (timedOut bool) {
	_, _, errno := syscall.Syscall6(unix.SYS_FUTEX, uintptr(unsafe.Pointer(word)),
		futexWaitBitset|futexPrivate, uintptr(value), uintptr(unsafe.Pointer(until)), 0, futexAnyBit)
	return errno == unix.ETIMEDOUT
}

// futexWakeOne wakes who sleeps on word, and reports whether somebody did.
func futexWakeOne(word *atomic.Uint32) bool {
	n, _, errno := syscall.RawSyscall6(unix.SYS_FUTEX, uintptr(unsafe.Pointer(word)), futexWake|futexPrivate, 1, 0, 0, 0)
	return errno == 0 && n > 0
}
