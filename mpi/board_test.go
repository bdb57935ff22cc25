package mpi_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/meshmpi/meshmpi/mpi"
	"github.com/meshmpi/meshmpi/mpi/mpitest"
)

// runCrowded runs ranks that crowd their host.
func runCrowded(t *testing.T, n int, body func(c *mpi.Comm) error, opts ...mpitest.Option) {
	t.Helper()
	mpitest.Run(t, n, body, append(opts, mpitest.With(mpi.Crowded()))...)
}

// opened makes the members open a board.
func opened(c *mpi.Comm) error {
	for range 8 {
		if err := mpi.Barrier(c); err != nil {
			return err
		}
	}
	if !mpi.HasBoard(c) {
		return fmt.Errorf("%d crowded ranks have no board", c.Size())
	}
	return nil
}

// concat does not commute: it appends decimal digits.
func concat(in, inout []int64) {
	for i := range inout {
		shift := int64(1)
		for ; shift <= inout[i]; shift *= 10 {
		}
		inout[i] += in[i] * shift
	}
}

// TestBoard does operations by a board and by messages in turn, also others at the same
// time: all have the results that they have by messages.
func TestBoard(t *testing.T) {
	const n = 5
	digits := mpi.NewOp(concat, false)
	runCrowded(t, n, func(c *mpi.Comm) error {
		if err := opened(c); err != nil {
			return err
		}
		for i := range 60 {
			me := int64(c.Rank() + 1)
			var late mpi.Request
			if i%3 == 0 {
				q, err := mpi.Iallreduce(c, []int64{me}, make([]int64, 1), mpi.Sum)
				if err != nil {
					return err
				}
				late = q
			}
			if (i+c.Rank())%5 == 0 {
				time.Sleep(time.Duration(c.Rank()) * 100 * time.Microsecond)
			}
			if err := boardRound(c, digits, i); err != nil {
				return fmt.Errorf("round %d: %w", i, err)
			}
			if i%3 == 0 {
				if _, err := late.Wait(); err != nil {
					return err
				}
			}
		}
		return nil
	})
}

// boardRound does each operation that goes by a board, of few bytes and of many.
func boardRound(c *mpi.Comm, digits mpi.Op, i int) error {
	n, me := c.Size(), c.Rank()
	v := c
	if i%4 == 1 && me%2 == 0 { // the same by another view of it
		v = c.WithContext(context.Background())
	}
	if err := mpi.Barrier(v); err != nil {
		return err
	}
	for _, count := range []int{1, 3, 200} {
		in, out, all := make([]int64, count), make([]int64, count), make([]int64, n*count)
		for k := range in {
			in[k] = int64(me%9 + 1)
		}
		var want, upTo, before int64
		for r := range min(n, 18) {
			w := int64(r%9 + 1)
			if r < me {
				before = before*10 + w
			}
			if r <= me {
				upTo = upTo*10 + w
			}
			want = want*10 + w
		}
		if err := mpi.Allreduce(v, in, out, digits); err != nil || out[count-1] != want {
			return fmt.Errorf("allreduce of %d: %d, %w, want %d", count, out[count-1], err, want)
		}
		if err := mpi.Scan(v, in, out, digits); err != nil || out[count-1] != upTo {
			return fmt.Errorf("scan of %d: %d, %w, want %d", count, out[count-1], err, upTo)
		}
		if err := mpi.Exscan(v, in, out, digits); err != nil || me > 0 && out[count-1] != before {
			return fmt.Errorf("exscan of %d: %d, %w, want %d", count, out[count-1], err, before)
		}
		if err := mpi.Allgather(v, in, all); err != nil {
			return err
		}
		for r := range n {
			if all[r*count] != int64(r%9+1) || all[(r+1)*count-1] != int64(r%9+1) {
				return fmt.Errorf("allgather of %d: %v", count, all)
			}
		}
		for k := range all {
			all[k] = int64(100*me + k/count)
		}
		if err := mpi.Alltoall(v, nil, all); err != nil {
			return err
		}
		for r := range n {
			if all[r*count] != int64(100*r+me) || all[(r+1)*count-1] != int64(100*r+me) {
				return fmt.Errorf("alltoall of %d: %v", count, all)
			}
		}
	}
	return nil
}

// TestBoardGivesUp: an operation that fails at one rank fails at all who have not ended
// it, and the next one is as it should be.
func TestBoardGivesUp(t *testing.T) {
	const n = 5
	runCrowded(t, n, func(c *mpi.Comm) error {
		if err := opened(c); err != nil {
			return err
		}
		for i := range 40 {
			bad := mpi.NewOp(func(in, inout []int32) {
				if c.Rank() == i%n {
					panic("no")
				}
			}, true)
			err := mpi.Allreduce(c, []int32{1}, make([]int32, 1), bad)
			if c.Rank() == i%n && err == nil {
				return errors.New("an operation that panics succeeds")
			}
			sum := make([]int32, 1)
			if err := mpi.Allreduce(c, []int32{1}, sum, mpi.Sum); err != nil || sum[0] != int32(n) {
				return fmt.Errorf("after operation %d: %d, %w", i, sum[0], err)
			}
		}
		return nil
	})
}

// TestBoardLengths: who gives more or less than the others, so that it does not go by the
// board while they do, or the other way round, is told, as are they; nobody waits for
// ever, and the communicator is as good as before.
func TestBoardLengths(t *testing.T) {
	const n = 5
	for _, odd := range []int{0, 1, n - 1} {
		for _, counts := range [][2]int{{1, 2}, {1, 100}, {100, 1}, {1, 10_000}, {10_000, 1}} {
			for name, do := range map[string]func(c *mpi.Comm, in, out []int64) error{
				"allreduce": func(c *mpi.Comm, in, out []int64) error { return mpi.Allreduce(c, in, out, mpi.Sum) },
				"scan":      func(c *mpi.Comm, in, out []int64) error { return mpi.Scan(c, in, out, mpi.Sum) },
			} {
				t.Run(fmt.Sprintf("%s of %d at %d, of %d elsewhere", name, counts[1], odd, counts[0]), func(t *testing.T) {
					runCrowded(t, n, func(c *mpi.Comm) error {
						if err := opened(c); err != nil {
							return err
						}
						count := counts[0]
						if c.Rank() == odd {
							count = counts[1]
						}
						err := do(c, make([]int64, count), make([]int64, count))
						if name == "allreduce" && err == nil {
							return errors.New("it succeeds")
						}
						for range 2 { // some may not have known
							err = mpi.Barrier(c)
						}
						if err != nil {
							return fmt.Errorf("after it: %w", err)
						}
						return nil
					}, mpitest.Timeout(20*time.Second))
				})
			}
		}
	}
}

// TestBoardDeath has a rank die at any time: nobody waits for ever, and a board is of no
// use any more to who is left.
func TestBoardDeath(t *testing.T) {
	const n = 5
	for victim := range n {
		for k := range 6 {
			runCrowded(t, n, func(c *mpi.Comm) error {
				if c.Rank() == victim {
					defer time.AfterFunc(time.Duration(k*k*150)*time.Microsecond, c.World().Crash).Stop()
				}
				for {
					err := mpi.Allreduce(c, []int64{1}, make([]int64, 1), mpi.Sum)
					switch {
					case c.World().Crashed():
						return nil
					case errors.Is(err, mpi.ErrProcFailed), errors.Is(err, mpi.ErrRevoked):
						if err := c.Revoke(); err != nil { // who has ended the last one begins another
							return err
						}
						d, err := c.Shrink()
						if err != nil {
							return err
						}
						sum := make([]int64, 1)
						for range 10 {
							if err := mpi.Allreduce(d, []int64{1}, sum, mpi.Sum); err != nil || sum[0] != int64(n-1) {
								return fmt.Errorf("of those that are left: %d, %w", sum[0], err)
							}
						}
						return nil
					case err != nil:
						return err
					}
				}
			}, mpitest.FaultTolerant())
		}
	}
}

// TestBoardContext: an operation that does not end in time revokes the communicator, as
// one by messages does.
func TestBoardContext(t *testing.T) {
	const n = 5
	runCrowded(t, n, func(c *mpi.Comm) error {
		d, err := c.Dup()
		if err != nil {
			return err
		}
		if err := opened(d); err != nil {
			return err
		}
		if c.Rank() == 0 {
			_, err := mpi.Recv(c, make([]int, 1), 1, 0) // and does not come
			return err
		}
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
		defer cancel()
		if err := mpi.Barrier(d.WithContext(ctx)); !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, mpi.ErrRevoked) {
			return fmt.Errorf("a barrier without rank 0: %v", err)
		}
		if err := mpi.Barrier(d); !errors.Is(err, mpi.ErrRevoked) {
			return fmt.Errorf("a barrier after that: %v", err)
		}
		if c.Rank() == 1 {
			return mpi.Send(c, []int{1}, 0, 0)
		}
		return nil
	})
}

// TestManyBoards: more communicators than there are places for boards, one after the
// other and at one time.
func TestManyBoards(t *testing.T) {
	const n = 5
	runCrowded(t, n, func(c *mpi.Comm) error {
		const most = 31
		var kept []*mpi.Comm
		for i := range most + 9 {
			d, err := c.Dup()
			if err != nil {
				return err
			}
			for range 10 {
				sum := make([]int64, 1)
				if err := mpi.Allreduce(d, []int64{1}, sum, mpi.Sum); err != nil || sum[0] != int64(n) {
					return fmt.Errorf("communicator %d: %d, %w", i, sum[0], err)
				}
			}
			if has := mpi.HasBoard(d); has != (i < most) {
				return fmt.Errorf("communicator %d: it has a board: %v", i, has)
			}
			if i%2 == 0 {
				if err := d.Free(); err != nil {
					return err
				}
				continue
			}
			kept = append(kept, d)
		}
		for _, d := range kept {
			if err := mpi.Barrier(d); err != nil {
				return err
			}
		}
		return nil
	})
}
