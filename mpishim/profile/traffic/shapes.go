package traffic

import (
	"fmt"
	"math/bits"
	"strconv"
	"strings"
)

// like reports whether the heavy edges are those of a pattern: all of them may be in
// it, either way, and most of it is there.
func like(edges []edge, want map[[2]int]bool) bool {
	if len(want) == 0 {
		return false
	}
	found := map[[2]int]bool{}
	for _, e := range edges {
		k := pair(e.from, e.to)
		if !want[k] {
			return false
		}
		found[k] = true
	}
	return float64(len(found)) >= present*float64(len(want))
}

// pair is two ranks in either order.
func pair(a, b int) [2]int { return [2]int{min(a, b), max(a, b)} }

// link adds the pair unless it is one rank.
func link(set map[[2]int]bool, a, b int) {
	if a != b {
		set[pair(a, b)] = true
	}
}

func ring(s Sample, edges []edge) (Pattern, bool) {
	n := s.Bytes.N
	want := map[[2]int]bool{}
	for i := range n {
		link(want, i, (i+1)%n)
	}
	if !like(edges, want) || !closed(edges, n) {
		return Pattern{}, false
	}
	way := "both ways"
	if up := upwards(edges, n); up > 0.95 || up < 0.05 {
		way = "one way"
	}
	return Pattern{Name: Ring, Why: fmt.Sprintf("every rank sends to the next, the last to the first, %s", way)}, true
}

// closed reports whether the last rank and the first exchange.
func closed(edges []edge, n int) bool {
	for _, e := range edges {
		if pair(e.from, e.to) == pair(0, n-1) {
			return true
		}
	}
	return false
}

// upwards is the share of bytes that goes to the next rank of a ring.
func upwards(edges []edge, n int) float64 {
	var up, all uint64
	for _, e := range edges {
		if all += e.bytes; e.to == (e.from+1)%n {
			up += e.bytes
		}
	}
	return float64(up) / float64(max(all, 1))
}

// btsp is the multipartition scheme of NAS BT and SP: each rank of a torus has a
// predecessor and a successor in each of three directions.
func btsp(s Sample, edges []edge) (Pattern, bool) {
	q := 0
	for (q+1)*(q+1) <= s.Bytes.N {
		q++
	}
	if q < 3 || q*q != s.Bytes.N {
		return Pattern{}, false
	}
	want := map[[2]int]bool{}
	for i := range q {
		for j := range q {
			at := i + q*j
			link(want, at, (i+1)%q+q*j)
			link(want, at, i+q*((j+1)%q))
			link(want, at, (i+q-1)%q+q*((j+1)%q))
		}
	}
	if !like(edges, want) {
		return Pattern{}, false
	}
	return Pattern{BTSP, "bt", fmt.Sprintf("%d×%d ranks, each exchanges along rows, columns and a diagonal of a torus, as in NAS BT and SP", q, q)}, true
}

// cg is NAS CG: sums over the ranks of a row by halves, and a transposition.
func cg(s Sample, edges []edge) (Pattern, bool) {
	n := s.Bytes.N
	if n < 8 || n&(n-1) != 0 {
		return Pattern{}, false
	}
	log := bits.Len(uint(n)) - 1
	rows := 1 << (log / 2)
	cols := n / rows // rows, or twice as many
	want := map[[2]int]bool{}
	for me := range n {
		for d := 1; d < cols; d *= 2 {
			link(want, me, me/cols*cols+(me%cols^d))
		}
		if rows == cols {
			link(want, me, me%rows*rows+me/rows)
		} else {
			link(want, me, 2*(me/2%rows*rows+me/2/rows)+me%2)
		}
	}
	if !like(edges, want) {
		return Pattern{}, false
	}
	return Pattern{CG, "cg", fmt.Sprintf("%d×%d ranks, sums over rows by halves and a transposition, as in NAS CG", rows, cols)}, true
}

// grids looks for a line, a grid or a torus, with the fewest dimensions.
func grids(s Sample, edges []edge) (Pattern, bool) {
	for _, dims := range factors(s.Bytes.N) {
		for open := range 1 << len(dims) { // bit i: dimension i is a ring
			around := make([]bool, len(dims))
			useful := true
			for i := range dims {
				around[i] = open>>i&1 == 1
				useful = useful && (!around[i] || dims[i] > 2)
			}
			if useful && like(edges, grid(dims, around)) {
				return s.onGrid(edges, dims, around), true
			}
		}
	}
	return Pattern{}, false
}

// factors are the ways to write n as a product of one to three factors above 1.
func factors(n int) (list [][]int) {
	list = append(list, []int{n})
	for a := 2; a <= n/2; a++ {
		if n%a == 0 {
			list = append(list, []int{a, n / a})
		}
	}
	for a := 2; a <= n/4; a++ {
		for b := 2; n%a == 0 && b <= n/a/2; b++ {
			if n/a%b == 0 {
				list = append(list, []int{a, b, n / a / b})
			}
		}
	}
	return list
}

// grid is who lies beside whom, ranks counted as MPI_Cart_create does.
func grid(dims []int, around []bool) map[[2]int]bool {
	set := map[[2]int]bool{}
	n, stride := 1, make([]int, len(dims))
	for d := len(dims) - 1; d >= 0; d-- {
		stride[d] = n
		n *= dims[d]
	}
	for at := range n {
		for d := range dims {
			x := at / stride[d] % dims[d]
			switch {
			case x+1 < dims[d]:
				link(set, at, at+stride[d])
			case around[d]:
				link(set, at, at-x*stride[d])
			}
		}
	}
	return set
}

// onGrid tells sweeps from exchanges.
func (s Sample) onGrid(edges []edge, dims []int, around []bool) Pattern {
	what := shapeOf(dims, around)
	var up, all uint64
	for _, e := range edges {
		if all += e.bytes; e.to > e.from {
			up += e.bytes
		}
	}
	open := !strings.Contains(what, "torus")
	way := float64(up) / float64(max(all, 1))
	mean := s.InThem / max(s.Messages, 1)
	switch {
	case open && (way > 0.95 || way < 0.05):
		return Pattern{LU, "lu", what + ", and data go one way, as in a pipeline"}
	case open && mean <= fineBytes && s.Messages >= uint64(fineCount*len(edges)):
		return Pattern{LU, "lu", fmt.Sprintf("%s, in %d messages of %d bytes on average, as in the sweeps of NAS LU", what, s.Messages, mean)}
	}
	return Pattern{Name: Halo, Why: what + ", and neighbours exchange"}
}

func shapeOf(dims []int, around []bool) string {
	var b strings.Builder
	torus := false
	for i, d := range dims {
		if i > 0 {
			b.WriteString("×")
		}
		b.WriteString(strconv.Itoa(d))
		torus = torus || around[i]
	}
	switch {
	case len(dims) == 1:
		return "ranks lie on a line"
	case torus:
		return "ranks lie on a torus of " + b.String()
	}
	return "ranks lie on a grid of " + b.String()
}
