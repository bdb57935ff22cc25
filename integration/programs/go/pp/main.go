// Command pp is a ping-pong between ranks 0 and 1 by package mpi, with -last between
// the last two; others wait.
// For each size rank 0 prints a line "pp BYTES MEAN_US P999_US MBPS": half a round
// trip, on average and in the 99.9th percentile, and the bandwidth in Mb/s that the
// average makes. Its twin in C is pp.c, which has no other figures.
//
// With -allocs it counts instead: both ranks print lines "allocs-MODE BYTES NUMBER
// RANK", the allocations on that rank in each round trip, for messages that are
// expected, that came before they were asked for (unexpected), and that are asked
// for by wildcards. With -idle rank 1 waits that long for a message and prints
// "idle SECONDS SHARE", the share of a processor that its process used meanwhile.
package main

import (
	"errors"
	"flag"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/meshmpi/meshmpi/mpi"
)

// warm is how many rounds come before others are counted, most how many are
// measured at most.
const (
	warm = 20
	most = 1 << 20
)

func main() {
	seconds := flag.Float64("seconds", 0.5, "to measure each size for")
	least := flag.Int("least", warm, "rounds that the first batch has, and that are measured at least")
	allocs := flag.Bool("allocs", false, "count allocations per round trip instead")
	idle := flag.Duration("idle", 0, "see what waiting that long costs instead")
	last := flag.Bool("last", false, "the last two ranks play, not the first")
	flag.Parse()
	sizes := []int{1, 64, 1 << 10, 8 << 10, 64 << 10, 1 << 20, 4 << 20}
	if flag.NArg() > 0 {
		sizes = nil
	}
	var bad error
	for _, a := range flag.Args() {
		n, err := strconv.Atoi(a)
		if err != nil || n < 0 {
			bad = fmt.Errorf("pp: %q is no number of bytes", a)
		}
		sizes = append(sizes, n)
	}
	mpi.Main(func(c *mpi.Comm) error {
		if c.Size() < 2 {
			bad = errors.New("pp needs two ranks")
		}
		if bad != nil {
			return bad
		}
		if *last {
			var err error
			if c, err = c.Split(0, -c.Rank()); err != nil {
				return err
			}
		}
		if c.Rank() < 2 {
			if err := work(c, sizes, *seconds, min(max(*least, 2), most), *allocs, *idle); err != nil {
				return err
			}
		}
		return mpi.Barrier(c)
	})
}

func work(c *mpi.Comm, sizes []int, seconds float64, least int, allocs bool, idle time.Duration) error {
	if idle > 0 {
		return wait(c, idle)
	}
	times := make([]time.Duration, most)
	for _, n := range sizes {
		var err error
		if allocs {
			err = count(c, n)
		} else {
			err = measure(c, n, seconds, least, times)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// measure agrees on a number of rounds that takes the time, and does them.
func measure(c *mpi.Comm, size int, seconds float64, least int, times []time.Duration) error {
	buf := make([]byte, size)
	rounds, err := warmUp(c, buf, seconds, least, times)
	if err != nil {
		return err
	}
	times = times[:rounds]
	if err := play(c, buf, times); err != nil || c.Rank() != 0 {
		return err
	}
	mean := total(times).Seconds() / float64(len(times)) * 1e6
	slices.Sort(times)
	fmt.Printf("pp %d %.3f %.3f %.1f\n", size, mean, float64(times[len(times)*999/1000])/1e3, float64(size)*8/mean)
	return nil
}

// warmUp plays batches of least rounds, twice as many, and so on, until one takes an
// eighth of the time: memory is there, and processes have found their processors. It
// returns how many rounds take the whole, which rank 0 says.
func warmUp(c *mpi.Comm, buf []byte, seconds float64, least int, times []time.Duration) (int, error) {
	for n := least; ; n *= 2 {
		if err := play(c, buf, times[:n]); err != nil {
			return 0, err
		}
		rounds := []int{0} // go on
		if c.Rank() == 0 {
			if 2*total(times[:n]).Seconds() >= seconds/8 || 2*n > most {
				rounds[0] = roundsFor(seconds, times[:n])
			}
			if err := mpi.Send(c, rounds, 1, 1); err != nil {
				return 0, err
			}
		} else if _, err := mpi.Recv(c, rounds, 0, 1); err != nil {
			return 0, err
		}
		if rounds[0] > 0 {
			return rounds[0], nil
		}
	}
}

// roundsFor is how many rounds take the time, as the later half of the last ones has it.
func roundsFor(seconds float64, times []time.Duration) int {
	later := times[len(times)/2:]
	return max(len(times), int(min(most, seconds*float64(len(later))/max(total(later).Seconds(), 1e-9))))
}

func total(times []time.Duration) (sum time.Duration) {
	for _, t := range times {
		sum += t
	}
	return sum
}

// play does rounds of ping-pong and notes half of what each takes.
func play(c *mpi.Comm, buf []byte, times []time.Duration) error {
	began := time.Now()
	last := time.Duration(0)
	for i := range times {
		if c.Rank() == 0 {
			if err := mpi.Send(c, buf, 1, 0); err != nil {
				return err
			}
			if _, err := mpi.Recv(c, buf, 1, 0); err != nil {
				return err
			}
		} else {
			if _, err := mpi.Recv(c, buf, 0, 0); err != nil {
				return err
			}
			if err := mpi.Send(c, buf, 0, 0); err != nil {
				return err
			}
		}
		now := time.Since(began) // one reading of a clock, as MPI_Wtime is
		times[i], last = (now-last)/2, now
	}
	return nil
}
