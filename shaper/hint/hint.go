// Package hint carries what programs know of their traffic to the pacer: which
// all-to-all operations are under way, how many hosts of this site take part in
// them, and what rate the program itself asks for. GridMPI paces by exactly these
// (facts of its papers: MATB = B/n with n the hosts of a site that send at once).
//
// A program shares one page of memory with its node's daemon. It makes the page, a
// memfd whose size is sealed, and hands it over through a Unix socket; from then on
// it only writes words of its own memory, so that a hint costs some nanoseconds,
// never waits and works alike whether a daemon reads it or not. The connection is
// the page's life: when the program ends, however it does, the page is gone; when
// the daemon ends, the program hands the same page to the next one.
//
// The daemon's side is Server, the program's is Page. The C library
// mpishim/preload/pattern writes the same page for programs in C and Fortran.
//
// Nothing in a page is believed: values are held to ranges, and the most that a
// program gains by lies is another rate. What becomes of a hint is the pacer's to
// say; this package paces nothing and knows no sites.
package hint

import (
	"fmt"
	"math"
)

// Op is a kind of operation.
type Op uint8

// The operations of which programs tell. A nonblocking or persistent one is of the
// same kind as its blocking form.
const (
	None Op = iota
	Alltoall
	Alltoallv
	Alltoallw

	maxOps = 8 // of which a page can tell
)

// String names an operation as MPI does.
func (o Op) String() string {
	switch o {
	case None:
		return "none"
	case Alltoall:
		return "alltoall"
	case Alltoallv:
		return "alltoallv"
	case Alltoallw:
		return "alltoallw"
	}
	return fmt.Sprintf("op%d", uint8(o))
}

// Bounds of what is taken from a page.
const (
	MinMATB  = 100_000             // bits per second: lower ones count as this
	MaxMATB  = 100_000_000_000_000 // higher ones are none
	MaxHosts = 1 << 16             // more count as this
	maxParts = MaxHosts << partBits
)

// partBits are the bits behind the point of Request.Parts.
const partBits = 10

// Whole is one part of one in Request.Parts: B/n is n × Whole.
const Whole = 1 << partBits

// Request is what programs ask of the pacer. Its parts stand by themselves; Rate
// says which one counts.
type Request struct {
	Op    Op    // of the operation that Hosts is of
	Hosts int   // the most hosts of this site in an all-to-all under way; 0: none is
	MATB  int64 // the lowest rate that a program has set, bits per second; 0: none
	Parts int64 // the job's pattern: B×Whole/Parts is a node's rate; 0: none
}

// Rate returns the rate, in bits per second, at which a node may send over a link of
// b: the rate that was set, else the all-to-all's share, else the pattern's. 0 says
// that nothing was asked for. The whole of b is never exceeded, but by MATB where b is
// 0 for not known, and then only MATB counts.
func (r Request) Rate(b int64) int64 {
	switch {
	case r.MATB > 0 && b > 0:
		return min(r.MATB, b)
	case r.MATB > 0:
		return r.MATB
	case b <= 0:
		return 0
	case r.Hosts > 0:
		return max(1, b/int64(r.Hosts))
	case r.Parts > 0:
		return max(1, int64(math.Min(float64(b), float64(b)*Whole/float64(r.Parts))))
	}
	return 0
}

// join adds what another page asks for: each the strictest.
func (r Request) join(o Request) Request {
	if o.Hosts > r.Hosts {
		r.Op, r.Hosts = o.Op, o.Hosts
	}
	if o.MATB > 0 && (r.MATB == 0 || o.MATB < r.MATB) {
		r.MATB = o.MATB
	}
	r.Parts = max(r.Parts, o.Parts)
	return r
}
