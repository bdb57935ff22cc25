package engine

import "slices"

// WaitAny waits for one of the requests, frees it and returns its index. Zero
// IDs are ignored; if all are, i is -1.
func (e *Engine) WaitAny(ids []ID) (i int, st Status, err error) {
	e.gate.lock()
	defer e.leave()
	if i, st, err = e.anyOver(ids); i >= 0 {
		return i, st, err
	}
	w := e.newWaiter()
	defer e.freeWaiter(w)
	for i < 0 {
		if some, err := e.enlist(ids, w); !some {
			return -1, empty, err
		}
		w.fired = false
		e.block(w)
		e.unwait(ids, w)
		i, st, err = e.anyOver(ids) // none, if it was a warning that has been acknowledged since
		if i < 0 && e.stopped {
			return -1, Status{}, ErrClosed
		}
	}
	return i, st, err
}

// enlist has a waiter wait for requests. It reports whether there are some.
func (e *Engine) enlist(ids []ID, w *waiter) (some bool, err error) {
	for _, id := range ids {
		if r := e.lookup(id); r != nil {
			if r.waiter != nil && r.waiter != w {
				e.unwait(ids, w)
				return false, ErrBusy
			}
			r.waiter, some = w, true
		}
	}
	return some, nil
}

// unwait takes a waiter from the requests it has waited for.
func (e *Engine) unwait(ids []ID, w *waiter) {
	for _, id := range ids {
		if r := e.lookup(id); r != nil && r.waiter == w {
			r.waiter = nil
		}
	}
}

// anyOver collects the first request that has ended; -1: none has.
func (e *Engine) anyOver(ids []ID) (int, Status, error) {
	for i, id := range ids {
		if id == (ID{}) {
			continue
		}
		r := e.lookup(id)
		if r == nil || r.flags&detached != 0 {
			return i, Status{}, ErrRequest
		}
		if r.over() {
			st, err := e.result(r)
			return i, st, err
		}
	}
	return -1, empty, nil
}

// TestAny is WaitAny that does not wait: done is false if none has ended. If all
// IDs are zero, done is true and i is -1.
func (e *Engine) TestAny(ids []ID) (i int, st Status, done bool, err error) {
	e.gate.lock()
	defer e.leave()
	for range 2 {
		if i, st, err = e.anyOver(ids); i >= 0 {
			return i, st, true, err
		}
		e.glance()
	}
	for _, id := range ids {
		if id != (ID{}) {
			return -1, Status{}, e.stopped, e.closedError()
		}
	}
	return -1, empty, true, nil
}

// WaitSome waits until one of the requests has ended and collects all that have:
// it appends their indices and statuses, and their errors, to the slices given.
// Nothing is appended if all IDs are zero.
func (e *Engine) WaitSome(ids []ID, indices []int, sts []Status, errs []error) ([]int, []Status, []error) {
	i, st, err := e.WaitAny(ids)
	if i < 0 {
		if err != nil {
			errs = append(errs, err)
		}
		return indices, sts, errs
	}
	indices, sts, errs = append(indices, i), append(sts, st), append(errs, err)
	e.gate.lock()
	defer e.leave()
	return e.someOver(ids, i, indices, sts, errs)
}

// TestSome is WaitSome that does not wait. Where none will ever end since the engine has
// stopped, the only error says so.
func (e *Engine) TestSome(ids []ID, indices []int, sts []Status, errs []error) ([]int, []Status, []error) {
	e.gate.lock()
	defer e.leave()
	e.glance()
	before := len(indices)
	indices, sts, errs = e.someOver(ids, -1, indices, sts, errs)
	if e.stopped && len(indices) == before && slices.ContainsFunc(ids, func(id ID) bool { return id != (ID{}) }) {
		errs = append(errs, e.closedError())
	}
	return indices, sts, errs
}

// TestAll reports whether all of the requests have ended. If so it collects them and
// returns the status and error of each, an empty one of zero IDs; otherwise it collects
// none.
func (e *Engine) TestAll(ids []ID) (sts []Status, errs []error, done bool) {
	e.gate.lock()
	defer e.leave()
	if !e.allOver(ids) {
		if e.glance(); !e.allOver(ids) {
			return nil, nil, false
		}
	}
	sts, errs = make([]Status, len(ids)), make([]error, len(ids))
	for i, id := range ids {
		switch r := e.lookup(id); {
		case id == (ID{}):
			sts[i] = empty
		case r == nil || r.flags&detached != 0:
			errs[i] = ErrRequest
		default:
			sts[i], errs[i] = e.result(r)
		}
	}
	return sts, errs, true
}

// allOver reports whether no request is to be waited for.
func (e *Engine) allOver(ids []ID) bool {
	for _, id := range ids {
		if r := e.lookup(id); r != nil && r.flags&detached == 0 && !r.over() && !e.stopped {
			return false
		}
	}
	return true
}

func (e *Engine) someOver(ids []ID, but int, indices []int, sts []Status, errs []error) ([]int, []Status, []error) {
	for i, id := range ids {
		if i == but || id == (ID{}) {
			continue
		}
		var st Status
		err := ErrRequest
		switch r := e.lookup(id); {
		case r == nil || r.flags&detached != 0:
		case r.over():
			st, err = e.result(r)
		default:
			continue
		}
		indices, sts, errs = append(indices, i), append(sts, st), append(errs, err)
	}
	return indices, sts, errs
}

// Done returns a channel that is closed when the request has ended, or was
// warned of a failure. Wait or Test must follow.
func (e *Engine) Done(id ID) <-chan struct{} {
	e.gate.lock()
	defer e.leave()
	r := e.lookup(id)
	if r == nil || r.over() || e.stopped {
		return closedChannel()
	}
	if r.ended == nil {
		r.ended = make(chan struct{})
	}
	if e.driver == nil {
		e.helperWanted = true // the caller will not drive
		e.callHelper()
	}
	e.strayed()
	return r.ended
}

func closedChannel() <-chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}

// Cancel withdraws a receive that has not matched: it ends with Cancelled in its
// status. Anything else ends as it would have (MPI 4.1 §3.8.4). Wait must
// follow.
func (e *Engine) Cancel(id ID) error {
	e.gate.lock()
	defer e.leave()
	return e.cancel(id)
}

func (e *Engine) cancel(id ID) error {
	r := e.lookup(id)
	if r == nil {
		return ErrRequest
	}
	if r.kind != recvRequest || r.state != posted {
		return nil
	}
	e.contexts[r.ctx].unpost(r)
	r.err = nil // of a warning
	r.status = Status{Source: r.peer, Tag: r.tag, Cancelled: true}
	e.end(r, nil)
	return nil
}

// Free lets a request end by itself; its result is lost. The zero ID is allowed.
func (e *Engine) Free(id ID) {
	e.gate.lock()
	defer e.leave()
	r := e.lookup(id)
	switch {
	case r == nil || r.flags&detached != 0:
	case r.state == complete || r.kind == generalRequest:
		e.signal(r) // who waits for it has nothing to wait for
		e.release(r)
	default:
		r.flags |= detached
	}
}
