package mpi_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/meshmpi/meshmpi/mpi"
	"github.com/meshmpi/meshmpi/mpi/mpitest"
)

// loner is what a rank has whose calls no other joins: a communicator of two and a
// window of it, whose memory at the other is locked; and a communicator of its own.
type loner struct {
	c, own *mpi.Comm
	w      *mpi.Win[int64]
}

// TestWithContextAlone: calls that wait for others end with their context, where those
// never come.
func TestWithContextAlone(t *testing.T) {
	for name, call := range map[string]func(a loner) error{
		"Allreduce":   func(a loner) error { return mpi.Allreduce(a.c, nil, []int{1}, mpi.Sum) },
		"Dup":         func(a loner) error { return second(a.c.Dup()) },
		"Split":       func(a loner) error { return second(a.c.Split(0, 0)) },
		"CreateGroup": func(a loner) error { return second(a.c.CreateGroup(a.c.Group(), 1)) },
		"CartCreate":  func(a loner) error { return second(a.c.CartCreate([]int{2}, []bool{true}, false)) },
		"NewWin":      func(a loner) error { return second(mpi.AllocateWin[int64](a.c, 1)) },
		"InterCreate": func(a loner) error { return second(a.own.InterCreate(0, a.c, 1, 7)) },
		"Accept": func(a loner) error {
			port, err := a.c.World().OpenPort()
			if err != nil {
				return err
			}
			return errors.Join(second(a.own.Accept(port, 0)), a.c.World().ClosePort(port))
		},
		"Spawn": func(a loner) error { return second(a.c.Spawn(0, mpi.Program{N: 2, Path: "child"})) },
		"Fence": func(a loner) error { return a.w.Fence() },
		"Start": func(a loner) error { return errors.Join(a.w.Start(a.c.Group()), a.w.Complete()) },
		"Post":  func(a loner) error { return errors.Join(a.w.Post(a.c.Group()), a.w.Wait()) },
		"Lock":  func(a loner) error { return a.w.Lock(mpi.LockExclusive, 1) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			mpitest.Run(t, 2, func(c *mpi.Comm) error {
				ctx, cancel := context.WithCancel(context.Background())
				defer cancel()
				d, err := c.Dup()
				if err != nil {
					return err
				}
				a := loner{c: d.WithContext(ctx)}
				if a.own, err = a.c.Split(c.Rank(), 0); err != nil {
					return err
				}
				if a.w, err = mpi.AllocateWin[int64](a.c, 1); err != nil {
					return err
				}
				if c.Rank() == 1 {
					if err := a.w.Lock(mpi.LockExclusive, 1); err != nil {
						return err
					}
				}
				if err := mpi.Barrier(c); err != nil {
					return err
				}
				if c.Rank() == 0 {
					time.AfterFunc(20*time.Millisecond, cancel)
					if err := call(a); !errors.Is(err, context.Canceled) || !errors.Is(err, mpi.ErrRevoked) {
						return fmt.Errorf("%s: %v", name, err)
					}
				}
				return mpi.Barrier(c)
			}, mpitest.Program("child", func(*mpi.Comm) error { return errors.New("it has been answered") }))
		})
	}
}

// TestWithContextMatched: the receive of a message that was matched ends with the context
// of the view that it was matched in, where the rest of the message is half a minute away.
func TestWithContextMatched(t *testing.T) {
	mpitest.Run(t, 2, func(c *mpi.Comm) error {
		data := make([]byte, 4<<20)
		if c.Rank() == 1 {
			_ = mpi.Send(c, data, 0, 1)        // ends when the network has it all, or sooner
			_, _ = mpi.Recv(c, data[:0], 0, 2) // until the other is through
			return crash(c)
		}
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		m, err := c.WithContext(ctx).Mprobe(1, 1)
		if err != nil {
			return err
		}
		cancel()
		if _, err := mpi.Mrecv(&m, data); !errors.Is(err, context.Canceled) || !errors.Is(err, mpi.ErrRevoked) {
			return fmt.Errorf("Mrecv: %v", err)
		}
		return crash(c) // who finalizes would wait for what is on the way
	}, mpitest.WAN(0, 1e6), mpitest.Blocks(1), mpitest.FaultTolerant())
}

// TestWithContextLate: a context that ends when a call has gone well, and the communicator
// has been freed, does no harm to the one that has its contexts now.
func TestWithContextLate(t *testing.T) {
	mpitest.Run(t, 2, func(c *mpi.Comm) error {
		d, err := c.Dup()
		if err := first(err, d.Free()); err != nil {
			return err
		}
		next, err := c.Dup()
		if err != nil {
			return err
		}
		mpi.RevokeFreed(d)
		return mpi.Barrier(next)
	})
}

// TestWithContextEpoch: a window that is revoked in an epoch, which no call can end any
// more, can be freed.
func TestWithContextEpoch(t *testing.T) {
	for name, epoch := range map[string]struct {
		begin, end func(a loner) error
	}{
		"Lock": {
			func(a loner) error { return a.w.Lock(mpi.LockShared, 0) },
			func(a loner) error { return a.w.Unlock(0) },
		},
		"LockAll": {
			func(a loner) error { return a.w.LockAll() },
			func(a loner) error { return a.w.UnlockAll() },
		},
		"Post": {
			func(a loner) error { return a.w.Post(a.own.Group()) },
			func(a loner) error { return a.w.Wait() },
		},
		"Start": {
			func(a loner) error { return errors.Join(a.w.Post(a.own.Group()), a.w.Start(a.own.Group())) },
			func(a loner) error { return errors.Join(a.w.Complete(), a.w.Wait()) },
		},
	} {
		t.Run(name, func(t *testing.T) {
			mpitest.Run(t, 2, func(c *mpi.Comm) error {
				ctx, cancel := context.WithCancel(context.Background())
				defer cancel()
				a := loner{c: c, own: c.World().Self()}
				var err error
				if a.w, err = mpi.AllocateWin[int64](c.WithContext(ctx), 1); err != nil {
					return err
				}
				if err := first(epoch.begin(a), mpi.Barrier(c)); err != nil {
					return err
				}
				over := make([]int, 1)
				if c.Rank() == 0 {
					if _, err := mpi.Recv(c, over, 1, 0); err != nil {
						return err
					}
				} else {
					cancel()
				}
				if err := a.w.Fence(); !errors.Is(err, mpi.ErrRevoked) {
					return fmt.Errorf("a fence to which the other does not come: %v", err)
				}
				if c.Rank() == 1 {
					if err := mpi.Send(c, over, 0, 0); err != nil {
						return err
					}
				}
				if err := epoch.end(a); !errors.Is(err, mpi.ErrRevoked) {
					return fmt.Errorf("the end of the epoch: %v", err)
				}
				if err := a.w.Free(); mpi.ClassOf(err) != mpi.ErrRevoked {
					return fmt.Errorf("free: %v", err)
				}
				if err := a.w.Fence(); !errors.Is(err, mpi.ErrWin) {
					return fmt.Errorf("fence of a window that was freed: %v", err)
				}
				return mpi.Barrier(c)
			})
		})
	}
}
