package mpi_test

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/meshmpi/meshmpi/mpi"
	"github.com/meshmpi/meshmpi/mpi/mpitest"
)

// styles are the ways to begin and end epochs to all ranks. begin and end are
// called by all; at is called around every access.
var styles = map[string]struct {
	begin, end func(w *mpi.Win[int64]) error
	at         func(w *mpi.Win[int64], target int, access func() error) error
}{
	"fence": {begin: (*mpi.Win[int64]).Fence, end: (*mpi.Win[int64]).FenceEnd},
	"active": {
		begin: func(w *mpi.Win[int64]) error { return first(w.Post(w.Group()), w.Start(w.Group())) },
		end:   func(w *mpi.Win[int64]) error { return first(w.Complete(), w.Wait()) },
	},
	"lock all": {begin: (*mpi.Win[int64]).LockAll, end: (*mpi.Win[int64]).UnlockAll},
	"flush": {
		begin: (*mpi.Win[int64]).LockAll, end: (*mpi.Win[int64]).UnlockAll,
		at: func(w *mpi.Win[int64], target int, access func() error) error {
			return first(access(), w.FlushLocal(target), w.Flush(target))
		},
	},
	"shared": {at: func(w *mpi.Win[int64], target int, access func() error) error {
		return first(w.Lock(mpi.LockShared, target), access(), w.Unlock(target))
	}},
	"exclusive": {at: func(w *mpi.Win[int64], target int, access func() error) error {
		return first(w.Lock(mpi.LockExclusive, target), access(), w.Unlock(target))
	}},
}

// commuting are operations whose order does not matter, and what they do.
var commuting = []struct {
	op mpi.Op
	f  func(a, b int64) int64
}{
	{mpi.Sum, func(a, b int64) int64 { return a + b }}, {mpi.Prod, func(a, b int64) int64 { return a * b }},
	{mpi.Max, func(a, b int64) int64 { return max(a, b) }}, {mpi.Min, func(a, b int64) int64 { return min(a, b) }},
	{mpi.BXor, func(a, b int64) int64 { return a ^ b }}, {mpi.BOr, func(a, b int64) int64 { return a | b }},
	{mpi.BAnd, func(a, b int64) int64 { return a & b }},
}

// access is one of a random program.
type access struct {
	put                bool
	target, offset, op int
	v                  []int64
}

// accesses are what a rank does in a round: either stores to elements that are its
// own in all windows, or accumulates by one operation.
func accesses(seed uint64, round, rank, ranks, size int) []access {
	all := rand.New(rand.NewPCG(seed, uint64(round))) // the same at all ranks
	put, op := all.IntN(2) == 0, all.IntN(len(commuting))
	r := rand.New(rand.NewPCG(seed, uint64(1000*round+rank)))
	out := make([]access, 6)
	for i := range out {
		a := access{put: put, target: r.IntN(ranks), op: op}
		if put {
			part := size / ranks
			a.offset = rank*part + r.IntN(part)
			a.v = make([]int64, 1+r.IntN((rank+1)*part-a.offset))
		} else {
			a.offset = r.IntN(size)
			a.v = make([]int64, 1+r.IntN(size-a.offset))
		}
		for k := range a.v {
			a.v[k] = r.Int64()
		}
		out[i] = a
	}
	return out
}

// apply does an access to the model's windows.
func (a *access) apply(mem [][]int64) {
	for k, v := range a.v {
		at := &mem[a.target][a.offset+k]
		if a.put {
			*at = v
		} else {
			*at = commuting[a.op].f(v, *at)
		}
	}
}

// TestWinPrograms runs random programs of stores and accumulates under every kind
// of synchronization, against a model.
func TestWinPrograms(t *testing.T) {
	const ranks, size, rounds = 4, 48, 6
	for name, s := range styles {
		for place, opt := range map[string]mpitest.Option{"one host": mpitest.With(), "network": mpitest.WAN(0, 0)} {
			t.Run(name+"/"+place, func(t *testing.T) {
				for seed := range uint64(4) {
					mpitest.Run(t, ranks, func(c *mpi.Comm) error {
						w, err := mpi.AllocateWin[int64](c, size)
						if err != nil {
							return err
						}
						mem := make([][]int64, ranks)
						for r := range mem {
							mem[r] = make([]int64, size)
						}
						for round := range rounds {
							if s.begin != nil {
								err = first(err, s.begin(w))
							}
							for _, a := range accesses(seed, round, c.Rank(), ranks, size) {
								do := func() error {
									if a.put {
										return w.Put(a.v, a.target, a.offset)
									}
									return w.Accumulate(a.v, a.target, a.offset, commuting[a.op].op)
								}
								if s.at != nil {
									err = first(err, s.at(w, a.target, do))
								} else {
									err = first(err, do())
								}
							}
							if s.end != nil {
								err = first(err, s.end(w))
							}
							if err = first(err, mpi.Barrier(c)); err != nil {
								return err
							}
							for r := range ranks {
								for _, a := range accesses(seed, round, r, ranks, size) {
									a.apply(mem)
								}
							}
							if err := look(c, w, mem); err != nil {
								return fmt.Errorf("seed %d, round %d: %w", seed, round, err)
							}
						}
						return w.Free()
					}, opt)
				}
			})
		}
	}
}

// look compares all windows with the model: the own one directly, the others by
// Get and by atomic loads.
func look(c *mpi.Comm, w *mpi.Win[int64], mem [][]int64) error {
	err := want("own memory", w.Memory(), mem[c.Rank()])
	for r := range mem {
		got, atomic := make([]int64, len(mem[r])), make([]int64, len(mem[r]))
		err = first(err, w.Lock(mpi.LockShared, r), w.Get(got, r, 0), w.GetAccumulate(nil, atomic, r, 0, mpi.NoOp), w.Unlock(r),
			want(fmt.Sprint("memory of rank ", r), got, mem[r]), want(fmt.Sprint("atomically, of rank ", r), atomic, mem[r]))
	}
	return first(err, mpi.Barrier(c))
}

// TestWinTypes fetches and accumulates in elements of many types.
func TestWinTypes(t *testing.T) {
	mpitest.Run(t, 3, func(c *mpi.Comm) error {
		return first(counts[int8](c), counts[uint16](c), counts[int32](c), counts[uint64](c), counts[int](c), counts[float32](c), counts[float64](c), counts[complex64](c))
	})
}

// counts has all ranks add 1 to an element at rank 1 ten times.
func counts[T int8 | uint16 | int32 | uint64 | int | float32 | float64 | complex64](c *mpi.Comm) error {
	w, err := mpi.NewWin(c, make([]T, 2+c.Rank()))
	if err != nil {
		return err
	}
	if w.Len(2) != 4 || len(w.Memory()) != 2+c.Rank() {
		return fmt.Errorf("lengths %d and %d", w.Len(2), len(w.Memory()))
	}
	seen := make([]T, 10)
	err = w.LockAll()
	for i := range seen {
		err = first(err, w.FetchAndOp(1, &seen[i], 1, 2, mpi.Sum), w.FlushAll())
	}
	if err = first(err, w.UnlockAll(), mpi.Barrier(c)); err != nil {
		return err
	}
	if c.Rank() == 1 {
		err = want("count", w.Memory(), []T{0, 0, 30})
	}
	for i := 1; i < len(seen); i++ {
		if seen[i] == seen[i-1] {
			err = first(err, fmt.Errorf("the same ticket twice: %v", seen))
		}
	}
	return first(err, w.Free())
}

// TestWinGoroutines: several goroutines of each rank use one window at once, in
// one LockAll epoch.
func TestWinGoroutines(t *testing.T) {
	const ranks, workers, times = 3, 4, 20
	windows(t, ranks, workers+1, func(c *mpi.Comm, w *mpi.Win[int64]) error {
		if err := w.LockAll(); err != nil {
			return err
		}
		errs := make([]error, workers)
		var all sync.WaitGroup
		for i := range workers {
			all.Go(func() {
				for k := range times {
					var old int64
					errs[i] = first(errs[i], w.FetchAndOp(1, &old, k%ranks, workers, mpi.Sum), w.Accumulate([]int64{1}, (k+i)%ranks, i, mpi.Sum), w.Flush(k%ranks))
				}
			})
		}
		all.Wait()
		if err := first(append(errs, w.UnlockAll(), mpi.Barrier(c))...); err != nil {
			return err
		}
		sum := make([]int64, workers+1)
		expect := []int64{ranks * times, ranks * times, ranks * times, ranks * times, ranks * workers * times}
		return first(mpi.Allreduce(c, w.Memory(), sum, mpi.Sum), want("counted", sum, expect))
	})
}

// TestWinFlushAll: FlushAll waits for its caller's accesses whatever other goroutines
// flush at the same time.
func TestWinFlushAll(t *testing.T) {
	const workers, times = 2, 50
	mpitest.Run(t, 2, func(c *mpi.Comm) error {
		w, err := mpi.AllocateWin[int64](c, 1)
		if err != nil {
			return err
		}
		w.Memory()[0] = 7
		if err := first(mpi.Barrier(c), w.LockAll()); err != nil {
			return err
		}
		if c.Rank() == 0 {
			errs := make([]error, workers)
			var all sync.WaitGroup
			for i := range workers {
				all.Go(func() {
					rest := func() { time.Sleep(time.Duration(rand.IntN(1000)) * time.Microsecond) } // the other's flush begins or ends
					for range times {
						got := make([]int64, 1)
						rest()
						err := w.Get(got, 1, 0)
						rest()
						errs[i] = first(errs[i], err, w.FlushAll(), want("got", got, []int64{7}))
					}
				})
			}
			all.Wait()
			if err := first(errs...); err != nil {
				return err
			}
		}
		return first(w.UnlockAll(), mpi.Barrier(c), w.Free())
	}, mpitest.WAN(time.Millisecond, 0), mpitest.Blocks(1))
}

// TestWinLockAtOnce: of goroutines that lock one target at once, one has it, and gives it
// back.
func TestWinLockAtOnce(t *testing.T) {
	mpitest.Run(t, 2, func(c *mpi.Comm) error {
		w, err := mpi.AllocateWin[int64](c, 1)
		if err != nil || c.Rank() > 0 {
			return first(err, mpi.Barrier(c))
		}
		for _, lock := range []func() error{func() error { return w.Lock(mpi.LockShared, 1) }, w.LockAll} {
			errs := make([]error, 4)
			var all sync.WaitGroup
			for i := range errs {
				all.Go(func() { errs[i] = lock() })
			}
			all.Wait()
			n := 0
			for _, err := range errs {
				switch {
				case err == nil:
					n++
				case mpi.ClassOf(err) != mpi.ErrRMASync:
					return err
				}
			}
			if n != 1 {
				return fmt.Errorf("%d of them have the lock", n)
			}
			if w.Unlock(1) != nil {
				if err := w.UnlockAll(); err != nil {
					return err
				}
			}
			if err := first(w.Lock(mpi.LockExclusive, 1), w.Unlock(1)); err != nil {
				return err
			}
		}
		return mpi.Barrier(c)
	}, mpitest.WAN(time.Millisecond, 0), mpitest.Blocks(1))
}

// TestWinMisuse: what the order of calls forbids is refused, and a Fence that
// began no epoch forbids nothing.
func TestWinMisuse(t *testing.T) {
	windows(t, 2, 4, func(c *mpi.Comm, w *mpi.Win[int64]) error {
		v := make([]int64, 1)
		peer, err := c.Group().Incl(1 - c.Rank())
		if err := first(err, w.Fence(), w.Lock(mpi.LockShared, 0), w.Put(v, 0, 0), w.Unlock(0)); err != nil {
			return fmt.Errorf("lock after a fence: %w", err)
		}
		type try struct {
			what string
			err  error
			want mpi.Class
		}
		check := func(tries ...try) error {
			for _, tc := range tries {
				if mpi.ClassOf(tc.err) != tc.want {
					return fmt.Errorf("%s: %v, want class %v", tc.what, tc.err, tc.want)
				}
			}
			return nil
		}
		if err := check(try{"put after the lock's end", w.Put(v, 0, 0), mpi.ErrRMASync}); err != nil {
			return err
		}
		if err := first(w.Fence(), w.Put(v, 0, 0)); err != nil {
			return err
		}
		err = check(try{"lock in a fence's epoch", w.Lock(mpi.LockShared, 0), mpi.ErrRMASync}, try{"lock of all there", w.LockAll(), mpi.ErrRMASync})
		if err := first(err, w.FenceEnd(), w.Post(peer), w.Start(peer)); err != nil {
			return err
		}
		err = check(try{"post twice", w.Post(peer), mpi.ErrRMASync}, try{"start twice", w.Start(peer), mpi.ErrRMASync},
			try{"put to who has not posted", w.Put(v, c.Rank(), 0), mpi.ErrRMASync}, try{"a put that may be", w.Put(v, 1-c.Rank(), 0), 0},
			try{"free with an epoch open", w.Free(), mpi.ErrRMASync})
		if err := first(err, w.Complete(), w.Wait()); err != nil {
			return err
		}
		return check(try{"flush without an epoch", w.Flush(0), mpi.ErrRMASync}, try{"flush of all without one", w.FlushAll(), mpi.ErrRMASync},
			try{"a group that is nil", w.Post(nil), mpi.ErrGroup}, try{"Start of nil", w.Start(nil), mpi.ErrGroup},
			try{"results too few", first(w.LockAll(), w.GetAccumulate(make([]int64, 2), v, 0, 0, mpi.Sum)), mpi.ErrCount},
			try{"free with a lock", w.Free(), mpi.ErrRMASync}, try{"unlock", w.UnlockAll(), 0},
			try{"a window of elements that are different", kinds(c), mpi.ErrType})
	})
}

// kinds makes a window whose parts have elements of two types.
func kinds(c *mpi.Comm) error {
	if c.Rank() == 0 {
		_, err := mpi.AllocateWin[int8](c, 1)
		return err
	}
	_, err := mpi.AllocateWin[int16](c, 1)
	return err
}

// TestWinReaders: who reads under a shared lock never sees half of what is written
// under an exclusive one.
func TestWinReaders(t *testing.T) {
	const ranks, times = 4, 60
	windows(t, ranks, 2, func(c *mpi.Comm, w *mpi.Win[int64]) error {
		for i := range times {
			v, both := []int64{int64(1000*c.Rank() + i)}, make([]int64, 2)
			var err error
			if c.Rank()%2 == 0 {
				err = first(w.Lock(mpi.LockExclusive, 1), w.Put(v, 1, 0), w.Flush(1), w.Put(v, 1, 1), w.Unlock(1))
			} else {
				err = first(w.Lock(mpi.LockShared, 1), w.Get(both[:1], 1, 0), w.Flush(1), w.Get(both[1:], 1, 1), w.Unlock(1))
			}
			if err == nil && both[0] != both[1] {
				err = fmt.Errorf("a reader sees %v", both)
			}
			if err != nil {
				return err
			}
		}
		return mpi.Barrier(c)
	})
}

// TestLockExcludes: while one rank holds a lock, another gets one beside it only if both
// are shared.
func TestLockExcludes(t *testing.T) {
	const accesses = 300 // in which the other rank's lock could come
	for _, x := range []struct{ held, asked mpi.LockKind }{
		{mpi.LockExclusive, mpi.LockExclusive}, {mpi.LockExclusive, mpi.LockShared}, {mpi.LockShared, mpi.LockExclusive}, {mpi.LockShared, mpi.LockShared},
	} {
		beside := x.held == mpi.LockShared && x.asked == mpi.LockShared
		windows(t, 3, 1, func(c *mpi.Comm, w *mpi.Win[int64]) error {
			token, v := []int{0}, make([]int64, 1)
			var err error
			switch c.Rank() {
			case 1:
				err = first(w.Lock(x.held, 0), mpi.Send(c, token, 2, 0))
				if beside {
					_, got := mpi.Recv(c, token, 2, 0) // which has its lock now
					err = first(err, got)
				}
				for range accesses {
					err = first(err, w.FetchAndOp(1, &v[0], 0, 0, mpi.Sum), w.Flush(0))
				}
				err = first(err, w.Unlock(0))
			case 2:
				_, err = mpi.Recv(c, token, 1, 0)
				err = first(err, w.Lock(x.asked, 0), w.Get(v, 0, 0), w.Flush(0))
				if beside {
					err = first(err, mpi.Send(c, token, 1, 0))
				}
				if err = first(err, w.Unlock(0)); err == nil && !beside && v[0] != accesses {
					err = fmt.Errorf("lock %v is had beside lock %v, after %d accesses of %d", x.asked, x.held, v[0], accesses)
				}
			}
			return first(err, mpi.Barrier(c))
		})
	}
}
