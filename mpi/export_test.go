package mpi

import (
	"time"
	"weak"

	"github.com/meshmpi/meshmpi/mpi/internal/engine"
)

// WithMostRequests has the process run out of requests early.
func WithMostRequests(n int) Option { return func(o *options) { o.requests = n } }

// Crowded has the ranks of a host believe that there is one processor for all.
func Crowded() Option { return func(o *options) { o.room = room{1, "the only one"} } }

// Kept reports whether a communicator's memory is still in use.
func Kept(c *Comm) func() bool {
	p := weak.Make(c.comm)
	return func() bool { return p.Value() != nil }
}

// Remembered counts the notices that wait.
func Remembered(c *Comm) (n int) {
	c.w.eng.Do(func(*engine.Op) { n = len(c.w.runs.given) + len(c.w.runs.older) })
	return n
}

// RevokeFreed is what is done when a context ends.
func RevokeFreed(c *Comm) { c.revoke() }

// Owed returns how many bytes of answers a window waits for from a target, and how many
// accesses and questions wait until there are fewer.
func Owed[T Scalar](w *Win[T], target int) (bytes, waiting int) {
	w.c.w.eng.Do(func(*engine.Op) { bytes, waiting = w.lanes[target].owed, len(w.lanes[target].queue) })
	return bytes, waiting
}

// Waiting returns how many wait for the lock of the caller's part of a window.
func Waiting[T Scalar](w *Win[T]) int {
	w.c.w.eng.Poll()
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.lock.waiting)
}

// SetFinalizeTime changes how long a process waits for its launcher at the end.
func SetFinalizeTime(d time.Duration) { finalizeTime = d }

// UseUpComms has the process think that all communicators but free are in use.
func UseUpComms(w *World, free int) {
	w.contexts.mu.Lock()
	defer w.contexts.mu.Unlock()
	for len(w.contexts.used) < maxComms-free {
		w.contexts.used = append(w.contexts.used, true)
	}
}

// Tests have boards opened early, so that what they do often goes by both ways.
func init() { boardAfter = 4 }

// HasBoard reports whether the members of a communicator have opened a board.
func HasBoard(c *Comm) bool { return c.board.open.Load() != nil }
