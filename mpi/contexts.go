package mpi

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"

	"github.com/meshmpi/meshmpi/mpi/coll"
	"github.com/meshmpi/meshmpi/mpi/internal/engine"
)

// commID tells a communicator from all others that a process has had or will have, while
// its contexts are used again. (Those that one Split makes for several colors have the
// same.) All its members know the same: the highest of the random
// numbers that those have proposed who have agreed on the contexts.
type commID uint64

// The communicators that nobody has agreed on.
const (
	idWorld commID = iota + 1
	idSelf
	idMeeting // where jobs meet
)

// proposeID returns a number that is nobody else's.
func proposeID() int64 { return rand.Int64() }

// contexts are the numbers of communicators that a process uses. All members of
// a new communicator must agree on one that none of them uses.
type contexts struct {
	mu     sync.Mutex // guards what follows
	used   []bool
	left   []*comm // freed with operations under way, which still match by their number
	spoilt []int   // numbers that some may have agreed on and we have not, or in which messages may still come, oldest first
}

// mostSpoilt is how many numbers are kept out of use because others may have made a
// communicator with them, which is being revoked, or because an operation has failed
// there: what they have sent in it by then is not to match in another. The oldest one is
// used again for one more.
const mostSpoilt = 256

// reserve takes the lowest free number from at on.
func (x *contexts) reserve(at int) int {
	x.mu.Lock()
	defer x.mu.Unlock()
	for at < len(x.used) && x.used[at] {
		at++
	}
	for len(x.used) <= at {
		x.used = append(x.used, false)
	}
	x.used[at] = true
	return at
}

// maxComms bounds how many communicators there are at a time.
const maxComms = int(engine.MaxContexts / contextsPerComm)

var errFull = errors.New("there are as many communicators as there can be; free some")

func (x *contexts) release(n int) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.used[n] = false
}

// circle is who agrees on something: the members of a communicator or some of
// them, in a context where nothing else is sent with that tag.
type circle struct {
	w     *World
	procs []engine.Proc
	topo  coll.Topo
	id    commID // the communicator's
	ctx   engine.Context
	tag   int32
	own   int // of an intercommunicator: so many are our side, which each side counts first

	of *comm // the communicator; nil of a making's steps, but for the whole, and when that has ended well

	// Of a step in making a communicator (making.go); nil otherwise.
	whole *circle           // all whom it concerns
	far   *circle           // of the whole: this leader and another's
	lost  error             // of the whole: why there is no other side; guarded by the engine
	view  context.Context   // of the whole: of the view
	ended func(error) error // of the whole: ends Comm.orRevoke
}

// newContext has all of the circle choose the same unused number. Each proposes
// its lowest; where they differ, which is when other communicators are being
// made at the same moment or were made by some only, all try again from the
// highest proposal on.
func (o *circle) newContext() (engine.Context, commID, error) {
	o.w.reap()
	for at := 0; ; {
		n := o.w.contexts.reserve(at)
		most := []int64{int64(n), -int64(n), proposeID()}
		if err := o.allreduce(most, opMax); err != nil {
			o.w.spoil(n)
			return 0, 0, err
		}
		if most[0] == -most[1] {
			if n >= maxComms { // so say all
				o.w.contexts.release(n)
				return 0, 0, errFull
			}
			return engine.Context(n) * contextsPerComm, commID(most[2]), nil
		}
		o.w.contexts.release(n)
		at = int(most[0])
	}
}

// spoil gives a number back that others may have agreed on.
func (w *World) spoil(n int) {
	x := &w.contexts
	x.mu.Lock()
	defer x.mu.Unlock()
	x.spoil(w, n)
}

// spoil is spoil with the contexts locked.
func (x *contexts) spoil(w *World, n int) {
	for k := range contextsPerComm {
		w.eng.RefuseContext(engine.Context(n)*contextsPerComm + k)
	}
	x.spoilt = append(x.spoilt, n)
	if len(x.spoilt) <= mostSpoilt {
		return
	}
	oldest := x.spoilt[0]
	x.spoilt = slices.Delete(x.spoilt, 0, 1)
	for k := range contextsPerComm { // what was sent there is dropped
		w.eng.CloseContext(engine.Context(oldest)*contextsPerComm + k)
	}
	x.used[oldest] = false
}

// release gives the communicator's contexts back, now or when what is under way
// has ended (MPI 4.1 §7.4.3).
func (c *comm) release() {
	c.w.forget(c)
	x := &c.w.contexts
	x.mu.Lock()
	x.left = append(x.left, c)
	x.mu.Unlock()
	c.w.reap()
}

// reap gives back the contexts of freed communicators in which nothing is under
// way any more.
func (w *World) reap() {
	x := &w.contexts
	x.mu.Lock()
	defer x.mu.Unlock()
	x.left = slices.DeleteFunc(x.left, func(c *comm) bool {
		idle := c.running.Load() == 0 // schedules have yet to post messages
		for k := engine.Context(0); idle && k < contextsPerComm; k++ {
			idle = w.eng.CloseContext(c.base + k)
		}
		if idle {
			c.w.forgive(c)
			if n := int(c.base / contextsPerComm); c.spoilt.Load() {
				x.spoil(w, n)
			} else {
				x.used[n] = false
			}
		}
		return idle
	})
}
