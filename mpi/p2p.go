package mpi

import (
	"runtime"

	"github.com/meshmpi/meshmpi/mpi/datatype"
	"github.com/meshmpi/meshmpi/mpi/internal/engine"
)

// Status says what was received.
type Status struct {
	Source    int   // rank of the sender; ProcNull where nothing was to come, AnySource of no request
	Tag       int   // of the message
	Bytes     int64 // received; Count gives elements
	Cancelled bool  // nothing was received: the request was cancelled
}

// Count returns how many elements of T were received; Undefined if the message
// ends in the middle of one.
func Count[T Scalar](st Status) int {
	size := int64(kindOf[T]().Size())
	if st.Bytes%size != 0 {
		return Undefined
	}
	return int(st.Bytes / size)
}

// nothing is the status of what came from ProcNull.
func nothing() Status { return Status{Source: ProcNull, Tag: AnyTag} }

// empty is the status of what was never begun (MPI 4.1 §3.7.3).
func empty() Status { return Status{Source: AnySource, Tag: AnyTag} }

// Send sends buf to rank dest and returns when buf may be used again: at once
// for small messages, when the receiver has it for large ones (the standard mode
// of MPI 4.1 §3.4).
func Send[T Scalar](c *Comm, buf []T, dest, tag int) error {
	return c.send("Send", hide(buf), dest, tag, engine.Standard)
}

// Ssend is Send that returns only after the receive has begun.
func Ssend[T Scalar](c *Comm, buf []T, dest, tag int) error {
	return c.send("Ssend", hide(buf), dest, tag, engine.Synchronous)
}

// Rsend is Send where the receive is known to be waiting already. That it is so
// is the program's promise.
func Rsend[T Scalar](c *Comm, buf []T, dest, tag int) error {
	return c.send("Rsend", hide(buf), dest, tag, engine.Ready)
}

// Recv waits for a message from rank source (or AnySource) with the tag (or
// AnyTag), puts it at the beginning of buf and says what it was. A longer one
// is received as far as buf goes, and the error is ErrTruncate.
func Recv[T Scalar](c *Comm, buf []T, source, tag int) (Status, error) {
	return c.recv("Recv", hide(buf), source, tag, kindOf[T]())
}

// Sendrecv sends and receives at the same time, so that neighbours may exchange
// without waiting for each other in a ring.
func Sendrecv[S, R Scalar](c *Comm, send []S, dest, sendTag int, recv []R, source, recvTag int) (Status, error) {
	r, err := c.irecv("Sendrecv", bytesOf(recv), source, recvTag, datatype.Basic(kindOf[R]()))
	if err != nil {
		return Status{}, err
	}
	if err := c.send("Sendrecv", hide(send), dest, sendTag, engine.Standard); err != nil {
		_ = r.Cancel()
		_, _ = r.Wait()
		return Status{}, err
	}
	return r.block("Sendrecv", c.ctx)
}

// SendrecvReplace is Sendrecv with one buffer for both.
func SendrecvReplace[T Scalar](c *Comm, buf []T, dest, sendTag, source, recvTag int) (Status, error) {
	out := append([]T(nil), buf...)
	return Sendrecv(c, out, dest, sendTag, buf, source, recvTag)
}

// small messages are copied on their way through a buffer of ours, so that a
// program may have its own on the stack.
const small = 256

// borrowed is the memory of a caller's slice, which may be on its stack. It must
// not be stored: see stable.
type borrowed struct{ b []byte }

func hide[T any](s []T) borrowed { return borrowed{noescape(bytesOf(s))} }

// send is the blocking send in all its modes.
func (c *Comm) send(op string, buf borrowed, dest, tag int, mode engine.Mode) error {
	to, err := c.dest(op, dest, tag)
	if err != nil || to == noProc {
		return err
	}
	if c.w.profile != nil {
		c.sends(op, to, len(buf.b))
	}
	if c.ctx != nil {
		return c.sendUntil(op, buf, to, tag, mode)
	}
	a := engine.SendArgs{To: to, Context: c.base + ctxMessages, Tag: int32(tag), Mode: mode}
	if mode != engine.Synchronous {
		a.Data = buf.b
		if sent, err := c.w.eng.SendNow(&a); sent {
			return nil
		} else if err != nil {
			return c.wrap(op, dest, err)
		}
	}
	if len(buf.b) <= small {
		s := c.w.scratch()
		a.Data = s[:copy(s[:], buf.b)]
		err = c.w.eng.Send(&a)
		c.w.scratches.Put(s)
	} else {
		data, _ := stable(buf.b, true)
		a.Data = data
		err = c.w.eng.Send(&a)
		runtime.KeepAlive(data)
	}
	if err != nil {
		return c.wrap(op, dest, err)
	}
	return nil
}

// recv is the blocking receive.
func (c *Comm) recv(op string, buf borrowed, source, tag int, kind datatype.Kind) (Status, error) {
	from, err := c.source(op, source, tag)
	if err != nil {
		return Status{}, err
	}
	if from == noProc {
		return nothing(), nil
	}
	if c.ctx != nil {
		return c.recvUntil(op, buf, from, source, tag, datatype.Basic(kind))
	}
	a := engine.RecvArgs{From: from, Context: c.base + ctxMessages, Tag: int32(tag), Swap: datatype.Basic(kind), Buf: buf.b}
	st, done, err := c.w.eng.RecvNow(&a)
	if done {
		if err != nil {
			err = c.wrap(op, source, err)
		}
		return c.status(st), err
	}
	if len(buf.b) <= small {
		s := c.w.scratch()
		a.Buf = s[:len(buf.b)]
		st, err = c.w.eng.Recv(&a)
		copy(buf.b, s[:min(st.Bytes, int64(len(buf.b)))])
		c.w.scratches.Put(s)
	} else {
		data, copied := stable(buf.b, false)
		a.Buf = data
		st, err = c.w.eng.Recv(&a)
		if copied {
			copy(buf.b, data[:min(st.Bytes, int64(len(data)))])
		}
	}
	if err != nil {
		return c.status(st), c.wrap(op, source, err)
	}
	return c.status(st), nil
}

// scratch is a buffer for one small message.
func (w *World) scratch() *[small]byte { return w.scratches.Get().(*[small]byte) }

// noProc is where ProcNull is.
const noProc engine.Proc = -2

// dest checks the arguments of a send.
func (c *Comm) dest(op string, rank, tag int) (engine.Proc, error) {
	if err := c.usable(op); err != nil {
		return 0, err
	}
	if tag < 0 || tag > MaxTag {
		return 0, fail(op, ErrTag, "tag %d; 0 to %d are allowed", tag, MaxTag)
	}
	if rank == ProcNull {
		return noProc, nil
	}
	procs := c.peers().procs
	if rank < 0 || rank >= len(procs) {
		return 0, fail(op, ErrRank, "rank %d of %d", rank, len(procs))
	}
	return procs[rank], nil
}

// source checks the arguments of a receive.
func (c *Comm) source(op string, rank, tag int) (engine.Proc, error) {
	if rank != AnySource {
		if tag == AnyTag {
			tag = 0
		}
		return c.dest(op, rank, tag)
	}
	if err := c.usable(op); err != nil {
		return 0, err
	}
	if tag != AnyTag && (tag < 0 || tag > MaxTag) {
		return 0, fail(op, ErrTag, "tag %d; 0 to %d, or AnyTag, are allowed", tag, MaxTag)
	}
	return engine.AnyProc, nil
}

// status says in ranks what the engine says in processes.
func (c *comm) status(st engine.Status) Status {
	return Status{Source: c.rankOf.of(st.Source), Tag: int(st.Tag), Bytes: st.Bytes, Cancelled: st.Cancelled}
}
