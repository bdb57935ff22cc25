// Command netpipe measures ping-pongs between ranks 0 and 1 of package mpi by the
// method of NetPIPE (Snell, Mikler, Gustafson: "NetPIPE: a network protocol
// independent performance evaluator", 1996; its program of version 3.7), with the
// options of it that are used most and its output: on standard error a line for each
// message size, in the file of -o lines of bytes, Mb/s (of 1024·1024 bits) and
// seconds one way. It is to be compared with NPopenmpi and NPmpich2.
//
// It has none of NetPIPE's other modes: no streaming, both ways at once, or integrity
// checks, and the buffers are the same in each trip, as they are there by default.
package main

import (
	"bufio"
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"os"
	"time"

	"github.com/meshmpi/meshmpi/mpi"
)

// The constants of NetPIPE's method.
const (
	trials      = 7    // of each size; the best counts
	latencyReps = 1000 // round trips that say how long the first size takes
	runTime     = 0.25 // seconds that a trial is to take
	longest     = 1.0  // seconds one way after which there are no larger messages
	mostBytes   = 1 << 30
)

// settings are NetPIPE's options.
type settings struct {
	lower, upper int
	perturbation int
	trips        int // of a trial; zero: as many as take runTime
	out          string
}

func main() {
	var s settings
	flag.IntVar(&s.lower, "l", 1, "the smallest message, in bytes")
	flag.IntVar(&s.upper, "u", 8<<20, "the largest message, in bytes, before perturbation")
	flag.IntVar(&s.perturbation, "p", 3, "bytes by which messages around each size differ from it; 0: none")
	flag.IntVar(&s.trips, "n", 0, "round trips of a trial; 0: as many as take a quarter of a second")
	flag.StringVar(&s.out, "o", "np.out", "file for the results")
	flag.Parse()
	mpi.Main(func(c *mpi.Comm) error {
		if err := s.check(c.Size()); err != nil {
			return err
		}
		if c.Rank() < 2 {
			if err := s.run(c); err != nil {
				return err
			}
		}
		return mpi.Barrier(c)
	})
}

func (s *settings) check(ranks int) error {
	switch {
	case ranks < 2:
		return errors.New("netpipe: needs two ranks; start it with -n 2")
	case s.lower < 1 || s.upper < s.lower || s.upper > mostBytes:
		return fmt.Errorf("netpipe: messages from %d to %d bytes; 1 to %d, in order, are allowed", s.lower, s.upper, mostBytes)
	case s.perturbation < 0 || s.trips < 0:
		return errors.New("netpipe: -p and -n are not less than 0")
	}
	return nil
}

// run measures all sizes and has rank 0 write them down.
func (s *settings) run(c *mpi.Comm) (err error) {
	results, progress := io.Discard, io.Discard
	if c.Rank() == 0 {
		f, cerr := os.Create(s.out) // err is what has become of the file in the end
		if cerr != nil {
			return fmt.Errorf("netpipe: results: %w", cerr)
		}
		w := bufio.NewWriter(f)
		defer func() { err = errors.Join(err, w.Flush(), f.Close()) }()
		results, progress = w, os.Stderr
	}
	buf := make([]byte, s.upper+s.perturbation)
	last, bytes := 0.0, 0 // how long a message of so many bytes took
	for i, n := range sizes(s.lower, s.upper, s.perturbation) {
		if bytes == 0 {
			if last, err = trial(c, buf[:n], latencyReps); err != nil {
				return err
			}
			bytes = n
		}
		trips := s.trips
		if trips == 0 {
			trips = repeats(n, bytes, last)
		}
		if trips, err = agree(c, trips); err != nil {
			return err
		}
		best := math.Inf(1)
		for range trials {
			t, err := trial(c, buf[:n], trips)
			if err != nil {
				return err
			}
			best = min(best, t)
		}
		mbps := float64(n) * 8 / (1 << 20) / best
		fmt.Fprintf(progress, "%3d: %7d bytes %6d times --> %8.2f Mbps in %10.2f usec\n", i, n, trips, mbps, best*1e6)
		fmt.Fprintf(results, "%8d %f %12.8f\n", n, mbps, best)
		last, bytes = best, n
		if over, err := agree(c, int(best/longest)); err != nil || over > 0 {
			return err
		}
	}
	return nil
}

// sizes are NetPIPE's: from the smallest on by steps that double with every second
// size, and around each, where steps are larger than that, one less and one more by
// the perturbation.
func sizes(lower, upper, perturbation int) (all []int) {
	step := 1
	for n, k := lower, 0; n <= upper; n, k = n+step, k+1 {
		if k > 2 && k%2 == 1 {
			step *= 2
		}
		if perturbation > 0 && step > perturbation+1 {
			all = append(all, n-perturbation, n, n+perturbation)
		} else {
			all = append(all, n)
		}
	}
	return all
}

// repeats is how many round trips of n bytes a trial has, given how long a message
// of another size took.
func repeats(n, bytes int, took float64) int {
	return max(trials, int(min(runTime/(float64(n)/float64(bytes)*took), 1e9)))
}

// agree gives rank 1 what rank 0 has decided.
func agree(c *mpi.Comm, n int) (int, error) {
	v := []int{n}
	if c.Rank() == 0 {
		return n, mpi.Send(c, v, 1, 1)
	}
	_, err := mpi.Recv(c, v, 0, 1)
	return v[0], err
}

// trial does round trips, and returns the seconds that a message takes one way.
func trial(c *mpi.Comm, buf []byte, trips int) (float64, error) {
	if _, err := agree(c, 0); err != nil { // both are ready
		return 0, err
	}
	began := time.Now()
	for range trips {
		if err := trip(c, buf); err != nil {
			return 0, err
		}
	}
	return time.Since(began).Seconds() / float64(2*trips), nil
}

func trip(c *mpi.Comm, buf []byte) error {
	if c.Rank() == 0 {
		if err := mpi.Send(c, buf, 1, 0); err != nil {
			return err
		}
		_, err := mpi.Recv(c, buf, 1, 0)
		return err
	}
	if _, err := mpi.Recv(c, buf, 0, 0); err != nil {
		return err
	}
	return mpi.Send(c, buf, 0, 0)
}
