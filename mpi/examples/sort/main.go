// Command sort sorts numbers that are spread over all ranks, by sampling: the
// ranks agree on borders from samples, give each number to the rank whose range
// it is in, and sort what they get.
package main

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/meshmpi/meshmpi/mpi"
)

func main() {
	n := flag.Int("n", 1_000_000, "numbers on each rank")
	seed := flag.Uint64("seed", 1, "of the random numbers")
	flag.Parse()
	mpi.Main(func(c *mpi.Comm) error {
		r := rand.New(rand.NewPCG(*seed, uint64(c.Rank())))
		in := make([]int64, *n)
		for i := range in {
			in[i] = r.Int64()
		}
		if err := mpi.Barrier(c); err != nil {
			return err
		}
		began := time.Now()
		out, err := sort(c, in)
		if err != nil {
			return err
		}
		took := time.Since(began)
		if err := check(c, in, out); err != nil {
			return err
		}
		most := []int{len(out)}
		if err := mpi.Allreduce(c, nil, most, mpi.Max); err != nil {
			return err
		}
		if c.Rank() == 0 {
			fmt.Printf("sort: %d numbers on %d ranks in %v, in order; the fullest rank has %.2f of its share\n",
				*n*c.Size(), c.Size(), took.Round(time.Millisecond), float64(most[0])/float64(*n))
		}
		return nil
	})
}

// samples is how many each rank gives for the borders: more balance better.
const samples = 64

// sort returns the caller's part of all numbers in order: rank 0 has the lowest.
func sort(c *mpi.Comm, in []int64) ([]int64, error) {
	in = slices.Clone(in)
	slices.Sort(in)
	mine := make([]int64, samples)
	for i := range mine {
		if len(in) > 0 {
			mine[i] = in[len(in)*i/samples]
		}
	}
	all := make([]int64, samples*c.Size())
	if err := mpi.Allgather(c, mine, all); err != nil {
		return nil, err
	}
	slices.Sort(all)
	send := mpi.Layout{Counts: make([]int, c.Size())}
	from := 0
	for r := range send.Counts {
		to := len(in)
		if r < c.Size()-1 {
			to, _ = slices.BinarySearch(in, all[samples*(r+1)])
		}
		send.Counts[r] = to - from
		from = to
	}
	recv := mpi.Layout{Counts: make([]int, c.Size())}
	if err := mpi.Alltoall(c, send.Counts, recv.Counts); err != nil {
		return nil, err
	}
	total := 0
	for _, n := range recv.Counts {
		total += n
	}
	out := make([]int64, total)
	if err := mpi.Alltoallv(c, in, send, out, recv); err != nil {
		return nil, err
	}
	slices.Sort(out)
	return out, nil
}

// check looks whether out is in order, across ranks too, and has the same numbers
// as in, by their sum.
func check(c *mpi.Comm, in, out []int64) error {
	if !slices.IsSorted(out) {
		return fmt.Errorf("rank %d is not in order", c.Rank())
	}
	sums := make([]int64, 2)
	for _, v := range in {
		sums[0] += v
	}
	for _, v := range out {
		sums[1] += v
	}
	if err := mpi.Allreduce(c, nil, sums, mpi.Sum); err != nil {
		return err
	}
	if sums[0] != sums[1] {
		return fmt.Errorf("the numbers have changed: their sum was %d and is %d", sums[0], sums[1])
	}
	edges := []int64{-1, -1} // of no numbers
	if len(out) > 0 {
		edges = []int64{out[0], out[len(out)-1]}
	}
	all := make([]int64, 2*c.Size())
	if err := mpi.Allgather(c, edges, all); err != nil {
		return err
	}
	last := int64(-1)
	for r := range c.Size() {
		if lo, hi := all[2*r], all[2*r+1]; lo >= 0 {
			if lo < last {
				return fmt.Errorf("rank %d begins below the end of the rank before", r)
			}
			last = hi
		}
	}
	return nil
}
