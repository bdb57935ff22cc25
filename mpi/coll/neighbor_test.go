package coll

import (
	"bytes"
	"math/rand/v2"
	"testing"
)

// edges is a graph: the ranks that each rank sends to, in order, with repetitions
// and loops; -1 is nobody.
type edges struct {
	name           string
	sources, dests [][]int
	paired         bool
}

// ring1 is a periodic Cartesian topology of n ranks in one dimension.
func ring1(name string, n int, periodic bool) edges {
	e := edges{name: name, paired: true}
	for r := range n {
		below, above := r-1, r+1
		switch {
		case periodic:
			below, above = (r-1+n)%n, (r+1)%n
		case r == n-1:
			above = -1
		}
		e.sources, e.dests = append(e.sources, []int{below, above}), append(e.dests, []int{below, above})
	}
	return e
}

// randomGraph has up to three edges between any two ranks.
func randomGraph(n int, rng *rand.Rand) edges {
	e := edges{name: "random", sources: make([][]int, n), dests: make([][]int, n)}
	for from := range n {
		for to := range n {
			for range rng.IntN(4) {
				e.dests[from] = append(e.dests[from], to)
				e.sources[to] = append(e.sources[to], from)
			}
		}
	}
	return e
}

// arrival says which of its sender's blocks a rank's i-th one is: in a Cartesian
// topology the one of the other direction, otherwise the one of as many edges
// between the two before it.
func (e *edges) arrival(r, i int) int {
	if e.paired {
		return i ^ 1
	}
	from, nth := e.sources[r][i], 0
	for _, s := range e.sources[r][:i] {
		if s == from {
			nth++
		}
	}
	for k, d := range e.dests[from] {
		if d == r {
			if nth == 0 {
				return k
			}
			nth--
		}
	}
	return -1
}

// counts are how many elements go along each edge, by sender: 3, or any number; in
// a gather the same along all edges of a sender.
func (e *edges) counts(gather, ragged bool, rng *rand.Rand) [][]int {
	n := len(e.dests)
	counts := make([][]int, n)
	for r := range n {
		whole := 3
		if ragged {
			whole = rng.IntN(4)
		}
		for range e.dests[r] {
			if ragged && !gather {
				whole = rng.IntN(4)
			}
			counts[r] = append(counts[r], whole)
		}
	}
	return counts
}

// pose makes the problem of a neighbourhood's operation.
func (e *edges) pose(c Collective, rng *rand.Rand) *problem {
	n := len(e.dests)
	p := &problem{c: c, args: make([]Args, n), bufs: make([][3][]byte, n), want: make([]answer, n)}
	ragged := c == OpNeighborAllgatherv || c == OpNeighborAlltoallv || c == OpNeighborAlltoallw
	gather := c == OpNeighborAllgather || c == OpNeighborAllgatherv
	elem := 8
	if c == OpNeighborAlltoallw {
		elem = 1
	}
	counts := e.counts(gather, ragged, rng)
	a := Args{Elem: elem}
	block := func(r, k int) []byte {
		if gather {
			return values(&a, r, 0, counts[r][k])
		}
		return values(&a, r, 10*k, 10*k+counts[r][k])
	}
	for r := range n {
		p.args[r] = Args{Count: 3, Elem: 8, Sources: e.sources[r], Dests: e.dests[r], Paired: e.paired}
		in := make([]int, len(e.sources[r]))
		for i, from := range e.sources[r] {
			in[i] = 3
			if from >= 0 {
				in[i] = counts[from][e.arrival(r, i)]
			}
		}
		var sd, rd []int
		rsize := 3 * len(in)
		ssize := 3 * len(counts[r])
		if ragged {
			sd, ssize = places(counts[r], rng)
			rd, rsize = places(in, rng)
		}
		switch {
		case gather:
			if ragged {
				p.args[r].Counts, p.args[r].Displs, p.args[r].Count = in, rd, 0
			}
			if len(counts[r]) > 0 {
				p.args[r].Count = counts[r][0]
				p.bufs[r][Send] = block(r, 0)
			}
		default:
			if ragged {
				p.args[r].Counts, p.args[r].Displs, p.args[r].RecvCounts, p.args[r].RecvDispls = counts[r], sd, in, rd
			}
			p.bufs[r][Send] = blank(ssize * elem)
			for k, at := range spots(counts[r], sd) {
				copy(p.bufs[r][Send][at*elem:], block(r, k))
			}
		}
		p.bufs[r][Recv] = blank(rsize * elem)
		p.want[r].recv = bytes.Clone(p.bufs[r][Recv])
		for i, at := range spots(in, rd) {
			if from := e.sources[r][i]; from >= 0 {
				copy(p.want[r].recv[at*elem:], block(from, e.arrival(r, i)))
			}
		}
	}
	return p
}

// TestNeighbors compares the neighbourhood's operations with the model: loops,
// repeated edges, missing neighbours, and Cartesian topologies so narrow that both
// neighbours are the same rank.
func TestNeighbors(t *testing.T) {
	rng := rand.New(rand.NewPCG(4, 4))
	graphs := []edges{
		ring1("ring of 1", 1, true), ring1("ring of 2", 2, true), ring1("ring of 5", 5, true),
		ring1("line of 1", 1, false), ring1("line of 4", 4, false),
		{name: "nobody", sources: make([][]int, 3), dests: make([][]int, 3)},
	}
	for n := 1; n < 12; n++ {
		graphs = append(graphs, randomGraph(n, rng))
	}
	for _, c := range Collectives()[OpNeighborAllgather:] {
		t.Run(c.String(), func(t *testing.T) {
			for _, g := range graphs {
				for range 4 {
					p := g.pose(c, rng)
					if err := p.solve(t, "direct", &shape{}, rng); err != nil {
						t.Fatalf("%s of %d: %v", g.name, len(g.dests), err)
					}
				}
			}
		})
	}
}
