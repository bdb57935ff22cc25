package datatype

import "reflect"

// Loc is an operand of MinLoc and MaxLoc: a value and where it was found, such
// as a rank (MPI 4.1 section 6.9.4). It has Go's alignment.
type Loc[T any] struct {
	Value T
	Index int64
}

// LocType is the type of Loc[T] for the kind of T. It is nil where MinLoc is not
// defined for the kind.
func LocType(k Kind) *Type {
	if !k.Valid() {
		return nil
	}
	return locTypes[k]
}

// locTypes are made once, so that each is the same pointer every time.
var locTypes = func() (all [numKinds]*Type) {
	for k, v := range map[Kind]any{
		Int8: Loc[int8]{}, Int16: Loc[int16]{}, Int32: Loc[int32]{}, Int64: Loc[int64]{},
		Uint8: Loc[uint8]{}, Uint16: Loc[uint16]{}, Uint32: Loc[uint32]{}, Uint64: Loc[uint64]{},
		Float32: Loc[float32]{}, Float64: Loc[float64]{},
	} {
		t, err := Of(reflect.TypeOf(v))
		if err != nil {
			panic(err) // a Loc of a basic kind that cannot travel
		}
		all[k] = t
	}
	return all
}()

// before reports whether a goes before b: it is less, or a NaN where b is none,
// or equal (two NaNs are) and of the lower index. That order is total, so the
// result of a reduction does not depend on the shape of its tree.
func minBefore[T reals](a, b Loc[T]) bool {
	switch {
	case a.Value < b.Value:
		return true
	case b.Value < a.Value:
		return false
	case a.Value == b.Value:
		return a.Index < b.Index
	}
	return nanBefore(a, b)
}

func maxBefore[T reals](a, b Loc[T]) bool {
	switch {
	case a.Value > b.Value:
		return true
	case b.Value > a.Value:
		return false
	case a.Value == b.Value:
		return a.Index < b.Index
	}
	return nanBefore(a, b)
}

// nanBefore decides where at least one value is a NaN.
func nanBefore[T reals](a, b Loc[T]) bool {
	aNaN, bNaN := a.Value != a.Value, b.Value != b.Value
	if aNaN && bNaN {
		return a.Index < b.Index
	}
	return aNaN
}

func minLocLoop[T reals](in, inout []Loc[T]) {
	inout = inout[:len(in)]
	for i, a := range in {
		if minBefore(a, inout[i]) {
			inout[i] = a
		}
	}
}

func maxLocLoop[T reals](in, inout []Loc[T]) {
	inout = inout[:len(in)]
	for i, a := range in {
		if maxBefore(a, inout[i]) {
			inout[i] = a
		}
	}
}
