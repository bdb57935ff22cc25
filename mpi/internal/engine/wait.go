package engine

import (
	"runtime"
	"time"
)

// leave ends what a caller did with the engine held.
func (e *Engine) leave() {
	if e.ending.first != nil || len(e.deferred) > 0 || len(e.breaking) > 0 || e.pulls.first != nil {
		e.settle()
		e.rouse()
	}
	e.gate.unlock()
}

// rouse wakes a driver that sleeps, if there is something to be read across: that needs
// somebody who is awake. It is for whoever leaves such things behind.
func (e *Engine) rouse() {
	if e.pulls.first != nil && e.driver != nil && e.driver.asleep {
		e.bell.ring()
	}
}

// settle does what was put off: callbacks, and what follows from broken links.
func (e *Engine) settle() {
	for !e.working && (e.ending.first != nil || e.putOff() || len(e.breaking) > 0) {
		e.work()
		for len(e.breaking) > 0 {
			c := e.breaking[0]
			e.breaking = e.breaking[1:]
			e.broke(c)
		}
	}
}

// waiter is a goroutine that waits for requests or for a message to arrive.
type waiter struct {
	wake   chan struct{} // size 1: at most one wake-up is on its way, see fire
	fired  bool          // it has something to look at
	parked bool          // it is in the engine's list of those that do not drive
	asleep bool          // it drives, and sleeps
	watch  time.Duration // see WaitAwake
	next   *waiter
}

// fire tells a waiter that it has something to look at.
func (e *Engine) fire(w *waiter) {
	if w.fired {
		return
	}
	w.fired = true
	switch {
	case w.parked:
		e.unpark(w)
	case w.asleep:
		e.bell.ring()
	}
}

// unpark wakes a parked waiter.
func (e *Engine) unpark(w *waiter) {
	for l := &e.parked; *l != nil; l = &(*l).next {
		if *l == w {
			*l = w.next
			break
		}
	}
	w.next, w.parked = nil, false
	w.wake <- struct{}{}
}

func (e *Engine) newWaiter() *waiter {
	w := e.waiters
	if w == nil {
		return &waiter{wake: make(chan struct{}, 1)}
	}
	e.waiters = w.next
	w.next, w.fired, w.watch = nil, false, 0
	return w
}

func (e *Engine) freeWaiter(w *waiter) {
	w.next = e.waiters
	e.waiters = w
}

// block waits until w is fired: as driver if nobody else is.
func (e *Engine) block(w *waiter) {
	e.settle()
	for !w.fired {
		if e.closed && e.stopped {
			return
		}
		if e.driver == nil || e.driver == &e.helper {
			e.driver = w
			e.drive(w)
			e.resign()
			return
		}
		w.parked = true
		w.next = e.parked
		e.parked = w
		e.rouse()
		e.strayed()
		e.gate.unlock()
		<-w.wake
		e.gate.lock()
	}
	if e.driver == nil {
		e.resign() // it was woken to drive, and has meanwhile what it waited for
	}
}

// resign passes the role of driver on. If nobody waits, the helper will notice.
func (e *Engine) resign() {
	e.driver = nil
	e.turns++
	if w := e.parked; w != nil {
		e.unpark(w)
	} else if e.helperRests {
		e.helperRests = false
		e.callHelper()
	}
}

// drive polls until w is fired or another driver has taken over.
func (e *Engine) drive(w *waiter) {
	if e.asleep.Load() != 0 {
		e.asleep.Store(0)
		if e.helper.asleep {
			e.bell.kick() // it would sleep on, and nobody would ring for it
		}
	}
	var since time.Time // when it began to stay, see stay
	idle, left := 0, -1 // polls in vain; polls left of hope, which has yet to begin
	for !w.fired && e.driver == w && !e.stopped {
		if e.spins == 0 && len(e.watched) > 0 && idle < e.yields && left <= 0 {
			if idle += e.doze(); w.fired {
				return
			}
		} else if idle < e.spins {
			e.watch()
		}
		switch did := e.progress(); {
		case did:
			if left < 0 {
				left = e.hope.begin()
			}
			if idle = 0; !since.IsZero() {
				w.stayed(&since)
			}
		default:
			idle++
		}
		e.gate.makeWay()
		if left > 0 {
			e.watch()
			if left--; left == 0 || w.fired {
				e.hope.end(w.fired)
			}
			continue
		}
		if idle < e.spins {
			if idle&31 == 31 {
				e.gate.unlock()
				runtime.Gosched()
				e.gate.lock()
			}
			continue
		}
		if idle < e.spins+e.yields || e.stay(w, &since) {
			e.gate.unlock()
			e.bell.yield()
			e.gate.lock()
			continue
		}
		w.stayed(&since)
		e.sleep(w)
		idle = e.spins
	}
}

// stay reports whether the driver goes on yielding, because others may be reading its
// memory, or it keeps watch. When that began is settled by the first call.
func (e *Engine) stay(w *waiter, since *time.Time) bool {
	if e.stays == 0 || e.shown == 0 && w.watch == 0 {
		return false
	}
	now := time.Now()
	if since.IsZero() {
		*since = now
	}
	limit := w.watch
	if e.shown > 0 {
		limit = max(limit, e.stays)
	}
	return now.Sub(*since) < limit
}

// shortWatch is how long a watch may last and not count.
const shortWatch = time.Millisecond

// stayed ends a stay, if there was one. A watch is kept once: what comes after a long one
// comes from far away, and is followed by more, which takes the processor to bring.
func (w *waiter) stayed(since *time.Time) {
	if !since.IsZero() && time.Since(*since) > shortWatch {
		w.watch = 0
	}
	*since = time.Time{}
}

// looks is how often the rings are looked at between polls of everything.
const looks = 16

// watch looks at the rings and boards only, until one has something, since that is quick.
// A crowded process looks less often the more there are: others wait for its processor.
func (e *Engine) watch() {
	n := looks
	if e.spins == 0 {
		n = max(1, looks/max(1, len(e.fast)))
	}
	for range n {
		for _, b := range e.watched {
			if b.first == nil || b.ready() {
				return
			}
		}
		for _, c := range e.fast {
			if c.ring != nil && c.ring.in.filled() {
				return
			}
		}
	}
}

// glances are how many turns who waits for a board gives away before it polls anything
// else.
const glances = 4

// doze gives away some turns, unless a board is ready before, and reports how many.
func (e *Engine) doze() (n int) {
	for n < glances && len(e.watched) > 0 {
		e.gate.unlock()
		e.bell.yield()
		e.gate.lock()
		if n++; e.pollBoards() {
			e.settle()
			break
		}
	}
	return n
}

// sleep waits for a doorbell. The flag goes up before the last look, so that who
// sends after it rings.
func (e *Engine) sleep(w *waiter) {
	if e.driver != w || w.fired {
		return
	}
	e.asleep.Store(1)
	w.asleep = true
	if w == &e.helper {
		e.writeAhead() // nobody else does
	}
	e.strays()
	if !e.progress() && !w.fired && !e.stopped && e.pulls.first == nil {
		e.gate.unlock()
		e.bell.wait(w == &e.helper)
		e.gate.lock()
	}
	w.asleep = false
	switch {
	case e.driver == w:
		e.asleep.Store(0)
	case e.driver == nil && !e.stopped: // somebody came and went
		e.driver = w
	case e.driver != nil && e.driver.asleep:
		e.bell.ring() // it may have been for the other
	}
}

// progress moves everything that can be moved, and reports whether anything was.
func (e *Engine) progress() bool {
	any := false
	for _, c := range e.fast {
		if c.broken {
			continue
		}
		did, err := c.wire.poll(c)
		if err != nil {
			e.breakLink(c, err)
		}
		any = any || did
	}
	if len(e.watched) > 0 && e.pollBoards() {
		any = true
	}
	if e.ready != nil && e.ready.poll(e) {
		any = true
	}
	if len(e.output) > 0 && e.flushAll() {
		any = true
	}
	if e.pulls.first != nil && e.pullAll() {
		any = true
	}
	if len(e.leavers) > 0 {
		e.seeOff()
	}
	e.settle()
	return any
}

// await waits for a request and collects it. If it was warned of a failure it
// stays.
func (e *Engine) await(r *request) (Status, error) { return e.awaitAwake(r, 0) }

// awaitAwake is await that keeps watch for so long.
func (e *Engine) awaitAwake(r *request, watch time.Duration) (Status, error) {
	if r.state == complete {
		return e.collect(r)
	}
	for r.state != complete && r.flags&warned == 0 && !e.stopped { // it may match after a warning, before we look
		if r.waiter != nil {
			return Status{}, ErrBusy
		}
		id := r.id()
		w := e.newWaiter()
		r.waiter, w.watch = w, watch
		e.block(w)
		e.freeWaiter(w)
		if e.lookup(id) != r {
			return Status{}, ErrRequest // freed meanwhile
		}
		r.waiter = nil
	}
	return e.result(r)
}

// result is what Wait returns for a request that is complete, or was warned, or
// that the engine's end has overtaken.
func (e *Engine) result(r *request) (Status, error) {
	switch {
	case r.state == complete:
		return e.collect(r)
	case r.flags&warned != 0:
		return Status{}, r.err
	}
	return Status{}, ErrClosed
}

// Wait waits for the end of a request and frees it. If it returns an
// ErrProcFailedPending the request stays valid.
func (e *Engine) Wait(id ID) (Status, error) { return e.WaitAwake(id, 0) }

// WaitAwake is Wait for what comes from far away, by a caller that has nothing else to do
// until then. Before it sleeps it keeps watch for so long: it offers its processor to all
// others, but does not let it fall asleep, which costs what comes some 30 µs at each
// process on its way. Once something has come, or nothing has, it waits as Wait does.
// Where processes share a processor (Crowd) nobody keeps watch.
func (e *Engine) WaitAwake(id ID, watch time.Duration) (Status, error) {
	if id == (ID{}) {
		return empty, nil
	}
	e.gate.lock()
	defer e.leave()
	r := e.lookup(id)
	if r == nil || r.flags&detached != 0 {
		return Status{}, ErrRequest
	}
	if r.state == complete && r.kind == generalRequest { // so whoever is always the last one moves things, too
		if e.early++; e.early%earlyGlance == 0 {
			e.glance()
		}
	}
	return e.awaitAwake(r, watch)
}

// earlyGlance is how often who waits for what has ended already looks what else there is.
const earlyGlance = 16

// Test is Wait that does not wait: done is false if the request goes on.
func (e *Engine) Test(id ID) (st Status, done bool, err error) {
	if id == (ID{}) {
		return empty, true, nil
	}
	e.gate.lock()
	defer e.leave()
	r := e.lookup(id)
	if r == nil || r.flags&detached != 0 {
		return Status{}, true, ErrRequest
	}
	if !r.over() {
		e.glance()
		if !r.over() {
			return Status{}, e.stopped, e.closedError()
		}
	}
	st, err = e.result(r)
	return st, true, err
}

func (r *request) over() bool { return r.state == complete || r.flags&warned != 0 }

func (e *Engine) closedError() error {
	if e.stopped {
		return ErrClosed
	}
	return nil
}

// glance polls once, unless somebody does anyway.
func (e *Engine) glance() {
	if e.driver == nil || e.driver == &e.helper || e.driver.asleep {
		e.progress()
		e.turns++
	}
}

// Poll moves what can be moved.
func (e *Engine) Poll() {
	e.gate.lock()
	e.glance()
	e.leave()
}
