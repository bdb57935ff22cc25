package mpi_test

import (
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/meshmpi/meshmpi/mpi"
	"github.com/meshmpi/meshmpi/mpi/datatype"
)

// opCase reduces values of three ranks by an operation at every rank and place.
func opCase[T mpi.Scalar](c *mpi.Comm, o mpi.Op, values [3]T, want T) {
	for root := range 3 {
		out := make([]T, 4)
		if err := mpi.Reduce(c, fill(values[c.Rank()], 4), out, o, root); err != nil {
			endCase(err)
		}
		if c.Rank() == root && !slices.Equal(out, fill(want, 4)) {
			endCase(fmt.Errorf("%T at root %d: %v, want %v", want, root, out, want))
		}
	}
	out := make([]T, 4)
	if err := mpi.Allreduce(c, fill(values[c.Rank()], 4), out, o); err != nil {
		endCase(err)
	}
	if !slices.Equal(out, fill(want, 4)) {
		endCase(fmt.Errorf("%T: %v, want %v", want, out, want))
	}
}

var mpichOps = []mpichCase{
	{file: "coll/opband.c", ranks: 3, body: func(c *mpi.Comm) error {
		opCase(c, mpi.BAnd, [3]uint8{0xff, 0xf3, 0x3c}, 0x30)
		opCase(c, mpi.BAnd, [3]int64{-1, -4, 7}, 4)
		refused("of reals", mpi.Allreduce(c, nil, []float64{1}, mpi.BAnd), mpi.ErrOp)
		return nil
	}},
	{file: "coll/opbor.c", ranks: 3, body: func(c *mpi.Comm) error {
		opCase(c, mpi.BOr, [3]uint16{1, 2, 0x100}, 0x103)
		opCase(c, mpi.BOr, [3]int32{0, -8, 3}, -5)
		refused("of complex numbers", mpi.Allreduce(c, nil, []complex64{1}, mpi.BOr), mpi.ErrOp)
		return nil
	}},
	{file: "coll/opbxor.c", ranks: 3, body: func(c *mpi.Comm) error {
		opCase(c, mpi.BXor, [3]uint64{0xf0, 0xff, 1 << 60}, 0x0f|1<<60)
		opCase(c, mpi.BXor, [3]int8{1, 1, 1}, 1)
		return nil
	}},
	{file: "coll/opland.c", ranks: 3, body: func(c *mpi.Comm) error {
		opCase(c, mpi.LAnd, [3]bool{true, true, true}, true)
		opCase(c, mpi.LAnd, [3]bool{true, false, true}, false)
		opCase(c, mpi.LAnd, [3]int{5, -1, 1 << 40}, 1)
		return nil
	}},
	{file: "coll/oplor.c", ranks: 3, body: func(c *mpi.Comm) error {
		opCase(c, mpi.LOr, [3]bool{false, false, false}, false)
		opCase(c, mpi.LOr, [3]int16{0, 0, -7}, 1)
		return nil
	}},
	{file: "coll/oplxor.c", ranks: 3, body: func(c *mpi.Comm) error {
		opCase(c, mpi.LXor, [3]uint32{7, 8, 9}, 1)
		opCase(c, mpi.LXor, [3]bool{true, true, false}, false)
		return nil
	}},
	{file: "coll/opmax.c", ranks: 3, body: func(c *mpi.Comm) error {
		opCase(c, mpi.Max, [3]int8{-128, 127, 0}, 127)
		opCase(c, mpi.Max, [3]uint8{3, 255, 0}, 255)
		opCase(c, mpi.Max, [3]float32{-2, -1.5, -3}, -1.5)
		refused("of complex numbers", mpi.Allreduce(c, nil, []complex128{1}, mpi.Max), mpi.ErrOp)
		return nil
	}},
	{file: "coll/opmin.c", ranks: 3, body: func(c *mpi.Comm) error {
		opCase(c, mpi.Min, [3]int64{-1 << 63, 0, 5}, -1<<63)
		opCase(c, mpi.Min, [3]uint64{1 << 63, 1<<63 + 1, 1<<64 - 1}, 1<<63)
		opCase(c, mpi.Min, [3]float64{1e300, 1e-300, 2}, 1e-300)
		return nil
	}},
	{file: "coll/opprod.c", ranks: 3, body: func(c *mpi.Comm) error {
		opCase(c, mpi.Prod, [3]int16{3, -4, 5}, -60)
		opCase(c, mpi.Prod, [3]complex64{1i, 1i, 2}, -2)
		opCase(c, mpi.Prod, [3]float32{0.5, 4, 8}, 16)
		return nil
	}},
	{file: "coll/opsum.c", ranks: 3, body: func(c *mpi.Comm) error {
		opCase(c, mpi.Sum, [3]int8{100, 20, 7}, 127)
		opCase(c, mpi.Sum, [3]complex128{1 + 2i, 3, -1i}, 4+1i)
		opCase(c, mpi.Sum, [3]uint16{65535, 1, 1}, 1) // around, as Go's numbers do
		refused("of booleans", mpi.Allreduce(c, nil, []bool{true}, mpi.Sum), mpi.ErrOp)
		return nil
	}},
	{file: "coll/opmaxloc.c", ranks: 3, body: func(c *mpi.Comm) error {
		in := []mpi.Loc[float64]{{Value: []float64{1, 7, 7}[c.Rank()], Index: int64(9 - c.Rank())}}
		must(c.AllreduceBuf(mpi.Buf{}, mpi.BufOf(in), mpi.MaxLoc))
		is("place", in[0], mpi.Loc[float64]{Value: 7, Index: 7})
		refused("of bare numbers", mpi.Allreduce(c, nil, []float64{1}, mpi.MaxLoc), mpi.ErrOp)
		return nil
	}},
	{file: "coll/opminloc.c", ranks: 3, body: func(c *mpi.Comm) error {
		in := []mpi.Loc[int16]{{Value: 4, Index: int64(c.Rank() + 2)}, {Value: int16(-c.Rank()), Index: int64(c.Rank())}}
		out := make([]mpi.Loc[int16], 2)
		must(c.AllreduceBuf(mpi.BufOf(in), mpi.BufOf(out), mpi.MinLoc))
		are("places", out, []mpi.Loc[int16]{{Value: 4, Index: 2}, {Value: -2, Index: 2}})
		return nil
	}},
	{file: "coll/op_commutative.c", ranks: 1, body: func(*mpi.Comm) error {
		f := func(in, inout []int) {}
		is("sum", mpi.Sum.Commutes(), true)
		is("replace", mpi.Replace.Commutes(), false)
		refused("a reduction by it", mpi.LocalReduce([]int{1}, []int{2}, mpi.Replace), mpi.ErrOp)
		refused("one by nothing", mpi.LocalReduce([]int{1}, []int{2}, mpi.NoOp), mpi.ErrOp)
		is("one that does", mpi.NewOp(f, true).Commutes(), true)
		is("one that does not", mpi.NewOp(f, false).Commutes(), false)
		return nil
	}},
	{file: "coll/op_coll.c", ranks: 5, body: func(c *mpi.Comm) error {
		const n = 10
		me := c.Rank()
		out := make([]int64, n)
		must(mpi.Scan(c, given(me, n), out, mpi.Sum))
		are("scan", out, sumOf(0, me+1, n))
		must(mpi.Exscan(c, given(me, n), out, mpi.Sum))
		if me > 0 {
			are("exscan", out, sumOf(0, me, n))
		}
		must(mpi.ReduceScatterBlock(c, given(me, 5*n), out, mpi.Sum))
		are("reduce_scatter_block", out, sumOf(0, 5, 5*n)[me*n:][:n])
		return nil
	}},
	{file: "coll/longuser.c", ranks: 4, body: func(c *mpi.Comm) error {
		// What may be cut into pieces is cut between elements.
		const n = 30_000
		out := make([]affine, n)
		must(c.AllreduceBuf(mpi.BufOf(affines(c.Rank(), n)), mpi.BufOf(out), composition))
		are("composed", out, composed(0, 4, n))
		return nil
	}},
	{file: "coll/uoplong.c", ranks: 5, body: func(c *mpi.Comm) error {
		type triple struct{ Sum, Max, Min float64 }
		o := mpi.NewOp(func(in, inout []triple) {
			for i, a := range in {
				b := inout[i]
				inout[i] = triple{a.Sum + b.Sum, max(a.Max, b.Max), min(a.Min, b.Min)}
			}
		}, true)
		for n := 1; n <= 1<<16; n *= 16 {
			r := float64(c.Rank())
			out := make([]triple, n)
			must(c.ReduceBuf(mpi.BufOf(fill(triple{r, r, r}, n)), mpi.BufOf(out), o, 0))
			if c.Rank() == 0 {
				are("triples", out, fill(triple{10, 4, 0}, n))
			}
		}
		return nil
	}},
	{file: "coll/uop_equal.c", ranks: 4, body: func(c *mpi.Comm) error {
		type text struct {
			Same bool
			Of   [12]byte
		}
		equal := mpi.NewOp(func(in, inout []text) {
			for i := range in {
				inout[i].Same = in[i].Same && inout[i].Same && in[i].Of == inout[i].Of
			}
		}, true)
		for _, different := range []int{-1, 2} {
			t := []text{{Same: true, Of: [12]byte{'a', 'b'}}}
			if c.Rank() == different {
				t[0].Of[0] = 'x'
			}
			must(c.AllreduceBuf(mpi.Buf{}, mpi.BufOf(t), equal))
			is("the same", t[0].Same, different < 0)
		}
		return nil
	}},
	{file: "coll/reduce.c", ranks: 7, body: func(c *mpi.Comm) error {
		for root := range 7 {
			for _, n := range sizes {
				out := make([]int64, n)
				must(mpi.Reduce(c, given(c.Rank(), n), out, mpi.Sum, root))
				if c.Rank() == root {
					are("sum", out, sumOf(0, 7, n))
				}
			}
		}
		return nil
	}},
	{file: "coll/red3.c", ranks: 10, body: func(c *mpi.Comm) error {
		for _, n := range sizes[:4] {
			out := make([]affine, n)
			must(c.ReduceBuf(mpi.BufOf(affines(c.Rank(), n)), mpi.BufOf(out), composition, 7))
			if c.Rank() == 7 {
				are("composed", out, composed(0, 10, n))
			}
		}
		return nil
	}},
	{file: "coll/red4.c", ranks: 7, body: func(c *mpi.Comm) error {
		b := affines(c.Rank(), 50)
		send, recv := mpi.BufOf(b), mpi.Buf{}
		if c.Rank() == 2 {
			send, recv = recv, send
		}
		must(c.ReduceBuf(send, recv, composition, 2))
		if c.Rank() == 2 {
			are("in place", b, composed(0, 7, 50))
		}
		return nil
	}},
	{file: "coll/reduce_local.c", ranks: 1, body: func(*mpi.Comm) error {
		a := []int{1, 2, 3}
		must(mpi.LocalReduce([]int{10, 20, 30}, a, mpi.Sum))
		are("sum", a, []int{11, 22, 33})
		left := mpi.NewOp(func(in, inout []int) { copy(inout, in) }, false)
		must(mpi.LocalReduce([]int{4, 5, 6}, a, left))
		are("the left one", a, []int{4, 5, 6})
		return mpi.LocalReduce([]int{}, []int{}, mpi.Max)
	}},
	{file: "coll/redscat.c", ranks: 6, body: func(c *mpi.Comm) error {
		counts := []int{3, 0, 5, 1, 1, 2}
		out := make([]int64, counts[c.Rank()])
		must(mpi.ReduceScatter(c, given(c.Rank(), 12), out, counts, mpi.Sum))
		at := 0
		for _, k := range counts[:c.Rank()] {
			at += k
		}
		are("my block", out, sumOf(0, 6, 12)[at:][:len(out)])
		return nil
	}},
	{file: "coll/redscat2.c", ranks: 5, body: func(c *mpi.Comm) error {
		out := make([]int32, 3)
		for _, side := range []int{0, 4} {
			pick := mpi.NewOp(func(in, inout []int32) {
				if side == 0 {
					copy(inout, in)
				}
			}, false)
			in := make([]int32, 15)
			for i := range in {
				in[i] = int32(100*c.Rank() + i)
			}
			must(mpi.ReduceScatter(c, in, out, fill(3, 5), pick))
			for i := range out {
				is("picked", out[i], int32(100*side+3*c.Rank()+i))
			}
		}
		return nil
	}},
	{file: "coll/redscat3.c", ranks: 8, body: func(c *mpi.Comm) error {
		const n = 10_000
		out := make([]int64, n)
		must(mpi.ReduceScatter(c, given(c.Rank(), 8*n), out, fill(n, 8), mpi.Sum))
		are("my block", out, sumOf(0, 8, 8*n)[c.Rank()*n:][:n])
		return nil
	}},
	{file: "coll/red_scat_block.c", ranks: 7, body: func(c *mpi.Comm) error {
		for _, n := range sizes[:4] {
			b := given(c.Rank(), 7*n)
			must(mpi.ReduceScatterBlock(c, nil, b, mpi.Sum))
			are("in place", b[:n], sumOf(0, 7, 7*n)[c.Rank()*n:][:n])
		}
		return nil
	}},
	{file: "coll/red_scat_block2.c", ranks: 6, body: func(c *mpi.Comm) error {
		for _, n := range []int{1, 9, 700} {
			out := make([]affine, n)
			must(c.ReduceScatterBlockBuf(mpi.BufOf(affines(c.Rank(), 6*n)), mpi.BufOf(out), composition))
			are("my block", out, composed(0, 6, 6*n)[c.Rank()*n:][:n])
		}
		return nil
	}},
	{file: "coll/exscan.c", ranks: 10, body: func(c *mpi.Comm) error {
		for _, n := range sizes[:4] {
			out := fill(int64(-7), n)
			must(mpi.Exscan(c, given(c.Rank(), n), out, mpi.Sum))
			if c.Rank() == 0 {
				are("untouched", out, fill(int64(-7), n))
			} else {
				are("sum below", out, sumOf(0, c.Rank(), n))
			}
		}
		return nil
	}},
	{file: "coll/exscan2.c", ranks: 5, body: func(c *mpi.Comm) error {
		b := affines(c.Rank(), 4)
		must(c.ExscanBuf(mpi.Buf{}, mpi.BufOf(b), composition))
		if c.Rank() > 0 {
			are("in place", b, composed(0, c.Rank(), 4))
		}
		return nil
	}},
	{file: "coll/scantst.c", ranks: 6, body: func(c *mpi.Comm) error {
		for _, n := range sizes[:4] {
			out := make([]affine, n)
			must(c.ScanBuf(mpi.BufOf(affines(c.Rank(), n)), mpi.BufOf(out), composition))
			are("composed", out, composed(0, c.Rank()+1, n))
			sum := given(c.Rank(), n)
			must(mpi.Scan(c, nil, sum, mpi.Sum))
			are("in place", sum, sumOf(0, c.Rank()+1, n))
		}
		return nil
	}},
	{file: "coll/nonblocking3.c", ranks: 4, body: func(c *mpi.Comm) error {
		// Many at a time, completed in any order by any of the calls.
		rng := rand.New(rand.NewPCG(1, 2)) // the same choice at all ranks
		mine := rand.New(rand.NewPCG(3, uint64(c.Rank())))
		var rs []mpi.Request
		var checks []func() error
		for range 300 {
			n, root := rng.IntN(40), rng.IntN(4)
			out := make([]int64, n)
			switch rng.IntN(4) {
			case 0:
				rs = append(rs, get(mpi.Iallreduce(c, given(c.Rank(), n), out, mpi.Sum)))
				checks = append(checks, func() error { return want("sum", out, sumOf(0, 4, n)) })
			case 1:
				if c.Rank() == root {
					copy(out, given(root, n))
				}
				rs = append(rs, get(mpi.Ibcast(c, out, root)))
				checks = append(checks, func() error { return want("broadcast", out, given(root, n)) })
			case 2:
				rs = append(rs, get(mpi.Ibarrier(c)))
				checks = append(checks, func() error { return nil })
			case 3:
				rs = append(rs, get(mpi.Iscan(c, given(c.Rank(), n), out, mpi.Sum)))
				checks = append(checks, func() error { return want("scan", out, sumOf(0, c.Rank()+1, n)) })
			}
			if len(rs) == 20 {
				must(finishSome(mine, rs, checks))
				rs, checks = nil, nil
			}
		}
		return finishSome(mine, rs, checks)
	}},
	{file: "coll/scattern.c", ranks: 4, body: func(c *mpi.Comm) error {
		// Every third number of the root goes out, single numbers come in.
		t := get(datatype.Resized(get(datatype.Vector(2, 1, 3, i64)), 0, 48))
		all := given(0, 24)
		in := make([]int64, 2)
		must(c.ScatterBuf(mpi.NewBuf(all, 4, t), mpi.BufOf(in), 0))
		are("mine", in, []int64{given(0, 24)[6*c.Rank()], given(0, 24)[6*c.Rank()+3]})
		return nil
	}},
}

// finishSome completes requests in an order of chance and checks their results.
func finishSome(rng *rand.Rand, rs []mpi.Request, checks []func() error) error {
	for {
		var ended []int
		var err error
		switch rng.IntN(3) {
		case 0:
			i, _, e := mpi.WaitAny(rs)
			if i < 0 {
				return e
			}
			ended, err = []int{i}, e
		case 1:
			ended, _, err = mpi.WaitSome(rs)
		case 2:
			ended, _, err = mpi.TestSome(rs)
		}
		if err != nil {
			return err
		}
		for _, i := range ended {
			if err := checks[i](); err != nil {
				return err
			}
		}
	}
}
