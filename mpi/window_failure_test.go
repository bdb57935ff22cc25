package mpi_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/meshmpi/meshmpi/mpi"
	"github.com/meshmpi/meshmpi/mpi/mpitest"
)

// TestWinOriginDies: an exposure to who has died fails, whether it is waited for, asked
// after or begun, and is over then: others can be let in, and the window can be freed.
func TestWinOriginDies(t *testing.T) {
	for _, way := range []string{"Wait", "Test", "Post"} {
		t.Run(way, func(t *testing.T) {
			mpitest.Run(t, 3, func(c *mpi.Comm) error {
				w, err := mpi.AllocateWin[int64](c, 1)
				if err != nil {
					return err
				}
				me, _ := c.Group().Incl(0)
				one, _ := c.Group().Incl(1)
				both, err := c.Group().Incl(1, 2)
				if err != nil {
					return err
				}
				again := make([]int, 1)
				switch c.Rank() {
				case 2:
					return fall(c)
				case 1:
					// Of the two times that it is let in, the first is over without it.
					if err := first(stand(c), w.Start(me), w.Put([]int64{5}, 0, 0), w.Complete(), mpi.Send(c, again, 0, 0)); err != nil {
						return err
					}
					_, err := mpi.Recv(c, again, 0, 0)
					return first(err, w.Start(me), w.Put([]int64{6}, 0, 0), w.Complete(), freed(w))
				}
				if err := stand(c); err != nil {
					return err
				}
				if way == "Post" {
					if err := diesBefore(c, 2); err != nil {
						return err
					}
				}
				err = w.Post(both)
				switch {
				case way == "Post" || err != nil: // it may be known by now
				case way == "Wait":
					err = w.Wait()
				default:
					for over := false; !over && err == nil; {
						over, err = w.Test()
					}
				}
				if err := dead(err); err != nil {
					return err
				}
				if err := w.Wait(); mpi.ClassOf(err) != mpi.ErrRMASync {
					return fmt.Errorf("wait when it is over: %v", err)
				}
				if _, err := mpi.Recv(c, again, 1, 0); err != nil {
					return err
				}
				if err := first(w.Post(one), mpi.Send(c, again, 1, 0), w.Wait(), want("put", w.Memory(), []int64{6})); err != nil {
					return err
				}
				return freed(w)
			}, mpitest.FaultTolerant())
		})
	}
}

// TestWinTargetDies: a Start that fails has taken nobody's Post.
func TestWinTargetDies(t *testing.T) {
	mpitest.Run(t, 3, func(c *mpi.Comm) error {
		w, err := mpi.AllocateWin[int64](c, 1)
		if err != nil {
			return err
		}
		me, _ := c.Group().Incl(0)
		one, _ := c.Group().Incl(1)
		both, err := c.Group().Incl(1, 2)
		if err != nil {
			return err
		}
		switch c.Rank() {
		case 2:
			return fall(c)
		case 1:
			return first(stand(c), w.Post(me), w.Wait(), want("put", w.Memory(), []int64{5}), freed(w))
		}
		return first(stand(c), dead(w.Start(both)), w.Start(one), w.Put([]int64{5}, 1, 0), w.Complete(), freed(w))
	}, mpitest.FaultTolerant())
}

// TestWinFreeAfterDeath: who knows of a death frees the window without waiting for who
// waits for it, and that one is told.
func TestWinFreeAfterDeath(t *testing.T) {
	mpitest.Run(t, 4, func(c *mpi.Comm) error {
		w, err := mpi.AllocateWin[int64](c, 1)
		if err != nil {
			return err
		}
		me, _ := c.Group().Incl(0)
		targets, err := c.Group().Incl(2, 3)
		if err != nil {
			return err
		}
		switch c.Rank() {
		case 2:
			return fall(c)
		case 3:
			err := first(stand(c), w.Post(me))
			if err == nil { // otherwise the window is revoked by now
				err = w.Wait()
			}
			if !errors.Is(err, mpi.ErrRevoked) {
				return fmt.Errorf("an exposure to who has freed the window: %v", err)
			}
		case 0:
			return first(stand(c), dead(w.Start(targets)), dead(w.Free()), mpi.Send(c, make([]int, 1), 1, 0))
		case 1:
			if err := stand(c); err != nil {
				return err
			}
			if _, err := mpi.Recv(c, make([]int, 1), 0, 0); err != nil { // its Free would tell the others
				return err
			}
		}
		return freed(w)
	}, mpitest.FaultTolerant())
}

// TestWinTargetDiesOwing: what waits for room ends too when the target dies.
func TestWinTargetDiesOwing(t *testing.T) {
	const n = 6 << 20
	mpitest.Run(t, 2, func(c *mpi.Comm) error {
		w, err := mpi.AllocateWin[int64](c, n*c.Rank())
		if err != nil {
			return err
		}
		if c.Rank() == 1 {
			if _, err := mpi.Recv(c, make([]int, 1), 0, 0); err != nil {
				return err
			}
			return crash(c)
		}
		if err := w.Lock(mpi.LockShared, 1); err != nil {
			return err
		}
		all, err := w.Rget(make([]int64, n), 1, 0)
		if err := first(err, w.Get(make([]int64, n), 1, 0), mpi.Send(c, make([]int, 1), 1, 0)); err != nil {
			return err
		}
		if err := w.Flush(1); err != nil && dead(err) != nil { // it may be done before the death
			return err
		}
		if owed, waiting := mpi.Owed(w, 1); owed != 0 || waiting != 0 {
			return fmt.Errorf("%d bytes are owed, and %d accesses wait", owed, waiting)
		}
		if _, err := all.Wait(); err != nil && dead(err) != nil {
			return err
		}
		return nil
	}, mpitest.FaultTolerant())
}

// TestWinRevoke: who waits for who has revoked the window is told, and both can free it.
func TestWinRevoke(t *testing.T) {
	mpitest.Run(t, 2, func(c *mpi.Comm) error {
		w, err := mpi.AllocateWin[int64](c, 1)
		if err != nil {
			return err
		}
		other, err := c.Group().Incl(1 - c.Rank())
		if err != nil {
			return err
		}
		if c.Rank() == 0 {
			err = w.Start(other)
		} else {
			err = first(w.Revoke(), w.Revoke(), w.Post(other))
		}
		return mistaken(mistake{"a call on it", err, mpi.ErrRevoked}, mistake{"Free", w.Free(), mpi.ErrRevoked}, mistake{"Revoke after that", w.Revoke(), mpi.ErrWin})
	})
}

// dead wants an error to be about a process that has died.
func dead(err error) error {
	if !errors.Is(err, mpi.ErrProcFailed) {
		return fmt.Errorf("%v, want a death", err)
	}
	return nil
}

// fall dies when the others have begun to stand.
func fall(c *mpi.Comm) error {
	for range c.Size() - 1 {
		if _, err := mpi.Recv(c, make([]int, 1), mpi.AnySource, 0); err != nil {
			return err
		}
	}
	return crash(c)
}

// stand tells rank 2 that it may die: what it is needed for has been done.
func stand(c *mpi.Comm) error { return mpi.Send(c, make([]int, 1), 2, 0) }

// freed frees a window of whose members one has died; others may have noticed that first.
func freed(w *mpi.Win[int64]) error {
	if err := w.Free(); !errors.Is(err, mpi.ErrProcFailed) && !errors.Is(err, mpi.ErrRevoked) {
		return fmt.Errorf("free: %v, want a death", err)
	}
	return nil
}
