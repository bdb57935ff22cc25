package mpi_test

import (
	"fmt"
	"slices"

	"github.com/meshmpi/meshmpi/mpi"
	"github.com/meshmpi/meshmpi/mpi/mpitest"
)

// everyKind reduces n elements of every kind of number.
func everyKind(c *mpi.Comm, n int) {
	sums[int8](c, n)
	sums[uint8](c, n)
	sums[int16](c, n)
	sums[uint32](c, n)
	sums[int64](c, n)
	sums[uint](c, n)
	sums[float32](c, n)
	sums[float64](c, n)
	complexes := make([]complex128, n)
	must(mpi.Allreduce(c, fill(complex(1, 2), n), complexes, mpi.Sum))
	are("complex", complexes, fill(complex(float64(c.Size()), 2*float64(c.Size())), n))
}

func sums[T int8 | uint8 | int16 | uint32 | int64 | uint | float32 | float64](c *mpi.Comm, n int) {
	k := c.Size()
	for _, tc := range []struct {
		o    mpi.Op
		want T
	}{{mpi.Sum, T(k * (k + 1) / 2)}, {mpi.Min, 1}, {mpi.Max, T(k)}} {
		out := make([]T, n)
		if err := first(mpi.Allreduce(c, fill(T(c.Rank()+1), n), out, tc.o)); err != nil {
			endCase(err)
		}
		if !slices.Equal(out, fill(tc.want, n)) {
			endCase(fmt.Errorf("%T: %v, want %v", tc.want, out, tc.want))
		}
	}
}

// ring makes a graph in which everybody has the rank before and the one after.
func ring(c *mpi.Comm) (d *mpi.Comm, left, right int) {
	left, right = (c.Rank()+c.Size()-1)%c.Size(), (c.Rank()+1)%c.Size()
	d, err := c.DistGraphCreateAdjacent([]int{left, right}, nil, []int{left, right}, nil, false)
	if err != nil {
		endCase(err)
	}
	return d, left, right
}

// across runs a case over an intercommunicator of two ranks and three.
func across(file string, body func(x *mpi.Comm, mine, theirs int)) mpichCase {
	return mpichCase{file: file, ranks: 5, body: func(c *mpi.Comm) error {
		x := halves(c, 2)
		body(x, x.Size(), x.RemoteSize())
		return x.Free()
	}}
}

// rootOf says who the root is, rank 1 of the side of two, as each rank names it.
func rootOf(x *mpi.Comm) int {
	switch {
	case x.Size() == 3:
		return 1
	case x.Rank() == 1:
		return mpi.Root
	}
	return mpi.ProcNull
}

// restarted runs a persistent operation three times and checks what it has done.
func restarted(file string, ranks int, setup func(c *mpi.Comm) (p *mpi.Persistent, prepare func(), check func() error)) mpichCase {
	return mpichCase{file: file, ranks: ranks, body: func(c *mpi.Comm) error {
		p, prepare, check := setup(c)
		for range 3 {
			prepare()
			must(p.Start(), second(p.Wait()), check())
		}
		return p.Free()
	}, opts: []mpitest.Option{mpitest.Place(func(r int) (string, string) { return fmt.Sprint("h", r/2), fmt.Sprint("s", r/3) })}}
}

var mpichColl2 = []mpichCase{
	{file: "coll/gather.c", ranks: 4, body: func(c *mpi.Comm) error {
		for root := range 4 {
			for _, n := range sizes[:4] {
				all := make([]int64, 4*n)
				must(mpi.Gather(c, given(c.Rank(), n), all, root))
				if c.Rank() == root {
					are("gathered", all, gathered(4, n))
				}
			}
		}
		return nil
	}},
	{file: "coll/gather2.c", ranks: 4, body: func(c *mpi.Comm) error {
		for root := range 4 {
			if c.Rank() != root {
				must(mpi.Gather(c, given(c.Rank(), 9), nil, root))
				continue
			}
			all := make([]int64, 4*9)
			copy(all[root*9:], given(root, 9))
			must(mpi.Gather(c, nil, all, root))
			are("in place", all, gathered(4, 9))
		}
		return nil
	}},
	{file: "coll/gather_big.c", ranks: 8, body: func(c *mpi.Comm) error {
		const n = 1 << 15
		all := make([]int64, 8*n)
		must(mpi.Gather(c, given(c.Rank(), n), all, 5))
		if c.Rank() == 5 {
			are("gathered", all, gathered(8, n))
		}
		return nil
	}},
	{file: "coll/gatherv.c", ranks: 5, body: func(c *mpi.Comm) error {
		for root := range 5 {
			l, total := uneven(5, 6)
			all := make([]int64, total)
			must(mpi.Gatherv(c, given(c.Rank(), 6+c.Rank()), all, l, root))
			if c.Rank() == root {
				are("gathered", all, spaced(l, total))
			}
		}
		return nil
	}},
	{file: "coll/scatter2.c", ranks: 4, body: func(c *mpi.Comm) error {
		for root := range 4 {
			mine := make([]int64, 6)
			must(mpi.Scatter(c, gathered(4, 6), mine, root))
			are("mine", mine, given(c.Rank(), 6))
		}
		return nil
	}},
	{file: "coll/scatter3.c", ranks: 5, body: func(c *mpi.Comm) error {
		for root := range 5 {
			mine := make([]int64, 3000)
			if c.Rank() == root {
				mine = nil // it stays where it is
			}
			must(mpi.Scatter(c, gathered(5, 3000), mine, root))
			if mine != nil {
				are("mine", mine, given(c.Rank(), 3000))
			}
		}
		return nil
	}},
	{file: "coll/scatterv.c", ranks: 6, body: func(c *mpi.Comm) error {
		l, total := uneven(6, 100)
		mine := make([]int64, 100+c.Rank())
		must(mpi.Scatterv(c, spaced(l, total), l, mine, 2))
		are("mine", mine, given(c.Rank(), 100+c.Rank()))
		return nil
	}},
	{file: "coll/ibarrier.c", ranks: 5, body: func(c *mpi.Comm) error {
		r := get(mpi.Ibarrier(c))
		if c.Rank() == 0 {
			for over := false; !over; {
				_, over = get2(r.Test())
			}
			return nil
		}
		return done(r, nil)
	}},
	{file: "coll/iallred.c", ranks: 2, body: func(c *mpi.Comm) error {
		out := make([]int64, 3)
		r := get(mpi.Iallreduce(c, given(c.Rank(), 3), out, mpi.Sum))
		must(done(r, nil))
		are("sum", out, sumOf(0, 2, 3))
		return nil
	}},
	{file: "coll/neighb_allgather.c", ranks: 5, body: func(c *mpi.Comm) error {
		d, left, right := ring(c)
		in := make([]int64, 20)
		must(mpi.NeighborAllgather(d, given(c.Rank(), 10), in))
		are("received", in, slices.Concat(given(left, 10), given(right, 10)))
		return d.Free()
	}},
	{file: "coll/neighb_allgatherv.c", ranks: 5, body: func(c *mpi.Comm) error {
		d, left, right := ring(c)
		l := mpi.Layout{Counts: []int{left + 1, right + 1}, Displs: []int{9, 0}}
		in := make([]int64, 20)
		must(mpi.NeighborAllgatherv(d, given(c.Rank(), c.Rank()+1), in, l))
		are("from the left", in[9:][:left+1], given(left, left+1))
		are("from the right", in[:right+1], given(right, right+1))
		return d.Free()
	}},
	{file: "coll/neighb_alltoall.c", ranks: 4, body: func(c *mpi.Comm) error {
		d, left, right := ring(c)
		in := make([]int, 2)
		must(mpi.NeighborAlltoall(d, []int{10*c.Rank() + left, 10*c.Rank() + right}, in))
		are("received", in, []int{10*left + c.Rank(), 10*right + c.Rank()})
		return d.Free()
	}},
	{file: "coll/neighb_alltoallv.c", ranks: 4, body: func(c *mpi.Comm) error {
		d, left, right := ring(c) // one to the left, two to the right
		in := make([]int, 3)
		must(mpi.NeighborAlltoallv(d, []int{c.Rank(), 10 + c.Rank(), 20 + c.Rank()}, mpi.Layout{Counts: []int{1, 2}}, in, mpi.Layout{Counts: []int{2, 1}}))
		are("received", in, []int{10 + left, 20 + left, right})
		return d.Free()
	}},
	{file: "coll/neighb_alltoallw.c", ranks: 4, body: func(c *mpi.Comm) error {
		d, left, right := ring(c)
		in, text := []int64{0}, make([]byte, 1)
		must(mpi.NeighborAlltoallw(d, []mpi.Buf{mpi.BufOf([]int64{int64(c.Rank())}), mpi.BufOf([]byte{byte('a' + c.Rank())})},
			[]mpi.Buf{mpi.BufOf(text), mpi.BufOf(in)}))
		is("from the left", text[0], byte('a'+left))
		is("from the right", in[0], int64(right))
		return d.Free()
	}},
	{file: "coll/ring_neighbor_alltoall.c", ranks: 2, body: func(c *mpi.Comm) error {
		// In a ring of two, both neighbours are the same one.
		g := get(c.CartCreate([]int{2}, []bool{true}, false))
		in := make([]int, 2)
		must(mpi.NeighborAlltoall(g, []int{10*c.Rank() + 1, 10*c.Rank() + 2}, in))
		peer := 10 * (1 - c.Rank())
		are("received", in, []int{peer + 2, peer + 1})
		return g.Free()
	}},
	across("coll/icallgather.c", func(x *mpi.Comm, _, theirs int) {
		in := make([]int64, 3*theirs)
		must(mpi.Allgather(x, given(x.Rank(), 3), in))
		are("theirs", in, gathered(theirs, 3))
	}),
	across("coll/icallgatherv.c", func(x *mpi.Comm, _, theirs int) {
		l, total := uneven(theirs, 2)
		in := make([]int64, total)
		must(mpi.Allgatherv(x, given(x.Rank(), 2+x.Rank()), in, l))
		are("theirs", in, spaced(l, total))
	}),
	across("coll/icallreduce.c", func(x *mpi.Comm, _, theirs int) {
		out := make([]int64, 8)
		must(mpi.Allreduce(x, given(x.Rank(), 8), out, mpi.Sum))
		are("their sum", out, sumOf(0, theirs, 8))
	}),
	across("coll/icalltoall.c", func(x *mpi.Comm, mine, theirs int) {
		out, in := make([]int, theirs), make([]int, theirs)
		for r := range out {
			out[r] = 100*mine + 10*x.Rank() + r
		}
		must(mpi.Alltoall(x, out, in))
		for r, v := range in {
			is("received", v, 100*theirs+10*r+x.Rank())
		}
	}),
	across("coll/icbarrier.c", func(x *mpi.Comm, _, _ int) { must(mpi.Barrier(x), done(mpi.Ibarrier(x))) }),
	across("coll/icbcast.c", func(x *mpi.Comm, mine, _ int) {
		b := given(4, 5)
		if mine == 3 {
			b = make([]int64, 5)
		}
		must(mpi.Bcast(x, b, rootOf(x)))
		are("data", b, given(4, 5))
	}),
	across("coll/icgather.c", func(x *mpi.Comm, mine, theirs int) {
		in := make([]int64, 2*theirs)
		if mine == 3 {
			must(mpi.Gather(x, given(x.Rank(), 2), nil, 1))
			return
		}
		must(mpi.Gather(x, nil, in, rootOf(x)))
		if x.Rank() == 1 {
			are("theirs", in, gathered(3, 2))
		}
	}),
	across("coll/icreduce.c", func(x *mpi.Comm, mine, _ int) {
		out := make([]int64, 3)
		if mine == 3 {
			must(mpi.Reduce(x, given(x.Rank(), 3), nil, mpi.Sum, 1))
			return
		}
		must(mpi.Reduce(x, nil, out, mpi.Sum, rootOf(x)))
		if x.Rank() == 1 {
			are("their sum", out, sumOf(0, 3, 3))
		}
	}),
	across("coll/icscatter.c", func(x *mpi.Comm, mine, _ int) {
		in := make([]int64, 4)
		if mine == 2 {
			must(mpi.Scatter(x, gathered(3, 4), nil, rootOf(x)))
			return
		}
		must(mpi.Scatter(x, nil, in, 1))
		are("mine", in, given(x.Rank(), 4))
	}),
	restarted("coll/p_allgather.c", 5, func(c *mpi.Comm) (*mpi.Persistent, func(), func() error) {
		all := make([]int64, 20)
		return get(mpi.AllgatherInit(c, given(c.Rank(), 4), all)), func() { clear(all) }, func() error { return want("gathered", all, gathered(5, 4)) }
	}),
	restarted("coll/p_allred.c", 5, func(c *mpi.Comm) (*mpi.Persistent, func(), func() error) {
		b := make([]int64, 700)
		return get(mpi.AllreduceInit(c, nil, b, mpi.Sum)), func() { copy(b, given(c.Rank(), 700)) }, func() error { return want("sum", b, sumOf(0, 5, 700)) }
	}),
	restarted("coll/p_bcast.c", 6, func(c *mpi.Comm) (*mpi.Persistent, func(), func() error) {
		b, round := make([]int64, 50), 0
		return get(mpi.BcastInit(c, b, 4)), func() {
			round++
			if clear(b); c.Rank() == 4 {
				copy(b, given(round, 50))
			}
		}, func() error { return want("data", b, given(round, 50)) }
	}),
	restarted("coll/p_barrier.c", 3, func(c *mpi.Comm) (*mpi.Persistent, func(), func() error) {
		return get(mpi.BarrierInit(c)), func() {}, func() error { return nil }
	}),
	restarted("coll/p_scan.c", 4, func(c *mpi.Comm) (*mpi.Persistent, func(), func() error) {
		out := make([]int64, 6)
		return get(mpi.ScanInit(c, given(c.Rank(), 6), out, mpi.Sum)), func() { clear(out) }, func() error { return want("scan", out, sumOf(0, c.Rank()+1, 6)) }
	}),
	restarted("coll/p_alltoall.c", 4, func(c *mpi.Comm) (*mpi.Persistent, func(), func() error) {
		in := make([]int, 4)
		return get(mpi.AlltoallInit(c, seq(10*c.Rank(), 4), in)), func() { clear(in) }, func() error {
			return want("exchanged", in, []int{c.Rank(), 10 + c.Rank(), 20 + c.Rank(), 30 + c.Rank()})
		}
	}),
	{file: "coll/p_inactive.c", ranks: 3, body: func(c *mpi.Comm) error {
		p := get(mpi.BcastInit(c, make([]int, 1), 0))
		emptyStatus(get(p.Wait()))
		must(p.Start())
		if err := p.Start(); err == nil {
			return fmt.Errorf("Start of what is under way succeeds")
		}
		must(second(p.Wait()))
		emptyStatus(get(p.Wait()))
		return p.Free()
	}},
	{file: "coll/p_order.c", ranks: 3, body: func(c *mpi.Comm) error {
		// They match in the order of their setting up, not of their starting.
		a, b := []int{-1}, []int{-1}
		if c.Rank() == 0 {
			a[0], b[0] = 1, 2
		}
		ps := []*mpi.Persistent{get(mpi.BcastInit(c, a, 0)), get(mpi.BcastInit(c, b, 0))}
		if c.Rank() == 1 {
			slices.Reverse(ps)
		}
		must(mpi.StartAll(ps...), second(ps[1].Wait()), second(ps[0].Wait()))
		are("received", []int{a[0], b[0]}, []int{1, 2})
		return first(ps[0].Free(), ps[1].Free())
	}},
}
