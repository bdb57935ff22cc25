package mpi

// WithMostRequests has the process run out of requests early.
func WithMostRequests(n int) Option { return func(o *options) { o.requests = n } }
