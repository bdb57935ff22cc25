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

// A blocking receive from AnySource that fails because of a death must not stay posted:
// what comes later is for later receives.
func TestBlockingStaysPosted(t *testing.T) {
	for name, blocking := range map[string]func(c *mpi.Comm, buf []int) error{
		"Recv":    func(c *mpi.Comm, buf []int) error { _, err := mpi.Recv(c, buf, mpi.AnySource, 5); return err },
		"RecvBuf": func(c *mpi.Comm, buf []int) error { _, err := c.RecvBuf(mpi.BufOf(buf), mpi.AnySource, 5); return err },
		"Sendrecv": func(c *mpi.Comm, buf []int) error {
			_, err := mpi.Sendrecv(c, []int{}, mpi.ProcNull, 5, buf, mpi.AnySource, 5)
			return err
		},
		"SendrecvReplace": func(c *mpi.Comm, buf []int) error {
			_, err := mpi.SendrecvReplace(c, buf, mpi.ProcNull, 5, mpi.AnySource, 5)
			return err
		},
		"Recv with a context": func(c *mpi.Comm, buf []int) error {
			ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
			defer cancel()
			_, err := mpi.Recv(c.WithContext(ctx), buf, mpi.AnySource, 5)
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			mpitest.Run(t, 3, func(c *mpi.Comm) error {
				if c.Rank() == 2 {
					return crash(c)
				}
				if err := diesBefore(c, 2); err != nil {
					return err
				}
				if c.Rank() == 1 {
					_, err := mpi.Recv(c, make([]int, 1), 0, 2) // it has failed there
					return first(err, mpi.Send(c, []int{42}, 0, 5))
				}
				old := []int{-1}
				err := blocking(c, old)
				if err == nil || errors.Is(err, mpi.ErrProcFailedPending) {
					t.Errorf("the blocking receive: %v", err)
				}
				if _, err := c.AckFailed(); err != nil {
					return err
				}
				if err := mpi.Send(c, []int{0}, 1, 2); err != nil {
					return err
				}
				ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
				defer cancel()
				buf := []int{0}
				if _, err := mpi.Recv(c.WithContext(ctx), buf, 1, 5); err != nil {
					return fmt.Errorf("the next receive: %v; the buffer of the one that had failed is %d now", err, old[0])
				}
				if old[0] != -1 || buf[0] != 42 {
					return fmt.Errorf("buffers are %d and %d", old[0], buf[0])
				}
				return nil
			}, mpitest.FaultTolerant(), mpitest.Timeout(20*time.Second))
		})
	}
}

// Agree of an intercommunicator is over both sides, or refused as Shrink is.
func TestInterAgree(t *testing.T) {
	mpitest.Run(t, 4, func(c *mpi.Comm) error {
		x, err := interHalves(c)
		if err != nil {
			return err
		}
		flags, err := x.Agree(^(1 << c.Rank()))
		if errors.Is(err, mpi.ErrUnsupported) {
			return nil
		}
		if err != nil || flags != ^15 {
			return fmt.Errorf("rank %d: agreed on %b, %v", c.Rank(), uint8(flags), err)
		}
		return nil
	}, mpitest.FaultTolerant())
}
