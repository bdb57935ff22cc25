package mpi_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/meshmpi/meshmpi/mpi"
	"github.com/meshmpi/meshmpi/mpi/mpitest"
)

// stage is what makings of communicators begin from: seven ranks, two sides, an
// intercommunicator of them and a window of all.
type stage struct {
	c, local, x *mpi.Comm
	win         *mpi.Win[int64]
	low         bool
}

func newStage(c *mpi.Comm) (s stage, err error) {
	s.c, s.low = c, c.Rank() < lowSide
	color, leader, other := 0, 0, lowSide
	if !s.low {
		color, other = 1, 0
	}
	if s.local, err = c.Split(color, 0); err != nil {
		return s, err
	}
	if s.x, err = s.local.InterCreate(leader, c, other, 4); err != nil {
		return s, err
	}
	s.win, err = mpi.AllocateWin[int64](c, 1)
	return s, err
}

// makings are the operations that make communicators or windows of those there are,
// and those that need all of a window. Some return no communicator.
var makings = []struct {
	name string
	do   func(s stage) (*mpi.Comm, error)
}{
	{"dup", func(s stage) (*mpi.Comm, error) { return s.c.Dup() }},
	{"split", func(s stage) (*mpi.Comm, error) { return s.c.Split(s.c.Rank()%2, -s.c.Rank()) }},
	{"split by site", func(s stage) (*mpi.Comm, error) { return s.c.SplitBy(mpi.Site, 0) }},
	{"create", func(s stage) (*mpi.Comm, error) { return s.c.Create(s.c.Group()) }},
	{"create group", func(s stage) (*mpi.Comm, error) { return s.c.CreateGroup(s.c.Group(), 3) }},
	{"cart", func(s stage) (*mpi.Comm, error) { return s.c.CartCreate([]int{2, 3}, []bool{true, false}, true) }},
	{"graph", func(s stage) (*mpi.Comm, error) { return s.c.GraphCreate([]int{1, 2}, []int{1, 0}, false) }},
	{"dist graph", func(s stage) (*mpi.Comm, error) {
		return s.c.DistGraphCreate([]int{s.c.Rank()}, []int{1}, []int{(s.c.Rank() + 1) % s.c.Size()}, nil, false)
	}},
	{"dist graph adjacent", func(s stage) (*mpi.Comm, error) {
		n := s.c.Size()
		return s.c.DistGraphCreateAdjacent([]int{(s.c.Rank() + n - 1) % n}, nil, []int{(s.c.Rank() + 1) % n}, nil, false)
	}},
	{"inter create", func(s stage) (*mpi.Comm, error) {
		other := lowSide
		if !s.low {
			other = 0
		}
		return s.local.InterCreate(0, s.c, other, 8)
	}},
	{"inter dup", func(s stage) (*mpi.Comm, error) { return s.x.Dup() }},
	{"inter split", func(s stage) (*mpi.Comm, error) { return s.x.Split(s.x.Rank()%2, 0) }},
	{"inter create of groups", func(s stage) (*mpi.Comm, error) { return s.x.Create(s.x.Group()) }},
	{"merge", func(s stage) (*mpi.Comm, error) { return s.x.Merge(s.low) }},
	{"window", func(s stage) (*mpi.Comm, error) {
		w, err := mpi.AllocateWin[int64](s.c, 1)
		if err != nil {
			return nil, err
		}
		return nil, first(w.Fence(), w.Put([]int64{1}, (s.c.Rank()+1)%s.c.Size(), 0), w.FenceEnd(), w.Free())
	}},
	{"fence", func(s stage) (*mpi.Comm, error) {
		return nil, first(s.win.Fence(), s.win.Put([]int64{1}, (s.c.Rank()+1)%s.c.Size(), 0), s.win.FenceEnd())
	}},
	{"shared locks", func(s stage) (*mpi.Comm, error) { return nil, first(s.win.LockAll(), s.win.UnlockAll()) }},
}

// staged runs f at seven ranks that all are ready, in a job that outlives a victim.
func staged(t *testing.T, victim int, f func(*mpi.Comm, stage) error) {
	t.Helper()
	mpitest.Run(t, 7, func(c *mpi.Comm) error {
		s, err := newStage(c)
		if err == nil {
			err = ready(c, victim)
		}
		if err != nil {
			return err
		}
		return f(c, s)
	}, mpitest.FaultTolerant())
}

// TestMakingDeathBefore has a rank die before communicators are made: nobody waits
// for ever, all are told, and can go on.
func TestMakingDeathBefore(t *testing.T) {
	for _, m := range makings {
		for _, victim := range []int{0, 2, 4, 6} { // the leaders; others of both sides
			t.Run(fmt.Sprintf("%s/%d", m.name, victim), func(t *testing.T) {
				t.Parallel()
				staged(t, victim, func(c *mpi.Comm, s stage) error {
					if c.Rank() == victim {
						return crash(c)
					}
					for k := range 3 {
						if _, err := m.do(s); !errors.Is(err, mpi.ErrProcFailed) && (m.name != "shared locks" || err != nil) { // which may have been granted before
							return fmt.Errorf("time %d, without %d: %v", k, victim, err)
						}
					}
					return alone(c, victim)
				})
			})
		}
	}
}

// alone has the ranks but one make a communicator by themselves, and use it.
func alone(c *mpi.Comm, without int) error {
	g, err := c.Group().Excl(without)
	if err != nil {
		return err
	}
	d, err := c.CreateGroup(g, 3)
	if err != nil {
		return fmt.Errorf("the others alone: %w", err)
	}
	return first(unrooted(d, 3), d.Free())
}

// TestMakingDeathAmid has a rank die while communicators are made and used, one after
// the other: no call waits for ever, also in one that some have got and others not.
func TestMakingDeathAmid(t *testing.T) {
	for i, m := range makings {
		for _, victim := range []int{0, 2, 4, 5} {
			t.Run(fmt.Sprintf("%s/%d", m.name, victim), func(t *testing.T) {
				t.Parallel()
				staged(t, victim, func(c *mpi.Comm, s stage) error {
					if c.Rank() == victim {
						defer time.AfterFunc(time.Duration(i*137%1900+victim*311)*time.Microsecond, c.World().Crash).Stop()
					}
					for k := range 25 { // the same at all: who has been told goes on
						d, err := m.do(s)
						if err == nil && d != nil {
							err = mpi.Barrier(d)
						}
						if c.World().Crashed() {
							return nil
						}
						if err != nil && !errors.Is(err, mpi.ErrProcFailed) && !errors.Is(err, mpi.ErrRevoked) {
							return fmt.Errorf("time %d: %w", k, err)
						}
						if d != nil {
							if err := d.Free(); err != nil && !c.World().Crashed() {
								return err
							}
						}
					}
					return nil
				})
			})
		}
	}
}

// TestDeathAtPort has a rank of either side die before two groups meet at a port, by
// Accept and Connect: both sides are told. The port is of the side that accepts.
func TestDeathAtPort(t *testing.T) {
	for _, victim := range []int{1, lowSide, lowSide + 1} { // of those who accept; who calls; another of those
		t.Run(fmt.Sprint(victim), func(t *testing.T) {
			mpitest.Run(t, 7, func(c *mpi.Comm) error {
				s, err := newStage(c)
				if err != nil {
					return err
				}
				port := make([]byte, 8<<10)
				if c.Rank() == 0 {
					name, err := c.World().OpenPort()
					if err != nil {
						return err
					}
					copy(port, name)
				}
				if err := first(mpi.Bcast(c, port, 0), ready(c, victim)); err != nil {
					return err
				}
				if c.Rank() == victim {
					return crash(c)
				}
				name := string(port[:len(port)-len(trailing(port))])
				switch {
				case s.low && victim < lowSide:
					_, err = s.local.Accept(name, 0)
				case !s.low && victim >= lowSide:
					_, err = s.local.Connect(name, 0)
				default: // nobody answers, or calls
					return nil
				}
				if !errors.Is(err, mpi.ErrProcFailed) {
					return fmt.Errorf("with %d dead: %v", victim, err)
				}
				return nil
			}, mpitest.FaultTolerant())
		})
	}
}

// trailing is the zeros at the end.
func trailing(b []byte) []byte {
	n := len(b)
	for n > 0 && b[n-1] == 0 {
		n--
	}
	return b[n:]
}

// TestDeathOfWaitingAcceptor has a rank die while its side waits at a port: it is
// told although nobody ever calls.
func TestDeathOfWaitingAcceptor(t *testing.T) {
	mpitest.Run(t, 4, func(c *mpi.Comm) error {
		port, err := c.World().OpenPort()
		if err != nil {
			return err
		}
		if c.Rank() == 3 {
			if err := ready(c, 3); err != nil {
				return err
			}
			return crash(c)
		}
		if err := ready(c, 3); err != nil {
			return err
		}
		if _, err := c.Accept(port, 0); !errors.Is(err, mpi.ErrProcFailed) {
			return fmt.Errorf("accept with a dead member: %v", err)
		}
		return nil
	}, mpitest.FaultTolerant())
}

// TestSpawnWithDead: a spawn with a dead member fails at all, and those who have been
// started, whom nobody answers, end as well.
func TestSpawnWithDead(t *testing.T) {
	mpitest.Run(t, 4, func(c *mpi.Comm) error {
		if err := ready(c, 2); err != nil {
			return err
		}
		if c.Rank() == 2 {
			return crash(c)
		}
		for range 2 {
			if _, err := c.Spawn(0, mpi.Program{N: 3, Path: "child"}); !errors.Is(err, mpi.ErrProcFailed) {
				return fmt.Errorf("spawn with a dead member: %v", err)
			}
		}
		return nil
	}, mpitest.FaultTolerant(), mpitest.Program("child", func(c *mpi.Comm) error {
		return errors.New("it has been answered")
	}))
}

// TestWindowFreedEarly: who has failed in a Fence frees the window; another, who has
// got further, is told when it asks there.
func TestWindowFreedEarly(t *testing.T) {
	mpitest.Run(t, 3, func(c *mpi.Comm) error {
		w, err := mpi.AllocateWin[int64](c, 1)
		if err != nil {
			return err
		}
		if err := first(w.Fence(), ready(c, 2)); err != nil {
			return err
		}
		switch c.Rank() {
		case 2:
			return crash(c)
		case 0: // whom 2 would tell that it has come
			if err := w.FenceEnd(); !errors.Is(err, mpi.ErrProcFailed) {
				return fmt.Errorf("fence without a member: %v", err)
			}
			if err := w.Free(); !errors.Is(err, mpi.ErrProcFailed) {
				return fmt.Errorf("free without a member: %v", err)
			}
			return mpi.Send(c, []int{1}, 1, 3)
		}
		if _, err := mpi.Recv(c, make([]int, 1), 0, 3); err != nil {
			return err
		}
		if err := first(w.Put([]int64{1}, 0, 0), w.FlushAll()); !errors.Is(err, mpi.ErrRevoked) {
			return fmt.Errorf("access to a window that was freed there: %v", err)
		}
		if err := w.Free(); !errors.Is(err, mpi.ErrRevoked) {
			return fmt.Errorf("free of a revoked window: %v", err)
		}
		return nil
	}, mpitest.FaultTolerant(), mpitest.Timeout(20*time.Second))
}
