package mpi_test

import (
	"errors"

	"github.com/meshmpi/meshmpi/mpi"
)

var mpichIntercomm = []mpichCase{
	{file: "comm/dupic.c", ranks: 4, body: func(c *mpi.Comm) error {
		x := halves(c, 2)
		y := get(x.Dup())
		is("sizes", y.Size()+10*y.RemoteSize(), 22)
		is("compare", x.Compare(y), mpi.Congruent)
		r := get(mpi.Irecv(y, make([]int, 1), x.Rank(), 0))
		s := get(mpi.Isend(x, []int{1}, x.Rank(), 0))
		must(second(mpi.Recv(x, make([]int, 1), x.Rank(), 0)), done(s, nil))
		_, over, err := r.Test()
		is("received from the original", over, false)
		must(err, mpi.Barrier(x), mpi.Send(y, []int{2}, x.Rank(), 0), done(r, nil))
		return first(y.Free(), x.Free())
	}},
	{file: "comm/ic1.c", ranks: 4, body: func(c *mpi.Comm) error {
		x := halves(c, 2)
		is("between groups", x.Inter(), true)
		alive(x)
		return x.Free()
	}},
	{file: "comm/ic2.c", ranks: 7, body: func(c *mpi.Comm) error {
		// Two groups far apart of ranks that others do not belong to.
		color := mpi.Undefined
		switch c.Rank() {
		case 5, 6:
			color = 0
		case 1, 3:
			color = 1
		}
		d := get(c.Split(color, 0))
		if d == nil {
			return nil
		}
		x := get(d.InterCreate(1, c, []int{3, 6}[color], 12))
		alive(x)
		return first(x.Free(), d.Free())
	}},
	{file: "comm/iccreate.c", ranks: 5, body: func(c *mpi.Comm) error {
		x := halves(c, 3)
		y := get(x.Create(get(x.Group().Incl(x.Size() - 1))))
		is("in it", y != nil, x.Rank() == x.Size()-1)
		if y != nil {
			is("sizes", y.Size()+10*y.RemoteSize(), 11)
			alive(y)
			must(y.Free())
		}
		return x.Free()
	}},
	{file: "comm/icgroup.c", ranks: 5, body: func(c *mpi.Comm) error {
		x := halves(c, 2)
		mine, theirs := x.Group(), get(x.RemoteGroup())
		is("in common", mine.Intersection(theirs).Size(), 0)
		is("together", mine.Union(theirs).Compare(c.Group()) != mpi.Unequal, true)
		is("rank in the other", theirs.Rank(), mpi.Undefined)
		refused("the other side of an ordinary one", second(c.RemoteGroup()), mpi.ErrComm)
		return x.Free()
	}},
	{file: "comm/icm.c", ranks: 5, body: func(c *mpi.Comm) error {
		x := halves(c, 2)
		for _, high := range []bool{false, true} {
			m := get(x.Merge((c.Rank() >= 2) != high))
			r := c.Rank()
			if high {
				r = (c.Rank() + 3) % 5
			}
			is("rank", m.Rank(), r)
			alive(m)
			must(m.Free())
		}
		m := get(x.Merge(true)) // both: any order of the sides, but in order within
		all := make([]int, 5)
		must(mpi.Allgather(m, []int{c.Rank()}, all))
		if all[0] == 0 {
			are("order", all, seq(0, 5))
		} else {
			are("order", all, []int{2, 3, 4, 0, 1})
		}
		return first(m.Free(), x.Free())
	}},
	{file: "comm/icsplit.c", ranks: 7, body: func(c *mpi.Comm) error {
		x := halves(c, 3)
		y := get(x.Split(x.Rank()%2, -x.Rank()))
		mine, theirs := []int{2, 1}, []int{2, 2}
		if c.Rank() >= 3 {
			mine, theirs = theirs, mine
		}
		is("size", y.Size(), mine[x.Rank()%2])
		is("remote size", y.RemoteSize(), theirs[x.Rank()%2])
		alive(y)
		// A color of one side alone makes nothing.
		color := mpi.Undefined
		if c.Rank() < 3 {
			color = 4
		}
		if z := get(x.Split(color, 0)); z != nil {
			return errors.New("one side alone makes an intercommunicator")
		}
		return first(y.Free(), x.Free())
	}},
	{file: "comm/probe_intercomm.c", ranks: 4, body: func(c *mpi.Comm) error {
		x := halves(c, 2)
		if c.Rank() < 2 {
			must(mpi.Send(x, []byte("test"), x.Rank(), 3))
		} else {
			st := get(x.Probe(mpi.AnySource, mpi.AnyTag))
			is("source", st.Source, x.Rank())
			is("tag", st.Tag, 3)
			b := make([]byte, st.Bytes)
			must(second(mpi.Recv(x, b, st.Source, st.Tag)))
			is("text", string(b), "test")
		}
		return x.Free()
	}},
}
