package mpi_test

import (
	"errors"
	"fmt"
	"sync"

	"github.com/meshmpi/meshmpi/mpi"
	"github.com/meshmpi/meshmpi/mpi/datatype"
)

// emptyStatus ends the case unless a status is that of no request.
func emptyStatus(st mpi.Status) {
	is("bytes of the empty status", st.Bytes, 0)
	is("source", st.Source, mpi.AnySource)
	is("tag", st.Tag, mpi.AnyTag)
	is("cancelled", st.Cancelled, false)
}

// buffered runs f with room for Bsend.
func buffered(c *mpi.Comm, bytes int, f func()) {
	must(c.World().AttachBuffer(bytes))
	f()
	is("size of the buffer", get(c.World().DetachBuffer()), bytes)
}

var mpichPt2pt = []mpichCase{
	{file: "pt2pt/anyall.c", ranks: 3, body: func(c *mpi.Comm) error {
		const n = 200
		if c.Rank() == 0 {
			in, rs, st := make([]int, 2*n), make([]mpi.Request, 2*n), make([]mpi.Status, 2*n)
			for i := range rs {
				rs[i] = get(mpi.Irecv(c, in[i:i+1], mpi.AnySource, mpi.AnyTag))
			}
			must(mpi.WaitAll(rs, st))
			next := []int{0, 0, 0}
			for i, s := range st { // from each in its order
				is("order", in[i], next[s.Source])
				next[s.Source]++
			}
			return nil
		}
		rs := make([]mpi.Request, n)
		for i := range rs {
			rs[i] = get(mpi.Isend(c, []int{i}, 0, i))
		}
		return mpi.WaitAll(rs, nil)
	}},
	{file: "pt2pt/bottom.c", ranks: 2, body: func(c *mpi.Comm) error {
		// Displacements far from the buffer's beginning.
		t := get(datatype.Hindexed([]int{2, 1}, []int{-16, 40}, datatype.Basic(datatype.Int64)))
		mem := make([]int64, 12)
		if c.Rank() == 0 {
			copy(mem, given(3, 12))
			return c.SendBuf(mpi.NewBuf(mem, 1, t).At(24), 1, 0)
		}
		st := get(c.RecvBuf(mpi.NewBuf(mem, 1, t).At(24), 0, 0))
		is("count", mpi.Count[int64](st), 3)
		g, expect := given(3, 12), make([]int64, 12)
		expect[1], expect[2], expect[8] = g[1], g[2], g[8]
		are("memory", mem, expect)
		return nil
	}},
	{file: "pt2pt/bsend1.c", ranks: 1, body: func(c *mpi.Comm) error {
		buffered(c, 3*mpi.BsendOverhead+200, func() {
			must(mpi.Bsend(c, []byte("hello"), 0, 1), mpi.Bsend(c, []byte("world, again"), 0, 2), mpi.Bsend(c, []byte{}, 0, 3))
			for tag, text := range []string{"hello", "world, again", ""} {
				b := make([]byte, 20)
				st := get(mpi.Recv(c, b, 0, tag+1))
				is("text", string(b[:st.Bytes]), text)
			}
		})
		return nil
	}},
	{file: "pt2pt/bsend2.c", ranks: 1, body: func(c *mpi.Comm) error {
		buffered(c, mpi.BsendOverhead+8, func() {
			for i := range 100 { // the room is there again each time
				must(mpi.Bsend(c, []int64{int64(i)}, 0, 0))
				in := make([]int64, 1)
				must(second(mpi.Recv(c, in, 0, 0)))
				is("value", in[0], int64(i))
				c.World().FlushBuffer()
			}
		})
		return nil
	}},
	{file: "pt2pt/bsend3.c", ranks: 2, body: func(c *mpi.Comm) error {
		// Persistent ones.
		buffered(c, 10*(mpi.BsendOverhead+8), func() {
			out, in := []int64{0}, []int64{0}
			p := get(mpi.BsendInit(c, out, 1-c.Rank(), 4))
			for i := range int64(10) {
				out[0] = i
				must(p.Start(), second(p.Wait()))
				out[0] = -1 // it is in the buffer
				must(second(mpi.Recv(c, in, 1-c.Rank(), 4)))
				is("value", in[0], i)
			}
			must(p.Free())
		})
		return nil
	}},
	{file: "pt2pt/bsend4.c", ranks: 1, body: func(c *mpi.Comm) error {
		// Detaching waits until what was kept is sent.
		buffered(c, 1<<16, func() {
			must(done(mpi.Ibsend(c, []int{7}, 0, 0)))
			in := []int{0}
			must(second(mpi.Recv(c, in, 0, 0)))
			is("value", in[0], 7)
		})
		refused("detaching nothing", second(c.World().DetachBuffer()), mpi.ErrBuffer)
		return nil
	}},
	{file: "pt2pt/bsend5.c", ranks: 2, body: func(c *mpi.Comm) error {
		must(c.World().AttachBuffer(mpi.BsendOverhead + 100))
		refused("a second buffer", c.World().AttachBuffer(100), mpi.ErrBuffer)
		refused("a message that does not fit", mpi.Bsend(c, make([]byte, 200), 1-c.Rank(), 0), mpi.ErrBuffer)
		must(mpi.Bsend(c, make([]byte, 100), 1-c.Rank(), 0))
		must(second(mpi.Recv(c, make([]byte, 100), 1-c.Rank(), 0)))
		return second(c.World().DetachBuffer())
	}},
	{file: "pt2pt/bsend_iflush.c", ranks: 2, body: func(c *mpi.Comm) error {
		const n = 100_000 // announced and fetched, not sent at once
		buffered(c, 2*(n*8+mpi.BsendOverhead), func() {
			must(mpi.Bsend(c, given(c.Rank(), n), 1-c.Rank(), 0))
			flushed := make(chan struct{})
			go func() { c.World().FlushBuffer(); close(flushed) }() // ends when the peer has it
			in := make([]int64, n)
			must(second(mpi.Recv(c, in, 1-c.Rank(), 0)))
			are("data", in, given(1-c.Rank(), n))
			<-flushed
		})
		return nil
	}},
	{file: "pt2pt/bsendfrag.c", ranks: 2, body: func(c *mpi.Comm) error {
		// Messages leave the buffer in another order than they came in.
		const n = 20_000
		buffered(c, 4*(n*8+mpi.BsendOverhead), func() {
			if c.Rank() == 0 {
				for round := range 5 {
					for tag := range 4 {
						must(mpi.Bsend(c, given(round, n), 1, tag))
					}
					c.World().FlushBuffer()
				}
				return
			}
			for round := range 5 {
				for _, tag := range []int{2, 0, 3, 1} {
					in := make([]int64, n)
					must(second(mpi.Recv(c, in, 0, tag)))
					are("data", in, given(round, n))
				}
			}
		})
		return nil
	}},
	{file: "pt2pt/bsendpending.c", ranks: 2, body: func(c *mpi.Comm) error {
		const n = 50_000
		buffered(c, n*8+2*mpi.BsendOverhead, func() {
			if c.Rank() == 0 {
				must(mpi.Bsend(c, given(1, n), 1, 0))
				refused("a second one while the first waits", mpi.Bsend(c, given(1, n), 1, 0), mpi.ErrBuffer)
				must(mpi.Barrier(c))
				return
			}
			must(mpi.Barrier(c))
			in := make([]int64, n)
			must(second(mpi.Recv(c, in, 0, 0)))
			are("data", in, given(1, n))
		})
		return nil
	}},
	{file: "pt2pt/cancelanysrc.c", ranks: 2, body: func(c *mpi.Comm) error {
		r := get(mpi.Irecv(c, make([]int, 1), mpi.AnySource, 3))
		must(r.Cancel())
		is("cancelled", get(r.Wait()).Cancelled, true)
		// What is sent later waits for a later receive.
		must(mpi.Barrier(c), done(mpi.Isend(c, []int{c.Rank()}, 1-c.Rank(), 3)))
		return second(mpi.Recv(c, make([]int, 1), mpi.AnySource, 3))
	}},
	{file: "pt2pt/cancelrecv.c", ranks: 2, body: func(c *mpi.Comm) error {
		peer := 1 - c.Rank()
		in := [][]int{{-1}, {-1}, {-1}}
		var rs []mpi.Request
		for i := range in {
			rs = append(rs, get(mpi.Irecv(c, in[i], peer, 0)))
		}
		must(rs[1].Cancel())
		is("cancelled", get(rs[1].Wait()).Cancelled, true)
		must(mpi.Barrier(c), mpi.Send(c, []int{10}, peer, 0), mpi.Send(c, []int{11}, peer, 0), mpi.WaitAll(rs, nil))
		is("values", fmt.Sprint(in), "[[10] [-1] [11]]")
		// Too late: it has matched.
		r := get(mpi.Irecv(c, in[0], peer, 1))
		must(mpi.Ssend(c.World().Self(), []int{}, mpi.ProcNull, 0), done(mpi.Isend(c, []int{12}, peer, 1)), mpi.Barrier(c))
		<-r.Done()
		must(r.Cancel())
		is("cancelled", get(r.Wait()).Cancelled, false)
		is("value", in[0][0], 12)
		return nil
	}},
	{file: "pt2pt/eagerdt.c", ranks: 2, body: func(c *mpi.Comm) error {
		// A large vector before it is expected.
		v := get(datatype.Vector(5000, 1, 2, datatype.Basic(datatype.Int64)))
		if c.Rank() == 0 {
			r := get(c.IsendBuf(mpi.NewBuf(given(0, 10_000), 1, v), 1, 0))
			return first(mpi.Barrier(c), done(r, nil))
		}
		must(mpi.Barrier(c))
		in := make([]int64, 5000)
		must(second(mpi.Recv(c, in, 0, 0)))
		g := given(0, 10_000)
		for i := range in {
			is("value", in[i], g[2*i])
		}
		return nil
	}},
	{file: "pt2pt/greq1.c", ranks: 2, body: func(c *mpi.Comm) error {
		// Other events and requests are waited for together by their channels.
		other := make(chan struct{})
		r := get(mpi.Irecv(c, make([]int, 1), 1-c.Rank(), 0))
		go func(c chan struct{}) { close(c) }(other) // ends at once
		must(mpi.Send(c, []int{1}, 1-c.Rank(), 0))
		arrived := r.Done()
		for other != nil || arrived != nil {
			select {
			case <-other:
				other = nil
			case <-arrived:
				arrived = nil
			}
		}
		return done(r, nil)
	}},
	{file: "pt2pt/icsend.c", ranks: 4, body: func(c *mpi.Comm) error {
		x := halves(c, 1)
		if c.Rank() == 0 {
			for r := range 3 {
				must(mpi.Send(x, []int{r}, r, 0))
			}
		} else {
			in := []int{-1}
			st := get(mpi.Recv(x, in, mpi.AnySource, 0))
			is("source", st.Source, 0)
			is("value", in[0], x.Rank())
		}
		return x.Free()
	}},
	{file: "pt2pt/inactivereq.c", ranks: 2, body: func(c *mpi.Comm) error {
		p := get(mpi.RecvInit(c, make([]int, 1), 1-c.Rank(), 0))
		q := get(mpi.SendInit(c, []int{1}, 1-c.Rank(), 0))
		emptyStatus(get(p.Wait()))
		st, over, err := q.Test()
		must(err)
		is("an inactive one is complete", over, true)
		emptyStatus(st)
		rs := []mpi.Request{*p.Request(), *q.Request()}
		i, _, err := mpi.WaitAny(rs)
		is("any of inactive ones", i, -1)
		must(err, mpi.StartAll(p, q))
		must(second(p.Wait()), second(q.Wait()))
		emptyStatus(get(p.Wait()))
		return first(p.Free(), q.Free())
	}},
	{file: "pt2pt/isendirecv.c", ranks: 4, body: func(c *mpi.Comm) error {
		var rs []mpi.Request
		in := make([]int, 4)
		for r := range 4 {
			rs = append(rs, get(mpi.Irecv(c, in[r:r+1], r, 0)), get(mpi.Isend(c, []int{10*c.Rank() + r}, r, 0)))
		}
		must(mpi.WaitAll(rs, nil))
		for r := range in {
			is("value", in[r], 10*r+c.Rank())
		}
		return nil
	}},
	{file: "pt2pt/isendself.c", ranks: 1, body: func(c *mpi.Comm) error {
		for _, n := range []int{0, 1, 100_000} {
			s := get(mpi.Isend(c, given(0, n), 0, 7))
			in := make([]int64, n)
			must(second(mpi.Recv(c, in, 0, 7)), done(s, nil))
			are("data", in, given(0, n))
			r := get(mpi.Irecv(c, in, 0, 8))
			must(mpi.Send(c, given(1, n), 0, 8), done(r, nil))
			are("data", in, given(1, n))
		}
		return nil
	}},
	{file: "pt2pt/isendselfprobe.c", ranks: 1, body: func(c *mpi.Comm) error {
		_, found, err := c.Iprobe(0, 1)
		must(err)
		is("found before", found, false)
		s := get(mpi.Isend(c, []int16{1, 2, 3}, 0, 1))
		st := get(c.Probe(0, 1))
		is("count", mpi.Count[int16](st), 3)
		is("of larger ones", mpi.Count[int32](st), mpi.Undefined)
		return first(second(mpi.Recv(c, make([]int16, 3), 0, 1)), done(s, nil))
	}},
	{file: "pt2pt/large_message.c", ranks: 3, body: func(c *mpi.Comm) error {
		const n = 4 << 20
		if c.Rank() == 0 {
			b := make([]byte, n)
			for i := range b {
				b[i] = byte(i * 7)
			}
			return first(mpi.Send(c, b, 1, 0), mpi.Send(c, b, 2, 0))
		}
		b := make([]byte, n+1)
		st := get(mpi.Recv(c, b, 0, 0))
		is("bytes", st.Bytes, n)
		for i, v := range b[:n] {
			if v != byte(i*7) {
				return fmt.Errorf("byte %d is %d", i, v)
			}
		}
		return nil
	}},
	{file: "pt2pt/large_tag.c", ranks: 2, body: func(c *mpi.Comm) error {
		for _, tag := range []int{0, 1, 1 << 16, 1<<30 - 1, mpi.MaxTag} {
			st := get(mpi.Sendrecv(c, []int{tag}, 1-c.Rank(), tag, make([]int, 1), 1-c.Rank(), tag))
			is("tag", st.Tag, tag)
		}
		refused("a negative tag", mpi.Send(c, []int{1}, 0, -2), mpi.ErrTag)
		refused("one beyond", mpi.Send(c, []int{1}, 0, mpi.MaxTag+1), mpi.ErrTag)
		return nil
	}},
	{file: "pt2pt/many_isend.c", ranks: 3, body: func(c *mpi.Comm) error {
		const n = 2000
		rs := make([]mpi.Request, 0, 2*n*3)
		in := make([]int64, n*3)
		for r := range 3 {
			for i := range n {
				rs = append(rs, get(mpi.Isend(c, []int64{int64(c.Rank()*n + i)}, r, 0)))
			}
		}
		for i := range in {
			rs = append(rs, get(mpi.Irecv(c, in[i:i+1], i/n, 0)))
		}
		must(mpi.WaitAll(rs, nil))
		for i, v := range in {
			is("in order", v, int64(i))
		}
		return nil
	}},
	{file: "pt2pt/manylmt.c", ranks: 2, body: func(c *mpi.Comm) error {
		// Many large messages announced at the same time.
		const n, k = 20, 16_384
		in, rs := make([]int64, n*k), make([]mpi.Request, n)
		for i := range rs {
			if c.Rank() == 0 {
				rs[i] = get(mpi.Isend(c, given(i, k), 1, i))
			} else {
				j := n - 1 - i
				rs[i] = get(mpi.Irecv(c, in[j*k:(j+1)*k], 0, j))
			}
		}
		must(mpi.WaitAll(rs, nil))
		for i := 0; c.Rank() == 1 && i < n; i++ {
			are("data", in[i*k:(i+1)*k], given(i, k))
		}
		return nil
	}},
}

// ringExchange has every rank give bytes to the next one, in pieces.
func ringExchange(c *mpi.Comm, bytes, pieces int) {
	n := c.Size()
	var wg sync.WaitGroup
	errs := make([]error, pieces)
	for i := range pieces {
		wg.Go(func() {
			out, in := fill(byte(i), bytes), make([]byte, bytes)
			_, err := mpi.Sendrecv(c, out, (c.Rank()+1)%n, i, in, (c.Rank()+n-1)%n, i)
			if err == nil && bytes > 0 && in[bytes-1] != byte(i) {
				err = errors.New("another piece's data")
			}
			errs[i] = err
		})
	}
	wg.Wait()
	must(errs...)
}
