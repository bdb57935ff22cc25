package mpi

import "slices"

// graph is who talks to whom (MPI 4.1 §8.5.3, §8.5.4). It is immutable.
type graph struct {
	dist         bool
	sources      []int // that the caller receives from
	dests        []int // that it sends to
	inW, outW    []int // weights, nil if there are none
	index, edges []int // the whole of a GraphCreate
}

// GraphCreate makes a communicator with a graph that all ranks know: the
// neighbours of rank i are edges[index[i-1]:index[i]]. Ranks beyond the graph get
// nil. With reorder the library may renumber; this one leaves ranks as they are.
// It is collective.
func (c *Comm) GraphCreate(index, edges []int, reorder bool) (*Comm, error) {
	if err := c.usable("GraphCreate"); err != nil {
		return nil, err
	}
	n := len(index)
	if c.Inter() {
		return nil, fail("GraphCreate", ErrComm, "an intercommunicator has no graph")
	}
	if n > c.Size() {
		return nil, c.misused(fail("GraphCreate", ErrTopology, "a graph of %d nodes; there are %d ranks", n, c.Size()))
	}
	last := 0
	for i, x := range index {
		if x < last || x > len(edges) {
			return nil, c.misused(fail("GraphCreate", ErrArg, "index[%d] is %d", i, x))
		}
		last = x
	}
	for i, e := range edges[:last] {
		if e < 0 || e >= n {
			return nil, c.misused(fail("GraphCreate", ErrTopology, "edges[%d] is %d, in a graph of %d nodes", i, e, n))
		}
	}
	color := 0
	if c.rank >= n {
		color = Undefined
	}
	d, err := c.split("GraphCreate", color, c.rank)
	if err != nil {
		return nil, err
	}
	if d != nil {
		g := &graph{index: slices.Clone(index), edges: slices.Clone(edges[:last])}
		g.sources = g.neighbors(d.rank)
		g.dests = g.sources
		d.graph = g
	}
	return d, nil
}

func (g *graph) neighbors(rank int) []int {
	from := 0
	if rank > 0 {
		from = g.index[rank-1]
	}
	return g.edges[from:g.index[rank]]
}

// GraphGet returns the graph as GraphCreate got it.
func (c *Comm) GraphGet() (index, edges []int, err error) {
	if err := c.needGraph("GraphGet", false); err != nil {
		return nil, nil, err
	}
	return slices.Clone(c.graph.index), slices.Clone(c.graph.edges), nil
}

// GraphNeighbors returns the neighbours of a rank.
func (c *Comm) GraphNeighbors(rank int) ([]int, error) {
	if err := c.needGraph("GraphNeighbors", false); err != nil {
		return nil, err
	}
	if rank < 0 || rank >= c.Size() {
		return nil, fail("GraphNeighbors", ErrRank, "rank %d of %d", rank, c.Size())
	}
	return slices.Clone(c.graph.neighbors(rank)), nil
}

func (c *Comm) needGraph(op string, dist bool) error {
	if err := c.exists(op); err != nil {
		return err
	}
	if c.graph == nil || c.graph.dist != dist {
		return fail(op, ErrTopology, "the communicator has no such graph")
	}
	return nil
}

// DistGraphCreateAdjacent makes a communicator in which every rank says by itself
// whom it receives from and sends to. Weights may be nil. It is collective.
func (c *Comm) DistGraphCreateAdjacent(sources, sourceWeights, dests, destWeights []int, reorder bool) (*Comm, error) {
	const op = "DistGraphCreateAdjacent"
	if err := c.usable(op); err != nil {
		return nil, err
	}
	for _, side := range []struct{ ranks, weights []int }{{sources, sourceWeights}, {dests, destWeights}} {
		if side.weights != nil && len(side.weights) != len(side.ranks) {
			return nil, c.misused(fail(op, ErrArg, "%d weights for %d neighbours", len(side.weights), len(side.ranks)))
		}
		for _, r := range side.ranks {
			if r < 0 || r >= c.Size() {
				return nil, c.misused(fail(op, ErrRank, "rank %d of %d", r, c.Size()))
			}
		}
	}
	d, _, err := c.plain(op, nil)
	if err != nil {
		return nil, err
	}
	d.graph = &graph{
		dist: true, sources: slices.Clone(sources), dests: slices.Clone(dests), inW: slices.Clone(sourceWeights), outW: slices.Clone(destWeights),
	}
	return d, nil
}

// plain makes a communicator of the same group without attributes or topology, and
// returns what all have given to be known; nil: nothing by anybody.
func (c *Comm) plain(op string, mine []int64) (d *Comm, all []int64, err error) {
	if c.Inter() {
		return nil, nil, fail(op, ErrComm, "an intercommunicator has no graph")
	}
	o := c.making()
	if mine != nil {
		all, err = o.allgatherv(mine)
	}
	if err == nil {
		d, err = o.newComm(c.group)
	}
	d, err = o.made(d, err)
	return d, all, c.wrap(op, -1, err)
}

// DistGraphCreate is DistGraphCreateAdjacent where each rank names any edges of
// the graph: degrees[i] edges lead from sources[i] to the next of dests. weights
// may be nil on all ranks. It is collective.
func (c *Comm) DistGraphCreate(sources, degrees, dests, weights []int, reorder bool) (*Comm, error) {
	const op = "DistGraphCreate"
	if err := c.usable(op); err != nil {
		return nil, err
	}
	if len(degrees) != len(sources) {
		return nil, c.misused(fail(op, ErrArg, "%d degrees for %d sources", len(degrees), len(sources)))
	}
	mine := []int64{} // from, to, weight of each edge
	k := 0
	for i, s := range sources {
		if degrees[i] < 0 {
			return nil, c.misused(fail(op, ErrArg, "degrees[%d] is %d", i, degrees[i]))
		}
		for range degrees[i] {
			if k >= len(dests) || weights != nil && k >= len(weights) {
				return nil, c.misused(fail(op, ErrArg, "degrees want more than %d destinations or %d weights", len(dests), len(weights)))
			}
			if s < 0 || s >= c.Size() || dests[k] < 0 || dests[k] >= c.Size() {
				return nil, c.misused(fail(op, ErrRank, "an edge from %d to %d, of %d", s, dests[k], c.Size()))
			}
			w := 1
			if weights != nil {
				w = weights[k]
			}
			mine = append(mine, int64(s), int64(dests[k]), int64(w))
			k++
		}
	}
	d, all, err := c.plain(op, mine)
	if err != nil {
		return nil, err
	}
	g := &graph{dist: true}
	for i := 0; i < len(all); i += 3 {
		from, to, w := int(all[i]), int(all[i+1]), int(all[i+2])
		if to == d.rank {
			g.sources, g.inW = append(g.sources, from), append(g.inW, w)
		}
		if from == d.rank {
			g.dests, g.outW = append(g.dests, to), append(g.outW, w)
		}
	}
	if weights == nil {
		g.inW, g.outW = nil, nil
	}
	d.graph = g
	return d, nil
}

// DistGraphNeighbors returns whom the caller receives from and sends to, with
// weights where there are any.
func (c *Comm) DistGraphNeighbors() (sources, sourceWeights, dests, destWeights []int, err error) {
	if err := c.needGraph("DistGraphNeighbors", true); err != nil {
		return nil, nil, nil, nil, err
	}
	g := c.graph
	return slices.Clone(g.sources), slices.Clone(g.inW), slices.Clone(g.dests), slices.Clone(g.outW), nil
}

// neighbors returns whom neighbourhood collectives receive from and send to, in
// the order of their blocks (MPI 4.1 §8.6); ProcNull beyond a grid's edge.
func (c *Comm) neighbors(op string) (sources, dests []int, err error) {
	if err := c.usable(op); err != nil {
		return nil, nil, err
	}
	if c.graph != nil {
		return c.graph.sources, c.graph.dests, nil
	}
	if c.cart == nil {
		return nil, nil, fail(op, ErrTopology, "the communicator has no topology")
	}
	for d := range c.cart.dims {
		back, forth, err := c.CartShift(d, 1)
		if err != nil {
			return nil, nil, err
		}
		sources = append(sources, back, forth)
	}
	return sources, sources, nil
}
