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

// What AckFailed has not returned it has not acknowledged.
func TestAckRace(t *testing.T) {
	missed, raced := 0, 0
	end := time.Now().Add(3 * time.Second)
	for i := 0; time.Now().Before(end) && missed == 0; i++ {
		mpitest.Run(t, 8, func(c *mpi.Comm) error {
			if c.Rank() > 0 {
				time.Sleep(time.Duration(c.Rank()*30+i%97) * time.Microsecond)
				return crash(c)
			}
			for {
				g, err := c.AckFailed()
				if err != nil {
					return err
				}
				if c.Failed().Size() > g.Size() { // one has died since
					raced++
					r, err := mpi.Irecv(c, make([]int, 1), mpi.AnySource, 9)
					if err != nil {
						return err
					}
					_, done, err := r.Test()
					if !done { // the engine knows of a death before Failed does
						time.Sleep(20 * time.Millisecond)
						_, _, err = r.Test()
					}
					if !errors.Is(err, mpi.ErrProcFailedPending) {
						missed++
					}
					_ = r.Cancel()
					_, _ = r.Wait()
				}
				if g.Size() == 7 || missed > 0 {
					return nil
				}
			}
		}, mpitest.FaultTolerant())
	}
	if missed > 0 {
		t.Errorf("%d of %d deaths were acknowledged without having been returned", missed, raced)
	}
	t.Log(raced, "races")
}

// acking is a context in whose first look AckFailed comes in between, and which has ended
// by the second.
type acking struct {
	context.Context
	c      *mpi.Comm
	end    func()
	looked int
}

func (a *acking) Done() <-chan struct{} {
	if a.looked++; a.looked == 1 {
		_, _ = a.c.AckFailed()
	} else {
		a.end()
	}
	return a.Context.Done()
}

// Whoever waits under a context for what was warned of a death that is acknowledged
// before it is looked at waits on, but not for longer than the context says.
func TestAckedUnderContext(t *testing.T) {
	for name, call := range map[string]func(c *mpi.Comm, ctx context.Context) error{
		"Recv": func(c *mpi.Comm, ctx context.Context) error {
			_, err := mpi.Recv(c.WithContext(ctx), make([]int, 1), mpi.AnySource, 2)
			return err
		},
		"WaitContext": func(c *mpi.Comm, ctx context.Context) error {
			r, err := mpi.Irecv(c, make([]int, 1), mpi.AnySource, 2)
			if err != nil {
				return err
			}
			_, err = r.WaitContext(ctx)
			return first(err, r.Cancel(), second(r.Wait()))
		},
	} {
		t.Run(name, func(t *testing.T) {
			mpitest.Run(t, 2, func(c *mpi.Comm) error {
				if c.Rank() == 1 {
					return crash(c)
				}
				if err := diesBefore(c, 1); err != nil {
					return err
				}
				ctx, end := context.WithCancel(context.Background())
				defer end()
				if err := call(c, &acking{Context: ctx, c: c, end: end}); !errors.Is(err, mpi.ErrPending) {
					return fmt.Errorf("got %v, want that its context has ended", err)
				}
				return nil
			}, mpitest.FaultTolerant(), mpitest.Timeout(20*time.Second))
		})
	}
}

// AckFailed returns whose deaths it acknowledges: those of the other side as well.
func TestInterAck(t *testing.T) {
	mpitest.Run(t, 4, func(c *mpi.Comm) error {
		x, err := interHalves(c)
		if err != nil {
			return err
		}
		if err := mpi.Barrier(c); err != nil {
			return err
		}
		if c.Rank() == 3 {
			return crash(c)
		}
		if err := diesBefore(c, 3); err != nil {
			return err
		}
		r, err := mpi.Irecv(x, make([]int, 1), mpi.AnySource, 2)
		if err != nil {
			return err
		}
		_, done, err := r.Test()
		g, aerr := x.AckFailed()
		if aerr != nil {
			return aerr
		}
		if c.Rank() == 2 { // 3 is of its own side, and could not have sent
			if done {
				t.Errorf("rank 2: a receive from the other side: %v", err)
			}
		} else if !errors.Is(err, mpi.ErrProcFailedPending) || g.Size() != 1 {
			t.Errorf("rank %d: %v; %d were acknowledged, want 1", c.Rank(), err, g.Size())
		}
		_ = r.Cancel()
		_, _ = r.Wait()
		return nil
	}, mpitest.FaultTolerant())
}

// interHalves is an intercommunicator of ranks 0 and 1 with 2 and 3.
func interHalves(c *mpi.Comm) (*mpi.Comm, error) {
	half, err := c.Split(c.Rank()/2, 0)
	if err != nil {
		return nil, err
	}
	return half.InterCreate(0, c, (1-c.Rank()/2)*2, 3)
}
