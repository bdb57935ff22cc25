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

// exposure is what Post and Wait, Start and Complete have to know.
type exposure struct {
	open    bool
	origins []int       // given to Post, from then to Wait
	done    map[int]int // how often each rank has completed, not yet waited for
	owed    map[int]int // of those, how many are of exposures that have failed
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

// Post lets the members of a group access our memory, until they have called
// Complete and we Wait. If it fails, it lets nobody.
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
	if err := w.tellEach(op, ranks, rmaExposed); err != nil {
		w.abandon()
		return err
	}
	return nil
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
	if err := w.awaitEach(op, ranks, (*exposure).posted); err != nil {
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

// Wait waits until all that Post has let in have called Complete. If it fails, because
// one of them has died, they are let in no more.
func (w *window) Wait() error {
	const op = "Win.Wait"
	ranks, err := w.exposedTo(op)
	if err != nil {
		return err
	}
	if err := w.awaitEach(op, ranks, (*exposure).completed); err != nil {
		w.abandon()
		return err
	}
	w.close()
	return nil
}

// Test is Wait that does not wait: if it reports true, or fails as Wait does, the exposure
// has ended.
func (w *window) Test() (bool, error) {
	const op = "Win.Test"
	ranks, err := w.exposedTo(op)
	if err != nil {
		return false, err
	}
	w.c.w.eng.Poll()
	if missing := w.takeNotes(ranks, (*exposure).completed, engine.ID{}); len(missing) > 0 {
		r, err := w.hopeless(missing)
		if err != nil {
			w.abandon()
		}
		return false, w.c.wrap(op, r, err)
	}
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

// abandon ends an exposure that has failed: notes that come of it are of no use.
func (w *window) abandon() {
	w.mu.Lock()
	defer w.mu.Unlock()
	e := &w.exposure
	e.make()
	for _, r := range e.origins {
		if e.done[r] > 0 {
			e.done[r]--
		} else {
			e.owed[r]++
		}
	}
	e.open, e.origins = false, nil
}

func (e *exposure) make() {
	if e.done == nil {
		e.done, e.owed, e.exposed = map[int]int{}, map[int]int{}, map[int]int{}
	}
}

func (e *exposure) completed() map[int]int { return e.done }
func (e *exposure) posted() map[int]int    { return e.exposed }

// exposed takes note of a member's Post or Complete.
func (w *window) exposed(op *engine.Op, from int, kind uint8) {
	w.mu.Lock()
	defer w.mu.Unlock()
	e := &w.exposure
	e.make()
	switch {
	case kind == rmaExposed:
		e.exposed[from]++
	case e.owed[from] > 0:
		e.owed[from]--
	default:
		e.done[from]++
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

// awaitEach waits for a note of each rank and takes them; none, if it fails.
func (w *window) awaitEach(op string, ranks []int, of func(*exposure) map[int]int) error {
	end := w.c.orRevoke()
	r, err := w.awaitAll(ranks, of)
	return w.c.wrap(op, r, end(err))
}

// awaitAll returns the rank whose note will not come, and why.
func (w *window) awaitAll(ranks []int, of func(*exposure) map[int]int) (int, error) {
	eng := w.c.w.eng
	for {
		id, err := eng.General()
		if err != nil {
			return -1, err
		}
		missing := w.takeNotes(ranks, of, id)
		if len(missing) == 0 {
			eng.Free(id)
			return -1, nil
		}
		if r, err := w.hopeless(missing); err != nil {
			eng.Free(id)
			return r, err
		}
		if _, err := eng.Wait(id); err != nil {
			return missing[0], err
		}
	}
}

// hopeless returns a rank whose note will not come, and why, if there is one.
func (w *window) hopeless(ranks []int) (int, error) {
	for _, r := range ranks {
		if err := w.cannot(r); err != nil {
			return r, err
		}
	}
	return -1, nil
}

// takeNotes takes a note of each rank, if all are there. Otherwise it returns the ranks
// whose are not, and id, if any, is completed when that may have changed.
func (w *window) takeNotes(ranks []int, of func(*exposure) map[int]int, id engine.ID) (missing []int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := of(&w.exposure)
	for _, r := range ranks {
		if n[r] == 0 {
			missing = append(missing, r)
		}
	}
	if len(missing) == 0 {
		for _, r := range ranks {
			n[r]--
		}
	} else if id != (engine.ID{}) {
		w.exposure.waiters = append(w.exposure.waiters, id)
	}
	return missing
}
