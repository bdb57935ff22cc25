package mpi_test

import (
	"fmt"

	"github.com/meshmpi/meshmpi/mpi"
	"github.com/meshmpi/meshmpi/mpi/datatype"
	"github.com/meshmpi/meshmpi/mpi/mpitest"
)

// Even and odd ranks compute by themselves.
func ExampleComm_Split() {
	mpitest.Example(4, func(c *mpi.Comm) error {
		d, err := c.Split(c.Rank()%2, 0)
		if err != nil {
			return err
		}
		sum := []int{c.Rank()}
		if err := mpi.Allreduce(d, nil, sum, mpi.Sum); err != nil {
			return err
		}
		fmt.Printf("rank %d is %d of %d, sum %d\n", c.Rank(), d.Rank(), d.Size(), sum[0])
		return d.Free()
	})
	// Unordered output:
	// rank 0 is 0 of 2, sum 2
	// rank 1 is 0 of 2, sum 4
	// rank 2 is 1 of 2, sum 2
	// rank 3 is 1 of 2, sum 4
}

// The ranks of a site, and one of each site to talk to the others. (Collective
// operations do this by themselves.)
func ExampleComm_SplitBy() {
	mpitest.Example(4, func(c *mpi.Comm) error {
		site, err := c.SplitBy(mpi.Site, 0)
		if err != nil {
			return err
		}
		color := mpi.Undefined
		if site.Rank() == 0 {
			color = 0
		}
		leaders, err := c.Split(color, 0)
		if err != nil {
			return err
		}
		if leaders != nil { // others get nil
			_, name := c.Node(c.Rank())
			fmt.Printf("rank %d leads %d ranks of %s, one of %d sites\n", c.Rank(), site.Size(), name, leaders.Size())
		}
		return nil
	}, mpitest.Blocks(2))
	// Unordered output:
	// rank 0 leads 2 ranks of s0, one of 2 sites
	// rank 2 leads 2 ranks of s1, one of 2 sites
}

// A library's messages do not meet those of the program that calls it.
func ExampleComm_Dup() {
	mpitest.Example(2, func(c *mpi.Comm) error {
		library, err := c.Dup()
		if err != nil {
			return err
		}
		if c.Rank() == 0 {
			if err := mpi.Send(c, []int{1}, 1, 0); err != nil {
				return err
			}
			return mpi.Send(library, []int{2}, 1, 0)
		}
		v := []int{0}
		if _, err := mpi.Recv(library, v, mpi.AnySource, mpi.AnyTag); err != nil {
			return err
		}
		fmt.Println("the library's:", v[0])
		_, err = mpi.Recv(c, v, mpi.AnySource, mpi.AnyTag)
		fmt.Println("the program's:", v[0])
		return err
	})
	// Output:
	// the library's: 2
	// the program's: 1
}

func ExampleComm_Create() {
	mpitest.Example(4, func(c *mpi.Comm) error {
		g, err := c.Group().Incl(3, 1)
		if err != nil {
			return err
		}
		d, err := c.Create(g)
		if err != nil || d == nil { // not in the group
			return err
		}
		fmt.Println("rank", c.Rank(), "is now", d.Rank())
		return d.Free()
	})
	// Unordered output:
	// rank 3 is now 0
	// rank 1 is now 1
}

// Two groups talk to each other: rank r of one to rank r of the other.
func ExampleComm_InterCreate() {
	mpitest.Example(4, func(c *mpi.Comm) error {
		half, err := c.Split(c.Rank()/2, 0)
		if err != nil {
			return err
		}
		leader := 2 - 2*(c.Rank()/2) // of the other half, by its rank in c
		x, err := half.InterCreate(0, c, leader, 0)
		if err != nil {
			return err
		}
		got := []int{0}
		if _, err := mpi.Sendrecv(x, []int{c.Rank()}, half.Rank(), 0, got, half.Rank(), 0); err != nil {
			return err
		}
		fmt.Println("rank", c.Rank(), "talked to", got[0])
		return x.Free()
	})
	// Unordered output:
	// rank 0 talked to 2
	// rank 1 talked to 3
	// rank 2 talked to 0
	// rank 3 talked to 1
}

// What a program keeps with a communicator goes with it to its duplicates.
func ExampleNewKey() {
	steps := mpi.NewKey(mpi.KeyOptions[int]{Copy: mpi.DupValue[int]})
	mpitest.Example(1, func(c *mpi.Comm) error {
		if err := mpi.SetAttr(c, steps, 100); err != nil {
			return err
		}
		d, err := c.Dup()
		if err != nil {
			return err
		}
		v, ok := mpi.GetAttr(d, steps)
		fmt.Println(v, ok)
		return d.Free()
	})
	// Output: 100 true
}

func ExampleInfo() {
	var i mpi.Info
	for _, kv := range [][2]string{{"wdir", "/tmp"}, {"host", "a1"}, {"wdir", "/var/tmp"}} {
		if err := i.Set(kv[0], kv[1]); err != nil {
			fmt.Println(err)
		}
	}
	dir, _ := i.Get("wdir")
	fmt.Println(i.Keys(), dir)
	// Output: [wdir host] /var/tmp
}

// A column of a matrix is a vector of its rows' elements.
func ExampleNewBuf() {
	const rows, cols = 3, 4
	mpitest.Example(2, func(c *mpi.Comm) error {
		number, err := mpi.TypeOf[float64]()
		if err != nil {
			return err
		}
		column, err := datatype.Vector(rows, 1, cols, number)
		if err != nil {
			return err
		}
		m := make([]float64, rows*cols)
		if c.Rank() == 0 {
			for i := range m {
				m[i] = float64(i)
			}
			return c.SendBuf(mpi.NewBuf(m, 1, column).At(8*2), 1, 0) // the one with index 2
		}
		if _, err := c.RecvBuf(mpi.NewBuf(m, 1, column), 0, 0); err != nil { // becomes the first
			return err
		}
		for i := range rows {
			fmt.Println(m[i*cols : (i+1)*cols])
		}
		return nil
	})
	// Output:
	// [2 0 0 0]
	// [6 0 0 0]
	// [10 0 0 0]
}

// Structs without pointers are messages as they are.
func ExampleBufOf() {
	type particle struct {
		Pos    [3]float32
		Charge int8
	}
	mpitest.Example(2, func(c *mpi.Comm) error {
		if c.Rank() == 0 {
			return c.SendBuf(mpi.BufOf([]particle{{[3]float32{1, 2, 3}, -1}}), 1, 0)
		}
		p := make([]particle, 1)
		_, err := c.RecvBuf(mpi.BufOf(p), 0, 0)
		fmt.Println(p)
		return err
	})
	// Output: [{[1 2 3] -1}]
}

// In external32 what is packed here can be read by any MPI on any machine.
func ExamplePackExternal() {
	b, err := mpi.PackExternal(nil, mpi.BufOf([]int32{1, -2}))
	fmt.Printf("% x %v\n", b, err)
	v := make([]int32, 2)
	rest, err := mpi.UnpackExternal(b, mpi.BufOf(v))
	fmt.Println(v, len(rest), err)
	// Output:
	// 00 00 00 01 ff ff ff fe <nil>
	// [1 -2] 0 <nil>
}
