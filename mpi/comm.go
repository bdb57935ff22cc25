package mpi

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/meshmpi/meshmpi/mpi/coll"
	"github.com/meshmpi/meshmpi/mpi/internal/engine"
)

// Ranks that are none.
const (
	AnySource = -1 // receive from whoever sends
	ProcNull  = -2 // messages to and from it do nothing (MPI 4.1 §3.10)
	Root      = -3 // the root itself, in a collective of an intercommunicator
)

// AnyTag receives whatever tag was sent. Tags are from 0 to MaxTag.
const (
	AnyTag = -1
	MaxTag = 1<<31 - 1
)

// Comm is a communicator: a group of processes and a context of its own, in
// which messages match (MPI 4.1 chapter 7). Any number of goroutines may use one
// at once; collective operations must be begun in the same order by all its
// members.
type Comm struct {
	*comm
	ctx context.Context // of WithContext; nil: none
}

// comm is what all views of one communicator share.
type comm struct {
	w      *World
	base   engine.Context // of the contexts below
	id     commID
	group  *Group
	rank   int
	remote *Group // an intercommunicator's other side
	first  bool   // of the two sides of an intercommunicator, the one that comes first
	rankOf ranks  // of those it exchanges messages with
	topo   coll.Topo
	cart   *cartesian
	graph  *graph
	win    atomic.Pointer[window] // the communicator is a window's own
	born   *circle                // which made it and has ended; guarded by the engine
	spoilt atomic.Bool            // others may use it, or have sent what nobody here has received, when it is given back

	attrs      attrs
	schedules  *coll.Cache
	sequence   atomic.Uint32       // of collective operations begun
	lasting    atomic.Uint32       // persistent ones set up
	recoveries atomic.Uint32       // of those that go on after failures
	running    atomic.Int32        // collective operations under way
	idle       atomic.Pointer[run] // of an operation that has ended, for the next one
	board      board
	freed      atomic.Bool
	revoked    atomic.Bool
	gone       bool // its contexts are given back; guarded by the engine

	mu    sync.Mutex // guards what follows
	name  string
	info  *Info
	acked []engine.Proc // failures acknowledged

	meetings map[uint64]int // how often some of the members have made the same
}

// A communicator has four contexts, so that what it does by itself never
// matches what the program does.
const (
	ctxMessages   engine.Context = iota // what the program sends
	ctxCollective                       // collective operations
	ctxInternal                         // agreeing on contexts and failures
	ctxWindows                          // one-sided operations
	ctxRecovery                         // what goes on after Revoke
	contextsPerComm
)

// ranks translates processes to ranks.
type ranks struct {
	dense []int32 // by process
	same  int     // the first so many processes have their own number as rank
}

func newRanks(procs []engine.Proc) ranks {
	r := ranks{}
	for r.same < len(procs) && procs[r.same] == engine.Proc(r.same) {
		r.same++
	}
	if r.same == len(procs) {
		return r
	}
	for i, p := range procs {
		for int(p) >= len(r.dense) {
			r.dense = append(r.dense, Undefined)
		}
		r.dense[p] = int32(i)
	}
	return r
}

func (r *ranks) of(p engine.Proc) int {
	if int(p) < r.same {
		return int(p)
	}
	if int(p) < len(r.dense) {
		return int(r.dense[p])
	}
	return Undefined
}

// Rank returns the caller's rank in the communicator, from 0 to Size-1.
func (c *Comm) Rank() int { return c.rank }

// Size returns how many processes the communicator has; of an
// intercommunicator, those on the caller's side.
func (c *Comm) Size() int { return len(c.group.procs) }

// RemoteSize returns how many processes are on the other side of an
// intercommunicator; zero for an ordinary communicator.
func (c *Comm) RemoteSize() int {
	if c.remote == nil {
		return 0
	}
	return len(c.remote.procs)
}

// Inter reports whether this is an intercommunicator (MPI 4.1 §7.6).
func (c *Comm) Inter() bool { return c.remote != nil }

// Group returns the group of the caller's side.
func (c *Comm) Group() *Group { return c.group }

// RemoteGroup returns an intercommunicator's other side.
func (c *Comm) RemoteGroup() (*Group, error) {
	if c.remote == nil {
		return nil, fail("RemoteGroup", ErrComm, "this is not an intercommunicator")
	}
	return c.remote, nil
}

// World returns the world the communicator belongs to.
func (c *Comm) World() *World { return c.w }

// Host and Site return a number for the machine and for the site that a rank
// runs on: the same number means the same one. They count from 0 in order of the
// lowest rank there.
func (c *Comm) Host(rank int) int { return place(c.topo.Host, rank) }

// Site: see Host.
func (c *Comm) Site(rank int) int { return place(c.topo.Site, rank) }

func place(of []int32, rank int) int {
	if rank < 0 || rank >= len(of) {
		return Undefined
	}
	return int(of[rank])
}

// Name returns the communicator's name, for people who look for errors.
func (c *Comm) Name() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.name
}

// SetName names the communicator.
func (c *Comm) SetName(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.name = name
}

// Info returns a copy of the communicator's hints.
func (c *Comm) Info() *Info {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.info.Dup()
}

// SetInfo gives the communicator hints.
func (c *Comm) SetInfo(i *Info) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.info = i.Dup()
}

// Compare returns how two communicators relate; one that is nil is Unequal to all.
func (c *Comm) Compare(other *Comm) Comparison {
	if c == nil || c.comm == nil || other == nil || other.comm == nil {
		return Unequal
	}
	if c.comm == other.comm {
		return Ident
	}
	if c.Inter() != other.Inter() {
		return Unequal
	}
	r := c.group.Compare(other.group)
	if c.Inter() {
		r = min(r, c.remote.Compare(other.remote))
	}
	return min(r, Congruent)
}

// WithContext returns a view of the communicator whose blocking calls end when
// ctx does. A receive that has not matched by then is cancelled and nothing is
// lost. Anything else has begun in other processes as well and cannot be taken
// back: the communicator is revoked, on all of them, or that of the window. What is made
// of the view has the same ctx. Agree and Shrink, which go on after that, do not end
// with ctx, nor does what Shrink makes.
func (c *Comm) WithContext(ctx context.Context) *Comm { return &Comm{c.comm, ctx} }

// orRevoke has a call that cannot be withdrawn end when the ctx of WithContext does. The
// function that it returns is to be called with the call's error when it has ended, and
// says why it has.
func (c *Comm) orRevoke() func(error) error {
	if c.ctx == nil {
		return func(err error) error { return err }
	}
	stop := context.AfterFunc(c.ctx, c.revoke)
	return func(err error) error {
		if !stop() && (errors.Is(err, engine.ErrRevoked) || errors.Is(err, ErrRevoked)) {
			return errWithdrawn{c.ctx.Err()}
		}
		return err
	}
}

// errWithdrawn is the error of a ctx that has ended, for which a communicator was
// revoked.
type errWithdrawn struct{ error }

func (e errWithdrawn) Unwrap() error { return e.error }

// Free gives the communicator back; it is collective. Its attributes are
// deleted; operations that are under way go on to their end.
func (c *Comm) Free() error {
	if err := c.exists("Free"); err != nil {
		return err
	}
	if c.comm == c.w.world.comm || c.comm == c.w.self.comm {
		return fail("Free", ErrComm, "the world's own communicators stay until Finalize")
	}
	if err := c.attrs.clear("Free"); err != nil {
		return err
	}
	if !c.freed.CompareAndSwap(false, true) {
		return fail("Free", ErrComm, "the communicator was freed")
	}
	c.release()
	return nil
}

// String names the communicator and the caller's place in it.
func (c *Comm) String() string {
	name := c.Name()
	if name == "" {
		name = fmt.Sprintf("communicator %d", c.base/contextsPerComm)
	}
	return fmt.Sprintf("%s, rank %d of %d", name, c.rank, c.Size())
}

// usable says why the communicator cannot be used, if so.
func (c *Comm) usable(op string) error {
	if err := c.exists(op); err != nil {
		return err
	}
	if c.revoked.Load() {
		return &Error{Op: op, Class: ErrRevoked, Peer: -1}
	}
	return nil
}

// exists is usable for what works on a revoked communicator too.
func (c *Comm) exists(op string) error {
	if c == nil || c.comm == nil {
		return fail(op, ErrComm, "the communicator is nil (the color Undefined gives one)")
	}
	if c.freed.Load() {
		return fail(op, ErrComm, "the communicator was freed")
	}
	if c.w.finalized.Load() {
		return &Error{Op: op, Class: ErrNotInitialized, Peer: -1}
	}
	return nil
}

// peers are those that messages go to.
func (c *comm) peers() *Group {
	if c.remote != nil {
		return c.remote
	}
	return c.group
}
