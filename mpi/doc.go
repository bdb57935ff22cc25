// Package mpi is MPI for Go: message passing between the processes of a parallel
// program, without cgo. Its semantics are those of the MPI 4.1 standard, its form
// is Go's: slices are buffers, errors are values, any goroutine may call anything.
//
//	package main
//
//	import (
//		"fmt"
//
//		"github.com/meshmpi/meshmpi/mpi"
//	)
//
//	func main() {
//		mpi.Main(func(c *mpi.Comm) error {
//			fmt.Println("rank", c.Rank(), "of", c.Size())
//			return nil
//		})
//	}
//
// Such a program is started by meshrun, over any number of sites, by Hydra's
// mpiexec, by Open MPI's mpirun or by srun; alone it is one rank.
//
// # Conventions
//
// What communicates is a function with a type parameter ([Send], [Allreduce]) for
// slices of numbers, whose length is the count, and a method (Comm.SendBuf) for
// what lies in memory in another way: a [Buf] is memory with a datatype. Functions
// whose name begins with I return a [Request] at once; those that end with Init
// set an operation up to be begun many times. Collective operations take a nil
// send buffer for MPI_IN_PLACE.
//
// Errors are of type [*Error]; errors.Is(err, ErrTruncate) asks for their class.
// The default of MPI, to end the job at an error, is [Main]'s: it aborts when the
// program's function returns one.
//
// Messages between two processes of a host go through shared memory, others
// through TCP. Collective operations know which ranks are on one host and on one
// site: between sites they send each byte once and wait one latency.
//
// While an Alltoall, Alltoallv or Alltoallw, of any form, is under way in a communicator
// of several sites, the node's meshd is told so, and has the node send at its share of
// the site's link. The attributes [MATB] and [MaxRate] do the same by hand. Without
// meshd nothing is told, and nothing else changes.
//
// The processes of a host share its processors: Init sets GOMAXPROCS to a fair share,
// at least 1, of what it was, unless the environment variable of that name is set.
// One that has every processor to itself would keep waking threads, which take the
// processor from the rank that is to answer. A program may set it anew after Init.
// Where there are twice as many ranks of a communicator on a host as processors, or
// more, its collective operations take the fewest rounds, whatever they cost in
// messages. Up to 16 ranks that are all on such a host show each other what they give, in
// memory that all see, after they have done so for a while by messages: in Barrier,
// Allreduce, Scan and Exscan, Allgather and Alltoall of up to 240 bytes from each rank,
// when they wait for them.
//
// README.md has a table of what there is of each chapter of the standard, and
// what is not: MPI-IO, sessions and partitioned communication.
package mpi
