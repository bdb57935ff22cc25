package mpi_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/meshmpi/meshmpi/mpi"
	"github.com/meshmpi/meshmpi/mpi/mpitest"
)

// In these examples mpitest.Example stands for what a program calls mpi.Main for, and
// says how many ranks there are; that is meshrun's -n otherwise.

func ExampleMain() {
	mpi.Main(func(c *mpi.Comm) error { // alone it is one rank
		fmt.Println("rank", c.Rank(), "of", c.Size())
		return nil
	})
	// Output: rank 0 of 1
}

func ExampleSend() {
	mpitest.Example(2, func(c *mpi.Comm) error {
		const tag = 7
		if c.Rank() == 0 {
			return mpi.Send(c, []float64{1.5, 2.5}, 1, tag)
		}
		buf := make([]float64, 10)
		st, err := mpi.Recv(c, buf, 0, tag)
		if err != nil {
			return err
		}
		fmt.Println(mpi.Count[float64](st), "numbers:", buf[:mpi.Count[float64](st)])
		return nil
	})
	// Output: 2 numbers: [1.5 2.5]
}

// Whoever sends first is served first.
func ExampleRecv_anySource() {
	mpitest.Example(3, func(c *mpi.Comm) error {
		if c.Rank() > 0 {
			return mpi.Send(c, []int{10 * c.Rank()}, 0, c.Rank())
		}
		for range c.Size() - 1 {
			v := []int{0}
			st, err := mpi.Recv(c, v, mpi.AnySource, mpi.AnyTag)
			if err != nil {
				return err
			}
			fmt.Printf("%d from rank %d with tag %d\n", v[0], st.Source, st.Tag)
		}
		return nil
	})
	// Unordered output:
	// 10 from rank 1 with tag 1
	// 20 from rank 2 with tag 2
}

// In a ring all send to the right and receive from the left, at the same time.
func ExampleSendrecv() {
	mpitest.Example(4, func(c *mpi.Comm) error {
		right, left := (c.Rank()+1)%c.Size(), (c.Rank()+c.Size()-1)%c.Size()
		got := []int{0}
		if _, err := mpi.Sendrecv(c, []int{c.Rank()}, right, 0, got, left, 0); err != nil {
			return err
		}
		fmt.Println("rank", c.Rank(), "got", got[0])
		return nil
	})
	// Unordered output:
	// rank 0 got 3
	// rank 1 got 0
	// rank 2 got 1
	// rank 3 got 2
}

// Both send before they receive: without the buffer neither might get that far.
func ExampleBsend() {
	mpitest.Example(2, func(c *mpi.Comm) error {
		big := make([]int64, 1<<16)
		w := c.World()
		if err := w.AttachBuffer(8*len(big) + mpi.BsendOverhead); err != nil {
			return err
		}
		if err := mpi.Bsend(c, big, 1-c.Rank(), 0); err != nil {
			return err
		}
		if _, err := mpi.Recv(c, big, 1-c.Rank(), 0); err != nil {
			return err
		}
		_, err := w.DetachBuffer() // waits until all is sent
		if c.Rank() == 0 {
			fmt.Println("exchanged")
		}
		return err
	})
	// Output: exchanged
}

// Begin to receive, do something else, then wait.
func ExampleIrecv() {
	mpitest.Example(3, func(c *mpi.Comm) error {
		if c.Rank() > 0 {
			return mpi.Send(c, []int{c.Rank() * c.Rank()}, 0, 0)
		}
		in := make([]int, c.Size())
		rs := make([]mpi.Request, c.Size())
		for r := 1; r < c.Size(); r++ {
			var err error
			if rs[r], err = mpi.Irecv(c, in[r:r+1], r, 0); err != nil {
				return err
			}
		}
		if err := mpi.WaitAll(rs, nil); err != nil {
			return err
		}
		fmt.Println(in)
		return nil
	})
	// Output: [0 1 4]
}

// Take results in the order in which they come.
func ExampleWaitAny() {
	mpitest.Example(3, func(c *mpi.Comm) error {
		if c.Rank() > 0 {
			return mpi.Send(c, []int{c.Rank()}, 0, 0)
		}
		in := make([]int, c.Size()-1)
		rs := make([]mpi.Request, len(in))
		for i := range rs {
			var err error
			if rs[i], err = mpi.Irecv(c, in[i:i+1], i+1, 0); err != nil {
				return err
			}
		}
		for range rs {
			i, _, err := mpi.WaitAny(rs)
			if err != nil {
				return err
			}
			fmt.Println("result", in[i])
		}
		return nil
	})
	// Unordered output:
	// result 1
	// result 2
}

// A request's end is an event like any other of a Go program.
func ExampleRequest_Done() {
	mpitest.Example(2, func(c *mpi.Comm) error {
		if c.Rank() == 1 {
			return mpi.Send(c, []int{42}, 0, 0)
		}
		v := []int{0}
		r, err := mpi.Irecv(c, v, 1, 0)
		if err != nil {
			return err
		}
		select {
		case <-r.Done():
		case <-time.After(time.Minute):
			return errors.New("nobody sends")
		}
		if _, err := r.Wait(); err != nil {
			return err
		}
		fmt.Println(v[0])
		return nil
	})
	// Output: 42
}

func ExampleRequest_Cancel() {
	mpitest.Example(1, func(c *mpi.Comm) error {
		r, err := mpi.Irecv(c, make([]int, 1), mpi.AnySource, 0)
		if err != nil {
			return err
		}
		if err := r.Cancel(); err != nil {
			return err
		}
		st, err := r.Wait()
		fmt.Println("cancelled:", st.Cancelled)
		return err
	})
	// Output: cancelled: true
}

// The same message over and over: it is set up once.
func ExampleSendInit() {
	mpitest.Example(2, func(c *mpi.Comm) error {
		v := []int{0}
		var p *mpi.Persistent
		var err error
		if c.Rank() == 0 {
			p, err = mpi.SendInit(c, v, 1, 0)
		} else {
			p, err = mpi.RecvInit(c, v, 0, 0)
		}
		if err != nil {
			return err
		}
		for step := range 3 {
			if c.Rank() == 0 {
				v[0] = step * step
			}
			if err := p.Start(); err != nil {
				return err
			}
			if _, err := p.Wait(); err != nil {
				return err
			}
			if c.Rank() == 1 {
				fmt.Println("step", step, "got", v[0])
			}
		}
		return p.Free()
	})
	// Output:
	// step 0 got 0
	// step 1 got 1
	// step 2 got 4
}

// How long a message is is known before it is received.
func ExampleComm_Probe() {
	mpitest.Example(2, func(c *mpi.Comm) error {
		if c.Rank() == 0 {
			return mpi.Send(c, []byte("as long as it is"), 1, 0)
		}
		st, err := c.Probe(0, mpi.AnyTag)
		if err != nil {
			return err
		}
		text := make([]byte, st.Bytes)
		if _, err := mpi.Recv(c, text, st.Source, st.Tag); err != nil {
			return err
		}
		fmt.Printf("%q\n", text)
		return nil
	})
	// Output: "as long as it is"
}

// Where several goroutines receive, Mprobe makes sure that each gets the message
// that it has looked at.
func ExampleComm_Mprobe() {
	mpitest.Example(2, func(c *mpi.Comm) error {
		if c.Rank() == 0 {
			return errors.Join(mpi.Send(c, []byte("one"), 1, 0), mpi.Send(c, []byte("three"), 1, 0))
		}
		errs := make(chan error, 2) // as many as goroutines
		for range 2 {
			go func() {
				m, err := c.Mprobe(mpi.AnySource, mpi.AnyTag)
				if err != nil {
					errs <- err
					return
				}
				text := make([]byte, m.Status().Bytes)
				_, err = mpi.Mrecv(&m, text)
				fmt.Printf("%s\n", text)
				errs <- err
			}()
		}
		return errors.Join(<-errs, <-errs)
	})
	// Unordered output:
	// one
	// three
}

// A receive may be given up. Nothing is lost by that.
func ExampleComm_WithContext() {
	mpitest.Example(1, func(c *mpi.Comm) error {
		ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
		defer cancel()
		_, err := mpi.Recv(c.WithContext(ctx), make([]int, 1), mpi.AnySource, 0)
		fmt.Println(errors.Is(err, context.DeadlineExceeded), c.Revoked())
		return nil
	})
	// Output: true false
}
