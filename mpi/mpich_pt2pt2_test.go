package mpi_test

import (
	"errors"
	"fmt"
	"runtime"

	"github.com/meshmpi/meshmpi/mpi"
	"github.com/meshmpi/meshmpi/mpi/datatype"
)

var mpichPt2pt2 = []mpichCase{
	{file: "pt2pt/mprobe.c", ranks: 2, body: func(c *mpi.Comm) error {
		if c.Rank() == 0 {
			for tag := range 4 {
				must(mpi.Send(c, []int{tag, -tag}, 1, tag))
			}
			return nil
		}
		in := make([]int, 2)
		m := get(c.Mprobe(0, 1))
		is("count", mpi.Count[int](m.Status()), 2)
		_, found, err := c.Iprobe(0, 1)
		must(err)
		is("found twice", found, false)
		must(second(mpi.Mrecv(&m, in)))
		are("data", in, []int{1, -1})
		refused("receiving it twice", second(mpi.Mrecv(&m, in)), mpi.ErrRequest)
		for !found {
			m, found = get2(c.Improbe(mpi.AnySource, 3))
		}
		r := get(mpi.Imrecv(&m, in))
		is("tag", get(r.Wait()).Tag, 3)
		m = get(c.Mprobe(mpi.AnySource, mpi.AnyTag))
		is("the oldest", get(mpi.Mrecv(&m, in)).Tag, 0)
		m = get(c.Mprobe(mpi.ProcNull, 5))
		st := get(mpi.Mrecv(&m, in))
		is("from nobody", st.Source, mpi.ProcNull)
		is("bytes from nobody", st.Bytes, 0)
		return second(mpi.Recv(c, in, 0, 2))
	}},
	{file: "pt2pt/mprobe_self_free.c", ranks: 1, body: func(c *mpi.Comm) error {
		s := get(mpi.Issend(c, []int{3}, 0, 0))
		m := get(c.Mprobe(0, 0))
		r := get(mpi.Imrecv(&m, make([]int, 1)))
		must(r.Free())
		return done(s, nil)
	}},
	{file: "pt2pt/pingping.c", ranks: 2, body: func(c *mpi.Comm) error {
		for n := 1; n <= 1<<15; n *= 4 {
			if c.Rank() == 0 {
				for range 5 {
					must(mpi.Send(c, given(n, n), 1, 0))
				}
				continue
			}
			for range 5 {
				in := make([]int64, n)
				must(second(mpi.Recv(c, in, 0, 0)))
				are("data", in, given(n, n))
			}
		}
		return nil
	}},
	{file: "pt2pt/pipeline.c", ranks: 4, body: func(c *mpi.Comm) error {
		ringExchange(c, 70_000, 12)
		return nil
	}},
	{file: "pt2pt/huge_underflow.c", ranks: 2, body: func(c *mpi.Comm) error {
		in := make([]byte, 8<<20)
		if c.Rank() == 0 {
			return mpi.Send(c, []byte{9}, 1, 0)
		}
		is("bytes", get(mpi.Recv(c, in, 0, 0)).Bytes, 1)
		is("value", in[0]+in[1], 9)
		return nil
	}},
	{file: "pt2pt/huge_anysrc.c", ranks: 3, body: func(c *mpi.Comm) error {
		const n = 1 << 17
		if c.Rank() > 0 {
			return mpi.Ssend(c, given(c.Rank(), n), 0, 0)
		}
		in := make([]int64, n)
		for range 2 {
			st := get(mpi.Recv(c, in, mpi.AnySource, mpi.AnyTag))
			are("data", in, given(st.Source, n))
		}
		return nil
	}},
	{file: "pt2pt/huge_dupcomm.c", ranks: 2, body: func(c *mpi.Comm) error {
		const n = 1 << 16
		d := get(c.Dup())
		for _, x := range []*mpi.Comm{c, d} {
			in := make([]int64, n)
			must(second(mpi.Sendrecv(x, given(x.Rank(), n), 1-x.Rank(), 0, in, 1-x.Rank(), 0)))
			are("data", in, given(1-x.Rank(), n))
		}
		return d.Free()
	}},
	{file: "pt2pt/huge_ssend.c", ranks: 2, body: func(c *mpi.Comm) error {
		const n = 1 << 17
		if c.Rank() == 0 {
			return mpi.Ssend(c, given(0, n), 1, 0)
		}
		in := make([]int64, n)
		must(second(mpi.Recv(c, in, 0, 0)))
		are("data", in, given(0, n))
		return nil
	}},
	{file: "pt2pt/probe_unexp.c", ranks: 2, body: func(c *mpi.Comm) error {
		for n := 1; n <= 1<<18; n *= 8 {
			if c.Rank() == 0 {
				must(mpi.Send(c, make([]byte, n), 1, n))
				continue
			}
			st := get(c.Probe(mpi.AnySource, mpi.AnyTag))
			again, found := get2(c.Iprobe(0, n))
			is("found again", found, true)
			is("the same", again, st)
			is("bytes", st.Bytes, int64(n))
			must(second(mpi.Recv(c, make([]byte, n), 0, n)))
		}
		return nil
	}},
	{file: "pt2pt/probenull.c", ranks: 1, body: func(c *mpi.Comm) error {
		st := get(c.Probe(mpi.ProcNull, mpi.AnyTag))
		is("source", st.Source, mpi.ProcNull)
		is("tag", st.Tag, mpi.AnyTag)
		st, found := get2(c.Iprobe(mpi.ProcNull, 3))
		is("found", found, true)
		is("bytes", st.Bytes, 0)
		return nil
	}},
	{file: "pt2pt/recvnull.c", ranks: 1, body: func(c *mpi.Comm) error {
		in := []int{5}
		st := get(mpi.Recv(c, in, mpi.ProcNull, 0))
		is("source", st.Source, mpi.ProcNull)
		is("tag", st.Tag, mpi.AnyTag)
		is("bytes", st.Bytes, 0)
		is("value", in[0], 5)
		r := get(mpi.Irecv(c, in, mpi.ProcNull, 0))
		must(done(r, nil), mpi.Ssend(c, in, mpi.ProcNull, 0), done(mpi.Issend(c, in, mpi.ProcNull, 0)))
		p := get(mpi.RecvInit(c, in, mpi.ProcNull, 0))
		return first(p.Start(), second(p.Wait()), p.Free())
	}},
	{file: "pt2pt/recv_any.c", ranks: 2, body: func(c *mpi.Comm) error {
		for i := range 200 {
			if c.Rank() == 0 {
				must(mpi.Send(c, []int{i}, 1, i))
				continue
			}
			in := []int{-1}
			st := get(mpi.Recv(c, in, mpi.AnySource, mpi.AnyTag))
			is("order", fmt.Sprint(in[0], st.Source, st.Tag), fmt.Sprint(i, 0, i))
		}
		return nil
	}},
	{file: "pt2pt/rqfree.c", ranks: 2, body: func(c *mpi.Comm) error {
		if c.Rank() == 0 {
			r := get(mpi.Isend(c, []int{1}, 1, 0))
			must(r.Free())
			is("none", r.None(), true)
			refused("freeing it twice", r.Free(), mpi.ErrRequest)
			r = get(mpi.Isend(c, given(0, 50_000), 1, 1))
			must(r.Free())
			return mpi.Barrier(c)
		}
		in := make([]int64, 50_000)
		must(second(mpi.Recv(c, in, 0, 1)), second(mpi.Recv(c, make([]int, 1), 0, 0)))
		are("data", in, given(0, 50_000))
		return mpi.Barrier(c)
	}},
	{file: "pt2pt/rqstatus.c", ranks: 2, body: func(c *mpi.Comm) error {
		if c.Rank() == 0 {
			return mpi.Ssend(c, []int{3}, 1, 17)
		}
		r := get(mpi.Irecv(c, make([]int, 1), 0, mpi.AnyTag))
		<-r.Done()
		is("it stays until it is completed", r.None(), false)
		<-r.Done()
		st, over := get2(r.Test())
		is("over", over, true)
		is("tag", st.Tag, 17)
		emptyStatus(get(r.Wait()))
		return nil
	}},
	{file: "pt2pt/scancel.c", ranks: 2, body: func(c *mpi.Comm) error {
		// Sends are not taken back: the receiver gets what was cancelled.
		if c.Rank() == 0 {
			r := get(mpi.Isend(c, []int{8}, 1, 0))
			must(r.Cancel())
			is("cancelled", get(r.Wait()).Cancelled, false)
			return nil
		}
		in := []int{0}
		must(second(mpi.Recv(c, in, 0, 0)))
		is("value", in[0], 8)
		return nil
	}},
	{file: "pt2pt/pscancel.c", ranks: 2, body: func(c *mpi.Comm) error {
		p := get(mpi.RecvInit(c, make([]int, 1), 1-c.Rank(), 0))
		must(p.Start(), p.Cancel())
		is("cancelled", get(p.Wait()).Cancelled, true)
		must(mpi.Barrier(c), p.Start(), mpi.Send(c, []int{1}, 1-c.Rank(), 0))
		is("cancelled the second time", get(p.Wait()).Cancelled, false)
		return p.Free()
	}},
	{file: "pt2pt/sendall.c", ranks: 4, body: func(c *mpi.Comm) error {
		const n = 5000
		for r := range 4 {
			must(second(mpi.Sendrecv(c, given(c.Rank(), n), r, 1, make([]int64, n), r, 1)))
		}
		return mpi.Barrier(c)
	}},
	{file: "pt2pt/sendflood.c", ranks: 4, body: func(c *mpi.Comm) error {
		// All flood the first, which receives them from the last sender on.
		const n = 3000
		if c.Rank() > 0 {
			for i := range n {
				must(mpi.Send(c, []int{i}, 0, 0))
			}
			return mpi.Barrier(c)
		}
		for r := 3; r > 0; r-- {
			for i := range n {
				in := []int{-1}
				must(second(mpi.Recv(c, in, r, 0)))
				is("order", in[0], i)
			}
		}
		return mpi.Barrier(c)
	}},
	{file: "pt2pt/sendrecv1.c", ranks: 2, body: func(c *mpi.Comm) error {
		for _, t := range exchanged() {
			for count := 0; count <= 65; count += 13 {
				if c.Rank() == 0 {
					must(c.SendBuf(t.buf(count, true), 1, count))
					continue
				}
				b := t.buf(count, false)
				must(second(c.RecvBuf(b, 0, count)))
				must(want("packed", get(mpi.Pack(nil, b)), get(mpi.Pack(nil, t.buf(count, true)))))
			}
		}
		return nil
	}},
	{file: "pt2pt/sendrecv2.c", ranks: 2, body: func(c *mpi.Comm) error {
		// A column goes out, a row comes in.
		const n = 100
		column := get(datatype.Vector(n, 1, n, datatype.Basic(datatype.Int64)))
		if c.Rank() == 0 {
			m := given(0, n*n)
			return c.SendBuf(mpi.NewBuf(m[3:], 1, column), 1, 0)
		}
		row := make([]int64, n)
		must(second(mpi.Recv(c, row, 0, 0)))
		for i, m := range row {
			is("value", m, given(0, n*n)[i*n+3])
		}
		return nil
	}},
	{file: "pt2pt/sendrecv3.c", ranks: 2, body: func(c *mpi.Comm) error {
		// Heads of messages while the tail is on its way.
		const k = 10
		var rs []mpi.Request
		in := make([][]int64, k)
		for i := range k {
			n := 1 << (2 * (i % 8))
			in[i] = make([]int64, n)
			rs = append(rs, get(mpi.Irecv(c, in[i], 1-c.Rank(), i)))
		}
		must(mpi.Barrier(c))
		for i := range k {
			must(mpi.Send(c, given(c.Rank(), 1<<(2*(i%8))), 1-c.Rank(), i))
		}
		must(mpi.WaitAll(rs, nil))
		for i := range in {
			are("data", in[i], given(1-c.Rank(), len(in[i])))
		}
		return nil
	}},
	{file: "pt2pt/sendself.c", ranks: 1, body: func(c *mpi.Comm) error {
		for _, n := range []int{1, 1000, 100_000} {
			r := get(mpi.Irecv(c, make([]int64, n), 0, 0))
			must(mpi.Send(c, given(0, n), 0, 0), done(r, nil))
			r = get(mpi.Irecv(c, make([]int64, n), 0, 0))
			must(mpi.Ssend(c, given(0, n), 0, 0), done(r, nil))
			r = get(mpi.Irecv(c, make([]int64, n), 0, 0))
			must(mpi.Rsend(c, given(0, n), 0, 0), done(r, nil))
		}
		return nil
	}},
	{file: "pt2pt/isendrecv_replace.c", ranks: 3, body: func(c *mpi.Comm) error {
		for _, n := range []int{1, 50_000} {
			b := given(c.Rank(), n)
			must(second(mpi.SendrecvReplace(c, b, (c.Rank()+1)%3, 1, (c.Rank()+2)%3, 1)))
			are("data", b, given((c.Rank()+2)%3, n))
		}
		b := []int64{4}
		must(second(mpi.SendrecvReplace(c, b, mpi.ProcNull, 0, mpi.ProcNull, 0)))
		is("nobody's", b[0], 4)
		return nil
	}},
	{file: "pt2pt/waitany_null.c", ranks: 1, body: func(*mpi.Comm) error {
		for _, rs := range [][]mpi.Request{nil, make([]mpi.Request, 3)} {
			i, st, err := mpi.WaitAny(rs)
			must(err)
			is("index", i, -1)
			emptyStatus(st)
		}
		return nil
	}},
	{file: "pt2pt/waittestnull.c", ranks: 1, body: func(*mpi.Comm) error {
		rs := make([]mpi.Request, 2)
		must(mpi.WaitAll(rs, make([]mpi.Status, 2)))
		is("all", get(mpi.TestAll(rs, nil)), true)
		i, _, err := mpi.WaitSome(rs)
		must(err)
		is("some", len(i), 0)
		i, _, err = mpi.TestSome(rs)
		must(err)
		is("some without waiting", len(i), 0)
		any, over, st, err := mpi.TestAny(rs)
		must(err)
		is("any", any, -1)
		is("over", over, true)
		emptyStatus(st)
		refused("to cancel nothing", rs[0].Cancel(), mpi.ErrRequest)
		return nil
	}},
	{file: "pt2pt/scancel_unmatch.c", ranks: 2, body: func(c *mpi.Comm) error {
		// A receive that is withdrawn leaves the order of the others as it was.
		if c.Rank() == 0 {
			return first(mpi.Barrier(c), mpi.Send(c, []int{1}, 1, 0), mpi.Send(c, []int{2}, 1, 0))
		}
		in := []int{0, 0, 0}
		a, b, d := get(mpi.Irecv(c, in[:1], 0, 0)), get(mpi.Irecv(c, in[1:2], mpi.AnySource, mpi.AnyTag)), get(mpi.Irecv(c, in[2:], 0, mpi.AnyTag))
		must(a.Cancel(), done(a, nil), mpi.Barrier(c), done(b, nil), done(d, nil))
		are("received", in, []int{0, 1, 2})
		return nil
	}},
	{file: "pt2pt/big_count_status.c", ranks: 1, body: func(*mpi.Comm) error {
		st := mpi.Status{Bytes: 1 << 40}
		is("bytes", mpi.Count[byte](st), 1<<40)
		is("numbers", mpi.Count[float64](st), 1<<37)
		is("none of a broken size", mpi.Count[complex128](mpi.Status{Bytes: 1<<40 + 8}), mpi.Undefined)
		return nil
	}},
	{file: "pt2pt/dtype_send.c", ranks: 2, body: func(c *mpi.Comm) error {
		type particle struct {
			At   [3]float64
			Mass float32
			ID   int32
		}
		ps := []particle{{[3]float64{1, 2, 3}, 0.5, 7}, {[3]float64{4, 5, 6}, 1.5, 8}}
		if c.Rank() == 0 {
			return c.SsendBuf(mpi.BufOf(ps), 1, 0)
		}
		in := make([]particle, 2)
		must(second(c.RecvBuf(mpi.BufOf(in), 0, 0)))
		are("particles", in, ps)
		return nil
	}},
	{file: "pt2pt/issendselfcancel.c", ranks: 1, body: func(c *mpi.Comm) error {
		r := get(mpi.Issend(c, []int{1}, 0, 0))
		must(r.Cancel())
		for range 100 {
			if _, over := get2(r.Test()); over {
				return errors.New("a synchronous send ends without a receive")
			}
			runtime.Gosched()
		}
		return first(second(mpi.Recv(c, make([]int, 1), 0, 0)), done(r, nil))
	}},
}
