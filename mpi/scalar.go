package mpi

import (
	"reflect"
	"unsafe"

	"github.com/meshmpi/meshmpi/mpi/datatype"
)

// Scalar is what a message consists of: Go's numbers and booleans, and types
// made from them. Structs, arrays and strided data go by Buf. What is received as booleans
// must have been sent as such: Go takes a byte that is neither 0 nor 1 for either.
type Scalar interface {
	~bool | ~int8 | ~int16 | ~int32 | ~int64 | ~int | ~uint8 | ~uint16 | ~uint32 | ~uint64 | ~uint | ~uintptr |
		~float32 | ~float64 | ~complex64 | ~complex128
}

// bytesOf is the memory of s, not a copy.
func bytesOf[T any](s []T) []byte {
	if len(s) == 0 {
		return nil
	}
	return unsafe.Slice((*byte)(unsafe.Pointer(&s[0])), len(s)*int(unsafe.Sizeof(s[0])))
}

// addressOf is where b begins.
func addressOf(b []byte) uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(b))) }

// kindOf returns the basic kind of T. The switch is decided when T's shape is
// compiled, so that it costs nothing where the result is used.
func kindOf[T Scalar]() datatype.Kind {
	var z T
	switch any(z).(type) {
	case bool:
		return datatype.Bool
	case int8:
		return datatype.Int8
	case int16:
		return datatype.Int16
	case int32:
		return datatype.Int32
	case int64:
		return datatype.Int64
	case uint8:
		return datatype.Uint8
	case uint16:
		return datatype.Uint16
	case uint32:
		return datatype.Uint32
	case uint64:
		return datatype.Uint64
	case float32:
		return datatype.Float32
	case float64:
		return datatype.Float64
	case complex64:
		return datatype.Complex64
	case complex128:
		return datatype.Complex128
	}
	return kindByReflection(reflect.TypeOf(z))
}

// kindByReflection serves int, uint, uintptr, whose size the platform decides,
// and named types.
func kindByReflection(t reflect.Type) datatype.Kind {
	wide := t.Size() == 8
	switch t.Kind() {
	case reflect.Int:
		if wide {
			return datatype.Int64
		}
		return datatype.Int32
	case reflect.Uint, reflect.Uintptr:
		if wide {
			return datatype.Uint64
		}
		return datatype.Uint32
	}
	return scalarKinds[t.Kind()]
}

var scalarKinds = map[reflect.Kind]datatype.Kind{
	reflect.Bool: datatype.Bool, reflect.Int8: datatype.Int8, reflect.Int16: datatype.Int16, reflect.Int32: datatype.Int32,
	reflect.Int64: datatype.Int64, reflect.Uint8: datatype.Uint8, reflect.Uint16: datatype.Uint16, reflect.Uint32: datatype.Uint32,
	reflect.Uint64: datatype.Uint64, reflect.Float32: datatype.Float32, reflect.Float64: datatype.Float64,
	reflect.Complex64: datatype.Complex64, reflect.Complex128: datatype.Complex128,
}
