package mpi

import (
	"math"
	"slices"

	"github.com/meshmpi/meshmpi/mpi/internal/engine"
)

// Group is an ordered set of processes (MPI 4.1 §7.3). It is immutable and
// needs no freeing. The zero Group is empty, and so is a nil one.
type Group struct {
	procs []engine.Proc
	self  engine.Proc // whose Rank it tells
}

// Comparison is how two groups or communicators relate (MPI 4.1 §7.3.1, §7.4.1).
type Comparison int

// Results of comparing.
const (
	Unequal   Comparison = iota // different members
	Similar                     // the same members in another order
	Congruent                   // communicators: the same group, another context
	Ident                       // the same
)

// String returns the comparison's name.
func (c Comparison) String() string {
	return [...]string{"unequal", "similar", "congruent", "ident"}[c]
}

// Undefined is the rank of a process in a group it is not in, and the color of
// one that wants no part in a Split.
const Undefined = -32766

// Size returns how many processes are in the group.
func (g *Group) Size() int { return len(g.members()) }

// members are the group's processes.
func (g *Group) members() []engine.Proc {
	if g == nil {
		return nil
	}
	return g.procs
}

// Rank returns the caller's rank in the group, or Undefined.
func (g *Group) Rank() int {
	if g == nil {
		return Undefined
	}
	return g.rankOf(g.self)
}

func (g *Group) rankOf(p engine.Proc) int {
	if i := slices.Index(g.procs, p); i >= 0 {
		return i
	}
	return Undefined
}

// with is a group of other processes, of the same caller.
func (g *Group) with(procs []engine.Proc) *Group {
	if g == nil {
		return &Group{procs: procs}
	}
	return &Group{procs: procs, self: g.self}
}

// Translate returns the ranks in other of the processes that have the given
// ranks here: Undefined for those not in other; ProcNull stays ProcNull.
func (g *Group) Translate(ranks []int, other *Group) ([]int, error) {
	out := make([]int, len(ranks))
	index := other.index()
	for i, r := range ranks {
		if r == ProcNull {
			out[i] = ProcNull
			continue
		}
		if r < 0 || r >= g.Size() {
			return nil, fail("Translate", ErrRank, "rank %d of a group of %d", r, g.Size())
		}
		if j, ok := index[g.procs[r]]; ok {
			out[i] = j
		} else {
			out[i] = Undefined
		}
	}
	return out, nil
}

func (g *Group) index() map[engine.Proc]int {
	m := make(map[engine.Proc]int, g.Size())
	for i, p := range g.members() {
		m[p] = i
	}
	return m
}

// Compare returns Ident, Similar or Unequal.
func (g *Group) Compare(other *Group) Comparison {
	if slices.Equal(g.members(), other.members()) {
		return Ident
	}
	a, b := slices.Clone(g.members()), slices.Clone(other.members())
	slices.Sort(a)
	slices.Sort(b)
	if slices.Equal(a, b) {
		return Similar
	}
	return Unequal
}

// Union returns the processes of g, followed by those only in other.
func (g *Group) Union(other *Group) *Group {
	in, out := g.index(), slices.Clone(g.members())
	for _, p := range other.members() {
		if _, ok := in[p]; !ok {
			out = append(out, p)
		}
	}
	if g.Size() == 0 {
		return other.with(out) // the zero Group does not know who asks
	}
	return g.with(out)
}

// Intersection returns the processes of g that are in other too, in g's order.
func (g *Group) Intersection(other *Group) *Group { return g.filter(other.index(), true) }

// Difference returns the processes of g that are not in other, in g's order.
func (g *Group) Difference(other *Group) *Group { return g.filter(other.index(), false) }

func (g *Group) filter(in map[engine.Proc]int, want bool) *Group {
	var out []engine.Proc
	for _, p := range g.members() {
		if _, ok := in[p]; ok == want {
			out = append(out, p)
		}
	}
	return g.with(out)
}

// Incl returns the processes with the given ranks, in that order.
func (g *Group) Incl(ranks ...int) (*Group, error) {
	if err := g.distinct("Incl", ranks); err != nil {
		return nil, err
	}
	out := make([]engine.Proc, len(ranks))
	for i, r := range ranks {
		out[i] = g.procs[r]
	}
	return g.with(out), nil
}

// Excl returns the processes without those of the given ranks.
func (g *Group) Excl(ranks ...int) (*Group, error) {
	if err := g.distinct("Excl", ranks); err != nil {
		return nil, err
	}
	var out []engine.Proc
	for i, p := range g.members() {
		if !slices.Contains(ranks, i) {
			out = append(out, p)
		}
	}
	return g.with(out), nil
}

// Range is the ranks First, First+Stride … up to Last, which is included
// (MPI 4.1 §7.3.2). A negative stride counts down.
type Range struct{ First, Last, Stride int }

// ranks returns those of a range, which must be below size.
func (r Range) ranks(op string, size int) ([]int, error) {
	if r.Stride == 0 {
		return nil, fail(op, ErrArg, "a stride of 0")
	}
	const far = math.MaxInt / 2 // farther than any rank; sums of two do not overflow
	first, last, stride := max(min(r.First, far), -far), max(min(r.Last, far), -far), max(min(r.Stride, far), -far)
	var out []int
	for i := first; stride > 0 && i <= last || stride < 0 && i >= last; i += stride {
		if i < 0 || i >= size {
			return nil, fail(op, ErrRank, "ranks %d to %d by %d of a group of %d", r.First, r.Last, r.Stride, size)
		}
		out = append(out, i)
	}
	return out, nil
}

func (g *Group) expand(op string, ranges []Range) ([]int, error) {
	var all []int
	for _, r := range ranges {
		ranks, err := r.ranks(op, g.Size())
		if err != nil {
			return nil, err
		}
		all = append(all, ranks...)
	}
	return all, nil
}

// RangeIncl is Incl of all ranks of the ranges.
func (g *Group) RangeIncl(ranges ...Range) (*Group, error) {
	ranks, err := g.expand("RangeIncl", ranges)
	if err != nil {
		return nil, err
	}
	return g.Incl(ranks...)
}

// RangeExcl is Excl of all ranks of the ranges.
func (g *Group) RangeExcl(ranges ...Range) (*Group, error) {
	ranks, err := g.expand("RangeExcl", ranges)
	if err != nil {
		return nil, err
	}
	return g.Excl(ranks...)
}

func (g *Group) distinct(op string, ranks []int) error {
	seen := make(map[int]bool, len(ranks))
	for _, r := range ranks {
		if r < 0 || r >= g.Size() {
			return fail(op, ErrRank, "rank %d of a group of %d", r, g.Size())
		}
		if seen[r] {
			return fail(op, ErrRank, "rank %d twice", r)
		}
		seen[r] = true
	}
	return nil
}
