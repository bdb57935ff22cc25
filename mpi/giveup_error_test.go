package mpi_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/meshmpi/meshmpi/mpi"
	"github.com/meshmpi/meshmpi/mpi/mpitest"
)

// TestTruncatedExchange: a rank that is sent more than it expects leaves nobody
// waiting for what it was to send, and the communicator is as before.
func TestTruncatedExchange(t *testing.T) {
	for _, n := range []int{2, 200_000} { // the larger ones are announced
		for round := range 3 {
			mpitest.Run(t, 5, func(c *mpi.Comm) error {
				const short = 0
				out, in := even(c.Size(), n), even(c.Size(), n)
				if c.Rank() == short {
					in.Counts[1] = n - 1
				}
				buf, got := make([]int64, n*c.Size()), make([]int64, n*c.Size())
				err := mpi.Alltoallv(c, buf, out, got, in)
				var e *mpi.Error
				switch {
				case c.Rank() == short && !errors.Is(err, mpi.ErrTruncate):
					return fmt.Errorf("the short one: %v", err)
				case c.Rank() != short && err != nil && (!errors.As(err, &e) || e.Class != mpi.ErrOther || e.Peer < 0):
					return fmt.Errorf("another: %v", err)
				}
				return first(mpi.Barrier(c), unrooted(c, 1000+round))
			})
		}
	}
}

// TestPanicsOnce: an operation whose function panics at one rank ends at all, with or
// without an error, and, if it is persistent, can be done again.
func TestPanicsOnce(t *testing.T) {
	for _, n := range []int{1, 30_000} {
		mpitest.Run(t, 4, func(c *mpi.Comm) error {
			var fails bool
			sum := mpi.NewOp(func(in, inout []int64) {
				if fails {
					panic("no")
				}
				for i := range in {
					inout[i] += in[i]
				}
			}, true)
			in, out := make([]int64, n), make([]int64, n)
			for i := range in {
				in[i] = 1
			}
			p, err := mpi.AllreduceInit(c, in, out, sum)
			if err != nil {
				return err
			}
			for start := range 6 {
				fails = start%2 == 0 && c.Rank() == start%c.Size()
				if err := p.Start(); err != nil {
					return err
				}
				_, err := p.Wait()
				switch {
				case fails && !errors.Is(err, mpi.ErrOp), !fails && err != nil && (start%2 == 1 || mpi.ClassOf(err) != mpi.ErrOther):
					return fmt.Errorf("start %d: %v", start, err)
				case start%2 == 1 && out[n-1] != int64(c.Size()):
					return fmt.Errorf("start %d: the sum is %d", start, out[n-1])
				}
				if err := mpi.Barrier(c); err != nil {
					return err
				}
			}
			return p.Free()
		})
	}
}
