package mpi_test

import (
	"errors"
	"fmt"
	"runtime"
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
			d, err := c.Dup()
			if err != nil {
				return err
			}
			token, buf := make([]int, 1), make([]byte, 1<<20)
			switch {
			case blocking && c.Rank() == 1:
				time.Sleep(50 * time.Millisecond) // until it is there; or it comes later, which is right as well
				return c.Revoke()
			case blocking:
				return revoked("Bcast", mpi.Bcast(c, buf, 0))
			case c.Rank() == 1:
				_, err := mpi.Recv(d, token, 0, 1) // behind the message
				return first(err, c.Revoke())
			}
			r, err := mpi.Ibcast(c, buf, 0)
			if err := first(err, mpi.Send(d, token, 1, 1)); err != nil {
				return err
			}
			_, err = r.Wait()
			return revoked("Ibcast", err)
		}, mpitest.FaultTolerant())
	}
}

// TestRevokeSend: a send that waits, announced, at who revokes the communicator ends with
// that.
func TestRevokeSend(t *testing.T) {
	mpitest.Run(t, 2, func(c *mpi.Comm) error {
		d, err := c.Dup()
		if err != nil {
			return err
		}
		if c.Rank() == 0 {
			_, err := d.Probe(1, 1)
			return first(err, d.Revoke(), mpi.Barrier(c))
		}
		r, err := mpi.Isend(d, make([]byte, 1<<20), 0, 1)
		if err != nil {
			return err
		}
		_, err = r.Wait()
		return first(revoked("Isend", err), mpi.Barrier(c))
	}, mpitest.FaultTolerant())
}

// between makes an intercommunicator of the lower and the upper half of the ranks.
func between(c *mpi.Comm) (*mpi.Comm, error) {
	half := c.Size() / 2
	side, other := 0, half
	if c.Rank() >= half {
		side, other = 1, 0
	}
	local, err := c.Split(side, 0)
	if err != nil {
		return nil, err
	}
	return local.InterCreate(0, c, other, 4)
}

// TestRevokeMaking: who revokes a communicator as soon as it has it is heard by those
// that are still making it, whether what it was made of is there still or not.
func TestRevokeMaking(t *testing.T) {
	for name, derive := range map[string]func(*mpi.Comm) (*mpi.Comm, error){
		"Dup":         (*mpi.Comm).Dup,
		"Split":       func(c *mpi.Comm) (*mpi.Comm, error) { return c.Split(0, c.Rank()) },
		"Shrink":      (*mpi.Comm).Shrink,
		"InterCreate": between,
	} {
		t.Run(name, func(t *testing.T) {
			for round := range 20 {
				mpitest.Run(t, 4, func(c *mpi.Comm) error {
					p, err := c.Dup()
					if err != nil {
						return err
					}
					if c.Rank() == 0 {
						time.Sleep(5 * time.Millisecond) // the last to begin is the first to end
					}
					d, err := derive(p)
					if err != nil {
						return err
					}
					if round%2 == 1 {
						err = p.Free()
					}
					if c.Rank() == 0 {
						return first(err, d.Revoke())
					}
					_, err2 := mpi.Recv(d, make([]int, 1), 0, 0)
					return first(err, revoked("Recv", err2))
				}, mpitest.FaultTolerant())
			}
		})
	}
}

// TestRevokeSibling: of the communicators that one Split makes, one is revoked and the
// others are not.
func TestRevokeSibling(t *testing.T) {
	mpitest.Run(t, 4, func(c *mpi.Comm) error {
		d, err := c.Split(c.Rank()%2, 0)
		if err != nil {
			return err
		}
		if c.Rank() == 0 {
			return first(d.Revoke(), mpi.Send(c, []int{1}, 1, 0), mpi.Send(c, []int{1}, 3, 0))
		}
		if c.Rank() == 2 {
			_, err := mpi.Recv(d, make([]int, 1), 0, 0)
			return revoked("Recv", err)
		}
		if _, err := mpi.Recv(c, make([]int, 1), 0, 0); err != nil {
			return err
		}
		return mpi.Barrier(d)
	}, mpitest.FaultTolerant())
}

// TestRevokeUsedAgain: what is told of a communicator that has been freed here does not
// hold for another that has its contexts.
func TestRevokeUsedAgain(t *testing.T) {
	mpitest.Run(t, 2, func(c *mpi.Comm) error {
		p, err := c.Dup()
		if err != nil {
			return err
		}
		d, err := p.Dup()
		if err != nil {
			return err
		}
		if c.Rank() == 0 {
			err := first(p.Free(), mpi.Send(c, []int{1}, 1, 0))
			_, err2 := mpi.Recv(d, make([]int, 1), 1, 0)
			if err := first(err, revoked("Recv", err2)); err != nil {
				return err
			}
		} else {
			_, err := mpi.Recv(c, make([]int, 1), 0, 0)
			if err := first(err, d.Revoke(), p.Free()); err != nil {
				return err
			}
		}
		for range 3 {
			s, err := d.Shrink()
			if err != nil {
				return err
			}
			e, err := s.Dup()
			if err != nil {
				return err
			}
			if err := first(mpi.Barrier(e), e.Free(), s.Free()); err != nil {
				return err
			}
		}
		return nil
	}, mpitest.FaultTolerant())
}

// TestRevokeFreed: an operation that is under way on a communicator that has been freed
// here ends when another member revokes it.
func TestRevokeFreed(t *testing.T) {
	mpitest.Run(t, 2, func(c *mpi.Comm) error {
		d, err := c.Dup()
		if err != nil {
			return err
		}
		token := make([]int, 1)
		if c.Rank() == 1 {
			_, err := mpi.Recv(c, token, 0, 1) // behind the message
			return first(err, d.Revoke(), d.Free())
		}
		r, err := mpi.Ibcast(d, make([]byte, 1<<20), 0)
		if err := first(err, d.Free(), mpi.Send(c, token, 1, 1)); err != nil {
			return err
		}
		_, err = r.Wait()
		return revoked("Ibcast", err)
	}, mpitest.FaultTolerant())
}

// TestSomeStopped: where MPI has ended none of several requests will.
func TestSomeStopped(t *testing.T) {
	mpitest.Run(t, 1, func(c *mpi.Comm) error {
		r, err := mpi.Irecv(c, make([]int, 1), 0, 2)
		if err := first(err, crash(c)); err != nil {
			return err
		}
		for what, some := range map[string]func([]mpi.Request) ([]int, []mpi.Status, error){"TestSome": mpi.TestSome, "WaitSome": mpi.WaitSome} {
			if at, _, err := some([]mpi.Request{r}); len(at) != 0 || !errors.Is(err, mpi.ErrNotInitialized) {
				t.Errorf("%s: %v, %v", what, at, err) // nobody asks a rank that has crashed
			}
		}
		return nil
	}, mpitest.FaultTolerant())
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

// TestParentForgotten: a communicator does not keep in memory what it was made of, which
// has been freed.
func TestParentForgotten(t *testing.T) {
	mpitest.Run(t, 2, func(c *mpi.Comm) error {
		p, err := c.Dup()
		if err != nil {
			return err
		}
		kept := mpi.Kept(p)
		d, err := p.Dup()
		if err := first(err, p.Free()); err != nil {
			return err
		}
		for range 10 {
			if runtime.GC(); !kept() {
				return mpi.Barrier(d)
			}
		}
		return errors.New("it is kept")
	})
}

// TestRevokedMessages: what was sent in a communicator that has been revoked is not
// received in the next that has its contexts.
func TestRevokedMessages(t *testing.T) {
	mpitest.Run(t, 4, func(c *mpi.Comm) error {
		for round := range 100 {
			d, err := c.Dup()
			if err != nil {
				return err
			}
			if round%4 == c.Rank() {
				err = d.Revoke()
			} else if _, err2 := d.Dup(); err2 != nil {
				err = revoked("Dup of what is revoked", err2)
			}
			if err := first(err, d.Free()); err != nil {
				return err
			}
			next, err := c.Dup()
			if err != nil {
				return err
			}
			e, err := next.Dup()
			if err := first(err, mpi.Barrier(next), next.Free()); err != nil {
				return fmt.Errorf("round %d: %w", round, err)
			}
			if err := first(mpi.Barrier(e), e.Free()); err != nil {
				return fmt.Errorf("round %d: %w", round, err)
			}
		}
		return nil
	}, mpitest.FaultTolerant())
}

// TestRevokeReceive: a receive that is under way on a communicator that has been freed
// here ends when another member revokes it.
func TestRevokeReceive(t *testing.T) {
	mpitest.Run(t, 2, func(c *mpi.Comm) error {
		d, err := c.Dup()
		if err != nil {
			return err
		}
		if c.Rank() == 1 {
			_, err := mpi.Recv(c, make([]int, 1), 0, 0)
			return first(err, d.Revoke(), d.Free())
		}
		r, err := mpi.Irecv(d, make([]int, 1), 1, 0)
		if err := first(err, d.Free(), mpi.Send(c, []int{1}, 1, 0)); err != nil {
			return err
		}
		_, err = r.Wait()
		return revoked("Irecv", err)
	}, mpitest.FaultTolerant())
}

// TestNothingRemembered: of communicators that have been revoked and freed nothing is
// remembered.
func TestNothingRemembered(t *testing.T) {
	mpitest.Run(t, 3, func(c *mpi.Comm) error {
		for range 20 {
			d, err := c.Dup()
			if err != nil {
				return err
			}
			if err := d.Revoke(); err != nil {
				return err
			}
			if err := first(d.Free(), mpi.Barrier(c)); err != nil {
				return err
			}
		}
		d, err := c.Dup() // after which all have told all
		if err := first(err, mpi.Barrier(d)); err != nil {
			return err
		}
		if n := mpi.Remembered(c); n != 0 {
			return fmt.Errorf("%d notices are remembered", n)
		}
		return mpi.Barrier(c)
	}, mpitest.FaultTolerant())
}

// TestMrecvRevoked: a message that was probed before is not received any more.
func TestMrecvRevoked(t *testing.T) {
	mpitest.Run(t, 2, func(c *mpi.Comm) error {
		d, err := c.Dup()
		if err != nil {
			return err
		}
		if d.Rank() == 0 {
			if err := mpi.Send(d, []int32{7}, 1, 1); err != nil {
				return err
			}
			return mpi.Barrier(c)
		}
		m, err := d.Mprobe(0, 1)
		if err != nil {
			return err
		}
		_ = d.Revoke()
		st, err := mpi.Mrecv(&m, make([]int32, 1))
		if !errors.Is(err, mpi.ErrRevoked) {
			t.Errorf("Mrecv in a revoked communicator: %v, %v", st, err)
		}
		return mpi.Barrier(c)
	})
}
