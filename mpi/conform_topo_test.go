package mpi_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/meshmpi/meshmpi/mpi"
	"github.com/meshmpi/meshmpi/mpi/mpitest"
)

// grids of up to six ranks; periodic dimensions of one and two are their own
// neighbours, twice.
var grids = []struct {
	dims    []int
	periods []bool
}{
	{[]int{}, []bool{}}, {[]int{6}, []bool{false}}, {[]int{6}, []bool{true}}, {[]int{5}, []bool{true}}, {[]int{1}, []bool{true}}, {[]int{2}, []bool{true}},
	{[]int{3, 2}, []bool{true, true}}, {[]int{2, 3}, []bool{true, false}}, {[]int{1, 6}, []bool{true, false}}, {[]int{2, 1, 3}, []bool{true, true, true}},
	{[]int{2, 2}, []bool{true, true}}, {[]int{1, 1}, []bool{true, true}}, {[]int{1, 2, 2}, []bool{false, true, false}},
}

// shift is who is steps away along a dimension, by arithmetic.
func shift(dims []int, periods []bool, rank, dim, by int) int {
	stride := 1
	for _, d := range dims[dim+1:] {
		stride *= d
	}
	at := rank / stride % dims[dim]
	to := at + by
	if periods[dim] {
		to = ((to % dims[dim]) + dims[dim]) % dims[dim]
	} else if to < 0 || to >= dims[dim] {
		return mpi.ProcNull
	}
	return rank + (to-at)*stride
}

// TestGrids: places, shifts and the exchanges of neighbours on all kinds of grids.
func TestGrids(t *testing.T) {
	for name, place := range places {
		t.Run(name, func(t *testing.T) {
			mpitest.Run(t, 6, func(c *mpi.Comm) error {
				for _, tc := range grids {
					for _, reorder := range []bool{false, true} {
						if err := onGrid(c, tc.dims, tc.periods, reorder); err != nil {
							return fmt.Errorf("%v %v: %w", tc.dims, tc.periods, err)
						}
					}
				}
				return nil
			}, place)
		})
	}
}

func onGrid(c *mpi.Comm, dims []int, periods []bool, reorder bool) error {
	n := 1
	for _, d := range dims {
		n *= d
	}
	mapped, err := c.CartMap(dims, periods)
	if err != nil {
		return err
	}
	g, err := c.CartCreate(dims, periods, reorder)
	if err != nil || g == nil {
		if err == nil && (c.Rank() < n || mapped != mpi.Undefined) {
			err = fmt.Errorf("rank %d of %d is not in it; mapped to %d", c.Rank(), n, mapped)
		}
		return err
	}
	if reorder && g.Rank() != mapped || !reorder && g.Rank() != c.Rank() || g.Size() != n || g.Topology() != mpi.CartTopology {
		return fmt.Errorf("rank %d of %d, mapped %d, topology %v", g.Rank(), g.Size(), mapped, g.Topology())
	}
	var around []int
	for dim := range dims {
		for _, by := range []int{1, -1, 2, 0, 5} {
			from, to, err := g.CartShift(dim, by)
			expect := []int{shift(dims, periods, g.Rank(), dim, -by), shift(dims, periods, g.Rank(), dim, by)}
			if err := first(err, want(fmt.Sprintf("shift by %d along %d", by, dim), []int{from, to}, expect)); err != nil {
				return err
			}
			if by == 1 {
				around = append(around, from, to)
			}
		}
	}
	// The block that goes out in one direction comes in from the opposite one.
	opposite := make([]int, len(around))
	for i := range around {
		opposite[i] = i ^ 1
	}
	d, err := g.Dup()
	if err != nil {
		return err
	}
	gd, gp, at, err := d.CartGet()
	back := 0
	if err == nil {
		back, err = d.CartRank(at)
	}
	if err := first(err, want("dims", gd, dims), want("periods", gp, periods), want("rank", []int{back}, []int{g.Rank()})); err != nil {
		return err
	}
	return first(neighbours(d, around, around, opposite), d.Free(), g.Free())
}

// neighbours does all exchanges among neighbours: in and out are their ranks,
// theirs[i] is the number of our block among those that in[i] sends.
func neighbours(c *mpi.Comm, in, out, theirs []int) error {
	for _, f := range forms {
		for _, n := range []int{0, 1, 700} {
			if err := exchanges(c, in, out, theirs, n, f); err != nil {
				return fmt.Errorf("%d elements, %v: %w", n, f, err)
			}
		}
	}
	return nil
}

func exchanges(c *mpi.Comm, in, out, theirs []int, n int, f form) error {
	me := c.Rank()
	mine, all := given(me, n), slices.Repeat([]int64{-1}, n*len(in))
	allv := slices.Repeat([]int64{-1}, (n+1)*len(in))
	gathered, gatheredv := slices.Clone(all), slices.Clone(allv)
	blocks, turned := []int64{}, slices.Clone(all)
	sl, rl, gl := mpi.Layout{Counts: []int{}}, mpi.Layout{Counts: []int{}}, mpi.Layout{Counts: []int{}, Displs: []int{}}
	outs, ins := make([]mpi.Buf, len(out)), make([]mpi.Buf, len(in))
	expect, sendv, expectv := slices.Clone(all), []int64{}, []int64{}
	for i := range out { // block i of any rank has n+i elements in the v forms
		blocks = append(blocks, part(me, i*n, n)...)
		sl.Counts = append(sl.Counts, n+i)
		sendv = append(sendv, part(me, i, n+i)...)
		outs[i] = mpi.BufOf(part(me, i, n+i))
	}
	for i, r := range in {
		j := theirs[i]
		rl.Counts, gl.Counts, gl.Displs = append(rl.Counts, n+j), append(gl.Counts, n), append(gl.Displs, i*(n+1))
		v := slices.Repeat([]int64{-1}, n+j)
		if r != mpi.ProcNull {
			copy(gathered[i*n:], given(r, n))
			copy(gatheredv[i*(n+1):], given(r, n))
			copy(expect[i*n:], part(r, j*n, n))
			v = part(r, j, n+j)
		}
		expectv = append(expectv, v...)
	}
	gotv, gotw := slices.Repeat([]int64{-1}, len(expectv)), slices.Repeat([]int64{-1}, len(expectv))
	at := 0
	for i := range in {
		ins[i] = mpi.BufOf(gotw[at : at+rl.Counts[i]])
		at += rl.Counts[i]
	}
	return first(
		f.do(func() error { return mpi.NeighborAllgather(c, mine, all) }, func() (mpi.Request, error) { return mpi.IneighborAllgather(c, mine, all) },
			func() (*mpi.Persistent, error) { return mpi.NeighborAllgatherInit(c, mine, all) }),
		f.do(func() error { return mpi.NeighborAllgatherv(c, mine, allv, gl) }, func() (mpi.Request, error) { return mpi.IneighborAllgatherv(c, mine, allv, gl) },
			func() (*mpi.Persistent, error) { return mpi.NeighborAllgathervInit(c, mine, allv, gl) }),
		f.do(func() error { return mpi.NeighborAlltoall(c, blocks, turned) }, func() (mpi.Request, error) { return mpi.IneighborAlltoall(c, blocks, turned) },
			func() (*mpi.Persistent, error) { return mpi.NeighborAlltoallInit(c, blocks, turned) }),
		f.do(func() error { return mpi.NeighborAlltoallv(c, sendv, sl, gotv, rl) },
			func() (mpi.Request, error) { return mpi.IneighborAlltoallv(c, sendv, sl, gotv, rl) },
			func() (*mpi.Persistent, error) { return mpi.NeighborAlltoallvInit(c, sendv, sl, gotv, rl) }),
		f.do(func() error { return mpi.NeighborAlltoallw(c, outs, ins) }, func() (mpi.Request, error) { return mpi.IneighborAlltoallw(c, outs, ins) },
			func() (*mpi.Persistent, error) { return mpi.NeighborAlltoallwInit(c, outs, ins) }),
		want("allgather", all, gathered), want("allgatherv", allv, gatheredv), want("alltoall", turned, expect),
		want("alltoallv", gotv, expectv), want("alltoallw", gotw, expectv))
}

// edges are a graph of six nodes with parallel edges, a loop and a node with none.
var edges = [][]int{{1, 2, 2}, {0, 4}, {2, 0}, {}, {1, 0, 1}, {0}}

// incoming is who sends to a node, by rank, and which of its blocks.
func incoming(node int) (from, theirs []int) {
	for r, out := range edges {
		for i, to := range out {
			if to == node {
				from, theirs = append(from, r), append(theirs, i)
			}
		}
	}
	return from, theirs
}

// TestGraphs: neighbours as given by all ranks, by each for itself, and by others.
func TestGraphs(t *testing.T) {
	mpitest.Run(t, 6, func(c *mpi.Comm) error {
		me := c.Rank()
		in, theirs := incoming(me)
		d, err := c.DistGraphCreateAdjacent(in, theirs, edges[me], nil, true)
		if err != nil {
			return err
		}
		gin, gw, gout, none, err := d.DistGraphNeighbors()
		err = first(err, want("sources", gin, in), want("weights", gw, theirs), want("destinations", gout, edges[me]), want("none", none, nil))
		if err := first(err, neighbours(d, in, edges[me], theirs), d.Free()); err != nil {
			return err
		}
		// Each rank names the edges of the rank after it.
		next := (me + 1) % 6
		weights := make([]int, len(edges[next]))
		for i := range weights {
			weights[i] = 10*next + i
		}
		if d, err = c.DistGraphCreate([]int{next}, []int{len(edges[next])}, edges[next], weights, false); err != nil {
			return err
		}
		gin, gw, gout, ow, err := d.DistGraphNeighbors()
		if err := first(err, edgesOf(me, gin, gw, gout, ow), d.Free()); err != nil {
			return err
		}
		return wholeGraph(c)
	})
}

// edgesOf looks at what others have said of a node: edges in any order.
func edgesOf(me int, in, inW, out, outW []int) error {
	from, theirs := incoming(me)
	var wantIn, gotIn, wantOut, gotOut []int
	for i := range from {
		wantIn = append(wantIn, 10*from[i]+theirs[i])
	}
	for i := range edges[me] {
		wantOut = append(wantOut, 1000*edges[me][i]+10*me+i)
	}
	for i := range in {
		if gotIn = append(gotIn, inW[i]); inW[i]/10 != in[i] {
			return fmt.Errorf("an edge from %d has the weight %d", in[i], inW[i])
		}
	}
	for i := range out {
		gotOut = append(gotOut, 1000*out[i]+outW[i])
	}
	for _, s := range [][]int{wantIn, gotIn, wantOut, gotOut} {
		slices.Sort(s)
	}
	return first(want("edges in", gotIn, wantIn), want("edges out", gotOut, wantOut))
}

// wholeGraph is a symmetric graph that all ranks know; rank 5 is not in it.
func wholeGraph(c *mpi.Comm) error {
	index, list := []int{2, 3, 5, 5, 6}, []int{1, 2, 0, 0, 4, 2}
	g, err := c.GraphCreate(index, list, false)
	if err != nil {
		return err
	}
	if c.Rank() == 5 {
		if g != nil {
			return fmt.Errorf("rank 5 is in a graph of five")
		}
		return nil
	}
	gi, ge, err := g.GraphGet()
	if err := first(err, want("index", gi, index), want("edges", ge, list)); err != nil || g.Topology() != mpi.GraphTopology {
		return fmt.Errorf("topology %v: %w", g.Topology(), err)
	}
	mine, err := g.GraphNeighbors(c.Rank())
	if err != nil {
		return err
	}
	theirs := make([]int, len(mine))
	for i, r := range mine {
		back, err := g.GraphNeighbors(r)
		if err != nil {
			return err
		}
		theirs[i] = slices.Index(back, c.Rank())
	}
	return first(neighbours(g, mine, mine, theirs), g.Free())
}

// TestDims against examples of the standard and others.
func TestDims(t *testing.T) {
	for _, tc := range []struct {
		nodes    int
		in, want []int
		class    mpi.Class
	}{
		{6, []int{0, 0}, []int{3, 2}, 0}, {7, []int{0, 0}, []int{7, 1}, 0}, {6, []int{0, 3, 0}, []int{2, 3, 1}, 0}, {7, []int{0, 3, 0}, []int{0, 3, 0}, mpi.ErrDims},
		{12, []int{0, 0, 0}, []int{3, 2, 2}, 0}, {36, []int{0, 0}, []int{6, 6}, 0}, {24, []int{0, 0, 0}, []int{4, 3, 2}, 0}, {1, []int{0, 0}, []int{1, 1}, 0},
		{16, []int{0, 0, 0, 0}, []int{2, 2, 2, 2}, 0}, {8, []int{2, 4}, []int{2, 4}, 0}, {8, []int{2, 2}, []int{2, 2}, mpi.ErrDims}, {0, []int{0}, []int{0}, mpi.ErrDims},
		{4, []int{-1, 0}, []int{-1, 0}, mpi.ErrDims}, {1, []int{}, []int{}, 0}, {2, nil, nil, mpi.ErrDims}, {97 * 89, []int{0, 0}, []int{97, 89}, 0},
	} {
		dims := slices.Clone(tc.in)
		err := mpi.DimsCreate(tc.nodes, dims)
		if mpi.ClassOf(err) != tc.class || !slices.Equal(dims, tc.want) {
			t.Errorf("DimsCreate(%d, %v): %v, %v; want %v, class %v", tc.nodes, tc.in, dims, err, tc.want, tc.class)
		}
	}
}

// TestCartSub cuts a grid of three dimensions in all ways.
func TestCartSub(t *testing.T) {
	mpitest.Run(t, 12, func(c *mpi.Comm) error {
		dims := []int{2, 3, 2}
		g, err := c.CartCreate(dims, []bool{true, false, true}, false)
		if err != nil {
			return err
		}
		at, err := g.CartCoords(g.Rank())
		if err != nil {
			return err
		}
		for bits := range 8 {
			keep := []bool{bits&1 != 0, bits&2 != 0, bits&4 != 0}
			var subDims, subAt []int
			size := 1
			for i, k := range keep {
				if k {
					subDims, subAt, size = append(subDims, dims[i]), append(subAt, at[i]), size*dims[i]
				}
			}
			s, err := g.CartSub(keep)
			if err != nil {
				return err
			}
			d, _, a, err := s.CartGet()
			if err := first(err, want("dims", d, subDims), want("place", a, subAt)); err != nil || s.Size() != size {
				return fmt.Errorf("%v: size %d: %w", keep, s.Size(), err)
			}
			// Who is in it differs from us in the kept dimensions only.
			all := make([]int, size)
			if err := mpi.Allgather(s, []int{g.Rank()}, all); err != nil {
				return err
			}
			for _, r := range all {
				there, err := g.CartCoords(r)
				if err != nil {
					return err
				}
				for i := range there {
					if !keep[i] && there[i] != at[i] {
						return fmt.Errorf("%v: %v is with %v", keep, there, at)
					}
				}
			}
			if err := s.Free(); err != nil {
				return err
			}
		}
		return g.Free()
	})
}
