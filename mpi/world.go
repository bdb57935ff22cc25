package mpi

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/meshmpi/meshmpi/mpi/datatype"
	"github.com/meshmpi/meshmpi/mpi/internal/engine"
	"github.com/meshmpi/meshmpi/mpi/pmi"
	shimrecord "github.com/meshmpi/meshmpi/mpishim/profile/record"
)

// World is MPI in one process of a job, from Init to Finalize. Its methods may
// be called from any goroutine.
type World struct {
	eng      *engine.Engine
	launcher Launcher
	world    *Comm
	self     *Comm
	parent   *Comm // of a job that was spawned
	hints    *hints
	profile  *shimrecord.Writer // nil: none is asked for

	contexts  contexts
	buffer    buffer
	scratches sync.Pool // of *[small]byte, for messages
	tmps      sync.Pool // of *[]byte, for collective operations
	table     table
	comms     comms
	spawning  spawning
	runs      runs
	finalized atomic.Bool
	crashed   atomic.Bool
	exit      func(code int)
}

// finalizeTime bounds how long a process waits at the end, when all have come to it, for
// its links and its launcher. Only tests change it.
var finalizeTime = 2 * time.Minute

// Init makes the process a member of the job that its launcher started: that of
// meshrun, mpiexec, mpirun or srun, or one of a single process. All processes of
// the job must call it, once. ctx bounds the time until they all have.
func Init(ctx context.Context, opts ...Option) (*World, error) {
	var o options
	for _, f := range opts {
		f(&o)
	}
	l := o.launcher
	if l == nil {
		c, err := pmi.Dial(ctx, nil)
		if err != nil {
			return nil, &Error{Op: "Init", Class: ErrOther, Peer: -1, Err: err}
		}
		l = c
	}
	w := &World{launcher: l, exit: os.Exit}
	w.scratches.New = func() any { return new([small]byte) }
	if err := w.begin(ctx, &o); err != nil {
		if w.eng != nil {
			stop, cancel := context.WithCancel(context.Background())
			cancel()
			_ = w.eng.Close(stop)
		}
		w.hints.close()
		w.profile.Close(false)
		_ = l.Close()
		return nil, &Error{Op: "Init", Class: ErrOther, Peer: -1, Err: err}
	}
	return w, nil
}

// inProcess is a launcher whose processes are goroutines of this one.
type inProcess interface {
	Hub() *engine.Hub
	Exit(code int)
}

// begin meets the other processes.
func (w *World) begin(ctx context.Context, o *options) (err error) {
	l := w.launcher
	o.fromLauncher(l)
	if err := o.fromEnvironment(os.Getenv); err != nil {
		return err
	}
	cfg := engine.Config{
		Self: engine.Proc(l.Rank()), Size: l.Size(), Job: []byte(l.JobID()), Resolve: w.resolve, Dial: o.dial, Listen: o.listen, Addresses: o.addresses,
		OnFailure: w.processDied, OnLeave: w.processGone, SharedMemory: !o.noShared, StreamsOnly: o.streams || o.dial != nil, EagerLimit: o.eagerLimit, Links: o.links, MostRequests: o.requests, Log: o.log,
	}
	if l.Size() == 1 { // nobody has to find the same name, and all who run alone have it
		cfg.Job = []byte(rand.Text())
	}
	if in, ok := l.(inProcess); ok {
		cfg.Hub, w.exit = in.Hub(), in.Exit
	}
	if w.eng, err = engine.New(cfg); err != nil {
		return err
	}
	w.runs.makings.Add(1) // of the world
	w.eng.Handle(amRevoke, w.revokedByPeer)
	w.eng.Handle(amGiveUp, w.gaveUp)
	w.runs.log = o.log
	w.handleWindows()
	if err := l.Put(recordKey(l.Rank()), w.ownRecord(o).encode()); err != nil {
		return err
	}
	if err := l.Barrier(ctx); err != nil {
		return err
	}
	if err := w.table.fill(l); err != nil {
		return err
	}
	all := make([]engine.Proc, l.Size())
	for i := range all {
		all[i] = engine.Proc(i)
	}
	if cfg.Hub == nil && os.Getenv("GOMAXPROCS") == "" {
		runtime.GOMAXPROCS(max(1, runtime.GOMAXPROCS(0)/w.table.neighbours(l.Rank())))
	}
	if own := w.table.loads(all)[w.placeOf(cfg.Self).room]; own.processors > 0 {
		w.eng.Crowd(own.processes > own.processors, w.table.neighbours(l.Rank())-1)
	}
	if sites := w.table.siteNumbers(l.Size()); cfg.Hub == nil {
		if n := o.groupLinks(sites); n > 0 {
			if err := w.eng.Group(sites, n); err != nil {
				return err
			}
		}
	}
	if err := w.eng.Start(ctx); err != nil {
		return err
	}
	w.makeComms(o, all)
	if _, err := l.Notify(w.notice); err != nil && !errors.Is(err, pmi.ErrUnsupported) {
		return err
	}
	if l.Spawned() {
		return w.meetParent()
	}
	return nil
}

// makeComms makes the two communicators that are there from the beginning.
func (w *World) makeComms(o *options, all []engine.Proc) {
	g := &Group{procs: all, self: engine.Proc(w.launcher.Rank())}
	for i := range 3 { // the third is where jobs meet
		w.contexts.reserve(i)
	}
	w.eng.OpenContext(ctxMeeting, nil)
	at := w.topology(g)
	_, inside := w.launcher.(inProcess)
	w.hints = openHints(o, !inside, os.Getenv, &at)
	w.profile = openProfile(o, !inside, os.Getenv, w.launcher)
	w.world = w.newComm(0, idWorld, g, nil)
	w.world.SetName("world")
	w.eng.Do(func(op *engine.Op) {
		w.world.revokeEarly(op)
		w.runs.settled(w)
	})
	w.self = w.newComm(contextsPerComm, idSelf, g.with([]engine.Proc{g.self}), nil)
	w.self.SetName("self")
}

// Comm returns the communicator of all processes of the job (MPI_COMM_WORLD).
func (w *World) Comm() *Comm { return w.world }

// Self returns the communicator of this process alone (MPI_COMM_SELF).
func (w *World) Self() *Comm { return w.self }

// Appnum returns the index of the process's program in the command line that
// started the job (MPI_APPNUM).
func (w *World) Appnum() int { return w.launcher.Appnum() }

// UniverseSize returns how many processes the launcher has room for, 0 where it
// does not say (MPI_UNIVERSE_SIZE).
func (w *World) UniverseSize() int { return w.launcher.UniverseSize() }

// FaultTolerant reports whether the job goes on when a process dies.
func (w *World) FaultTolerant() bool { return w.launcher.FaultTolerant() }

// Finalized reports whether Finalize has been called.
func (w *World) Finalized() bool { return w.finalized.Load() }

// Finalize ends MPI in this process; it is collective. Attributes of Self are
// deleted, what was sent is delivered, and all processes wait for each other. No
// other call may be under way.
func (w *World) Finalize() error {
	const op = "Finalize"
	if !w.finalized.Load() {
		if err := w.self.attrs.clear(op); err != nil {
			return err
		}
	}
	w.profile.Close(true) // what follows is ours
	var errs []error
	if !w.finalized.Load() && w.launcher.Size() > 1 && !w.anyFailed() { // for as long as the last one takes to come
		err := Barrier(w.world)
		if err != nil && !errors.Is(err, ErrProcFailed) && !errors.Is(err, ErrRevoked) { // not all are left, or agree on it
			errs = append(errs, err)
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), finalizeTime)
	defer cancel()
	if !w.finalized.CompareAndSwap(false, true) {
		return fail(op, ErrNotInitialized, "it was called before")
	}
	errs = append(errs, w.eng.Close(ctx), w.launcher.Finalize(ctx))
	w.hints.close()
	if err := errors.Join(errs...); err != nil {
		return &Error{Op: op, Class: ErrOther, Peer: -1, Err: err}
	}
	return nil
}

// Abort ends all processes of the job, this one at once, with an exit code. The kernel
// keeps 8 bits of it; where these are 0, it is 1: mpirun and srun take a process that ends
// with 0 for one that has done its work, and let the others run on. (MPI_Abort's 0 is left
// as it is by MPICH and Open MPI, whose launchers hear of the call.)
func (w *World) Abort(code int) {
	if code&0xff == 0 {
		code = 1
	}
	_ = w.launcher.Abort(code) // this process ends in any case
	w.exit(code)
}

// Main is an MPI program: Init, body with the communicator of all processes, and
// Finalize. If body fails or panics, a line on standard error says so and the
// whole job is aborted. Main returns when the job has gone well.
func Main(body func(c *Comm) error, opts ...Option) {
	w, err := Init(context.Background(), opts...)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	if err := w.run(body); err != nil {
		fmt.Fprintf(os.Stderr, "rank %d: %v\n", w.world.rank, err)
		w.Abort(1)
		return
	}
	if err := w.Finalize(); err != nil {
		fmt.Fprintf(os.Stderr, "rank %d: %v\n", w.world.rank, err)
		w.exit(1)
	}
}

// run is body whose panics are errors.
func (w *World) run(body func(*Comm) error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v\n\n%s", p, debug.Stack())
		}
	}()
	return body(w.world)
}

// notice is told by the launcher what has happened to the job.
func (w *World) notice(n pmi.Notice) {
	switch n.Kind {
	case pmi.Died:
		w.eng.Fail(engine.Proc(n.Rank), fmt.Errorf("the launcher says that it has died, with code %d", n.Code))
	case pmi.Lost:
		if w.finalized.Load() || w.launcher.FaultTolerant() {
			return
		}
		for p := range w.launcher.Size() {
			w.eng.Fail(engine.Proc(p), errors.New("the launcher is gone"))
		}
	}
}

// processDied is told by the engine.
func (w *World) processDied(p engine.Proc, err error) {
	w.eng.Do(func(op *engine.Op) {
		dead := engine.ErrProcFailed{Proc: p, Err: err}
		w.processGone(op, dead)
		w.mournMakings(op, dead)
	})
}

// processGone ends what windows wait for that a process was to say, which has died
// or has finalized.
func (w *World) processGone(op *engine.Op, gone engine.ErrProcFailed) {
	w.comms.mu.Lock()
	var wins []*window
	for _, c := range w.comms.list {
		if win := c.win.Load(); win != nil && c.rankOf.of(gone.Proc) >= 0 {
			wins = append(wins, win)
		}
	}
	w.comms.mu.Unlock()
	for _, win := range wins {
		win.lost(op, win.c.rankOf.of(gone.Proc), gone)
	}
}

// anyFailed reports whether a process of the job is known to be dead.
func (w *World) anyFailed() bool {
	for _, p := range w.world.group.procs {
		if w.eng.Failed(p) != nil {
			return true
		}
	}
	return false
}

// swapInt64 converts numbers of our own.
var swapInt64 = datatype.Basic(datatype.Int64)

// comms are the communicators of a process.
type comms struct {
	mu   sync.Mutex               // guards what follows
	list map[engine.Context]*comm // that have not been freed, by the first of their contexts
	all  map[commID]*comm         // also freed ones with operations under way
}

func (w *World) remember(c *comm) {
	w.comms.mu.Lock()
	defer w.comms.mu.Unlock()
	if w.comms.list == nil {
		w.comms.list, w.comms.all = map[engine.Context]*comm{}, map[commID]*comm{}
	}
	w.comms.list[c.base], w.comms.all[c.id] = c, c
}

func (w *World) forget(c *comm) {
	w.comms.mu.Lock()
	defer w.comms.mu.Unlock()
	delete(w.comms.list, c.base)
}

// commAt finds a communicator by the first of its contexts.
func (w *World) commAt(base engine.Context) *comm {
	w.comms.mu.Lock()
	defer w.comms.mu.Unlock()
	return w.comms.list[base]
}

// commOf finds a communicator by its ID.
func (w *World) commOf(id commID) *comm {
	w.comms.mu.Lock()
	defer w.comms.mu.Unlock()
	return w.comms.all[id]
}

func recordKey(rank int) string { return "mpi-" + strconv.Itoa(rank) }

// Crash ends MPI in this process as if it had died: nothing is delivered any more
// and nobody is told. It is for tests of programs that are to survive that.
func (w *World) Crash() {
	w.crashed.Store(true)
	w.finalized.Store(true)
	over, cancel := context.WithCancel(context.Background())
	cancel()
	_ = w.eng.Close(over) // says that it was not given time
	w.profile.Close(false)
	w.hints.close()
	_ = w.launcher.Close()
}

// Crashed reports whether Crash has been called.
func (w *World) Crashed() bool { return w.crashed.Load() }
