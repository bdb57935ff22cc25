package mpi_test

import (
	"errors"
	"runtime"

	"github.com/meshmpi/meshmpi/mpi"
)

// others is the group of all ranks but the caller.
func others(c *mpi.Comm) *mpi.Group {
	g, err := c.Group().Excl(c.Rank())
	if err != nil {
		endCase(err)
	}
	return g
}

var mpichRMA2 = []mpichCase{
	winCase("rma/lock_nested.c", 3, 2, func(c *mpi.Comm, w *mpi.Win[int64]) {
		// Locks of several targets at the same time, let go in another order.
		must(w.Lock(mpi.LockShared, 0), w.Lock(mpi.LockShared, 2), w.Lock(mpi.LockShared, 1))
		must(w.Accumulate([]int64{1}, 0, 0, mpi.Sum), w.Accumulate([]int64{1}, 1, 0, mpi.Sum), w.Accumulate([]int64{1}, 2, 0, mpi.Sum))
		must(w.Unlock(2), w.Unlock(0), w.Unlock(1), mpi.Barrier(c))
		is("sum", w.Memory()[0], 3)
	}),
	winCase("rma/lockcontention.c", 4, 2, func(c *mpi.Comm, w *mpi.Win[int64]) {
		for range 40 {
			v := make([]int64, 2)
			must(w.Lock(mpi.LockExclusive, 0), w.Get(v, 0, 0), w.Flush(0))
			is("both are the same", v[0], v[1])
			must(w.Put([]int64{v[0] + 1, v[0] + 1}, 0, 0), w.Unlock(0))
		}
		must(mpi.Barrier(c))
		if c.Rank() == 0 {
			are("counters", w.Memory(), []int64{160, 160})
		}
	}),
	winCase("rma/lockcontention2.c", 4, 100, func(c *mpi.Comm, w *mpi.Win[int64]) {
		// The owner is one of those who want the lock.
		for i := range 20 {
			target := i % 4
			must(w.Lock(mpi.LockExclusive, target), w.Accumulate(fill(int64(1), 100), target, 0, mpi.Sum), w.Unlock(target))
		}
		must(mpi.Barrier(c))
		are("sums", w.Memory(), fill(int64(20), 100))
	}),
	winCase("rma/lockopts.c", 3, 10, func(c *mpi.Comm, w *mpi.Win[int64]) {
		// One access an epoch, of every kind.
		v, old := make([]int64, 10), int64(0)
		for _, access := range []func() error{
			func() error { return w.Put(seqOf(10), 1, 0) },
			func() error { return w.Get(v, 1, 0) },
			func() error { return w.Accumulate(make([]int64, 10), 1, 0, mpi.Sum) },
			func() error { return w.CompareAndSwap(99, 1, &old, 1, 3) },
		} {
			must(w.Lock(mpi.LockExclusive, 1), access(), w.Unlock(1))
		}
		are("read", v, seqOf(10))
		is("compared", old, 3)
	}),
	winCase("rma/locknull.c", 2, 1, func(c *mpi.Comm, w *mpi.Win[int64]) {
		must(w.Lock(mpi.LockShared, mpi.ProcNull), w.Flush(mpi.ProcNull), w.Unlock(mpi.ProcNull))
	}),
	winCase("rma/rmanull.c", 2, 5, func(c *mpi.Comm, w *mpi.Win[int64]) {
		v, old := seqOf(3), int64(9)
		must(w.Fence(), w.Put(v, mpi.ProcNull, 0), w.Get(v, mpi.ProcNull, 0), w.Accumulate(v, mpi.ProcNull, 0, mpi.Sum),
			w.FetchAndOp(1, &old, mpi.ProcNull, 0, mpi.Sum), done(w.Rget(v, mpi.ProcNull, 77)), w.FenceEnd())
		are("untouched", v, seqOf(3))
		are("memory", w.Memory(), make([]int64, 5))
	}),
	winCase("rma/rmazero.c", 2, 0, func(c *mpi.Comm, w *mpi.Win[int64]) {
		must(w.Fence(), w.Put(nil, 1-c.Rank(), 0), w.Get(nil, 1-c.Rank(), 0), w.Accumulate([]int64{}, 1-c.Rank(), 0, mpi.Sum), w.FenceEnd())
	}),
	winCase("rma/manyget.c", 2, 32_000, func(c *mpi.Comm, w *mpi.Win[int64]) {
		copy(w.Memory(), given(c.Rank(), 32_000))
		must(mpi.Barrier(c), w.LockAll())
		for range 10 {
			got := make([]int64, 32_000)
			must(w.Get(got, 1-c.Rank(), 0), w.Flush(1-c.Rank()))
			are("read", got, given(1-c.Rank(), 32_000))
		}
		must(w.UnlockAll())
	}),
	winCase("rma/manyrma3.c", 2, 10, func(c *mpi.Comm, w *mpi.Win[int64]) {
		must(w.LockAll())
		for i := range 3000 {
			must(w.Accumulate([]int64{1}, 1-c.Rank(), i%10, mpi.Sum))
		}
		must(w.UnlockAll(), mpi.Barrier(c))
		are("sums", w.Memory(), fill(int64(300), 10))
	}),
	{file: "rma/mcs_mutex.c", ranks: 4, body: func(c *mpi.Comm) error {
		// Waiters form a queue of words, each on its own rank: tail, next, blocked.
		w := get(mpi.AllocateWin[int64](c, 4))
		const tail, next, blocked, count = 0, 1, 2, 3
		me := int64(c.Rank() + 1) // 0: nobody
		swap := func(v int64, rank, at int) (old int64) {
			must(w.FetchAndOp(v, &old, rank, at, mpi.Replace), w.Flush(rank))
			return old
		}
		read := func(at int) (v int64) {
			must(w.FetchAndOp(0, &v, c.Rank(), at, mpi.NoOp), w.Flush(c.Rank()))
			return v
		}
		must(w.LockAll())
		for range 20 {
			swap(0, c.Rank(), next)
			swap(1, c.Rank(), blocked)
			if before := swap(me, 0, tail); before != 0 {
				for swap(me, int(before-1), next); read(blocked) == 1; {
					runtime.Gosched()
				}
			}
			v := make([]int64, 1)
			must(w.Get(v, 0, count), w.Flush(0), w.Put([]int64{v[0] + 1}, 0, count), w.Flush(0))
			var last int64
			must(w.CompareAndSwap(me, 0, &last, 0, tail), w.Flush(0))
			if last != me {
				after := read(next)
				for ; after == 0; after = read(next) {
					runtime.Gosched()
				}
				swap(0, int(after-1), blocked)
			}
		}
		must(w.UnlockAll(), mpi.Barrier(c))
		if c.Rank() == 0 {
			is("counter", w.Memory()[count], 80)
		}
		return w.Free()
	}},
	winCase("rma/mixedsync.c", 3, 8, func(c *mpi.Comm, w *mpi.Win[int64]) {
		next := (c.Rank() + 1) % 3
		must(w.Fence(), w.Put(fill(int64(c.Rank()), 4), next, 0), w.FenceEnd())
		must(w.Post(others(c)), w.Start(others(c)), w.Put(fill(int64(9), 2), next, 4), w.Complete(), w.Wait())
		must(w.Lock(mpi.LockShared, next), w.Put(fill(int64(7), 2), next, 6), w.Unlock(next), mpi.Barrier(c))
		prev := int64(c.Rank()+2) % 3
		are("memory", w.Memory(), []int64{prev, prev, prev, prev, 9, 9, 7, 7})
	}),
	winCase("rma/nullpscw.c", 3, 1, func(c *mpi.Comm, w *mpi.Win[int64]) {
		empty := get(c.Group().Incl())
		must(w.Post(empty), w.Start(empty), w.Complete(), w.Wait())
	}),
	winCase("rma/pscw_ordering.c", 3, 2, func(c *mpi.Comm, w *mpi.Win[int64]) {
		// Exposures follow each other with one side far ahead.
		g := others(c)
		for i := range int64(50) {
			must(w.Post(g), w.Start(g))
			for r := range 3 {
				if r != c.Rank() {
					must(w.Accumulate([]int64{i}, r, 0, mpi.Sum))
				}
			}
			must(w.Complete(), w.Wait())
			is("sum so far", w.Memory()[0], i*(i+1))
		}
	}),
	winCase("rma/putpscw1.c", 4, 500, func(c *mpi.Comm, w *mpi.Win[int64]) {
		left, right := (c.Rank()+3)%4, (c.Rank()+1)%4
		to, from := get(c.Group().Incl(right)), get(c.Group().Incl(left))
		must(w.Post(from), w.Start(to), w.Put(given(c.Rank(), 500), right, 0), w.Complete())
		for over := false; !over; {
			over = get(w.Test())
		}
		are("stored", w.Memory(), given(left, 500))
	}),
	{file: "rma/put_base.c", ranks: 2, body: func(c *mpi.Comm) error {
		// Windows of memory of the program's own, of different lengths.
		mem := make([]int32, 10+5*c.Rank())
		w := get(mpi.NewWin(c, mem))
		is("theirs", w.Len(1-c.Rank()), 15-5*c.Rank())
		must(w.Fence(), w.Put([]int32{1, 2, 3}, 1-c.Rank(), 7), w.FenceEnd())
		are("mine", mem[7:10], []int32{1, 2, 3})
		is("the same memory", &w.Memory()[0], &mem[0])
		return w.Free()
	}},
	winCase("rma/req_example.c", 3, 300, func(c *mpi.Comm, w *mpi.Win[int64]) {
		// Blocks are read ahead while the last one is worked on.
		copy(w.Memory(), given(c.Rank(), 300))
		must(mpi.Barrier(c), w.LockAll())
		rs, bufs := make([]mpi.Request, 3), make([][]int64, 3)
		for r := range 3 {
			bufs[r] = make([]int64, 300)
			rs[r] = get(w.Rget(bufs[r], r, 0))
		}
		for range 3 {
			r, _, err := mpi.WaitAny(rs)
			must(err)
			are("block", bufs[r], given(r, 300))
		}
		must(w.UnlockAll())
	}),
	winCase("rma/reqops.c", 2, 10, func(c *mpi.Comm, w *mpi.Win[int64]) {
		peer, old := 1-c.Rank(), make([]int64, 10)
		must(w.LockAll(), done(w.Rput(seqOf(10), peer, 0)), w.Flush(peer), done(w.Raccumulate(seqOf(10), peer, 0, mpi.Sum)), w.Flush(peer),
			done(w.RgetAccumulate(seqOf(10), old, peer, 0, mpi.Replace)))
		for i, v := range old {
			is("before", v, int64(2*i))
		}
		must(w.UnlockAll(), mpi.Barrier(c))
		are("memory", w.Memory(), seqOf(10))
		refused("outside an epoch", second(w.Rput(seqOf(1), peer, 0)), mpi.ErrRMASync)
	}),
	winCase("rma/rget_testall.c", 2, 10, func(c *mpi.Comm, w *mpi.Win[int64]) {
		copy(w.Memory(), given(c.Rank(), 10))
		must(mpi.Barrier(c), w.LockAll())
		got := make([]int64, 10)
		var rs []mpi.Request
		for i := range got {
			rs = append(rs, get(w.Rget(got[i:i+1], 1-c.Rank(), i)))
		}
		for over := false; !over; {
			over = get(mpi.TestAll(rs, nil))
		}
		are("read", got, given(1-c.Rank(), 10))
		must(w.UnlockAll())
	}),
	winCase("rma/rget_unlock.c", 2, 50, func(c *mpi.Comm, w *mpi.Win[int64]) {
		// The request is completed after its epoch.
		copy(w.Memory(), given(c.Rank(), 50))
		must(mpi.Barrier(c), w.Lock(mpi.LockShared, 1-c.Rank()))
		got := make([]int64, 50)
		r := get(w.Rget(got, 1-c.Rank(), 0))
		must(w.Unlock(1-c.Rank()), done(r, nil))
		are("read", got, given(1-c.Rank(), 50))
	}),
	winCase("rma/selfrma.c", 1, 100, func(c *mpi.Comm, w *mpi.Win[int64]) {
		got := make([]int64, 50)
		must(w.Fence(), w.Put(given(1, 50), 0, 25), w.Fence(), w.Get(got, 0, 25), w.FenceEnd())
		are("read", got, given(1, 50))
	}),
	winCase("rma/test4.c", 2, 100, func(c *mpi.Comm, w *mpi.Win[int64]) {
		if c.Rank() == 0 {
			got := make([]int64, 40)
			g := get(c.Group().Incl(1))
			must(w.Start(g), w.Put(given(0, 60), 1, 40), w.Get(got, 1, 0), w.Complete())
			are("read", got, given(1, 40))
			return
		}
		copy(w.Memory(), given(1, 40))
		must(w.Post(get(c.Group().Incl(0))), w.Wait())
		are("stored", w.Memory()[40:], given(0, 60))
	}),
	winCase("rma/transpose3.c", 2, 64, func(c *mpi.Comm, w *mpi.Win[int64]) {
		// Row by row into columns.
		must(w.Fence())
		for i := range 8 {
			for j := range 8 {
				must(w.Put([]int64{int64(8*i + j)}, 1-c.Rank(), 8*j+i))
			}
		}
		must(w.FenceEnd())
		for i, v := range w.Memory() {
			is("value", v, int64(i%8*8+i/8))
		}
	}),
	{file: "rma/win_zero.c", ranks: 3, body: func(c *mpi.Comm) error {
		// Only one has memory.
		w := get(mpi.AllocateWin[int64](c, 5*(c.Rank()/2)))
		must(w.Fence(), w.Accumulate([]int64{1}, 2, 4, mpi.Sum), w.FenceEnd())
		if c.Rank() == 2 {
			is("sum", w.Memory()[4], 3)
		}
		return w.Free()
	}},
	{file: "rma/window_creation.c", ranks: 3, body: func(c *mpi.Comm) error {
		ws := make([]*mpi.Win[float32], 20)
		for i := range ws {
			ws[i] = get(mpi.AllocateWin[float32](c, i))
		}
		for i := range ws {
			must(ws[(7*i)%20].Free())
		}
		if err := ws[0].Fence(); !errors.Is(err, mpi.ErrWin) {
			return errors.Join(errors.New("a freed window is used"), err)
		}
		return nil
	}},
	{file: "rma/overlap_wins_rma.c", ranks: 2, body: func(c *mpi.Comm) error {
		// Two windows of one memory.
		mem := make([]int64, 20)
		a, b := get(mpi.NewWin(c, mem)), get(mpi.NewWin(c, mem[10:]))
		peer := 1 - c.Rank()
		must(a.LockAll(), b.LockAll(), a.Put(seqOf(20), peer, 0), a.Flush(peer), b.Put([]int64{-1}, peer, 3))
		must(b.UnlockAll(), a.UnlockAll(), mpi.Barrier(c))
		is("by the first", mem[12], 12)
		is("by the second", mem[13], -1)
		return first(b.Free(), a.Free())
	}},
	winCase("rma/rput_local_comp.c", 2, 100_000, func(c *mpi.Comm, w *mpi.Win[int64]) {
		// The memory given may be used again when the request is complete.
		b := given(c.Rank(), 100_000)
		must(w.LockAll(), done(w.Rput(b, 1-c.Rank(), 0)))
		clear(b)
		must(w.UnlockAll(), mpi.Barrier(c))
		are("stored", w.Memory(), given(1-c.Rank(), 100_000))
	}),
}
