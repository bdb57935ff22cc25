package mpi

import (
	"weak"

	"github.com/meshmpi/meshmpi/mpi/internal/engine"
)

// WithMostRequests has the process run out of requests early.
func WithMostRequests(n int) Option { return func(o *options) { o.requests = n } }

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
