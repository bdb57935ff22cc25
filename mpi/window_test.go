package mpi_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"runtime"
	"testing"
	"time"

	"github.com/meshmpi/meshmpi/mpi"
	"github.com/meshmpi/meshmpi/mpi/mpitest"
)

// windows makes a window of n elements for a body.
func windows(t *testing.T, ranks, n int, body func(c *mpi.Comm, w *mpi.Win[int64]) error) {
	t.Helper()
	mpitest.Run(t, ranks, func(c *mpi.Comm) error {
		w, err := mpi.AllocateWin[int64](c, n)
		if err != nil {
			return err
		}
		return first(body(c, w), w.Free())
	})
}

// TestWinFence: everybody stores into its neighbours, and loads from them.
func TestWinFence(t *testing.T) {
	const n = 100_000 // several messages
	windows(t, 3, n+1, func(c *mpi.Comm, w *mpi.Win[int64]) error {
		next, prev := (c.Rank()+1)%3, (c.Rank()+2)%3
		got := make([]int64, n)
		err := first(w.Fence(), w.Put(given(c.Rank(), n), next, 1), w.Fence())
		return first(err, want("put", w.Memory()[1:], given(prev, n)),
			w.Get(got, next, 1), w.FenceEnd(), want("get", got, given(c.Rank(), n)))
	})
}

// TestWinAccumulate: sums of all ranks meet in the same elements, and every
// FetchAndOp sees another value.
func TestWinAccumulate(t *testing.T) {
	const n, ranks = 1000, 5
	windows(t, ranks, n+2, func(c *mpi.Comm, w *mpi.Win[int64]) error {
		if err := first(w.Fence(), w.Accumulate(given(c.Rank(), n), 2, 0, mpi.Sum), w.FenceEnd()); err != nil {
			return err
		}
		if c.Rank() == 2 {
			if err := want("sums", w.Memory()[:n], sumOf(0, ranks, n)); err != nil {
				return err
			}
		}
		const times = 50
		tickets := make([]int64, times)
		err := w.LockAll()
		for i := range tickets {
			err = first(err, w.FetchAndOp(1, &tickets[i], 0, n, mpi.Sum), w.Flush(0))
		}
		if err = first(err, w.UnlockAll()); err != nil {
			return err
		}
		all := make([]int64, times*ranks)
		if err := mpi.Allgather(c, tickets, all); err != nil {
			return err
		}
		seen := map[int64]bool{}
		for _, v := range all {
			if v < 0 || v >= times*ranks || seen[v] {
				return fmt.Errorf("ticket %d twice, or not of %d", v, times*ranks)
			}
			seen[v] = true
		}
		return nil
	})
}

// TestWinLock: an exclusive lock protects a counter that is read and written in
// two steps; compare-and-swap makes a lock by itself.
func TestWinLock(t *testing.T) {
	const ranks, times = 4, 30
	windows(t, ranks, 2, func(c *mpi.Comm, w *mpi.Win[int64]) error {
		for range times {
			v := make([]int64, 1)
			err := first(w.Lock(mpi.LockExclusive, 1), w.Get(v, 1, 0), w.Flush(1))
			v[0]++
			if err := first(err, w.Put(v, 1, 0), w.Unlock(1)); err != nil {
				return err
			}
		}
		for range times {
			for {
				old := int64(-1)
				if err := first(w.Lock(mpi.LockShared, 0), w.CompareAndSwap(0, 1, &old, 0, 0), w.Unlock(0)); err != nil {
					return err
				}
				if old == 0 {
					break
				}
			}
			v := make([]int64, 1)
			err := first(w.Lock(mpi.LockShared, 0), w.Get(v, 0, 1), w.Flush(0))
			v[0]++
			err = first(err, w.Put(v, 0, 1), w.Flush(0), w.Accumulate([]int64{0}, 0, 0, mpi.Replace), w.Unlock(0))
			if err != nil {
				return err
			}
		}
		if err := mpi.Barrier(c); err != nil {
			return err
		}
		switch c.Rank() {
		case 0:
			return want("the spin lock's counter", w.Memory(), []int64{0, ranks * times})
		case 1:
			return want("the lock's counter", w.Memory()[:1], []int64{ranks * times})
		}
		return nil
	})
}

// TestWinLockAllAmongLocks: two who lock all targets, each of which reaches its own before
// the other's, and two who lock one of these exclusively all get their turn.
func TestWinLockAllAmongLocks(t *testing.T) {
	const times = 30
	mpitest.Run(t, 4, func(c *mpi.Comm) error {
		w, err := mpi.AllocateWin[int64](c, 1)
		if err != nil {
			return err
		}
		lock, unlock := w.LockAll, w.UnlockAll
		if target := c.Rank() - 2; target >= 0 {
			lock = func() error { return w.Lock(mpi.LockExclusive, target) }
			unlock = func() error { return w.Unlock(target) }
		}
		for range times {
			if err := first(lock(), unlock()); err != nil {
				return err
			}
		}
		return w.Free()
	}, mpitest.WAN(time.Millisecond, 0), mpitest.Blocks(1))
}

// TestWinLockAllWaits: a LockAll that waits for a target keeps nobody from those of higher
// ranks, since the target's lock may be held by who needs one of them.
func TestWinLockAllWaits(t *testing.T) {
	windows(t, 3, 1, func(c *mpi.Comm, w *mpi.Win[int64]) error {
		turn := make([]int, 1)
		switch c.Rank() {
		case 0:
			if _, err := mpi.Recv(c, turn, 1, 0); err != nil {
				return err
			}
			return first(w.LockAll(), w.UnlockAll())
		case 1:
			if err := first(w.Lock(mpi.LockExclusive, 1), mpi.Send(c, turn, 0, 0)); err != nil {
				return err
			}
			for mpi.Waiting(w) == 0 {
				runtime.Gosched()
			}
			err := first(w.Lock(mpi.LockShared, 0), w.Unlock(0)) // meanwhile rank 0 has asked for what it asks for at once
			return first(err, w.Lock(mpi.LockExclusive, 2), w.Unlock(2), w.Unlock(1))
		}
		return nil
	})
}

// TestWinActive: Post, Start, Complete, Wait and Test between neighbours of a ring.
func TestWinActive(t *testing.T) {
	const ranks = 4
	windows(t, ranks, 1, func(c *mpi.Comm, w *mpi.Win[int64]) error {
		next, prev := (c.Rank()+1)%ranks, (c.Rank()+ranks-1)%ranks
		to, err := c.Group().Incl(next)
		if err != nil {
			return err
		}
		from, err := c.Group().Incl(prev)
		if err != nil {
			return err
		}
		for i := range 20 {
			err := first(w.Post(from), w.Start(to), w.Put([]int64{int64(100*c.Rank() + i)}, next, 0), w.Complete())
			if err != nil {
				return err
			}
			if i%2 == 0 {
				err = w.Wait()
			} else {
				for over := false; !over && err == nil; {
					over, err = w.Test()
				}
			}
			if err := first(err, want("what the neighbour stored", w.Memory(), []int64{int64(100*prev + i)})); err != nil {
				return err
			}
		}
		return nil
	})
}

// TestWinRequests waits for accesses one by one.
func TestWinRequests(t *testing.T) {
	windows(t, 2, 10, func(c *mpi.Comm, w *mpi.Win[int64]) error {
		peer := 1 - c.Rank()
		got := make([]int64, 10)
		err := first(w.LockAll(), done(w.Rput(given(c.Rank(), 10), peer, 0)), w.Flush(peer), done(w.Rget(got, peer, 0)))
		if err := first(err, want("rget", got, given(c.Rank(), 10))); err != nil {
			return err
		}
		err = first(done(w.Raccumulate(given(5, 10), peer, 0, mpi.Replace)), w.Flush(peer),
			done(w.RgetAccumulate(given(6, 10), got, peer, 0, mpi.Max)), want("what was there", got, given(5, 10)))
		return first(err, w.UnlockAll())
	})
}

// TestWinErrors does everything wrong.
func TestWinErrors(t *testing.T) {
	windows(t, 2, 4, func(c *mpi.Comm, w *mpi.Win[int64]) error {
		v := make([]int64, 2)
		user := mpi.NewOp(func(in, inout []int64) {}, true)
		for _, tc := range []struct {
			what string
			err  error
			want mpi.Class
		}{
			{"Put without an epoch", w.Put(v, 0, 0), mpi.ErrRMASync},
			{"Unlock without Lock", w.Unlock(0), mpi.ErrRMASync},
			{"UnlockAll without LockAll", w.UnlockAll(), mpi.ErrRMASync},
			{"Complete without Start", w.Complete(), mpi.ErrRMASync},
			{"Wait without Post", w.Wait(), mpi.ErrRMASync},
			{"Lock of nobody", w.Lock(mpi.LockShared, 2), mpi.ErrRank},
			{"Lock of no kind", w.Lock(7, 0), mpi.ErrLockType},
			{"LockAll", w.LockAll(), 0},
			{"Lock twice", w.Lock(mpi.LockShared, 0), mpi.ErrRMASync},
			{"Put beyond the end", w.Put(v, 0, 3), mpi.ErrRMARange},
			{"Put at an offset that overflows", w.Put(v, 0, math.MaxInt), mpi.ErrRMARange},
			{"Rget at one", errOf(w.Rget(v, 0, math.MaxInt-1)), mpi.ErrRMARange},
			{"an operation on pairs", w.Accumulate(v, 0, 0, mpi.MinLoc), mpi.ErrOp},
			{"one that fetches", w.FetchAndOp(1, &v[0], 0, 0, mpi.MaxLoc), mpi.ErrOp},
			{"Put before the beginning", w.Put(v, 0, -1), mpi.ErrRMARange},
			{"Put to nobody", w.Put(v, 2, 0), mpi.ErrRank},
			{"Put to ProcNull", w.Put(v, mpi.ProcNull, 0), 0},
			{"a user's operation", w.Accumulate(v, 0, 0, user), mpi.ErrOp},
			{"no operation", w.Accumulate(v, 0, 0, mpi.Op{}), mpi.ErrOp},
			{"UnlockAll", w.UnlockAll(), 0},
		} {
			if mpi.ClassOf(tc.err) != tc.want {
				return fmt.Errorf("%s: %v, want class %v", tc.what, tc.err, tc.want)
			}
		}
		return nil
	})
}

// TestWinAttributes are deleted with the window.
func TestWinAttributes(t *testing.T) {
	mpitest.Run(t, 2, func(c *mpi.Comm) error {
		var deleted []string
		k := mpi.NewKey(mpi.KeyOptions[string]{Delete: func(v string) error { deleted = append(deleted, v); return nil }})
		w, err := mpi.AllocateWin[byte](c, 1)
		if err != nil {
			return err
		}
		if err := mpi.SetWinAttr(w, k, "x"); err != nil {
			return err
		}
		if v, ok := mpi.GetWinAttr(w, k); !ok || v != "x" {
			return fmt.Errorf("the attribute is %q, %v", v, ok)
		}
		if err := first(w.Free(), want("deleted", deleted, []string{"x"})); err != nil {
			return err
		}
		if err := w.Fence(); !errors.Is(err, mpi.ErrWin) {
			return fmt.Errorf("Fence of a window that was freed: %v", err)
		}
		return nil
	})
}

// TestWinLargeGet: a target is asked for no more at a time than it may hold the answers
// of, and what is done after a large access is done after all of it.
func TestWinLargeGet(t *testing.T) {
	const n = 6 << 20
	mpitest.Run(t, 2, func(c *mpi.Comm) error {
		w, err := mpi.AllocateWin[int64](c, n*(c.Rank()))
		if err != nil {
			return err
		}
		copy(w.Memory(), given(1, n))
		if err := mpi.Barrier(c); err != nil {
			return err
		}
		if c.Rank() == 0 {
			got, last := make([]int64, n), make([]int64, 1)
			err := first(w.Lock(mpi.LockShared, 1), w.GetAccumulate(nil, got, 1, 0, mpi.NoOp),
				w.Accumulate([]int64{-1}, 1, n-1, mpi.Replace), w.Get(last, 1, n-1))
			owed, waiting := mpi.Owed(w, 1)
			if err = first(err, w.Flush(1), want("get", got, given(1, n)), want("what came after", last, []int64{-1})); err != nil {
				return err
			}
			if owed > 17<<20 {
				return fmt.Errorf("%d bytes were asked for at a time, and %d accesses waited", owed, waiting)
			}
			if owed, waiting := mpi.Owed(w, 1); owed != 0 || waiting != 0 {
				return fmt.Errorf("%d bytes are owed, and %d accesses wait, after a flush", owed, waiting)
			}
			if err := w.Unlock(1); err != nil {
				return err
			}
		}
		return w.Free()
	})
}

// TestWinSelf: a large access to a rank's own memory takes no memory of its size.
func TestWinSelf(t *testing.T) {
	const n = 4 << 20
	windows(t, 1, n, func(c *mpi.Comm, w *mpi.Win[int64]) error {
		src, old := given(3, n), make([]int64, n)
		if err := w.LockAll(); err != nil {
			return err
		}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		err := w.Put(src, 0, 0)
		runtime.ReadMemStats(&after)
		if took := after.TotalAlloc - before.TotalAlloc; took > 1<<20 {
			return fmt.Errorf("a Put of %d bytes takes %d", 8*n, took)
		}
		one := int64(0)
		err = first(err, w.GetAccumulate(src, old, 0, 0, mpi.Sum), w.CompareAndSwap(2*src[5], -1, &one, 0, 5), w.UnlockAll())
		if one != 2*src[5] || w.Memory()[5] != -1 {
			return fmt.Errorf("what was swapped for -1 is %d, and there is %d", one, w.Memory()[5])
		}
		return first(err, want("what was there", old, src), want("sum", w.Memory()[6:7], []int64{2 * src[6]}))
	})
}

// TestFreeAfterAccess: what was begun under an open Fence is done before the window goes.
func TestFreeAfterAccess(t *testing.T) {
	mpitest.Run(t, 2, func(c *mpi.Comm) error {
		w, err := mpi.AllocateWin[int64](c, 1<<20)
		if err != nil {
			return err
		}
		if err := w.Fence(); err != nil {
			return err
		}
		var r mpi.Request
		if c.Rank() == 0 {
			time.Sleep(100 * time.Millisecond)
			if r, err = w.Rget(make([]int64, 1<<20), 1, 0); err != nil {
				return err
			}
		}
		err = w.Free()
		if c.Rank() == 0 {
			ctx, cancel := context.WithTimeout(context.Background(), time.Second)
			defer cancel()
			if _, e := r.WaitContext(ctx); e != nil {
				return fmt.Errorf("Free: %v; then Wait of the Rget: %v", err, e)
			}
		}
		return err
	}, mpitest.Timeout(6*time.Second))
}

// TestFreeBadAttr: a Delete that fails at one member keeps nobody waiting.
func TestFreeBadAttr(t *testing.T) {
	mpitest.Run(t, 2, func(c *mpi.Comm) error {
		w, err := mpi.AllocateWin[int64](c, 1)
		if err != nil {
			return err
		}
		bad := errors.New("no")
		k := mpi.NewKey(mpi.KeyOptions[int]{Delete: func(int) error {
			if c.Rank() == 0 {
				return bad
			}
			return nil
		}})
		if err := mpi.SetWinAttr(w, k, 1); err != nil {
			return err
		}
		if err = w.Free(); c.Rank() > 0 {
			return err
		}
		if !errors.Is(err, bad) || !errors.Is(w.Fence(), mpi.ErrWin) {
			return fmt.Errorf("Free: %v, and then Fence: %v", err, w.Fence())
		}
		return nil
	}, mpitest.Timeout(10*time.Second))
}
