package mpi

import (
	"context"

	"github.com/meshmpi/meshmpi/mpi/datatype"
	"github.com/meshmpi/meshmpi/mpi/internal/engine"
)

// Probe waits for a message without receiving it and says what it is.
func (c *Comm) Probe(source, tag int) (Status, error) {
	from, err := c.source("Probe", source, tag)
	if err != nil {
		return Status{}, err
	}
	if from == noProc {
		return nothing(), nil
	}
	st, err := c.w.eng.ProbeContext(c.until(), from, c.base+ctxMessages, int32(tag))
	if err != nil {
		return Status{}, c.wrap("Probe", source, err)
	}
	return c.status(st), nil
}

// until is the context that blocking calls end with.
func (c *Comm) until() context.Context {
	if c.ctx == nil {
		return context.Background()
	}
	return c.ctx
}

// Iprobe says whether a message is there that a receive would match, and what.
func (c *Comm) Iprobe(source, tag int) (st Status, found bool, err error) {
	from, err := c.source("Iprobe", source, tag)
	if err != nil {
		return Status{}, false, err
	}
	if from == noProc {
		return nothing(), true, nil
	}
	est, found, err := c.w.eng.Iprobe(from, c.base+ctxMessages, int32(tag))
	if err != nil {
		return Status{}, false, c.wrap("Iprobe", source, err)
	}
	if !found {
		return Status{}, false, nil
	}
	return c.status(est), true, nil
}

// Message is one that was found by Mprobe or Improbe and that nobody else can
// receive any more (MPI 4.1 §3.8.2). It must be received.
type Message struct {
	c    *Comm
	msg  engine.Message
	st   Status
	null bool
}

// Status says what the message is.
func (m *Message) Status() Status { return m.st }

// Mprobe waits for a message and takes it out of matching.
func (c *Comm) Mprobe(source, tag int) (Message, error) {
	from, err := c.source("Mprobe", source, tag)
	if err != nil {
		return Message{}, err
	}
	if from == noProc {
		return Message{c: c, st: nothing(), null: true}, nil
	}
	msg, st, err := c.w.eng.MprobeContext(c.until(), from, c.base+ctxMessages, int32(tag))
	if err != nil {
		return Message{}, c.wrap("Mprobe", source, err)
	}
	return Message{c: c, msg: msg, st: c.status(st)}, nil
}

// Improbe is Mprobe that does not wait.
func (c *Comm) Improbe(source, tag int) (m Message, found bool, err error) {
	from, err := c.source("Improbe", source, tag)
	if err != nil {
		return Message{}, false, err
	}
	if from == noProc {
		return Message{c: c, st: nothing(), null: true}, true, nil
	}
	msg, st, found, err := c.w.eng.Improbe(from, c.base+ctxMessages, int32(tag))
	if err != nil {
		return Message{}, false, c.wrap("Improbe", source, err)
	}
	if !found {
		return Message{}, false, nil
	}
	return Message{c: c, msg: msg, st: c.status(st)}, true, nil
}

// Mrecv receives a message found by Mprobe. m becomes the zero Message.
func Mrecv[T Scalar](m *Message, buf []T) (Status, error) {
	var ctx context.Context
	if m.c != nil {
		ctx = m.c.ctx
	}
	r, err := Imrecv(m, buf)
	if err != nil {
		return Status{}, err
	}
	return r.block("Mrecv", ctx)
}

// Imrecv begins to receive a message found by Mprobe. m becomes the zero Message.
func Imrecv[T Scalar](m *Message, buf []T) (Request, error) {
	return m.irecv(bytesOf(buf), datatype.Basic(kindOf[T]()), nil)
}

func (m *Message) irecv(buf []byte, swap engine.Swapper, done func(*engine.Op, engine.Status, error)) (Request, error) {
	if m.c == nil {
		return Request{}, fail("Imrecv", ErrRequest, "there is no message; it was received")
	}
	c, msg, st, null := m.c, m.msg, m.st, m.null
	*m = Message{}
	if null {
		return c.nobody("Imrecv")
	}
	id, err := c.w.eng.Imrecv(msg, &engine.RecvArgs{Buf: buf, Swap: swap, Done: done})
	return c.request("Imrecv", st.Source, id, err)
}
