package mpi

import (
	"cmp"
	"context"

	"github.com/meshmpi/meshmpi/mpi/internal/engine"
)

// SendBuf is Send of a Buf.
func (c *Comm) SendBuf(b Buf, dest, tag int) error {
	return c.sendBuf("SendBuf", b, dest, tag, engine.Standard)
}

// SsendBuf is Ssend of a Buf.
func (c *Comm) SsendBuf(b Buf, dest, tag int) error {
	return c.sendBuf("SsendBuf", b, dest, tag, engine.Synchronous)
}

// RsendBuf is Rsend of a Buf.
func (c *Comm) RsendBuf(b Buf, dest, tag int) error {
	return c.sendBuf("RsendBuf", b, dest, tag, engine.Ready)
}

// sendBuf is the blocking send in the modes that need no buffer.
func (c *Comm) sendBuf(op string, b Buf, dest, tag int, mode engine.Mode) error {
	r, err := c.isendBuf(op, b, dest, tag, mode)
	if err != nil {
		return err
	}
	_, err = r.wait(op, c.ctx)
	return err
}

// IsendBuf begins a SendBuf. Items that are not in one piece are copied at once.
func (c *Comm) IsendBuf(b Buf, dest, tag int) (Request, error) {
	return c.isendBuf("IsendBuf", b, dest, tag, engine.Standard)
}

// IssendBuf begins an SsendBuf, as IsendBuf does a SendBuf.
func (c *Comm) IssendBuf(b Buf, dest, tag int) (Request, error) {
	return c.isendBuf("IssendBuf", b, dest, tag, engine.Synchronous)
}

// SendBufInit sets up a SendBuf of what b holds at each Start.
func (c *Comm) SendBufInit(b Buf, dest, tag int) (*Persistent, error) {
	const op = "SendBufInit"
	if _, err := c.dest(op, dest, tag); err != nil {
		return nil, err
	}
	if err := b.check(op); err != nil {
		return nil, err
	}
	return &Persistent{begin: func() (Request, error) { return c.isendBuf(op, b, dest, tag, engine.Standard) }}, nil
}

// BsendBuf is Bsend of a Buf.
func (c *Comm) BsendBuf(b Buf, dest, tag int) error {
	const op = "BsendBuf"
	if to, err := c.dest(op, dest, tag); err != nil || to == noProc {
		return cmp.Or(err, b.check(op))
	}
	m, err := b.packed(op)
	if err != nil {
		return err
	}
	return c.bsend(op, m, dest, tag)
}

// unsent is the request of a Buf that goes to ProcNull or comes from there, of which no
// copy is needed, unless there is an error.
func (c *Comm) unsent(op string, err error, b Buf) (Request, error) {
	if err = cmp.Or(err, b.check(op)); err != nil {
		return Request{}, err
	}
	return c.nobody(op)
}

func (c *Comm) isendBuf(op string, b Buf, dest, tag int, mode engine.Mode) (Request, error) {
	if to, err := c.dest(op, dest, tag); err != nil || to == noProc {
		return c.unsent(op, err, b)
	}
	m, err := b.packed(op)
	if err != nil {
		return Request{}, err
	}
	return c.isend(op, m, dest, tag, mode)
}

// RecvBuf is Recv into a Buf. A shorter message fills its first items.
func (c *Comm) RecvBuf(b Buf, source, tag int) (Status, error) {
	r, err := c.irecvBuf("RecvBuf", b, source, tag)
	if err != nil {
		return Status{}, err
	}
	return r.block("RecvBuf", c.ctx)
}

// IrecvBuf begins a RecvBuf.
func (c *Comm) IrecvBuf(b Buf, source, tag int) (Request, error) {
	return c.irecvBuf("IrecvBuf", b, source, tag)
}

func (c *Comm) irecvBuf(op string, b Buf, source, tag int) (Request, error) {
	from, err := c.source(op, source, tag)
	if err != nil || from == noProc {
		return c.unsent(op, err, b)
	}
	m, place, err := b.landing(op)
	if err != nil {
		return Request{}, err
	}
	id, err := c.w.eng.Irecv(&engine.RecvArgs{From: from, Context: c.base + ctxMessages, Tag: int32(tag), Buf: m, Swap: b.typ, Done: landed(m, place)})
	return c.request(op, source, id, err)
}

// RecvBufInit sets up a RecvBuf into b.
func (c *Comm) RecvBufInit(b Buf, source, tag int) (*Persistent, error) {
	const op = "RecvBufInit"
	if _, err := c.source(op, source, tag); err != nil {
		return nil, err
	}
	if err := b.check(op); err != nil {
		return nil, err
	}
	return &Persistent{begin: func() (Request, error) { return c.irecvBuf(op, b, source, tag) }}, nil
}

// SendrecvBuf is Sendrecv of Bufs, which must not overlap.
func (c *Comm) SendrecvBuf(send Buf, dest, sendTag int, recv Buf, source, recvTag int) (Status, error) {
	const op = "SendrecvBuf"
	r, err := c.irecvBuf(op, recv, source, recvTag)
	if err != nil {
		return Status{}, err
	}
	s, err := c.isendBuf(op, send, dest, sendTag, engine.Standard)
	if err == nil {
		_, err = s.block(op, c.ctx)
	}
	if err != nil {
		_ = r.Cancel()
		_, _ = r.Wait()
		return Status{}, err
	}
	return r.block(op, c.ctx)
}

// MrecvBuf is Mrecv into a Buf.
func MrecvBuf(m *Message, b Buf) (Status, error) {
	const op = "MrecvBuf"
	mem, place, err := b.landing(op)
	if err != nil {
		return Status{}, err
	}
	var ctx context.Context
	if m.c != nil {
		ctx = m.c.ctx
	}
	r, err := m.irecv(mem, b.typ, landed(mem, place))
	if err != nil {
		return Status{}, err
	}
	return r.block(op, ctx)
}

// landed is what takes a message apart that has come into mem, if that is needed.
func landed(mem []byte, place func(int) error) func(*engine.Op, engine.Status, error) {
	if place == nil {
		return nil
	}
	return func(_ *engine.Op, st engine.Status, _ error) {
		_ = place(int(min(st.Bytes, int64(len(mem))))) // check has looked at all that can be wrong
	}
}
