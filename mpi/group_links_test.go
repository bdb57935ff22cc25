package mpi_test

import (
	"fmt"
	"testing"

	"github.com/meshmpi/meshmpi/mpi"
	"github.com/meshmpi/meshmpi/mpi/mpitest"
)

// TestGroupedCollectives runs the collective operations on two sites of eight ranks
// whose messages share two connections.
func TestGroupedCollectives(t *testing.T) {
	mpitest.Run(t, 16, func(c *mpi.Comm) error {
		for _, count := range []int{0, 1, 17, 1000} {
			if err := rooted(c, count, 3); err != nil {
				return fmt.Errorf("count %d: %w", count, err)
			}
			for _, f := range []func(*mpi.Comm, int) error{unrooted, vectors, scans, ordered} {
				if err := f(c, count); err != nil {
					return fmt.Errorf("count %d: %w", count, err)
				}
			}
		}
		return nil
	}, mpitest.Blocks(8), mpitest.WAN(0, 0), mpitest.With(mpi.WithGroupLinks(2)))
}
