package traffic

import (
	"cmp"
	"slices"
)

// Cut is what a placement makes ranks send from one site to another, and between
// nodes of a site, in bytes.
type Cut struct{ Sites, Nodes uint64 }

func (c Cut) less(d Cut) bool {
	return cmp.Or(cmp.Compare(c.Sites, d.Sites), cmp.Compare(c.Nodes, d.Nodes)) < 0
}

// CutOf adds up what a placement costs: node[rank] is the rank's node, site[node] the
// node's site.
func CutOf(m *Matrix, node, site []int) (c Cut) {
	for i := range m.N {
		for j := range m.N {
			switch a, b := node[i], node[j]; {
			case site[a] != site[b]:
				c.Sites += m.At(i, j)
			case a != b:
				c.Nodes += m.At(i, j)
			}
		}
	}
	return c
}

// Assign looks for a better node for each rank, with as many ranks on each node as
// there are now: first for its site, then for the node within it. It swaps as
// Kernighan and Lin do (Bell System Technical Journal 49, 1970), starting from the
// placement at hand and from one in which ranks follow each other, and never returns
// a worse one.
func Assign(m *Matrix, node, site []int) []int {
	best := slices.Clone(node)
	cost := CutOf(m, best, site)
	for _, start := range [][]int{sitesOf(node, site), inRow(node, site)} {
		newPartition(m, start, slices.Max(site)+1).improve()
		out := settle(node, site, start)
		for s := range slices.Max(site) + 1 {
			var ranks []int
			for i := range out {
				if site[out[i]] == s {
					ranks = append(ranks, i)
				}
			}
			within(m, ranks, out, len(site))
		}
		if c := CutOf(m, out, site); c.less(cost) {
			best, cost = out, c
		}
	}
	return best
}

func sitesOf(node, site []int) (at []int) {
	for _, n := range node {
		at = append(at, site[n])
	}
	return at
}

// inRow is the sites of as many ranks each as there are, one after the other.
func inRow(node, site []int) []int { return slices.Sorted(slices.Values(sitesOf(node, site))) }

// settle gives each rank a node of the site it is to be at, its own where it stays.
func settle(node, site, at []int) []int {
	room := make([]int, len(site))
	for _, n := range node {
		room[n]++
	}
	out := make([]int, len(node))
	for i, n := range node {
		if out[i] = -1; site[n] == at[i] {
			out[i] = n
			room[n]--
		}
	}
	for i := range out {
		for n := 0; out[i] < 0; n++ {
			if site[n] == at[i] && room[n] > 0 {
				out[i] = n
				room[n]--
			}
		}
	}
	return out
}

// within improves the nodes of the ranks of one site.
func within(m *Matrix, ranks, node []int, nodes int) {
	if len(ranks) < 3 {
		return
	}
	sub, at := NewMatrix(len(ranks)), make([]int, len(ranks))
	for i, a := range ranks {
		at[i] = node[a]
		for j, b := range ranks {
			sub.Add(i, j, m.At(a, b))
		}
	}
	newPartition(sub, at, nodes).improve()
	for i, a := range ranks {
		node[a] = at[i]
	}
}

// partition is ranks in parts whose sizes stay.
type partition struct {
	n, parts int
	w        []int64 // both ways, by pair
	at       []int   // part of each rank; the caller's
	to       []int64 // by rank and part: bytes to and from there
	size     []int
	left     int // swaps that improve may still try
}

func newPartition(m *Matrix, at []int, parts int) *partition {
	p := &partition{n: m.N, parts: parts, w: make([]int64, m.N*m.N), at: at, to: make([]int64, m.N*parts), size: make([]int, parts)}
	for i := range m.N {
		p.size[at[i]]++
		for j := range m.N {
			if i != j {
				p.w[i*m.N+j] = int64(m.At(i, j) + m.At(j, i))
				p.to[i*parts+at[j]] += p.w[i*m.N+j]
			}
		}
	}
	return p
}

// gain is what a move of rank i to a part would save by itself.
func (p *partition) gain(i, part int) int64 { return p.to[i*p.parts+part] - p.to[i*p.parts+p.at[i]] }

// swap exchanges two ranks' parts.
func (p *partition) swap(i, j int) {
	a, b := p.at[i], p.at[j]
	for k := range p.n {
		d := p.w[k*p.n+j] - p.w[k*p.n+i]
		p.to[k*p.parts+a] += d
		p.to[k*p.parts+b] -= d
	}
	p.at[i], p.at[j] = b, a
}

// Bounds of the search: passes over all pairs of parts, candidates of each part for
// one swap, and swaps of a pass that may at first cost something.
const (
	passes     = 8
	candidates = 12
	maxSwaps   = 256
	work       = 2e8 // ranks looked at, in all; a swap looks at all of them
)

func (p *partition) improve() {
	p.left = int(work) / max(p.n, 1)
	for range passes {
		better := false
		for a := range p.parts {
			for b := a + 1; b < p.parts; b++ {
				better = p.pass(a, b) || better
			}
		}
		if !better {
			return
		}
	}
}

// pass swaps ranks of two parts one after the other, the best pair first, even at a
// loss, and undoes what came after the best moment.
func (p *partition) pass(a, b int) bool {
	most := min(p.size[a], p.size[b], maxSwaps, p.left)
	if most <= 0 {
		return false
	}
	p.left -= most
	var done [][2]int
	var sum, best int64
	keep := 0
	fixed := make([]bool, p.n)
	for len(done) < most {
		i, j, gain := p.choose(a, b, fixed)
		if i < 0 {
			break
		}
		p.swap(i, j)
		fixed[i], fixed[j] = true, true
		done = append(done, [2]int{i, j})
		if sum += gain; sum > best {
			best, keep = sum, len(done)
		}
	}
	for _, d := range slices.Backward(done[keep:]) {
		p.swap(d[0], d[1])
	}
	return keep > 0
}

// choose returns the two ranks whose swap saves most.
func (p *partition) choose(a, b int, fixed []bool) (i, j int, gain int64) {
	from, to := p.first(a, b, fixed), p.first(b, a, fixed)
	i, j = -1, -1
	for _, x := range from {
		for _, y := range to {
			g := p.gain(x, b) + p.gain(y, a) - 2*p.w[x*p.n+y]
			if i < 0 || g > gain {
				i, j, gain = x, y, g
			}
		}
	}
	return i, j, gain
}

// first are the ranks of a part that gain most by going to another.
func (p *partition) first(part, to int, fixed []bool) (list []int) {
	for i := range p.n {
		if p.at[i] != part || fixed[i] {
			continue
		}
		at, _ := slices.BinarySearchFunc(list, i, func(x, y int) int {
			return cmp.Or(cmp.Compare(p.gain(y, to), p.gain(x, to)), cmp.Compare(x, y))
		})
		if at < candidates {
			list = slices.Insert(list, at, i)[:min(len(list)+1, candidates)]
		}
	}
	return list
}
