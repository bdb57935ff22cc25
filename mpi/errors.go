package mpi

import (
	"errors"
	"fmt"
)

// Class says what kind of thing went wrong (MPI 4.1 §9.4). It is an error
// itself, so that errors.Is(err, mpi.ErrTruncate) reads as it should.
type Class uint8

// The classes of MPI 4.1 table 9.1 and 9.2 that this library uses, and those of
// user-level failure mitigation.
const (
	ErrOther Class = iota + 1
	ErrBuffer
	ErrCount
	ErrType
	ErrTag
	ErrComm
	ErrRank
	ErrRoot
	ErrGroup
	ErrOp
	ErrTopology
	ErrDims
	ErrArg
	ErrTruncate
	ErrRequest
	ErrInfo
	ErrName
	ErrService
	ErrPort
	ErrSpawn
	ErrKeyval
	ErrWin
	ErrDisp
	ErrLockType
	ErrRMASync
	ErrRMAConflict
	ErrRMARange
	ErrNoMem
	ErrPending
	ErrIntern
	ErrNotInitialized // before Init or after Finalize
	ErrUnsupported    // a part of MPI that is not there; see PARITY
	ErrProcFailed     // a process it needs has died
	ErrProcFailedPending
	ErrRevoked // the communicator was revoked
	ErrAborted // the job is being ended
)

var classNames = [...]string{
	ErrOther: "error", ErrBuffer: "invalid buffer", ErrCount: "invalid count", ErrType: "invalid datatype",
	ErrTag: "invalid tag", ErrComm: "invalid communicator", ErrRank: "invalid rank", ErrRoot: "invalid root", ErrGroup: "invalid group",
	ErrOp: "invalid operation", ErrTopology: "invalid topology", ErrDims: "invalid dimension", ErrArg: "invalid argument",
	ErrTruncate: "message truncated", ErrRequest: "invalid request", ErrInfo: "invalid info", ErrName: "service name not published",
	ErrService: "service name cannot be unpublished", ErrPort: "invalid port name", ErrSpawn: "cannot spawn", ErrKeyval: "invalid attribute key",
	ErrWin: "invalid window", ErrDisp: "invalid displacement", ErrLockType: "invalid lock type", ErrRMASync: "wrong synchronization of RMA calls",
	ErrRMAConflict: "conflicting accesses to a window", ErrRMARange: "target outside of the window", ErrNoMem: "out of memory", ErrPending: "pending",
	ErrIntern: "internal error", ErrNotInitialized: "MPI is not initialized, or was finalized", ErrUnsupported: "not supported",
	ErrProcFailed: "process failed", ErrProcFailedPending: "a process that could have sent it failed; the receive stays pending", ErrRevoked: "communicator revoked",
	ErrAborted: "job aborted",
}

// Error implements error.
func (c Class) Error() string {
	if int(c) < len(classNames) && classNames[c] != "" {
		return "mpi: " + classNames[c]
	}
	return fmt.Sprintf("mpi: error class %d", uint8(c))
}

// Error is what every function of this package returns when it fails.
type Error struct {
	Op    string // the function: "Recv"
	Class Class
	Peer  int   // the rank it was about, in the communicator of the call; -1: none
	Err   error // the cause; may be nil
}

// Error says function, class, rank and cause in one line.
func (e *Error) Error() string {
	s := "mpi: " + e.Op
	if c := e.Class.Error(); e.Class != 0 && (e.Class != ErrOther || e.Err == nil) {
		s += ": " + c[len("mpi: "):]
	}
	if e.Peer >= 0 {
		s += fmt.Sprintf(" (rank %d)", e.Peer)
	}
	if e.Err != nil {
		s += ": " + e.Err.Error()
	}
	return s
}

// Unwrap gives errors.Is the class and the cause.
func (e *Error) Unwrap() []error {
	if e.Err == nil {
		return []error{e.Class}
	}
	return []error{e.Class, e.Err}
}

// fail makes an Error about no rank.
func fail(op string, c Class, format string, args ...any) error {
	return &Error{Op: op, Class: c, Peer: -1, Err: fmt.Errorf(format, args...)}
}

// ClassOf returns the class of an error of this package, ErrOther for a foreign
// one and zero for nil.
func ClassOf(err error) Class {
	if err == nil {
		return 0
	}
	var e *Error
	if errors.As(err, &e) {
		return e.Class
	}
	var c Class
	if errors.As(err, &c) {
		return c
	}
	return ErrOther
}
