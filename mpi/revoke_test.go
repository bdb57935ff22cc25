package mpi_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/meshmpi/meshmpi/mpi"
	"github.com/meshmpi/meshmpi/mpi/mpitest"
)

// revoked is how a call ends on a communicator that another has revoked.
func revoked(what string, err error) error {
	if !errors.Is(err, mpi.ErrRevoked) {
		return fmt.Errorf("%s: %v, want that it is revoked", what, err)
	}
	return nil
}

// TestRevokeRefused: a collective operation whose message waits, announced, at who
// revokes the communicator ends with that.
func TestRevokeRefused(t *testing.T) {
	for _, blocking := range []bool{true, false} {
		mpitest.Run(t, 2, func(c *mpi.Comm) error {
			if c.Rank() == 1 {
				time.Sleep(50 * time.Millisecond) // until it is there
				return c.Revoke()
			}
			buf := make([]byte, 1<<20)
			if blocking {
				return revoked("Bcast", mpi.Bcast(c, buf, 0))
			}
			r, err := mpi.Ibcast(c, buf, 0)
			if err == nil {
				_, err = r.Wait()
			}
			return revoked("Ibcast", err)
		}, mpitest.FaultTolerant())
	}
}

// TestRevokeMaking: who revokes a communicator as soon as it has it is heard by those
// that are still making it.
func TestRevokeMaking(t *testing.T) {
	for name, derive := range map[string]func(*mpi.Comm) (*mpi.Comm, error){
		"Dup":    (*mpi.Comm).Dup,
		"Split":  func(c *mpi.Comm) (*mpi.Comm, error) { return c.Split(0, c.Rank()) },
		"Shrink": (*mpi.Comm).Shrink,
	} {
		t.Run(name, func(t *testing.T) {
			for range 20 {
				mpitest.Run(t, 2, func(c *mpi.Comm) error {
					if c.Rank() == 0 {
						time.Sleep(5 * time.Millisecond) // the last to begin is the first to end
					}
					d, err := derive(c)
					if err != nil {
						return err
					}
					if c.Rank() == 0 {
						return d.Revoke()
					}
					_, err = mpi.Recv(d, make([]int, 1), 0, 0)
					return revoked("Recv", err)
				}, mpitest.FaultTolerant())
			}
		})
	}
}

// TestSomeWarned: a receive that a death may concern counts once for those who ask for
// some that have ended, each time.
func TestSomeWarned(t *testing.T) {
	mpitest.Run(t, 3, func(c *mpi.Comm) error {
		if c.Rank() == 2 {
			return crash(c)
		}
		if c.Rank() == 1 {
			return mpi.Send(c, []int{1}, 0, 3)
		}
		r, err := mpi.Irecv(c, make([]int, 1), mpi.AnySource, 2)
		if err != nil {
			return err
		}
		<-r.Done() // it is warned
		rs := []mpi.Request{r}
		for what, some := range map[string]func() ([]int, []mpi.Status, error){
			"TestSome": func() ([]int, []mpi.Status, error) { return mpi.TestSome(rs) },
			"WaitSome": func() ([]int, []mpi.Status, error) { return mpi.WaitSome(rs) },
		} {
			if at, st, err := some(); len(at) != 1 || len(st) != 1 || !errors.Is(err, mpi.ErrProcFailedPending) {
				return fmt.Errorf("%s: %v, %d statuses, %v", what, at, len(st), err)
			}
		}
		if err := rs[0].Cancel(); err != nil {
			return err
		}
		_, err = rs[0].Wait()
		_, err2 := mpi.Recv(c, make([]int, 1), 1, 3)
		return first(err, err2)
	}, mpitest.FaultTolerant())
}
