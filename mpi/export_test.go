package mpi

import "weak"

// WithMostRequests has the process run out of requests early.
func WithMostRequests(n int) Option { return func(o *options) { o.requests = n } }

// Kept reports whether a communicator's memory is still in use.
func Kept(c *Comm) func() bool {
	p := weak.Make(c.comm)
	return func() bool { return p.Value() != nil }
}
