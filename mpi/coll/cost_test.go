package coll

import (
	"fmt"
	"strings"
	"testing"
)

// sited is a topology with every rank on a host of its own.
func sited(name string, n int, site func(r int) int) shape {
	s := shape{name: name}
	for r := range n {
		s.host, s.site = append(s.host, int32(r)), append(s.site, int32(site(r)))
	}
	return s
}

func sites() []shape {
	return []shape{
		sited("4+4", 8, func(r int) int { return r / 4 }),
		sited("4+4 interleaved", 8, func(r int) int { return r % 2 }),
		sited("1+7", 8, func(r int) int { return min(r, 1) }),
		sited("3+3+3", 9, func(r int) int { return r / 3 }),
		sited("2+4+3 interleaved", 9, func(r int) int { return []int{0, 1, 1, 2, 1, 0, 2, 1, 2}[r] }),
	}
}

// bounded are the operations that have a bound. Sizes are of a rank's buffer in
// bcast, reduce, allreduce, scan and exscan; of what each rank gives or gets in
// gather, scatter, allgather and reduce_scatter_block; and in alltoall of what each
// rank has for each other one.
func bounded() []Collective {
	return []Collective{OpBarrier, OpBcast, OpReduce, OpAllreduce, OpAllgather, OpAlltoall, OpGather, OpScatter, OpReduceScatterBlock, OpScan, OpExscan}
}

// TestBound compares the chosen algorithms with what has to be: time within 1.25
// of one latency and the least bytes, and those bytes exactly. It prints the table
// of both.
func TestBound(t *testing.T) {
	var table strings.Builder
	for _, s := range sites() {
		fmt.Fprintf(&table, "\n%s\n%-21s %8s  %-10s %11s %11s %6s  least bytes from site s to t\n", s.name, "collective", "m bytes", "algorithm", "ms", "bound ms", "ratio")
		for _, c := range bounded() {
			for _, m := range []int{1, 64 << 10, 4 << 20} {
				table.WriteString(checkBound(t, c, &s, m, true, wide(), 1.25))
			}
		}
	}
	t.Log(table.String())
}

// TestBoundAsking is TestBound for the operations that the benchmark times, where
// messages above 256 KiB are not sent before the receiver has asked for them: the
// algorithms may need none that costs an answer's time again.
func TestBoundAsking(t *testing.T) {
	n := wide()
	n.eager = 256 << 10
	for _, s := range sites() {
		for _, c := range bounded()[:6] {
			for _, m := range []int{1, 64 << 10, 256 << 10, 512 << 10, 1 << 20, 4 << 20} {
				checkBound(t, c, &s, m, true, n, 1.25)
			}
		}
	}
}

// TestBoundOrdered is TestBound for operations that do not commute: where the ranks of
// a site are consecutive that may cost nothing.
func TestBoundOrdered(t *testing.T) {
	for _, s := range []shape{sites()[0], sites()[2], sites()[3]} {
		for _, c := range bounded() {
			if _, combines, _ := kinds(c); combines {
				for _, m := range []int{1, 64 << 10, 4 << 20} {
					checkBound(t, c, &s, m, false, wide(), 1.25)
				}
			}
		}
	}
}

// TestOverlap is TestBound where a site's line is a fifth of a rank's: work inside
// sites has to overlap.
func TestOverlap(t *testing.T) {
	n := wide()
	n.wan = 1e9 / 8
	for _, s := range sites()[:2] {
		for _, c := range []Collective{OpBcast, OpReduce, OpAllreduce, OpAllgather} {
			checkBound(t, c, &s, 16<<20, true, n, 1.1)
		}
	}
}

// checkBound runs an operation in the model of time and returns the table's line.
func checkBound(t *testing.T, c Collective, s *shape, m int, commutes bool, n network, times float64) string {
	t.Helper()
	size := len(s.site)
	a := Args{Count: m, Elem: 1, Commutes: commutes, Root: 1}
	scheds := build(t, c, "", s, size, func(int) Args { return a })
	got, crossed := elapsed(t, n, s.topo(0, size), scheds)
	want := Bound(c, s.topo(0, size), a, n.bound()).Seconds()
	least := Minimal(c, s.topo(0, size), a)
	line := fmt.Sprintf("%-21s %8d  %-10s %11.3f %11.3f %6.3f  %s\n", c, m, scheds[0].Name, got*1e3, want*1e3, got/want, least.Formula)
	if got > times*want {
		t.Errorf("%s, more than %g times the bound: %s", s.name, times, line)
	}
	for x := range crossed {
		for y := range crossed {
			if crossed[x][y] != least.Bytes[x][y] {
				t.Errorf("%s: %d bytes go from site %d to %d, %d need to: %s", s.name, crossed[x][y], x, y, least.Bytes[x][y], line)
			}
		}
	}
	return line
}
