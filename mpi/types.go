package mpi

import (
	"reflect"
	"slices"
	"sync"

	"github.com/meshmpi/meshmpi/mpi/datatype"
	"github.com/meshmpi/meshmpi/mpi/internal/engine"
)

// Type is a datatype (MPI 4.1 chapter 5): how the items of a Buf lie in memory.
type Type = datatype.Type

// TypeOf returns the type of a Go type without pointers: numbers, booleans, and
// structs and arrays of them. The error names the field that is in the way.
func TypeOf[T any]() (*Type, error) { return typeFor(reflect.TypeFor[T]()) }

// goTypes are the types that reflection has made: reflect.Type → *Type or error.
var goTypes sync.Map

func typeFor(t reflect.Type) (*Type, error) {
	if v, ok := goTypes.Load(t); ok {
		if dt, ok := v.(*Type); ok {
			return dt, nil
		}
		return nil, v.(error)
	}
	dt, err := datatype.Of(t)
	if err != nil {
		err = &Error{Op: "TypeOf", Class: ErrType, Peer: -1, Err: err}
		goTypes.Store(t, err)
		return nil, err
	}
	v, _ := goTypes.LoadOrStore(t, dt)
	return v.(*Type), nil
}

// Buf is memory with a datatype: count items from an origin on. It refers to
// the program's memory and copies nothing. What is wrong with it is said by the
// operation that uses it.
type Buf struct {
	mem    []byte
	origin int // bytes
	count  int
	typ    *Type
	elem   reflect.Type
	err    error
}

// BufOf is a slice of Go values without pointers, such as structs or Loc.
func BufOf[T any](s []T) Buf {
	t, err := TypeOf[T]()
	return Buf{mem: bytesOf(s), count: len(s), typ: t, elem: reflect.TypeFor[T](), err: err}
}

// NewBuf is count items of type t in the memory of s, the first at its beginning.
func NewBuf[T any](s []T, count int, t *Type) Buf {
	b := Buf{mem: bytesOf(s), count: count, typ: t}
	if _, err := TypeOf[T](); err != nil {
		b.err = err // memory with pointers in it is the garbage collector's
	}
	return b
}

// At moves the first item to offset bytes from the beginning of the memory. Types
// with negative displacements need it.
func (b Buf) At(offset int) Buf {
	b.origin = offset
	return b
}

// mostBytes is as much as a message can have, and more memory than there is.
const mostBytes = 1 << 46

// check says what is wrong with the buffer.
func (b Buf) check(op string) error {
	switch {
	case b.err != nil:
		return b.err
	case b.typ == nil:
		return fail(op, ErrType, "the buffer has no type")
	case b.count < 0:
		return fail(op, ErrCount, "%d items", b.count)
	}
	lo, hi, err := b.typ.Span(b.count)
	if err != nil {
		return &Error{Op: op, Class: ErrType, Peer: -1, Err: err}
	}
	n, err := b.typ.PackSize(b.count) // many times what they span, if they overlap
	if err != nil {
		return &Error{Op: op, Class: ErrType, Peer: -1, Err: err}
	}
	if int64(n) > mostBytes {
		return fail(op, ErrCount, "%d items of %v are %d bytes; a message has up to %d", b.count, b.typ, n, int64(mostBytes))
	}
	if b.origin < -lo || b.origin > len(b.mem)-hi { // neither can overflow: see Span
		return fail(op, ErrBuffer, "%d items of %v need bytes %d to %d, from %d on, of a buffer of %d", b.count, b.typ, lo, hi, b.origin, len(b.mem))
	}
	return nil
}

// direct returns the items' memory if a message may come from it or go to it as
// it is.
func (b Buf) direct() ([]byte, bool) {
	off, ok := b.typ.Contiguous(b.count)
	if !ok {
		return nil, false
	}
	n, _ := b.typ.PackSize(b.count) // check has looked
	return b.mem[b.origin+off:][:n], true
}

// packed returns the items as a message.
func (b Buf) packed(op string) ([]byte, error) {
	if err := b.check(op); err != nil {
		return nil, err
	}
	if m, ok := b.direct(); ok {
		return m, nil
	}
	n, _ := b.typ.PackSize(b.count) // check has looked
	m := make([]byte, n)
	if _, err := b.typ.Pack(m, b.mem, b.origin, b.count); err != nil {
		return nil, &Error{Op: op, Class: ErrBuffer, Peer: -1, Err: err}
	}
	return m, nil
}

// landing returns memory to receive a message in, and what takes it to its
// place; nil if it is there already.
func (b Buf) landing(op string) (m []byte, place func(n int) error, err error) {
	if err := b.check(op); err != nil {
		return nil, nil, err
	}
	if m, ok := b.direct(); ok {
		return m, nil, nil
	}
	size, _ := b.typ.PackSize(b.count) // check has looked
	m = make([]byte, size)
	return m, func(n int) error {
		_, err := b.typ.UnpackAt(b.mem, m[:n], b.origin, b.count, 0)
		return err
	}, nil
}

// Pack appends the items of a Buf to dst in the form of a message, which Unpack
// of a process of the same architecture takes apart (MPI 4.1 §5.2).
func Pack(dst []byte, b Buf) ([]byte, error) {
	m, err := b.packed("Pack")
	if err != nil {
		return dst, err
	}
	return append(dst, m...), nil
}

// Unpack takes the items of a Buf from the beginning of src and returns the rest.
func Unpack(src []byte, b Buf) (rest []byte, err error) {
	if err := b.check("Unpack"); err != nil {
		return src, err
	}
	n, err := b.typ.Unpack(b.mem, src, b.origin, b.count)
	if err != nil {
		return src, &Error{Op: "Unpack", Class: ErrTruncate, Peer: -1, Err: err}
	}
	return src[n:], nil
}

// PackExternal is Pack in external32, which every MPI on every machine reads
// (MPI 4.1 §14.5.2).
func PackExternal(dst []byte, b Buf) ([]byte, error) {
	if err := b.check("PackExternal"); err != nil {
		return dst, err
	}
	n, _ := b.typ.ExternalSize(b.count) // check has looked
	m := make([]byte, n)
	if _, err := b.typ.PackExternal(m, b.mem, b.origin, b.count); err != nil {
		return dst, &Error{Op: "PackExternal", Class: ErrBuffer, Peer: -1, Err: err}
	}
	return append(dst, m...), nil
}

// UnpackExternal takes the items of a Buf from external32 and returns the rest.
func UnpackExternal(src []byte, b Buf) (rest []byte, err error) {
	if err := b.check("UnpackExternal"); err != nil {
		return src, err
	}
	n, err := b.typ.UnpackExternal(b.mem, src, b.origin, b.count)
	if err != nil {
		return src, &Error{Op: "UnpackExternal", Class: ErrTruncate, Peer: -1, Err: err}
	}
	return src[n:], nil
}

// vec is what a collective operation works on: elements in one piece.
type vec struct {
	b    []byte
	n    int // elements
	each int // bytes of one
	typ  *Type
	kind datatype.Kind  // of elements that are of a basic type; else Invalid
	elem reflect.Type   // nil: of no one Go type
	swap engine.Swapper // nil: typ
}

func vecOf[T Scalar](s []T) vec {
	k := kindOf[T]()
	t := datatype.Basic(k)
	v := vec{b: bytesOf(s), n: len(s), each: t.Size(), typ: t, kind: k, elem: reflect.TypeFor[T]()}
	if s != nil && v.b == nil {
		v.b = []byte{} // nothing, but not in place
	}
	return v
}

// none reports whether there is no buffer: in place, or not needed.
func (v vec) none() bool { return v.b == nil }

// size is the bytes of one element.
func (v vec) size() int { return v.each }

// reduction returns the kernel of a predefined operation for the elements.
func (v vec) reduction(o datatype.OpKind) (datatype.Kernel, bool) {
	if v.typ == nil {
		return nil, false
	}
	if v.kind != datatype.Invalid && o != datatype.MinLoc && o != datatype.MaxLoc {
		return datatype.Reduce(o, v.kind)
	}
	kind := datatype.Invalid
	for k := range v.typ.SignatureRuns() {
		kind = k
		break
	}
	if o == datatype.MinLoc || o == datatype.MaxLoc {
		t := datatype.LocType(kind)
		if t == nil || v.each != t.Extent() || !slices.Equal(slices.Collect(t.Runs()), slices.Collect(v.typ.Runs())) {
			return nil, false
		}
		return datatype.Reduce(o, kind)
	}
	if t := datatype.Basic(kind); t == nil || t.Signature(v.typ.Elems()) != v.typ.Signature(1) {
		return nil, false
	}
	if v.elem != nil { // a kernel takes what is between for elements
		for r := range v.typ.Runs() {
			if r.Off%kind.Size() != 0 || v.each%kind.Size() != 0 {
				return nil, false
			}
		}
	}
	return datatype.Reduce(o, kind)
}
