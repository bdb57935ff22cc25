package mpi

import (
	"sync"

	"github.com/meshmpi/meshmpi/mpi/internal/engine"
)

// BsendOverhead is what a message in the buffer takes besides its data, in bytes.
const BsendOverhead = 64

// buffer is the room for messages sent by Bsend (MPI 4.1 §3.6). It is only
// counted: the memory is the garbage collector's.
type buffer struct {
	mu   sync.Mutex // guards the rest
	idle *sync.Cond // used is zero; made by who waits first
	size int
	used int
}

// AttachBuffer gives Bsend size bytes to keep messages in until they are sent.
func (w *World) AttachBuffer(size int) error {
	if err := w.open("AttachBuffer"); err != nil {
		return err
	}
	if size <= 0 {
		return fail("AttachBuffer", ErrBuffer, "a buffer of %d bytes", size)
	}
	b := &w.buffer
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.size != 0 {
		return fail("AttachBuffer", ErrBuffer, "a buffer of %d bytes is attached already", b.size)
	}
	b.size = size
	return nil
}

// DetachBuffer waits until all that Bsend kept is sent, takes the buffer away and
// returns its size.
func (w *World) DetachBuffer() (size int, err error) {
	w.FlushBuffer()
	b := &w.buffer
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.size == 0 {
		return 0, fail("DetachBuffer", ErrBuffer, "no buffer is attached")
	}
	size, b.size = b.size, 0
	return size, nil
}

// FlushBuffer waits until all that Bsend kept is sent.
func (w *World) FlushBuffer() {
	b := &w.buffer
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.idle == nil {
		b.idle = sync.NewCond(&b.mu)
	}
	for b.used > 0 {
		b.idle.Wait()
	}
}

func (b *buffer) reserve(op string, n int) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.used+n > b.size {
		return fail(op, ErrBuffer, "%d bytes do not fit into the %d that are free; AttachBuffer gives more", n, b.size-b.used)
	}
	b.used += n
	return nil
}

func (b *buffer) release(n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.used -= n; b.used == 0 && b.idle != nil {
		b.idle.Broadcast()
	}
}

// Bsend copies buf into the attached buffer and returns at once.
func Bsend[T Scalar](c *Comm, buf []T, dest, tag int) error {
	return c.bsend("Bsend", bytesOf(buf), dest, tag)
}

// Ibsend is Bsend as a request, which is complete at once.
func Ibsend[T Scalar](c *Comm, buf []T, dest, tag int) (Request, error) {
	return Request{}, c.bsend("Ibsend", bytesOf(buf), dest, tag)
}

func (c *Comm) bsend(op string, data []byte, dest, tag int) error {
	to, err := c.dest(op, dest, tag)
	if err != nil || to == noProc {
		return err
	}
	if c.w.profile != nil {
		c.sends(op, to, len(data))
	}
	n := len(data) + BsendOverhead
	if err := c.w.buffer.reserve(op, n); err != nil {
		return err
	}
	id, err := c.w.eng.Isend(&engine.SendArgs{
		To: to, Context: c.base + ctxMessages, Tag: int32(tag), Mode: engine.Standard, Data: append([]byte(nil), data...),
		Done: func(*engine.Op, engine.Status, error) { c.w.buffer.release(n) },
	})
	if err != nil {
		c.w.buffer.release(n)
		return c.wrap(op, dest, err)
	}
	c.w.eng.Free(id)
	return nil
}
