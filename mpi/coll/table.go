package coll

import "fmt"

// Collective names a collective operation.
type Collective uint8

// The collective operations of MPI 4.1 chapters 6 and 8.6.
const (
	OpBarrier Collective = iota
	OpBcast
	OpGather
	OpGatherv
	OpScatter
	OpScatterv
	OpAllgather
	OpAllgatherv
	OpAlltoall
	OpAlltoallv
	OpAlltoallw
	OpReduce
	OpAllreduce
	OpReduceScatter
	OpReduceScatterBlock
	OpScan
	OpExscan
	OpNeighborAllgather
	OpNeighborAllgatherv
	OpNeighborAlltoall
	OpNeighborAlltoallv
	OpNeighborAlltoallw
	ncollectives
)

// String returns the operation's name as MPI has it, in lower case.
func (c Collective) String() string {
	if c >= ncollectives {
		return fmt.Sprintf("collective(%d)", uint8(c))
	}
	return [...]string{"barrier", "bcast", "gather", "gatherv", "scatter", "scatterv", "allgather", "allgatherv",
		"alltoall", "alltoallv", "alltoallw", "reduce", "allreduce", "reduce_scatter", "reduce_scatter_block", "scan", "exscan",
		"neighbor_allgather", "neighbor_allgatherv", "neighbor_alltoall", "neighbor_alltoallv", "neighbor_alltoallw"}[c]
}

// Collectives lists all operations.
func Collectives() []Collective {
	cs := make([]Collective, ncollectives)
	for i := range cs {
		cs[i] = Collective(i)
	}
	return cs
}

// algorithm is a row of a table.
type algorithm struct {
	name string
	// applies reports whether the result is right; nil means always. best reports
	// whether it should be taken where no row above is; nil means always. Both may
	// look at nothing that differs from rank to rank.
	applies, best func(*Topo, *Args) bool
	build         func(*builder)
}

func (r *algorithm) right(t *Topo, a *Args) bool { return r.applies == nil || r.applies(t, a) }

// table returns the algorithms of an operation, best first. The last row is right
// and taken for whatever the rows above leave.
func (c Collective) table() []algorithm {
	switch c {
	case OpBarrier:
		return barriers()
	case OpBcast:
		return bcasts()
	case OpGather, OpGatherv:
		return gathers(c)
	case OpScatter, OpScatterv:
		return scatters(c)
	case OpAllgather:
		return allgathers()
	case OpAllgatherv:
		return allgathervs()
	case OpAlltoall:
		return alltoalls()
	case OpAlltoallv, OpAlltoallw:
		return alltoallvs()
	case OpReduce:
		return reduces()
	case OpAllreduce:
		return allreduces()
	case OpReduceScatter, OpReduceScatterBlock:
		return reduceScatters()
	case OpScan, OpExscan:
		return scans(c)
	case OpNeighborAllgather, OpNeighborAllgatherv:
		return neighborAllgathers()
	case OpNeighborAlltoall, OpNeighborAlltoallv, OpNeighborAlltoallw:
		return neighborAlltoalls()
	}
	return nil
}

// Names lists the algorithms of an operation, in the order in which they are
// considered.
func Names(c Collective) []string {
	var names []string
	for _, r := range c.table() {
		names = append(names, r.name)
	}
	return names
}

// Applies reports whether an algorithm gives the right result for this topology
// and these arguments.
func Applies(c Collective, name string, t *Topo, a Args) bool {
	for _, r := range c.table() {
		if r.name == name {
			return r.right(t, normal(c, &a))
		}
	}
	return false
}

// Build makes the schedule of one algorithm, whether it is the best or not; the
// empty name chooses. All ranks have to ask for the same. It fails where there is
// no such algorithm, or where it is not right for these arguments.
func Build(c Collective, name string, t *Topo, a Args) (Schedule, error) {
	if name == "" {
		return choose(c, t, a), nil
	}
	normal(c, &a)
	for _, r := range c.table() {
		switch {
		case r.name != name:
		case !r.right(t, &a):
			return Schedule{}, fmt.Errorf("coll: %s by %q is not possible here", c, name)
		default:
			return r.make(t, a), nil
		}
	}
	return Schedule{}, fmt.Errorf("coll: %s has no algorithm %q; there are %q", c, name, Names(c))
}

func (r *algorithm) make(t *Topo, a Args) Schedule {
	b := newBuilder(t, a)
	r.build(b)
	s := b.schedule()
	s.Name = r.name
	return s
}

// choose takes the first row that is right and the best.
func choose(c Collective, t *Topo, a Args) Schedule {
	normal(c, &a)
	rows := c.table()
	for i := range rows {
		r := &rows[i]
		if r.right(t, &a) && (r.best == nil || r.best(t, &a)) {
			s := r.make(t, a)
			s.Board = boarded(rows, t, &a)
			return s
		}
	}
	panic("coll: no algorithm for " + c.String())
}

// normal brings the forms of a operation that differ in their arguments alone to
// one.
func normal(c Collective, a *Args) *Args {
	switch c {
	case OpAlltoallw, OpNeighborAlltoallw:
		a.Elem = 1
	}
	return a
}
