package mpi_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/meshmpi/meshmpi/mpi"
	"github.com/meshmpi/meshmpi/mpi/mpitest"
)

// interOps are the collective operations between two groups. All ranks of the first
// give, where there is a root; of needy ones each rank needs all of the other side.
var interOps = []struct {
	name  string
	needy bool
	do    func(x *mpi.Comm, n, root int) error
}{
	{"barrier", true, func(x *mpi.Comm, _, _ int) error { return mpi.Barrier(x) }},
	{"bcast", false, func(x *mpi.Comm, n, root int) error { return mpi.Bcast(x, make([]int64, n), root) }},
	{"gather", false, func(x *mpi.Comm, n, root int) error {
		return mpi.Gather(x, make([]int64, n), atRoot(x, n, root), root)
	}},
	{"gatherv", false, func(x *mpi.Comm, n, root int) error {
		return mpi.Gatherv(x, make([]int64, n), atRoot(x, n, root), even(x.RemoteSize(), n), root)
	}},
	{"scatter", false, func(x *mpi.Comm, n, root int) error {
		return mpi.Scatter(x, atRoot(x, n, root), make([]int64, n), root)
	}},
	{"scatterv", false, func(x *mpi.Comm, n, root int) error {
		return mpi.Scatterv(x, atRoot(x, n, root), even(x.RemoteSize(), n), make([]int64, n), root)
	}},
	{"reduce", false, func(x *mpi.Comm, n, root int) error {
		return mpi.Reduce(x, make([]int64, n), make([]int64, n), mpi.Sum, root)
	}},
	{"allreduce", true, func(x *mpi.Comm, n, _ int) error {
		return mpi.Allreduce(x, make([]int64, n), make([]int64, n), mpi.Sum)
	}},
	{"allgather", true, func(x *mpi.Comm, n, _ int) error {
		return mpi.Allgather(x, make([]int64, n), make([]int64, n*x.RemoteSize()))
	}},
	{"allgatherv", true, func(x *mpi.Comm, n, _ int) error {
		return mpi.Allgatherv(x, make([]int64, n), make([]int64, n*x.RemoteSize()), even(x.RemoteSize(), n))
	}},
	{"alltoall", true, func(x *mpi.Comm, n, _ int) error {
		return mpi.Alltoall(x, make([]int64, n*x.RemoteSize()), make([]int64, n*x.RemoteSize()))
	}},
	{"alltoallv", true, func(x *mpi.Comm, n, _ int) error {
		l := even(x.RemoteSize(), n)
		return mpi.Alltoallv(x, make([]int64, n*x.RemoteSize()), l, make([]int64, n*x.RemoteSize()), l)
	}},
	{"alltoallw", true, func(x *mpi.Comm, n, _ int) error {
		out, in := make([]mpi.Buf, x.RemoteSize()), make([]mpi.Buf, x.RemoteSize())
		for r := range out {
			out[r], in[r] = mpi.BufOf(make([]int64, n)), mpi.BufOf(make([]int64, n))
		}
		return mpi.Alltoallw(x, out, in)
	}},
	{"reduce_scatter", true, func(x *mpi.Comm, n, _ int) error {
		total := n * x.Size() * x.RemoteSize()
		counts := even(x.Size(), n*x.RemoteSize()).Counts
		return mpi.ReduceScatter(x, make([]int64, total), make([]int64, counts[0]), counts, mpi.Sum)
	}},
	{"reduce_scatter_block", true, func(x *mpi.Comm, n, _ int) error {
		return mpi.ReduceScatterBlock(x, make([]int64, n*x.Size()*x.RemoteSize()), make([]int64, n*x.RemoteSize()), mpi.Sum)
	}},
}

// atRoot is what the root of an operation has: n elements of each rank of the other
// side; others have nothing.
func atRoot(x *mpi.Comm, n, root int) []int64 {
	if root == mpi.Root {
		return make([]int64, n*x.RemoteSize())
	}
	return nil
}

func even(ranks, n int) (l mpi.Layout) {
	for range ranks {
		l.Counts = append(l.Counts, n)
	}
	return l
}

// lowSide is how many of the seven ranks below are on the first side, whose rank 1
// is the root.
const lowSide = 4

func interRoot(x *mpi.Comm, low bool) int {
	switch {
	case !low:
		return 1
	case x.Rank() == 1:
		return mpi.Root
	}
	return mpi.ProcNull
}

// ready has a rank wait until the others have told it that they are here.
func ready(c *mpi.Comm, victim int) error {
	if c.Rank() != victim {
		return mpi.Send(c, []int{1}, victim, 9)
	}
	for range c.Size() - 1 {
		if _, err := mpi.Recv(c, make([]int, 1), mpi.AnySource, 9); err != nil {
			return err
		}
	}
	return nil
}

// TestInterDeathBefore has a rank die before a collective operation between two
// groups: nobody waits for ever, and who cannot have what it needs is told.
func TestInterDeathBefore(t *testing.T) {
	for _, op := range interOps {
		for _, victim := range []int{0, 1, 3, 4, 6} { // first, root and last of the first side; first and last of the other
			for _, n := range []int{1, 20_000} {
				t.Run(fmt.Sprintf("%s/%d/%d", op.name, victim, n), func(t *testing.T) {
					t.Parallel()
					mpitest.Run(t, 7, func(c *mpi.Comm) error {
						s, err := join(c, lowSide, n)
						if err != nil {
							return err
						}
						if err := ready(c, victim); err != nil {
							return err
						}
						if c.Rank() == victim {
							return crash(c)
						}
						err = op.do(s.x, n, interRoot(s.x, s.low))
						if err != nil && !errors.Is(err, mpi.ErrProcFailed) {
							return err
						}
						if err == nil && op.needy && s.low != (victim < lowSide) {
							return errors.New("it succeeds without what the dead should have given")
						}
						return nil
					}, mpitest.FaultTolerant())
				})
			}
		}
	}
}

// TestInterDeathAmid has a rank die while operations go on, one after the other:
// none waits for ever.
func TestInterDeathAmid(t *testing.T) {
	for i, op := range interOps {
		for _, victim := range []int{0, 2, 4, 5} {
			t.Run(fmt.Sprintf("%s/%d", op.name, victim), func(t *testing.T) {
				t.Parallel()
				mpitest.Run(t, 7, func(c *mpi.Comm) error {
					s, err := join(c, lowSide, 0)
					if err != nil {
						return err
					}
					if err := ready(c, victim); err != nil {
						return err
					}
					if c.Rank() == victim {
						defer time.AfterFunc(time.Duration(i*137%900+victim*211)*time.Microsecond, c.World().Crash).Stop()
					}
					for k := range 40 { // the same at all: who has been told goes on
						err := op.do(s.x, 1+k%3*1500, interRoot(s.x, s.low))
						if c.World().Crashed() {
							return nil
						}
						if err != nil && !errors.Is(err, mpi.ErrProcFailed) {
							return fmt.Errorf("operation %d: %w", k, err)
						}
					}
					return nil
				}, mpitest.FaultTolerant())
			})
		}
	}
}

// TestDeathOfNeighbour: in an ordinary communicator, too, who waits for one who has
// given up gives up.
func TestDeathOfNeighbour(t *testing.T) {
	for _, victim := range []int{0, 3, 8} {
		for _, n := range []int{1, 50_000} {
			mpitest.Run(t, 9, func(c *mpi.Comm) error {
				if c.Rank() == victim {
					return crash(c)
				}
				if err := mpi.Allreduce(c, make([]int64, n), make([]int64, n), mpi.Sum); !errors.Is(err, mpi.ErrProcFailed) {
					return fmt.Errorf("allreduce without %d: %v", victim, err)
				}
				if err := mpi.Barrier(c); !errors.Is(err, mpi.ErrProcFailed) {
					return fmt.Errorf("barrier without %d: %v", victim, err)
				}
				return nil
			}, mpitest.FaultTolerant())
		}
	}
}

// TestGivenUpBefore: who begins an operation that was given up before, by the only
// rank it would hear from, is told, too.
func TestGivenUpBefore(t *testing.T) {
	mpitest.Run(t, 7, func(c *mpi.Comm) error {
		s, err := join(c, lowSide, 1)
		if err != nil {
			return err
		}
		const victim, leader = 1, lowSide // the root, and who passes on what it gives
		if err := ready(c, victim); err != nil {
			return err
		}
		switch {
		case c.Rank() == victim:
			return crash(c)
		case s.low:
			return nil
		case c.Rank() > leader:
			if _, err := mpi.Recv(c, make([]int, 1), leader, 5); err != nil {
				return err
			}
		}
		var e *mpi.Error
		if err := mpi.Bcast(s.x, make([]int64, 1), interRoot(s.x, s.low)); !errors.As(err, &e) || e.Class != mpi.ErrProcFailed || e.Peer != victim {
			return fmt.Errorf("bcast from the dead: %v", err)
		}
		for r := leader + 1; r < c.Size() && c.Rank() == leader; r++ {
			if err := mpi.Send(c, []int{1}, r, 5); err != nil {
				return err
			}
		}
		return nil
	}, mpitest.FaultTolerant())
}
