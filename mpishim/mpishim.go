// Package mpishim runs unmodified MPI programs over the overlay: it tells which
// MPI a program was built with, decides where ranks go, checks the nodes before
// anything starts, and drives the user's own mpirun or mpiexec with the agent,
// interfaces and settings that fit the overlay.
//
// It exists because every MPI library must be told, in its own words, how to
// start remote processes and which interface to use for start-up and for data,
// and because launchers fail silently or in pages of text where one line would do.
//
// Programs of package mpi have no launcher of their own: for them meshrun serves
// PMI-1 and starts an agent on each node, see RunGo.
//
// It implements no MPI; the remote shell is package exec's, the wire-up protocol
// mpi/pmi's, and what the network looks like now is the caller's to say.
package mpishim

import (
	"errors"
	"fmt"
	"net/netip"
)

// Kind is a family of MPI libraries: those that one launcher starts.
type Kind string

// The families.
const (
	OpenMPI Kind = "openmpi"
	MPICH   Kind = "mpich"
	Intel   Kind = "intel"
	Go      Kind = "go" // this project's package mpi
)

// ParseKind reads the value of meshrun's --mpi; "auto" and "" are the empty Kind.
func ParseKind(s string) (Kind, error) {
	switch k := Kind(s); k {
	case "", "auto":
		return "", nil
	case OpenMPI, MPICH, Intel, Go:
		return k, nil
	}
	return "", fmt.Errorf("mpishim: no MPI is called %q; use auto, openmpi, mpich, intel or go", s)
}

// Overlay is what launchers must know of the network, seen from this node.
type Overlay struct {
	Node, Site string
	TUN        string       // the overlay's interface here, mesh0
	CIDR       netip.Prefix // virtual IPv4 addresses
	Addr       netip.Addr   // this node's
	BinDir     string       // where meshrsh and meshrun are
	StateDir   string
}

// Host is a node that could run ranks.
type Host struct {
	Name, Site, Domain string     // of the node, its site, and its network's names
	Addr, Addr6        netip.Addr // virtual addresses; programs use the first, for IPv4
	Cores              int        // 0: not known, counts as 1
	Up                 bool
	Self               bool // this node
	Spare              bool // a hub or relay only: used when -H names it
}

// App is one program of a job, as the parts between colons of a command line.
type App struct {
	N    int // ranks
	Prog string
	Args []string
}

// Exit codes of a job whose program did not decide itself.
const (
	CodeFailed    = 125
	CodeCannotRun = 126
	CodeNotFound  = 127
)

// ExitError is an error with the exit code that it stands for.
type ExitError struct {
	Code int
	Err  error
}

// Error implements error.
func (e *ExitError) Error() string { return e.Err.Error() }

// Unwrap gives errors.Is and errors.As the cause.
func (e *ExitError) Unwrap() error { return e.Err }

// Code returns the exit code that err stands for: an ExitError's own, 0 for
// nil, CodeFailed for any other.
func Code(err error) int {
	var exit *ExitError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &exit):
		return exit.Code
	}
	return CodeFailed
}

func failf(code int, format string, args ...any) error {
	return &ExitError{code, fmt.Errorf("mpishim: "+format, args...)}
}
