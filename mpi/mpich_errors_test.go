package mpi_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/meshmpi/meshmpi/mpi"
	"github.com/meshmpi/meshmpi/mpi/datatype"
	"github.com/meshmpi/meshmpi/mpi/mpitest"
)

// lengths is a case in which rank 1 of two gives a collective operation another
// length than rank 0, which is the root where there is one: who sees that more
// comes than fits says so, nobody hangs, and the communicator's other
// operations are as they were.
func lengths(file string, body func(c *mpi.Comm, n int) error, truncated ...int) mpichCase {
	return mpichCase{file: file, ranks: 2, body: func(c *mpi.Comm) error {
		d := get(c.Dup())
		err := body(d, 4+2*(1-c.Rank()))
		for _, r := range truncated {
			if r == c.Rank() {
				refused("more than fits", err, mpi.ErrTruncate)
				err = nil
			}
		}
		alive(c)
		return first(err, d.Free())
	}}
}

// noType is a case of a constructor that refuses no type at all.
func noType(file string, build func(t *mpi.Type) error) mpichCase {
	return local(file, func() {
		if err := build(nil); !errors.Is(err, datatype.ErrType) {
			endCase(fmt.Errorf("a type of none: %v", err))
		}
	})
}

// noGroup is a case about the empty group and ranks that are not there.
func noGroup(file string, body func(c *mpi.Comm, empty *mpi.Group)) mpichCase {
	return mpichCase{file: file, ranks: 3, body: func(c *mpi.Comm) error {
		body(c, &mpi.Group{})
		return nil
	}}
}

var mpichErrors = []mpichCase{
	lengths("errors/coll/bcastlength.c", func(c *mpi.Comm, n int) error { return mpi.Bcast(c, make([]int64, n), 0) }, 1),
	lengths("errors/coll/scatterlength.c", func(c *mpi.Comm, n int) error {
		return mpi.Scatter(c, make([]int64, 12), make([]int64, n), 0)
	}, 1),
	lengths("errors/coll/gatherlength.c", func(c *mpi.Comm, n int) error {
		return mpi.Gather(c, make([]int64, 10-n), make([]int64, 8), 0) // rank 1 gives 6 where 4 fit
	}, 0),
	{file: "errors/coll/allreducelength.c", ranks: 2, body: func(c *mpi.Comm) error {
		refused("send and receive differ", mpi.Allreduce(c, make([]int, 3), make([]int, 2), mpi.Sum), mpi.ErrCount)
		alive(c)
		return nil
	}},
	{file: "errors/coll/alltoalllength.c", ranks: 3, body: func(c *mpi.Comm) error {
		refused("no multiple of the ranks", mpi.Alltoall(c, make([]int, 7), make([]int, 7)), mpi.ErrCount)
		refused("too few counts", mpi.Alltoallv(c, make([]int, 3), mpi.Layout{Counts: []int{1, 2}}, make([]int, 3), mpi.Layout{Counts: fill(1, 3)}), mpi.ErrCount)
		alive(c)
		return nil
	}},
	{file: "errors/coll/allgatherlength.c", ranks: 3, body: func(c *mpi.Comm) error {
		refused("another length than all", mpi.Allgather(c, make([]int, 2), make([]int, 7)), mpi.ErrCount)
		refused("beyond the buffer", mpi.Allgatherv(c, []int{1}, make([]int, 3), mpi.Layout{Counts: fill(1, 3), Displs: []int{0, 1, 3}}), mpi.ErrBuffer)
		alive(c)
		return nil
	}},
	lengths("errors/coll/reducelength.c", func(c *mpi.Comm, n int) error {
		return mpi.Reduce(c, make([]int64, 10-n), make([]int64, 10-n), mpi.Sum, 0)
	}, 0),
	{file: "errors/coll/reduceop.c", ranks: 2, body: func(c *mpi.Comm) error {
		refused("no operation", mpi.Allreduce(c, nil, []int{1}, mpi.Op{}), mpi.ErrOp)
		refused("another type's", mpi.Allreduce(c, nil, []int{1}, composition), mpi.ErrOp)
		refused("replacing", mpi.Allreduce(c, nil, []int{1}, mpi.Replace), mpi.ErrOp)
		refused("bits of reals", mpi.Reduce(c, []float32{1}, make([]float32, 1), mpi.BOr, 0), mpi.ErrOp)
		return nil
	}},
	{file: "errors/coll/reduce_local.c", ranks: 1, body: func(*mpi.Comm) error {
		refused("another length", mpi.LocalReduce([]int{1}, []int{1, 2}, mpi.Sum), mpi.ErrCount)
		refused("bits of reals", mpi.LocalReduce([]float64{1}, []float64{2}, mpi.BAnd), mpi.ErrOp)
		return nil
	}},
	{file: "errors/coll/rerr.c", ranks: 2, body: func(c *mpi.Comm) error {
		for _, root := range []int{-1, 2, mpi.Root, mpi.AnySource, mpi.ProcNull} {
			refused("broadcast", mpi.Bcast(c, []int{1}, root), mpi.ErrRoot)
			refused("gather", mpi.Gather(c, []int{1}, make([]int, 2), root), mpi.ErrRoot)
			refused("reduce", mpi.Reduce(c, []int{1}, []int{0}, mpi.Sum, root), mpi.ErrRoot)
		}
		return nil
	}},
	{file: "errors/comm/ccreate1.c", ranks: 3, body: func(c *mpi.Comm) error {
		d := get(c.Split(c.Rank()/2, 0))
		refused("a group beyond the communicator", second(d.Create(c.Group())), mpi.ErrGroup)
		return d.Free()
	}},
	{file: "errors/comm/cfree.c", ranks: 2, body: func(c *mpi.Comm) error {
		refused("freeing all", c.Free(), mpi.ErrComm)
		refused("freeing self", c.World().Self().Free(), mpi.ErrComm)
		d := get(c.Dup())
		must(d.Free())
		refused("freeing twice", d.Free(), mpi.ErrComm)
		return nil
	}},
	{file: "errors/comm/comm_create_nullarg.c", ranks: 2, body: func(c *mpi.Comm) error {
		refused("no group", second(c.Create(nil)), mpi.ErrGroup)
		refused("no communicator", second((*mpi.Comm)(nil).Create(c.Group())), mpi.ErrComm)
		return nil
	}},
	{file: "errors/comm/comm_create_group_nullarg.c", ranks: 2, body: func(c *mpi.Comm) error {
		refused("no group", second(c.CreateGroup(nil, 0)), mpi.ErrGroup)
		refused("a group without the caller", second(c.CreateGroup(others(c), 0)), mpi.ErrGroup)
		refused("a negative tag", second(c.CreateGroup(c.Group(), -1)), mpi.ErrTag)
		return nil
	}},
	{file: "errors/comm/comm_split_nullarg.c", ranks: 2, body: func(c *mpi.Comm) error {
		refused("no communicator", second((*mpi.Comm)(nil).Split(0, 0)), mpi.ErrComm)
		refused("a negative color", second(c.Split(-1, 0)), mpi.ErrArg)
		return nil
	}},
	{file: "errors/comm/comm_split_type_nullarg.c", ranks: 2, body: func(c *mpi.Comm) error {
		refused("no communicator", second((*mpi.Comm)(nil).SplitBy(mpi.Host, 0)), mpi.ErrComm)
		refused("an unknown level", second(c.SplitBy(-1, 0)), mpi.ErrArg)
		return nil
	}},
	{file: "errors/comm/intercomm_create_nullarg.c", ranks: 2, body: func(c *mpi.Comm) error {
		self := c.World().Self()
		refused("a leader that is not there", second(self.InterCreate(1, c, 1-c.Rank(), 0)), mpi.ErrRank)
		refused("merging an ordinary one", second(c.Merge(false)), mpi.ErrComm)
		refused("no communicator", second((*mpi.Comm)(nil).InterCreate(0, c, 1, 0)), mpi.ErrComm)
		return nil
	}},
	{file: "errors/comm/manysplit.c", ranks: 4, body: func(c *mpi.Comm) error {
		for i := range 100 {
			d := get(c.Split(c.Rank()%(i%4+1), i))
			must(mpi.Barrier(d), d.Free())
		}
		return nil
	}},
	{file: "errors/comm/too_many_comms.c", ranks: 2, body: func(c *mpi.Comm) error {
		// There is an end to them, and it is said.
		var ds []*mpi.Comm
		for range 3000 {
			d, err := c.Dup()
			if err != nil {
				if mpi.ClassOf(err) == 0 {
					return err
				}
				break
			}
			ds = append(ds, d)
		}
		for _, d := range ds {
			must(d.Free())
		}
		d := get(c.Dup())
		alive(d)
		return d.Free()
	}},
	{file: "errors/comm/userdup.c", ranks: 2, body: func(c *mpi.Comm) error {
		d := get(c.Dup())
		must(d.Free())
		refused("a duplicate of what was freed", second(d.Dup()), mpi.ErrComm)
		refused("a message on it", mpi.Send(d, []int{1}, 0, 0), mpi.ErrComm)
		refused("an attribute of it", mpi.SetAttr(d, mpi.MATB, 1), mpi.ErrComm)
		return nil
	}},
	local("errors/datatype/getcnterr.c", func() {
		is("count of a cut message", mpi.Count[int32](mpi.Status{Bytes: 10}), mpi.Undefined)
		_, ok := datatype.Basic(datatype.Int32).Elements(10)
		is("whole elements", ok, false)
	}),
	noType("errors/datatype/type_contiguous_nullarg.c", func(t *mpi.Type) error { return second(datatype.Contiguous(2, t)) }),
	noType("errors/datatype/type_vector_nullarg.c", func(t *mpi.Type) error { return second(datatype.Vector(2, 1, 2, t)) }),
	{file: "errors/faults/pt2ptf1.c", ranks: 3, opts: []mpitest.Option{mpitest.FaultTolerant()}, body: func(c *mpi.Comm) error {
		if c.Rank() == 1 {
			return crash(c)
		}
		refused("from the dead", second(mpi.Recv(c, []int{0}, 1, 0)), mpi.ErrProcFailed)
		refused("to the dead", mpi.Send(c, []int{0}, 1, 0), mpi.ErrProcFailed)
		peer := 2 - c.Rank()
		return second(mpi.Sendrecv(c, []int{1}, peer, 5, []int{0}, peer, 5))
	}},
	{file: "errors/faults/collf1.c", ranks: 4, opts: []mpitest.Option{mpitest.FaultTolerant()}, body: func(c *mpi.Comm) error {
		if c.Rank() == 3 {
			return crash(c)
		}
		for err := error(nil); err == nil; {
			err = mpi.Allreduce(c, nil, []int{1}, mpi.Sum)
			if err != nil && !errors.Is(err, mpi.ErrProcFailed) && !errors.Is(err, mpi.ErrRevoked) {
				return err
			}
		}
		must(c.Revoke())
		d := get(c.Shrink())
		alive(d)
		return d.Free()
	}},
	{file: "errors/group/gerr.c", ranks: 4, body: func(c *mpi.Comm) error {
		g := c.Group()
		refused("a rank beyond", second(g.Incl(4)), mpi.ErrRank)
		refused("a negative rank", second(g.Excl(-1)), mpi.ErrRank)
		refused("a rank twice", second(g.Incl(1, 2, 1)), mpi.ErrRank)
		refused("a stride of 0", second(g.RangeIncl(mpi.Range{First: 0, Last: 2})), mpi.ErrArg)
		refused("ranges that overlap", second(g.RangeExcl(mpi.Range{First: 0, Last: 2, Stride: 1}, mpi.Range{First: 2, Last: 3, Stride: 1})), mpi.ErrRank)
		return nil
	}},
	noGroup("errors/group/group_difference_nullarg.c", func(c *mpi.Comm, empty *mpi.Group) {
		is("all without none", c.Group().Difference(empty).Compare(c.Group()), mpi.Ident)
		is("none without all", empty.Difference(c.Group()).Size(), 0)
	}),
	noGroup("errors/group/group_range_incl_nullarg.c", func(_ *mpi.Comm, empty *mpi.Group) {
		refused("a range of none", second(empty.RangeIncl(mpi.Range{First: 0, Last: 0, Stride: 1})), mpi.ErrRank)
		is("no range of none", get(empty.RangeIncl()).Size(), 0)
	}),
	noGroup("errors/group/group_translate_ranks_nullarg.c", func(c *mpi.Comm, empty *mpi.Group) {
		refused("a rank that is not there", second(c.Group().Translate([]int{3}, empty)), mpi.ErrRank)
		are("to none", get(c.Group().Translate([]int{0, 2}, empty)), []int{mpi.Undefined, mpi.Undefined})
	}),
	{file: "errors/pt2pt/proberank.c", ranks: 2, body: func(c *mpi.Comm) error {
		refused("of a rank beyond", second(c.Probe(2, 0)), mpi.ErrRank)
		refused("of a negative one", second(c.Mprobe(-7, 0)), mpi.ErrRank)
		_, _, err := c.Iprobe(mpi.AnySource, -5)
		refused("a tag that cannot be", err, mpi.ErrTag)
		return nil
	}},
	{file: "errors/pt2pt/truncmsg1.c", ranks: 2, body: func(c *mpi.Comm) error {
		for _, n := range []int{2, 30_000} {
			if c.Rank() == 0 {
				must(mpi.Send(c, given(1, n), 1, 0), mpi.Send(c, given(2, 1), 1, 0))
				continue
			}
			in := make([]int64, n-1)
			refused("a longer one", second(mpi.Recv(c, in, 0, 0)), mpi.ErrTruncate)
			are("its beginning", in, given(1, n)[:n-1])
			must(second(mpi.Recv(c, in[:1], 0, 0)))
			are("the next", in[:1], given(2, 1))
		}
		return nil
	}},
	{file: "errors/pt2pt/truncmsg2.c", ranks: 2, body: func(c *mpi.Comm) error {
		if c.Rank() == 0 {
			return first(mpi.Send(c, []int{1, 2, 3}, 1, 0), mpi.Barrier(c))
		}
		must(mpi.Barrier(c)) // it is there already
		r := get(mpi.Irecv(c, make([]int, 2), 0, 0))
		refused("a longer one", done(r, nil), mpi.ErrTruncate)
		return nil
	}},
	{file: "errors/pt2pt/truncmsg_mrecv.c", ranks: 2, body: func(c *mpi.Comm) error {
		if c.Rank() == 0 {
			return mpi.Send(c, []int{1, 2, 3}, 1, 0)
		}
		m := get(c.Mprobe(0, 0))
		refused("a longer one", second(mpi.Mrecv(&m, make([]int, 1))), mpi.ErrTruncate)
		return nil
	}},
	{file: "errors/pt2pt/errinstatwa.c", ranks: 2, body: func(c *mpi.Comm) error {
		if c.Rank() == 0 {
			return first(mpi.Send(c, make([]int, 10), 1, 0), mpi.Send(c, make([]int, 4), 1, 1))
		}
		rs := []mpi.Request{get(mpi.Irecv(c, make([]int, 5), 0, 0)), get(mpi.Irecv(c, make([]int, 5), 0, 1))}
		st := make([]mpi.Status, 2)
		err := mpi.WaitAll(rs, st)
		refused("one of two", err, mpi.ErrTruncate)
		is("the other is good", mpi.Count[int](st[1]), 4)
		is("both are complete", rs[0].None() && rs[1].None(), true)
		return nil
	}},
	winCase("errors/rma/winerr.c", 2, 5, func(c *mpi.Comm, w *mpi.Win[int64]) {
		v := make([]int64, 3)
		must(w.Fence())
		refused("beyond the window", w.Put(v, 0, 3), mpi.ErrRMARange)
		refused("before it", w.Get(v, 0, -1), mpi.ErrRMARange)
		refused("a rank beyond", w.Put(v, 2, 0), mpi.ErrRank)
		refused("an operation of the user", w.Accumulate(v, 0, 0, mpi.NewOp(func(_, _ []int64) {}, true)), mpi.ErrOp)
		must(w.FenceEnd())
		refused("a negative length", second(mpi.AllocateWin[int](c, -1)), mpi.ErrArg)
	}),
	winCase("errors/rma/win_sync_op.c", 2, 5, func(c *mpi.Comm, w *mpi.Win[int64]) {
		refused("no epoch", w.Put([]int64{1}, 0, 0), mpi.ErrRMASync)
		must(w.Lock(mpi.LockShared, 0))
		refused("another target's epoch", w.Put([]int64{1}, 1, 0), mpi.ErrRMASync)
		must(w.Unlock(0))
	}),
	winCase("errors/rma/win_sync_unlock.c", 2, 5, func(c *mpi.Comm, w *mpi.Win[int64]) {
		refused("no lock", w.Unlock(1), mpi.ErrRMASync)
		refused("no locks", w.UnlockAll(), mpi.ErrRMASync)
		must(w.LockAll())
		refused("one of all", w.Unlock(1), mpi.ErrRMASync)
		must(w.UnlockAll())
	}),
	winCase("errors/rma/win_sync_nested.c", 2, 5, func(c *mpi.Comm, w *mpi.Win[int64]) {
		must(w.Lock(mpi.LockShared, 1))
		refused("a lock twice", w.Lock(mpi.LockExclusive, 1), mpi.ErrRMASync)
		refused("all beside one", w.LockAll(), mpi.ErrRMASync)
		must(w.Unlock(1))
		refused("an unknown kind", w.Lock(7, 1), mpi.ErrLockType)
	}),
	winCase("errors/rma/win_sync_complete.c", 2, 5, func(c *mpi.Comm, w *mpi.Win[int64]) {
		refused("Complete without Start", w.Complete(), mpi.ErrRMASync)
		refused("Wait without Post", w.Wait(), mpi.ErrRMASync)
		_, err := w.Test()
		refused("Test without Post", err, mpi.ErrRMASync)
	}),
	winCase("errors/rma/win_sync_lock_fence.c", 2, 5, func(c *mpi.Comm, w *mpi.Win[int64]) {
		must(w.Fence(), w.Put([]int64{1}, 0, 0))
		refused("a lock in a fence's epoch", w.Lock(mpi.LockShared, 0), mpi.ErrRMASync)
		must(w.FenceEnd(), w.Lock(mpi.LockShared, 0), w.Unlock(0))
	}),
	winCase("errors/rma/win_sync_free_pt.c", 2, 5, func(c *mpi.Comm, w *mpi.Win[int64]) {
		v := get(mpi.AllocateWin[int64](c, 1))
		must(v.Lock(mpi.LockShared, c.Rank()))
		refused("freeing with an epoch open", v.Free(), mpi.ErrRMASync)
		must(v.Unlock(c.Rank()), v.Free())
		refused("freeing twice", v.Free(), mpi.ErrWin)
	}),
	{file: "errors/session/sessioninit.c", ranks: 1, body: func(c *mpi.Comm) error {
		_, err := mpi.NewSession(context.Background(), nil)
		refused("a session", err, mpi.ErrUnsupported)
		return nil
	}},
	{file: "errors/io/openerr.c", ranks: 1, body: func(c *mpi.Comm) error {
		refused("a file", second(c.OpenFile("nothing", 0, nil)), mpi.ErrUnsupported)
		return nil
	}},
	{file: "errors/spawn/badport.c", ranks: 2, body: func(c *mpi.Comm) error {
		refused("connecting to no port", second(c.World().Self().Connect("this is none", 0)), mpi.ErrPort)
		refused("accepting at none", second(c.World().Self().Accept("nor this", 0)), mpi.ErrPort)
		refused("closing none", c.World().ClosePort("nor that"), mpi.ErrPort)
		return nil
	}},
	{file: "errors/spawn/lookup_name.c", ranks: 1, body: func(c *mpi.Comm) error {
		refused("a name nobody has published", second(c.World().LookupName("unknown")), mpi.ErrName)
		return nil
	}},
	{file: "errors/spawn/unpub.c", ranks: 1, body: func(c *mpi.Comm) error {
		refused("a name nobody has published", c.World().UnpublishName("unknown"), mpi.ErrService)
		return nil
	}},
	{file: "errors/topo/cartsmall.c", ranks: 3, body: func(c *mpi.Comm) error {
		refused("more places than ranks", second(c.CartCreate([]int{2, 2}, []bool{false, false}, false)), mpi.ErrTopology)
		refused("a negative dimension", second(c.CartCreate([]int{-1}, []bool{false}, false)), mpi.ErrDims)
		refused("too few periods", second(c.CartCreate([]int{1, 2}, []bool{false}, false)), mpi.ErrArg)
		refused("dims that do not divide", mpi.DimsCreate(7, []int{2, 0}), mpi.ErrDims)
		return nil
	}},
}
