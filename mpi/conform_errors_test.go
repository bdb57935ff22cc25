package mpi_test

import (
	"fmt"
	"math"
	"reflect"
	"strings"
	"testing"

	"github.com/meshmpi/meshmpi/mpi"
	"github.com/meshmpi/meshmpi/mpi/datatype"
	"github.com/meshmpi/meshmpi/mpi/mpitest"
)

// mistake is a wrong call and the class of what it should return.
type mistake struct {
	what string
	err  error
	want mpi.Class
}

// mistaken wants each mistake's class, and that it is said in one line.
func mistaken(tries ...mistake) error {
	for _, m := range tries {
		if mpi.ClassOf(m.err) != m.want {
			return fmt.Errorf("%s: %v, want class %v", m.what, m.err, m.want)
		}
		if m.err == nil {
			continue
		}
		if s := m.err.Error(); !strings.HasPrefix(s, "mpi: ") || strings.Contains(s, "\n") || len(s) > 300 {
			return fmt.Errorf("%s: the error is %q", m.what, s)
		}
	}
	return nil
}

// errOf is the error of a call that returns something else as well.
func errOf[V any](_ V, err error) error { return err }

// TestMistakes calls functions wrong on ordinary communicators. None of it sends
// anything: the operations that follow work.
func TestMistakes(t *testing.T) {
	mpitest.Run(t, 3, func(c *mpi.Comm) error {
		d, err := c.Dup()
		if err != nil {
			return err
		}
		for _, f := range []func(*mpi.Comm) []mistake{inMessages, inRoots, inSizes, inOperations, inCommunicators, inTopologies} {
			if err := first(mistaken(f(d)...), unrooted(d, 3)); err != nil {
				return err
			}
		}
		return d.Free()
	})
}

func inMessages(c *mpi.Comm) []mistake {
	b := make([]int, 2)
	var m mpi.Message
	vec, _ := datatype.Vector(3, 1, 2, datatype.Basic(datatype.Int64))
	bad := mpi.BufOf([]*int{nil})
	return []mistake{
		{"Ssend to 3", mpi.Ssend(c, b, 3, 0), mpi.ErrRank}, {"Rsend to -1", mpi.Rsend(c, b, -1, 0), mpi.ErrRank},
		{"Isend, tag -1", errOf(mpi.Isend(c, b, 0, -1)), mpi.ErrTag}, {"Issend to 3", errOf(mpi.Issend(c, b, 3, 0)), mpi.ErrRank},
		{"Irsend to 3", errOf(mpi.Irsend(c, b, 3, 0)), mpi.ErrRank}, {"Ibsend without a buffer", errOf(mpi.Ibsend(c, b, 0, 0)), mpi.ErrBuffer},
		{"Bsend to 3", mpi.Bsend(c, b, 3, 0), mpi.ErrRank}, {"Irecv from -3", errOf(mpi.Irecv(c, b, mpi.Root, 0)), mpi.ErrRank},
		{"Recv from any, tag -2", errOf(mpi.Recv(c, b, mpi.AnySource, -2)), mpi.ErrTag}, {"Probe of 3", errOf(c.Probe(3, 0)), mpi.ErrRank},
		{"Mprobe of 3", errOf(c.Mprobe(3, 0)), mpi.ErrRank}, {"Mrecv of nothing", errOf(mpi.Mrecv(&m, b)), mpi.ErrRequest},
		{"SendInit to 3", errOf(mpi.SendInit(c, b, 3, 0)), mpi.ErrRank}, {"RecvInit, tag -2", errOf(mpi.RecvInit(c, b, 0, -2)), mpi.ErrTag},
		{"BsendInit, tag -2", errOf(mpi.BsendInit(c, b, 0, -2)), mpi.ErrTag}, {"RsendInit to 3", errOf(mpi.RsendInit(c, b, 3, 0)), mpi.ErrRank},
		{"Sendrecv to 3", errOf(mpi.Sendrecv(c, b, 3, 0, b, 0, 0)), mpi.ErrRank}, {"Sendrecv from 3", errOf(mpi.Sendrecv(c, b, 0, 0, b, 3, 0)), mpi.ErrRank},
		{"SendBuf without a type", c.SendBuf(mpi.Buf{}, 0, 0), mpi.ErrType}, {"SendBuf of pointers", c.SendBuf(bad, 0, 0), mpi.ErrType},
		{"SendBuf beyond the memory", c.SendBuf(mpi.NewBuf(b, 1, vec), 0, 0), mpi.ErrBuffer}, {"RecvBuf of -1 items", errOf(c.RecvBuf(mpi.NewBuf(b, -1, vec), 0, 0)), mpi.ErrCount},
		{"RecvBuf before the memory", errOf(c.RecvBuf(mpi.NewBuf(b, 1, datatype.Basic(datatype.Int8)).At(-1), 0, 0)), mpi.ErrBuffer},
		{"SendBuf at an offset that overflows", c.SendBuf(mpi.NewBuf(b, 1, vec).At(math.MaxInt), 0, 0), mpi.ErrBuffer},
		{"AttachBuffer of nothing", c.World().AttachBuffer(0), mpi.ErrBuffer}, {"DetachBuffer of none", errOf(c.World().DetachBuffer()), mpi.ErrBuffer},
		{"statuses too few", mpi.WaitAll(make([]mpi.Request, 2), make([]mpi.Status, 1)), mpi.ErrArg},
		{"Unpack of too little", errOf(mpi.Unpack([]byte{1}, mpi.BufOf(b))), mpi.ErrTruncate}, {"UnpackExternal of too little", errOf(mpi.UnpackExternal([]byte{1}, mpi.BufOf(b))), mpi.ErrTruncate},
	}
}

func inRoots(c *mpi.Comm) []mistake {
	b := make([]int, 3)
	return []mistake{
		{"Ibcast", errOf(mpi.Ibcast(c, b, 3)), mpi.ErrRoot}, {"BcastInit", errOf(mpi.BcastInit(c, b, -1)), mpi.ErrRoot}, {"BcastBuf", c.BcastBuf(mpi.BufOf(b), 3), mpi.ErrRoot},
		{"Reduce", mpi.Reduce(c, b, b, mpi.Sum, mpi.ProcNull), mpi.ErrRoot}, {"Gather", mpi.Gather(c, b, b, mpi.Root), mpi.ErrRoot},
		{"Gatherv", mpi.Gatherv(c, b, b, mpi.Layout{}, 3), mpi.ErrRoot}, {"Scatter", mpi.Scatter(c, b, b, 3), mpi.ErrRoot},
		{"Scatterv", mpi.Scatterv(c, b, mpi.Layout{}, b, 3), mpi.ErrRoot}, {"GatherBuf", c.GatherBuf(mpi.BufOf(b), mpi.BufOf(b), 3), mpi.ErrRoot},
		{"Accept", errOf(c.Accept("", 3)), mpi.ErrRoot}, {"Connect", errOf(c.Connect("", -1)), mpi.ErrRoot}, {"Spawn", errOf(c.Spawn(3)), mpi.ErrRoot},
	}
}

func inSizes(c *mpi.Comm) []mistake {
	b, six := make([]int, 3), make([]int, 6)
	l := func(n ...int) mpi.Layout { return mpi.Layout{Counts: n} }
	apart := mpi.Layout{Counts: []int{1, 1, 1}, Displs: []int{0, 1}}
	bufs := []mpi.Buf{mpi.BufOf(b), mpi.BufOf(b)}
	own := make([][]mpi.Buf, 2) // blocks of which each rank's own one has two sizes
	for i := range own {
		for r := range c.Size() {
			if r == c.Rank() {
				own[i] = append(own[i], mpi.BufOf(b[:1+i]))
			} else {
				own[i] = append(own[i], mpi.BufOf(b[:0]))
			}
		}
	}
	one, more := []int{0, 0, 0}, []int{0, 0, 0}
	one[c.Rank()], more[c.Rank()] = 1, 2
	return []mistake{
		{"Reduce at the root", mpi.Reduce(c, b, six, mpi.Sum, c.Rank()), mpi.ErrCount}, {"Allreduce", mpi.Allreduce(c, six, b, mpi.Sum), mpi.ErrCount},
		{"Allreduce of an empty slice", mpi.Allreduce(c, []int{}, b, mpi.Sum), mpi.ErrCount}, {"Scan", mpi.Scan(c, b, six, mpi.Sum), mpi.ErrCount},
		{"ReduceScatterBlock", mpi.ReduceScatterBlock(c, six, b, mpi.Sum), mpi.ErrCount},
		{"ReduceScatterBlock in place", mpi.ReduceScatterBlock(c, nil, make([]int, 4), mpi.Sum), mpi.ErrCount},
		{"ReduceScatter of two counts", mpi.ReduceScatter(c, six, b, []int{3, 3}, mpi.Sum), mpi.ErrCount}, {"ReduceScatter of less", mpi.ReduceScatter(c, six, b, []int{1, 1, 1}, mpi.Sum), mpi.ErrCount},
		{"ReduceScatter below zero", mpi.ReduceScatter(c, six, b, []int{7, -1, 0}, mpi.Sum), mpi.ErrBuffer}, {"Gather at the root", mpi.Gather(c, b, b, c.Rank()), mpi.ErrCount},
		{"Scatter at the root", mpi.Scatter(c, b, b, c.Rank()), mpi.ErrCount}, {"Allgather", mpi.Allgather(c, b, six), mpi.ErrCount},
		{"Allgatherv", mpi.Allgatherv(c, b, six, l(2, 2, 2)), mpi.ErrCount}, {"displacements too few", mpi.Allgatherv(c, b[:1], b, apart), mpi.ErrCount},
		{"Alltoall of a part", mpi.Alltoall(c, b, make([]int, 4)), mpi.ErrCount}, {"Alltoall", mpi.Alltoall(c, b, six), mpi.ErrCount},
		{"Alltoallv, in", mpi.Alltoallv(c, b, l(1, 1, 1), b, l(1, 1)), mpi.ErrCount}, {"Alltoallv, out", mpi.Alltoallv(c, b, l(1, 1, 2), b, l(1, 1, 1)), mpi.ErrBuffer},
		{"Alltoallv, own", mpi.Alltoallv(c, b, l(more...), b, l(one...)), mpi.ErrTruncate}, {"Alltoallw, own", mpi.Alltoallw(c, own[1], own[0]), mpi.ErrTruncate},
		{"Alltoallw", mpi.Alltoallw(c, bufs, bufs), mpi.ErrCount}, {"AlltoallBuf", c.AlltoallBuf(mpi.BufOf(b), mpi.BufOf(six)), mpi.ErrCount},
		{"Scatterv beyond the end", mpi.Scatterv(c, b, l(2, 2, 2), b[:2], c.Rank()), mpi.ErrBuffer},
		{"displacements that overflow", mpi.Allgatherv(c, b[:1], b, mpi.Layout{Counts: []int{1, 1, 1}, Displs: []int{0, math.MaxInt, 1}}), mpi.ErrBuffer},
		{"AllreduceBuf of elements between others", c.AllreduceBuf(mpi.BufOf(b).At(1), mpi.BufOf(b), mpi.Sum), mpi.ErrBuffer}, {"AllreduceInit", errOf(mpi.AllreduceInit(c, six, b, mpi.Sum)), mpi.ErrCount},
		{"LocalReduce", mpi.LocalReduce(six, b, mpi.Sum), mpi.ErrCount},
	}
}

func inOperations(c *mpi.Comm) []mistake {
	b, f, z, on := make([]int, 1), make([]float32, 1), make([]complex128, 1), make([]bool, 1)
	user := mpi.NewOp(func(in, inout []int32) {}, true)
	loc := []mpi.Loc[float64]{{}}
	return []mistake{
		{"no operation", mpi.Reduce(c, b, b, mpi.Op{}, 0), mpi.ErrOp}, {"bits of floats", mpi.Allreduce(c, f, f, mpi.BOr), mpi.ErrOp}, {"order of complex numbers", mpi.Scan(c, z, z, mpi.Max), mpi.ErrOp},
		{"maximum of booleans", mpi.Allreduce(c, on, on, mpi.Max), mpi.ErrOp}, {"another type's", mpi.Allreduce(c, b, b, user), mpi.ErrOp},
		{"places of numbers", mpi.Allreduce(c, b, b, mpi.MaxLoc), mpi.ErrOp}, {"sum of places", c.AllreduceBuf(mpi.BufOf(loc), mpi.BufOf(loc), mpi.Sum), mpi.ErrOp},
		{"LocalReduce by none", mpi.LocalReduce(b, b, mpi.Op{}), mpi.ErrOp},
	}
}

func inCommunicators(c *mpi.Comm) []mistake {
	g, _ := c.Group().Excl(c.Rank())
	two, _ := c.Group().Incl((c.Rank()+1)%3, c.Rank())
	var none *mpi.Comm
	var k mpi.Key[int]
	set := mpi.NewKey(mpi.KeyOptions[int]{})
	freed := mpi.NewKey(mpi.KeyOptions[int]{})
	freed.Free()
	self := c.World().Self()
	return []mistake{
		{"Split by -1", errOf(c.Split(-1, 0)), mpi.ErrArg}, {"SplitBy of 9", errOf(c.SplitBy(9, 0)), mpi.ErrArg}, {"Create of nil", errOf(c.Create(nil)), mpi.ErrGroup},
		{"Create of others", errOf(self.Create(two)), mpi.ErrGroup}, {"CreateGroup of nil", errOf(c.CreateGroup(nil, 0)), mpi.ErrGroup},
		{"CreateGroup without us", errOf(c.CreateGroup(g, 0)), mpi.ErrGroup}, {"CreateGroup, tag -1", errOf(c.CreateGroup(two, -1)), mpi.ErrTag},
		{"CreateGroup of others", errOf(self.CreateGroup(two, 0)), mpi.ErrGroup}, {"Dup of nil", errOf(none.Dup()), mpi.ErrComm}, {"Free of nil", none.Free(), mpi.ErrComm},
		{"Send on nil", mpi.Send(none, []int{1}, 0, 0), mpi.ErrComm}, {"Bcast on nil", mpi.Bcast(none, []int{1}, 0), mpi.ErrComm}, {"Recv on nil", errOf(mpi.Recv(none, []int{1}, 0, 0)), mpi.ErrComm},
		{"Probe on nil", errOf(none.Probe(0, 0)), mpi.ErrComm}, {"a window of nil", errOf(mpi.AllocateWin[int](none, 1)), mpi.ErrComm}, {"a window below zero", errOf(mpi.AllocateWin[int](c, -1)), mpi.ErrArg},
		{"Free of the world", c.World().Comm().Free(), mpi.ErrComm}, {"Free of self", self.Free(), mpi.ErrComm}, {"Merge", errOf(c.Merge(true)), mpi.ErrComm},
		{"leader 3", errOf(c.InterCreate(3, c, 0, 0)), mpi.ErrRank}, {"a key not made", mpi.SetAttr(c, k, 1), mpi.ErrKeyval}, {"a freed key", mpi.SetAttr(c, freed, 1), mpi.ErrKeyval},
		{"DeleteAttr of nothing", mpi.DeleteAttr(c, set), mpi.ErrKeyval}, {"DeleteAttr of no key", mpi.DeleteAttr(c, k), mpi.ErrKeyval}, {"SetAttr on nil", mpi.SetAttr(none, set, 1), mpi.ErrComm},
		{"Revoke of nil", none.Revoke(), mpi.ErrComm}, {"Agree on nil", errOf(none.Agree(1)), mpi.ErrComm}, {"Shrink of nil", errOf(none.Shrink()), mpi.ErrComm}, {"Disconnect of nil", none.Disconnect(), mpi.ErrComm},
		{"a port that is none", errOf(self.Accept("x", 0)), mpi.ErrPort}, {"Connect to none", errOf(self.Connect("x", 0)), mpi.ErrPort}, {"ClosePort of none", c.World().ClosePort("mpi1 9 x"), mpi.ErrPort},
		{"LookupName of nothing", errOf(c.World().LookupName("nothing")), mpi.ErrName}, {"UnpublishName of nothing", c.World().UnpublishName("nothing"), mpi.ErrService},
	}
}

func inTopologies(c *mpi.Comm) []mistake {
	b := make([]int, 3)
	return []mistake{
		{"a grid of 4", errOf(c.CartCreate([]int{2, 2}, []bool{true, true}, false)), mpi.ErrTopology}, {"a grid of 0", errOf(c.CartCreate([]int{0}, []bool{true}, false)), mpi.ErrDims},
		{"a grid that overflows", errOf(c.CartCreate([]int{1 << 40, 1 << 40}, []bool{true, true}, false)), mpi.ErrTopology}, {"no periods", errOf(c.CartCreate([]int{3}, nil, false)), mpi.ErrArg},
		{"CartMap of -1 and -1", errOf(c.CartMap([]int{-1, -1}, []bool{true, true})), mpi.ErrDims}, {"CartRank", errOf(c.CartRank([]int{0})), mpi.ErrTopology},
		{"CartSub", errOf(c.CartSub(nil)), mpi.ErrTopology}, {"CartCoords", errOf(c.CartCoords(0)), mpi.ErrTopology}, {"GraphNeighbors", errOf(c.GraphNeighbors(0)), mpi.ErrTopology},
		{"a graph of 4", errOf(c.GraphCreate([]int{0, 0, 0, 0}, nil, false)), mpi.ErrTopology}, {"an index that falls", errOf(c.GraphCreate([]int{1, 0}, []int{0}, false)), mpi.ErrArg},
		{"an edge to 2", errOf(c.GraphCreate([]int{1, 1}, []int{2}, false)), mpi.ErrTopology}, {"a neighbour 3", errOf(c.DistGraphCreateAdjacent([]int{3}, nil, nil, nil, false)), mpi.ErrRank},
		{"weights too few", errOf(c.DistGraphCreateAdjacent([]int{1, 2}, []int{1}, nil, nil, false)), mpi.ErrArg}, {"degrees too few", errOf(c.DistGraphCreate([]int{1}, nil, nil, nil, false)), mpi.ErrArg},
		{"a degree of -1", errOf(c.DistGraphCreate([]int{1}, []int{-1}, nil, nil, false)), mpi.ErrArg}, {"destinations too few", errOf(c.DistGraphCreate([]int{1}, []int{2}, []int{1}, nil, false)), mpi.ErrArg},
		{"NeighborAlltoall", mpi.NeighborAlltoall(c, b, b), mpi.ErrTopology}, {"IneighborAllgatherv", errOf(mpi.IneighborAllgatherv(c, b, b, mpi.Layout{})), mpi.ErrTopology},
		{"NeighborAlltoallwInit", errOf(mpi.NeighborAlltoallwInit(c, nil, nil)), mpi.ErrTopology},
	}
}

// TestNoPanic: arguments of no use are refused, or mean nothing, without a panic.
func TestNoPanic(t *testing.T) {
	windows(t, 1, 1, func(c *mpi.Comm, w *mpi.Win[int64]) error {
		long, err := datatype.Hvector(math.MaxInt/16, 1, 0, datatype.Basic(datatype.Int64))
		if err != nil {
			return err
		}
		b := mpi.NewBuf(make([]int64, 1), 1, long)
		twice := mpi.NewBuf(make([]int64, 1), 64, long)
		var none *mpi.Comm
		var nobody *mpi.Group
		k := mpi.NewKey(mpi.KeyOptions[int]{})
		unset := func(_ int, ok bool) error { return same("set", ok, false) }
		size := func(g *mpi.Group, n int) error { return same("members", g.Size(), n) }
		g := c.Group()
		return first(
			calm("AllocateWin", func() error { return errOf(mpi.AllocateWin[int64](c, math.MaxInt/8)) }, mpi.ErrNoMem),
			calm("FetchAndOp", func() error { return w.FetchAndOp(1, nil, 0, 0, mpi.Sum) }, mpi.ErrBuffer),
			calm("CompareAndSwap", func() error { return w.CompareAndSwap(1, 2, nil, 0, 0) }, mpi.ErrBuffer),
			calm("SendBuf", func() error { return c.SendBuf(b, 0, 0) }, mpi.ErrCount),
			calm("SendBuf to ProcNull", func() error { return c.SendBuf(b, mpi.ProcNull, 0) }, mpi.ErrCount),
			calm("BsendBuf", func() error { return c.BsendBuf(b, mpi.ProcNull, 0) }, mpi.ErrCount),
			calm("RecvBuf", func() error { return errOf(c.RecvBuf(b, 0, 0)) }, mpi.ErrCount),
			calm("RecvBuf from ProcNull", func() error { return errOf(c.RecvBuf(b, mpi.ProcNull, 0)) }, mpi.ErrCount),
			calm("Pack", func() error { return errOf(mpi.Pack(nil, b)) }, mpi.ErrCount),
			calm("PackExternal", func() error { return errOf(mpi.PackExternal(nil, b)) }, mpi.ErrCount),
			calm("PackExternal of more", func() error { return errOf(mpi.PackExternal(nil, twice)) }, mpi.ErrType),
			calm("Unpack", func() error { return errOf(mpi.Unpack(nil, b)) }, mpi.ErrCount),
			calm("BcastBuf", func() error { return c.BcastBuf(b, 0) }, mpi.ErrCount),
			calm("GetAttr", func() error { return unset(mpi.GetAttr(none, k)) }, 0),
			calm("GetWinAttr", func() error { return unset(mpi.GetWinAttr((*mpi.Win[int])(nil), k)) }, 0),
			calm("Compare", func() error {
				return first(same("nil", c.Compare(nil), mpi.Unequal), same("of nil", none.Compare(c), mpi.Unequal))
			}, 0),
			calm("Group.Compare", func() error {
				return first(same("nil", g.Compare(nil), mpi.Unequal), same("of nil", nobody.Compare(&mpi.Group{}), mpi.Ident))
			}, 0),
			calm("Translate", func() error {
				out, err := g.Translate([]int{0}, nil)
				return first(err, want("ranks", out, []int{mpi.Undefined}))
			}, 0),
			calm("Translate of nil", func() error { return errOf(nobody.Translate([]int{0}, g)) }, mpi.ErrRank),
			calm("Union", func() error {
				return first(size(g.Union(nil), 1), size(nobody.Union(g), 1), size(nobody.Union(nil), 0))
			}, 0),
			calm("Intersection", func() error { return first(size(g.Intersection(nil), 0), size(nobody.Intersection(g), 0)) }, 0),
			calm("Difference", func() error { return first(size(g.Difference(nil), 1), size(nobody.Difference(g), 0)) }, 0),
			calm("Incl", func() error { return errOf(nobody.Incl(0)) }, mpi.ErrRank),
			calm("Excl", func() error { return errOf(nobody.Excl()) }, 0),
			calm("RangeIncl", func() error { return errOf(nobody.RangeIncl(mpi.Range{Stride: 1})) }, mpi.ErrRank),
			calm("Rank", func() error { return same("rank", nobody.Rank(), mpi.Undefined) }, 0),
		)
	})
}

// calm wants the class of a call's error, and no panic.
func calm(what string, call func() error, class mpi.Class) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("%s panics: %v", what, v)
		}
	}()
	return mistaken(mistake{what, call(), class})
}

// same wants one value.
func same[T comparable](what string, got, wanted T) error { return want(what, []T{got}, []T{wanted}) }

// TestPanickingOperation: an operation of the program that panics fails where it
// did, and the process lives.
func TestPanickingOperation(t *testing.T) {
	mpitest.Run(t, 2, func(c *mpi.Comm) error {
		bad := mpi.NewOp(func(in, inout []int) { panic("trouble") }, true)
		err := mpi.Reduce(c, []int{1}, make([]int, 1), bad, 0)
		if c.Rank() == 0 {
			err = mistaken(mistake{"a panic", err, mpi.ErrOp})
		}
		return first(err, unrooted(c, 3))
	})
}

// TestInterMistakes calls what intercommunicators do not have.
func TestInterMistakes(t *testing.T) {
	mpitest.Run(t, 4, func(c *mpi.Comm) error {
		s, err := join(c, 2, 3)
		if err != nil {
			return err
		}
		x, b := s.x, make([]int, 2)
		err = mistaken([]mistake{
			{"Scan", mpi.Scan(x, b, b, mpi.Sum), mpi.ErrComm}, {"Exscan", mpi.Exscan(x, b, b, mpi.Sum), mpi.ErrComm}, {"a grid", errOf(x.CartCreate([]int{2}, []bool{true}, false)), mpi.ErrComm},
			{"a graph", errOf(x.GraphCreate([]int{0}, nil, false)), mpi.ErrComm}, {"neighbours", errOf(x.DistGraphCreateAdjacent(nil, nil, nil, nil, false)), mpi.ErrComm},
			{"SplitBy", errOf(x.SplitBy(mpi.Host, 0)), mpi.ErrComm}, {"CreateGroup", errOf(x.CreateGroup(x.Group(), 0)), mpi.ErrComm}, {"a window", errOf(mpi.AllocateWin[int](x, 1)), mpi.ErrComm},
			{"Bcast from 2", mpi.Bcast(x, b, 2), mpi.ErrRoot}, {"Allreduce in place", mpi.Allreduce(x, nil, b, mpi.Sum), mpi.ErrCount}, {"Alltoall in place", mpi.Alltoall(x, nil, b), mpi.ErrBuffer},
			{"Alltoallw in place", mpi.Alltoallw(x, nil, []mpi.Buf{mpi.BufOf(b), mpi.BufOf(b), mpi.BufOf(b)}[:x.RemoteSize()]), mpi.ErrBuffer},
			{"Send to 2", mpi.Send(x, b, 2, 0), mpi.ErrRank}, {"Accept", errOf(x.Accept("", 0)), mpi.ErrComm}, {"Spawn", errOf(x.Spawn(0)), mpi.ErrComm}, {"Shrink", errOf(x.Shrink()), mpi.ErrUnsupported},
			{"InterCreate", errOf(x.InterCreate(0, c, 0, 0)), mpi.ErrComm},
		}...)
		return first(err, s.unrooted(blocking), x.Free())
	})
}

// TestAfter: everything is refused after Free and after Finalize, and no call
// panics on a communicator that is gone.
func TestAfter(t *testing.T) {
	mpitest.Run(t, 2, func(c *mpi.Comm) error {
		w := c.World()
		d, err1 := c.Dup()
		win, err2 := mpi.AllocateWin[int](c, 1)
		p, err3 := mpi.SendInit(c, []int{1}, 0, 0)
		all, err4 := mpi.BarrierInit(c)
		if err := first(err1, err2, err3, err4, d.Free()); err != nil {
			return err
		}
		if err := first(gone(d, mpi.ErrComm), win.Free(), mistaken(mistake{"a window freed", win.Put([]int{1}, 0, 0), mpi.ErrWin})); err != nil {
			return err
		}
		if err := w.Finalize(); err != nil {
			return err
		}
		err := mistaken([]mistake{
			{"Finalize again", w.Finalize(), mpi.ErrNotInitialized}, {"Start", p.Start(), mpi.ErrNotInitialized}, {"Start of a barrier", all.Start(), mpi.ErrNotInitialized},
			{"OpenPort", errOf(w.OpenPort()), mpi.ErrNotInitialized}, {"Self", mpi.Barrier(w.Self()), mpi.ErrNotInitialized},
			{"LookupName", errOf(w.LookupName("x")), mpi.ErrNotInitialized}, {"PublishName", w.PublishName("x", "y"), mpi.ErrNotInitialized},
		}...)
		if !w.Finalized() {
			return fmt.Errorf("it is not finalized")
		}
		return first(err, gone(c, mpi.ErrNotInitialized))
	})
}

// gone calls every method of a communicator that is gone which returns an
// error, by reflection: with zero arguments, or simple ones.
func gone(c *mpi.Comm, want mpi.Class) error {
	v := reflect.ValueOf(c)
	errorType := reflect.TypeFor[error]()
	except := map[string]bool{"RemoteGroup": true, "OpenFile": true}
	for i := range v.NumMethod() {
		m := v.Type().Method(i)
		f := v.Method(i)
		n := f.Type().NumOut()
		if n == 0 || f.Type().Out(n-1) != errorType || except[m.Name] {
			continue
		}
		args := make([]reflect.Value, 0, f.Type().NumIn())
		for k := range f.Type().NumIn() {
			t := f.Type().In(k)
			switch {
			case f.Type().IsVariadic() && k == f.Type().NumIn()-1:
			case t == reflect.TypeFor[mpi.Buf]():
				args = append(args, reflect.ValueOf(mpi.BufOf([]int{1})))
			case t == reflect.TypeFor[mpi.Op]():
				args = append(args, reflect.ValueOf(mpi.Sum))
			default:
				args = append(args, reflect.Zero(t))
			}
		}
		out := f.Call(args)
		err, _ := out[n-1].Interface().(error)
		if err := mistaken(mistake{m.Name, err, want}); err != nil {
			return err
		}
	}
	b := make([]int, 2)
	return mistaken([]mistake{
		{"Send", mpi.Send(c, b, 0, 0), want}, {"Recv", errOf(mpi.Recv(c, b, 0, 0)), want}, {"Isend", errOf(mpi.Isend(c, b, 0, 0)), want}, {"Irecv", errOf(mpi.Irecv(c, b, 0, 0)), want},
		{"Barrier", mpi.Barrier(c), want}, {"Iallreduce", errOf(mpi.Iallreduce(c, b, b, mpi.Sum)), want}, {"BcastInit", errOf(mpi.BcastInit(c, b, 0)), want},
		{"Alltoallw", mpi.Alltoallw(c, nil, nil), want}, {"NeighborAllgather", mpi.NeighborAllgather(c, b, b), want}, {"a window", errOf(mpi.AllocateWin[int](c, 1)), want},
		{"Bsend", mpi.Bsend(c, b, 0, 0), want}, {"Sendrecv", errOf(mpi.Sendrecv(c, b, 0, 0, b, 0, 0)), want}, {"RecvInit", errOf(mpi.RecvInit(c, b, 0, 0)), want},
	}...)
}
