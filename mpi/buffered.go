package mpi

import (
	"errors"
	"sync"

	"github.com/meshmpi/meshmpi/mpi/internal/engine"
)

// BsendOverhead is what a message in the buffer takes besides its data, in bytes.
const BsendOverhead = 64

// buffer is the room for messages sent by Bsend (MPI 4.1 §3.6). It is only
// counted: the memory is the garbage collector's.
type buffer struct {
	mu   sync.Mutex // guards the rest
	idle *sync.Cond // what FlushBuffer waits for may be sent; made by who waits first
	size int
	used int

	flushes uint64         // FlushBuffer has been called so often
	kept    map[uint64]int // messages that are not sent, by the number of flushes before them
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
	b := &w.buffer
	b.mu.Lock()
	if b.size == 0 {
		b.mu.Unlock()
		return 0, fail("DetachBuffer", ErrBuffer, "no buffer is attached")
	}
	size, b.size = b.size, 0 // no Bsend comes in between
	b.mu.Unlock()
	w.FlushBuffer()
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
	before := b.flushes
	for b.flushes++; b.holds(before); {
		b.idle.Wait()
	}
}

// holds reports whether a message is kept that came after so many flushes or fewer.
func (b *buffer) holds(flushes uint64) bool {
	for n := range b.kept {
		if n <= flushes {
			return true
		}
	}
	return false
}

// reserve takes room for a message; release wants to know after how many flushes.
func (b *buffer) reserve(op string, n int) (flushes uint64, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.used+n > b.size {
		return 0, fail(op, ErrBuffer, "%d bytes do not fit into the %d that are free; AttachBuffer gives more", n, b.size-b.used)
	}
	b.used += n
	if b.kept == nil {
		b.kept = map[uint64]int{}
	}
	b.kept[b.flushes]++
	return b.flushes, nil
}

func (b *buffer) release(flushes uint64, n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.used -= n
	if b.kept[flushes]--; b.kept[flushes] > 0 {
		return
	}
	delete(b.kept, flushes)
	if b.idle != nil {
		b.idle.Broadcast()
	}
}

// Bsend copies buf into the attached buffer and returns at once.
func Bsend[T Scalar](c *Comm, buf []T, dest, tag int) error {
	return c.bsend("Bsend", bytesOf(buf), dest, tag)
}

// Ibsend is Bsend as a request, which is complete at once.
func Ibsend[T Scalar](c *Comm, buf []T, dest, tag int) (Request, error) {
	const op = "Ibsend"
	if _, err := c.dest(op, dest, tag); err != nil {
		return Request{}, err
	}
	// The request comes first: where there is none to have, nothing is sent.
	r, err := c.ended(op, dest, engine.Status{Source: engine.AnyProc, Tag: AnyTag})
	if err != nil {
		return Request{}, err
	}
	if err := c.bsend(op, bytesOf(buf), dest, tag); err != nil {
		return Request{}, errors.Join(err, r.Free())
	}
	return r, nil
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
	flushes, err := c.w.buffer.reserve(op, n)
	if err != nil {
		return err
	}
	id, err := c.w.eng.Isend(&engine.SendArgs{
		To: to, Context: c.base + ctxMessages, Tag: int32(tag), Mode: engine.Standard, Data: append([]byte(nil), data...),
		Done: func(*engine.Op, engine.Status, error) { c.w.buffer.release(flushes, n) },
	})
	if err != nil {
		c.w.buffer.release(flushes, n)
		return c.wrap(op, dest, err)
	}
	c.w.eng.Free(id)
	return nil
}
