// Command colls times collective operations of package mpi. For each operation
// and size rank 0 prints a line "NAME BYTES MEAN_US P999_US MBPS". BYTES is what
// each rank gives (what each gives each, for alltoall); allgather and alltoall
// divide the size asked for by the number of ranks. Its twin in C is colls.c,
// which explains how both measure, with -global and without.
package main

import (
	"flag"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/meshmpi/meshmpi/mpi"
)

const (
	tries = 6       // of a measurement with -global, each with twice the margin
	most  = 100_000 // loops
)

func main() {
	var t timer
	flag.IntVar(&t.loops, "loops", 10, "of each measurement, at least")
	flag.Float64Var(&t.seconds, "seconds", 0.3, "of each measurement, about")
	flag.BoolVar(&t.global, "global", false, "time each operation by itself, by a clock that the ranks share")
	flag.BoolVar(&t.marks, "mark", false, "mark the beginning and the end of each measurement")
	flag.StringVar(&t.only, "only", "", "the one operation to time")
	flag.Parse()
	sizes := []int{1, 64 << 10, 4 << 20}
	if flag.NArg() > 0 {
		sizes = nil
	}
	var bad error
	for _, a := range flag.Args() {
		n, err := strconv.Atoi(a)
		if err != nil || n < 1 {
			bad = fmt.Errorf("colls: %q is no number of bytes", a)
		}
		sizes = append(sizes, n)
	}
	mpi.Main(func(c *mpi.Comm) error {
		if bad != nil {
			return bad
		}
		t.c, t.clock.began = c, time.Now()
		if t.global {
			if err := t.clock.compare(c); err != nil {
				return err
			}
		}
		if err := t.measure("barrier", 0, func() error { return mpi.Barrier(c) }); err != nil {
			return err
		}
		for _, n := range sizes {
			if err := t.sized(n); err != nil {
				return err
			}
		}
		return nil
	})
}

// timer measures operations of one communicator.
type timer struct {
	c       *mpi.Comm
	clock   clock
	loops   int
	seconds float64
	global  bool
	marks   bool
	only    string // "": all
}

// sized measures every operation that has a size.
func (t *timer) sized(n int) error {
	c, share := t.c, max(n/t.c.Size(), 1)
	one, other := make([]byte, n+c.Size()), make([]byte, n+c.Size())
	for i := range one {
		one[i], other[i] = 1, 1
	}
	all := share * c.Size()
	for _, m := range []struct {
		name string
		size int
		do   func() error
	}{
		{"bcast", n, func() error { return mpi.Bcast(c, one[:n], 0) }},
		{"reduce", n, func() error { return mpi.Reduce(c, one[:n], other[:n], mpi.Max, 0) }},
		{"allreduce", n, func() error { return mpi.Allreduce(c, one[:n], other[:n], mpi.Max) }},
		{"allgather", share, func() error { return mpi.Allgather(c, one[:share], other[:all]) }},
		{"alltoall", share, func() error { return mpi.Alltoall(c, one[:all], other[:all]) }},
	} {
		if err := t.measure(m.name, m.size, m.do); err != nil {
			return fmt.Errorf("%s: %w", m.name, err)
		}
	}
	return nil
}

// measure times an operation as often as fits the time, and prints the line.
func (t *timer) measure(name string, size int, do func() error) error {
	if t.only != "" && t.only != name {
		return nil
	}
	n, margin, err := t.agree(do)
	if err != nil {
		return err
	}
	if err := t.mark("begin", name, size); err != nil {
		return err
	}
	times := make([]int64, n)
	var mean float64
	if t.global {
		var good []int64
		for i := 0; i < tries && len(good) < (n+1)/2; i++ {
			if good, err = t.together(do, times, margin); err != nil {
				return err
			}
			margin *= 2
		}
		for _, ns := range good {
			mean += float64(ns) / float64(len(good))
		}
		times = good
	} else if mean, err = t.apart(do, times); err != nil {
		return err
	}
	if err := t.mark("end", name, size); err != nil {
		return err
	}
	if t.c.Rank() != 0 {
		return nil
	}
	if len(times) == 0 {
		return fmt.Errorf("%d bytes: no loop began in time", size)
	}
	slices.Sort(times)
	fmt.Printf("%s %d %.3f %.3f %.1f\n", name, size, mean/1e3, float64(times[len(times)*999/1000])/1e3, float64(size)*8e3/mean)
	return nil
}

// markPause is how long nothing is sent after a mark (c/mark.h says why).
const markPause = 60 * time.Millisecond

// mark has rank 0 print that what is measured begins or ends, if marks are wanted.
func (t *timer) mark(what, name string, size int) error {
	if !t.marks {
		return nil
	}
	if err := mpi.Barrier(t.c); err != nil {
		return err
	}
	if t.c.Rank() == 0 {
		fmt.Printf("mark %s %s %d %.6f\n", what, name, size, float64(time.Now().UnixMicro())/1e6)
	}
	time.Sleep(markPause)
	return nil
}

// agree finds how many loops fit the time, and how long before it begins a loop is
// announced.
func (t *timer) agree(do func() error) (n int, margin time.Duration, err error) {
	if t.global {
		margin = 2*t.clock.farthest + 100*time.Microsecond
	}
	per, err := t.warm(do)
	if err != nil {
		return 0, 0, err
	}
	loops := []int{int(min(max(float64(t.loops), t.seconds/(per+margin.Seconds()+1e-9)), most))}
	err = mpi.Bcast(t.c, loops, 0)
	return loops[0], margin, err
}

// warm does an operation until that takes an eighth of the time of a measurement, in
// batches of 1, 2, 4, …: connections are made, memory is there, and processes have
// found their processors. It returns the seconds that one took in the last batch.
func (t *timer) warm(do func() error) (per float64, err error) {
	if err := do(); err != nil {
		return 0, err
	}
	for batch := 1; ; batch *= 2 {
		began := time.Now()
		for range batch {
			if err := do(); err != nil {
				return 0, err
			}
		}
		if err := mpi.Barrier(t.c); err != nil { // a root may be through long before the others
			return 0, err
		}
		took := []float64{time.Since(began).Seconds()}
		if err := mpi.Bcast(t.c, took, 0); err != nil {
			return 0, err
		}
		if took[0] >= t.seconds/8 || 2*batch > most {
			return took[0] / float64(batch), nil
		}
	}
}

// apart times loops that follow each other without barriers between. It returns
// the average in nanoseconds.
func (t *timer) apart(do func() error, times []int64) (float64, error) {
	if err := mpi.Barrier(t.c); err != nil {
		return 0, err
	}
	began := time.Now()
	last := time.Duration(0)
	for i := range times {
		if err := do(); err != nil {
			return 0, err
		}
		now := time.Since(began)
		times[i], last = int64(now-last), now
	}
	if err := mpi.Barrier(t.c); err != nil {
		return 0, err
	}
	mean := float64(time.Since(began)) / float64(len(times))
	return mean, mpi.Allreduce(t.c, nil, times, mpi.Max)
}
