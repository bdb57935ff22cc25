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

// lockNow is the n of an rmaLock that does not wait until the lock is free, and of the
// rmaLocked that refuses it. Peers of older versions look at neither, and have it wait.
const lockNow = 1

// errLocked is how a question with lockNow ends that is refused.
var errLocked = errors.New("others have locked it")

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
	err := w.wrapWait(op, w.ask(winHeader{kind: rmaLock, op: uint8(kind)}, target))
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
	return w.wrapWait(op, w.ask(winHeader{kind: rmaUnlock}, target))
}

// LockAll begins an epoch to all targets, shared. It takes one round trip, and up to two
// more for each target that others have locked exclusively or wait to.
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
	for held := []int{}; len(held) < len(w.targets); {
		var err error
		if held, err = w.lockMore(op, held); err != nil {
			_ = w.unlockEach(op, held) // or nobody gets them any more; the error of the locks is enough
			return err
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lock.all = true
	return nil
}

// lockMore locks the targets that LockAll does not hold yet, but for those that are not
// free: it waits for the first of them, and gives those after it back meanwhile. Who waits
// for one thus holds those of lower ranks alone, and no two wait for each other.
func (w *window) lockMore(op string, held []int) ([]int, error) {
	var asked []question
	for r := len(held); r < len(w.targets); r++ {
		asked = append(asked, w.ask(winHeader{kind: rmaLock, op: uint8(LockShared), n: lockNow}, r))
	}
	var errs []error
	var busy []int
	for _, q := range asked {
		switch err := w.wrapWait(op, q); {
		case err == nil:
			held = append(held, q.target)
		case errors.Is(err, errLocked):
			busy = append(busy, q.target)
		default:
			errs = append(errs, err)
		}
	}
	if len(errs) > 0 || len(busy) == 0 {
		return held, errors.Join(errs...)
	}
	first := busy[0]
	q := w.ask(winHeader{kind: rmaLock, op: uint8(LockShared)}, first)
	errs = append(errs, w.unlockEach(op, held[first:]))
	held = held[:first]
	err := w.wrapWait(op, q)
	if err == nil {
		held = append(held, first)
	}
	return held, errors.Join(append(errs, err)...)
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
	return w.unlockEach(op, w.ranks())
}

// unlockEach gives locks back.
func (w *window) unlockEach(op string, ranks []int) error {
	asked := make([]question, len(ranks))
	for i, r := range ranks {
		asked[i] = w.ask(winHeader{kind: rmaUnlock}, r)
	}
	var errs []error
	for _, q := range asked {
		errs = append(errs, w.wrapWait(op, q))
	}
	return errors.Join(errs...)
}

// lockAsked grants a lock of our memory, now or when it is free; to who does not wait, now or
// not at all. Nobody overtakes one who waits. Who asks again before it has been granted a
// lock does what Lock does not.
func (w *window) lockAsked(op *engine.Op, l lockWaiter, now bool) {
	w.mu.Lock()
	if slices.ContainsFunc(w.lock.waiting, func(o lockWaiter) bool { return o.rank == l.rank }) {
		w.mu.Unlock()
		return
	}
	w.lock.waiting = append(w.lock.waiting, l)
	granted := w.grant()
	refused := now && len(w.lock.waiting) > 0
	if refused {
		w.lock.waiting = w.lock.waiting[:len(w.lock.waiting)-1]
	}
	w.mu.Unlock()
	if refused {
		_ = w.tell(op, l.rank, winHeader{kind: rmaLocked, number: l.number, n: lockNow}) // the dead need no answer
	}
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
