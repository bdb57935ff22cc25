package mpi_test

import (
	"math"

	"github.com/meshmpi/meshmpi/mpi"
	"github.com/meshmpi/meshmpi/mpi/datatype"
)

// sizes are numbers of elements that take different algorithms.
var sizes = []int{0, 1, 7, 1000, 40_000}

// gathered is given of all ranks, one after the other.
func gathered(ranks, n int) []int64 {
	var all []int64
	for r := range ranks {
		all = append(all, given(r, n)...)
	}
	return all
}

// affines are the maps of a rank, whose composition does not commute.
func affines(rank, n int) []affine {
	v := make([]affine, n)
	for i := range v {
		v[i] = mapOf(rank, i)
	}
	return v
}

// composed is the composition of the maps of ranks lo to hi-1, in order.
func composed(lo, hi, n int) []affine {
	v := affines(lo, n)
	for r := lo + 1; r < hi; r++ {
		for i := range v {
			v[i] = compose(v[i], mapOf(r, i))
		}
	}
	return v
}

// uneven is a layout with n+r elements of rank r, each block behind a gap.
func uneven(ranks, n int) (l mpi.Layout, total int) {
	for r := range ranks {
		l.Counts, l.Displs = append(l.Counts, n+r), append(l.Displs, total+1)
		total += n + r + 1
	}
	return l, total
}

// spaced is the elements of all ranks in an uneven layout.
func spaced(l mpi.Layout, total int) []int64 {
	v := make([]int64, total)
	for r, at := range l.Displs {
		copy(v[at:], given(r, l.Counts[r]))
	}
	return v
}

var mpichColl = []mpichCase{
	{file: "coll/allgather2.c", ranks: 10, body: func(c *mpi.Comm) error {
		for _, n := range sizes[:4] {
			all := make([]int64, 10*n)
			copy(all[c.Rank()*n:], given(c.Rank(), n))
			must(mpi.Allgather(c, nil, all))
			are("gathered", all, gathered(10, n))
		}
		return nil
	}},
	{file: "coll/allgather3.c", ranks: 10, body: func(c *mpi.Comm) error {
		for _, n := range sizes[:4] {
			all := make([]int64, 10*n)
			must(mpi.Allgather(c, given(c.Rank(), n), all))
			are("gathered", all, gathered(10, n))
		}
		return nil
	}},
	{file: "coll/allgather_struct.c", ranks: 6, body: func(c *mpi.Comm) error {
		type item struct {
			ID    int8
			Place [3]float64
			Last  bool
		}
		of := func(r int) item { return item{int8(r), [3]float64{float64(r), 0.5, -1}, r == 5} }
		all := make([]item, 6)
		must(c.AllgatherBuf(mpi.BufOf([]item{of(c.Rank())}), mpi.BufOf(all)))
		for r, x := range all {
			is("item", x, of(r))
		}
		return nil
	}},
	{file: "coll/allgatherv2.c", ranks: 10, body: func(c *mpi.Comm) error {
		for _, n := range sizes[:4] {
			l, total := uneven(10, n)
			all := make([]int64, total)
			copy(all[l.Displs[c.Rank()]:], given(c.Rank(), n+c.Rank()))
			must(mpi.Allgatherv(c, nil, all, l))
			are("gathered", all, spaced(l, total))
		}
		return nil
	}},
	{file: "coll/allgatherv3.c", ranks: 10, body: func(c *mpi.Comm) error {
		for _, n := range sizes[:4] {
			l, total := uneven(10, n)
			all := make([]int64, total)
			must(mpi.Allgatherv(c, given(c.Rank(), n+c.Rank()), all, l))
			are("gathered", all, spaced(l, total))
		}
		return nil
	}},
	{file: "coll/allgatherv4.c", ranks: 7, body: func(c *mpi.Comm) error {
		// One has all, or one has nothing, or they fall.
		for _, counts := range [][]int{{5000, 0, 0, 0, 0, 0, 0}, {9, 9, 9, 0, 9, 9, 9}, {7000, 600, 50, 4, 3, 2, 1}} {
			var expect []int64
			for r, k := range counts {
				expect = append(expect, given(r, k)...)
			}
			all := make([]int64, len(expect))
			must(mpi.Allgatherv(c, given(c.Rank(), counts[c.Rank()]), all, mpi.Layout{Counts: counts}))
			are("gathered", all, expect)
		}
		return nil
	}},
	{file: "coll/allred.c", ranks: 7, body: func(c *mpi.Comm) error {
		for _, n := range []int{1, 10, 1000} {
			everyKind(c, n)
		}
		return nil
	}},
	{file: "coll/allred2.c", ranks: 4, body: func(c *mpi.Comm) error {
		for _, n := range sizes {
			sum := given(c.Rank(), n)
			must(mpi.Allreduce(c, nil, sum, mpi.Sum))
			are("in place", sum, sumOf(0, 4, n))
		}
		return nil
	}},
	{file: "coll/allred3.c", ranks: 10, body: func(c *mpi.Comm) error {
		for _, n := range sizes[:4] {
			out := make([]affine, n)
			must(c.AllreduceBuf(mpi.BufOf(affines(c.Rank(), n)), mpi.BufOf(out), composition))
			are("composed", out, composed(0, 10, n))
		}
		return nil
	}},
	{file: "coll/allred4.c", ranks: 7, body: func(c *mpi.Comm) error {
		// A user's operation on bare numbers that does not commute.
		left := mpi.NewOp(func(in, inout []int32) { copy(inout, in) }, false)
		out := make([]int32, 3)
		must(mpi.Allreduce(c, fill(int32(c.Rank()+5), 3), out, left))
		are("the leftmost", out, fill(int32(5), 3))
		right := mpi.NewOp(func(in, inout []int32) {}, false)
		must(mpi.Allreduce(c, fill(int32(c.Rank()+5), 3), out, right))
		are("the rightmost", out, fill(int32(11), 3))
		return nil
	}},
	{file: "coll/allred5.c", ranks: 5, body: func(c *mpi.Comm) error {
		// Fewer elements than ranks, on a communicator of an odd size.
		for n := range 5 {
			out := make([]int64, n)
			must(mpi.Allreduce(c, given(c.Rank(), n), out, mpi.Sum))
			are("sum", out, sumOf(0, 5, n))
		}
		return nil
	}},
	{file: "coll/allred6.c", ranks: 7, body: func(c *mpi.Comm) error {
		for _, n := range sizes {
			out := make([]int64, n)
			must(mpi.Allreduce(c, given(c.Rank(), n), out, mpi.Max))
			are("maximum", out, given(6, n))
		}
		return nil
	}},
	{file: "coll/allred_float.c", ranks: 5, body: func(c *mpi.Comm) error {
		// All ranks get the same bits, in whatever order it was summed.
		x := make([]float64, 500)
		for i := range x {
			x[i] = math.Sin(float64(i*7+c.Rank())) * math.Pow(10, float64(i%30))
		}
		must(mpi.Allreduce(c, nil, x, mpi.Sum))
		all := make([]float64, 5*500)
		must(mpi.Allgather(c, x, all))
		for r := range 5 {
			are("bits", all[r*500:][:500], x)
		}
		return nil
	}},
	{file: "coll/allredmany.c", ranks: 4, body: func(c *mpi.Comm) error {
		for i := range 1000 {
			out := make([]int64, 1)
			must(mpi.Allreduce(c, []int64{int64(c.Rank() + i)}, out, mpi.Sum))
			is("sum", out[0], int64(6+4*i))
		}
		return nil
	}},
	{file: "coll/alltoall1.c", ranks: 8, body: func(c *mpi.Comm) error {
		for _, n := range []int{1, 8, 500} {
			var out, expect []int64
			for r := range 8 {
				out = append(out, fill(int64(100*c.Rank()+r), n)...)
				expect = append(expect, fill(int64(100*r+c.Rank()), n)...)
			}
			in := make([]int64, 8*n)
			must(mpi.Alltoall(c, out, in))
			are("exchanged", in, expect)
			must(mpi.Alltoall(c, nil, out))
			are("in place", out, expect)
		}
		return nil
	}},
	{file: "coll/alltoallv.c", ranks: 6, body: func(c *mpi.Comm) error {
		// Rank r gives rank d as many elements as d's rank.
		var sl, rl mpi.Layout
		var out, expect []int64
		for d := range 6 {
			sl.Counts, rl.Counts = append(sl.Counts, d), append(rl.Counts, c.Rank())
			out = append(out, fill(int64(10*c.Rank()+d), d)...)
			expect = append(expect, fill(int64(10*d+c.Rank()), c.Rank())...)
		}
		in := make([]int64, len(expect))
		must(mpi.Alltoallv(c, out, sl, in, rl))
		are("exchanged", in, expect)
		return nil
	}},
	{file: "coll/alltoallv0.c", ranks: 6, body: func(c *mpi.Comm) error {
		// Only neighbours of a ring have something for each other.
		n, me := 6, c.Rank()
		l := mpi.Layout{Counts: make([]int, n), Displs: make([]int, n)}
		left, right := (me+5)%6, (me+1)%6
		l.Counts[left], l.Counts[right], l.Displs[right] = 3, 3, 3
		in := make([]int64, 6)
		must(mpi.Alltoallv(c, append(fill(int64(me), 3), fill(int64(me+50), 3)...), l, in, l))
		are("exchanged", in, append(fill(int64(left+50), 3), fill(int64(right), 3)...))
		return nil
	}},
	{file: "coll/alltoallw1.c", ranks: 4, body: func(c *mpi.Comm) error {
		// A matrix in rows of blocks is transposed: columns go out, rows come in.
		const k = 3 // rows of a rank
		n := 4 * k
		rows, turned := make([]int64, k*n), make([]int64, k*n)
		for i := range rows {
			rows[i] = int64((c.Rank()*k+i/n)*1000 + i%n)
		}
		column := get(datatype.Resized(get(datatype.Vector(k, 1, n, i64)), 0, 8))
		block := get(datatype.Vector(k, k, n, i64))
		var send, recv []mpi.Buf
		for r := range 4 {
			send = append(send, mpi.NewBuf(rows[r*k:], k, column))
			recv = append(recv, mpi.NewBuf(turned[r*k:], 1, block))
		}
		must(mpi.Alltoallw(c, send, recv))
		for i, v := range turned {
			is("value", v, int64(i%n*1000+c.Rank()*k+i/n))
		}
		return nil
	}},
	{file: "coll/alltoallw2.c", ranks: 5, body: func(c *mpi.Comm) error {
		data := make([]int64, 5)
		var bufs []mpi.Buf
		for r := range data {
			data[r] = int64(10*c.Rank() + r)
			bufs = append(bufs, mpi.BufOf(data[r:r+1]))
		}
		must(mpi.Alltoallw(c, nil, bufs))
		for r, v := range data {
			is("in place", v, int64(10*r+c.Rank()))
		}
		return nil
	}},
	{file: "coll/alltoallw_zeros.c", ranks: 4, body: func(c *mpi.Comm) error {
		var bufs []mpi.Buf
		for r := range 4 {
			t := []*mpi.Type{i64, i32, get(datatype.Contiguous(0, i64)), f64}[r]
			bufs = append(bufs, mpi.NewBuf([]int64{}, map[bool]int{true: 5}[r == 2], t))
		}
		return mpi.Alltoallw(c, bufs, bufs)
	}},
	{file: "coll/bcast.c", ranks: 10, body: func(c *mpi.Comm) error {
		for root := range 10 {
			for _, n := range sizes[:4] {
				b := make([]int64, n)
				if c.Rank() == root {
					b = given(root, n)
				}
				must(mpi.Bcast(c, b, root))
				are("data", b, given(root, n))
			}
		}
		b := make([]int64, 200_000)
		if c.Rank() == 3 {
			b = given(3, len(b))
		}
		must(mpi.Bcast(c, b, 3))
		are("much data", b, given(3, len(b)))
		return nil
	}},
	{file: "coll/bcasttest.c", ranks: 4, body: func(c *mpi.Comm) error {
		// One broadcast after another, without waiting for the slowest.
		for i := range 500 {
			b := []int{i, -1}
			if c.Rank() == i%4 {
				b[1] = i * i
			}
			must(mpi.Bcast(c, b[1:], i%4))
			is("value", b[1], i*i)
		}
		return nil
	}},
	{file: "coll/bcastzerotype.c", ranks: 5, body: func(c *mpi.Comm) error {
		t := get(datatype.Contiguous(0, i64))
		for root := range 5 {
			must(c.BcastBuf(mpi.NewBuf([]int64{}, 100, t), root), mpi.Bcast(c, []int64{}, root))
		}
		return nil
	}},
	{file: "coll/coll2.c", ranks: 5, body: func(c *mpi.Comm) error {
		// Rows of a table, a rank's each.
		table := make([]int64, 5*10)
		must(mpi.Allgather(c, given(c.Rank(), 10), table))
		are("table", table, gathered(5, 10))
		return nil
	}},
	{file: "coll/coll6.c", ranks: 5, body: func(c *mpi.Comm) error {
		d := get(c.Split(c.Rank()/3, c.Rank()))
		l, total := uneven(d.Size(), 4)
		all := make([]int64, total)
		must(mpi.Allgatherv(d, given(d.Rank(), 4+d.Rank()), all, l))
		are("table", all, spaced(l, total))
		return d.Free()
	}},
	{file: "coll/coll8.c", ranks: 4, body: func(c *mpi.Comm) error {
		for i, o := range []mpi.Op{mpi.Sum, mpi.Min, mpi.Max} {
			out := []int{-100}
			must(mpi.Reduce(c, []int{c.Rank()}, out, o, 0), mpi.Bcast(c, out, 0))
			is("result", out[0], []int{6, 0, 3}[i])
		}
		return nil
	}},
	{file: "coll/coll9.c", ranks: 4, body: func(c *mpi.Comm) error {
		add := mpi.NewOp(func(in, inout []int) {
			for i := range in {
				inout[i] += in[i]
			}
		}, true)
		out := []int{-100}
		must(mpi.Reduce(c, []int{c.Rank()}, out, add, 2), mpi.Bcast(c, out, 2))
		is("sum", out[0], 6)
		return nil
	}},
	{file: "coll/coll10.c", ranks: 6, body: func(c *mpi.Comm) error {
		for root := range 6 {
			out := make([]affine, 3)
			must(c.ReduceBuf(mpi.BufOf(affines(c.Rank(), 3)), mpi.BufOf(out), composition, root))
			if c.Rank() == root {
				are("composed", out, composed(0, 6, 3))
			}
		}
		return nil
	}},
	{file: "coll/coll12.c", ranks: 4, body: func(c *mpi.Comm) error {
		// The largest of each column, and the lowest row that has it.
		table := [][]int32{{3, 9, 0}, {5, 9, 0}, {5, 2, 0}, {1, 9, 0}}
		in, out := make([]mpi.Loc[int32], 3), make([]mpi.Loc[int32], 3)
		for i, v := range table[c.Rank()] {
			in[i] = mpi.Loc[int32]{Value: v, Index: int64(c.Rank())}
		}
		must(c.ReduceBuf(mpi.BufOf(in), mpi.BufOf(out), mpi.MaxLoc, 0))
		if c.Rank() == 0 {
			are("places", out, []mpi.Loc[int32]{{Value: 5, Index: 1}, {Value: 9}, {}})
		}
		return nil
	}},
	{file: "coll/coll13.c", ranks: 6, body: func(c *mpi.Comm) error {
		for chunk := 1; chunk < 2000; chunk *= 5 {
			in := make([]int32, chunk*6)
			must(mpi.Alltoall(c, fill(int32(c.Rank()+1), chunk*6), in))
			for r := range 6 {
				is("value", in[r*chunk], int32(r+1))
			}
		}
		return nil
	}},
}
