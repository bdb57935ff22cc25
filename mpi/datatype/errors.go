package datatype

import "errors"

// What a caller branches on. Errors returned by this package wrap one of them.
var (
	// ErrCount: a count or block length is negative, or lists that belong together differ in length.
	ErrCount = errors.New("invalid count")
	// ErrArg: an argument of a constructor is outside what MPI 4.1 section 5.1 allows.
	ErrArg = errors.New("invalid argument")
	// ErrType: a nil type, or a Go type that cannot travel.
	ErrType = errors.New("invalid datatype")
	// ErrOverflow: a size, extent or displacement does not fit an int.
	ErrOverflow = errors.New("datatype too large")
	// ErrBuffer: the memory that the items would occupy is not all inside the buffer.
	ErrBuffer = errors.New("buffer does not hold the items")
	// ErrShort: the packed side has no room for the items, or has fewer bytes than they need.
	ErrShort = errors.New("packed buffer too small")
	// ErrEncoding: bytes that describe no datatype.
	ErrEncoding = errors.New("malformed datatype description")
	// ErrOp: the operation is not defined for the kind (MPI 4.1 section 6.9.2).
	ErrOp = errors.New("invalid operation for datatype")
)
