package mpi

import "context"

// What MPI 4.1 has and this package does not, yet. The functions are here so that
// a program that wants them is told in words; each returns ErrUnsupported.

// File is a file of MPI-IO (MPI 4.1 chapter 14). There is none.
type File struct{}

// Session is a session (MPI 4.1 §11.3). There is none: use Init.
type Session struct{}

// Partitioned is a partitioned operation (MPI 4.1 chapter 4). There is none.
type Partitioned struct{}

// OpenFile is not there: it returns ErrUnsupported.
func (c *Comm) OpenFile(name string, flags int, info *Info) (*File, error) {
	return nil, fail("OpenFile", ErrUnsupported, "MPI-IO is not there yet; gather the data and use package os")
}

// NewSession is not there: it returns ErrUnsupported.
func NewSession(ctx context.Context, info *Info) (*Session, error) {
	return nil, fail("NewSession", ErrUnsupported, "sessions are not there yet; use Init")
}

// PsendInit is not there: it returns ErrUnsupported.
func PsendInit[T Scalar](c *Comm, buf []T, partitions, dest, tag int) (*Partitioned, error) {
	return nil, fail("PsendInit", ErrUnsupported, "partitioned communication is not there yet; use SendInit for each part")
}

// PrecvInit is not there: it returns ErrUnsupported.
func PrecvInit[T Scalar](c *Comm, buf []T, partitions, source, tag int) (*Partitioned, error) {
	return nil, fail("PrecvInit", ErrUnsupported, "partitioned communication is not there yet; use RecvInit for each part")
}
