package main

import (
	"math"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/meshmpi/meshmpi/mpi"
)

// trips is how many round trips compare two clocks.
const trips = 20

// Tags of messages about clocks.
const (
	tagTrip = iota + 1
	tagAhead
)

// late is the time of a loop that a rank was told of too late.
const late = math.MaxInt64

// clock tells rank 0's time.
type clock struct {
	began    time.Time
	ahead    time.Duration // of this rank's clock before rank 0's
	farthest time.Duration // the longest round trip from rank 0; rank 0 alone knows
}

func (k *clock) own() time.Duration { return time.Since(k.began) }
func (k *clock) now() time.Duration { return k.own() - k.ahead }

// compare finds how far each rank's clock is ahead of rank 0's: of some round trips
// the fastest one says it best.
func (k *clock) compare(c *mpi.Comm) error {
	if c.Rank() != 0 {
		return k.answer(c)
	}
	for r := 1; r < c.Size(); r++ {
		best, ahead := time.Duration(math.MaxInt64), []time.Duration{0}
		for range trips {
			there := []time.Duration{0}
			sent := k.own()
			if err := mpi.Send(c, there, r, tagTrip); err != nil {
				return err
			}
			if _, err := mpi.Recv(c, there, r, tagTrip); err != nil {
				return err
			}
			if back := k.own(); back-sent < best {
				best, ahead[0] = back-sent, there[0]-(sent+back)/2
			}
		}
		if err := mpi.Send(c, ahead, r, tagAhead); err != nil {
			return err
		}
		k.farthest = max(k.farthest, best)
	}
	return nil
}

// answer is the other ranks' part of compare.
func (k *clock) answer(c *mpi.Comm) error {
	there := []time.Duration{0}
	for range trips {
		if _, err := mpi.Recv(c, there, 0, tagTrip); err != nil {
			return err
		}
		there[0] = k.own()
		if err := mpi.Send(c, there, 0, tagTrip); err != nil {
			return err
		}
	}
	_, err := mpi.Recv(c, there, 0, tagAhead)
	k.ahead = there[0]
	return err
}

// await returns at a moment, without keeping others from their work meanwhile: it
// sleeps until the time is left that a sleep may be late by. The kernel is asked, as
// by the twin in C: time.Sleep may be a millisecond late. Go's scheduler is not told:
// its monitor would wake, and look every 20 µs while the operation is timed.
func (k *clock) await(moment time.Duration) {
	const spare = 200 * time.Microsecond
	for {
		left := moment - k.now()
		if left <= 0 {
			return
		}
		if left > 2*spare {
			nanosleep(left - spare) // one that a signal ends is gone round again
		} else {
			_, _, _ = unix.RawSyscall(unix.SYS_SCHED_YIELD, 0, 0, 0) // has no errors
		}
	}
}

func nanosleep(d time.Duration) {
	t := unix.NsecToTimespec(int64(d))
	_, _, _ = unix.RawSyscall(unix.SYS_NANOSLEEP, uintptr(unsafe.Pointer(&t)), 0, 0)
}

// pause is how long who is done leaves the processors to ranks that are not: where hosts
// are really apart none takes another's.
const pause = 5 * time.Millisecond

// together times loops that begin at moments that all know, margin after they were
// told. It returns the times of those that began in time everywhere, each as the
// slowest rank had it.
func (t *timer) together(do func() error, times []int64, margin time.Duration) ([]int64, error) {
	for i := range times {
		begin := []time.Duration{t.clock.now() + margin}
		if err := mpi.Bcast(t.c, begin, 0); err != nil {
			return nil, err
		}
		missed := t.clock.now() > begin[0]
		t.clock.await(begin[0])
		if err := do(); err != nil {
			return nil, err
		}
		if times[i] = int64(t.clock.now() - begin[0]); missed {
			times[i] = late
		}
		nanosleep(pause)
		if err := mpi.Barrier(t.c); err != nil {
			return nil, err
		}
	}
	if err := mpi.Allreduce(t.c, nil, times, mpi.Max); err != nil {
		return nil, err
	}
	good := make([]int64, 0, len(times))
	for _, ns := range times {
		if ns != late {
			good = append(good, ns)
		}
	}
	return good, nil
}
