package mpi_test

import (
	"fmt"

	"github.com/meshmpi/meshmpi/mpi"
	"github.com/meshmpi/meshmpi/mpi/mpitest"
)

func ExampleBcast() {
	mpitest.Example(3, func(c *mpi.Comm) error {
		v := make([]int, 2)
		if c.Rank() == 0 {
			v = []int{6, 7}
		}
		if err := mpi.Bcast(c, v, 0); err != nil {
			return err
		}
		fmt.Println("rank", c.Rank(), "has", v)
		return nil
	})
	// Unordered output:
	// rank 0 has [6 7]
	// rank 1 has [6 7]
	// rank 2 has [6 7]
}

func ExampleGather() {
	mpitest.Example(3, func(c *mpi.Comm) error {
		var all []int // needed at the root only
		if c.Rank() == 0 {
			all = make([]int, c.Size())
		}
		if err := mpi.Gather(c, []int{c.Rank() + 1}, all, 0); err != nil {
			return err
		}
		if c.Rank() == 0 {
			fmt.Println(all)
		}
		return nil
	})
	// Output: [1 2 3]
}

// Rank r gets r+1 of the root's numbers.
func ExampleScatterv() {
	mpitest.Example(3, func(c *mpi.Comm) error {
		var all []int
		l := mpi.Layout{Counts: []int{1, 2, 3}}
		if c.Rank() == 0 {
			all = []int{1, 2, 2, 3, 3, 3}
		}
		part := make([]int, c.Rank()+1)
		if err := mpi.Scatterv(c, all, l, part, 0); err != nil {
			return err
		}
		fmt.Println("rank", c.Rank(), "has", part)
		return nil
	})
	// Unordered output:
	// rank 0 has [1]
	// rank 1 has [2 2]
	// rank 2 has [3 3 3]
}

func ExampleAllgather() {
	mpitest.Example(3, func(c *mpi.Comm) error {
		all := make([]int, c.Size())
		if err := mpi.Allgather(c, []int{c.Rank() * 10}, all); err != nil {
			return err
		}
		if c.Rank() == 2 {
			fmt.Println(all)
		}
		return nil
	})
	// Output: [0 10 20]
}

// Everybody learns the sum, and the mean by it.
func ExampleAllreduce() {
	mpitest.Example(4, func(c *mpi.Comm) error {
		sum := []float64{float64(c.Rank())}
		if err := mpi.Allreduce(c, nil, sum, mpi.Sum); err != nil { // nil: in place
			return err
		}
		if c.Rank() == 3 {
			fmt.Println("mean", sum[0]/float64(c.Size()))
		}
		return nil
	})
	// Output: mean 1.5
}

// Who has how many numbers for whom is exchanged first, then the numbers.
func ExampleAlltoallv() {
	mpitest.Example(2, func(c *mpi.Comm) error {
		send := [][]int{{1, 2, 3}, {4, 5}}[c.Rank()]
		sl := mpi.Layout{Counts: [][]int{{1, 2}, {2, 0}}[c.Rank()]}
		rl := mpi.Layout{Counts: make([]int, c.Size())}
		if err := mpi.Alltoall(c, sl.Counts, rl.Counts); err != nil {
			return err
		}
		recv := make([]int, rl.Counts[0]+rl.Counts[1])
		if err := mpi.Alltoallv(c, send, sl, recv, rl); err != nil {
			return err
		}
		fmt.Println("rank", c.Rank(), "has", recv)
		return nil
	})
	// Unordered output:
	// rank 0 has [1 4 5]
	// rank 1 has [2 3]
}

func ExampleReduceScatterBlock() {
	mpitest.Example(2, func(c *mpi.Comm) error {
		part := []int{0}
		if err := mpi.ReduceScatterBlock(c, []int{1, 10}, part, mpi.Sum); err != nil {
			return err
		}
		fmt.Println("rank", c.Rank(), "has", part[0])
		return nil
	})
	// Unordered output:
	// rank 0 has 2
	// rank 1 has 20
}

// Where a rank's part begins is what those before it have.
func ExampleExscan() {
	mpitest.Example(3, func(c *mpi.Comm) error {
		begin := []int{0} // rank 0's stays as it is
		if err := mpi.Exscan(c, []int{100 + c.Rank()}, begin, mpi.Sum); err != nil {
			return err
		}
		fmt.Println("rank", c.Rank(), "begins at", begin[0])
		return nil
	})
	// Unordered output:
	// rank 0 begins at 0
	// rank 1 begins at 100
	// rank 2 begins at 201
}

// A collective operation goes on while the rank computes.
func ExampleIallreduce() {
	mpitest.Example(3, func(c *mpi.Comm) error {
		sum := []int{0}
		r, err := mpi.Iallreduce(c, []int{c.Rank() + 1}, sum, mpi.Sum)
		if err != nil {
			return err
		}
		square := c.Rank() * c.Rank() // something else
		if _, err := r.Wait(); err != nil {
			return err
		}
		if c.Rank() == 2 {
			fmt.Println(sum[0], square)
		}
		return nil
	})
	// Output: 6 4
}

// What is done in every step is set up once.
func ExampleAllreduceInit() {
	mpitest.Example(2, func(c *mpi.Comm) error {
		change, most := []float64{0}, []float64{0}
		p, err := mpi.AllreduceInit(c, change, most, mpi.Max)
		if err != nil {
			return err
		}
		for step := 1; step <= 2; step++ {
			change[0] = float64(c.Rank()+1) / float64(step)
			if err := p.Start(); err != nil {
				return err
			}
			if _, err := p.Wait(); err != nil {
				return err
			}
			if c.Rank() == 0 {
				fmt.Println("step", step, "changes by", most[0])
			}
		}
		return p.Free()
	})
	// Output:
	// step 1 changes by 2
	// step 2 changes by 1
}

func ExampleIbarrier() {
	mpitest.Example(2, func(c *mpi.Comm) error {
		r, err := mpi.Ibarrier(c)
		if err != nil {
			return err
		}
		for done := false; !done; {
			if _, done, err = r.Test(); err != nil {
				return err
			}
		}
		if c.Rank() == 0 {
			fmt.Println("all are there")
		}
		return nil
	})
	// Output: all are there
}

// The product of matrices does not commute: ranks come in their order.
func ExampleNewOp() {
	type matrix struct{ A, B, C, D int64 }
	product := mpi.NewOp(func(in, inout []matrix) {
		for i, x := range in {
			y := inout[i]
			inout[i] = matrix{x.A*y.A + x.B*y.C, x.A*y.B + x.B*y.D, x.C*y.A + x.D*y.C, x.C*y.B + x.D*y.D}
		}
	}, false)
	mpitest.Example(3, func(c *mpi.Comm) error {
		m := []matrix{{1, int64(c.Rank()), 1, 1}}
		p := make([]matrix, 1)
		if err := c.ReduceBuf(mpi.BufOf(m), mpi.BufOf(p), product, 0); err != nil {
			return err
		}
		if c.Rank() == 0 {
			fmt.Println(p[0])
		}
		return nil
	})
	// Output: {2 3 4 6}
}

// The smallest value, and who has it.
func ExampleLoc() {
	mpitest.Example(3, func(c *mpi.Comm) error {
		load := []mpi.Loc[float64]{{Value: []float64{0.7, 0.2, 0.9}[c.Rank()], Index: int64(c.Rank())}}
		least := make([]mpi.Loc[float64], 1)
		if err := c.AllreduceBuf(mpi.BufOf(load), mpi.BufOf(least), mpi.MinLoc); err != nil {
			return err
		}
		if c.Rank() == 0 {
			fmt.Printf("rank %d with %.1f\n", least[0].Index, least[0].Value)
		}
		return nil
	})
	// Output: rank 1 with 0.2
}

func ExampleLocalReduce() {
	most := []int{3, 1, 4}
	if err := mpi.LocalReduce([]int{2, 7, 1}, most, mpi.Max); err != nil {
		fmt.Println(err)
	}
	fmt.Println(most)
	// Output: [3 7 4]
}
