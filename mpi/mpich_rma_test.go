package mpi_test

import (
	"fmt"
	"slices"

	"github.com/meshmpi/meshmpi/mpi"
)

// winCase is a case with a window of n elements of each rank.
func winCase(file string, ranks, n int, body func(c *mpi.Comm, w *mpi.Win[int64])) mpichCase {
	return mpichCase{file: file, ranks: ranks, body: func(c *mpi.Comm) error {
		w := get(mpi.AllocateWin[int64](c, n))
		body(c, w)
		return w.Free()
	}}
}

// fetchAdd adds under a lock of the target and returns what was there.
func fetchAdd(w *mpi.Win[int64], v int64, target, offset int) (old int64) {
	if err := first(w.Lock(mpi.LockShared, target), w.FetchAndOp(v, &old, target, offset, mpi.Sum), w.Unlock(target)); err != nil {
		endCase(err)
	}
	return old
}

// total ends the case unless the ranks' numbers add up.
func total(c *mpi.Comm, what string, mine, expect int64) {
	sum := []int64{mine}
	if err := first(mpi.Allreduce(c, nil, sum, mpi.Sum), want(what, sum, []int64{expect})); err != nil {
		endCase(err)
	}
}

var mpichRMA = []mpichCase{
	{file: "rma/acc_loc.c", ranks: 3, body: func(c *mpi.Comm) error {
		// Windows are of bare numbers: a pair goes as a maximum of both in one.
		w := get(mpi.AllocateWin[int64](c, 1))
		must(w.Fence(), w.Accumulate([]int64{int64(c.Rank()+1)<<32 | int64(9-c.Rank())}, 0, 0, mpi.Max), w.FenceEnd())
		if c.Rank() == 0 {
			is("the largest and its place", w.Memory()[0], 3<<32|7)
		}
		refused("MaxLoc of numbers", w.Accumulate([]int64{1}, 0, 0, mpi.MaxLoc), mpi.ErrRMASync)
		return w.Free()
	}},
	winCase("rma/acc_ordering.c", 2, 4, func(c *mpi.Comm, w *mpi.Win[int64]) {
		// Accumulates of one origin to one element are done in its order.
		must(w.LockAll())
		for i := range int64(200) {
			must(w.Accumulate([]int64{i, -i}, 1-c.Rank(), 0, mpi.Replace), w.Accumulate([]int64{i}, 1-c.Rank(), 2, mpi.Replace))
		}
		must(w.UnlockAll(), mpi.Barrier(c))
		are("the last", w.Memory(), []int64{199, -199, 199, 0})
	}),
	winCase("rma/accfence1.c", 4, 3000, func(c *mpi.Comm, w *mpi.Win[int64]) {
		for _, n := range []int{1, 100, 3000} {
			clear(w.Memory())
			must(w.Fence(), w.Accumulate(given(c.Rank(), n), 2, 0, mpi.Sum), w.FenceEnd())
			if c.Rank() == 2 {
				are("sum", w.Memory()[:n], sumOf(0, 4, n))
			}
			must(mpi.Barrier(c))
		}
	}),
	winCase("rma/accfence2.c", 4, 64, func(c *mpi.Comm, w *mpi.Win[int64]) {
		must(w.Fence())
		for r := range 4 {
			for i := range 64 {
				must(w.Accumulate([]int64{int64(i)}, r, i, mpi.Sum))
			}
		}
		must(w.FenceEnd())
		for i, v := range w.Memory() {
			is("sum", v, int64(4*i))
		}
	}),
	winCase("rma/accpscw1.c", 3, 50, func(c *mpi.Comm, w *mpi.Win[int64]) {
		all := c.Group()
		root, rest := get(all.Incl(0)), get(all.Excl(0))
		if c.Rank() > 0 {
			must(w.Start(root), w.Accumulate(given(c.Rank(), 50), 0, 0, mpi.Sum), w.Complete())
			return
		}
		must(w.Post(rest), w.Wait())
		are("sum", w.Memory(), sumOf(1, 3, 50))
	}),
	winCase("rma/at_complete.c", 2, 100, func(c *mpi.Comm, w *mpi.Win[int64]) {
		if c.Rank() == 1 {
			for range 50 {
				must(w.Lock(mpi.LockExclusive, 0), w.Put(given(1, 100), 0, 0), w.Unlock(0))
			}
		}
		must(mpi.Barrier(c))
		if c.Rank() == 0 {
			are("data", w.Memory(), given(1, 100))
		}
	}),
	winCase("rma/atomic_get.c", 4, 2, func(c *mpi.Comm, w *mpi.Win[int64]) {
		// What an atomic reader sees was the value at some time.
		must(w.LockAll())
		last := int64(-1)
		for i := range int64(200) {
			if c.Rank() == 1 {
				must(w.Accumulate([]int64{i<<32 | i}, 0, 0, mpi.Replace), w.Flush(0))
				continue
			}
			v := make([]int64, 1)
			must(w.GetAccumulate(nil, v, 0, 0, mpi.NoOp), w.Flush(0))
			if v[0]>>32 != v[0]&(1<<32-1) || v[0] < last {
				endCase(fmt.Errorf("%x after %x", v[0], last))
			}
			last = v[0]
		}
		must(w.UnlockAll())
	}),
	winCase("rma/atomic_rmw_cas.c", 4, 1, func(c *mpi.Comm, w *mpi.Win[int64]) {
		// A counter by compare-and-swap alone.
		must(w.LockAll())
		for range 50 {
			for seen := int64(0); ; {
				var old int64
				must(w.CompareAndSwap(seen, seen+1, &old, 2, 0), w.Flush(2))
				if old == seen {
					break
				}
				seen = old
			}
		}
		must(w.UnlockAll(), mpi.Barrier(c))
		if c.Rank() == 2 {
			is("counter", w.Memory()[0], 200)
		}
	}),
	winCase("rma/atomic_rmw_fop.c", 4, 1, func(c *mpi.Comm, w *mpi.Win[int64]) {
		seen := make([]int64, 4*100)
		for i := range 100 {
			seen[c.Rank()*100+i] = fetchAdd(w, 1, 3, 0)
		}
		must(mpi.Allgather(c, nil, seen))
		slices.Sort(seen)
		for i, v := range seen {
			is("ticket", v, int64(i))
		}
	}),
	winCase("rma/atomic_rmw_gacc.c", 3, 20, func(c *mpi.Comm, w *mpi.Win[int64]) {
		got := make([]int64, 20)
		must(w.LockAll())
		for range 30 {
			must(w.GetAccumulate(fill(int64(1), 20), got, 0, 0, mpi.Sum), w.Flush(0))
		}
		must(w.UnlockAll(), mpi.Barrier(c))
		if c.Rank() == 0 {
			are("counters", w.Memory(), fill(int64(90), 20))
		}
	}),
	winCase("rma/attrorderwin.c", 2, 1, func(c *mpi.Comm, w *mpi.Win[int64]) {
		for _, order := range [][]int{{0, 1, 2}, {2, 1, 0}, {1, 2, 0}} {
			keys := make([]mpi.Key[int], 3)
			for i := range keys {
				keys[i] = mpi.NewKey(mpi.KeyOptions[int]{})
				must(mpi.SetWinAttr(w, keys[i], i))
			}
			for n, i := range order {
				must(mpi.DeleteWinAttr(w, keys[i]))
				for _, j := range order[n+1:] {
					v, ok := mpi.GetWinAttr(w, keys[j])
					is("value", v, j)
					is("there", ok, true)
				}
				_, ok := mpi.GetWinAttr(w, keys[i])
				is("there when it was deleted", ok, false)
			}
		}
	}),
	winCase("rma/fkeyvalwin.c", 2, 1, func(c *mpi.Comm, w *mpi.Win[int64]) {
		deletes := 0
		k := mpi.NewKey(mpi.KeyOptions[int]{Delete: func(int) error { deletes++; return nil }})
		v := get(mpi.AllocateWin[int64](c, 1))
		must(mpi.SetWinAttr(v, k, 1))
		k.Free()
		must(v.Free())
		is("deletes", deletes, 1)
	}),
	winCase("rma/baseattrwin.c", 3, 7, func(c *mpi.Comm, w *mpi.Win[int64]) {
		is("length", w.Len(2), 7)
		is("mine", len(w.Memory()), 7)
	}),
	winCase("rma/compare_and_swap.c", 3, 1, func(c *mpi.Comm, w *mpi.Win[int64]) {
		// A token goes around once: each swaps its number for the next.
		next := (c.Rank() + 1) % 3
		must(w.LockAll())
		for range 20 {
			var old int64
			must(w.CompareAndSwap(0, int64(c.Rank()+1), &old, next, 0), w.Flush(next))
			if old != 0 && old != int64(c.Rank()+1) {
				endCase(fmt.Errorf("another rank's %d", old))
			}
		}
		must(w.UnlockAll(), mpi.Barrier(c))
		is("mine", w.Memory()[0], int64((c.Rank()+2)%3+1))
	}),
	winCase("rma/contention_put.c", 4, 8, func(c *mpi.Comm, w *mpi.Win[int64]) {
		must(w.LockAll())
		for range 100 {
			must(w.Put([]int64{int64(c.Rank()), 5}, 0, 2*c.Rank()))
		}
		must(w.UnlockAll(), mpi.Barrier(c))
		if c.Rank() == 0 {
			are("memory", w.Memory(), []int64{0, 5, 1, 5, 2, 5, 3, 5})
		}
	}),
	winCase("rma/contention_putget.c", 4, 100, func(c *mpi.Comm, w *mpi.Win[int64]) {
		for i := range 20 {
			peer, got := (c.Rank()+i)%4, make([]int64, 25)
			must(w.Lock(mpi.LockExclusive, peer), w.Put(given(c.Rank(), 25), peer, 25*c.Rank()), w.Flush(peer),
				w.Get(got, peer, 25*c.Rank()), w.Unlock(peer))
			are("read again", got, given(c.Rank(), 25))
		}
	}),
	winCase("rma/epochtest.c", 4, 10, func(c *mpi.Comm, w *mpi.Win[int64]) {
		next, got := (c.Rank()+1)%4, make([]int64, 10)
		must(w.Fence(), w.Put(given(c.Rank(), 10), next, 0), w.Fence(), w.Get(got, next, 0), w.Fence())
		are("read", got, given(c.Rank(), 10))
		must(w.Accumulate(fill(int64(1), 10), next, 0, mpi.Sum), w.FenceEnd())
		is("one more", w.Memory()[3], given((c.Rank()+3)%4, 10)[3]+1)
	}),
	winCase("rma/fetch_and_op.c", 3, 3, func(c *mpi.Comm, w *mpi.Win[int64]) {
		var old int64 = -1
		must(w.LockAll(), w.FetchAndOp(0, &old, c.Rank(), 0, mpi.NoOp), w.Flush(c.Rank()))
		is("at first", old, 0)
		must(w.FetchAndOp(7, &old, c.Rank(), 1, mpi.Replace), w.Flush(c.Rank()), w.FetchAndOp(3, &old, c.Rank(), 1, mpi.Max), w.Flush(c.Rank()))
		is("before the maximum", old, 7)
		must(w.FetchAndOp(5, &old, c.Rank(), 1, mpi.BAnd), w.UnlockAll())
		are("memory", w.Memory(), []int64{0, 5, 0})
	}),
	winCase("rma/fetchandadd.c", 5, 1, func(c *mpi.Comm, w *mpi.Win[int64]) {
		// Ranks take work from a counter until there is none.
		var mine int64
		for fetchAdd(w, 1, 0, 0) < 200 {
			mine++
		}
		total(c, "work", mine, 200)
	}),
	winCase("rma/fetchandadd_tree.c", 4, 8, func(c *mpi.Comm, w *mpi.Win[int64]) {
		// A counter of which every rank has a part: the sum is what all have added.
		for i := range 30 {
			fetchAdd(w, int64(c.Rank()+1), 0, (c.Rank()+i)%8)
		}
		must(mpi.Barrier(c))
		var sum int64
		for _, v := range w.Memory() {
			sum += v
		}
		total(c, "sum", sum, 300)
	}),
	winCase("rma/flush.c", 3, 2, func(c *mpi.Comm, w *mpi.Win[int64]) {
		must(w.LockAll(), w.Put([]int64{int64(c.Rank())}, 0, 0), w.FlushAll(), w.FlushLocal(0), w.FlushLocalAll())
		v := []int64{-1}
		must(w.Get(v, 0, 0), w.Flush(0))
		if v[0] < 0 || v[0] > 2 {
			endCase(fmt.Errorf("read %d", v[0]))
		}
		must(w.UnlockAll())
		refused("flush outside", w.FlushAll(), mpi.ErrRMASync)
	}),
	winCase("rma/get_acc_local.c", 1, 4, func(c *mpi.Comm, w *mpi.Win[int64]) {
		// To oneself, inside a lock, many times.
		got := make([]int64, 4)
		must(w.Lock(mpi.LockExclusive, 0))
		for range 10 {
			must(w.GetAccumulate(seqOf(4), got, 0, 0, mpi.Sum), w.Flush(0))
		}
		must(w.Unlock(0))
		are("before the last", got, []int64{0, 9, 18, 27})
	}),
	winCase("rma/get_accumulate.c", 4, 1000, func(c *mpi.Comm, w *mpi.Win[int64]) {
		got := make([]int64, 1000)
		must(w.Fence(), w.GetAccumulate(fill(int64(1), 1000), got, (c.Rank()+1)%4, 0, mpi.Replace), w.FenceEnd())
		are("before", got, make([]int64, 1000))
		are("after", w.Memory(), fill(int64(1), 1000))
	}),
	winCase("rma/getfence1.c", 3, 2000, func(c *mpi.Comm, w *mpi.Win[int64]) {
		copy(w.Memory(), given(c.Rank(), 2000))
		for r := range 3 {
			got := make([]int64, 1999)
			must(w.Fence(), w.Get(got, r, 1), w.FenceEnd())
			are("read", got, given(r, 2000)[1:])
		}
	}),
	winCase("rma/getgroup.c", 3, 0, func(c *mpi.Comm, w *mpi.Win[int64]) {
		is("group", w.Group().Compare(c.Group()), mpi.Ident)
	}),
	winCase("rma/large_small_acc.c", 3, 40_000, func(c *mpi.Comm, w *mpi.Win[int64]) {
		must(w.LockAll(), w.Accumulate(fill(int64(1), 40_000), 0, 0, mpi.Sum), w.Accumulate([]int64{10}, 0, 5, mpi.Sum), w.UnlockAll(), mpi.Barrier(c))
		if c.Rank() == 0 {
			expect := fill(int64(3), 40_000)
			expect[5] = 33
			are("sums", w.Memory(), expect)
		}
	}),
	winCase("rma/linked_list.c", 4, 200, func(c *mpi.Comm, w *mpi.Win[int64]) {
		// Every rank hangs elements on the end of a list that spans all ranks. An
		// element's word says where the next one is, and 0 that it is the last.
		must(w.LockAll())
		rank, at := 0, 0
		for i := 1; i <= 20; i++ {
			for mine := int64(c.Rank()*200 + i); ; {
				var next int64
				must(w.CompareAndSwap(0, mine, &next, rank, at), w.Flush(rank))
				if next == 0 {
					break
				}
				rank, at = int(next)/200, int(next)%200
			}
		}
		must(w.UnlockAll(), mpi.Barrier(c), w.LockAll())
		length, next := 0, []int64{0}
		for rank, at = 0, 0; ; rank, at = int(next[0])/200, int(next[0])%200 {
			must(w.Get(next, rank, at), w.Flush(rank))
			if next[0] == 0 {
				break
			}
			length++
		}
		must(w.UnlockAll())
		is("elements", length, 80)
	}),
}

// seqOf is the numbers from 0 on.
func seqOf(n int) []int64 {
	s := make([]int64, n)
	for i := range s {
		s[i] = int64(i)
	}
	return s
}
