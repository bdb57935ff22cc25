package datatype

import "unsafe"

// Kind is a basic datatype: what a type map is made of. Its values travel
// between processes and do not change.
type Kind uint8

// The basic kinds. Byte is uninterpreted (MPI_BYTE), where Uint8 is a number;
// neither is ever changed by conversion. Bool is one byte, 0 or 1.
const (
	Invalid Kind = iota
	Byte
	Bool
	Int8
	Int16
	Int32
	Int64
	Uint8
	Uint16
	Uint32
	Uint64
	Float32
	Float64
	Complex64
	Complex128
	numKinds
)

// kinds tells of each kind its name, its bytes, the bytes of the words that byte
// order concerns, and this platform's alignment.
var kinds = [numKinds]struct {
	name              string
	size, word, align int
}{
	Invalid:    {"invalid", 0, 1, 1},
	Byte:       {"byte", 1, 1, 1},
	Bool:       {"bool", 1, 1, 1},
	Int8:       {"int8", 1, 1, 1},
	Int16:      {"int16", 2, 2, int(unsafe.Alignof(int16(0)))},
	Int32:      {"int32", 4, 4, int(unsafe.Alignof(int32(0)))},
	Int64:      {"int64", 8, 8, int(unsafe.Alignof(int64(0)))},
	Uint8:      {"uint8", 1, 1, 1},
	Uint16:     {"uint16", 2, 2, int(unsafe.Alignof(uint16(0)))},
	Uint32:     {"uint32", 4, 4, int(unsafe.Alignof(uint32(0)))},
	Uint64:     {"uint64", 8, 8, int(unsafe.Alignof(uint64(0)))},
	Float32:    {"float32", 4, 4, int(unsafe.Alignof(float32(0)))},
	Float64:    {"float64", 8, 8, int(unsafe.Alignof(float64(0)))},
	Complex64:  {"complex64", 8, 4, int(unsafe.Alignof(complex64(0)))},
	Complex128: {"complex128", 16, 8, int(unsafe.Alignof(complex128(0)))},
}

// Valid reports whether k is one of the basic kinds.
func (k Kind) Valid() bool { return k > Invalid && k < numKinds }

// Size is the bytes of one value, 0 for an invalid kind. It is the same in
// memory, in a packed message and in external32.
func (k Kind) Size() int {
	if k >= numKinds {
		return 0
	}
	return kinds[k].size
}

// String is Go's name of the kind, and "byte" for Byte.
func (k Kind) String() string {
	if k >= numKinds {
		return "invalid"
	}
	return kinds[k].name
}
