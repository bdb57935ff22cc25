package mpi_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/meshmpi/meshmpi/mpi"
	"github.com/meshmpi/meshmpi/mpi/mpitest"
)

// TestLostLink breaks connections between two sites in the middle of large messages
// and of collective operations: as long as one is left nobody notices.
func TestLostLink(t *testing.T) {
	for _, breaks := range [][]mpitest.Option{
		{mpitest.Break(0, 100_000)},
		{mpitest.Break(1, 1<<20)},
		{mpitest.Break(1, 700_001)}, // within pieces, more likely than not
		{mpitest.Break(1, 1_234_567)},
		{mpitest.Break(0, 1_500_003), mpitest.Break(1, 1_900_007)},
		{mpitest.Break(2, 1<<20), mpitest.Break(0, 2<<20)},
		{mpitest.Break(4, 20_000), mpitest.Break(5, 40_000)},
	} {
		opts := append(breaks, mpitest.Blocks(2), mpitest.WAN(2*time.Millisecond, 0), mpitest.With(mpi.WithLinks(3)))
		mpitest.Run(t, 4, func(c *mpi.Comm) error {
			const n = 1 << 19
			other := (c.Rank() + 2) % 4
			for round := range 3 {
				mine, got := make([]int64, n), make([]int64, n)
				for i := range mine {
					mine[i] = int64(i * (c.Rank() + round + 1))
				}
				if _, err := mpi.Sendrecv(c, mine, other, round, got, other, round); err != nil {
					return err
				}
				for i := range mine {
					mine[i] = int64(i * (other + round + 1))
				}
				if !slices.Equal(got, mine) {
					return fmt.Errorf("round %d: other contents", round)
				}
				if err := unrooted(c, 1000); err != nil {
					return err
				}
			}
			return nil
		}, opts...)
	}
}

// TestLastLink breaks all connections between two ranks: each is told that the other
// has failed.
func TestLastLink(t *testing.T) {
	mpitest.Run(t, 2, func(c *mpi.Comm) error {
		mine, got := make([]int64, 1<<18), make([]int64, 1<<18)
		for range 3 {
			_, err := mpi.Sendrecv(c, mine, 1-c.Rank(), 1, got, 1-c.Rank(), 1)
			if errors.Is(err, mpi.ErrProcFailed) {
				return nil
			}
			if err != nil {
				return err
			}
		}
		return errors.New("nobody has noticed")
	}, mpitest.Blocks(1), mpitest.WAN(time.Millisecond, 0), mpitest.With(mpi.WithLinks(2)), mpitest.FaultTolerant(),
		// Both may dial at the same time; then two of the four are not used.
		mpitest.Break(0, 1<<20), mpitest.Break(1, 1<<20), mpitest.Break(2, 1<<20), mpitest.Break(3, 1<<20))
}
