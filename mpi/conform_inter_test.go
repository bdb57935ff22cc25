package mpi_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/meshmpi/meshmpi/mpi"
	"github.com/meshmpi/meshmpi/mpi/datatype"
	"github.com/meshmpi/meshmpi/mpi/mpitest"
)

// form is one of the three ways to do a collective operation.
type form int

const (
	blocking form = iota
	nonblocking
	persistent
)

var forms = []form{blocking, nonblocking, persistent}

func (f form) String() string { return [...]string{"blocking", "nonblocking", "persistent"}[f] }

// do does an operation in that form.
func (f form) do(now func() error, begin func() (mpi.Request, error), set func() (*mpi.Persistent, error)) error {
	switch f {
	case blocking:
		return now()
	case nonblocking:
		return done(begin())
	}
	return thrice(set())
}

// sides is an intercommunicator of a job: its ranks, the first of each side and
// how many it has.
type sides struct {
	c        *mpi.Comm // all
	x        *mpi.Comm
	low      bool // whether the caller is on the first side
	near, lo int  // first rank of our side and of the other
	ours, n  int  // sizes
	count    int
}

// join makes the first a ranks of c one side and the rest the other.
func join(c *mpi.Comm, a, count int) (sides, error) {
	s := sides{c: c, low: c.Rank() < a, near: 0, lo: a, ours: a, n: c.Size() - a, count: count}
	color := 0
	if !s.low {
		s.near, s.lo, s.ours, s.n, color = a, 0, c.Size()-a, a, 1
	}
	local, err := c.Split(color, 0)
	if err != nil {
		return s, err
	}
	// The leaders are the last ranks of their sides.
	s.x, err = local.InterCreate(s.ours-1, c, s.lo+s.n-1, 4)
	return s, first(err, local.Free())
}

// TestInterForms does every collective operation between two groups of all sizes,
// in all forms, from roots on both sides.
func TestInterForms(t *testing.T) {
	for _, size := range [][2]int{{1, 1}, {1, 3}, {4, 2}, {3, 5}} {
		for name, place := range places {
			t.Run(fmt.Sprint(size, " ", name), func(t *testing.T) {
				mpitest.Run(t, size[0]+size[1], func(c *mpi.Comm) error {
					for _, count := range []int{0, 1, 1000} {
						s, err := join(c, size[0], count)
						if err != nil {
							return err
						}
						for _, f := range forms {
							if err := first(s.unrooted(f), s.blocks(f), s.rooted(f, true), s.rooted(f, false)); err != nil {
								return fmt.Errorf("count %d, %v: %w", count, f, err)
							}
						}
						if err := s.x.Free(); err != nil {
							return err
						}
					}
					return nil
				}, place)
			})
		}
	}
}

// all is what the ranks of the other side give.
func (s *sides) all() (v []int64) {
	for r := range s.n {
		v = append(v, given(s.lo+r, s.count)...)
	}
	return v
}

func (s *sides) unrooted(f form) error {
	x, n, me := s.x, s.count, s.c.Rank()
	mine, sum := given(me, n), make([]int64, n)
	got := make([]int64, n*s.n)
	l := mpi.Layout{Counts: make([]int, s.n), Displs: make([]int, s.n)}
	gapped, apart := make([]int64, (n+1)*s.n), make([]int64, (n+1)*s.n)
	for r := range s.n {
		l.Counts[r], l.Displs[r] = n, (n+1)*r
		copy(gapped[l.Displs[r]:], given(s.lo+r, n))
	}
	return first(
		f.do(func() error { return mpi.Barrier(x) }, func() (mpi.Request, error) { return mpi.Ibarrier(x) }, func() (*mpi.Persistent, error) { return mpi.BarrierInit(x) }),
		f.do(func() error { return mpi.Allreduce(x, mine, sum, mpi.Sum) }, func() (mpi.Request, error) { return mpi.Iallreduce(x, mine, sum, mpi.Sum) },
			func() (*mpi.Persistent, error) { return mpi.AllreduceInit(x, mine, sum, mpi.Sum) }),
		want("allreduce", sum, sumOf(s.lo, s.lo+s.n, n)),
		f.do(func() error { return mpi.Allgather(x, mine, got) }, func() (mpi.Request, error) { return mpi.Iallgather(x, mine, got) },
			func() (*mpi.Persistent, error) { return mpi.AllgatherInit(x, mine, got) }),
		want("allgather", got, s.all()),
		f.do(func() error { return mpi.Allgatherv(x, mine, apart, l) }, func() (mpi.Request, error) { return mpi.Iallgatherv(x, mine, apart, l) },
			func() (*mpi.Persistent, error) { return mpi.AllgathervInit(x, mine, apart, l) }),
		want("allgatherv", apart, gapped),
	)
}

// blocks are the operations in which each rank gets a block of its own.
func (s *sides) blocks(f form) error {
	x, n, at := s.x, s.count, s.x.Rank()
	var out, in []int64
	outs, ins := make([]mpi.Buf, s.n), make([]mpi.Buf, s.n)
	got, gotv, gotw := make([]int64, n*s.n), make([]int64, n*s.n), make([]int64, n*s.n)
	l := mpi.Layout{}
	for r := range s.n {
		out = append(out, part(s.c.Rank(), r*n, n)...)
		in = append(in, part(s.lo+r, at*n, n)...)
		l.Counts = append(l.Counts, n)
	}
	for r := range s.n {
		outs[r], ins[r] = mpi.BufOf(out[r*n:(r+1)*n]), mpi.BufOf(gotw[r*n:(r+1)*n])
	}
	// The other side's sum, of s.ours blocks, is scattered over our side. Both
	// sides give equally many elements.
	total := n * s.ours * s.n
	whole := part(s.c.Rank(), 0, total)
	sum, block := make([]int64, total), make([]int64, n*s.n)
	for r := range s.n {
		for i, v := range part(s.lo+r, 0, total) {
			sum[i] += v
		}
	}
	counts, before := make([]int, s.ours), 0
	for r := range counts { // rank 0 gets one less, the last one more
		counts[r] = n * s.n
	}
	if n > 0 && s.ours > 1 {
		counts[0]--
		counts[s.ours-1]++
	}
	for _, k := range counts[:at] {
		before += k
	}
	uneven := make([]int64, counts[at])
	return first(
		f.do(func() error { return mpi.Alltoall(x, out, got) }, func() (mpi.Request, error) { return mpi.Ialltoall(x, out, got) },
			func() (*mpi.Persistent, error) { return mpi.AlltoallInit(x, out, got) }),
		want("alltoall", got, in),
		f.do(func() error { return mpi.Alltoallv(x, out, l, gotv, l) }, func() (mpi.Request, error) { return mpi.Ialltoallv(x, out, l, gotv, l) },
			func() (*mpi.Persistent, error) { return mpi.AlltoallvInit(x, out, l, gotv, l) }),
		want("alltoallv", gotv, in),
		f.do(func() error { return mpi.Alltoallw(x, outs, ins) }, func() (mpi.Request, error) { return mpi.Ialltoallw(x, outs, ins) },
			func() (*mpi.Persistent, error) { return mpi.AlltoallwInit(x, outs, ins) }),
		want("alltoallw", gotw, in),
		f.do(func() error { return mpi.ReduceScatterBlock(x, whole, block, mpi.Sum) },
			func() (mpi.Request, error) { return mpi.IreduceScatterBlock(x, whole, block, mpi.Sum) },
			func() (*mpi.Persistent, error) { return mpi.ReduceScatterBlockInit(x, whole, block, mpi.Sum) }),
		want("reduce_scatter_block", block, sum[at*n*s.n:(at+1)*n*s.n]),
		f.do(func() error { return mpi.ReduceScatter(x, whole, uneven, counts, mpi.Sum) },
			func() (mpi.Request, error) { return mpi.IreduceScatter(x, whole, uneven, counts, mpi.Sum) },
			func() (*mpi.Persistent, error) { return mpi.ReduceScatterInit(x, whole, uneven, counts, mpi.Sum) }),
		want("reduce_scatter", uneven, sum[before:before+counts[at]]),
	)
}

// rooted does what has a root on one side, at each of its ranks. The other side
// gives, or gets.
func (s *sides) rooted(f form, low bool) error {
	size := s.n
	if s.low == low {
		size = s.ours
	}
	for r := range size {
		root := r
		if s.low == low {
			if root = mpi.ProcNull; s.x.Rank() == r {
				root = mpi.Root
			}
		}
		if err := s.atRoot(f, root, r); err != nil {
			return fmt.Errorf("root %d: %w", r, err)
		}
	}
	return nil
}

func (s *sides) atRoot(f form, root, r int) error {
	x, n := s.x, s.count
	buf, sum, mine := make([]int64, n), make([]int64, n), given(s.c.Rank(), n)
	if root == mpi.Root {
		copy(buf, mine)
	}
	var all, apart, gathered, blk []int64
	var l mpi.Layout
	if root == mpi.Root {
		all, apart, gathered = s.all(), make([]int64, n*s.n), make([]int64, n*s.n)
		for range s.n {
			l.Counts = append(l.Counts, n)
		}
	}
	if root >= 0 {
		blk = make([]int64, n)
	}
	blkv := append([]int64(nil), blk...)
	err := first(
		f.do(func() error { return mpi.Bcast(x, buf, root) }, func() (mpi.Request, error) { return mpi.Ibcast(x, buf, root) },
			func() (*mpi.Persistent, error) { return mpi.BcastInit(x, buf, root) }),
		f.do(func() error { return mpi.Reduce(x, mine, sum, mpi.Sum, root) }, func() (mpi.Request, error) { return mpi.Ireduce(x, mine, sum, mpi.Sum, root) },
			func() (*mpi.Persistent, error) { return mpi.ReduceInit(x, mine, sum, mpi.Sum, root) }),
		f.do(func() error { return mpi.Gather(x, mine, gathered, root) }, func() (mpi.Request, error) { return mpi.Igather(x, mine, gathered, root) },
			func() (*mpi.Persistent, error) { return mpi.GatherInit(x, mine, gathered, root) }),
		f.do(func() error { return mpi.Gatherv(x, mine, apart, l, root) }, func() (mpi.Request, error) { return mpi.Igatherv(x, mine, apart, l, root) },
			func() (*mpi.Persistent, error) { return mpi.GathervInit(x, mine, apart, l, root) }),
		f.do(func() error { return mpi.Scatter(x, all, blk, root) }, func() (mpi.Request, error) { return mpi.Iscatter(x, all, blk, root) },
			func() (*mpi.Persistent, error) { return mpi.ScatterInit(x, all, blk, root) }),
		f.do(func() error { return mpi.Scatterv(x, all, l, blkv, root) }, func() (mpi.Request, error) { return mpi.Iscatterv(x, all, l, blkv, root) },
			func() (*mpi.Persistent, error) { return mpi.ScattervInit(x, all, l, blkv, root) }),
	)
	switch {
	case err != nil:
		return err
	case root == mpi.Root:
		return first(want("reduce", sum, sumOf(s.lo, s.lo+s.n, n)), want("gather", gathered, all), want("gatherv", apart, all))
	case root >= 0:
		return first(want("bcast", buf, given(s.lo+r, n)), want("scatter", blk, mine), want("scatterv", blkv, mine))
	}
	return first(want("bcast on the root's side", buf, make([]int64, n)), want("reduce there", sum, make([]int64, n)))
}

// TestInterSplit: Dup, Split and Create between two groups, and Merge in all orders.
func TestInterSplit(t *testing.T) {
	mpitest.Run(t, 7, func(c *mpi.Comm) error {
		s, err := join(c, 3, 2)
		if err != nil {
			return err
		}
		d, err := s.x.Dup()
		if err != nil {
			return err
		}
		if d.Compare(s.x) != mpi.Congruent || s.x.Compare(c) != mpi.Unequal {
			return fmt.Errorf("compared: %v, %v", d.Compare(s.x), s.x.Compare(c))
		}
		same := s
		same.x = d
		if err := first(same.unrooted(blocking), d.Free()); err != nil {
			return err
		}
		// Colors: ranks 0 and 2 of the first side with 1 and 3 of the second; the
		// first side's rank 1 has a color that nobody else has.
		color, key := s.x.Rank()%2, -s.x.Rank()
		if !s.low {
			color = 1 - color
			if color == 1 {
				color = mpi.Undefined
			}
		}
		p, err := s.x.Split(color, key)
		if err != nil {
			return err
		}
		if color != 0 {
			if p != nil {
				return fmt.Errorf("color %d: a communicator with nobody on the other side", color)
			}
		} else {
			got := make([]int, 2)
			if err := first(mpi.Allgather(p, []int{c.Rank()}, got), want("split", got, map[bool][]int{true: {6, 4}, false: {2, 0}}[s.low]), p.Free()); err != nil {
				return err
			}
		}
		g, err := s.x.Group().Incl(1, 0)
		if err != nil {
			return err
		}
		if p, err = s.x.Create(g); err != nil {
			return err
		}
		if s.x.Rank() < 2 {
			got := make([]int, 2)
			if err := first(mpi.Allgather(p, []int{c.Rank()}, got), want("create", got, map[bool][]int{true: {4, 3}, false: {1, 0}}[s.low]), p.Free()); err != nil {
				return err
			}
		} else if p != nil {
			return fmt.Errorf("rank %d is in a group of others", c.Rank())
		}
		for _, high := range [][2]bool{{false, true}, {true, false}, {false, false}, {true, true}} {
			mine := high[1]
			if s.low {
				mine = high[0]
			}
			m, err := s.x.Merge(mine)
			if err != nil {
				return err
			}
			all := make([]int, 7)
			if err := first(unrooted(m, 2), mpi.Allgather(m, []int{c.Rank()}, all), m.Free()); err != nil {
				return err
			}
			low, up := []int{0, 1, 2, 3, 4, 5, 6}, []int{3, 4, 5, 6, 0, 1, 2}
			if high[0] && !high[1] || high[0] == high[1] && all[0] == 3 {
				low = up
			}
			if err := want(fmt.Sprint("merged ", high), all, low); err != nil {
				return err
			}
		}
		return s.x.Free()
	})
}

// TestMergeOfJobs: jobs that were started by each other merge in one order, also
// when both sides ask for the same.
func TestMergeOfJobs(t *testing.T) {
	body := func(x *mpi.Comm) error {
		for _, high := range []bool{false, true} {
			m, err := x.Merge(high)
			if err != nil {
				return err
			}
			ranks := make([]int, 5)
			if err := first(mpi.Allgather(m, []int{m.Rank()}, ranks), want("ranks", ranks, []int{0, 1, 2, 3, 4}), unrooted(m, 2), m.Free()); err != nil {
				return err
			}
		}
		return x.Disconnect()
	}
	mpitest.Run(t, 2, func(c *mpi.Comm) error {
		x, err := c.Spawn(0, mpi.Program{N: 3, Path: "kid"})
		if err != nil {
			return err
		}
		return body(x)
	}, mpitest.Program("kid", func(c *mpi.Comm) error { return body(c.World().Parent()) }))
}

// TestInterBufs: what comes from the other side's root is where it belongs at every rank,
// the root's own number among them; buffers of ranks that have no part do not count.
func TestInterBufs(t *testing.T) {
	vec, err := datatype.Vector(3, 1, 2, datatype.Basic(datatype.Int32))
	if err != nil {
		t.Fatal(err)
	}
	mpitest.Run(t, 5, func(c *mpi.Comm) error {
		s, err := join(c, 2, 1)
		if err != nil {
			return err
		}
		for from := range 2 { // root is a rank of the first two
			root, full, empty := from, []int32{1, 0, 2, 0, 3, 0}, make([]int32, 6)
			b := empty
			if c.Rank() < 2 {
				if root = mpi.ProcNull; c.Rank() == from {
					root, b = mpi.Root, full
				}
			}
			sum := []mpi.Loc[int64]{{}}
			var in, out mpi.Buf
			switch {
			case root == mpi.Root:
				out = mpi.BufOf(sum)
			case root >= 0:
				in = mpi.BufOf([]mpi.Loc[int64]{{int64(c.Rank()), int64(c.Rank())}})
			}
			err := first(s.x.BcastBuf(mpi.NewBuf(b, 1, vec), root), s.x.ReduceBuf(in, out, mpi.MaxLoc, root))
			switch {
			case root == mpi.Root:
				err = first(err, want("maximum", []int64{sum[0].Value, int64(sum[0].Index)}, []int64{4, 4}))
			case root >= 0:
				err = first(err, want("bcast", b, full))
			}
			if err != nil {
				return err
			}
		}
		both, err := s.x.Merge(false)
		if err != nil {
			return err
		}
		if _, err := s.x.Create(both.Group()); mpi.ClassOf(err) != mpi.ErrGroup {
			return fmt.Errorf("a group of both sides: %v", err)
		}
		return first(both.Free(), s.x.Free())
	})
}

// MPI 4.1 §6.8: in an intercommunicator the number of items sent one way need not equal
// that of the other, which may be zero.
func TestInterAlltoall(t *testing.T) {
	mpitest.Run(t, 3, func(c *mpi.Comm) error {
		side := min(c.Rank(), 1)
		half, err := c.Split(side, 0)
		if err != nil {
			return err
		}
		x, err := half.InterCreate(0, c, 1-side, 3)
		if err != nil {
			return err
		}
		var send, recv []int
		if side == 0 {
			send, recv = []int{1, 2, 3, 4}, make([]int, 2) // two to each of two, one from each
		} else {
			send, recv = []int{10 + c.Rank()}, make([]int, 2)
		}
		if err := mpi.Alltoall(x, send, recv); err != nil {
			return err
		}
		want := []int{11, 12}
		if side == 1 {
			want = []int{2*c.Rank() - 1, 2 * c.Rank()}
		}
		if !slices.Equal(recv, want) {
			return fmt.Errorf("rank %d has %v, want %v", c.Rank(), recv, want)
		}
		send, recv = []int{}, make([]int, 2)
		if side == 0 {
			send, recv = []int{1, 2, 3, 4}, nil
		}
		return mpi.Alltoall(x, send, recv)
	})
}
