package traffic

import (
	"fmt"

	"github.com/meshmpi/meshmpi/mpishim/profile/record"
)

// Sample is what a job has done, as far as its pattern can be told from it.
type Sample struct {
	Bytes    *Matrix
	Messages uint64 // point to point, between different ranks
	InThem   uint64 // bytes in them
	Ops      [record.Ops]record.Calls
}

// Pattern is how a job's ranks communicate.
type Pattern struct {
	Name string `json:"name"`
	Flag string `json:"flag,omitempty"` // the value of meshrun --pattern; "": it has none for this
	Why  string `json:"why"`            // in a sentence
}

// Names of patterns.
const (
	Silent    = "none"
	Pair      = "pair"
	Reduction = "reductions"
	Master    = "master-worker"
	AllToAll  = "all-to-all"
	FT        = "FT"
	IS        = "IS"
	Ring      = "ring"
	BTSP      = "BT/SP"
	LU        = "LU"
	CG        = "CG"
	Halo      = "halo"
	Neighbors = "neighbours"
	Irregular = "irregular"
)

// From where on a rule holds, as shares.
const (
	mostly  = 0.9 // of bytes that fit the rule
	present = 0.8 // of a pattern's edges that are heavy
	dense   = 0.9 // of all pairs that are heavy
	reduced = 0.6 // of bytes in reductions
)

// Fine-grained: NAS LU's sweeps send a few hundred bytes to a few KB a plane, by the
// tens of thousands.
const (
	fineBytes = 4096
	fineCount = 1000 // messages for each heavy edge
)

// Name tells the pattern. The first of these rules that holds counts.
//
//	none           nothing is sent
//	pair           there are two ranks
//	reductions     Reduce, Allreduce, Reduce_scatter and Scan move 60 % of all bytes
//	BT/SP          q² ranks, q ≥ 3, on a torus: rows, columns and one diagonal
//	master-worker  one rank sends or gets 90 % of all bytes, and deals with 60 % of the others
//	all-to-all     90 % of all pairs are heavy, or used and 90 % by Alltoall and its kind; FT if it is by Alltoall with a reduction
//	               for every second one at least, IS if it is by Alltoallv and Allreduce
//	ring           each rank to the next or to both beside it, the last to the first
//	CG             2^k ranks, k ≥ 3: NAS CG's sums over rows and its transposition
//	LU             ranks on a line or grid that is open, one way or in many small messages
//	halo           ranks on a line, grid or torus of up to three dimensions
//	neighbours     at most half of the pairs are heavy, both ways
//	irregular      none of these
func Name(s Sample) Pattern {
	m := s.Bytes
	total := m.Total()
	switch {
	case total == 0 || m.N < 2:
		return Pattern{Name: Silent, Why: "no rank sends another anything"}
	case m.N == 2:
		return Pattern{Name: Pair, Why: "there are two ranks"}
	}
	if p, ok := s.reductions(total); ok {
		return p
	}
	edges := m.heavy()
	for _, rule := range []func(Sample, []edge) (Pattern, bool){btsp, master, allToAll, ring, cg, grids, neighbors} {
		if p, ok := rule(s, edges); ok {
			return p
		}
	}
	return Pattern{Name: Irregular, Why: fmt.Sprintf("%d of %d pairs carry 90 %% of all bytes, in no order that is known", len(edges), m.N*(m.N-1))}
}

// by returns the share of all bytes that operations have moved.
func (s Sample) by(ops ...record.Op) float64 {
	var sum, of uint64
	for _, c := range s.Ops {
		sum += c.Bytes
	}
	for _, o := range ops {
		of += s.Ops[o].Bytes
	}
	if sum == 0 {
		return 0
	}
	return float64(of) / float64(sum)
}

func (s Sample) reductions(uint64) (Pattern, bool) {
	share := s.by(record.Reduce, record.Allreduce, record.ReduceScatter, record.Scan)
	if share < reduced {
		return Pattern{}, false
	}
	return Pattern{Name: Reduction, Why: fmt.Sprintf("reductions move %s of all bytes", percent(share))}, true
}

func percent(share float64) string { return fmt.Sprintf("%.0f %%", 100*share) }

// allToAll looks how much of the matrix is filled, and by which calls.
func allToAll(s Sample, edges []edge) (Pattern, bool) {
	pairs := s.Bytes.N * (s.Bytes.N - 1)
	plain, v, w := s.by(record.Alltoall), s.by(record.Alltoallv), s.by(record.Alltoallw)
	filled := fmt.Sprintf("%d of %d pairs are heavy", len(edges), pairs)
	if float64(len(edges)) < dense*float64(pairs) {
		used := s.Bytes.used()
		if plain+v+w < mostly || float64(used) < dense*float64(pairs) {
			return Pattern{}, false
		}
		filled = fmt.Sprintf("%d of %d pairs send, of sizes that differ", used, pairs)
	}
	p := Pattern{Name: AllToAll, Flag: "alltoall"}
	sums := s.Ops[record.Allreduce].Calls + s.Ops[record.Reduce].Calls
	switch {
	case v >= 0.5 && s.Ops[record.Allreduce].Calls > 0:
		p = Pattern{IS, "is", fmt.Sprintf("%s, %s of the bytes by Alltoallv between calls of Allreduce, as in NAS IS", filled, percent(v))}
	case plain >= mostly && 2*sums >= s.Ops[record.Alltoall].Calls:
		p = Pattern{FT, "ft", fmt.Sprintf("%s, %s of the bytes by Alltoall with a reduction for each, as in NAS FT", filled, percent(plain))}
	case plain+v+w >= 0.5:
		p.Why = fmt.Sprintf("%s, %s of the bytes by Alltoall and its kind", filled, percent(plain+v+w))
	default:
		p.Why = fmt.Sprintf("%s, %s of the bytes in messages", filled, percent(s.by(record.Send, record.Isend, record.Sendrecv, record.Start)))
	}
	return p, true
}

// master looks for one rank that all deal with. Three ranks in a line are no master
// and two workers unless the first is the one.
func master(s Sample, edges []edge) (Pattern, bool) {
	m := s.Bytes
	sum, total := make([]uint64, m.N), uint64(0)
	for i := range m.N {
		for j := range m.N {
			if n := m.At(i, j); i != j {
				sum[i] += n
				sum[j] += n
				total += n
			}
		}
	}
	hub := 0
	for i := range sum {
		if sum[i] > sum[hub] {
			hub = i
		}
	}
	if float64(sum[hub]) < mostly*float64(total) || m.N == 3 && hub != 0 {
		return Pattern{}, false
	}
	partners := map[int]bool{}
	for _, e := range edges {
		if e.from == hub || e.to == hub {
			partners[e.from+e.to-hub] = true
		}
	}
	if len(partners) < 2 || 5*len(partners) < 3*(m.N-1) {
		return Pattern{}, false
	}
	return Pattern{Name: Master, Why: fmt.Sprintf("rank %d sends or gets %s of all bytes, with %d others", hub, percent(float64(sum[hub])/float64(total)), len(partners))}, true
}

// neighbors is for what has few partners each and no grid.
func neighbors(s Sample, edges []edge) (Pattern, bool) {
	n := s.Bytes.N
	set := setOf(edges)
	both := 0
	for e := range set {
		if set[[2]int{e[1], e[0]}] {
			both++
		}
	}
	if float64(both) < present*float64(len(edges)) || 2*len(edges) > n*(n-1) {
		return Pattern{}, false
	}
	return Pattern{Name: Neighbors, Why: fmt.Sprintf("each rank exchanges with %.1f others on average, on no grid that is known", float64(len(edges))/float64(n))}, true
}

func setOf(edges []edge) map[[2]int]bool {
	set := make(map[[2]int]bool, len(edges))
	for _, e := range edges {
		set[[2]int{e.from, e.to}] = true
	}
	return set
}
