package datatype

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// TestOpTable is MPI 4.1 section 6.9.2's table of which operation takes which kind.
func TestOpTable(t *testing.T) {
	integers := []Kind{Int8, Int16, Int32, Int64, Uint8, Uint16, Uint32, Uint64}
	floats := []Kind{Float32, Float64}
	complexes := []Kind{Complex64, Complex128}
	all := slices.Concat(integers, floats, complexes, []Kind{Bool, Byte})
	allowed := map[OpKind][]Kind{
		Sum: slices.Concat(integers, floats, complexes), Prod: slices.Concat(integers, floats, complexes),
		Min: slices.Concat(integers, floats), Max: slices.Concat(integers, floats),
		MinLoc: slices.Concat(integers, floats), MaxLoc: slices.Concat(integers, floats),
		Land: append(slices.Clone(integers), Bool), Lor: append(slices.Clone(integers), Bool), Lxor: append(slices.Clone(integers), Bool),
		Band: append(slices.Clone(integers), Byte), Bor: append(slices.Clone(integers), Byte), Bxor: append(slices.Clone(integers), Byte),
		Replace: all, NoOp: all,
	}
	for o := range numOps + 1 {
		for k := range numKinds + 1 {
			want := slices.Contains(allowed[o], k)
			kernel, ok := Reduce(o, k)
			if ok != want || (kernel != nil) != want {
				t.Errorf("Reduce(%v, %v) = %t, want %t", o, k, ok, want)
			}
			if err := CheckOp(o, k); (err == nil) != want || err != nil && !errors.Is(err, ErrOp) {
				t.Errorf("CheckOp(%v, %v) = %v", o, k, err)
			}
			size := 0
			switch {
			case want && (o == MinLoc || o == MaxLoc):
				size = LocType(k).Extent()
			case want:
				size = k.Size()
			}
			if got := o.ElemSize(k); got != size {
				t.Errorf("(%v).ElemSize(%v) = %d, want %d", o, k, got, size)
			}
		}
	}
}

// checkKernel runs a kernel over random operands of many lengths and
// alignments and compares with f, element by element.
func checkKernel[T comparable](t *testing.T, o OpKind, k Kind, draw func() T, f func(a, b T) T) {
	t.Helper()
	kernel, ok := Reduce(o, k)
	if !ok {
		t.Fatalf("no %v of %v", o, k)
	}
	for n := range 40 {
		for shift := range 2 {
			in, inout, want := make([]T, n), make([]T, n), make([]T, n)
			for i := range n {
				in[i], inout[i] = draw(), draw()
				want[i] = f(in[i], inout[i])
			}
			a := append(make([]byte, shift, shift+n*o.ElemSize(k)+8), memory(in)...)[shift:]
			b := append(make([]byte, shift, shift+n*o.ElemSize(k)+8), memory(inout)...)[shift:]
			kernel(a, b)
			copy(memory(inout), b)
			for i := range n {
				if inout[i] != want[i] && want[i] == want[i] {
					t.Fatalf("%v of %v, %d values, shift %d: [%d] = %v, want %v op … = %v", o, k, n, shift, i, inout[i], in[i], want[i])
				}
				if fmt.Sprint(inout[i]) != fmt.Sprint(want[i]) { // NaNs, and the sign of 0
					t.Fatalf("%v of %v: [%d] = %v, want %v", o, k, i, inout[i], want[i])
				}
			}
		}
	}
}

func checkInts[T ints](t *testing.T, k Kind) {
	r := rand.New(rand.NewPCG(1, uint64(k)))
	draw := func() T {
		if r.IntN(4) == 0 {
			return 0
		}
		return T(r.Uint64())
	}
	for o, f := range map[OpKind]func(a, b T) T{
		Sum: func(a, b T) T { return a + b }, Prod: func(a, b T) T { return a * b },
		Min: func(a, b T) T { return min(a, b) }, Max: func(a, b T) T { return max(a, b) },
		Land: func(a, b T) T { return truth[T](a != 0 && b != 0) },
		Lor:  func(a, b T) T { return truth[T](a != 0 || b != 0) },
		Lxor: func(a, b T) T { return truth[T]((a != 0) != (b != 0)) },
		Band: func(a, b T) T { return a & b }, Bor: func(a, b T) T { return a | b }, Bxor: func(a, b T) T { return a ^ b },
		Replace: func(a, b T) T { return a }, NoOp: func(a, b T) T { return b },
	} {
		checkKernel(t, o, k, draw, f)
	}
	checkLoc(t, k, func() T { return T(r.IntN(3)) })
}

func checkFloats[T float32 | float64](t *testing.T, k Kind) {
	r := rand.New(rand.NewPCG(2, uint64(k)))
	special := []float64{math.NaN(), math.Inf(1), math.Inf(-1), 0, math.Copysign(0, -1), 1}
	draw := func() T {
		if r.IntN(3) == 0 {
			return T(special[r.IntN(len(special))])
		}
		return T(r.NormFloat64())
	}
	for o, f := range map[OpKind]func(a, b T) T{
		Sum: func(a, b T) T { return a + b }, Prod: func(a, b T) T { return a * b },
		Min: func(a, b T) T { return T(math.Min(float64(a), float64(b))) },
		Max: func(a, b T) T { return T(math.Max(float64(a), float64(b))) },
	} {
		checkKernel(t, o, k, draw, func(a, b T) T {
			if (o == Min || o == Max) && (math.IsNaN(float64(a)) || math.IsNaN(float64(b))) {
				return T(math.NaN()) // math.Min prefers an infinity
			}
			return f(a, b)
		})
	}
	checkLoc(t, k, draw)
}

// checkLoc compares with the order in words: a NaN first, then by value, then by index.
func checkLoc[T reals](t *testing.T, k Kind, draw func() T) {
	r := rand.New(rand.NewPCG(3, uint64(k)))
	pick := func(a, b Loc[T], less func(a, b T) bool) Loc[T] {
		aNaN, bNaN := math.IsNaN(float64(a.Value)), math.IsNaN(float64(b.Value))
		switch {
		case aNaN != bNaN:
			if aNaN {
				return a
			}
			return b
		case !aNaN && less(a.Value, b.Value):
			return a
		case !aNaN && less(b.Value, a.Value):
			return b
		case a.Index < b.Index:
			return a
		}
		return b
	}
	loc := func() Loc[T] { return Loc[T]{draw(), int64(r.IntN(5))} }
	checkKernel(t, MinLoc, k, loc, func(a, b Loc[T]) Loc[T] { return pick(a, b, func(x, y T) bool { return x < y }) })
	checkKernel(t, MaxLoc, k, loc, func(a, b Loc[T]) Loc[T] { return pick(a, b, func(x, y T) bool { return x > y }) })
}

func checkComplex[T complex64 | complex128](t *testing.T, k Kind) {
	r := rand.New(rand.NewPCG(4, uint64(k)))
	draw := func() T { // small whole numbers, because some architectures fuse multiplication and addition
		return T(complex(float64(r.IntN(64)-32), float64(r.IntN(64)-32)))
	}
	checkKernel(t, Sum, k, draw, func(a, b T) T { return a + b })
	checkKernel(t, Prod, k, draw, func(a, b T) T { return a * b })
}

func TestKernels(t *testing.T) {
	checkInts[int8](t, Int8)
	checkInts[int16](t, Int16)
	checkInts[int32](t, Int32)
	checkInts[int64](t, Int64)
	checkInts[uint8](t, Uint8)
	checkInts[uint16](t, Uint16)
	checkInts[uint32](t, Uint32)
	checkInts[uint64](t, Uint64)
	checkFloats[float32](t, Float32)
	checkFloats[float64](t, Float64)
	checkComplex[complex64](t, Complex64)
	checkComplex[complex128](t, Complex128)
}

// TestBoolKernels feeds bytes that are no Go bool, as a peer might send them.
func TestBoolKernels(t *testing.T) {
	for _, tt := range []struct {
		op   OpKind
		a, b byte
		want byte
	}{
		{Land, 1, 1, 1}, {Land, 1, 0, 0}, {Land, 2, 4, 1}, {Land, 0, 255, 0},
		{Lor, 0, 0, 0}, {Lor, 0, 2, 1}, {Lor, 1, 1, 1},
		{Lxor, 1, 0, 1}, {Lxor, 2, 4, 0}, {Lxor, 0, 8, 1},
	} {
		kernel, _ := Reduce(tt.op, Bool)
		got := []byte{tt.b}
		kernel([]byte{tt.a}, got)
		if got[0] != tt.want {
			t.Errorf("%d %v %d = %d, want %d", tt.a, tt.op, tt.b, got[0], tt.want)
		}
	}
}

// TestKernelLengths gives operands of unequal length and a rest: neither may be
// touched beyond the last element both have.
func TestKernelLengths(t *testing.T) {
	for o := range numOps {
		for k := Byte; k < numKinds; k++ {
			kernel, ok := Reduce(o, k)
			if !ok || o == Replace {
				continue
			}
			size := o.ElemSize(k)
			in, inout := make([]byte, 3*size), make([]byte, 2*size+size/2)
			for i := range inout {
				inout[i] = 0xa5
			}
			kernel(in, inout)
			for i, v := range inout[2*size:] {
				if v != 0xa5 {
					t.Errorf("%v of %v changed byte %d behind the last element", o, k, i)
				}
			}
			kernel(nil, inout)
			kernel(in, nil)
		}
	}
}

// TestThroughScratch is what processors do that want values aligned.
func TestThroughScratch(t *testing.T) {
	for _, n := range []int{1, 511, 512, 513, 1300} {
		in, inout := make([]byte, 1+4*n), make([]byte, 3+4*n)
		for i := range n {
			in[1+4*i], inout[3+4*i] = byte(i), 7
		}
		throughScratch(xorLoop[uint32], in[1:], inout[3:])
		for i := range n {
			if got, want := inout[3+4*i], byte(i)^7; got != want {
				t.Fatalf("%d values: [%d] = %d, want %d", n, i, got, want)
			}
		}
	}
}

func TestKernelsDoNotAllocate(t *testing.T) {
	in, inout := memory(make([]float64, 64)), memory(make([]float64, 64))
	for o := range numOps {
		kernel, ok := Reduce(o, Float64)
		if !ok {
			continue
		}
		if n := testing.AllocsPerRun(100, func() { kernel(in, inout) }); n != 0 {
			t.Errorf("%v allocates %v times", o, n)
		}
	}
}

func TestOpNames(t *testing.T) {
	for o, want := range map[OpKind]string{Sum: "sum", MaxLoc: "maxloc", NoOp: "no_op", numOps: "invalid"} {
		if got := o.String(); got != want {
			t.Errorf("%d is %q, want %q", o, got, want)
		}
	}
	if !Bxor.Commutes() || !MaxLoc.Commutes() || Replace.Commutes() || NoOp.Commutes() {
		t.Error("the wrong operations commute")
	}
}

// TestExtremesOfBytes tries all pairs of 8-bit integers, of which eight are compared at
// once.
func TestExtremesOfBytes(t *testing.T) {
	const all = 8*extremesAtOnce + 1<<16 + 3 // of which the last are neither 8 nor 16
	a, b := make([]byte, all), make([]byte, all)
	for i := range all {
		a[i], b[i] = byte(i>>8), byte(i)
	}
	for _, k := range []Kind{Int8, Uint8} {
		for _, o := range []OpKind{Min, Max} {
			kernel, _ := Reduce(o, k)
			got := slices.Clone(b)
			kernel(a, got)
			for i := range all {
				want := a[i]
				if less := a[i] < b[i] == (k == Uint8 || a[i]^b[i] < 0x80); less != (o == Min) {
					want = b[i]
				}
				if got[i] != want {
					t.Fatalf("%v of %v: %d and %d make %d, want %d", o, k, a[i], b[i], got[i], want)
				}
			}
		}
	}
}
