package mpi_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/meshmpi/meshmpi/mpi"
	"github.com/meshmpi/meshmpi/mpi/mpitest"
)

// Ranks 0 and 1 lose each other, as when their connection breaks; both live, and rank 2
// (and 3) reach both. What Agree and Shrink return is the same at all who get a result, and
// whoever has a shrunk communicator can use it.
func TestMutualLoss(t *testing.T) {
	for _, n := range []int{3, 4} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			mpitest.Run(t, n, func(c *mpi.Comm) error {
				buf := make([]byte, 4000)
				switch c.Rank() {
				case 0:
					_ = mpi.Send(c, buf[:1], 1, 1) // rank 0 dials
					time.Sleep(500 * time.Millisecond)
					_ = mpi.Ssend(c, buf, 1, 1)
				case 1:
					time.Sleep(300 * time.Millisecond)
					_, err := mpi.Recv(c, buf, 0, 1)
					if err != nil {
						return err
					}
					if _, err := mpi.Recv(c, buf, 0, 1); !errors.Is(err, mpi.ErrProcFailed) {
						return fmt.Errorf("it did not break: %v", err)
					}
				default:
					time.Sleep(time.Second)
				}
				time.Sleep(300 * time.Millisecond)
				_, _ = c.Agree(^(1 << c.Rank()))
				d, err := c.Shrink()
				if err != nil { // it is not of those who go on
					return nil
				}
				all, err := d.Group().Translate(ranksOf(d.Size()), c.Group())
				if err != nil {
					return err
				}
				if !slices.Contains(all, c.Rank()) {
					return fmt.Errorf("rank %d is not in its own communicator %v", c.Rank(), all)
				}
				return mpi.Barrier(d)
			}, mpitest.FaultTolerant(), mpitest.Blocks(1), mpitest.WAN(time.Millisecond, 0), mpitest.Break(0, 3000), mpitest.Timeout(8*time.Second))
		})
	}
}

// Connections break at random between ranks that live: everybody comes back from Agree and
// Shrink, and from a barrier in what Shrink has made. Who passes it has the same
// communicator as all its members; where a rank had lost all others at the last moment, they
// may count it in still, and it is the barrier that fails.
func TestRandomLoss(t *testing.T) {
	end := time.Now().Add(5 * time.Second)
	for seed := uint64(0); time.Now().Before(end) && !t.Failed(); seed++ {
		const n = 5
		r := rand.New(rand.NewPCG(seed, 3))
		opts := []mpitest.Option{mpitest.FaultTolerant(), mpitest.Blocks(1), mpitest.WAN(200*time.Microsecond, 0), mpitest.Timeout(20 * time.Second)}
		for range 1 + r.IntN(5) {
			opts = append(opts, mpitest.Break(r.IntN(12), 350+r.IntN(3000)))
		}
		var mu sync.Mutex
		got, passed := map[int][]int{}, map[int]bool{}
		over := make(chan struct{})
		left := n
		mpitest.Run(t, n, func(c *mpi.Comm) error {
			for range 6 {
				if _, err := c.Agree(1); err != nil {
					break
				}
			}
			d, err := c.Shrink()
			if err == nil {
				all, err := d.Group().Translate(ranksOf(d.Size()), c.Group())
				if err != nil {
					return err
				}
				mu.Lock()
				got[c.Rank()] = all
				mu.Unlock()
				if err := mpi.Barrier(d); err == nil {
					mu.Lock()
					passed[c.Rank()] = true
					mu.Unlock()
				} else if err := d.Revoke(); err != nil {
					return err
				}
			}
			mu.Lock()
			if left--; left == 0 {
				close(over)
			}
			mu.Unlock()
			select {
			case <-over:
			case <-time.After(5 * time.Second):
				mu.Lock()
				defer mu.Unlock()
				return fmt.Errorf("seed %d: %d ranks do not come back; Shrink has made %v, and of its barrier came %v", seed, left, got, passed)
			}
			c.World().Crash()
			return nil
		}, opts...)
		for rank := range passed {
			for _, member := range got[rank] {
				if !slices.Equal(got[member], got[rank]) {
					t.Errorf("seed %d: rank %d goes on with %v, but %d with %v", seed, rank, got[rank], member, got[member])
				}
			}
		}
	}
}

// A communicator in which members have died amid an agreement is given back when it is freed.
func TestAgreeLeavesNothing(t *testing.T) {
	var kept atomic.Int32
	for seed := range uint64(60) {
		const n = 5
		r := rand.New(rand.NewPCG(seed, 2))
		die := time.Duration(r.IntN(250)) * time.Microsecond
		mpitest.Run(t, n, func(c *mpi.Comm) error {
			d, err := c.Dup()
			if err != nil {
				return err
			}
			if err := mpi.Barrier(d); err != nil && !errors.Is(err, mpi.ErrProcFailed) {
				return err
			}
			if c.Rank() == n-1 {
				time.AfterFunc(die, c.World().Crash)
			}
			for range 6 {
				if _, _ = d.Agree(1); c.World().Crashed() {
					return nil
				}
			}
			if c.Rank() == n-1 {
				c.World().Crash()
				return nil
			}
			s, err := c.Shrink()
			if err != nil {
				return err
			}
			k := mpi.Kept(d)
			if err := d.Free(); err != nil {
				return err
			}
			d = nil
			for range 5 {
				if err := mpi.Barrier(s); err != nil {
					return err
				}
				e, err := s.Dup() // which gives back what has been freed
				if err != nil {
					return err
				}
				if err := e.Free(); err != nil {
					return err
				}
				runtime.GC()
			}
			if k() {
				kept.Add(1)
			}
			return mpi.Barrier(s)
		}, mpitest.FaultTolerant())
	}
	if n := kept.Load(); n > 0 {
		t.Errorf("%d communicators are kept", n)
	}
}

// ranksOf are the ranks of so many.
func ranksOf(n int) (r []int) {
	for i := range n {
		r = append(r, i)
	}
	return r
}
