package mpi_test

import (
	"fmt"

	"github.com/meshmpi/meshmpi/mpi"
)

// dims ends the case unless DimsCreate makes want of given.
func dims(nodes int, given, want []int) {
	d := append([]int(nil), given...)
	must(mpi.DimsCreate(nodes, d))
	are(fmt.Sprintf("%d nodes over %v", nodes, given), d, want)
}

var mpichTopo = []mpichCase{
	{file: "topo/cartcreates.c", ranks: 4, body: func(c *mpi.Comm) error {
		d := get(c.CartCreate([]int{3}, []bool{true}, false))
		is("in the grid", d != nil, c.Rank() < 3)
		if d == nil {
			return nil
		}
		alive(d)
		return d.Free()
	}},
	{file: "topo/cartmap1.c", ranks: 5, body: func(c *mpi.Comm) error {
		r := get(c.CartMap([]int{4}, []bool{false}))
		all := make([]int, 5)
		must(mpi.Allgather(c, []int{r}, all))
		seen := map[int]int{}
		for _, r := range all {
			seen[r]++
		}
		for r := range 4 {
			is("once each", seen[r], 1)
		}
		is("left over", seen[mpi.Undefined], 1)
		return nil
	}},
	{file: "topo/cartshift1.c", ranks: 4, body: func(c *mpi.Comm) error {
		for _, periodic := range []bool{true, false} {
			d := get(c.CartCreate([]int{4}, []bool{periodic}, true))
			for _, by := range []int{1, -1, 2, 0, 5, -7} {
				from, to, err := d.CartShift(0, by)
				must(err)
				at := func(i int) int {
					if periodic {
						return ((i % 4) + 4) % 4
					}
					if i < 0 || i > 3 {
						return mpi.ProcNull
					}
					return i
				}
				is(fmt.Sprint("source by ", by), from, at(d.Rank()-by))
				is(fmt.Sprint("dest by ", by), to, at(d.Rank()+by))
			}
			must(d.Free())
		}
		return nil
	}},
	{file: "topo/cartsuball.c", ranks: 4, body: func(c *mpi.Comm) error {
		d := get(c.CartCreate([]int{4}, []bool{false}, false))
		e := get(d.CartSub([]bool{false}))
		is("size of no dimensions", e.Size(), 1)
		n, _, coords, err := e.CartGet()
		must(err)
		is("dimensions", len(n)+len(coords), 0)
		f := get(d.CartSub([]bool{true}))
		is("all dimensions", f.Compare(d), mpi.Congruent)
		return first(e.Free(), f.Free(), d.Free())
	}},
	{file: "topo/cartzero.c", ranks: 3, body: func(c *mpi.Comm) error {
		d := get(c.CartCreate(nil, nil, false))
		is("in the grid of one", d != nil, c.Rank() == 0)
		if d == nil {
			return nil
		}
		is("size", d.Size(), 1)
		is("rank of no coordinates", get(d.CartRank(nil)), 0)
		is("coordinates", len(get(d.CartCoords(0))), 0)
		return d.Free()
	}},
	{file: "topo/dgraph_unwgt.c", ranks: 4, body: func(c *mpi.Comm) error {
		left, right := (c.Rank()+3)%4, (c.Rank()+1)%4
		for _, weights := range [][]int{nil, {7, 8}} {
			d := get(c.DistGraphCreateAdjacent([]int{left, right}, weights, []int{left, right}, weights, false))
			s, sw, t, tw, err := d.DistGraphNeighbors()
			must(err)
			are("sources", s, []int{left, right})
			are("destinations", t, []int{left, right})
			are("weights", sw, weights)
			are("weights of destinations", tw, weights)
			must(d.Free())
		}
		d := get(c.DistGraphCreateAdjacent(nil, nil, nil, nil, false))
		s, _, t, _, err := d.DistGraphNeighbors()
		is("neighbours of none", len(s)+len(t), 0)
		return first(err, mpi.NeighborAllgather(d, []int{1}, nil), d.Free())
	}},
	{file: "topo/dims0.c", ranks: 1, body: func(*mpi.Comm) error {
		must(mpi.DimsCreate(1, nil))
		dims(60, []int{0, 4, 0}, []int{5, 4, 3})
		dims(6, []int{3, 2}, []int{3, 2})
		return nil
	}},
	{file: "topo/dims1.c", ranks: 1, body: func(*mpi.Comm) error {
		for _, tc := range []struct {
			n    int
			want []int
		}{{1, []int{1, 1}}, {6, []int{3, 2}}, {7, []int{7, 1}}, {30, []int{5, 3, 2}}, {64, []int{4, 4, 4}}, {12, []int{3, 2, 2}}, {5, []int{5, 1, 1, 1}}, {2310, []int{11, 7, 6, 5}}} {
			dims(tc.n, make([]int, len(tc.want)), tc.want)
		}
		return nil
	}},
	{file: "topo/dims2.c", ranks: 1, body: func(*mpi.Comm) error {
		dims(16, []int{0, 0}, []int{4, 4})
		dims(8, []int{0, 0, 0}, []int{2, 2, 2})
		dims(18, []int{0, 3, 0}, []int{3, 3, 2})
		dims(1000003, []int{0, 0}, []int{1000003, 1}) // a prime
		return nil
	}},
	{file: "topo/dims3.c", ranks: 1, body: func(*mpi.Comm) error {
		dims(12, []int{0, 0, 3}, []int{2, 2, 3})
		dims(12, []int{0, 4, 0}, []int{3, 4, 1})
		dims(144, []int{0, 0}, []int{12, 12})
		dims(96, []int{0, 0}, []int{12, 8})
		return nil
	}},
	{file: "topo/dims4.c", ranks: 1, body: func(*mpi.Comm) error {
		// Whatever the number: the product is right, and the dimensions fall.
		for n := 1; n <= 600; n++ {
			for k := 1; k <= 5; k++ {
				d := make([]int, k)
				must(mpi.DimsCreate(n, d))
				product := 1
				for i, x := range d {
					product *= x
					is(fmt.Sprint("falling ", d), i == 0 || x <= d[i-1], true)
				}
				is(fmt.Sprint("product of ", d), product, n)
			}
		}
		return nil
	}},
	{file: "topo/dims5.c", ranks: 1, body: func(*mpi.Comm) error {
		// Many small factors, and many dimensions.
		dims(1<<20, make([]int, 4), fill(1<<5, 4))
		dims(1<<10, make([]int, 10), fill(2, 10))
		dims(46080, make([]int, 2), []int{240, 192})
		return nil
	}},
	{file: "topo/distgraph1.c", ranks: 4, body: func(c *mpi.Comm) error {
		// weight is that of the edge from i to j; 0: there is none.
		for _, weight := range []func(i, j int) int{
			func(i, j int) int { return (i + 2) * (j + 1) },                        // all
			func(i, j int) int { return j % 2 * (i + 2) },                          // every other one
			func(i, j int) int { return map[bool]int{true: 10 * (i + 1)}[i == j] }, // loops
			func(int, int) int { return 0 },
		} {
			must(distGraph(c, weight))
		}
		return nil
	}},
	{file: "topo/graphcr.c", ranks: 4, body: func(c *mpi.Comm) error {
		// Neighbours of 0: 1 and 3; of 1: 0; of 2: 3; of 3: 0 and 2.
		index, edges := []int{2, 3, 4, 6}, []int{1, 3, 0, 3, 0, 2}
		d := get(c.GraphCreate(index, edges, false))
		i, e, err := d.GraphGet()
		must(err)
		are("index", i, index)
		are("edges", e, edges)
		are("neighbours", get(d.GraphNeighbors(3)), []int{0, 2})
		is("kind", d.Topology(), mpi.GraphTopology)
		return d.Free()
	}},
	{file: "topo/graphcr2.c", ranks: 4, body: func(c *mpi.Comm) error {
		// No edges, loops and edges that are there twice.
		d := get(c.GraphCreate([]int{0, 3, 5, 5}, []int{1, 1, 3, 2, 2}, false))
		are("of 0", get(d.GraphNeighbors(0)), []int{})
		are("of 1", get(d.GraphNeighbors(1)), []int{1, 1, 3})
		are("of 2", get(d.GraphNeighbors(2)), []int{2, 2})
		return d.Free()
	}},
	{file: "topo/graphmap1.c", ranks: 4, body: func(c *mpi.Comm) error {
		d := get(c.GraphCreate([]int{1, 2}, []int{1, 0}, true))
		is("in the graph of two", d != nil, c.Rank() < 2)
		if d == nil {
			return nil
		}
		all := make([]int, 1)
		must(mpi.NeighborAllgather(d, []int{d.Rank()}, all))
		is("the other", all[0], 1-d.Rank())
		return d.Free()
	}},
	{file: "topo/topodup.c", ranks: 4, body: func(c *mpi.Comm) error {
		g := get(c.CartCreate([]int{2, 2}, []bool{true, false}, false))
		d := get(g.Dup())
		n, p, at, err := d.CartGet()
		must(err)
		are("dims", n, []int{2, 2})
		are("periods", p, []bool{true, false})
		are("place", at, []int{d.Rank() / 2, d.Rank() % 2})
		s := get(g.Split(0, 0))
		is("a split has none", s.Topology(), mpi.NoTopology)
		r := get(c.GraphCreate([]int{1, 2}, []int{1, 0}, false))
		if r != nil {
			e := get(r.Dup())
			are("neighbours", get(e.GraphNeighbors(0)), []int{1})
			must(e.Free(), r.Free())
		}
		return first(s.Free(), d.Free(), g.Free())
	}},
	{file: "topo/topotest.c", ranks: 6, body: func(c *mpi.Comm) error {
		is("none", c.Topology(), mpi.NoTopology)
		g := get(c.CartCreate([]int{3, 2}, []bool{false, true}, false))
		is("kind", g.Topology(), mpi.CartTopology)
		for r := range 6 {
			at := get(g.CartCoords(r))
			are("coordinates", at, []int{r / 2, r % 2})
			is("rank", get(g.CartRank(at)), r)
			at[1] -= 4
			is("rank around the ring", get(g.CartRank(at)), r)
		}
		refused("outside", second(g.CartRank([]int{3, 0})), mpi.ErrArg)
		refused("of no grid", second(c.CartRank([]int{0})), mpi.ErrTopology)
		d := get(c.DistGraphCreateAdjacent(nil, nil, nil, nil, false))
		is("kind of a distributed graph", d.Topology(), mpi.DistGraphTopology)
		return first(d.Free(), g.Free())
	}},
}

// distGraph makes a graph of which every rank names the edges of the next rank.
func distGraph(c *mpi.Comm, weight func(i, j int) int) error {
	n, of := c.Size(), (c.Rank()+1)%c.Size()
	var dests, weights, degrees []int
	for j := range n {
		if w := weight(of, j); w != 0 {
			dests, weights, degrees = append(dests, j), append(weights, w), []int{len(dests) + 1}
		}
	}
	sources := []int{of}[:len(degrees)]
	if weights == nil {
		weights = []int{}
	}
	d, err := c.DistGraphCreate(sources, degrees, dests, weights, false)
	if err != nil {
		return err
	}
	from, fw, to, tw, err := d.DistGraphNeighbors()
	if err != nil {
		return err
	}
	in, out := 0, 0
	for k := range from {
		if fw[k] != weight(from[k], c.Rank()) {
			return fmt.Errorf("weight %d of the edge from %d", fw[k], from[k])
		}
	}
	for k := range to {
		if tw[k] != weight(c.Rank(), to[k]) {
			return fmt.Errorf("weight %d of the edge to %d", tw[k], to[k])
		}
	}
	for i := range n {
		in += min(weight(i, c.Rank()), 1)
		out += min(weight(c.Rank(), i), 1)
	}
	if len(from) != in || len(to) != out {
		return fmt.Errorf("%d edges in and %d out, want %d and %d", len(from), len(to), in, out)
	}
	got := make([]int, in)
	if err := mpi.NeighborAllgather(d, []int{c.Rank()}, got); err != nil {
		return err
	}
	return first(want("neighbours", got, from), d.Free())
}
