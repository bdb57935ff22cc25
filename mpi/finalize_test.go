package mpi_test

import (
	"testing"
	"time"

	"github.com/meshmpi/meshmpi/mpi"
	"github.com/meshmpi/meshmpi/mpi/mpitest"
)

// Finalize waits for who is late: rank 0 writes results while the others are done.
func TestLateFinalize(t *testing.T) {
	mpi.SetFinalizeTime(time.Second)
	defer mpi.SetFinalizeTime(2 * time.Minute)
	mpitest.Run(t, 3, func(c *mpi.Comm) error {
		if c.Rank() == 0 {
			time.Sleep(2 * time.Second)
		}
		return nil
	})
}
