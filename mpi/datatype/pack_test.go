package datatype

import (
	"bytes"
	"encoding/hex"
	"errors"
	"math"
	"math/bits"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// must is for types that the test knows to be right.
func must(t testing.TB) func(*Type, error) *Type {
	return func(dt *Type, err error) *Type {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return dt
	}
}

func TestConstructorsRefuse(t *testing.T) {
	i32, two := Basic(Int32), []int{1, 1}
	for _, tt := range []struct {
		name string
		make func() (*Type, error)
		want error
	}{
		{"negative count", func() (*Type, error) { return Contiguous(-1, i32) }, ErrCount},
		{"nil type", func() (*Type, error) { return Contiguous(1, nil) }, ErrType},
		{"type of an invalid kind", func() (*Type, error) { return Contiguous(1, Basic(numKinds)) }, ErrType},
		{"nil dup", func() (*Type, error) { return Dup(nil) }, ErrType},
		{"nil resized", func() (*Type, error) { return Resized(nil, 0, 1) }, ErrType},
		{"resized beyond an int", func() (*Type, error) { return Resized(i32, maxInt, 1) }, ErrOverflow},
		{"vector's block", func() (*Type, error) { return Vector(1, -1, 1, i32) }, ErrCount},
		{"hvector's count", func() (*Type, error) { return Hvector(-1, 1, 1, i32) }, ErrCount},
		{"vector of nil", func() (*Type, error) { return Vector(1, 1, 1, nil) }, ErrType},
		{"indexed, lists", func() (*Type, error) { return Indexed(two, []int{1}, i32) }, ErrCount},
		{"indexed, block", func() (*Type, error) { return Indexed([]int{1, -2}, two, i32) }, ErrCount},
		{"hindexed of nil", func() (*Type, error) { return Hindexed(two, two, nil) }, ErrType},
		{"indexed block", func() (*Type, error) { return IndexedBlock(-1, two, i32) }, ErrCount},
		{"hindexed block", func() (*Type, error) { return HindexedBlock(1, two, nil) }, ErrType},
		{"struct, lists", func() (*Type, error) { return Struct(two, two, []*Type{i32}) }, ErrCount},
		{"struct of nil", func() (*Type, error) { return Struct(two, two, []*Type{i32, nil}) }, ErrType},
		{"struct, block", func() (*Type, error) { return Struct([]int{1, -1}, two, []*Type{i32, i32}) }, ErrCount},
		{"subarray of nothing", func() (*Type, error) { return Subarray(nil, nil, nil, C, i32) }, ErrArg},
		{"subarray, lists", func() (*Type, error) { return Subarray(two, two, []int{0}, C, i32) }, ErrArg},
		{"subarray, too long", func() (*Type, error) { return Subarray([]int{4}, []int{3}, []int{2}, C, i32) }, ErrArg},
		{"subarray, empty", func() (*Type, error) { return Subarray([]int{4}, []int{0}, []int{0}, C, i32) }, ErrArg},
		{"subarray, start", func() (*Type, error) { return Subarray([]int{4}, []int{1}, []int{-1}, C, i32) }, ErrArg},
		{"subarray, start and length overflow", func() (*Type, error) { return Subarray([]int{4}, []int{2}, []int{maxInt}, C, i32) }, ErrArg},
		{"subarray, order", func() (*Type, error) { return Subarray(two, two, []int{0, 0}, 2, i32) }, ErrArg},
		{"subarray of nil", func() (*Type, error) { return Subarray(two, two, []int{0, 0}, C, nil) }, ErrType},
		{"subarray beyond an int", func() (*Type, error) { return Subarray([]int{maxInt, 2}, two, []int{0, 0}, C, i32) }, ErrOverflow},
		{"darray, lists", func() (*Type, error) { return Darray(1, 0, two, []Dist{None}, two, two, C, i32) }, ErrArg},
		{"darray, grid", func() (*Type, error) {
			return Darray(3, 0, two, []Dist{Block, Block}, []int{-1, -1}, []int{2, 2}, C, i32)
		}, ErrArg},
		{"darray, whose rounds overflow", func() (*Type, error) {
			huge := []int{1 << 32}
			return Darray(1<<32, 0, huge, []Dist{Cyclic}, huge, huge, C, Basic(Byte))
		}, ErrOverflow},
		{"darray, rank", func() (*Type, error) { return Darray(1, 1, []int{1}, []Dist{None}, []int{-1}, []int{1}, C, i32) }, ErrArg},
		{"darray, empty grid", func() (*Type, error) { return Darray(0, 0, []int{1}, []Dist{None}, []int{-1}, []int{0}, C, i32) }, ErrArg},
		{"darray, not distributed", func() (*Type, error) { return Darray(2, 0, []int{4}, []Dist{None}, []int{-1}, []int{2}, C, i32) }, ErrArg},
		{"darray, blocks too small", func() (*Type, error) { return Darray(2, 0, []int{5}, []Dist{Block}, []int{2}, []int{2}, C, i32) }, ErrArg},
		{"darray, cyclic 0", func() (*Type, error) { return Darray(2, 0, []int{5}, []Dist{Cyclic}, []int{0}, []int{2}, C, i32) }, ErrArg},
		{"darray, distribution", func() (*Type, error) { return Darray(2, 0, []int{5}, []Dist{3}, []int{1}, []int{2}, C, i32) }, ErrArg},
		{"darray, size", func() (*Type, error) { return Darray(2, 0, []int{0}, []Dist{Block}, []int{-1}, []int{2}, C, i32) }, ErrArg},
		{"darray, order", func() (*Type, error) { return Darray(1, 0, []int{1}, []Dist{None}, []int{-1}, []int{1}, 9, i32) }, ErrArg},
		{"contiguous beyond an int", func() (*Type, error) { return Contiguous(maxInt/2, i32) }, ErrOverflow},
		{"hvector beyond an int", func() (*Type, error) { return Hvector(3, 1, maxInt/2, i32) }, ErrOverflow},
		{"vector's stride beyond an int", func() (*Type, error) { return Vector(1, 1, maxInt/2, i32) }, ErrOverflow},
		{"indexed beyond an int", func() (*Type, error) { return Indexed(two, []int{0, maxInt / 4}, i32) }, ErrOverflow},
		{"extent beyond an int", func() (*Type, error) { return Hindexed(two, []int{-maxInt, maxInt - 9}, i32) }, ErrOverflow},
		{"padding beyond an int", func() (*Type, error) {
			return Struct(two, []int{0, maxInt - 1}, []*Type{Basic(Int64), Basic(Int8)})
		}, ErrOverflow},
		{"nil Go type", func() (*Type, error) { return Of(nil) }, ErrType},
	} {
		dt, err := tt.make()
		if dt != nil || !errors.Is(err, tt.want) {
			t.Errorf("%s: %v, %v; want %v", tt.name, dt, err, tt.want)
		}
	}
}

func TestPackRefuses(t *testing.T) {
	col := must(t)(Vector(3, 1, 4, Basic(Int32)))        // 36 bytes from 0 on
	back := must(t)(Hvector(2, 1, -8, Basic(Int32)))     // from -8 to 4
	ahead := must(t)(Hindexed([]int{1}, []int{8}, back)) // from 0 to 12
	mem, msg := make([]byte, 36), make([]byte, 12)
	for _, tt := range []struct {
		name               string
		t                  *Type
		packed, mem        []byte
		origin, count, pos int
		want               error
	}{
		{"fits", col, msg, mem, 0, 1, 0, nil},
		{"memory short", col, msg, mem[:35], 0, 1, 0, ErrBuffer},
		{"origin behind", col, msg, mem, 1, 1, 0, ErrBuffer},
		{"origin in front", col, msg, mem, -1, 1, 0, ErrBuffer},
		{"origin far", col, msg, mem, maxInt, 1, 0, ErrBuffer},
		{"origin far in front", col, msg, mem, -maxInt, 1, 0, ErrBuffer},
		{"second item leaves", col, make([]byte, 24), mem, 0, 2, 0, ErrBuffer},
		{"negative displacement", back, msg, mem, 7, 1, 0, ErrBuffer},
		{"negative displacement fits", back, msg, mem, 8, 1, 0, nil},
		{"lower bound moved", ahead, msg, mem[:12], 0, 1, 0, nil},
		{"lower bound moved, origin in front", ahead, msg, mem[:12], -1, 1, 0, ErrBuffer},
		{"negative count", col, msg, mem, 0, -1, 0, ErrCount},
		{"count beyond an int", col, msg, mem, 0, maxInt, 0, ErrOverflow},
		{"position", col, msg, mem, 0, 1, 13, ErrArg},
		{"negative position", col, msg, mem, 0, 1, -1, ErrArg},
		{"nothing anywhere", col, nil, nil, -5, 0, 0, nil},
		{"no data", must(t)(Resized(must(t)(Contiguous(0, col)), 0, 8)), nil, nil, 3, 7, 0, nil},
	} {
		before := bytes.Clone(tt.mem)
		if _, err := tt.t.PackAt(tt.packed, tt.mem, tt.origin, tt.count, tt.pos); !errors.Is(err, tt.want) {
			t.Errorf("%s: PackAt: %v, want %v", tt.name, err, tt.want)
		}
		if !bytes.Equal(before, tt.mem) {
			t.Errorf("%s: packing changed memory", tt.name)
		}
		if tt.want == nil {
			continue
		}
		if n, err := tt.t.UnpackAt(tt.mem, tt.packed, tt.origin, tt.count, tt.pos); n != 0 || !errors.Is(err, tt.want) {
			t.Errorf("%s: UnpackAt: %v, want %v", tt.name, err, tt.want)
		}
		if tt.want == ErrArg {
			continue
		}
		if n, err := tt.t.Pack(tt.packed, tt.mem, tt.origin, tt.count); n != 0 || !errors.Is(err, tt.want) {
			t.Errorf("%s: Pack: %v, want %v", tt.name, err, tt.want)
		}
		if n, err := tt.t.UnpackExternal(tt.mem, tt.packed, tt.origin, tt.count); n != 0 || !errors.Is(err, tt.want) {
			t.Errorf("%s: UnpackExternal: %v, want %v", tt.name, err, tt.want)
		}
	}
	for name, err := range map[string]error{
		"Pack":           second(col.Pack(msg[:11], mem, 0, 1)),
		"Unpack":         second(col.Unpack(mem, msg[:11], 0, 1)),
		"PackExternal":   second(col.PackExternal(msg[:11], mem, 0, 1)),
		"UnpackExternal": second(col.UnpackExternal(mem, msg[:11], 0, 1)),
		"UnpackAt":       second(col.UnpackAt(mem, msg, 0, 1, 1)),
	} {
		if !errors.Is(err, ErrShort) {
			t.Errorf("%s: %v, want %v", name, err, ErrShort)
		}
	}
}

func second(_ int, err error) error { return err }

// particle has padding after Tag and at its end, and what no C struct has.
type particle struct {
	Pos  [3]float64
	Tag  int16
	_    int32
	Live bool
	Mass complex64
	None struct{}
	Kind uint8
}

func TestOfGoTypes(t *testing.T) {
	dt := must(t)(Of(reflect.TypeFor[particle]()))
	var p particle
	if dt.Extent() != int(reflect.TypeOf(p).Size()) || dt.LB() != 0 {
		t.Errorf("extent %d from %d, want %d from 0", dt.Extent(), dt.LB(), reflect.TypeOf(p).Size())
	}
	if want := 3*8 + 2 + 1 + 8 + 1; dt.Size() != want {
		t.Errorf("size %d, want %d", dt.Size(), want)
	}
	in := []particle{{Pos: [3]float64{1, 2, 3}, Tag: 4, Live: true, Mass: 5i, Kind: 6}, {Tag: 7, Mass: 8}}
	msg, out := make([]byte, 2*dt.Size()), make([]particle, 2)
	if _, err := dt.Pack(msg, memory(in), 0, 2); err != nil {
		t.Fatal(err)
	}
	if _, err := dt.Unpack(memory(out), msg, 0, 2); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(in, out) {
		t.Errorf("%v, want %v", out, in)
	}
	type celsius float32
	for _, tt := range []struct {
		of   reflect.Type
		want Kind
		n    int
	}{
		{reflect.TypeFor[int64](), Int64, 1}, {reflect.TypeFor[celsius](), Float32, 1},
		{reflect.TypeFor[[4][2]uint16](), Uint16, 8}, {reflect.TypeFor[struct{ A, B float64 }](), Float64, 2},
		{reflect.TypeFor[struct {
			_    [0]func() // forbids ==
			A, B int64
		}](), Int64, 2},
		{reflect.TypeFor[[0]int8](), Invalid, 0}, {reflect.TypeFor[struct{}](), Invalid, 0},
	} {
		dt := must(t)(Of(tt.of))
		if k, _ := dt.Uniform(); k != tt.want || dt.Elems() != tt.n || dt.Extent() != int(tt.of.Size()) {
			t.Errorf("%v: %d × %v, extent %d", tt.of, dt.Elems(), k, dt.Extent())
		}
		if _, ok := dt.Contiguous(3); !ok {
			t.Errorf("%v is not contiguous", tt.of)
		}
	}
}

func TestOfNamesTheField(t *testing.T) {
	type inner struct {
		OK int
		No []byte
	}
	for _, tt := range []struct {
		of   reflect.Type
		want string
	}{
		{reflect.TypeFor[struct{ A [2]struct{ P *int } }](), ".A[].P is a ptr"},
		{reflect.TypeFor[struct{ In inner }](), ".In.No is a slice"},
		{reflect.TypeFor[map[string]int](), "map[string]int is a map"},
		{reflect.TypeFor[struct{ s string }](), ".s is a string"},
		{reflect.TypeFor[[0]any](), "[] is a interface"},
		{reflect.TypeFor[struct{ F func() }](), ".F is a func"},
		{reflect.TypeFor[struct{ _ chan int }](), "._ is a chan"},
		{reflect.TypeFor[struct{ No [0]func() }](), ".No[] is a func"},
	} {
		_, err := Of(tt.of)
		if !errors.Is(err, ErrType) || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%v: %v, want %q", tt.of, err, tt.want)
		}
	}
}

// TestExternal32Golden pins the bytes of MPI 4.1 section 14.5.2.
func TestExternal32Golden(t *testing.T) {
	for _, tt := range []struct {
		name string
		in   []byte
		kind Kind
		want string
	}{
		{"int8", memory([]int8{1, -2}), Int8, "01fe"},
		{"uint8", memory([]uint8{1, 254}), Uint8, "01fe"},
		{"byte", []byte{0xab, 0xcd}, Byte, "abcd"},
		{"bool", memory([]bool{true, false}), Bool, "0100"},
		{"int16", memory([]int16{1, -2}), Int16, "0001fffe"},
		{"uint16", memory([]uint16{0x1234, 0xabcd}), Uint16, "1234abcd"},
		{"int32", memory([]int32{1, -2, math.MinInt32}), Int32, "00000001fffffffe80000000"},
		{"uint32", memory([]uint32{0xdeadbeef}), Uint32, "deadbeef"},
		{"int64", memory([]int64{1, -2}), Int64, "0000000000000001fffffffffffffffe"},
		{"uint64", memory([]uint64{0x0123456789abcdef}), Uint64, "0123456789abcdef"},
		{"float32", memory([]float32{1, -0.15625, float32(math.Inf(1))}), Float32, "3f800000be2000007f800000"},
		{"float64", memory([]float64{1, -2, math.Pi}), Float64, "3ff0000000000000c000000000000000400921fb54442d18"},
		{"complex64", memory([]complex64{1 - 2i}), Complex64, "3f800000c0000000"},
		{"complex128", memory([]complex128{1 - 2i}), Complex128, "3ff0000000000000c000000000000000"},
	} {
		dt := Basic(tt.kind)
		count := len(tt.in) / tt.kind.Size()
		size, _ := dt.ExternalSize(count)
		got := make([]byte, size)
		if _, err := dt.PackExternal(got, tt.in, 0, count); err != nil || hex.EncodeToString(got) != tt.want {
			t.Errorf("%s: %x, %v; want %s", tt.name, got, err, tt.want)
		}
		back := make([]byte, len(tt.in))
		if _, err := dt.UnpackExternal(back, got, 0, count); err != nil || !bytes.Equal(back, tt.in) {
			t.Errorf("%s: back %x, %v; want %x", tt.name, back, err, tt.in)
		}
		if hex.EncodeToString(got) != tt.want {
			t.Errorf("%s: unpacking changed the message", tt.name)
		}
	}
}

// TestForeignBools: a bool in memory is 0 or 1, whatever came.
func TestForeignBools(t *testing.T) {
	flags := must(t)(Of(reflect.TypeFor[struct {
		N  int16
		OK [2]bool
	}]()))
	for name, unpack := range map[string]func(dst, src []byte, origin, count int) (int, error){
		"Unpack": flags.Unpack, "UnpackExternal": flags.UnpackExternal,
		"UnpackAt": func(dst, src []byte, origin, count int) (int, error) {
			return flags.UnpackAt(dst, src, origin, count, 0)
		},
	} {
		got := make([]byte, 8)
		if _, err := unpack(got, []byte{0, 0, 7, 0, 0, 0, 255, 1}, 0, 2); err != nil {
			t.Fatal(err)
		}
		if want := []byte{0, 0, 1, 0, 0, 0, 1, 1}; !bytes.Equal(got, want) {
			t.Errorf("%s: %v, want %v", name, got, want)
		}
	}
}

// TestLayoutsStaySmall: what can be a loop is one, so that big types cost nothing.
func TestLayoutsStaySmall(t *testing.T) {
	m := must(t)
	f64 := Basic(Float64)
	million := make([]int, 1_000_000)
	for i := range million {
		million[i] = 3 * i
	}
	rows := m(Contiguous(1000, m(Resized(f64, 0, 16))))
	touching := []int{2, 3, 4}
	for _, tt := range []struct {
		name string
		t    *Type
		op   nodeOp
		max  int // depth
	}{
		{"vector of a million", m(Vector(1_000_000, 1, 3, f64)), opLoop, 2},
		{"regular indexed", m(IndexedBlock(1, million, f64)), opLoop, 2},
		{"contiguous of contiguous", m(Contiguous(7, m(Contiguous(9, f64)))), opRun, 1},
		{"vector without gaps", m(Vector(9, 4, 4, f64)), opRun, 1},
		{"rows of a strided matrix", m(Contiguous(1000, rows)), opLoop, 2},
		{"indexed without gaps", m(Indexed(touching, []int{0, 2, 5}, f64)), opRun, 1},
		{"whole subarray", m(Subarray([]int{4, 5, 6}, []int{4, 5, 6}, []int{0, 0, 0}, C, f64)), opRun, 1},
		{"slab of a cube", m(Subarray([]int{4, 5, 6}, []int{2, 5, 6}, []int{1, 0, 0}, C, f64)), opRun, 1},
		{"struct of equal fields", m(Of(reflect.TypeFor[struct{ X, Y, Z float64 }]())), opRun, 1},
		{"darray, one process", m(Darray(1, 0, []int{8, 8}, []Dist{Cyclic, Block}, []int{1, -1}, []int{1, 1}, C, f64)), opRun, 1},
	} {
		if n := tt.t.lay.n; n.op != tt.op || n.depth > tt.max {
			t.Errorf("%s: op %d, depth %d", tt.name, n.op, n.depth)
		}
		if enc, err := tt.t.AppendBinary(nil); err != nil || len(enc) > 30 {
			t.Errorf("%s: %d bytes to describe, %v", tt.name, len(enc), err)
		}
	}
}

// TestDeepTypes nests far beyond what anybody writes by hand.
func TestDeepTypes(t *testing.T) {
	m := must(t)
	dt := Basic(Int32)
	for i := range 2000 {
		dt = m(Hindexed([]int{1, 1}, []int{0, 8 + i}, m(Resized(dt, 0, 4))))
		if dt.Size() > 1<<12 {
			dt = m(Struct([]int{1, 1}, []int{0, i}, []*Type{Basic(Int8), Basic(Int32)}))
		}
	}
	dt = Basic(Byte)
	for range 1000 { // one level each: a byte and, apart from it, all the others
		dt = m(Struct([]int{1, 1}, []int{0, 2}, []*Type{Basic(Byte), m(Dup(dt))}))
		dt = m(Struct([]int{1, 1}, []int{0, -3}, []*Type{Basic(Int16), dt}))
	}
	lo, hi, err := dt.Span(1)
	if err != nil {
		t.Fatal(err)
	}
	msg := make([]byte, dt.Size())
	if _, err := dt.Pack(msg, make([]byte, hi-lo), -lo, 1); err != nil {
		t.Error(err)
	}
	if _, err := dt.AppendBinary(nil); !errors.Is(err, ErrOverflow) {
		t.Errorf("a description %d levels deep: %v", dt.lay.n.depth, err)
	}
	dt = Basic(Byte)
	for range bits.UintSize - 3 { // doubles each time, and shares its halves
		dt = m(Hindexed([]int{1, 1}, []int{0, 1}, m(Struct([]int{1, 1}, []int{0, 1}, []*Type{dt, Basic(Byte)}))))
	}
	enc, err := dt.AppendBinary(nil)
	if err != nil || len(enc) > 2000 {
		t.Errorf("a type of most of the address space takes %d bytes to describe, %v", len(enc), err)
	}
	if _, err := Decode(enc); err != nil {
		t.Error(err)
	}
}

func TestPackDoesNotAllocate(t *testing.T) {
	m := must(t)
	col := m(Vector(64, 1, 64, Basic(Float64)))
	mixed := m(Of(reflect.TypeFor[particle]()))
	mem, msg := make([]byte, 64*64*8), make([]byte, 64*64*8)
	if n := testing.AllocsPerRun(100, func() {
		if _, err := col.Pack(msg, mem, 0, 1); err != nil {
			t.Fatal(err)
		}
		if _, err := mixed.Unpack(mem, msg, 0, 9); err != nil {
			t.Fatal(err)
		}
		mixed.Swap(msg)
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestStrings(t *testing.T) {
	m := must(t)
	long := m(IndexedBlock(1, make([]int, 20), Basic(Int8)))
	deep := Basic(Int8)
	for range 9 {
		deep = m(Dup(deep))
	}
	enc, err := m(Contiguous(3, Basic(Int16))).AppendBinary(nil)
	if err != nil {
		t.Fatal(err)
	}
	var none *Type
	for _, tt := range []struct {
		t    *Type
		want string
	}{
		{Basic(Byte), "byte"},
		{m(Vector(2, 3, 4, Basic(Int32))), "vector(2 3 4; int32)"},
		{m(Hvector(2, 3, 40, Basic(Int32))), "hvector(2 3; 40; int32)"},
		{m(Struct([]int{1, 2}, []int{0, 8}, []*Type{Basic(Bool), Basic(Float64)})), "struct(2 1 2; 0 8; bool, float64)"},
		{long, "indexed_block(20 1 0 0 0 0 0 0 …; int8)"},
		{deep, "dup(dup(dup(dup(…))))"},
		{m(Decode(enc)), "received(6 bytes, extent 6)"},
		{&Type{}, "empty"},
		{none, "nil"},
	} {
		if got := tt.t.String(); got != tt.want {
			t.Errorf("%s, want %s", got, tt.want)
		}
	}
	if got := Combiner(200).String() + C.String() + Fortran.String() + Kind(99).String(); got != "invalidCFortraninvalid" {
		t.Error(got)
	}
}
