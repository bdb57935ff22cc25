package mpi

import (
	"reflect"
	"unsafe"

	"github.com/meshmpi/meshmpi/mpi/datatype"
)

// Op combines elements in reductions (MPI 4.1 §6.9). The zero Op is none.
type Op struct{ *op }

type op struct {
	name     string
	kind     datatype.OpKind // of a predefined one
	user     func(in, inout []byte)
	elem     reflect.Type // of a user's
	commutes bool
}

// The predefined operations. Which scalars they apply to is MPI's table 6.9.2:
// the logical ones take every non-zero number as true, the bitwise ones want
// integers, complex numbers have no order. MinLoc and MaxLoc want Loc.
var (
	Sum     = predefined("sum", datatype.Sum)
	Prod    = predefined("product", datatype.Prod)
	Min     = predefined("minimum", datatype.Min)
	Max     = predefined("maximum", datatype.Max)
	LAnd    = predefined("logical and", datatype.Land)
	LOr     = predefined("logical or", datatype.Lor)
	LXor    = predefined("logical exclusive or", datatype.Lxor)
	BAnd    = predefined("bitwise and", datatype.Band)
	BOr     = predefined("bitwise or", datatype.Bor)
	BXor    = predefined("bitwise exclusive or", datatype.Bxor)
	MinLoc  = predefined("minimum and place", datatype.MinLoc)
	MaxLoc  = predefined("maximum and place", datatype.MaxLoc)
	Replace = predefined("replace", datatype.Replace) // one-sided operations only
	NoOp    = predefined("no operation", datatype.NoOp)
)

func predefined(name string, k datatype.OpKind) Op {
	return Op{&op{name: name, kind: k, commutes: k.Commutes()}}
}

// Loc is a value and the index where it was found, for MinLoc and MaxLoc: of
// equal values the lowest index wins. Send it by BufOf.
type Loc[T Scalar] struct {
	Value T
	Index int64
}

// NewOp makes an operation of f, which combines in[i] of lower ranks into
// inout[i] for all i. It must be associative; say whether it commutes. f runs
// inside the library: it must not call it and should not take long.
func NewOp[T any](f func(in, inout []T), commutes bool) Op {
	size := int(unsafe.Sizeof(*new(T)))
	return Op{&op{
		name: "user's operation", elem: reflect.TypeFor[T](), commutes: commutes,
		user: func(in, inout []byte) {
			if size == 0 || len(in) == 0 {
				return
			}
			n := len(in) / size
			f(unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(in))), n), unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(inout))), n))
		},
	}}
}

// Commutes reports whether the order of operands does not matter.
func (o Op) Commutes() bool { return o.op != nil && o.commutes }

// kernel returns what combines operands in memory.
func (o Op) kernel(name string, v vec) (func(in, inout []byte), error) {
	switch {
	case o.op == nil:
		return nil, fail(name, ErrOp, "the operation is the zero Op")
	case o.user != nil && v.goType() != o.elem:
		return nil, fail(name, ErrOp, "the operation is for %v, the data are %v", o.elem, v.goType())
	case o.user != nil:
		return o.user, nil
	case o.kind == datatype.Replace || o.kind == datatype.NoOp:
		return nil, fail(name, ErrOp, "%s is for one-sided operations (MPI 4.1 §12.3.4)", o.name)
	}
	k, ok := v.reduction(o.kind)
	if !ok {
		return nil, fail(name, ErrOp, "%s does not apply to %s", o.name, v.typeName())
	}
	return k, nil
}

// LocalReduce combines in into inout without any communication (MPI 4.1
// §6.9.7).
func LocalReduce[T Scalar](in, inout []T, o Op) error {
	if len(in) != len(inout) {
		return fail("LocalReduce", ErrCount, "%d elements into %d", len(in), len(inout))
	}
	k, err := o.kernel("LocalReduce", vecOf(in))
	if err != nil {
		return err
	}
	k(bytesOf(in), bytesOf(inout))
	return nil
}
