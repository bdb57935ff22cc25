package mpi

import (
	"github.com/meshmpi/meshmpi/mpi/datatype"
	"github.com/meshmpi/meshmpi/mpi/internal/engine"
)

// Isend begins a Send. buf must not change until the request is complete.
func Isend[T Scalar](c *Comm, buf []T, dest, tag int) (Request, error) {
	return c.isend("Isend", bytesOf(buf), dest, tag, engine.Standard)
}

// Issend begins a Ssend.
func Issend[T Scalar](c *Comm, buf []T, dest, tag int) (Request, error) {
	return c.isend("Issend", bytesOf(buf), dest, tag, engine.Synchronous)
}

// Irsend begins an Rsend.
func Irsend[T Scalar](c *Comm, buf []T, dest, tag int) (Request, error) {
	return c.isend("Irsend", bytesOf(buf), dest, tag, engine.Ready)
}

// Irecv begins a Recv. buf must not be touched until the request is complete.
func Irecv[T Scalar](c *Comm, buf []T, source, tag int) (Request, error) {
	return c.irecv("Irecv", bytesOf(buf), source, tag, datatype.Basic(kindOf[T]()))
}

func (c *Comm) isend(op string, data []byte, dest, tag int, mode engine.Mode) (Request, error) {
	to, err := c.dest(op, dest, tag)
	switch {
	case err != nil:
		return Request{}, err
	case to == noProc:
		return c.nobody(op)
	}
	if c.w.profile != nil {
		c.sends(op, to, len(data))
	}
	id, err := c.w.eng.Isend(&engine.SendArgs{To: to, Context: c.base + ctxMessages, Tag: int32(tag), Mode: mode, Data: data})
	return c.request(op, dest, id, err)
}

func (c *Comm) irecv(op string, buf []byte, source, tag int, swap engine.Swapper) (Request, error) {
	from, err := c.source(op, source, tag)
	switch {
	case err != nil:
		return Request{}, err
	case from == noProc:
		return c.nobody(op)
	}
	id, err := c.w.eng.Irecv(&engine.RecvArgs{From: from, Context: c.base + ctxMessages, Tag: int32(tag), Buf: buf, Swap: swap})
	return c.request(op, source, id, err)
}

// sendUntil is a blocking send under a context.
func (c *Comm) sendUntil(op string, buf borrowed, to engine.Proc, tag int, mode engine.Mode) error {
	data := buf.b
	if len(data) <= small {
		data = append([]byte(nil), data...)
	} else {
		data, _ = stable(data, true)
	}
	peer := c.peers().rankOf(to)
	id, err := c.w.eng.Isend(&engine.SendArgs{To: to, Context: c.base + ctxMessages, Tag: int32(tag), Mode: mode, Data: data})
	r, err := c.request(op, peer, id, err)
	if err != nil {
		return err
	}
	_, err = r.wait(op, c.ctx)
	return err
}

// recvUntil is a blocking receive under a context.
func (c *Comm) recvUntil(op string, buf borrowed, from engine.Proc, source, tag int, swap engine.Swapper) (Status, error) {
	data := make([]byte, len(buf.b)) // ours, since the caller may give up on it
	id, err := c.w.eng.Irecv(&engine.RecvArgs{From: from, Context: c.base + ctxMessages, Tag: int32(tag), Buf: data, Swap: swap})
	r, err := c.request(op, source, id, err)
	if err != nil {
		return Status{}, err
	}
	st, err := r.block(op, c.ctx)
	if !st.Cancelled {
		copy(buf.b, data[:min(st.Bytes, int64(len(data)))])
	}
	return st, err
}
