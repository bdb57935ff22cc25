package coll

import (
	"math/bits"
	"testing"
)

// TestTree: for all layouts and roots, every rank has the parent that has it as a
// child, subtrees are intervals, one edge leads to each other site, and inside a
// site no rank is deeper than quartering hosts and then halving ranks allows.
func TestTree(t *testing.T) {
	for n := 1; n <= 17; n++ {
		for _, s := range shapes(n) {
			topo := s.topo(0, n)
			for _, l := range []*layout{flat(topo), bySite(topo), byRank(topo)} {
				for root := range n {
					checkTree(t, s.name, l, n, root)
				}
			}
		}
	}
}

func checkTree(t *testing.T, name string, l *layout, n, root int) {
	t.Helper()
	trees := make([]tree, n)
	for p := range n {
		trees[p] = l.tree(0, n, root, p)
	}
	parents := make([]int, n)
	for p := range parents {
		parents[p] = -1
	}
	crossing := 0
	for p, tr := range trees {
		covered := 1
		for _, k := range tr.kids {
			child := l.pos[k.rank]
			parents[child] = l.order[p]
			if got := trees[child]; got.lo != k.lo || got.hi != k.hi || child < k.lo || child >= k.hi {
				t.Fatalf("%s, root %d: child %d of %d covers [%d, %d), its parent thinks [%d, %d)", name, root, child, p, got.lo, got.hi, k.lo, k.hi)
			}
			covered += k.hi - k.lo
			if within(l.sites, p) != within(l.sites, child) {
				crossing++
				if p != root {
					t.Fatalf("%s, root %d: %d leads to another site", name, root, p)
				}
			}
		}
		if covered != tr.hi-tr.lo {
			t.Fatalf("%s, root %d: %d and its children cover %d of [%d, %d)", name, root, p, covered, tr.lo, tr.hi)
		}
	}
	if crossing != l.nsites()-1 {
		t.Fatalf("%s, root %d: %d edges between %d sites", name, root, crossing, l.nsites())
	}
	for p, tr := range trees {
		if tr.parent != parents[p] || (tr.parent < 0) != (p == root) {
			t.Fatalf("%s, root %d: parent of %d is %d, want %d", name, root, p, tr.parent, parents[p])
		}
		depth := 0
		for q := p; trees[q].parent >= 0 && within(l.sites, l.pos[trees[q].parent]) == within(l.sites, p); q = l.pos[trees[q].parent] {
			depth++
		}
		most := (log2(len(l.hosts)-1)+1)/2 + log2(n)
		if l.wide {
			most = (log2(len(l.hosts)-1)+1)/2 + 1
		}
		if depth > most {
			t.Fatalf("%s, root %d: %d is at depth %d, more than %d", name, root, p, depth, most)
		}
	}
}

func log2(n int) int { return bits.Len(uint(max(n, 1) - 1)) }
