package mpi_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/meshmpi/meshmpi/mpi"
	"github.com/meshmpi/meshmpi/mpi/mpitest"
)

// exhausted calls f while no request is left.
func exhausted(c *mpi.Comm, f func() error) error {
	var held []mpi.Request
	for {
		r, err := mpi.Irecv(c, make([]byte, 1), mpi.AnySource, 77)
		if err != nil {
			break
		}
		held = append(held, r)
	}
	err := f()
	for i := range held {
		if e := held[i].Cancel(); e != nil {
			return e
		}
		if _, e := held[i].Wait(); e != nil {
			return e
		}
	}
	return err
}

// tooMany is how a call ends for which no request is left.
func tooMany(err error) error {
	if !errors.Is(err, mpi.ErrNoMem) {
		return fmt.Errorf("without a request left it ends with %v", err)
	}
	return nil
}

// TestLimitedCollective: a rank that has no request left for a collective operation is
// told so, and leaves nobody waiting for it.
func TestLimitedCollective(t *testing.T) {
	for name, barrier := range map[string]func(*mpi.Comm) error{
		"blocking": mpi.Barrier,
		"nonblocking": func(c *mpi.Comm) error {
			r, err := mpi.Ibarrier(c)
			if err != nil {
				return err
			}
			_, err = r.Wait()
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			mpitest.Run(t, 3, func(c *mpi.Comm) error {
				var err error
				if c.Rank() == 0 {
					err = tooMany(exhausted(c, func() error { return barrier(c) }))
				} else if barrier(c) == nil {
					err = errors.New("a barrier ended that a rank never began")
				}
				return first(err, mpi.Barrier(c))
			}, mpitest.With(mpi.WithMostRequests(64)))
		})
	}
}

// TestLimitedLock: a lock for which no request is left is not granted.
func TestLimitedLock(t *testing.T) {
	const target = 1
	for name, lock := range map[string]func(*mpi.Win[int64]) error{
		"Lock":    func(w *mpi.Win[int64]) error { return w.Lock(mpi.LockExclusive, target) },
		"LockAll": func(w *mpi.Win[int64]) error { return w.LockAll() },
	} {
		t.Run(name, func(t *testing.T) {
			mpitest.Run(t, 2, func(c *mpi.Comm) error {
				w, err := mpi.AllocateWin[int64](c, 4)
				if err != nil {
					return err
				}
				if c.Rank() == target {
					return first(w.Lock(mpi.LockExclusive, target), mpi.Barrier(c), mpi.Barrier(c), w.Unlock(target), w.Free())
				}
				return first(mpi.Barrier(c), tooMany(exhausted(c, func() error { return lock(w) })), mpi.Barrier(c), w.Free())
			}, mpitest.With(mpi.WithMostRequests(64)))
		})
	}
}
