package mpi

import (
	"errors"
	"slices"

	"github.com/meshmpi/meshmpi/mpi/internal/engine"
)

// epoch is what an origin has open to one target.
type epoch struct {
	dirty  bool // accessed since the last flush
	locked bool
}

// exposure is what Post and Wait, Start and Complete have to know.
type exposure struct {
	open    bool
	origins []int       // given to Post, from then to Wait
	done    map[int]int // how often each rank has completed, not yet waited for
	exposed map[int]int // how often each rank has posted to us, not yet started
	waiters []engine.ID // completed when one of those changes
}

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
	return w.wrapWait(op, w.ask(rmaFlush, 0, target))
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
		if w.targets[r].dirty {
			dirty = append(dirty, r)
		}
	}
	w.mu.Unlock()
	asked := make([]question, len(dirty))
	for i, r := range dirty {
		asked[i] = w.ask(rmaFlush, 0, r)
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
func (w *window) ask(kind, arg uint8, target int) question {
	eng := w.c.w.eng
	q := question{target: target}
	if q.id, q.err = eng.General(); q.err != nil {
		return q
	}
	eng.Do(func(op *engine.Op) {
		if w.c.revoked.Load() { // the target may be without the window
			op.Complete(q.id, engine.Status{}, engine.ErrRevoked)
			return
		}
		ended := false // after which the number may be another's
		number := w.expect(target, nil, func(op *engine.Op, err error) {
			ended = true
			op.Complete(q.id, engine.Status{}, err)
		})
		h := winHeader{base: uint32(w.c.base), kind: kind, op: arg, number: number}
		hdr := h.encode()
		q.err = op.Post(w.c.group.procs[target], amWindow, &hdr, nil, func(op *engine.Op, err error) {
			if err != nil && !ended {
				w.take(number).done(op, err)
			}
		})
		if q.err != nil {
			w.take(number)
			op.Complete(q.id, engine.Status{}, q.err)
		}
	})
	if kind == rmaFlush || kind == rmaUnlock {
		w.mu.Lock()
		w.targets[target].dirty = false
		w.mu.Unlock()
	}
	return q
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

// Post lets the members of a group access our memory, until they have called
// Complete and we Wait.
func (w *window) Post(g *Group) error {
	const op = "Post"
	if err := w.usable(op); err != nil {
		return err
	}
	ranks, err := w.ranksOf(op, g)
	if err != nil {
		return err
	}
	w.mu.Lock()
	if w.exposure.open {
		w.mu.Unlock()
		return fail(op, ErrRMASync, "the memory is exposed already")
	}
	w.exposure.open, w.exposure.origins = true, ranks
	w.mu.Unlock()
	return w.tellEach(op, ranks, rmaExposed)
}

func (w *window) tellEach(op string, ranks []int, kind uint8) error {
	var errs []error
	w.c.w.eng.Do(func(held *engine.Op) {
		for _, r := range ranks {
			if err := w.tell(held, r, winHeader{kind: kind}); err != nil {
				errs = append(errs, w.c.wrap(op, r, err))
			}
		}
	})
	return errors.Join(errs...)
}

// ranksOf returns the ranks that a group's members have in the window.
func (w *window) ranksOf(op string, g *Group) ([]int, error) {
	if g == nil {
		return nil, fail(op, ErrGroup, "the group is nil")
	}
	ranks := make([]int, len(g.procs))
	for i, p := range g.procs {
		if ranks[i] = w.c.rankOf.of(p); ranks[i] < 0 {
			return nil, fail(op, ErrGroup, "process %d of the group is not in the window", i)
		}
	}
	return ranks, nil
}

// Start begins an epoch to the members of a group, once all of them have called
// Post.
func (w *window) Start(g *Group) error {
	const op = "Start"
	if err := w.usable(op); err != nil {
		return err
	}
	ranks, err := w.ranksOf(op, g)
	if err != nil {
		return err
	}
	w.mu.Lock()
	open := w.started != nil
	w.mu.Unlock()
	if open {
		return fail(op, ErrRMASync, "an epoch is open that Start began")
	}
	if err := w.awaitEach(op, ranks, func(e *exposure) map[int]int { return e.exposed }); err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.started = append([]int{}, ranks...)
	return nil
}

// Complete ends the epoch that Start began: the accesses have been done.
func (w *window) Complete() error {
	const op = "Complete"
	if err := w.usable(op); err != nil {
		return err
	}
	w.mu.Lock()
	ranks := w.started
	w.started = nil
	w.mu.Unlock()
	if ranks == nil {
		return fail(op, ErrRMASync, "Start was not called")
	}
	err := w.flushAll(op)
	return errors.Join(err, w.tellEach(op, ranks, rmaDone)) // the living wait for it whatever was lost
}

// Wait waits until all that Post has let in have called Complete.
func (w *window) Wait() error {
	const op = "Win.Wait"
	ranks, err := w.exposedTo(op)
	if err != nil {
		return err
	}
	if err := w.awaitEach(op, ranks, func(e *exposure) map[int]int { return e.done }); err != nil {
		return err
	}
	w.close()
	return nil
}

// Test is Wait that does not wait: if it reports true the exposure has ended.
func (w *window) Test() (bool, error) {
	ranks, err := w.exposedTo("Win.Test")
	if err != nil {
		return false, err
	}
	w.c.w.eng.Poll()
	w.mu.Lock()
	for _, r := range ranks {
		if w.exposure.done[r] == 0 {
			w.mu.Unlock()
			return false, nil
		}
	}
	for _, r := range ranks {
		w.exposure.done[r]--
	}
	w.mu.Unlock()
	w.close()
	return true, nil
}

func (w *window) exposedTo(op string) ([]int, error) {
	if err := w.usable(op); err != nil {
		return nil, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.exposure.open {
		return nil, fail(op, ErrRMASync, "Post was not called")
	}
	return w.exposure.origins, nil
}

func (w *window) close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.exposure.open, w.exposure.origins = false, nil
}

// exposed takes note of a member's Post or Complete.
func (w *window) exposed(op *engine.Op, from int, kind uint8) {
	w.mu.Lock()
	defer w.mu.Unlock()
	e := &w.exposure
	if e.done == nil {
		e.done, e.exposed = map[int]int{}, map[int]int{}
	}
	if kind == rmaDone {
		e.done[from]++
	} else {
		e.exposed[from]++
	}
	for _, id := range e.waiters {
		op.Complete(id, engine.Status{}, nil)
	}
	e.waiters = nil
}

// cannot says why a rank's note will not come, if so.
func (w *window) cannot(rank int) error {
	if w.c.revoked.Load() {
		return engine.ErrRevoked
	}
	return w.c.w.eng.Gone(w.c.group.procs[rank])
}

// awaitEach waits for a note of each rank and takes it.
func (w *window) awaitEach(op string, ranks []int, of func(*exposure) map[int]int) error {
	end := w.c.orRevoke()
	r, err := w.awaitAll(ranks, of)
	return w.c.wrap(op, r, end(err))
}

// awaitAll returns the rank whose note will not come, and why.
func (w *window) awaitAll(ranks []int, of func(*exposure) map[int]int) (int, error) {
	eng := w.c.w.eng
	for _, r := range ranks {
		for {
			id, err := eng.General()
			if err != nil {
				return r, err
			}
			w.mu.Lock()
			n := of(&w.exposure)
			there := n[r] > 0
			if there {
				n[r]--
			} else {
				w.exposure.waiters = append(w.exposure.waiters, id)
			}
			w.mu.Unlock()
			if there {
				eng.Do(func(held *engine.Op) { held.Complete(id, engine.Status{}, nil) })
			} else if err := w.cannot(r); err != nil {
				eng.Do(func(held *engine.Op) { held.Complete(id, engine.Status{}, err) })
			}
			if _, err := eng.Wait(id); err != nil {
				return r, err
			}
			if there {
				break
			}
		}
	}
	return -1, nil
}
