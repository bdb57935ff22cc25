package mpi_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/meshmpi/meshmpi/mpi"
	"github.com/meshmpi/meshmpi/mpi/mpitest"
)

// crash ends a rank of a test.
func crash(c *mpi.Comm) error {
	c.World().Crash()
	return nil
}

// diesBefore waits for a rank's death.
func diesBefore(c *mpi.Comm, rank int) error {
	if _, err := mpi.Recv(c, make([]byte, 8), rank, 1); !errors.Is(err, mpi.ErrProcFailed) {
		return fmt.Errorf("receive from the dead: %v", err)
	}
	return nil
}

// TestDeath: who needs the dead is told, who does not goes on; a wildcard receive
// is told once, and waits for the living when the death is acknowledged.
func TestDeath(t *testing.T) {
	mpitest.Run(t, 4, func(c *mpi.Comm) error {
		if c.Rank() == 3 {
			return crash(c)
		}
		buf := make([]int, 1)
		if err := diesBefore(c, 3); err != nil {
			return err
		}
		var e *mpi.Error
		if err := mpi.Send(c, buf, 3, 1); !errors.As(err, &e) || e.Class != mpi.ErrProcFailed || e.Peer != 3 {
			return fmt.Errorf("send to the dead: %v", err)
		}
		r, err := mpi.Irecv(c, buf, mpi.AnySource, 2)
		if err != nil {
			return err
		}
		if _, err := r.Wait(); !errors.Is(err, mpi.ErrProcFailedPending) {
			return fmt.Errorf("receive from anybody: %v", err)
		}
		for range 2 { // all have been told
			if _, err := mpi.Sendrecv(c, buf, (c.Rank()+1)%3, 3, make([]int, 1), (c.Rank()+2)%3, 3); err != nil {
				return err
			}
		}
		dead, err := c.AckFailed()
		if err != nil || dead.Size() != 1 {
			return fmt.Errorf("%d dead, %v", dead.Size(), err)
		}
		if err := mpi.Send(c, []int{c.Rank()}, (c.Rank()+1)%3, 2); err != nil {
			return err
		}
		st, err := r.Wait()
		if err != nil || st.Source != (c.Rank()+2)%3 || buf[0] != st.Source {
			return fmt.Errorf("the pending receive: %+v, %v", st, err)
		}
		return nil
	}, mpitest.FaultTolerant())
}

// TestDeathOfReceiver: a collective operation in which a rank only sends, to the dead,
// fails there, however little it sends.
func TestDeathOfReceiver(t *testing.T) {
	mpitest.Run(t, 2, func(c *mpi.Comm) error {
		if c.Rank() == 1 {
			return crash(c)
		}
		if err := diesBefore(c, 1); err != nil {
			return err
		}
		for _, n := range []int{1, 1 << 10, 1 << 20} {
			if err := mpi.Bcast(c, make([]byte, n), 0); !errors.Is(err, mpi.ErrProcFailed) {
				return fmt.Errorf("bcast of %d bytes to the dead: %v", n, err)
			}
		}
		return nil
	}, mpitest.FaultTolerant())
}

// TestRevoke: ranks that wait for each other and not for the dead get out, and
// make a smaller communicator.
func TestRevoke(t *testing.T) {
	mpitest.Run(t, 5, func(c *mpi.Comm) error {
		buf := make([]int, 1)
		switch c.Rank() {
		case 4:
			return crash(c)
		case 0:
			if err := diesBefore(c, 4); err != nil {
				return err
			}
			if err := c.Revoke(); err != nil {
				return err
			}
		default: // for something that will not come
			if _, err := mpi.Recv(c, buf, (c.Rank()+1)%4, 0); !errors.Is(err, mpi.ErrRevoked) {
				return fmt.Errorf("receive on a revoked communicator: %v", err)
			}
		}
		if err := mpi.Barrier(c); !errors.Is(err, mpi.ErrRevoked) || !c.Revoked() {
			return fmt.Errorf("barrier of a revoked communicator: %v", err)
		}
		if _, err := c.Dup(); !errors.Is(err, mpi.ErrRevoked) {
			return fmt.Errorf("dup of a revoked communicator: %v", err)
		}
		d, err := c.Shrink()
		if err != nil {
			return err
		}
		if d.Size() != 4 || d.Rank() != c.Rank() {
			return fmt.Errorf("shrunk: rank %d of %d", d.Rank(), d.Size())
		}
		return first(unrooted(d, 5), d.Free())
	}, mpitest.FaultTolerant())
}

// TestAgree: the living agree whoever dies meanwhile, at moments that differ from
// run to run.
func TestAgree(t *testing.T) {
	for seed := range uint64(25) {
		const n = 6
		r := rand.New(rand.NewPCG(seed, 1))
		deaths := map[int]time.Duration{}
		for range r.IntN(4) {
			deaths[r.IntN(n)] = time.Duration(r.IntN(1500)) * time.Microsecond
		}
		results := make(chan string, n*8)
		mpitest.Run(t, n, func(c *mpi.Comm) error {
			if d, dies := deaths[c.Rank()]; dies {
				time.AfterFunc(d, c.World().Crash)
			}
			for i := range 8 {
				flags, err := c.Agree(^(1 << ((c.Rank() + i) % n)))
				if c.World().Crashed() {
					return nil
				}
				if err != nil && !errors.Is(err, mpi.ErrProcFailed) {
					return err
				}
				results <- fmt.Sprint(i, " ", flags)
				if _, err := c.AckFailed(); err != nil {
					return err
				}
			}
			return nil
		}, mpitest.FaultTolerant())
		close(results)
		seen := map[string]map[string]bool{}
		for s := range results {
			var i, flags int
			fmt.Sscan(s, &i, &flags)
			key := fmt.Sprint(i)
			if seen[key] == nil {
				seen[key] = map[string]bool{}
			}
			seen[key][fmt.Sprint(flags)] = true
		}
		for i, flags := range seen {
			if len(flags) != 1 {
				t.Errorf("seed %d: agreement %s has the results %v", seed, i, flags)
			}
		}
	}
}

// TestShrinkInTheMiddle: ranks die one after another while the others compute.
func TestShrinkInTheMiddle(t *testing.T) {
	const n = 6
	mpitest.Run(t, n, func(c *mpi.Comm) error {
		me := c.Rank()
		for alive := n; alive > 2; alive-- {
			if me == alive-1 {
				return crash(c)
			}
			err := error(nil)
			for err == nil {
				err = mpi.Barrier(c)
			}
			if !errors.Is(err, mpi.ErrProcFailed) && !errors.Is(err, mpi.ErrRevoked) {
				return err
			}
			if err := c.Revoke(); err != nil {
				return err
			}
			if c, err = c.Shrink(); err != nil {
				return err
			}
			if c.Size() != alive-1 {
				return fmt.Errorf("%d are left, want %d", c.Size(), alive-1)
			}
		}
		return unrooted(c, 3)
	}, mpitest.FaultTolerant())
}

// TestRecovery: ranks die at moments at random while all compute; the others
// revoke, shrink and go on, and all that are left do equally many steps.
func TestRecovery(t *testing.T) {
	for name, opt := range map[string]mpitest.Option{"memory": mpitest.With(), "network": mpitest.WAN(0, 0)} {
		t.Run(name, func(t *testing.T) {
			for seed := range uint64(12) {
				const n = 5
				r := rand.New(rand.NewPCG(seed, 2))
				deaths := map[int]time.Duration{}
				for range r.IntN(4) {
					deaths[r.IntN(n)] = time.Duration(r.IntN(4000)) * time.Microsecond
				}
				mpitest.Run(t, n, func(c *mpi.Comm) error {
					if d, dies := deaths[c.Rank()]; dies {
						time.AfterFunc(d, c.World().Crash)
					}
					err := recovering(c, 20)
					if c.World().Crashed() {
						return nil
					}
					return err
				}, mpitest.FaultTolerant(), opt)
			}
		})
	}
}

// recovering does steps until all that are left agree to have done so many.
func recovering(c *mpi.Comm, steps int) error {
	for done := 0; done < steps; {
		ok := 1
		if err := unrooted(c, 5); err != nil {
			if !errors.Is(err, mpi.ErrProcFailed) && !errors.Is(err, mpi.ErrRevoked) {
				return err
			}
			ok = 0
			if err := c.Revoke(); err != nil {
				return err
			}
		}
		all, err := c.Agree(ok)
		if all == 1 && err == nil {
			done++
			continue
		}
		if err != nil && !errors.Is(err, mpi.ErrProcFailed) {
			return err
		}
		d, err := c.Shrink()
		if err != nil {
			return err
		}
		c = d
	}
	return nil
}

// TestDeathOfLocker: a lock of who has died goes to who waits for it, and accesses
// to the dead fail.
func TestDeathOfLocker(t *testing.T) {
	mpitest.Run(t, 3, func(c *mpi.Comm) error {
		w, err := mpi.AllocateWin[int64](c, 1)
		if err != nil {
			return err
		}
		if c.Rank() == 2 {
			if err := first(w.Lock(mpi.LockExclusive, 0), mpi.Send(c, []int{1}, 0, 0), mpi.Send(c, []int{1}, 1, 0)); err != nil {
				return err
			}
			return crash(c)
		}
		if _, err := mpi.Recv(c, make([]int, 1), 2, 0); err != nil {
			return err
		}
		if err := first(w.Lock(mpi.LockExclusive, 0), w.Accumulate([]int64{1}, 0, 0, mpi.Sum), w.Unlock(0)); err != nil {
			return fmt.Errorf("after the locker's death: %w", err)
		}
		if err := w.Lock(mpi.LockShared, 2); !errors.Is(err, mpi.ErrProcFailed) {
			return fmt.Errorf("a lock of the dead: %v", err)
		}
		other := make([]int, 1)
		if _, err := mpi.Sendrecv(c, []int{0}, 1-c.Rank(), 1, other, 1-c.Rank(), 1); err != nil {
			return err
		}
		if c.Rank() == 0 {
			return want("accesses of the living", w.Memory(), []int64{2})
		}
		return nil
	}, mpitest.FaultTolerant())
}

// TestAcknowledged: an agreement fails for a death until all have acknowledged it.
func TestAcknowledged(t *testing.T) {
	mpitest.Run(t, 4, func(c *mpi.Comm) error {
		if c.Rank() == 3 {
			return crash(c)
		}
		if err := diesBefore(c, 3); err != nil {
			return err
		}
		for acked := range 4 { // so many have acknowledged
			if acked > 0 && c.Rank() == acked-1 {
				if _, err := c.AckFailed(); err != nil {
					return err
				}
			}
			flags, err := c.Agree(7 &^ (1 << c.Rank()))
			if flags != 0 || (acked < 3) != errors.Is(err, mpi.ErrProcFailed) || acked == 3 && err != nil {
				return fmt.Errorf("%d have acknowledged: %d, %v", acked, flags, err)
			}
		}
		return nil
	}, mpitest.FaultTolerant())
}
