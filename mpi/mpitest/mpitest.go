// Package mpitest runs the ranks of an MPI program in one go test: each rank is
// a goroutine with a world of its own, and their messages go through memory, or
// through a simulated network with distances between sites.
//
//	func TestSum(t *testing.T) {
//		mpitest.Run(t, 4, func(c *mpi.Comm) error {
//			sum := []int{c.Rank()}
//			if err := mpi.Allreduce(c, nil, sum, mpi.Sum); err != nil {
//				return err
//			}
//			if sum[0] != 6 {
//				return fmt.Errorf("the sum is %d, want 6", sum[0])
//			}
//			return nil
//		})
//	}
//
// It does what a launcher does, by the launcher's protocol, but starts no
// processes: variables of the program are shared by all ranks.
package mpitest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"runtime"
	"runtime/debug"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/meshmpi/meshmpi/mpi"
	"github.com/meshmpi/meshmpi/mpi/internal/engine"
	"github.com/meshmpi/meshmpi/mpi/pmi"
)

// Option changes how Run sets the ranks up.
type Option func(*config)

type config struct {
	place    func(rank int) (host, site string)
	ft       bool
	timeout  time.Duration
	universe int
	mpi      []mpi.Option
	programs map[string]func(c *mpi.Comm) error
	network  *network
	breaks   map[int]int // bytes after which connections break, by number
}

// Place says which host and site each rank is on. Without it all are on one host.
func Place(of func(rank int) (host, site string)) Option { return func(c *config) { c.place = of } }

// Blocks places ranks in blocks of n on sites, each rank on a host of its own.
func Blocks(n int) Option {
	return Place(func(rank int) (host, site string) { return fmt.Sprint("h", rank), fmt.Sprint("s", rank/n) })
}

// FaultTolerant lets the ranks outlive each other, as meshrun --ft does.
func FaultTolerant() Option { return func(c *config) { c.ft = true } }

// Timeout is how long the ranks may take; without it a minute.
func Timeout(d time.Duration) Option { return func(c *config) { c.timeout = d } }

// With gives every rank options of package mpi.
func With(opts ...mpi.Option) Option { return func(c *config) { c.mpi = append(c.mpi, opts...) } }

// Program is what Spawn of a path runs.
func Program(path string, body func(c *mpi.Comm) error) Option {
	return func(c *config) { c.programs[path] = body }
}

// Run runs body as ranks 0 to n-1 and finalizes them. If one of them fails,
// panics, or the time is over, the test fails and all are ended.
func Run(t testing.TB, n int, body func(c *mpi.Comm) error, opts ...Option) {
	t.Helper()
	if err := run(n, body, opts); err != nil {
		t.Fatal(err)
	}
}

// Example is Run for an example, which has no test to fail: an error is printed,
// and so is not the output that is wanted.
func Example(n int, body func(c *mpi.Comm) error, opts ...Option) {
	if err := run(n, body, opts); err != nil {
		fmt.Println("error:", err)
	}
}

func run(n int, body func(c *mpi.Comm) error, opts []Option) error {
	cfg := config{timeout: time.Minute, programs: map[string]func(*mpi.Comm) error{}}
	for _, o := range opts {
		o(&cfg)
	}
	if cfg.network != nil {
		cfg.network.breaks = cfg.breaks
	}
	ctx, cancel := context.WithTimeout(context.Background(), cfg.timeout)
	defer cancel()
	u := &universe{cfg: &cfg, ctx: ctx, hub: engine.NewHub(), names: pmi.NewNames(), errs: make(chan error, 1)}
	if _, err := u.start(n, body, nil, nil); err != nil {
		return err
	}
	return u.wait()
}

// universe is all jobs of one Run: the first, and what it spawns.
type universe struct {
	cfg   *config
	ctx   context.Context
	hub   *engine.Hub
	names *pmi.Names
	ranks sync.WaitGroup
	serve sync.WaitGroup
	errs  chan error // size 1: the first counts

	mu     sync.Mutex // guards what follows
	worlds []*mpi.World
	stops  []func()
	over   bool // something has failed
	closed bool // no job may be started any more
}

// start begins a job.
func (u *universe) start(n int, body func(*mpi.Comm) error, apps []int, keys map[string]string) (codes []int, err error) {
	var alone atomic.Bool // those who have spawned it have died, or do without it
	srv, err := pmi.NewServer(pmi.Config{
		Size: n, Apps: apps, Universe: u.cfg.universe, Spawned: keys != nil, Keys: keys, FaultTolerant: u.cfg.ft, Names: u.names, Spawn: u.spawn,
		Joined: func(err error) {
			if err != nil {
				alone.Store(true)
			}
		},
	})
	if err != nil {
		return nil, err
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	ctx, stop := context.WithCancel(context.Background())
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.closed {
		stop()
		return nil, errors.Join(errors.New("the test is over"), ln.Close())
	}
	u.stops = append(u.stops, stop)
	u.serve.Go(func() { _ = srv.Serve(ctx, ln) })
	for r := range n {
		u.ranks.Go(func() {
			if err := u.rank(r, ln.Addr().String(), keys != nil, body); err != nil && !alone.Load() {
				u.fail(fmt.Errorf("rank %d: %w", r, err))
			}
		})
	}
	return make([]int, n), nil
}

// spawn is start for a rank of a job.
func (u *universe) spawn(_ context.Context, req pmi.SpawnRequest) (codes []int, err error) {
	var bodies []func(*mpi.Comm) error
	var apps []int
	for i, a := range req.Apps {
		body := u.cfg.programs[a.Prog]
		if body == nil {
			return nil, fmt.Errorf("no program %s", a.Prog)
		}
		for range a.N {
			bodies, apps = append(bodies, body), append(apps, i)
		}
	}
	keys := req.Keys
	if keys == nil {
		keys = map[string]string{}
	}
	return u.start(len(bodies), func(c *mpi.Comm) error { return bodies[c.Rank()](c) }, apps, keys)
}

// rank is the life of one.
func (u *universe) rank(r int, server string, spawned bool, body func(*mpi.Comm) error) (err error) {
	ended := false
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v\n%s", p, debug.Stack())
		} else if !ended { // by runtime.Goexit, which returns to nobody
			u.fail(fmt.Errorf("rank %d: its goroutine was ended, as by t.FailNow", r))
		}
	}()
	err = u.live(r, server, spawned, body)
	ended = true
	return err
}

func (u *universe) live(r int, server string, spawned bool, body func(*mpi.Comm) error) error {
	env := map[string]string{"PMI_PORT": server, "PMI_ID": strconv.Itoa(r)}
	if spawned {
		env["PMI_SPAWNED"] = "1"
	}
	client, err := pmi.Dial(u.ctx, func(name string) string { return env[name] })
	if err != nil {
		return err
	}
	opts := []mpi.Option{mpi.WithLauncher(&launcher{client, u})}
	host, site := "host", "site"
	if u.cfg.place != nil {
		host, site = u.cfg.place(r)
	}
	opts = append(opts, mpi.WithPlace(host, site))
	if u.cfg.network != nil {
		opts = append(opts, mpi.WithoutSharedMemory(), u.cfg.network.option(r, site))
	}
	w, err := mpi.Init(u.ctx, append(opts, u.cfg.mpi...)...)
	if err != nil {
		return err
	}
	if !u.add(w) {
		return nil
	}
	err = body(w.Comm())
	if err == nil && !w.Finalized() {
		err = w.Finalize()
	}
	if w.Crashed() { // what a rank says after its death does not count
		return nil
	}
	return err
}

// add takes note of a world, unless all is over: then it ends it.
func (u *universe) add(w *mpi.World) bool {
	u.mu.Lock()
	u.worlds = append(u.worlds, w)
	over := u.over
	u.mu.Unlock()
	if over {
		w.Crash()
	}
	return !over
}

// fail ends everything.
func (u *universe) fail(err error) {
	select {
	case u.errs <- err:
	default: // a consequence of the first
	}
	u.mu.Lock()
	u.over = true
	worlds := u.worlds
	u.mu.Unlock()
	for _, w := range worlds {
		w.Crash()
	}
}

// wait waits for all ranks of all jobs.
func (u *universe) wait() error {
	done := make(chan struct{})
	go func() { // ends with the ranks, which fail ends
		u.ranks.Wait()
		u.mu.Lock()
		u.closed = true
		u.mu.Unlock()
		u.ranks.Wait() // what was asked for by the last of them
		close(done)
	}()
	select {
	case <-done:
	case <-u.ctx.Done():
		stacks := make([]byte, 1<<20)
		stacks = stacks[:runtime.Stack(stacks, true)]
		u.fail(fmt.Errorf("the ranks take longer than %v:\n%s", u.cfg.timeout, stacks))
		select {
		case <-done:
		case <-time.After(10 * time.Second):
		}
	}
	u.mu.Lock()
	stops := u.stops
	u.mu.Unlock()
	for _, stop := range stops {
		stop()
	}
	u.serve.Wait()
	select {
	case err := <-u.errs:
		return err
	default:
		return nil
	}
}

// launcher is what mpi.Init is given: a real client, and what is special about
// ranks that are goroutines.
type launcher struct {
	*pmi.Client
	u *universe
}

// Hub joins the engines through memory.
func (l *launcher) Hub() *engine.Hub {
	if l.u.cfg.network != nil {
		return nil
	}
	return l.u.hub
}

// errAborted is how a rank's Abort ends a test.
var errAborted = errors.New("aborted")

// Exit is os.Exit of one rank: the goroutine ends, and the test with it.
func (l *launcher) Exit(code int) {
	l.u.fail(fmt.Errorf("rank %d: %w with code %d", l.Rank(), errAborted, code))
	runtime.Goexit()
}
