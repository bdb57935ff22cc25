package datatype

import "reflect"

// Of is the type of a Go type: a number, a boolean, or an array or struct of
// such, at Go's own offsets and with Go's own size as extent, so that items are
// the elements of a slice. Fields named _ are padding and do not travel. The
// error names the field that is in the way: a pointer, slice, map, string,
// interface, channel or function has no meaning in another process. Padding may be of
// one only if it has no bytes, as [0]func().
//
// The recipe is a struct of the fields, a contiguous for an array. int, uint and
// uintptr count as what they are on this platform.
func Of(t reflect.Type) (*Type, error) {
	if t == nil {
		return nil, fail("of", ErrType, "nil type")
	}
	return of(t, t.String())
}

func of(t reflect.Type, path string) (*Type, error) {
	switch t.Kind() {
	case reflect.Array:
		elem, err := of(t.Elem(), path+"[]")
		if err != nil {
			return nil, err
		}
		return Contiguous(t.Len(), elem)
	case reflect.Struct:
		return ofStruct(t, path)
	}
	if k := kindOf(t); k != Invalid {
		return Basic(k), nil
	}
	return nil, fail("of", ErrType, "%s is a %s, which cannot travel", path, t.Kind())
}

func ofStruct(t reflect.Type, path string) (*Type, error) {
	var lens, displs []int
	var types []*Type
	for i := range t.NumField() {
		f := t.Field(i)
		if f.Name == "_" && f.Type.Size() == 0 {
			continue
		}
		ft, err := of(f.Type, path+"."+f.Name)
		if err != nil {
			return nil, err
		}
		if f.Name == "_" {
			continue
		}
		lens, displs, types = append(lens, 1), append(displs, int(f.Offset)), append(types, ft)
	}
	s, err := Struct(lens, displs, types)
	if err != nil {
		return nil, err
	}
	if s.lb == 0 && s.Extent() == int(t.Size()) {
		return s, nil
	}
	return Resized(s, 0, int(t.Size()))
}

// kindOf is the basic kind of a Go type, Invalid if it has none.
func kindOf(t reflect.Type) Kind {
	signed, unsigned := Int64, Uint64
	if t.Size() == 4 {
		signed, unsigned = Int32, Uint32
	}
	switch t.Kind() {
	case reflect.Bool:
		return Bool
	case reflect.Int:
		return signed
	case reflect.Int8:
		return Int8
	case reflect.Int16:
		return Int16
	case reflect.Int32:
		return Int32
	case reflect.Int64:
		return Int64
	case reflect.Uint, reflect.Uintptr:
		return unsigned
	case reflect.Uint8:
		return Uint8
	case reflect.Uint16:
		return Uint16
	case reflect.Uint32:
		return Uint32
	case reflect.Uint64:
		return Uint64
	case reflect.Float32:
		return Float32
	case reflect.Float64:
		return Float64
	case reflect.Complex64:
		return Complex64
	case reflect.Complex128:
		return Complex128
	}
	return Invalid
}
