package datatype

import (
	"fmt"
	"runtime"
	"unsafe"
)

// OpKind is a predefined reduction (MPI 4.1 section 6.9.2) or one of the two
// that only accumulates have (section 12.3.4: Replace and NoOp).
type OpKind uint8

// The predefined operations. Each is associative and commutative, Sum and Prod
// of floating point only up to rounding; Replace and NoOp are neither. Values
// travel between processes and do not change.
const (
	Sum OpKind = iota
	Prod
	Min
	Max
	Land
	Lor
	Lxor
	Band
	Bor
	Bxor
	MinLoc
	MaxLoc
	Replace
	NoOp
	numOps
)

var opNames = [numOps]string{
	"sum", "prod", "min", "max", "land", "lor", "lxor", "band", "bor", "bxor", "minloc", "maxloc", "replace", "no_op",
}

// String is MPI's name in lower case, without its prefix.
func (o OpKind) String() string {
	if o >= numOps {
		return "invalid"
	}
	return opNames[o]
}

// Commutes reports whether the operands may be swapped.
func (o OpKind) Commutes() bool { return o < Replace }

// ElemSize is the bytes of one operand: of Loc[T] for MinLoc and MaxLoc on the
// kind of T, else of the kind. It is 0 where the operation is not defined.
func (o OpKind) ElemSize(k Kind) int {
	if _, ok := Reduce(o, k); !ok {
		return 0
	}
	if o == MinLoc || o == MaxLoc {
		return LocType(k).Extent()
	}
	return k.Size()
}

// Kernel combines two operands element by element: inout[i] = in[i] op inout[i],
// in being the operand of the lower ranks. Both slices hold packed native values
// of the kind it was asked for; elements beyond the shorter of the two, and a
// rest that is no whole element, are left alone. They may be the same slice, but
// not overlap otherwise, and need no alignment. A kernel keeps nothing, may run on
// several goroutines, and allocates only for operands that are not aligned on
// processors that want them to be.
//
// Integers wrap around. Min and Max of floating-point numbers are a NaN if
// either operand is one, and -0 is less than 0, so the result does not depend on
// the order in which a tree combines; MinLoc and MaxLoc likewise find the NaN of
// the lowest index. The logical operations take any value but 0 as true and give
// 0 or 1.
type Kernel func(in, inout []byte)

// Reduce returns the kernel of o for the kind. ok is false where MPI 4.1 section
// 6.9.2 does not define o for it; [CheckOp] says so in words. Sum, Prod: numbers.
// Min, Max, MinLoc, MaxLoc: numbers but complex ones. Land, Lor, Lxor: integers
// and Bool. Band, Bor, Bxor: integers and Byte. Replace, NoOp: every kind.
func Reduce(o OpKind, k Kind) (kernel Kernel, ok bool) {
	if o >= numOps || !k.Valid() {
		return nil, false
	}
	kernel = kernels[o][k]
	return kernel, kernel != nil
}

// CheckOp returns an ErrOp that names both where Reduce has no kernel.
func CheckOp(o OpKind, k Kind) error {
	if _, ok := Reduce(o, k); ok {
		return nil
	}
	return fmt.Errorf("datatype: %s of %s: %w", o, k, ErrOp)
}

// kernels is every kernel there is; it is never changed.
var kernels = func() (t [numOps][numKinds]Kernel) {
	integer[int8](&t, Int8)
	integer[int16](&t, Int16)
	integer[int32](&t, Int32)
	integer[int64](&t, Int64)
	integer[uint8](&t, Uint8)
	integer[uint16](&t, Uint16)
	integer[uint32](&t, Uint32)
	integer[uint64](&t, Uint64)
	ordered[float32](&t, Float32)
	ordered[float64](&t, Float64)
	arithmetic[complex64](&t, Complex64)
	arithmetic[complex128](&t, Complex128)
	logical[uint8](&t, Bool)
	bitwise[uint8](&t, Byte)
	t[Sum][Int8], t[Sum][Uint8] = words(sum8, sumLoop[int8]), words(sum8, sumLoop[uint8])
	t[Sum][Int16], t[Sum][Uint16] = words(sum16, sumLoop[int16]), words(sum16, sumLoop[uint16])
	t[Min][Int8], t[Min][Uint8] = extremes8(min8, tops8, minLoop[int8]), extremes8(min8, 0, minLoop[uint8])
	t[Max][Int8], t[Max][Uint8] = extremes8(max8, tops8, maxLoop[int8]), extremes8(max8, 0, maxLoop[uint8])
	for k := Byte; k < numKinds; k++ {
		t[Replace][k] = replace
		t[NoOp][k] = func(in, inout []byte) {}
	}
	return t
}()

type table = [numOps][numKinds]Kernel

func integer[T ints](t *table, k Kind) {
	ordered[T](t, k)
	logical[T](t, k)
	bitwise[T](t, k)
}

func ordered[T reals](t *table, k Kind) {
	arithmetic[T](t, k)
	t[Min][k], t[Max][k] = aligned(minLoop[T]), aligned(maxLoop[T])
	t[MinLoc][k], t[MaxLoc][k] = aligned(minLocLoop[T]), aligned(maxLocLoop[T])
}

func arithmetic[T numbers](t *table, k Kind) {
	t[Sum][k], t[Prod][k] = aligned(sumLoop[T]), aligned(prodLoop[T])
}

func logical[T ints](t *table, k Kind) {
	t[Land][k], t[Lor][k], t[Lxor][k] = aligned(landLoop[T]), aligned(lorLoop[T]), aligned(lxorLoop[T])
}

func bitwise[T ints](t *table, k Kind) {
	t[Band][k] = words(andLoop[uint64], andLoop[T])
	t[Bor][k] = words(orLoop[uint64], orLoop[T])
	t[Bxor][k] = words(xorLoop[uint64], xorLoop[T])
}

// aligned makes a kernel of a loop over values. The loop runs on the operands
// themselves if they are aligned or the processor does not mind.
func aligned[T any](loop func(in, inout []T)) Kernel {
	return func(in, inout []byte) {
		size := int(unsafe.Sizeof(*new(T)))
		n := min(len(in), len(inout)) / size
		if n == 0 {
			return
		}
		a, b := values[T](in, n), values[T](inout, n)
		if a == nil || b == nil {
			throughScratch(loop, in[:n*size], inout[:n*size])
			return
		}
		loop(a, b)
	}
}

// throughScratch runs a loop on operands that are not aligned, such as a message
// in the middle of a buffer, by way of memory that is.
func throughScratch[T any](loop func(in, inout []T), in, inout []byte) {
	size := int(unsafe.Sizeof(*new(T)))
	chunk := min(len(in)/size, 512)
	a, b := make([]T, chunk), make([]T, chunk)
	for len(in) > 0 {
		n := copy(memory(a), in)
		copy(memory(b), inout)
		loop(a[:n/size], b[:n/size])
		copy(inout[:n], memory(b))
		in, inout = in[n:], inout[n:]
	}
}

// lenient says that the processor loads and stores plain values at any address.
const lenient = runtime.GOARCH == "amd64" || runtime.GOARCH == "386" || runtime.GOARCH == "arm64" ||
	runtime.GOARCH == "ppc64le" || runtime.GOARCH == "s390x"

// values is the first n values in the memory of b, nil if they are not aligned
// and have to be.
func values[T any](b []byte, n int) []T {
	p := unsafe.Pointer(unsafe.SliceData(b))
	if !lenient && uintptr(p)%unsafe.Alignof(*new(T)) != 0 {
		return nil
	}
	return unsafe.Slice((*T)(p), n)
}

// memory is the bytes of s.
func memory[T any](s []T) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(s))), len(s)*int(unsafe.Sizeof(*new(T))))
}

func replace(in, inout []byte) { copy(inout, in) }
