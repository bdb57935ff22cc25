package coll

import (
	"fmt"
	"time"
)

// WAN describes the lines between sites: each site has one, as fast up as down,
// which its ranks share.
type WAN struct {
	Latency   time.Duration // one way
	Bandwidth float64       // bytes per second
}

// Crossing is what has to cross between sites in one collective operation, however
// it is done, if it is to cost one latency.
type Crossing struct {
	Latencies int       // 0 where nothing crosses, otherwise 1
	Bytes     [][]int64 // from site to site; sites in the order of their first ranks
	Formula   string    // of Bytes, for people
}

// Minimal says what has to cross between sites for an operation on this topology.
// An operation that combines is taken to commute, or the ranks of each site to be
// consecutive.
//
// With n_s ranks at site s and N in all, and m = Count*Elem bytes, site s has to
// send to each other site t:
//
//	barrier                        0
//	bcast                          m          where the root is at s
//	scatter                        n_t m      where the root is at s
//	reduce                         m          where the root is at t
//	gather                         n_s m      where the root is at t
//	allreduce                      m
//	reduce_scatter_block           n_t m
//	allgather                      n_s m
//	alltoall                       n_s n_t m
//	scan, exscan                   r m        s has r runs that are followed by one of t's
//
// where a run is consecutive ranks of a site, whose results a scan needs apart.
// For the other operations, where ranks differ in their counts, it returns nothing.
func Minimal(c Collective, t *Topo, a Args) Crossing {
	l := bySite(t)
	rule, formula := crossingRule(c, l, &a)
	x := Crossing{Bytes: make([][]int64, l.nsites()), Formula: formula}
	for s := range x.Bytes {
		x.Bytes[s] = make([]int64, l.nsites())
		for d := range x.Bytes[s] {
			if s != d && rule != nil {
				x.Bytes[s][d] = int64(rule(s, d)) * int64(a.bytes())
				x.Latencies = 1
			}
		}
	}
	return x
}

// crossingRule returns how many times m bytes go from one site to another.
func crossingRule(c Collective, l *layout, a *Args) (rule func(s, d int) int, formula string) {
	n := func(s int) int { return l.sites[s+1] - l.sites[s] }
	root, _ := l.siteOf(a.Root)
	when := func(yes bool, k int) int {
		if yes {
			return k
		}
		return 0
	}
	switch c {
	case OpBarrier:
		return func(int, int) int { return 0 }, "0"
	case OpBcast:
		return func(s, _ int) int { return when(s == root, 1) }, "m from the root's site"
	case OpScatter:
		return func(s, d int) int { return when(s == root, n(d)) }, "n_t m from the root's site"
	case OpReduce:
		return func(_, d int) int { return when(d == root, 1) }, "m to the root's site"
	case OpGather:
		return func(s, d int) int { return when(d == root, n(s)) }, "n_s m to the root's site"
	case OpAllreduce:
		return func(int, int) int { return 1 }, "m"
	case OpReduceScatterBlock:
		return func(_, d int) int { return n(d) }, "n_t m"
	case OpAllgather:
		return func(s, _ int) int { return n(s) }, "n_s m"
	case OpAlltoall:
		return func(s, d int) int { return n(s) * n(d) }, "n_s n_t m"
	case OpScan, OpExscan:
		rs, _ := l.runs(false)
		return func(s, d int) (n int) {
			for i, r := range rs {
				n += when(r.site == s && needs(rs, i, d), 1)
			}
			return n
		}, "m for each run to sites with a later run"
	}
	return nil, ""
}

// Bound is the least time that an operation takes between sites: one latency, and
// the busiest site's bytes, up or down, on its line. What goes on inside sites is
// taken to cost nothing.
func Bound(c Collective, t *Topo, a Args, w WAN) time.Duration {
	x := Minimal(c, t, a)
	var busiest int64
	for s := range x.Bytes {
		var up, down int64
		for d := range x.Bytes {
			up += x.Bytes[s][d]
			down += x.Bytes[d][s]
		}
		busiest = max(busiest, up, down)
	}
	return time.Duration(x.Latencies)*w.Latency + time.Duration(float64(busiest)/w.Bandwidth*float64(time.Second))
}

// String tells the bound's formula.
func (x Crossing) String() string {
	if x.Latencies == 0 {
		return "nothing between sites"
	}
	return fmt.Sprintf("latency + max over sites of (sum of %s) / B", x.Formula)
}
