package mpitest_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/meshmpi/meshmpi/mpi"
	"github.com/meshmpi/meshmpi/mpi/mpitest"
)

// A test of a function that ranks call together.
func ExampleRun() {
	sum := func(c *mpi.Comm, v int) (int, error) {
		s := []int{v}
		err := mpi.Allreduce(c, nil, s, mpi.Sum)
		return s[0], err
	}
	_ = func(t *testing.T) { // TestSum
		for n := 1; n <= 5; n++ {
			mpitest.Run(t, n, func(c *mpi.Comm) error {
				got, err := sum(c, c.Rank())
				if want := n * (n - 1) / 2; err == nil && got != want {
					err = fmt.Errorf("%d ranks: the sum is %d, want %d", n, got, want)
				}
				return err
			})
		}
	}
}

func ExampleExample() {
	mpitest.Example(2, func(c *mpi.Comm) error {
		if c.Rank() == 1 {
			return errors.New("something is wrong")
		}
		return nil
	})
	// Output: error: rank 1: something is wrong
}

// Two sites of two ranks, 5 ms from each other: there and back takes twice that at least.
func ExampleWAN() {
	mpitest.Example(4, func(c *mpi.Comm) error {
		ball := []byte{1}
		switch c.Rank() {
		case 0:
			began := time.Now()
			if err := mpi.Send(c, ball, 2, 0); err != nil {
				return err
			}
			if _, err := mpi.Recv(c, ball, 2, 0); err != nil {
				return err
			}
			fmt.Println(time.Since(began) >= 10*time.Millisecond)
		case 2:
			if _, err := mpi.Recv(c, ball, 0, 0); err != nil {
				return err
			}
			return mpi.Send(c, ball, 0, 0)
		}
		return nil
	}, mpitest.Blocks(2), mpitest.WAN(5*time.Millisecond, 0))
	// Output: true
}

func ExamplePlace() {
	mpitest.Example(3, func(c *mpi.Comm) error {
		d, err := c.SplitBy(mpi.Host, 0)
		if err != nil {
			return err
		}
		host, site := c.Node(c.Rank())
		fmt.Printf("rank %d on %s at %s, %d ranks there\n", c.Rank(), host, site, d.Size())
		return d.Free()
	}, mpitest.Place(func(rank int) (host, site string) {
		return []string{"a1", "b1", "b1"}[rank], []string{"alpha", "beta", "beta"}[rank]
	}))
	// Unordered output:
	// rank 0 on a1 at alpha, 1 ranks there
	// rank 1 on b1 at beta, 2 ranks there
	// rank 2 on b1 at beta, 2 ranks there
}

// A rank dies in the middle.
func ExampleFaultTolerant() {
	mpitest.Example(2, func(c *mpi.Comm) error {
		if c.Rank() == 1 {
			c.World().Crash()
			return nil
		}
		_, err := mpi.Recv(c, make([]int, 1), 1, 0)
		fmt.Println(errors.Is(err, mpi.ErrProcFailed))
		return nil
	}, mpitest.FaultTolerant())
	// Output: true
}

func ExampleProgram() {
	mpitest.Example(1, func(c *mpi.Comm) error {
		x, err := c.Spawn(0, mpi.Program{N: 2, Path: "./child"})
		if err != nil {
			return err
		}
		fmt.Println("children:", x.RemoteSize())
		return x.Disconnect()
	}, mpitest.Program("./child", func(c *mpi.Comm) error { return c.World().Parent().Disconnect() }))
	// Output: children: 2
}
