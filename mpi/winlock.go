package mpi

import (
	"errors"
	"slices"

	"github.com/meshmpi/meshmpi/mpi/internal/engine"
)

// lockState is what a target grants.
type lockState struct {
	exclusive bool
	holders   []int // ranks; the same one may hold it shared only once
	waiting   []lockWaiter
	all       bool // as an origin: LockAll is in force
}

type lockWaiter struct {
	rank      int
	exclusive bool
	number    uint32
}

// LockKind says whether others may hold a lock at the same time.
type LockKind uint8

// The kinds of locks.
const (
	LockShared LockKind = iota
	LockExclusive
)

// Lock begins an epoch to one target, which has no part in it. Exclusive: nobody
// else has one to that target at the same time. To lock ProcNull does nothing.
func (w *window) Lock(kind LockKind, target int) error {
	const op = "Lock"
	if err := w.usable(op); err != nil {
		return err
	}
	switch {
	case kind != LockShared && kind != LockExclusive:
		return fail(op, ErrLockType, "kind %d; LockShared and LockExclusive are known", kind)
	case target == ProcNull:
		return nil
	case target < 0 || target >= w.c.Size():
		return fail(op, ErrRank, "target %d of %d", target, w.c.Size())
	case !w.reserve(target):
		return fail(op, ErrRMASync, "an epoch to rank %d is open already", target)
	}
	err := w.wrapWait(op, w.ask(rmaLock, uint8(kind), target))
	w.mu.Lock()
	defer w.mu.Unlock()
	w.targets[target].locking, w.targets[target].locked = false, err == nil
	return err
}

// reserve says that Lock is under way for a target, unless an epoch is open to it. A Fence
// after which nothing was accessed has begun none (MPI 4.1 §12.5.1).
func (w *window) reserve(target int) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.fenced && !slices.ContainsFunc(w.targets, epoch.dirty) {
		w.fenced = false
	}
	if w.targets[target].locking || w.allows(target) {
		return false
	}
	w.targets[target].locking = true
	return true
}

// unreserve takes that back for the first n targets.
func (w *window) unreserve(n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for r := range n {
		w.targets[r].locking = false
	}
}

// Unlock ends the epoch that Lock began: all accesses in it have been done.
func (w *window) Unlock(target int) error {
	const op = "Unlock"
	if err := w.usable(op); err != nil || target == ProcNull {
		return err
	}
	w.mu.Lock()
	held := target >= 0 && target < len(w.targets) && w.targets[target].locked
	if held {
		w.targets[target].locked = false
	}
	w.mu.Unlock()
	if !held {
		return fail(op, ErrRMASync, "rank %d is not locked", target)
	}
	return w.wrapWait(op, w.ask(rmaUnlock, 0, target))
}

// LockAll begins an epoch to all targets, shared.
func (w *window) LockAll() error {
	const op = "LockAll"
	if err := w.usable(op); err != nil {
		return err
	}
	for r := range w.targets {
		if !w.reserve(r) {
			w.unreserve(r)
			return fail(op, ErrRMASync, "an epoch to rank %d is open already", r)
		}
	}
	defer w.unreserve(len(w.targets))
	asked := make([]question, len(w.targets))
	for r := range asked {
		asked[r] = w.ask(rmaLock, uint8(LockShared), r)
	}
	var errs []error
	var granted []int
	for r, q := range asked {
		if err := w.wrapWait(op, q); err != nil {
			errs = append(errs, err)
		} else {
			granted = append(granted, r)
		}
	}
	if err := errors.Join(errs...); err != nil {
		for _, r := range granted { // or nobody gets them any more
			_ = w.wrapWait(op, w.ask(rmaUnlock, 0, r)) // the error of the locks is enough
		}
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lock.all = true
	return nil
}

// UnlockAll ends the epoch that LockAll began.
func (w *window) UnlockAll() error {
	const op = "UnlockAll"
	if err := w.usable(op); err != nil {
		return err
	}
	w.mu.Lock()
	held := w.lock.all
	w.lock.all = false
	w.mu.Unlock()
	if !held {
		return fail(op, ErrRMASync, "LockAll was not called")
	}
	asked := make([]question, len(w.targets))
	for r := range asked {
		asked[r] = w.ask(rmaUnlock, 0, r)
	}
	var errs []error
	for _, q := range asked {
		errs = append(errs, w.wrapWait(op, q))
	}
	return errors.Join(errs...)
}

// lockAsked grants a lock of our memory, now or when it is free. Nobody overtakes
// one who waits. Who asks again before it has been granted a lock does what Lock does not.
func (w *window) lockAsked(op *engine.Op, l lockWaiter) {
	w.mu.Lock()
	if slices.ContainsFunc(w.lock.waiting, func(o lockWaiter) bool { return o.rank == l.rank }) {
		w.mu.Unlock()
		return
	}
	w.lock.waiting = append(w.lock.waiting, l)
	granted := w.grant()
	w.mu.Unlock()
	w.tellGranted(op, granted)
}

func (w *window) unlockAsked(op *engine.Op, from int) {
	w.mu.Lock()
	if i := slices.Index(w.lock.holders, from); i >= 0 {
		w.lock.holders = slices.Delete(w.lock.holders, i, i+1)
	}
	granted := w.grant()
	w.mu.Unlock()
	w.tellGranted(op, granted)
}

// grant takes from those who wait whoever may have the lock now.
func (w *window) grant() (granted []lockWaiter) {
	l := &w.lock
	for len(l.waiting) > 0 {
		next := l.waiting[0]
		if len(l.holders) > 0 && (next.exclusive || l.exclusive) {
			return granted
		}
		l.exclusive = next.exclusive
		l.holders = append(l.holders, next.rank)
		l.waiting = l.waiting[1:]
		granted = append(granted, next)
	}
	return granted
}

func (w *window) tellGranted(op *engine.Op, granted []lockWaiter) {
	for _, l := range granted {
		if w.tell(op, l.rank, winHeader{kind: rmaLocked, number: l.number}) != nil {
			w.unlockAsked(op, l.rank) // it is dead
		}
	}
}
