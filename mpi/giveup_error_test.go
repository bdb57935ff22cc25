package mpi_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/meshmpi/meshmpi/mpi"
	"github.com/meshmpi/meshmpi/mpi/mpitest"
)

// TestTruncatedExchange: a rank that is sent more than it expects leaves nobody
// waiting for what it was to send, and the communicator is as before.
func TestTruncatedExchange(t *testing.T) {
	for _, n := range []int{2, 200_000} { // the larger ones are announced
		for round := range 3 {
			mpitest.Run(t, 5, func(c *mpi.Comm) error {
				const short = 0
				out, in := even(c.Size(), n), even(c.Size(), n)
				if c.Rank() == short {
					in.Counts[1] = n - 1
				}
				buf, got := make([]int64, n*c.Size()), make([]int64, n*c.Size())
				err := mpi.Alltoallv(c, buf, out, got, in)
				var e *mpi.Error
				switch {
				case c.Rank() == short && !errors.Is(err, mpi.ErrTruncate):
					return fmt.Errorf("the short one: %v", err)
				case c.Rank() != short && err != nil && (!errors.As(err, &e) || e.Class != mpi.ErrOther || e.Peer < 0):
					return fmt.Errorf("another: %v", err)
				}
				return first(mpi.Barrier(c), unrooted(c, 1000+round))
			})
		}
	}
}

// TestWrongAtOne: an operation whose arguments are wrong at one rank fails at all that wait
// for it, and what follows is the next operation everywhere, also while members count
// operations for a board and open one.
func TestWrongAtOne(t *testing.T) {
	mpitest.Run(t, 3, wrongAtOne)
	runCrowded(t, 3, wrongAtOne)
}

// TestWrongOnBoard: also where the others wait for it on their board.
func TestWrongOnBoard(t *testing.T) {
	runCrowded(t, 4, func(c *mpi.Comm) error {
		if err := opened(c); err != nil {
			return err
		}
		in, out := []int64{1}, make([]int64, 1)
		if c.Rank() == 0 {
			out = out[:0]
		}
		err := mpi.Allreduce(c, in, out, mpi.Sum)
		if c.Rank() == 0 && !errors.Is(err, mpi.ErrCount) || c.Rank() > 0 && !errors.Is(err, mpi.ErrOther) {
			return fmt.Errorf("rank %d: %v", c.Rank(), err)
		}
		return first(unrooted(c, 1), unrooted(c, 100))
	})
}

func wrongAtOne(c *mpi.Comm) error {
	wrong := c.Rank() == 0
	fails := func(what string, err error, class mpi.Class) error {
		var e *mpi.Error
		switch {
		case wrong && !errors.Is(err, class):
			return fmt.Errorf("%s: where it is wrong: %v, want %v", what, err, class)
		case !wrong && err != nil && (!errors.As(err, &e) || e.Class != mpi.ErrOther || e.Peer < 0):
			return fmt.Errorf("%s: at another: %v", what, err)
		}
		return nil
	}
	n := c.Size()
	for round := range 50 {
		send, got := []int64{int64(round), int64(c.Rank())}, make([]int64, 2*n)
		short := got
		if wrong {
			short = got[:1]
		}
		if err := fails("Gather", mpi.Gather(c, send, short, 0), mpi.ErrCount); err != nil {
			return err
		}
		out, in := even(n, 2), even(n, 2)
		if wrong {
			in.Counts = []int{1, 2, 2}
		}
		buf := make([]int64, 2*n)
		if err := fails("Alltoallv", mpi.Alltoallv(c, buf, out, got, in), mpi.ErrTruncate); err != nil {
			return err
		}
		send[0] += 100
		if err := mpi.Gather(c, send, got, 0); err != nil {
			return fmt.Errorf("round %d: %w", round, err)
		}
		for r := range n {
			if wrong && (got[2*r] != int64(round+100) || got[2*r+1] != int64(r)) {
				return fmt.Errorf("round %d: %v was gathered", round, got)
			}
		}
	}
	color := 0
	if wrong {
		color = -5
	}
	if _, err := c.Split(color, 0); fails("Split", err, mpi.ErrArg) != nil || err == nil {
		return fmt.Errorf("Split: %v", err)
	}
	d, err := c.Split(0, 0)
	if err != nil {
		return err
	}
	root := 0
	if wrong {
		root = 99
	}
	p, err := mpi.BcastInit(c, make([]int64, 1), root)
	if wrong != errors.Is(err, mpi.ErrRoot) {
		return fmt.Errorf("BcastInit: %v", err)
	}
	if !wrong {
		if err := p.Free(); err != nil {
			return err
		}
	}
	buf := []int64{int64(c.Rank()) + 7}
	if p, err = mpi.BcastInit(c, buf, 0); err != nil {
		return err
	}
	if err = p.Start(); err == nil {
		_, err = p.Wait()
	}
	if err != nil || buf[0] != 7 {
		return fmt.Errorf("a persistent broadcast after one that rank 0 could not set up: %v, %v", buf, err)
	}
	return first(p.Free(), unrooted(c, 1000), unrooted(d, 2000), d.Free())
}

// TestElementsDiffer: elements of other sizes than are received are an error at all ranks,
// and the communicator is as before.
func TestElementsDiffer(t *testing.T) {
	type small struct {
		A int32
		B float64
	}
	type large struct {
		A int64
		B float64
	}
	for _, n := range []int{2, 20} {
		mpitest.Run(t, n, func(c *mpi.Comm) error {
			out, in := mpi.BufOf(make([]small, n)), mpi.BufOf(make([]large, n))
			if err := c.AlltoallBuf(out, in); !errors.Is(err, mpi.ErrType) && !errors.Is(err, mpi.ErrOther) {
				return fmt.Errorf("rank %d: %v", c.Rank(), err)
			}
			return unrooted(c, 1000)
		})
	}
}

// TestPanicsOnce: an operation whose function panics at one rank ends at all, with or
// without an error, and, if it is persistent, can be done again.
func TestPanicsOnce(t *testing.T) {
	for _, n := range []int{1, 30_000} {
		mpitest.Run(t, 4, func(c *mpi.Comm) error {
			var fails bool
			sum := mpi.NewOp(func(in, inout []int64) {
				if fails {
					panic("no")
				}
				for i := range in {
					inout[i] += in[i]
				}
			}, true)
			in, out := make([]int64, n), make([]int64, n)
			for i := range in {
				in[i] = 1
			}
			p, err := mpi.AllreduceInit(c, in, out, sum)
			if err != nil {
				return err
			}
			for start := range 6 {
				fails = start%2 == 0 && c.Rank() == start%c.Size()
				if err := p.Start(); err != nil {
					return err
				}
				_, err := p.Wait()
				switch {
				case fails && !errors.Is(err, mpi.ErrOp), !fails && err != nil && (start%2 == 1 || mpi.ClassOf(err) != mpi.ErrOther):
					return fmt.Errorf("start %d: %v", start, err)
				case start%2 == 1 && out[n-1] != int64(c.Size()):
					return fmt.Errorf("start %d: the sum is %d", start, out[n-1])
				}
				if err := mpi.Barrier(c); err != nil {
					return err
				}
			}
			return p.Free()
		})
	}
}
