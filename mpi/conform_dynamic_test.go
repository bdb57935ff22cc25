package mpi_test

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/meshmpi/meshmpi/mpi"
	"github.com/meshmpi/meshmpi/mpi/mpitest"
)

// TestGenerations: a job starts two programs at once, one of which starts another
// job; each generation talks to its parent, in memory and over a network.
func TestGenerations(t *testing.T) {
	grandchild := func(c *mpi.Comm) error {
		p := c.World().Parent()
		return first(mpi.Send(p, []int{42}, 1, 0), p.Disconnect())
	}
	child := func(app int) func(*mpi.Comm) error {
		return func(c *mpi.Comm) error {
			p := c.World().Parent()
			if c.World().Appnum() != app || c.Size() != 3 || p.RemoteSize() != 2 {
				return fmt.Errorf("program %d of %d ranks, parents %d", c.World().Appnum(), c.Size(), p.RemoteSize())
			}
			g, err := c.Spawn(2, mpi.Program{N: 1, Path: "grandchild"})
			if err != nil {
				return err
			}
			got := make([]int, 1)
			if c.Rank() == 1 {
				_, err = mpi.Recv(g, got, 0, 0)
				err = first(err, want("from the grandchild", got, []int{42}))
			}
			return first(err, g.Disconnect(), mpi.Send(p, []int{app, c.Rank()}, c.Rank()%2, 7), p.Disconnect())
		}
	}
	for name, opt := range map[string]mpitest.Option{"memory": mpitest.With(), "network": mpitest.WAN(100*time.Microsecond, 0)} {
		t.Run(name, func(t *testing.T) {
			mpitest.Run(t, 2, func(c *mpi.Comm) error {
				kids, err := c.Spawn(0, mpi.Program{N: 1, Path: "a"}, mpi.Program{N: 2, Path: "b"})
				if err != nil {
					return err
				}
				for _, from := range [][]int{{0, 2}, {1}}[c.Rank()] {
					got := make([]int, 2)
					_, err := mpi.Recv(kids, got, from, 7)
					if err := first(err, want("from a child", got, []int{min(from, 1), from})); err != nil {
						return err
					}
				}
				return kids.Disconnect()
			}, opt, mpitest.Program("a", child(0)), mpitest.Program("b", child(1)), mpitest.Program("grandchild", grandchild))
		})
	}
}

// TestSpawnMistakes: what cannot be started is said at all ranks, and nothing is
// left behind.
func TestSpawnMistakes(t *testing.T) {
	mpitest.Run(t, 3, func(c *mpi.Comm) error {
		for root := range 3 {
			_, err := c.Spawn(root, mpi.Program{N: 1, Path: "nothing"})
			_, none := c.Spawn(root)
			if err := first(mistaken(mistake{"no such program", err, mpi.ErrSpawn}, mistake{"no programs", none, mpi.ErrSpawn}), alike(c, root, err, none), unrooted(c, 2)); err != nil {
				return err
			}
		}
		return nil
	})
}

// alike wants errors to be said by all ranks in the words of one.
func alike(c *mpi.Comm, root int, errs ...error) error {
	for _, err := range errs {
		said := make([]byte, 300) // no error is longer, see mistaken
		copy(said, err.Error())
		if err := mpi.Bcast(c, said, root); err != nil {
			return err
		}
		if theirs := string(bytes.TrimRight(said, "\x00")); err.Error() != theirs {
			return fmt.Errorf("rank %d says %q, the root %q", c.Rank(), err, theirs)
		}
	}
	return nil
}

// TestPortMistakes: what is wrong with the root's port is the same error at all ranks.
func TestPortMistakes(t *testing.T) {
	mpitest.Run(t, 3, func(c *mpi.Comm) error {
		closed, err := c.World().OpenPort()
		if err := first(err, c.World().ClosePort(closed)); err != nil {
			return err
		}
		for root := range 3 {
			port := "" // only the root's counts
			if c.Rank() == root {
				port = "no port"
			}
			_, connects := c.Connect(port, root)
			_, accepts := c.Accept(closed, root)
			if err := first(mistaken(mistake{"connect to no port", connects, mpi.ErrPort}, mistake{"accept at a closed one", accepts, mpi.ErrPort}), alike(c, root, connects, accepts), unrooted(c, 2)); err != nil {
				return err
			}
		}
		return nil
	})
}

// TestNames: a name is published once, looked up, and taken back.
func TestNames(t *testing.T) {
	mpitest.Run(t, 2, func(c *mpi.Comm) error {
		w := c.World()
		port, err := w.OpenPort()
		if err != nil || strings.Contains(port, "\n") {
			return fmt.Errorf("%q: %v", port, err)
		}
		name := fmt.Sprint("service ", c.Rank())
		if err := first(w.PublishName(name, port), mpi.Barrier(c)); err != nil {
			return err
		}
		got, err := w.LookupName(name)
		other, err2 := w.LookupName(fmt.Sprint("service ", 1-c.Rank()))
		if err := first(err, err2, want("own port", []string{got}, []string{port})); err != nil || other == port {
			return fmt.Errorf("the other's port is %q: %v", other, err)
		}
		if err := first(mpi.Barrier(c), w.UnpublishName(name), mpi.Barrier(c)); err != nil {
			return err
		}
		_, err = w.LookupName(name)
		return first(mistaken(mistake{"taken back", err, mpi.ErrName}, mistake{"twice", w.UnpublishName(name), mpi.ErrService}),
			w.ClosePort(port), mistaken(mistake{"closed twice", w.ClosePort(port), mpi.ErrPort}))
	})
}

// TestManyClients connect to one port one after another.
func TestManyClients(t *testing.T) {
	mpitest.Run(t, 4, func(c *mpi.Comm) error {
		self, w := c.World().Self(), c.World()
		if c.Rank() > 0 {
			if err := mpi.Barrier(c); err != nil {
				return err
			}
			port, err := w.LookupName("counter")
			if err != nil {
				return err
			}
			for range 3 {
				x, err := self.Connect(port, 0)
				if err != nil {
					return err
				}
				got := make([]int, 1)
				_, err = mpi.Sendrecv(x, []int{c.Rank()}, 0, 0, got, 0, 0)
				if err := first(err, want("answer", got, []int{10 * c.Rank()}), x.Disconnect()); err != nil {
					return err
				}
			}
			return mpi.Barrier(c)
		}
		port, err := w.OpenPort()
		if err := first(err, w.PublishName("counter", port), mpi.Barrier(c)); err != nil {
			return err
		}
		for range 9 {
			x, err := self.Accept(port, 0)
			if err != nil {
				return err
			}
			got := make([]int, 1)
			_, err = mpi.Recv(x, got, 0, 0)
			if err := first(err, mpi.Send(x, []int{10 * got[0]}, 0, 0), x.Disconnect()); err != nil {
				return err
			}
		}
		return first(w.UnpublishName("counter"), w.ClosePort(port), mpi.Barrier(c))
	})
}

// TestDeathOfChildren: the parent of a job whose process dies is told, and goes on
// without it.
func TestDeathOfChildren(t *testing.T) {
	mpitest.Run(t, 2, func(c *mpi.Comm) error {
		kids, err := c.Spawn(0, mpi.Program{N: 2, Path: "mortal"})
		if err != nil {
			return err
		}
		got := make([]int, 1)
		_, err = mpi.Recv(kids, got, 1, 0)
		if err := first(err, mpi.Send(kids, got, 0, 0)); err != nil {
			return err
		}
		if _, err := mpi.Recv(kids, got, 0, 0); !errors.Is(err, mpi.ErrProcFailed) {
			return fmt.Errorf("receive from a dead child: %v", err)
		}
		return unrooted(c, 2)
	}, mpitest.FaultTolerant(), mpitest.Program("mortal", func(c *mpi.Comm) error {
		p := c.World().Parent()
		if c.Rank() == 0 { // who has talked to it sees that it is gone
			_, err1 := mpi.Recv(p, make([]int, 1), 0, 0)
			_, err2 := mpi.Recv(p, make([]int, 1), 1, 0)
			return first(err1, err2, crash(c))
		}
		return first(mpi.Send(p, []int{1}, 0, 0), mpi.Send(p, []int{1}, 1, 0))
	}))
}

// TestForeignPort: another process's port is not ours, though it has the number of one of
// ours: it can neither be closed nor accepted at.
func TestForeignPort(t *testing.T) {
	mpitest.Run(t, 2, func(c *mpi.Comm) error {
		own, err := c.World().OpenPort()
		if err != nil {
			return err
		}
		name := []byte(own)
		length := []int{len(name)}
		if err := mpi.Bcast(c, length, 0); err != nil {
			return err
		}
		name = append(name, make([]byte, max(0, length[0]-len(name)))...)[:length[0]]
		if err := mpi.Bcast(c, name, 0); err != nil || c.Rank() == 0 {
			return err
		}
		if _, err := c.World().Self().Accept(string(name), 0); !errors.Is(err, mpi.ErrPort) {
			return fmt.Errorf("Accept at the port of another process: %v", err)
		}
		if err := c.World().ClosePort(string(name)); !errors.Is(err, mpi.ErrPort) {
			return fmt.Errorf("ClosePort of another process's: %v", err)
		}
		return c.World().ClosePort(own) // it has not gone with that
	}, mpitest.Timeout(10*time.Second))
}
