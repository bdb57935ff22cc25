package mpi_test

import (
	"fmt"
	"testing"

	"go.uber.org/goleak"

	"github.com/meshmpi/meshmpi/mpi"
	"github.com/meshmpi/meshmpi/mpi/mpitest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestRing(t *testing.T) {
	for _, n := range []int{1, 2, 5} {
		mpitest.Run(t, n, func(c *mpi.Comm) error {
			next, prev := (c.Rank()+1)%n, (c.Rank()+n-1)%n
			in := make([]int, 1)
			st, err := mpi.Sendrecv(c, []int{c.Rank()}, next, 7, in, prev, 7)
			if err != nil {
				return err
			}
			if in[0] != prev || st.Source != prev || st.Tag != 7 || mpi.Count[int](st) != 1 {
				return fmt.Errorf("got %d, %+v", in[0], st)
			}
			sum := []int{c.Rank()}
			if err := mpi.Allreduce(c, nil, sum, mpi.Sum); err != nil {
				return err
			}
			if sum[0] != n*(n-1)/2 {
				return fmt.Errorf("sum %d", sum[0])
			}
			d, err := c.Split(c.Rank()%2, -c.Rank())
			if err != nil {
				return err
			}
			all := make([]int, d.Size())
			if err := mpi.Allgather(d, []int{c.Rank()}, all); err != nil {
				return err
			}
			for i := 1; i < len(all); i++ {
				if all[i] != all[i-1]-2 {
					return fmt.Errorf("order %v", all)
				}
			}
			return d.Free()
		})
	}
}
