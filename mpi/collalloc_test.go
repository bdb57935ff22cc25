package mpi_test

import (
	"runtime"
	"testing"

	"github.com/meshmpi/meshmpi/mpi"
	"github.com/meshmpi/meshmpi/mpi/mpitest"
)

// TestCollectiveAllocations: a blocking operation that has been done before with these
// arguments allocates nothing; less than once at each rank is counted, since under the
// race detector a sync.Pool forgets at times.
func TestCollectiveAllocations(t *testing.T) {
	const n, loops = 4, 500
	for _, x := range []struct {
		name string
		do   func(c *mpi.Comm, one, all []int64) error
	}{
		{"barrier", func(c *mpi.Comm, _, _ []int64) error { return mpi.Barrier(c) }},
		{"bcast", func(c *mpi.Comm, one, _ []int64) error { return mpi.Bcast(c, one, 1) }},
		{"reduce", func(c *mpi.Comm, one, all []int64) error { return mpi.Reduce(c, one, all[:1], mpi.Sum, 0) }},
		{"allreduce", func(c *mpi.Comm, one, all []int64) error { return mpi.Allreduce(c, one, all[:1], mpi.Sum) }},
		{"allgather", func(c *mpi.Comm, one, all []int64) error { return mpi.Allgather(c, one, all) }},
		{"alltoall", func(c *mpi.Comm, _, all []int64) error { return mpi.Alltoall(c, nil, all) }},
	} {
		body := func(t *testing.T) func(c *mpi.Comm) error {
			return func(c *mpi.Comm) error {
				one, all := make([]int64, 1), make([]int64, n)
				var before, after runtime.MemStats
				for i := range 2 * loops {
					if i == loops {
						runtime.ReadMemStats(&before)
					}
					if err := x.do(c, one, all); err != nil {
						return err
					}
				}
				runtime.ReadMemStats(&after)
				if err := mpi.Barrier(c); err != nil {
					return err
				}
				if per := float64(after.Mallocs-before.Mallocs) / loops; c.Rank() == 0 && per >= n {
					t.Errorf("all %d ranks allocate %.2f times in an operation", n, per)
				}
				return nil
			}
		}
		t.Run(x.name, func(t *testing.T) { mpitest.Run(t, n, body(t)) })
		t.Run(x.name+" crowded", func(t *testing.T) { runCrowded(t, n, body(t)) })
	}
}
