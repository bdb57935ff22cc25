package mpi

import (
	"errors"

	"github.com/meshmpi/meshmpi/mpi/internal/engine"
)

// exposure is what Post and Wait, Start and Complete have to know.
type exposure struct {
	open    bool
	origins []int       // given to Post, from then to Wait
	done    map[int]int // how often each rank has completed, not yet waited for
	owed    map[int]int // of those, how many are of exposures that have failed
	exposed map[int]int // how often each rank has posted to us, not yet started
	waiters []engine.ID // completed when one of those changes
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
