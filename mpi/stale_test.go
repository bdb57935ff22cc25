package mpi_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/meshmpi/meshmpi/mpi"
	"github.com/meshmpi/meshmpi/mpi/mpitest"
)

// A caller that gives up before Accept is none: Accept takes the next.
func TestStaleCall(t *testing.T) {
	ports := make(chan string, 1)
	mpitest.Run(t, 3, func(c *mpi.Comm) error {
		w := c.World()
		switch c.Rank() {
		case 0:
			port, err := w.OpenPort()
			if err != nil {
				return err
			}
			ports <- port
			if _, err := mpi.Recv(c, make([]int, 1), 1, 0); err != nil {
				return err
			}
			d, err := w.Self().Accept(port, 0)
			if err != nil {
				return err
			}
			return d.Free()
		case 1:
			port := <-ports
			ports <- port
			ctx, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
			defer cancel()
			own, err := w.Self().Dup()
			if err != nil {
				return err
			}
			if _, err := own.WithContext(ctx).Connect(port, 0); err == nil {
				return errors.New("nobody has accepted, and yet it is connected")
			}
			if err := mpi.Send(c, []int{1}, 2, 0); err != nil {
				return err
			}
			return mpi.Send(c, []int{1}, 0, 0)
		}
		if _, err := mpi.Recv(c, make([]int, 1), 1, 0); err != nil {
			return err
		}
		d, err := w.Self().Connect(<-ports, 0)
		if err != nil {
			return err
		}
		return d.Free()
	}, mpitest.Timeout(10*time.Second))
}
