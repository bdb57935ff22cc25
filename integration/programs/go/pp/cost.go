package main

import (
	"fmt"
	"runtime"
	"time"

	"golang.org/x/sys/unix"

	"github.com/meshmpi/meshmpi/mpi"
)

// kind is how a message meets its receiver.
type kind int

const (
	expected kind = iota
	unexpected
	wildcard
)

var kinds = [...]string{"expected", "unexpected", "wildcard"}

// Tags: of data, and of what tells that data has been sent before.
const (
	tagData = iota
	tagBell
)

// Messages are counted up to mostCounted bytes: a larger one may not leave before it
// is asked for, and is never unexpected. Up to mostLocal the buffer is declared where
// it is used, above it is made before.
const (
	mostCounted = 1 << 10
	mostLocal   = 256
)

const (
	countWarm   = 2_000 // rounds until what is kept for reuse is there
	countRounds = 20_000
)

// count prints how often round trips of each kind allocate.
func count(c *mpi.Comm, size int) error {
	if size > mostCounted {
		return fmt.Errorf("pp: allocations are counted up to %d bytes", mostCounted)
	}
	kept := make([]byte, size)
	for k, name := range kinds {
		play := func(rounds int) error {
			if size <= mostLocal {
				return localTrips(c, kind(k), size, rounds)
			}
			return keptTrips(c, kind(k), kept, rounds)
		}
		if err := play(countWarm); err != nil {
			return err
		}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		if err := play(countRounds); err != nil {
			return err
		}
		runtime.ReadMemStats(&after)
		fmt.Printf("allocs-%s %d %.4f %d\n", name, size, float64(after.Mallocs-before.Mallocs)/countRounds, c.Rank())
	}
	return nil
}

func localTrips(c *mpi.Comm, k kind, size, rounds int) error {
	for range rounds {
		var buf [mostLocal]byte // here, so that one that escapes is counted
		if err := trip(c, k, buf[:size]); err != nil {
			return err
		}
	}
	return nil
}

func keptTrips(c *mpi.Comm, k kind, buf []byte, rounds int) error {
	for range rounds {
		if err := trip(c, k, buf); err != nil {
			return err
		}
	}
	return nil
}

func trip(c *mpi.Comm, k kind, buf []byte) error {
	if c.Rank() == 0 {
		if err := send(c, k, buf, 1); err != nil {
			return err
		}
		return receive(c, k, buf, 1)
	}
	if err := receive(c, k, buf, 0); err != nil {
		return err
	}
	return send(c, k, buf, 0)
}

func send(c *mpi.Comm, k kind, buf []byte, to int) error {
	if err := mpi.Send(c, buf, to, tagData); err != nil || k != unexpected {
		return err
	}
	var bell [1]byte
	return mpi.Send(c, bell[:], to, tagBell)
}

// receive asks for an unexpected message when one that was sent after it is there.
func receive(c *mpi.Comm, k kind, buf []byte, from int) error {
	tag := tagData
	switch k {
	case wildcard:
		from, tag = mpi.AnySource, mpi.AnyTag
	case unexpected:
		var bell [1]byte
		if _, err := mpi.Recv(c, bell[:], from, tagBell); err != nil {
			return err
		}
	}
	_, err := mpi.Recv(c, buf, from, tag)
	return err
}

// wait has rank 1 wait for rank 0, which sleeps.
func wait(c *mpi.Comm, d time.Duration) error {
	var buf [1]byte
	if c.Rank() == 0 {
		if err := play(c, buf[:], make([]time.Duration, warm)); err != nil {
			return err
		}
		time.Sleep(d)
		return mpi.Send(c, buf[:], 1, tagData)
	}
	if err := play(c, buf[:], make([]time.Duration, warm)); err != nil {
		return err
	}
	began, before := time.Now(), used()
	if _, err := mpi.Recv(c, buf[:], 0, tagData); err != nil {
		return err
	}
	took := time.Since(began)
	fmt.Printf("idle %.3f %.4f\n", took.Seconds(), (used()-before).Seconds()/took.Seconds())
	return nil
}

// used is the processor time of this process so far.
func used() time.Duration {
	var r unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &r); err != nil {
		panic(err) // the kernel knows no reason to refuse
	}
	return time.Duration(r.Utime.Nano() + r.Stime.Nano())
}
