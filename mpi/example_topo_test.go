package mpi_test

import (
	"fmt"

	"github.com/meshmpi/meshmpi/mpi"
	"github.com/meshmpi/meshmpi/mpi/mpitest"
)

// A grid of ranks that is closed to a ring in its second dimension.
func ExampleComm_CartCreate() {
	mpitest.Example(6, func(c *mpi.Comm) error {
		dims := make([]int, 2)
		if err := mpi.DimsCreate(c.Size(), dims); err != nil {
			return err
		}
		g, err := c.CartCreate(dims, []bool{false, true}, false)
		if err != nil {
			return err
		}
		at, err := g.CartCoords(g.Rank())
		if err != nil {
			return err
		}
		left, right, err := g.CartShift(1, 1)
		if err != nil {
			return err
		}
		if g.Rank() == 2 {
			fmt.Println(dims, at, left, right)
		}
		return g.Free()
	})
	// Output: [3 2] [1 0] 3 3
}

// Each rank tells its neighbours in a row what it has at its border. Beyond the ends
// of the row there is nobody, and nothing is changed.
func ExampleNeighborAllgather() {
	mpitest.Example(3, func(c *mpi.Comm) error {
		row, err := c.CartCreate([]int{3}, []bool{false}, false)
		if err != nil {
			return err
		}
		around := []int{-1, -1}
		if err := mpi.NeighborAllgather(row, []int{10 * row.Rank()}, around); err != nil {
			return err
		}
		fmt.Println("rank", row.Rank(), "is between", around)
		return row.Free()
	})
	// Unordered output:
	// rank 0 is between [-1 10]
	// rank 1 is between [0 20]
	// rank 2 is between [10 -1]
}

// Any graph, of which each rank knows its own edges: here a tree, upwards.
func ExampleComm_DistGraphCreateAdjacent() {
	mpitest.Example(3, func(c *mpi.Comm) error {
		sources, dests := [][]int{{1, 2}, nil, nil}[c.Rank()], [][]int{nil, {0}, {0}}[c.Rank()]
		g, err := c.DistGraphCreateAdjacent(sources, nil, dests, nil, false)
		if err != nil {
			return err
		}
		got := make([]int, len(sources))
		if err := mpi.NeighborAllgather(g, []int{c.Rank() + 100}, got); err != nil {
			return err
		}
		if c.Rank() == 0 {
			fmt.Println(got)
		}
		return g.Free()
	})
	// Output: [101 102]
}

// Between two fences every rank stores in the next one's memory.
func ExampleWin_Put() {
	mpitest.Example(3, func(c *mpi.Comm) error {
		w, err := mpi.AllocateWin[int](c, 1)
		if err != nil {
			return err
		}
		if err := w.Fence(); err != nil {
			return err
		}
		if err := w.Put([]int{c.Rank()}, (c.Rank()+1)%c.Size(), 0); err != nil {
			return err
		}
		if err := w.FenceEnd(); err != nil {
			return err
		}
		fmt.Println("rank", c.Rank(), "has", w.Memory())
		return w.Free()
	})
	// Unordered output:
	// rank 0 has [2]
	// rank 1 has [0]
	// rank 2 has [1]
}

// A counter at rank 0 that gives each task once, without rank 0's doing.
func ExampleWin_FetchAndOp() {
	mpitest.Example(3, func(c *mpi.Comm) error {
		w, err := mpi.AllocateWin[int64](c, 1)
		if err != nil {
			return err
		}
		if err := w.LockAll(); err != nil {
			return err
		}
		for {
			var task int64
			if err := w.FetchAndOp(1, &task, 0, 0, mpi.Sum); err != nil {
				return err
			}
			if err := w.Flush(0); err != nil { // now task is there
				return err
			}
			if task >= 5 {
				break
			}
			fmt.Println("task", task)
		}
		if err := w.UnlockAll(); err != nil {
			return err
		}
		return w.Free()
	})
	// Unordered output:
	// task 0
	// task 1
	// task 2
	// task 3
	// task 4
}

// Only those who take part in an access wait for each other.
func ExampleWin_Post() {
	mpitest.Example(2, func(c *mpi.Comm) error {
		w, err := mpi.AllocateWin[float64](c, 2)
		if err != nil {
			return err
		}
		other, err := c.Group().Incl(1 - c.Rank())
		if err != nil {
			return err
		}
		if c.Rank() == 0 {
			if err := w.Post(other); err != nil {
				return err
			}
			if err := w.Wait(); err != nil {
				return err
			}
			fmt.Println(w.Memory())
			return w.Free()
		}
		if err := w.Start(other); err != nil {
			return err
		}
		if err := w.Put([]float64{0.5, 1.5}, 0, 0); err != nil {
			return err
		}
		if err := w.Complete(); err != nil {
			return err
		}
		return w.Free()
	})
	// Output: [0.5 1.5]
}

// One rank at a time, whoever comes first.
func ExampleWin_Lock() {
	mpitest.Example(3, func(c *mpi.Comm) error {
		w, err := mpi.NewWin(c, make([]int, 1))
		if err != nil {
			return err
		}
		v := []int{0}
		if err := w.Lock(mpi.LockExclusive, 0); err != nil {
			return err
		}
		if err := w.Get(v, 0, 0); err != nil {
			return err
		}
		if err := w.Flush(0); err != nil {
			return err
		}
		v[0] = 2*v[0] + 1
		if err := w.Put(v, 0, 0); err != nil {
			return err
		}
		if err := w.Unlock(0); err != nil {
			return err
		}
		if err := mpi.Barrier(c); err != nil {
			return err
		}
		if c.Rank() == 0 {
			fmt.Println(w.Memory())
		}
		return w.Free()
	})
	// Output: [7]
}
