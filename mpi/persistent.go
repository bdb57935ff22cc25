package mpi

import "github.com/meshmpi/meshmpi/mpi/internal/engine"

// Persistent is an operation that is set up once and begun many times
// (MPI 4.1 §3.9). It belongs to one goroutine at a time.
type Persistent struct {
	begin   func() (Request, error)
	current Request
	freed   bool
}

// Start begins the operation. The one begun before must be complete.
func (p *Persistent) Start() error {
	if p.freed || p.begin == nil {
		return fail("Start", ErrRequest, "the request was freed")
	}
	if !p.current.None() {
		return fail("Start", ErrRequest, "the operation is under way already")
	}
	r, err := p.begin()
	if !r.None() {
		r.of = p
	}
	p.current = r
	return err
}

// StartAll starts all of them, to the first error.
func StartAll(ps ...*Persistent) error {
	for _, p := range ps {
		if err := p.Start(); err != nil {
			return err
		}
	}
	return nil
}

// Wait waits for the operation that was begun; if none was it returns at once.
func (p *Persistent) Wait() (Status, error) { return p.current.Wait() }

// Test reports whether the operation that was begun has ended.
func (p *Persistent) Test() (Status, bool, error) { return p.current.Test() }

// Cancel withdraws a receive that has not matched; Wait must follow.
func (p *Persistent) Cancel() error { return p.current.Cancel() }

// Request returns the operation under way, for WaitAny and its kind. To complete
// a copy of it completes it here too.
func (p *Persistent) Request() *Request { return &p.current }

// Free gives the operation up; if it is under way it ends by itself.
func (p *Persistent) Free() error {
	if p.freed {
		return fail("Persistent.Free", ErrRequest, "the request was freed")
	}
	p.freed = true
	if p.current.None() {
		return nil
	}
	return p.current.Free()
}

// SendInit sets up a Send of what buf holds at each Start.
func SendInit[T Scalar](c *Comm, buf []T, dest, tag int) (*Persistent, error) {
	return c.sendInit("SendInit", bytesOf(buf), dest, tag, engine.Standard)
}

// SsendInit sets up an Ssend.
func SsendInit[T Scalar](c *Comm, buf []T, dest, tag int) (*Persistent, error) {
	return c.sendInit("SsendInit", bytesOf(buf), dest, tag, engine.Synchronous)
}

// RsendInit sets up an Rsend.
func RsendInit[T Scalar](c *Comm, buf []T, dest, tag int) (*Persistent, error) {
	return c.sendInit("RsendInit", bytesOf(buf), dest, tag, engine.Ready)
}

// BsendInit sets up a Bsend.
func BsendInit[T Scalar](c *Comm, buf []T, dest, tag int) (*Persistent, error) {
	if _, err := c.dest("BsendInit", dest, tag); err != nil {
		return nil, err
	}
	return &Persistent{begin: func() (Request, error) { return Ibsend(c, buf, dest, tag) }}, nil
}

// RecvInit sets up a Recv into buf.
func RecvInit[T Scalar](c *Comm, buf []T, source, tag int) (*Persistent, error) {
	if _, err := c.source("RecvInit", source, tag); err != nil {
		return nil, err
	}
	return &Persistent{begin: func() (Request, error) { return Irecv(c, buf, source, tag) }}, nil
}

func (c *Comm) sendInit(op string, data []byte, dest, tag int, mode engine.Mode) (*Persistent, error) {
	if _, err := c.dest(op, dest, tag); err != nil {
		return nil, err
	}
	return &Persistent{begin: func() (Request, error) { return c.isend(op, data, dest, tag, mode) }}, nil
}
