package mpi_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"testing"
	"time"

	"github.com/meshmpi/meshmpi/mpi"
	"github.com/meshmpi/meshmpi/mpi/datatype"
	"github.com/meshmpi/meshmpi/mpi/mpitest"
)

// networks are how the ranks of a test are connected.
var networks = map[string][]mpitest.Option{
	"memory": nil,
	"wan":    {mpitest.WAN(time.Millisecond, 0), mpitest.Blocks(1)},
	"tcp":    {mpitest.Blocks(2), mpitest.With(mpi.WithNetwork(new(net.Dialer).DialContext, loopback))},
	"group":  {mpitest.WAN(time.Millisecond, 0), mpitest.Blocks(2), mpitest.With(mpi.WithGroupLinks(2))},
}

// loopback listens on the machine's own interface.
func loopback(ctx context.Context) (net.Listener, error) {
	return new(net.ListenConfig).Listen(ctx, "tcp4", "127.0.0.1:0")
}

// TestModes sends messages of every size in every mode, as blocking, nonblocking
// and persistent ones, and receives them by rank and by wildcard.
func TestModes(t *testing.T) {
	sends := map[string]func(c *mpi.Comm, b []int64, to, tag int) error{
		"Send":   mpi.Send[int64],
		"Ssend":  mpi.Ssend[int64],
		"Bsend":  mpi.Bsend[int64],
		"Isend":  func(c *mpi.Comm, b []int64, to, tag int) error { return done(mpi.Isend(c, b, to, tag)) },
		"Issend": func(c *mpi.Comm, b []int64, to, tag int) error { return done(mpi.Issend(c, b, to, tag)) },
		"SendInit": func(c *mpi.Comm, b []int64, to, tag int) error {
			p, err := mpi.SendInit(c, b, to, tag)
			if err != nil {
				return err
			}
			_, err2 := 0, p.Start()
			_, err3 := p.Wait()
			return first(err2, err3, p.Free())
		},
	}
	for name, opts := range networks {
		t.Run(name, func(t *testing.T) {
			mpitest.Run(t, 2, func(c *mpi.Comm) error {
				if err := c.World().AttachBuffer(4 << 20); err != nil {
					return err
				}
				tag := 0
				for _, mode := range []string{"Send", "Ssend", "Bsend", "Isend", "Issend", "SendInit"} {
					for _, n := range []int{0, 1, 17, 256, 257, 8 << 10, 128 << 10} {
						for _, from := range []int{0, mpi.AnySource} {
							tag++
							if c.Rank() == 0 {
								if err := sends[mode](c, given(tag, n), 1, tag); err != nil {
									return fmt.Errorf("%s of %d: %w", mode, n, err)
								}
								continue
							}
							match := tag
							if n%2 == 1 {
								match = mpi.AnyTag
							}
							b := make([]int64, n+3)
							st, err := mpi.Recv(c, b, from, match)
							if err != nil || st.Source != 0 || st.Tag != tag || mpi.Count[int64](st) != n {
								return fmt.Errorf("%s of %d: %+v, %v", mode, n, st, err)
							}
							if err := want(mode, b[:n], given(tag, n)); err != nil {
								return err
							}
						}
					}
				}
				_, err := c.World().DetachBuffer()
				return err
			}, opts...)
		})
	}
}

// TestTruncation: what fits is there, the rest is lost, and the next message is not.
func TestTruncation(t *testing.T) {
	mpitest.Run(t, 2, func(c *mpi.Comm) error {
		for _, n := range []int{10, 100_000} {
			if c.Rank() == 0 {
				if err := first(mpi.Send(c, given(1, n), 1, 0), mpi.Send(c, given(2, 3), 1, 0)); err != nil {
					return err
				}
				continue
			}
			b := make([]int64, n/2)
			if _, err := mpi.Recv(c, b, 0, 0); !errors.Is(err, mpi.ErrTruncate) {
				return fmt.Errorf("a long message: %v", err)
			}
			if err := want("its beginning", b, given(1, n/2)); err != nil {
				return err
			}
			if _, err := mpi.Recv(c, b[:3], 0, 0); err != nil {
				return err
			}
			if err := want("the next", b[:3], given(2, 3)); err != nil {
				return err
			}
		}
		return nil
	})
}

// TestProbes find messages, and matched ones cannot be received twice.
func TestProbes(t *testing.T) {
	mpitest.Run(t, 3, func(c *mpi.Comm) error {
		if c.Rank() > 0 {
			for i := range 10 {
				if err := mpi.Send(c, given(c.Rank(), i), 0, i); err != nil {
					return err
				}
			}
			return nil
		}
		if _, found, err := c.Iprobe(mpi.AnySource, 99); found || err != nil {
			return fmt.Errorf("Iprobe finds what is not there: %v", err)
		}
		for range 20 {
			st, err := c.Probe(mpi.AnySource, mpi.AnyTag)
			if err != nil {
				return err
			}
			m, err := c.Mprobe(st.Source, st.Tag)
			if err != nil {
				return err
			}
			if _, found, err := c.Improbe(st.Source, st.Tag); found || err != nil {
				return fmt.Errorf("a message matches twice: %v", err)
			}
			b := make([]int64, mpi.Count[int64](st))
			got, err := mpi.Mrecv(&m, b)
			if err != nil || got.Tag != len(b) {
				return fmt.Errorf("%+v, %v", got, err)
			}
			if err := want("matched", b, given(st.Source, len(b))); err != nil {
				return err
			}
			if _, err := mpi.Mrecv(&m, b); !errors.Is(err, mpi.ErrRequest) {
				return fmt.Errorf("received twice: %v", err)
			}
		}
		return nil
	})
}

// TestRequests waits for some of many, tests others, and cancels one.
func TestRequests(t *testing.T) {
	mpitest.Run(t, 2, func(c *mpi.Comm) error {
		const n = 30
		if c.Rank() == 1 {
			order := rand.New(rand.NewPCG(1, 2)).Perm(n)
			for _, tag := range order {
				if err := mpi.Send(c, given(tag, tag+1), 0, tag); err != nil {
					return err
				}
			}
			return nil
		}
		rs := make([]mpi.Request, n+2)
		bufs := make([][]int64, n)
		var err error
		for i := range n {
			bufs[i] = make([]int64, n)
			if rs[i], err = mpi.Irecv(c, bufs[i], 1, i); err != nil {
				return err
			}
		}
		if rs[n], err = mpi.Irecv(c, bufs[0], 1, 1000); err != nil { // nothing comes
			return err
		}
		left := n
		take := func(i int, st mpi.Status) error {
			left--
			return first(want("message", bufs[i][:i+1], given(i, i+1)), want("tag", []int{st.Tag}, []int{i}))
		}
		for left > 20 {
			i, st, err := mpi.WaitAny(rs)
			if err := first(err, take(i, st)); err != nil {
				return err
			}
		}
		for left > 10 {
			is, sts, err := mpi.WaitSome(rs)
			for k, i := range is {
				err = first(err, take(i, sts[k]))
			}
			if err != nil {
				return err
			}
		}
		if all, err := mpi.TestAll(rs, nil); all || err != nil {
			return fmt.Errorf("TestAll with a receive that nothing matches: %v, %v", all, err)
		}
		if err := rs[n].Cancel(); err != nil {
			return err
		}
		select {
		case <-rs[n].Done():
		case <-time.After(10 * time.Second):
			return errors.New("a cancelled receive does not end")
		}
		if st, err := rs[n].Wait(); err != nil || !st.Cancelled {
			return fmt.Errorf("cancelled: %+v, %v", st, err)
		}
		sts := make([]mpi.Status, len(rs))
		open := make([]bool, n)
		for i := range n {
			open[i] = !rs[i].None()
		}
		if err := mpi.WaitAll(rs, sts); err != nil {
			return err
		}
		for i, o := range open {
			if o {
				if err := take(i, sts[i]); err != nil {
					return err
				}
			}
		}
		if i, _, err := mpi.WaitAny(rs); i != -1 || err != nil || left != 0 {
			return fmt.Errorf("WaitAny of nothing: %d, %v; %d left", i, err, left)
		}
		return nil
	})
}

// TestOrder sends messages with few tags in an order at random and receives them
// in another, by wildcards too: each receive gets the first that matches.
func TestOrder(t *testing.T) {
	for seed := range uint64(30) {
		mpitest.Run(t, 3, func(c *mpi.Comm) error {
			const n = 200
			if c.Rank() > 0 {
				r := rand.New(rand.NewPCG(seed, uint64(c.Rank())))
				rs := make([]mpi.Request, n)
				for i := range rs {
					b := make([]int64, []int{1, 40, 3000}[r.IntN(3)])
					b[0] = int64(i)
					var err error
					if rs[i], err = mpi.Isend(c, b, 0, r.IntN(3)); err != nil {
						return err
					}
				}
				return mpi.WaitAll(rs, nil)
			}
			// What each rank sends, by tag, that has not been received.
			left := map[int][]int{}
			for s := 1; s < 3; s++ {
				r := rand.New(rand.NewPCG(seed, uint64(s)))
				for range n {
					r.IntN(3)
					left[s] = append(left[s], r.IntN(3))
				}
			}
			next := func(s, tag int) int { // index of the first that matches
				return slices.IndexFunc(left[s], func(v int) bool { return v >= 0 && (tag == mpi.AnyTag || v == tag) })
			}
			r := rand.New(rand.NewPCG(seed, 9))
			b := make([]int64, 3000)
			for range 2 * n {
				s, tag := []int{1, 2, mpi.AnySource}[r.IntN(3)], []int{0, 1, 2, mpi.AnyTag}[r.IntN(4)]
				if s != mpi.AnySource && next(s, tag) < 0 || s == mpi.AnySource && next(1, tag) < 0 && next(2, tag) < 0 {
					s, tag = mpi.AnySource, mpi.AnyTag
				}
				st, err := mpi.Recv(c, b, s, tag)
				if err != nil {
					return err
				}
				i := next(st.Source, tag)
				if i != int(b[0]) || left[st.Source][i] != st.Tag {
					return fmt.Errorf("seed %d: message %d of rank %d with tag %d, want number %d", seed, b[0], st.Source, st.Tag, i)
				}
				left[st.Source][i] = -1
			}
			return nil
		})
	}
}

// TestWithContext: a receive that nothing matches is withdrawn; a collective
// operation that not all begin revokes the communicator.
func TestWithContext(t *testing.T) {
	mpitest.Run(t, 2, func(c *mpi.Comm) error {
		d, err := c.Dup()
		if err != nil {
			return err
		}
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Millisecond)
		defer cancel()
		b := make([]int, 1)
		if _, err := mpi.Recv(c.WithContext(ctx), b, 1-c.Rank(), 6); !errors.Is(err, context.DeadlineExceeded) {
			return fmt.Errorf("a receive that ends with its context: %v", err)
		}
		st, err := mpi.Sendrecv(c, []int{c.Rank()}, 1-c.Rank(), 5, b, 1-c.Rank(), 5)
		if err != nil || b[0] != st.Source {
			return fmt.Errorf("the next message: %v", err)
		}
		if c.Rank() == 0 {
			soon, stop := context.WithTimeout(context.Background(), 30*time.Millisecond)
			defer stop()
			if err := mpi.Barrier(d.WithContext(soon)); !errors.Is(err, context.DeadlineExceeded) {
				return fmt.Errorf("a barrier alone: %v", err)
			}
		} else {
			if _, err := mpi.Recv(d, b, 0, 0); !errors.Is(err, mpi.ErrRevoked) {
				return fmt.Errorf("the other side of it: %v", err)
			}
		}
		return d.Free()
	})
}

// TestTypes sends Go structs, columns and parts of arrays.
func TestTypes(t *testing.T) {
	type particle struct {
		ID  int32
		Pos [3]float64
		On  bool
	}
	mpitest.Run(t, 2, func(c *mpi.Comm) error {
		ps := make([]particle, 3)
		m := make([]int16, 6*7)
		sub, err := datatype.Subarray([]int{6, 7}, []int{2, 3}, []int{1, 2}, datatype.C, datatype.Basic(datatype.Int16))
		if err != nil {
			return err
		}
		if c.Rank() == 0 {
			for i := range ps {
				ps[i] = particle{int32(i), [3]float64{1, 2, float64(i)}, i == 1}
			}
			for i := range m {
				m[i] = int16(i)
			}
			return first(c.SendBuf(mpi.BufOf(ps), 1, 0), c.SsendBuf(mpi.NewBuf(m, 1, sub), 1, 1))
		}
		if _, err := c.RecvBuf(mpi.BufOf(ps), 0, 0); err != nil {
			return err
		}
		if ps[1] != (particle{1, [3]float64{1, 2, 1}, true}) || ps[2].On {
			return fmt.Errorf("got %+v", ps)
		}
		flat := make([]int16, 6)
		if _, err := mpi.Recv(c, flat, 0, 1); err != nil {
			return err
		}
		return want("the part", flat, []int16{9, 10, 11, 16, 17, 18})
	})
	if _, err := mpi.TypeOf[struct{ A []int }](); !errors.Is(err, mpi.ErrType) {
		t.Errorf("a struct with a slice: %v", err)
	}
}

// TestSelf sends to oneself, nothing, and to nobody.
func TestSelf(t *testing.T) {
	mpitest.Run(t, 1, func(c *mpi.Comm) error {
		r, err := mpi.Isend(c, given(1, 50_000), 0, 3)
		if err != nil {
			return err
		}
		b := make([]int64, 50_000)
		if _, err := mpi.Recv(c, b, 0, 3); err != nil {
			return err
		}
		_, err = r.Wait()
		if err := first(err, want("from myself", b, given(1, 50_000)), mpi.Send(c, b, mpi.ProcNull, 0)); err != nil {
			return err
		}
		st, err := mpi.Recv(c, b, mpi.ProcNull, 0)
		if err != nil || st.Source != mpi.ProcNull || st.Bytes != 0 {
			return fmt.Errorf("from nobody: %+v, %v", st, err)
		}
		return nil
	})
}

// TestMisuse: every mistake has its class.
func TestMisuse(t *testing.T) {
	mpitest.Run(t, 2, func(c *mpi.Comm) error {
		b := make([]int, 4)
		var zero mpi.Request
		_, typeErr := datatype.Vector(-1, 1, 1, datatype.Basic(datatype.Int8))
		if typeErr == nil {
			return errors.New("a vector of -1 blocks")
		}
		_, recv := mpi.Recv(c, b, 5, 0)
		_, tag := mpi.Recv(c, b, 0, -7)
		_, create := c.Create(&mpi.Group{})
		_, inter := c.RemoteGroup()
		_, cart := c.CartRank([]int{0})
		_, port := c.World().LookupName("nothing")
		var none *mpi.Comm
		for _, tc := range []struct {
			what string
			err  error
			want mpi.Class
		}{
			{"send to rank 2 of 2", mpi.Send(c, b, 2, 0), mpi.ErrRank},
			{"send to any source", mpi.Send(c, b, mpi.AnySource, 0), mpi.ErrRank},
			{"send with tag -1", mpi.Send(c, b, 0, -1), mpi.ErrTag},
			{"receive from rank 5 of 2", recv, mpi.ErrRank},
			{"receive with tag -7", tag, mpi.ErrTag},
			{"bcast from rank 2 of 2", mpi.Bcast(c, b, 2), mpi.ErrRoot},
			{"allgather into too little", mpi.Allgather(c, b, b), mpi.ErrCount},
			{"allreduce into less", mpi.Allreduce(c, b, b[:3], mpi.Sum), mpi.ErrCount},
			{"allreduce by no operation", mpi.Allreduce(c, b, b, mpi.Op{}), mpi.ErrOp},
			{"bitwise and of floats", mpi.Allreduce(c, nil, []float64{1}, mpi.BAnd), mpi.ErrOp},
			{"gatherv with one count", mpi.Gatherv(c, b, b, mpi.Layout{Counts: []int{4}}, c.Rank()), mpi.ErrCount},
			{"a layout beyond the end", mpi.Allgatherv(c, b, b, mpi.Layout{Counts: []int{4, 4}}), mpi.ErrBuffer},
			{"neighbours of nobody", mpi.NeighborAllgather(c, b, b), mpi.ErrTopology},
			{"create of an empty group", create, 0},
			{"the other side of an ordinary communicator", inter, mpi.ErrComm},
			{"coordinates without a grid", cart, mpi.ErrTopology},
			{"free of the world", c.Free(), mpi.ErrComm},
			{"cancel of nothing", zero.Cancel(), mpi.ErrRequest},
			{"Bsend without a buffer", mpi.Bsend(c, b, 0, 0), mpi.ErrBuffer},
			{"a name nobody has published", port, mpi.ErrName},
			{"barrier of nil", mpi.Barrier(none), mpi.ErrComm},
		} {
			if mpi.ClassOf(tc.err) != tc.want {
				return fmt.Errorf("%s: %v, want class %v", tc.what, tc.err, tc.want)
			}
		}
		_, file := c.OpenFile("x", 0, nil)
		_, session := mpi.NewSession(context.Background(), nil)
		_, part := mpi.PsendInit(c, b, 2, 0, 0)
		_, parts := mpi.PrecvInit(c, b, 2, 0, 0)
		for _, err := range []error{file, session, part, parts} {
			if !errors.Is(err, mpi.ErrUnsupported) {
				return fmt.Errorf("what is not there: %v", err)
			}
		}
		w := c.World()
		if err := w.Finalize(); err != nil {
			return err
		}
		if err := w.Finalize(); !errors.Is(err, mpi.ErrNotInitialized) {
			return fmt.Errorf("Finalize again: %v", err)
		}
		if err := mpi.Send(c, b, 0, 0); !errors.Is(err, mpi.ErrNotInitialized) {
			return fmt.Errorf("Send after Finalize: %v", err)
		}
		return nil
	})
}
