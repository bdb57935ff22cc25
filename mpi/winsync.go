package mpi

import (
	"errors"
	"slices"

	"github.com/meshmpi/meshmpi/mpi/internal/engine"
)

// epoch is what an origin has open to one target.
type epoch struct {
	begun   uint64 // messages of accesses
	flushed uint64 // as many of the first of them are known to be done, or lost with the target
	locked  bool
	locking bool // Lock or LockAll is under way
}

// dirty reports whether there are accesses that may not have been done.
func (e epoch) dirty() bool { return e.begun != e.flushed }

// mayAccess reports whether an epoch is open to a target.
func (w *window) mayAccess(target int) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.allows(target)
}

// ranks are those of all members.
func (w *window) ranks() []int {
	all := make([]int, len(w.targets))
	for r := range all {
		all[r] = r
	}
	return all
}

func (w *window) allows(target int) bool {
	return w.fenced || w.lock.all || w.targets[target].locked || slices.Contains(w.started, target)
}

// Fence ends the epoch that the last Fence began, if one did: all accesses of all
// members have been done when it returns. It begins the next one. It is
// collective. Where a member has died it fails, at all who cannot know that the
// others have come, and begins none.
func (w *window) Fence() error {
	const op = "Fence"
	if err := w.usable(op); err != nil {
		return err
	}
	err := w.flushAll(op)
	if err := errors.Join(err, Barrier(w.c)); err != nil { // the others wait for us whatever was lost
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.fenced = true
	return nil
}

// FenceEnd is a Fence after which no epoch is open (MPI_MODE_NOSUCCEED).
func (w *window) FenceEnd() error {
	if err := w.Fence(); err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.fenced = false
	return nil
}

// Flush waits until all accesses of the caller to a target have been done there.
func (w *window) Flush(target int) error {
	const op = "Flush"
	if err := w.usable(op); err != nil || target == ProcNull {
		return err
	}
	if target < 0 || target >= w.c.Size() {
		return fail(op, ErrRank, "target %d of %d", target, w.c.Size())
	}
	if !w.mayAccess(target) {
		return fail(op, ErrRMASync, "no epoch is open to rank %d", target)
	}
	return w.wrapWait(op, w.ask(winHeader{kind: rmaFlush}, target))
}

// FlushAll is Flush of all targets.
func (w *window) FlushAll() error {
	const op = "FlushAll"
	if err := w.usable(op); err != nil {
		return err
	}
	if !slices.ContainsFunc(w.ranks(), w.mayAccess) {
		return fail(op, ErrRMASync, "no epoch is open")
	}
	return w.flushAll(op)
}

// FlushLocal waits until the memory given to accesses to a target may be used
// again.
func (w *window) FlushLocal(target int) error { return w.Flush(target) }

// FlushLocalAll is FlushLocal of all targets.
func (w *window) FlushLocalAll() error { return w.FlushAll() }

// Sync has the caller see what others have stored in its part of the window, and
// others what it has stored. With Go's memory model there is nothing left to do
// for that once a call of this package has returned; programs call it as MPI's
// separate memory model wants.
func (w *window) Sync() error { return w.usable("Sync") }

func (w *window) flushAll(op string) error {
	w.mu.Lock()
	var dirty []int
	for r := range w.targets {
		if w.targets[r].dirty() {
			dirty = append(dirty, r)
		}
	}
	w.mu.Unlock()
	asked := make([]question, len(dirty))
	for i, r := range dirty {
		asked[i] = w.ask(winHeader{kind: rmaFlush}, r)
	}
	var errs []error
	for _, q := range asked {
		errs = append(errs, w.wrapWait(op, q))
	}
	return errors.Join(errs...)
}

// question is a message that will be answered.
type question struct {
	id     engine.ID
	target int
	err    error
}

// ask sends a message whose answer completes a request.
func (w *window) ask(h winHeader, target int) question {
	eng := w.c.w.eng
	q := question{target: target}
	if q.id, q.err = eng.General(); q.err != nil {
		return q
	}
	eng.Do(func(op *engine.Op) {
		done := func(op *engine.Op, err error) { op.Complete(q.id, engine.Status{}, err) }
		if h.kind == rmaFlush || h.kind == rmaUnlock {
			done = w.flushing(target, done)
		}
		w.enqueue(op, target, func(op *engine.Op) bool {
			w.send(op, h, target, done)
			return false
		})
	})
	return q
}

// send sends a question, whose answer or failure done is told.
func (w *window) send(op *engine.Op, h winHeader, target int, done func(*engine.Op, error)) {
	if w.c.revoked.Load() { // the target may be without the window
		done(op, engine.ErrRevoked)
		return
	}
	ended := false // after which the number may be another's
	h.base = uint32(w.c.base)
	h.number = w.expect(target, nil, func(op *engine.Op, err error) {
		ended = true
		done(op, err)
	})
	failed := func(op *engine.Op, err error) {
		if err != nil && !ended {
			w.take(h.number, target).done(op, err)
		}
	}
	hdr := h.encode()
	if err := op.Post(w.c.group.procs[target], amWindow, &hdr, nil, failed); err != nil {
		failed(op, err)
	}
}

// flushing returns a done of what has all accesses to a target so far be done, which
// takes note of that. The engine is held.
func (w *window) flushing(target int, done func(*engine.Op, error)) func(*engine.Op, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	e := &w.targets[target]
	begun := e.begun
	return func(op *engine.Op, err error) {
		w.mu.Lock()
		e.flushed = max(e.flushed, begun)
		w.mu.Unlock()
		done(op, err)
	}
}

// wrapWait waits for the answer, or the target's death.
func (w *window) wrapWait(op string, q question) error {
	if q.id == (engine.ID{}) { // not a request: it was never asked
		return w.c.wrap(op, q.target, q.err)
	}
	end := w.c.orRevoke()
	_, err := w.c.w.eng.Wait(q.id)
	return w.c.wrap(op, q.target, end(err))
}
