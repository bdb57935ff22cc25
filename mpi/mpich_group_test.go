package mpi_test

import (
	"context"
	"errors"
	"sync"

	"github.com/meshmpi/meshmpi/mpi"
)

var mpichInit = []mpichCase{
	{file: "init/attrself.c", ranks: 2, body: func(c *mpi.Comm) error {
		var order []string
		key := func(name string) mpi.Key[int] {
			return mpi.NewKey(mpi.KeyOptions[int]{Delete: func(int) error { order = append(order, name); return nil }})
		}
		self := c.World().Self()
		a, b := key("a"), key("b")
		must(mpi.SetAttr(self, a, 1), mpi.SetAttr(self, b, 2), mpi.DeleteAttr(self, a), mpi.SetAttr(self, a, 3))
		must(c.World().Finalize())
		are("deleted", order, []string{"a", "a", "b"})
		return nil
	}},
	{file: "init/finalized.c", ranks: 2, body: func(c *mpi.Comm) error {
		w := c.World()
		is("finalized at first", w.Finalized(), false)
		must(w.Finalize())
		is("finalized", w.Finalized(), true)
		if err := w.Finalize(); err == nil {
			return errors.New("Finalize succeeds twice")
		}
		refused("a send after Finalize", mpi.Send(c, []int{1}, 0, 0), mpi.ErrNotInitialized)
		refused("a barrier after Finalize", mpi.Barrier(c), mpi.ErrNotInitialized)
		return nil
	}},
	{file: "init/initstat.c", ranks: 2, body: func(c *mpi.Comm) error {
		// Every program has MPI_THREAD_MULTIPLE: any goroutine may call.
		var wg sync.WaitGroup
		errs := make([]error, 8)
		for i := range errs {
			wg.Go(func() {
				peer := 1 - c.Rank()
				in := make([]int, 1)
				_, err := mpi.Sendrecv(c, []int{i}, peer, i, in, peer, i)
				errs[i] = first(err, want("by tag", in, []int{i}))
			})
		}
		wg.Wait()
		return first(errs...)
	}},
	{file: "init/timeout.c", ranks: 2, body: func(c *mpi.Comm) error {
		if c.Rank() == 1 {
			return mpi.Barrier(c)
		}
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		if _, err := mpi.Recv(c.WithContext(ctx), make([]int, 1), 1, 0); !errors.Is(err, context.Canceled) {
			return errors.Join(errors.New("a receive outlasts its context"), err)
		}
		return mpi.Barrier(c)
	}},
}

var mpichGroup = []mpichCase{
	{file: "group/groupcreate.c", ranks: 3, body: func(c *mpi.Comm) error {
		g := c.Group()
		for range 1000 {
			n := get(g.Incl(2, 0))
			is("size", n.Size(), 2)
		}
		return nil
	}},
	{file: "group/groupnullincl.c", ranks: 2, body: func(c *mpi.Comm) error {
		empty := get(c.Group().Incl())
		is("size", empty.Size(), 0)
		is("rank", empty.Rank(), mpi.Undefined)
		is("like the zero Group", empty.Compare(&mpi.Group{}), mpi.Ident)
		is("against all", empty.Compare(c.Group()), mpi.Unequal)
		if d := get(c.Create(empty)); d != nil {
			return errors.New("a communicator of nobody is there")
		}
		return nil
	}},
	{file: "group/grouptest.c", ranks: 8, body: func(c *mpi.Comm) error {
		all := c.Group()
		odd := get(all.Incl(1, 3, 5, 7))
		even := get(all.Excl(1, 3, 5, 7))
		is("union", odd.Union(even).Compare(all), mpi.Similar)
		is("intersection", odd.Intersection(even).Size(), 0)
		is("difference", all.Difference(even).Compare(odd), mpi.Ident)
		is("a range", get(all.RangeIncl(mpi.Range{First: 1, Last: 7, Stride: 2})).Compare(odd), mpi.Ident)
		is("all but a range", get(all.RangeExcl(mpi.Range{First: 1, Last: 6, Stride: 2}, mpi.Range{First: 7, Last: 7, Stride: 1})).Compare(even), mpi.Ident)
		r := mpi.Undefined
		if c.Rank()%2 == 1 {
			r = c.Rank() / 2
		}
		is("rank", odd.Rank(), r)
		return nil
	}},
	{file: "group/grouptest2.c", ranks: 8, body: func(c *mpi.Comm) error {
		all := c.Group()
		down := get(all.RangeIncl(mpi.Range{First: 7, Last: 0, Stride: -1}))
		is("reversed", down.Compare(all), mpi.Similar)
		is("reversed twice", get(down.RangeIncl(mpi.Range{First: 7, Last: 0, Stride: -1})).Compare(all), mpi.Ident)
		low, high := get(all.Incl(0, 1, 2, 3, 4)), get(all.Incl(7, 6, 5, 4, 3))
		are("union", get(low.Union(high).Translate(seq(0, 8), all)), []int{0, 1, 2, 3, 4, 7, 6, 5})
		are("intersection", get(low.Intersection(high).Translate(seq(0, 2), all)), []int{3, 4})
		are("the other way", get(high.Intersection(low).Translate(seq(0, 2), all)), []int{4, 3})
		are("difference", get(high.Difference(low).Translate(seq(0, 3), all)), []int{7, 6, 5})
		// Strides need not meet the last rank.
		is("size of a loose range", get(all.RangeIncl(mpi.Range{First: 0, Last: 6, Stride: 4})).Size(), 2)
		return nil
	}},
	{file: "group/gtranks.c", ranks: 6, body: func(c *mpi.Comm) error {
		all := c.Group()
		down := get(all.Incl(5, 4, 3, 2, 1, 0))
		are("reversed", get(all.Translate(seq(0, 6), down)), []int{5, 4, 3, 2, 1, 0})
		self := c.World().Self().Group()
		expect := fill(mpi.Undefined, 6)
		expect[c.Rank()] = 0
		are("to self", get(all.Translate(seq(0, 6), self)), expect)
		are("ProcNull", get(all.Translate([]int{mpi.ProcNull, 1}, down)), []int{mpi.ProcNull, 4})
		d := get(c.Split(c.Rank()%2, 0))
		are("of a part", get(d.Group().Translate(seq(0, 3), all)), []int{c.Rank() % 2, c.Rank()%2 + 2, c.Rank()%2 + 4})
		return d.Free()
	}},
}
