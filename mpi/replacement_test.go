package mpi_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/meshmpi/meshmpi/mpi"
	"github.com/meshmpi/meshmpi/mpi/mpitest"
)

// victims are the ranks that die, one a round: one of them twice, so that a
// replacement is replaced.
var victims = [...]int{2, 2, 1}

// TestReplacement: ranks die, each time the others spawn one in its place, and all
// go on by the ranks that they had.
func TestReplacement(t *testing.T) {
	for name, opt := range map[string]mpitest.Option{"memory": mpitest.With(), "network": mpitest.WAN(0, 0)} {
		t.Run(name, func(t *testing.T) {
			mpitest.Run(t, 4, func(c *mpi.Comm) error { return rounds(c, 0) }, opt, mpitest.FaultTolerant(),
				mpitest.Program("replacement", func(c *mpi.Comm) error {
					m, err := c.World().Parent().Merge(true)
					if err != nil {
						return err
					}
					told := make([]int, 2) // rank and round
					if _, err := mpi.Recv(m, told, 0, 0); err != nil {
						return err
					}
					if c, err = m.Split(0, told[0]); err != nil {
						return err
					}
					return first(together(c), want("place of a replacement", []int{c.Rank(), c.Size()}, []int{told[0], 4}), rounds(c, told[1]))
				}))
		})
	}
}

// rounds is the life of a rank that has done so many of them.
func rounds(c *mpi.Comm, done int) error {
	for ; done < len(victims); done++ {
		if c.Rank() == victims[done] {
			return crash(c)
		}
		d, err := withReplacement(c, victims[done], done+1)
		if err != nil {
			return fmt.Errorf("round %d: %w", done, err)
		}
		if d.Rank() != c.Rank() || d.Size() != c.Size() {
			return fmt.Errorf("round %d: rank %d of %d is now %d of %d", done, c.Rank(), c.Size(), d.Rank(), d.Size())
		}
		c = d
		if err := together(c); err != nil {
			return fmt.Errorf("round %d, with the replacement: %w", done, err)
		}
	}
	return nil
}

// together computes something, and returns when all have done so: the next to die
// has a communicator revoked that others must not be using then.
func together(c *mpi.Comm) error {
	if err := unrooted(c, 3); err != nil {
		return err
	}
	_, err := c.Agree(1)
	if errors.Is(err, mpi.ErrProcFailed) { // of the next round
		err = nil
	}
	return err
}

// withReplacement waits for the death of a rank and returns a communicator of the
// others and one in its place, who is told its rank and round.
func withReplacement(c *mpi.Comm, dies, round int) (*mpi.Comm, error) {
	var err error
	for err == nil {
		err = mpi.Barrier(c)
	}
	if !errors.Is(err, mpi.ErrProcFailed) && !errors.Is(err, mpi.ErrRevoked) {
		return nil, err
	}
	if err := c.Revoke(); err != nil {
		return nil, err
	}
	d, err := c.Shrink()
	if err != nil {
		return nil, err
	}
	x, err := d.Spawn(0, mpi.Program{N: 1, Path: "replacement"})
	if err != nil {
		return nil, err
	}
	m, err := x.Merge(false)
	if err != nil {
		return nil, err
	}
	if m.Rank() == 0 {
		if err := mpi.Send(m, []int{dies, round}, m.Size()-1, 0); err != nil {
			return nil, err
		}
	}
	return m.Split(0, c.Rank())
}

// TestReplacementRepublishes: who has published a name dies, the name goes with it,
// and a replacement that publishes it anew is found by it.
func TestReplacementRepublishes(t *testing.T) {
	for name, opt := range map[string]mpitest.Option{"memory": mpitest.With(), "network": mpitest.WAN(0, 0)} {
		t.Run(name, func(t *testing.T) {
			mpitest.Run(t, 3, func(c *mpi.Comm) error {
				color := 0
				if c.Rank() == 2 {
					color = 1
				}
				half, err := c.Split(color, 0)
				if err != nil {
					return err
				}
				if c.Rank() == 2 { // has the name, answers once, and dies
					_, err := keep(half, 10)
					return first(err, crash(c))
				}
				x, err := ask(half, 10)
				if err != nil {
					return err
				}
				if _, err := mpi.Recv(x, make([]int, 1), 0, 0); !errors.Is(err, mpi.ErrProcFailed) {
					return fmt.Errorf("receive from a keeper that has died: %v", err)
				}
				if _, err := half.Spawn(0, mpi.Program{N: 1, Path: "keeper"}); err != nil {
					return err
				}
				if x, err = ask(half, 20); err != nil {
					return err
				}
				return x.Disconnect()
			}, opt, mpitest.FaultTolerant(), mpitest.Program("keeper", func(c *mpi.Comm) error {
				x, err := keep(c, 20)
				if err != nil {
					return err
				}
				return x.Disconnect()
			}))
		})
	}
}

// keep publishes a port, and gives those who connect to it an answer.
func keep(c *mpi.Comm, answer int) (*mpi.Comm, error) {
	w := c.World()
	port, err := w.OpenPort()
	if err != nil {
		return nil, err
	}
	for err = w.PublishName("keeper", port); errors.Is(err, mpi.ErrService); err = w.PublishName("keeper", port) {
		time.Sleep(time.Millisecond) // the launcher has not heard yet that the one before is dead
	}
	if err != nil {
		return nil, err
	}
	x, err := c.Accept(port, 0)
	if err != nil {
		return nil, err
	}
	question := make([]int, 1)
	if _, err := mpi.Recv(x, question, 0, 1); err != nil {
		return nil, err
	}
	err = mpi.Bcast(x, []int{question[0] + answer}, mpi.Root)
	for r := range x.RemoteSize() { // what has not arrived may die with us
		if _, gone := mpi.Recv(x, question, r, 2); gone != nil {
			return nil, gone
		}
	}
	return x, err
}

// ask connects to whoever has the name, and checks the answer. Until there is one,
// the name is not known, or is that of one who has died.
func ask(c *mpi.Comm, answer int) (*mpi.Comm, error) {
	x, err := connectByName(c)
	if err != nil {
		return nil, err
	}
	if c.Rank() == 0 {
		if err := mpi.Send(x, []int{5}, 0, 1); err != nil {
			return nil, err
		}
	}
	got := make([]int, 1)
	return x, first(mpi.Bcast(x, got, 0), want("answer", got, []int{5 + answer}), mpi.Send(x, got, 0, 2))
}

func connectByName(c *mpi.Comm) (*mpi.Comm, error) {
	for {
		port, err := "", error(nil)
		if c.Rank() == 0 {
			if port, err = c.World().LookupName("keeper"); errors.Is(err, mpi.ErrName) {
				time.Sleep(time.Millisecond)
				continue
			}
		}
		if err != nil {
			return nil, err
		}
		x, err := c.Connect(port, 0)
		if !errors.Is(err, mpi.ErrPort) {
			return x, err
		}
	}
}
