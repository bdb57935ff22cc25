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

// begun sends of every kind: the receiver has announced itself before, so that
// ready ones may be among them.
var begun = map[string]func(c *mpi.Comm, b []int64, to, tag int) error{
	"Rsend":  mpi.Rsend[int64],
	"Irsend": func(c *mpi.Comm, b []int64, to, tag int) error { return done(mpi.Irsend(c, b, to, tag)) },
	"Ibsend": func(c *mpi.Comm, b []int64, to, tag int) error { return done(mpi.Ibsend(c, b, to, tag)) },
	"SsendInit": func(c *mpi.Comm, b []int64, to, tag int) error {
		return startOnce(mpi.SsendInit(c, b, to, tag))
	},
	"RsendInit": func(c *mpi.Comm, b []int64, to, tag int) error {
		return startOnce(mpi.RsendInit(c, b, to, tag))
	},
	"BsendInit": func(c *mpi.Comm, b []int64, to, tag int) error {
		return startOnce(mpi.BsendInit(c, b, to, tag))
	},
	"SendBuf":  func(c *mpi.Comm, b []int64, to, tag int) error { return c.SendBuf(mpi.BufOf(b), to, tag) },
	"BsendBuf": func(c *mpi.Comm, b []int64, to, tag int) error { return c.BsendBuf(mpi.BufOf(b), to, tag) },
	"IsendBuf": func(c *mpi.Comm, b []int64, to, tag int) error { return done(c.IsendBuf(mpi.BufOf(b), to, tag)) },
}

// startOnce runs a persistent operation once and frees it.
func startOnce(p *mpi.Persistent, err error) error {
	if err == nil {
		err = p.Start()
	}
	if err == nil {
		_, err = p.Wait()
	}
	return first(err, p.Free())
}

// TestReceiveFirst has the receive posted before each send, once on a fresh
// request and once on a persistent one.
func TestReceiveFirst(t *testing.T) {
	for name, opts := range networks {
		t.Run(name, func(t *testing.T) {
			mpitest.Run(t, 2, func(c *mpi.Comm) error {
				if err := c.World().AttachBuffer(2 << 20); err != nil {
					return err
				}
				for _, n := range []int{0, 1, 32, 33, 8 << 10, 100_000} {
					got := make([]int64, n+1)
					p, err := mpi.RecvInit(c, got, mpi.AnySource, 5)
					if err != nil {
						return err
					}
					for kind, send := range begun { // the order differs between ranks; the messages do not
						if err := exchange(c, p, send, got, n); err != nil {
							return fmt.Errorf("%s of %d: %w", kind, n, err)
						}
					}
					if err := p.Free(); err != nil {
						return err
					}
				}
				_, err := c.World().DetachBuffer()
				return err
			}, opts...)
		})
	}
}

func exchange(c *mpi.Comm, p *mpi.Persistent, send func(*mpi.Comm, []int64, int, int) error, got []int64, n int) error {
	other := 1 - c.Rank()
	clear(got)
	if err := first(p.Start(), mpi.Barrier(c), send(c, given(c.Rank(), n), other, 5)); err != nil {
		return err
	}
	st, err := p.Wait()
	if err == nil && (st.Source != other || st.Tag != 5 || mpi.Count[int64](st) != n || mpi.Count[int32](st) != 2*n) {
		err = fmt.Errorf("status %+v", st)
	}
	return first(err, want("message", got[:n], given(other, n)), want("behind it", got[n:], []int64{0}), mpi.Barrier(c))
}

// TestCounts: a message that ends in the middle of an element has no count.
func TestCounts(t *testing.T) {
	mpitest.Run(t, 1, func(c *mpi.Comm) error {
		got := make([]uint8, 8)
		st, err := mpi.Sendrecv(c, []uint8{1, 2, 3, 4, 5, 6}, 0, 0, got, 0, 0)
		counts := []int{mpi.Count[uint8](st), mpi.Count[int16](st), mpi.Count[int32](st), mpi.Count[complex128](st)}
		return first(err, want("counts", counts, []int{6, 3, mpi.Undefined, mpi.Undefined}))
	})
}

// TestBuffered: what is kept counts against the buffer until it is sent, and
// flushing and detaching wait for that.
func TestBuffered(t *testing.T) {
	for name, opts := range networks {
		t.Run(name, func(t *testing.T) {
			mpitest.Run(t, 2, func(c *mpi.Comm) error {
				const n = 100_000 // large: it is not sent before it is received
				w := c.World()
				if c.Rank() == 1 {
					got := make([]int64, n)
					if err := mpi.Barrier(c); err != nil {
						return err
					}
					for range 2 {
						if _, err := mpi.Recv(c, got, 0, 1); err != nil {
							return err
						}
					}
					return want("message", got, given(3, n))
				}
				if err := w.AttachBuffer(8*n + mpi.BsendOverhead); err != nil {
					return err
				}
				v := given(3, n)
				err := mpi.Bsend(c, v, 1, 1)
				clear(v)
				err2 := mpi.Bsend(c, v, 1, 1)
				if err := first(err, mpi.Barrier(c)); err != nil || mpi.ClassOf(err2) != mpi.ErrBuffer {
					return fmt.Errorf("%v; a second message: %v", err, err2)
				}
				w.FlushBuffer()
				if err := mpi.Bsend(c, given(3, n), 1, 1); err != nil {
					return fmt.Errorf("after flushing: %w", err)
				}
				size, err := w.DetachBuffer()
				if err != nil || size != 8*n+mpi.BsendOverhead {
					return fmt.Errorf("detached %d: %v", size, err)
				}
				if _, err := w.DetachBuffer(); mpi.ClassOf(err) != mpi.ErrBuffer {
					return fmt.Errorf("detached twice: %v", err)
				}
				return nil
			}, opts...)
		})
	}
}

// TestReplace exchanges in one buffer, around a ring, through oneself and into
// the void.
func TestReplace(t *testing.T) {
	mpitest.Run(t, 3, func(c *mpi.Comm) error {
		for _, n := range []int{0, 1, 1000, 100_000} {
			next, prev := (c.Rank()+1)%3, (c.Rank()+2)%3
			b := given(c.Rank(), n)
			_, err := mpi.SendrecvReplace(c, b, next, 3, prev, 3)
			if err := first(err, want("around", b, given(prev, n))); err != nil {
				return err
			}
			_, err = mpi.SendrecvReplace(c, b, c.Rank(), 4, c.Rank(), mpi.AnyTag)
			if err := first(err, want("oneself", b, given(prev, n))); err != nil {
				return err
			}
			st, err := mpi.SendrecvReplace(c, b, mpi.ProcNull, 4, mpi.ProcNull, 4)
			if err := first(err, want("nobody", b, given(prev, n))); err != nil || st.Source != mpi.ProcNull || st.Bytes != 0 {
				return fmt.Errorf("nobody: %+v, %v", st, err)
			}
		}
		return nil
	})
}

// TestCancelled: what is withdrawn takes no message; what has matched is not
// withdrawn; sends end as they would have.
func TestCancelled(t *testing.T) {
	mpitest.Run(t, 2, func(c *mpi.Comm) error {
		other := 1 - c.Rank()
		a, b := make([]int, 1), make([]int, 1)
		r, err := mpi.Irecv(c, a, other, 1)
		if err := first(err, r.Cancel()); err != nil {
			return err
		}
		if st, err := r.Wait(); err != nil || !st.Cancelled || !r.None() {
			return fmt.Errorf("withdrawn: %+v, %v", st, err)
		}
		late, err := mpi.Irecv(c, b, other, 1)
		if err := first(err, mpi.Barrier(c), mpi.Send(c, []int{7}, other, 1), mpi.Send(c, []int{8}, other, 2)); err != nil {
			return err
		}
		if _, err := mpi.Recv(c, a, other, 2); err != nil { // so the first is here as well
			return err
		}
		if err := late.Cancel(); err != nil {
			return err
		}
		if st, err := late.Wait(); err != nil || st.Cancelled || b[0] != 7 {
			return fmt.Errorf("matched: %+v, %d, %v", st, b[0], err)
		}
		s, err := mpi.Isend(c, given(1, 100_000), other, 3)
		got := make([]int64, 100_000)
		if err := first(err, s.Cancel()); err != nil {
			return err
		}
		_, err1 := mpi.Recv(c, got, other, 3)
		st, err2 := s.Wait()
		if err := first(err1, err2, want("sent", got, given(1, 100_000))); err != nil || st.Cancelled {
			return fmt.Errorf("a send: %+v, %v", st, err)
		}
		p, err := mpi.RecvInit(c, a, other, 9)
		if err := first(err, p.Start(), p.Cancel()); err != nil {
			return err
		}
		st, err = p.Wait()
		if err != nil || !st.Cancelled {
			return fmt.Errorf("persistent: %+v, %v", st, err)
		}
		return first(p.Start(), p.Cancel(), p.Free())
	})
}

// TestPolling completes requests by Test in all its kinds, by channels, and under
// a context.
func TestPolling(t *testing.T) {
	mpitest.Run(t, 2, func(c *mpi.Comm) error {
		const n = 12
		other := 1 - c.Rank()
		bufs, rs := make([][]int64, n), make([]mpi.Request, n)
		open := func() (err error) {
			for i := range rs {
				bufs[i] = make([]int64, 5)
				var e error
				rs[i], e = mpi.Irecv(c, bufs[i], other, i)
				err = first(err, e)
			}
			return err
		}
		send := func() (err error) {
			for i := range rs {
				err = first(err, mpi.Send(c, given(i, 5), other, n-1-i))
			}
			return err
		}
		check := func(how string) (err error) {
			for i := range rs {
				if !rs[i].None() {
					err = first(err, fmt.Errorf("request %d is under way", i))
				}
				err = first(err, want(how, bufs[i], given(n-1-i, 5)))
			}
			return err
		}
		ways := map[string]func() error{
			"TestAll": func() error {
				for over := false; !over; {
					var err error
					if over, err = mpi.TestAll(rs, make([]mpi.Status, n)); err != nil {
						return err
					}
				}
				return nil
			},
			"TestAny": func() error {
				for {
					if i, over, st, err := mpi.TestAny(rs); err != nil || over && i < 0 || i >= 0 && st.Tag != i {
						return err
					}
				}
			},
			"TestSome": func() error {
				for left := n; left > 0; {
					is, sts, err := mpi.TestSome(rs)
					if left -= len(is); err != nil || len(sts) != len(is) {
						return fmt.Errorf("%v, %v: %w", is, sts, err)
					}
				}
				return nil
			},
			"Test": func() (err error) {
				for i := range rs {
					for over := false; !over; {
						var e error
						_, over, e = rs[i].Test()
						err = first(err, e)
					}
				}
				return err
			},
			"Done": func() (err error) {
				for i := range rs {
					<-rs[i].Done()
					_, e := rs[i].Wait()
					err = first(err, e)
				}
				return err
			},
			"WaitContext": func() (err error) {
				for i := range rs {
					_, e := rs[i].WaitContext(context.Background())
					err = first(err, e)
				}
				return err
			},
		}
		for _, how := range []string{"TestAll", "TestAny", "TestSome", "Test", "Done", "WaitContext"} {
			if err := open(); err != nil {
				return err
			}
			if over, err := mpi.TestAll(rs, nil); err != nil || over {
				return fmt.Errorf("all over before they began: %v", err)
			}
			soon, stop := context.WithTimeout(context.Background(), time.Millisecond)
			_, err := rs[0].WaitContext(soon)
			if stop(); !errors.Is(err, mpi.ErrPending) {
				return fmt.Errorf("waiting for a moment: %v", err)
			}
			if err := first(mpi.Barrier(c), send(), ways[how](), check(how), mpi.Barrier(c)); err != nil {
				return fmt.Errorf("%s: %w", how, err)
			}
		}
		if i, over, _, err := mpi.TestAny(rs); i != -1 || !over || err != nil {
			return fmt.Errorf("TestAny of nothing: %d, %v, %v", i, over, err)
		}
		if is, _, err := mpi.WaitSome(rs); is != nil || err != nil {
			return fmt.Errorf("WaitSome of nothing: %v, %v", is, err)
		}
		return nil
	})
}

// TestFreedRequests end by themselves.
func TestFreedRequests(t *testing.T) {
	mpitest.Run(t, 2, func(c *mpi.Comm) error {
		const n = 100_000
		other := 1 - c.Rank()
		for range 5 {
			s, err := mpi.Isend(c, given(c.Rank(), n), other, 1)
			if err := first(err, s.Free()); err != nil {
				return err
			}
			if !s.None() || mpi.ClassOf(s.Free()) != mpi.ErrRequest {
				return errors.New("it is under way after Free")
			}
			got := make([]int64, n)
			_, err = mpi.Recv(c, got, other, 1)
			if err := first(err, want("sent", got, given(other, n))); err != nil {
				return err
			}
		}
		return nil
	})
}

// TestIbsendRequest: a request that is complete at once is one, until somebody has waited for it.
func TestIbsendRequest(t *testing.T) {
	mpitest.Run(t, 2, func(c *mpi.Comm) error {
		if c.Rank() == 1 {
			for range 4 {
				if _, err := mpi.Recv(c, make([]int32, 1), 0, 1); err != nil {
					return err
				}
			}
			return nil
		}
		_ = c.World().AttachBuffer(4096)
		buf := []int32{1}
		r, err := mpi.Ibsend(c, buf, 1, 1)
		if err != nil {
			return err
		}
		if i, _, _ := mpi.WaitAny([]mpi.Request{r}); i != 0 {
			t.Errorf("WaitAny of an Ibsend: index %d, want 0", i)
		}
		r, _ = mpi.Ibsend(c, buf, 1, 1)
		if in, _, _ := mpi.WaitSome([]mpi.Request{r}); len(in) != 1 {
			t.Errorf("WaitSome of an Ibsend: %v", in)
		}
		r, _ = mpi.Ibsend(c, buf, 1, 1)
		if err := r.Free(); err != nil {
			t.Errorf("Free of an Ibsend: %v", err)
		}
		p, _ := mpi.BsendInit(c, buf, 1, 1)
		_ = p.Start()
		if err := p.Start(); err == nil { // an active request must not be started again
			t.Errorf("Start of a BsendInit that is active: no error")
		}
		return nil
	})
}

// TestFlushBuffer: it waits for what is kept when it is called, not for what comes later.
// Here something is always kept, since the receiver takes a message only when the next has
// been, and there are more until FlushBuffer has returned.
func TestFlushBuffer(t *testing.T) {
	mpitest.Run(t, 2, func(c *mpi.Comm) error {
		const data, more = 1, 2
		big, goOn := make([]byte, 1<<20), []byte{1}
		if c.Rank() == 1 {
			for goOn[0] == 1 {
				_, err := mpi.Recv(c, goOn, 0, more)
				_, err2 := mpi.Recv(c, big, 0, data)
				if err := first(err, err2, mpi.Send(c, []byte{}, 0, more)); err != nil {
					return err
				}
			}
			return nil
		}
		w := c.World()
		if err := first(w.AttachBuffer(1<<24), mpi.Bsend(c, big, 1, data)); err != nil {
			return err
		}
		end := make(chan struct{})
		go func() { w.FlushBuffer(); close(end) }()
		for goOn[0] == 1 {
			select {
			case <-end:
				goOn[0] = 0
			default:
				if err := mpi.Bsend(c, big, 1, data); err != nil {
					return err
				}
			}
			err := mpi.Send(c, goOn, 1, more)
			_, err2 := mpi.Recv(c, []byte{}, 1, more)
			if err := first(err, err2); err != nil {
				return err
			}
		}
		return nil
	}, mpitest.Timeout(20*time.Second))
}
