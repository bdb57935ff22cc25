package mpi_test

import (
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/meshmpi/meshmpi/mpi"
	"github.com/meshmpi/meshmpi/mpi/datatype"
	"github.com/meshmpi/meshmpi/mpi/mpitest"
)

// value is element i of what a rank gives.
func value(rank, i int) int64 { return int64(rank+1)*1_000_003 + int64(i)*7919 + int64(i*rank) }

// given is what a rank gives.
func given(rank, n int) []int64 { return part(rank, 0, n) }

// part is n elements of a rank's from one on.
func part(rank, from, n int) []int64 {
	v := make([]int64, n)
	for i := range v {
		v[i] = value(rank, from+i)
	}
	return v
}

// sumOf is the sum over ranks lo to hi-1.
func sumOf(lo, hi, n int) []int64 {
	v := make([]int64, n)
	for r := lo; r < hi; r++ {
		for i := range v {
			v[i] += value(r, i)
		}
	}
	return v
}

func want[T comparable](what string, got, want []T) error {
	if !slices.Equal(got, want) {
		if len(got) > 20 {
			for i := range got {
				if i < len(want) && got[i] != want[i] {
					return fmt.Errorf("%s: element %d of %d is %v, want %v", what, i, len(got), got[i], want[i])
				}
			}
		}
		return fmt.Errorf("%s: got %v, want %v", what, got, want)
	}
	return nil
}

// affine is x → A x + B; composing such maps is associative and does not commute.
type affine struct{ A, B uint32 }

func mapOf(rank, i int) affine { return affine{uint32(2*rank + 3), uint32(i*5 + rank)} }

// compose applies f first.
func compose(f, g affine) affine { return affine{g.A * f.A, g.A*f.B + g.B} }

var composition = mpi.NewOp(func(in, inout []affine) {
	for i := range in {
		inout[i] = compose(in[i], inout[i])
	}
}, false)

// places are where ranks may be.
var places = map[string]mpitest.Option{
	"one host":    mpitest.With(),
	"blocks":      mpitest.Place(func(r int) (string, string) { return fmt.Sprint("h", r/2), fmt.Sprint("s", r/4) }),
	"interleaved": mpitest.Place(func(r int) (string, string) { return fmt.Sprint("h", r%4), fmt.Sprint("s", r%2) }),
	"uneven":      mpitest.Place(func(r int) (string, string) { return fmt.Sprint("h", r), fmt.Sprint("s", min(r, 1)) }),
}

func TestCollectives(t *testing.T) {
	for name, place := range places {
		for _, n := range []int{1, 2, 3, 5, 8, 17} {
			if n == 17 && name != "blocks" {
				continue
			}
			t.Run(fmt.Sprintf("%s/%d", name, n), func(t *testing.T) {
				mpitest.Run(t, n, func(c *mpi.Comm) error {
					for _, count := range []int{0, 1, 3, 17, 1000, 20_000} {
						if count == 20_000 && n > 5 {
							continue
						}
						for root := range n {
							if count > 17 && root != n-1 {
								continue
							}
							if err := rooted(c, count, root); err != nil {
								return fmt.Errorf("count %d, root %d: %w", count, root, err)
							}
						}
						for _, f := range []func(*mpi.Comm, int) error{unrooted, vectors, scans, ordered} {
							if err := f(c, count); err != nil {
								return fmt.Errorf("count %d: %w", count, err)
							}
						}
					}
					return nil
				}, place)
			})
		}
	}
}

// first returns the first error.
func first(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// done waits for a request.
func done(r mpi.Request, err error) error {
	if err != nil {
		return err
	}
	_, err = r.Wait()
	return err
}

// thrice runs a persistent operation three times.
func thrice(p *mpi.Persistent, err error) error {
	for range 3 {
		if err != nil {
			return err
		}
		if err = p.Start(); err == nil {
			_, err = p.Wait()
		}
	}
	return first(err, p.Free())
}

func rooted(c *mpi.Comm, n, root int) error {
	me, size := c.Rank(), c.Size()
	b := make([]int64, n)
	if me == root {
		copy(b, given(root, n))
	}
	if err := first(mpi.Bcast(c, b, root), want("bcast", b, given(root, n))); err != nil {
		return err
	}
	all := make([]int64, 0, n*size)
	for r := range size {
		all = append(all, given(r, n)...)
	}
	var recv []int64
	if me == root {
		recv = make([]int64, n*size)
	}
	if err := mpi.Gather(c, given(me, n), recv, root); err != nil {
		return err
	}
	if me == root {
		if err := want("gather", recv, all); err != nil {
			return err
		}
		for i := range recv {
			if i/max(n, 1) != root {
				recv[i] = 0
			}
		}
	}
	if me == root { // in place
		if err := first(mpi.Gather(c, nil, recv, root), want("gather in place", recv, all)); err != nil {
			return err
		}
	} else if err := mpi.Gather(c, given(me, n), nil, root); err != nil {
		return err
	}
	var send []int64
	if me == root {
		send = all
	}
	mine := make([]int64, n)
	if err := first(done(mpi.Iscatter(c, send, mine, root)), want("scatter", mine, given(me, n))); err != nil {
		return err
	}
	sum := make([]int64, n)
	if err := mpi.Reduce(c, given(me, n), sum, mpi.Sum, root); err != nil {
		return err
	}
	if me == root {
		if err := want("reduce", sum, sumOf(0, size, n)); err != nil {
			return err
		}
		copy(sum, given(me, n))
		if err := done(mpi.Ireduce(c, nil, sum, mpi.Sum, root)); err != nil {
			return err
		}
		return want("reduce in place", sum, sumOf(0, size, n))
	}
	return done(mpi.Ireduce(c, given(me, n), nil, mpi.Sum, root))
}

func unrooted(c *mpi.Comm, n int) error {
	me, size := c.Rank(), c.Size()
	if err := mpi.Barrier(c); err != nil {
		return err
	}
	sum := make([]int64, n)
	if err := first(mpi.Allreduce(c, given(me, n), sum, mpi.Sum), want("allreduce", sum, sumOf(0, size, n))); err != nil {
		return err
	}
	copy(sum, given(me, n))
	if err := first(mpi.Allreduce(c, nil, sum, mpi.Sum), want("allreduce in place", sum, sumOf(0, size, n))); err != nil {
		return err
	}
	if err := first(thrice(mpi.AllreduceInit(c, given(me, n), sum, mpi.Max)), want("allreduce max", sum, given(size-1, n))); err != nil {
		return err
	}
	var all, wide []int64
	for r := range size {
		all = append(all, given(r, n)...)
		wide = append(wide, part(me, r*n, n)...) // for rank r
	}
	recv := make([]int64, n*size)
	if err := first(mpi.Allgather(c, given(me, n), recv), want("allgather", recv, all)); err != nil {
		return err
	}
	for i := range recv {
		if i/max(n, 1) != me {
			recv[i] = 0
		}
	}
	if err := first(done(mpi.Iallgather(c, nil, recv)), want("allgather in place", recv, all)); err != nil {
		return err
	}
	turned := make([]int64, 0, n*size)
	for r := range size {
		turned = append(turned, part(r, me*n, n)...)
	}
	if err := first(mpi.Alltoall(c, wide, recv), want("alltoall", recv, turned)); err != nil {
		return err
	}
	copy(recv, wide)
	if err := first(mpi.Alltoall(c, nil, recv), want("alltoall in place", recv, turned)); err != nil {
		return err
	}
	block := make([]int64, n)
	var blocks []int64
	for r := range size {
		blocks = append(blocks, part(me, r*n, n)...)
	}
	result := make([]int64, n)
	for r := range size {
		for i := range result {
			result[i] += value(r, me*n+i)
		}
	}
	return first(mpi.ReduceScatterBlock(c, blocks, block, mpi.Sum), want("reduce_scatter_block", block, result))
}

func vectors(c *mpi.Comm, n int) error {
	me, size := c.Rank(), c.Size()
	// Rank r has n+r elements, in buffers with a gap of one after each block.
	l := mpi.Layout{}
	total, at := 0, 0
	for r := range size {
		l.Counts, l.Displs = append(l.Counts, n+r), append(l.Displs, at)
		at += n + r + 1
		total += n + r
	}
	gapped := make([]int64, at)
	for r := range size {
		copy(gapped[l.Displs[r]:], given(r, n+r))
	}
	recv := make([]int64, at)
	if err := first(mpi.Allgatherv(c, given(me, n+me), recv, l), want("allgatherv", recv, gapped)); err != nil {
		return err
	}
	root := size / 2
	recv = make([]int64, at)
	if err := mpi.Gatherv(c, given(me, n+me), recv, l, root); err != nil {
		return err
	}
	if me == root {
		if err := want("gatherv", recv, gapped); err != nil {
			return err
		}
	}
	mine := make([]int64, n+me)
	if err := first(mpi.Scatterv(c, gapped, l, mine, root), want("scatterv", mine, given(me, n+me))); err != nil {
		return err
	}
	// Rank r gives rank d n+r+2d elements.
	sl, rl := mpi.Layout{}, mpi.Layout{}
	var send, turned []int64
	for r := range size {
		sl.Counts = append(sl.Counts, n+me+2*r)
		rl.Counts = append(rl.Counts, n+r+2*me)
		send = append(send, part(me, r, n+me+2*r)...)
		turned = append(turned, part(r, me, n+r+2*me)...)
	}
	recv = make([]int64, len(turned))
	if err := first(mpi.Alltoallv(c, send, sl, recv, rl), want("alltoallv", recv, turned)); err != nil {
		return err
	}
	counts := make([]int, size)
	for r := range counts {
		counts[r] = n + r%2
	}
	from := 0
	for r := range me {
		from += counts[r]
	}
	all := 0
	for _, k := range counts {
		all += k
	}
	sum := make([]int64, counts[me])
	return first(mpi.ReduceScatter(c, given(me, all), sum, counts, mpi.Sum), want("reduce_scatter", sum, sumOf(0, size, all)[from:from+counts[me]]))
}

func scans(c *mpi.Comm, n int) error {
	me := c.Rank()
	got := make([]int64, n)
	if err := first(mpi.Scan(c, given(me, n), got, mpi.Sum), want("scan", got, sumOf(0, me+1, n))); err != nil {
		return err
	}
	for i := range got {
		got[i] = -1
	}
	below := sumOf(0, me, n)
	if me == 0 {
		below = slices.Repeat([]int64{-1}, n)
	}
	if err := first(mpi.Exscan(c, given(me, n), got, mpi.Sum), want("exscan", got, below)); err != nil {
		return err
	}
	copy(got, given(me, n))
	return first(done(mpi.Iscan(c, nil, got, mpi.Sum)), want("scan in place", got, sumOf(0, me+1, n)))
}

// ordered uses an operation that does not commute.
func ordered(c *mpi.Comm, n int) error {
	me, size := c.Rank(), c.Size()
	in, got := make([]affine, n), make([]affine, n)
	upTo := func(hi int) []affine {
		v := make([]affine, n)
		for i := range v {
			v[i] = mapOf(0, i)
			for r := 1; r < hi; r++ {
				v[i] = compose(v[i], mapOf(r, i))
			}
		}
		return v
	}
	for i := range in {
		in[i] = mapOf(me, i)
	}
	if err := first(c.AllreduceBuf(mpi.BufOf(in), mpi.BufOf(got), composition), want("allreduce in order", got, upTo(size))); err != nil {
		return err
	}
	root := size - 1
	if err := c.ReduceBuf(mpi.BufOf(in), mpi.BufOf(got), composition, root); err != nil {
		return err
	}
	if me == root {
		if err := want("reduce in order", got, upTo(size)); err != nil {
			return err
		}
	}
	return first(c.ScanBuf(mpi.BufOf(in), mpi.BufOf(got), composition), want("scan in order", got, upTo(me+1)))
}

// TestLoc combines values with their places.
func TestLoc(t *testing.T) {
	mpitest.Run(t, 5, func(c *mpi.Comm) error {
		in := []mpi.Loc[float32]{{Value: float32((c.Rank() * 3) % 5), Index: int64(c.Rank())}, {Value: 1, Index: int64(c.Rank())}}
		out := make([]mpi.Loc[float32], 2)
		if err := c.AllreduceBuf(mpi.BufOf(in), mpi.BufOf(out), mpi.MaxLoc); err != nil {
			return err
		}
		if err := want("maxloc", out, []mpi.Loc[float32]{{Value: 4, Index: 3}, {Value: 1, Index: 0}}); err != nil {
			return err
		}
		if err := c.AllreduceBuf(mpi.BufOf(in), mpi.BufOf(out), mpi.MinLoc); err != nil {
			return err
		}
		return want("minloc", out, []mpi.Loc[float32]{{Value: 0, Index: 0}, {Value: 1, Index: 0}})
	})
}

// TestBufCollectives moves columns of matrices.
func TestBufCollectives(t *testing.T) {
	mpitest.Run(t, 3, func(c *mpi.Comm) error {
		const rows, cols = 4, 5
		number := datatype.Basic(datatype.Int32)
		col, err := datatype.Vector(rows, 1, cols, number)
		if err != nil {
			return err
		}
		m := make([]int32, rows*cols)
		if c.Rank() == 1 {
			for i := range m {
				m[i] = int32(i)
			}
		}
		if err := c.BcastBuf(mpi.NewBuf(m, 1, col).At(4*2), 1); err != nil {
			return err
		}
		for i, v := range m {
			if is := i%cols == 2 || c.Rank() == 1; is && v != int32(i) || !is && v != 0 {
				return fmt.Errorf("element %d is %d", i, v)
			}
		}
		row := make([]int32, rows*c.Size())
		if err := c.AllgatherBuf(mpi.NewBuf(m, 1, col).At(4*2), mpi.BufOf(row)); err != nil {
			return err
		}
		return want("gathered columns", row, slices.Repeat([]int32{2, 7, 12, 17}, c.Size()))
	})
}

// TestConcurrentCollectives runs operations on two communicators from two
// goroutines of each rank.
func TestConcurrentCollectives(t *testing.T) {
	mpitest.Run(t, 4, func(c *mpi.Comm) error {
		d, err := c.Dup()
		if err != nil {
			return err
		}
		var all sync.WaitGroup
		errs := make([]error, 2)
		for i, x := range []*mpi.Comm{c, d} {
			all.Go(func() {
				for k := range 50 {
					if errs[i] = first(unrooted(x, 3+k%5), scans(x, k)); errs[i] != nil {
						return
					}
				}
			})
		}
		all.Wait()
		return first(errs[0], errs[1], d.Free())
	})
}

// TestInterCollectives: ranks 0 and 1 on one side, 2 to 4 on the other.
func TestInterCollectives(t *testing.T) {
	mpitest.Run(t, 5, func(c *mpi.Comm) error {
		side := 0
		if c.Rank() >= 2 {
			side = 1
		}
		local, err := c.Split(side, 0)
		if err != nil {
			return err
		}
		x, err := local.InterCreate(0, c, []int{2, 0}[side], 9)
		if err != nil {
			return err
		}
		lo, hi := 0, 2 // the other side's ranks in c
		if side == 0 {
			lo, hi = 2, 5
		}
		const n = 7
		if err := mpi.Barrier(x); err != nil {
			return err
		}
		sum := make([]int64, n)
		if err := first(mpi.Allreduce(x, given(c.Rank(), n), sum, mpi.Sum), want("allreduce", sum, sumOf(lo, hi, n))); err != nil {
			return err
		}
		var theirs, turned, mine []int64
		for r := lo; r < hi; r++ {
			theirs = append(theirs, given(r, n)...)
			turned = append(turned, part(r, local.Rank()*n, n)...)
		}
		for r := range hi - lo {
			mine = append(mine, part(c.Rank(), r*n, n)...)
		}
		got := make([]int64, n*(hi-lo))
		if err := first(mpi.Allgather(x, given(c.Rank(), n), got), want("allgather", got, theirs)); err != nil {
			return err
		}
		if err := first(mpi.Alltoall(x, mine, got), want("alltoall", got, turned)); err != nil {
			return err
		}
		// Rank 1 of the first side is the root.
		root := mpi.ProcNull
		if side == 1 {
			root = 1
		} else if local.Rank() == 1 {
			root = mpi.Root
		}
		b := given(1, n)
		if side == 1 {
			b = make([]int64, n)
		}
		if err := first(mpi.Bcast(x, b, root), want("bcast", b, given(1, n))); err != nil {
			return err
		}
		sum = make([]int64, n)
		if err := mpi.Reduce(x, given(c.Rank(), n), sum, mpi.Sum, root); err != nil {
			return err
		}
		if root == mpi.Root {
			if err := want("reduce", sum, sumOf(2, 5, n)); err != nil {
				return err
			}
		}
		got = make([]int64, 3*n)
		if side == 1 {
			got = nil
		}
		if err := mpi.Gather(x, given(c.Rank(), n), got, root); err != nil {
			return err
		}
		if root == mpi.Root {
			if err := want("gather", got, theirs); err != nil {
				return err
			}
		}
		blk := make([]int64, n)
		if err := mpi.Scatter(x, theirs, blk, root); err != nil {
			return err
		}
		if side == 1 {
			if err := want("scatter", blk, given(c.Rank(), n)); err != nil {
				return err
			}
		}
		both, err := x.Merge(side == 1)
		if err != nil {
			return err
		}
		if both.Size() != 5 || both.Rank() != c.Rank() {
			return fmt.Errorf("merged: rank %d of %d", both.Rank(), both.Size())
		}
		return first(unrooted(both, 4), both.Free(), x.Free(), local.Free())
	})
}
