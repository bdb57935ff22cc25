package mpi_test

import (
	"errors"
	"fmt"

	"github.com/meshmpi/meshmpi/mpi"
	"github.com/meshmpi/meshmpi/mpi/mpitest"
)

// A job starts another one and works with it.
func ExampleComm_Spawn() {
	worker := func(c *mpi.Comm) error { // the program ./worker
		parent := c.World().Parent()
		if err := mpi.Reduce(parent, []int{c.Rank() + 1}, nil, mpi.Sum, 0); err != nil {
			return err
		}
		return parent.Disconnect()
	}
	mpitest.Example(1, func(c *mpi.Comm) error {
		workers, err := c.Spawn(0, mpi.Program{N: 3, Path: "./worker"})
		if err != nil {
			return err
		}
		sum := []int{0}
		if err := mpi.Reduce(workers, nil, sum, mpi.Sum, mpi.Root); err != nil {
			return err
		}
		fmt.Println(workers.RemoteSize(), "workers, sum", sum[0])
		return workers.Disconnect()
	}, mpitest.Program("./worker", worker))
	// Output: 3 workers, sum 6
}

// Processes find each other by a name. They may be of jobs of one launcher that
// know nothing else of each other; here they are of one.
func ExampleComm_Connect() {
	mpitest.Example(2, func(c *mpi.Comm) error {
		w := c.World()
		self := w.Self()
		if c.Rank() == 0 {
			port, err := w.OpenPort()
			if err != nil {
				return err
			}
			if err := w.PublishName("greeter", port); err != nil {
				return err
			}
			if err := mpi.Barrier(c); err != nil {
				return err
			}
			x, err := self.Accept(port, 0)
			if err != nil {
				return err
			}
			if err := mpi.Send(x, []byte("hello"), 0, 0); err != nil {
				return err
			}
			return x.Disconnect()
		}
		if err := mpi.Barrier(c); err != nil { // the name is there
			return err
		}
		port, err := w.LookupName("greeter")
		if err != nil {
			return err
		}
		x, err := self.Connect(port, 0)
		if err != nil {
			return err
		}
		text := make([]byte, 5)
		if _, err := mpi.Recv(x, text, 0, 0); err != nil {
			return err
		}
		fmt.Printf("%s\n", text)
		return x.Disconnect()
	})
	// Output: hello
}

// Errors have a class to ask for, and say what they are about.
func ExampleError() {
	mpitest.Example(1, func(c *mpi.Comm) error {
		err := mpi.Send(c, []int{1}, 5, 0)
		fmt.Println(errors.Is(err, mpi.ErrRank))
		var e *mpi.Error
		if errors.As(err, &e) {
			fmt.Println(e.Op, e.Class == mpi.ErrRank)
		}
		if err := mpi.Send(c, []int{1, 2, 3}, 0, 0); err != nil {
			return err
		}
		short := make([]int, 2)
		_, err = mpi.Recv(c, short, 0, 0)
		fmt.Println(errors.Is(err, mpi.ErrTruncate), short)
		return nil
	})
	// Output:
	// true
	// Send true
	// true [1 2]
}

// A rank dies; the others leave it out and go on. (Crash stands for kill -9.)
func ExampleComm_Shrink() {
	mpitest.Example(3, func(c *mpi.Comm) error {
		if c.Rank() == 1 {
			c.World().Crash()
			return nil
		}
		err := error(nil)
		for err == nil { // compute
			err = mpi.Barrier(c)
		}
		if !errors.Is(err, mpi.ErrProcFailed) && !errors.Is(err, mpi.ErrRevoked) {
			return err
		}
		if err := c.Revoke(); err != nil { // so that nobody waits in vain
			return err
		}
		alive, err := c.Shrink()
		if err != nil {
			return err
		}
		fmt.Println("rank", c.Rank(), "is now", alive.Rank(), "of", alive.Size())
		return mpi.Barrier(alive)
	}, mpitest.FaultTolerant())
	// Unordered output:
	// rank 0 is now 0 of 2
	// rank 2 is now 1 of 2
}

// All that are alive decide the same, whoever has died.
func ExampleComm_Agree() {
	mpitest.Example(3, func(c *mpi.Comm) error {
		if c.Rank() == 2 {
			c.World().Crash()
			return nil
		}
		done := 1
		if c.Rank() == 1 { // has not done its part
			done = 0
		}
		all, err := c.Agree(done)
		if err != nil && !errors.Is(err, mpi.ErrProcFailed) { // a death not all knew of
			return err
		}
		fmt.Println("rank", c.Rank(), "all done:", all == 1)
		return nil
	}, mpitest.FaultTolerant())
	// Unordered output:
	// rank 0 all done: false
	// rank 1 all done: false
}

// Dead workers are acknowledged, so that a wildcard receive waits for the others.
func ExampleComm_AckFailed() {
	mpitest.Example(3, func(c *mpi.Comm) error {
		switch c.Rank() {
		case 1:
			c.World().Crash()
			return nil
		case 2:
			return mpi.Send(c, []int{42}, 0, 0)
		}
		for {
			v := []int{0}
			st, err := mpi.Recv(c, v, mpi.AnySource, 0)
			if errors.Is(err, mpi.ErrProcFailed) {
				if _, err := c.AckFailed(); err != nil {
					return err
				}
				continue
			}
			if err == nil {
				fmt.Println(v[0], "from rank", st.Source)
			}
			return err
		}
	}, mpitest.FaultTolerant())
	// Output: 42 from rank 2
}
