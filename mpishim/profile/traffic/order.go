package traffic

import "slices"

// orderWork bounds the search for an order, in steps of its innermost loop.
const orderWork = 20_000_000

// Order looks for an order of the nodes in which consecutive ranks, slots[node] of
// them on each, cross less from site to site: that is what meshrun -H can say. The
// order at hand is 0, 1, 2, …; it is returned where none is better.
func Order(m *Matrix, slots, site []int) []int {
	sum := prefix(m)
	best := make([]int, len(slots))
	for i := range best {
		best[i] = i
	}
	cost := sum.cut(best, slots, site)
	steps := orderWork / (len(slots)*len(slots) + 1)
	for _, start := range [][]int{bySite(site), best} {
		order := slices.Clone(start)
		c := sum.climb(order, slots, site, steps/2)
		if c.less(cost) {
			best, cost = order, c
		}
	}
	return best
}

// bySite is the nodes of each site together, the sites as they come first.
func bySite(site []int) (order []int) {
	var seen []int
	for _, s := range site {
		if slices.Contains(seen, s) {
			continue
		}
		seen = append(seen, s)
		for n := range site {
			if site[n] == s {
				order = append(order, n)
			}
		}
	}
	return order
}

// Placed returns each rank's node in such an order.
func Placed(order, slots []int) (node []int) {
	for _, n := range order {
		for range slots[n] {
			node = append(node, n)
		}
	}
	return node
}

// sums are those of all rectangles of a matrix that begin at 0, 0.
type sums struct {
	n int
	v []uint64
}

func prefix(m *Matrix) *sums {
	s := &sums{m.N + 1, make([]uint64, (m.N+1)*(m.N+1))}
	for i := range m.N {
		var row uint64
		for j := range m.N {
			row += m.At(i, j)
			s.v[(i+1)*s.n+j+1] = s.v[i*s.n+j+1] + row
		}
	}
	return s
}

// between is what ranks [a, b) send to ranks [c, d).
func (s *sums) between(a, b, c, d int) uint64 {
	return s.v[b*s.n+d] - s.v[a*s.n+d] - s.v[b*s.n+c] + s.v[a*s.n+c]
}

func (s *sums) cut(order, slots, site []int) (c Cut) {
	from := make([]int, len(order)+1)
	for i, n := range order {
		from[i+1] = from[i] + slots[n]
	}
	for i, a := range order {
		for j, b := range order {
			switch n := s.between(from[i], from[i+1], from[j], from[j+1]); {
			case site[a] != site[b]:
				c.Sites += n
			case i != j:
				c.Nodes += n
			}
		}
	}
	return c
}

// climb swaps two nodes as long as that helps.
func (s *sums) climb(order, slots, site []int, steps int) Cut {
	cost := s.cut(order, slots, site)
	for better := true; better; {
		better = false
		for i := range order {
			for j := i + 1; j < len(order); j++ {
				if steps--; steps < 0 {
					return cost
				}
				order[i], order[j] = order[j], order[i]
				if c := s.cut(order, slots, site); c.less(cost) {
					cost, better = c, true
				} else {
					order[i], order[j] = order[j], order[i]
				}
			}
		}
	}
	return cost
}
