package mpi_test

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/meshmpi/meshmpi/mpi"
	"github.com/meshmpi/meshmpi/mpi/datatype"
)

// typed is a type with buffers of it to send and to receive into.
type typed struct {
	t     *mpi.Type
	elems int // int64s that an item spans
}

func (t typed) buf(count int, full bool) mpi.Buf {
	mem := make([]int64, t.elems*max(count, 1))
	if full {
		copy(mem, given(1, len(mem)))
	}
	return mpi.NewBuf(mem, count, t.t)
}

// exchanged are types of every form.
func exchanged() []typed {
	i := datatype.Basic(datatype.Int64)
	return []typed{
		{i, 1}, {get(datatype.Contiguous(3, i)), 3}, {get(datatype.Vector(4, 2, 3, i)), 11},
		{get(datatype.Hvector(3, 1, 24, i)), 7}, {get(datatype.Indexed([]int{2, 0, 1}, []int{4, 1, 0}, i)), 6},
		{get(datatype.Struct([]int{1, 2}, []int{0, 16}, []*mpi.Type{i, datatype.Basic(datatype.Int32)})), 3},
		{get(datatype.Subarray([]int{3, 4}, []int{2, 2}, []int{1, 1}, datatype.C, i)), 12},
		{get(datatype.Resized(i, 0, 32)), 4},
	}
}

// shape ends the case unless a type has a size, lower bound and extent in bytes.
func shape(t *mpi.Type, size, lb, extent int) {
	if t.Size() != size || t.LB() != lb || t.Extent() != extent {
		endCase(fmt.Errorf("%v: size %d, lower bound %d, extent %d; want %d, %d, %d", t, t.Size(), t.LB(), t.Extent(), size, lb, extent))
	}
}

// packed ends the case unless the packed items are the elements of mem at the
// given indices, and unpack to there again.
func packed(t *mpi.Type, count, elems int, at ...int) {
	mem := given(1, elems)
	m := get(mpi.Pack(nil, mpi.NewBuf(mem, count, t)))
	expect := make([]int64, len(at))
	for i, j := range at {
		expect[i] = mem[j]
	}
	flat := make([]int64, len(at))
	rest := get(mpi.Unpack(m, mpi.BufOf(flat)))
	is("bytes left", len(rest), 0)
	if err := want("packed", flat, expect); err != nil {
		endCase(err)
	}
	back, target := make([]int64, elems), make([]int64, elems)
	for _, j := range at {
		target[j] = mem[j]
	}
	get(mpi.Unpack(m, mpi.NewBuf(back, count, t)))
	if err := want("unpacked", back, target); err != nil {
		endCase(err)
	}
}

// local is a case of one rank that sends nothing.
func local(file string, body func()) mpichCase {
	return mpichCase{file: file, ranks: 1, body: func(*mpi.Comm) error { body(); return nil }}
}

var i64, i32, f64 = datatype.Basic(datatype.Int64), datatype.Basic(datatype.Int32), datatype.Basic(datatype.Float64)

var mpichDatatype = []mpichCase{
	local("datatype/blockindexed_misc.c", func() {
		t := get(datatype.IndexedBlock(1, []int{4, 0, 2}, i64))
		shape(t, 24, 0, 40)
		packed(t, 1, 5, 4, 0, 2)
		packed(get(datatype.IndexedBlock(2, []int{3, 0}, i64)), 1, 5, 3, 4, 0, 1)
	}),
	local("datatype/blockindexed_zero_count.c", func() {
		for _, t := range []*mpi.Type{get(datatype.IndexedBlock(0, nil, i64)), get(datatype.IndexedBlock(0, []int{1, 2}, i64)), get(datatype.IndexedBlock(3, nil, i64))} {
			shape(t, 0, 0, 0)
			packed(t, 5, 1)
		}
	}),
	local("datatype/contents.c", func() {
		v := get(datatype.Vector(3, 2, 5, i64))
		c := v.Contents()
		is("combiner", c.Combiner, datatype.VectorOf)
		are("integers", c.Ints, []int{3, 2, 5})
		is("type", c.Types[0], i64)
		h := get(datatype.Hindexed([]int{1, 2}, []int{8, 32}, v)).Contents()
		are("integers", h.Ints, []int{2, 1, 2})
		are("addresses", h.Addrs, []int{8, 32})
		is("made from", h.Types[0], v)
		is("of a named one", i64.Contents().Combiner, datatype.Named)
	}),
	local("datatype/contig_zero_count.c", func() {
		shape(get(datatype.Contiguous(0, i64)), 0, 0, 0)
		packed(get(datatype.Contiguous(0, i64)), 3, 1)
	}),
	local("datatype/contigstruct.c", func() {
		s := get(datatype.Struct([]int{1, 1}, []int{0, 4}, []*mpi.Type{i32, i32}))
		c := get(datatype.Contiguous(3, s))
		shape(c, 24, 0, 24)
		_, whole := c.Contiguous(2)
		is("in one piece", whole, true)
	}),
	local("datatype/darray_pack.c", func() {
		// 4 × 4 over 2 × 2 processes: rank 1 has the upper right block.
		d := get(datatype.Darray(4, 1, []int{4, 4}, []datatype.Dist{datatype.Block, datatype.Block}, []int{datatype.DefaultArg, datatype.DefaultArg}, []int{2, 2}, datatype.C, i64))
		shape(d, 32, 0, 128)
		packed(d, 1, 16, 2, 3, 6, 7)
	}),
	local("datatype/darray_cyclic.c", func() {
		d := get(datatype.Darray(2, 1, []int{7}, []datatype.Dist{datatype.Cyclic}, []int{2}, []int{2}, datatype.C, i64))
		packed(d, 1, 7, 2, 3, 6)
		f := get(datatype.Darray(3, 2, []int{2, 5}, []datatype.Dist{datatype.None, datatype.Cyclic}, []int{datatype.DefaultArg, 1}, []int{1, 3}, datatype.Fortran, i64))
		packed(f, 1, 10, 4, 5)
	}),
	local("datatype/get_elements.c", func() {
		s := get(datatype.Struct([]int{1, 1}, []int{0, 8}, []*mpi.Type{i64, i32}))
		for bytes, elems := range map[int]int{0: 0, 8: 1, 12: 2, 20: 3, 24: 4, 32: 5} {
			n, ok := s.Elements(bytes)
			is(fmt.Sprint("elements of ", bytes), n, elems)
			is("whole", ok, true)
		}
		_, ok := s.Elements(10)
		is("a cut one is whole", ok, false)
	}),
	{file: "datatype/getpartelm.c", ranks: 2, body: func(c *mpi.Comm) error {
		// Half of an item is received.
		pair := get(datatype.Contiguous(2, i32))
		if c.Rank() == 0 {
			return mpi.Send(c, []int32{1, 2, 3}, 1, 0)
		}
		in := make([]int32, 10)
		st := get(c.RecvBuf(mpi.NewBuf(in, 5, pair), 0, 0))
		n, ok := pair.Elements(int(st.Bytes))
		is("elements", n, 3)
		is("whole elements", ok, true)
		are("received", in[:4], []int32{1, 2, 3, 0})
		return nil
	}},
	local("datatype/hindexed_block.c", func() {
		t := get(datatype.HindexedBlock(2, []int{32, 0}, i64))
		shape(t, 32, 0, 48)
		packed(t, 1, 6, 4, 5, 0, 1)
	}),
	local("datatype/hindexed_block_contents.c", func() {
		c := get(datatype.HindexedBlock(2, []int{32, 0, 8}, i64)).Contents()
		is("combiner", c.Combiner, datatype.HindexedBlockOf)
		are("integers", c.Ints, []int{3, 2})
		are("addresses", c.Addrs, []int{32, 0, 8})
	}),
	local("datatype/hindexed_zeros.c", func() {
		packed(get(datatype.Hindexed([]int{0, 1, 0, 2}, []int{800, 8, 80, 24}, i64)), 1, 5, 1, 3, 4)
		shape(get(datatype.Hindexed([]int{0, 1}, []int{800, 8}, i64)), 8, 8, 8)
	}),
	local("datatype/indexed_misc.c", func() {
		t := get(datatype.Indexed([]int{1, 2, 1}, []int{0, 3, 7}, i64))
		shape(t, 32, 0, 64)
		packed(t, 2, 16, 0, 3, 4, 7, 8, 11, 12, 15)
		packed(get(datatype.Indexed([]int{3, 3}, []int{3, 0}, i64)), 1, 6, 3, 4, 5, 0, 1, 2)
	}),
	local("datatype/large_count.c", func() {
		// Sizes that fit no 32 bits, of no memory at all.
		t := get(datatype.Contiguous(1<<20, get(datatype.Vector(1<<16, 1, 2, i64))))
		is("size", t.Size(), 1<<39)
		n, ok := t.Elements(1 << 39)
		is("elements", n, 1<<36)
		is("whole", ok, true)
		if _, err := datatype.Contiguous(math.MaxInt/4, i64); err == nil {
			endCase(fmt.Errorf("a type larger than the memory is made"))
		}
	}),
	local("datatype/lbub.c", func() {
		r := get(datatype.Resized(i32, -4, 12))
		shape(r, 4, -4, 12)
		shape(get(datatype.Contiguous(3, r)), 12, -4, 36)
		shape(get(datatype.Vector(2, 1, -1, r)), 8, -16, 24)
		shape(get(datatype.Struct([]int{2, 1}, []int{0, 100}, []*mpi.Type{r, i32})), 12, -4, 24) // bounds that were set hide those of the rest
	}),
	local("datatype/localpack.c", func() {
		var m []byte
		m = get(mpi.Pack(m, mpi.BufOf([]int32{5})))
		m = get(mpi.Pack(m, mpi.BufOf([]float64{2.5, -1})))
		n, f := make([]int32, 1), make([]float64, 2)
		rest := get(mpi.Unpack(get(mpi.Unpack(m, mpi.BufOf(n))), mpi.BufOf(f)))
		is("left", len(rest), 0)
		is("values", fmt.Sprint(n, f), "[5] [2.5 -1]")
		refused("more than there is", second(mpi.Unpack(rest, mpi.BufOf(n))), mpi.ErrTruncate)
	}),
	local("datatype/lots_of_types.c", func() {
		for i := range 2000 {
			t := get(datatype.Vector(i%7+1, i%3+1, 5, get(datatype.Contiguous(i%5+1, i64))))
			is("size", t.Size(), 8*(i%7+1)*(i%3+1)*(i%5+1))
		}
	}),
	local("datatype/pack_external.c", func() {
		type mixed struct {
			A int16
			B float32
			C bool
			D [2]int64
		}
		in := []mixed{{-2, 1.5, true, [2]int64{1, -1}}}
		m := get(mpi.PackExternal(nil, mpi.BufOf(in)))
		is("bytes", len(m), 2+4+1+16)
		is("the big end first", binary.BigEndian.Uint16(m), 0xfffe)
		is("a real number", binary.BigEndian.Uint32(m[2:]), math.Float32bits(1.5))
		out := make([]mixed, 1)
		get(mpi.UnpackExternal(m, mpi.BufOf(out)))
		are("values", out, in)
	}),
	local("datatype/pairtype_pack.c", func() {
		in := []mpi.Loc[int16]{{Value: 3, Index: 4}, {Value: -3, Index: 1 << 40}}
		m := get(mpi.Pack(nil, mpi.BufOf(in)))
		is("bytes without the gap", len(m), 20)
		out := make([]mpi.Loc[int16], 2)
		get(mpi.Unpack(m, mpi.BufOf(out)))
		are("values", out, in)
	}),
	local("datatype/pairtype_size_extent.c", func() {
		for kind, size := range map[datatype.Kind]int{datatype.Int16: 10, datatype.Int32: 12, datatype.Int64: 16, datatype.Float64: 16, datatype.Float32: 12} {
			shape(datatype.LocType(kind), size, 0, 16)
		}
	}),
	{file: "datatype/sendrecvt2.c", ranks: 2, body: func(c *mpi.Comm) error {
		// Different types of one signature.
		for _, t := range exchanged() {
			if n := t.t.Size() / 8; t.t.Signature(1) == i64.Signature(n) {
				if c.Rank() == 0 {
					must(c.SendBuf(t.buf(1, true), 1, n))
					continue
				}
				in := make([]int64, n)
				is("count", mpi.Count[int64](get(mpi.Recv(c, in, 0, n))), n)
			}
		}
		return nil
	}},
	local("datatype/slice_pack.c", func() {
		packed(get(datatype.Subarray([]int{3, 3, 3}, []int{3, 1, 3}, []int{0, 1, 0}, datatype.C, i64)), 1, 27, 3, 4, 5, 12, 13, 14, 21, 22, 23)
	}),
	local("datatype/simple_pack_external.c", func() {
		m := get(mpi.PackExternal(nil, mpi.NewBuf(given(2, 9), 1, get(datatype.Vector(3, 1, 4, i64)))))
		is("bytes", len(m), 24)
		for i := range 3 {
			is("value", int64(binary.BigEndian.Uint64(m[8*i:])), given(2, 9)[4*i])
		}
	}),
	local("datatype/simple_resized.c", func() {
		t := get(datatype.Resized(i64, 0, 24))
		shape(t, 8, 0, 24)
		packed(t, 3, 9, 0, 3, 6)
	}),
	local("datatype/sizedtypes.c", func() {
		for kind, size := range map[datatype.Kind]int{datatype.Int8: 1, datatype.Uint16: 2, datatype.Float32: 4, datatype.Complex64: 8, datatype.Complex128: 16, datatype.Bool: 1} {
			shape(datatype.Basic(kind), size, 0, size)
		}
	}),
	local("datatype/struct_derived_zeros.c", func() {
		v := get(datatype.Vector(2, 1, 2, i64))
		t := get(datatype.Struct([]int{0, 1, 0}, []int{0, 8, 99}, []*mpi.Type{i32, v, f64}))
		shape(t, 16, 8, 24)
		packed(t, 1, 4, 1, 3)
	}),
	local("datatype/struct_verydeep.c", func() {
		t := i64
		for range 100 {
			t = get(datatype.Struct([]int{1}, []int{8}, []*mpi.Type{t}))
		}
		shape(t, 8, 800, 8)
		packed(t, 1, 101, 100)
	}),
	local("datatype/structpack2.c", func() {
		t := get(datatype.Struct([]int{1, 1}, []int{8, 0}, []*mpi.Type{i64, i64}))
		packed(t, 2, 4, 1, 0, 3, 2)
	}),
	local("datatype/subarray.c", func() {
		packed(get(datatype.Subarray([]int{4, 5}, []int{2, 3}, []int{1, 2}, datatype.C, i64)), 1, 20, 7, 8, 9, 12, 13, 14)
		packed(get(datatype.Subarray([]int{4, 5}, []int{2, 3}, []int{1, 2}, datatype.Fortran, i64)), 1, 20, 9, 10, 13, 14, 17, 18)
	}),
	local("datatype/transpose_pack.c", func() {
		row := get(datatype.Resized(get(datatype.Vector(3, 1, 4, i64)), 0, 8))
		packed(row, 4, 12, 0, 4, 8, 1, 5, 9, 2, 6, 10, 3, 7, 11)
	}),
	local("datatype/tresized2.c", func() {
		// Items that overlap their neighbours' bounds.
		t := get(datatype.Resized(get(datatype.Contiguous(2, i64)), 0, 8))
		m := get(mpi.Pack(nil, mpi.NewBuf([]int64{1, 2, 3, 4}, 3, t)))
		out := make([]int64, 6)
		get(mpi.Unpack(m, mpi.BufOf(out)))
		are("values", out, []int64{1, 2, 2, 3, 3, 4})
	}),
	local("datatype/triangular_pack.c", func() {
		packed(get(datatype.Indexed([]int{1, 2, 3}, []int{0, 3, 6}, i64)), 1, 9, 0, 3, 4, 6, 7, 8)
	}),
	local("datatype/unusual_noncontigs.c", func() {
		packed(get(datatype.Hvector(3, 1, -16, get(datatype.Hindexed([]int{1}, []int{32}, i64)))), 1, 5, 4, 2, 0)
		packed(get(datatype.Vector(2, 2, 3, get(datatype.Vector(2, 1, 2, i64)))), 1, 15, 0, 2, 3, 5, 9, 11, 12, 14)
	}),
	local("datatype/zeroblks.c", func() {
		packed(get(datatype.Indexed([]int{0, 2, 0, 1, 0}, []int{9, 0, 9, 4, 9}, i64)), 1, 5, 0, 1, 4)
	}),
	local("datatype/zeroparms.c", func() {
		for _, t := range []*mpi.Type{
			get(datatype.Contiguous(0, i64)), get(datatype.Vector(0, 1, 1, i64)), get(datatype.Vector(3, 0, 1, i64)), get(datatype.Hvector(0, 0, 0, i64)),
			get(datatype.Indexed(nil, nil, i64)), get(datatype.Struct(nil, nil, nil)),
		} {
			shape(t, 0, 0, 0)
			packed(t, 2, 1)
		}
	}),
}
