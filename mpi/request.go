package mpi

import (
	"context"
	"errors"
	"fmt"

	"github.com/meshmpi/meshmpi/mpi/internal/engine"
)

// Request is an operation under way (MPI 4.1 §3.7). It is a value: keep one
// copy, and complete it exactly once by Wait or Test. The zero Request is
// complete and has an empty status.
type Request struct {
	c    *comm
	id   engine.ID
	op   string
	peer int32
	of   *Persistent // which began it; nil: none
}

// None reports whether the request is the zero one: never begun, or completed.
func (r *Request) None() bool { return r.c == nil }

// Wait waits for the end of the operation and makes r the zero Request, except
// that after ErrProcFailedPending it goes on.
func (r *Request) Wait() (Status, error) { return r.wait("Wait", nil) }

// WaitContext is Wait that gives up when ctx ends; the operation goes on and r
// stays valid.
func (r *Request) WaitContext(ctx context.Context) (Status, error) {
	if r.None() {
		return empty(), nil
	}
	for {
		select {
		case <-r.Done():
			if st, done, err := r.Test(); done { // or it was warned of a death, which has been acknowledged since
				return st, err
			}
		case <-ctx.Done():
			return Status{}, &Error{Op: r.op, Class: ErrPending, Peer: int(r.peer), Err: ctx.Err()}
		}
	}
}

// Test reports whether the operation has ended; if so r becomes the zero Request.
func (r *Request) Test() (st Status, done bool, err error) {
	if r.None() {
		return empty(), true, nil
	}
	est, done, err := r.c.w.eng.Test(r.id)
	if !done {
		return Status{}, false, nil
	}
	st, err = r.finish(est, err)
	return st, true, err
}

// Done returns a channel that is closed when the operation has ended, or was warned
// of a death. Wait or Test must follow.
func (r *Request) Done() <-chan struct{} {
	if r.None() {
		return closed
	}
	return r.c.w.eng.Done(r.id)
}

var closed = func() chan struct{} { c := make(chan struct{}); close(c); return c }()

// Cancel withdraws a receive that has not matched. Wait must follow; its status
// says whether it was in time. Sends and collective operations end as they
// would have: to take back what may have arrived is deprecated in MPI 4.1
// (§3.8.4), and this library does not.
func (r *Request) Cancel() error {
	if r.None() {
		return fail("Cancel", ErrRequest, "there is no operation under way")
	}
	if err := r.c.w.eng.Cancel(r.id); err != nil {
		return r.c.wrap("Cancel", int(r.peer), err)
	}
	return nil
}

// Free lets the operation end by itself; its result cannot be had any more.
func (r *Request) Free() error {
	if r.None() {
		return fail("Request.Free", ErrRequest, "there is no operation under way")
	}
	r.c.w.eng.Free(r.id)
	r.clear()
	return nil
}

// clear makes the request the zero one, and its Persistent ready for the next Start,
// unless it is under way again: r may be a copy from the time before.
func (r *Request) clear() {
	if p := r.of; p != nil && p.current.id == r.id {
		p.current = Request{}
	}
	*r = Request{}
}

// wait is Wait in the name of op, under the context of a communicator.
func (r *Request) wait(op string, ctx context.Context) (Status, error) {
	if r.None() {
		return empty(), nil
	}
	if ctx != nil {
		return r.waitUntil(op, ctx)
	}
	st, err := r.c.w.eng.Wait(r.id)
	return r.finish(st, err)
}

// block is wait for a blocking call, of which nothing stays pending: a receive that was
// warned of a death is withdrawn, unless it has matched by then.
func (r *Request) block(op string, ctx context.Context) (Status, error) {
	st, err := r.wait(op, ctx)
	var warned engine.ErrProcFailedPending
	if r.None() || !errors.As(err, &warned) {
		return st, err
	}
	c, peer := r.c, int(r.peer)
	_ = c.w.eng.Cancel(r.id) // says nothing that the status does not
	if st, err = r.wait(op, ctx); err != nil || !st.Cancelled {
		return st, err
	}
	return Status{}, c.wrap(op, peer, engine.ErrProcFailed{Proc: warned.Proc, Err: warned})
}

// waitUntil waits for the end or, when ctx ends first, withdraws what can be
// withdrawn and revokes the communicator otherwise.
func (r *Request) waitUntil(op string, ctx context.Context) (Status, error) {
	eng := r.c.w.eng
	for over := false; !over; {
		select {
		case <-eng.Done(r.id):
			if st, done, err := eng.Test(r.id); done { // see WaitContext
				return r.finish(st, err)
			}
		case <-ctx.Done():
			over = true
		}
	}
	c, peer := r.c, int(r.peer)
	_ = eng.Cancel(r.id) // says nothing that the status does not
	if st, done, err := eng.Test(r.id); done {
		if !st.Cancelled {
			return r.finish(st, err) // it ended in the last moment
		}
		r.clear()
		return c.status(st), &Error{Op: op, Class: ErrPending, Peer: peer, Err: ctx.Err()}
	}
	c.revoke()
	st, _ := eng.Wait(r.id)
	r.clear()
	return c.status(st), &Error{Op: op, Class: ErrRevoked, Peer: peer, Err: ctx.Err()}
}

func (r *Request) finish(est engine.Status, err error) (Status, error) {
	c, op, peer := r.c, r.op, int(r.peer)
	var warned engine.ErrProcFailedPending
	if err != nil && errors.As(err, &warned) {
		return c.status(est), c.wrap(op, peer, err) // it may still match
	}
	r.clear()
	if err != nil {
		return c.status(est), c.wrap(op, peer, err)
	}
	return c.status(est), nil
}

// request makes a Request of what the engine began.
func (c *Comm) request(op string, peer int, id engine.ID, err error) (Request, error) {
	if err != nil {
		return Request{}, c.wrap(op, peer, err)
	}
	return Request{c: c.comm, id: id, op: op, peer: int32(peer)}, nil
}

// nobody is the request of an operation with ProcNull, which has ended.
func (c *Comm) nobody(op string) (Request, error) {
	return c.ended(op, ProcNull, engine.Status{Source: noProc, Tag: AnyTag})
}

// ended is a request that is complete from the beginning.
func (c *Comm) ended(op string, peer int, st engine.Status) (Request, error) {
	id, err := c.w.eng.General()
	if err == nil {
		c.w.eng.Do(func(held *engine.Op) { held.Complete(id, st, nil) })
	}
	return c.request(op, peer, id, err)
}

// WaitAll waits for all requests. st, if not nil, gets their statuses and must
// be as long. If some fail the error joins theirs, each with its index.
func WaitAll(rs []Request, st []Status) error {
	if st != nil && len(st) < len(rs) {
		return fail("WaitAll", ErrArg, "%d statuses for %d requests", len(st), len(rs))
	}
	var errs []error
	for i := range rs {
		s, err := rs[i].Wait()
		if st != nil {
			st[i] = s
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("request %d: %w", i, err))
		}
	}
	return errors.Join(errs...)
}

// TestAll reports whether all requests have ended, and completes them if so;
// otherwise none.
func TestAll(rs []Request, st []Status) (done bool, err error) {
	if st != nil && len(st) < len(rs) {
		return false, fail("TestAll", ErrArg, "%d statuses for %d requests", len(st), len(rs))
	}
	w, ids := idsOf(rs)
	if w == nil {
		return true, WaitAll(rs, st)
	}
	ests, errs, done := w.eng.TestAll(ids)
	if !done {
		return false, nil
	}
	for i := range rs {
		s := empty()
		if !rs[i].None() {
			if s, err = rs[i].finish(ests[i], errs[i]); err != nil {
				errs[i] = fmt.Errorf("request %d: %w", i, err)
			}
		}
		if st != nil {
			st[i] = s
		}
	}
	return true, errors.Join(errs...)
}

// WaitAny waits for one of the requests, completes it and returns its index; -1
// if all are zero.
func WaitAny(rs []Request) (index int, st Status, err error) {
	w, ids := idsOf(rs)
	if w == nil {
		return -1, empty(), nil
	}
	i, est, err := w.eng.WaitAny(ids)
	if i < 0 {
		return -1, empty(), wrapAny("WaitAny", err)
	}
	st, err = rs[i].finish(est, err)
	return i, st, err
}

// TestAny is WaitAny that does not wait: done is false when none has ended.
func TestAny(rs []Request) (index int, done bool, st Status, err error) {
	w, ids := idsOf(rs)
	if w == nil {
		return -1, true, empty(), nil
	}
	i, est, done, err := w.eng.TestAny(ids)
	if !done || i < 0 {
		return -1, done, Status{}, wrapAny("TestAny", err)
	}
	st, err = rs[i].finish(est, err)
	return i, true, st, err
}

// WaitSome waits until at least one request has ended, completes all that have,
// and returns their indices and statuses; nil if all requests are zero.
func WaitSome(rs []Request) (indices []int, st []Status, err error) {
	w, ids := idsOf(rs)
	if w == nil {
		return nil, nil, nil
	}
	return collected("WaitSome", rs, w.eng.WaitSome, ids)
}

// TestSome is WaitSome that does not wait: it completes those that have ended.
func TestSome(rs []Request) (indices []int, st []Status, err error) {
	w, ids := idsOf(rs)
	if w == nil {
		return nil, nil, nil
	}
	return collected("TestSome", rs, w.eng.TestSome, ids)
}

// collected finishes what the engine says has ended; errors say which. Each counts once: who was warned of
// a failure has ended as long as it has not been waited for again.
func collected(op string, rs []Request, some func([]engine.ID, []int, []engine.Status, []error) ([]int, []engine.Status, []error), ids []engine.ID) (indices []int, st []Status, err error) {
	indices, ests, errs := some(ids, nil, nil, nil)
	for n, i := range indices {
		s, e := rs[i].finish(ests[n], errs[n])
		if e != nil {
			err = errors.Join(err, fmt.Errorf("request %d: %w", i, e))
		}
		st = append(st, s)
	}
	if len(errs) > len(indices) {
		err = errors.Join(err, wrapAny(op, errs[len(indices)]))
	}
	return indices, st, err
}

// wrapAny is an error of none of several requests.
func wrapAny(op string, err error) error {
	if err == nil {
		return nil
	}
	return &Error{Op: op, Class: classOf(err), Peer: -1, Err: err}
}

// idsOf lists what the engine calls the requests; the world is nil if all are zero.
func idsOf(rs []Request) (w *World, ids []engine.ID) {
	ids = make([]engine.ID, len(rs))
	for i := range rs {
		if !rs[i].None() {
			w, ids[i] = rs[i].c.w, rs[i].id
		}
	}
	return w, ids
}
