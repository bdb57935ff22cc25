package mpi

import (
	"cmp"
	"slices"

	"github.com/meshmpi/meshmpi/mpi/coll"
	"github.com/meshmpi/meshmpi/mpi/internal/engine"
)

// newComm makes the communicator of a group that the caller is in, and of another
// where it is an intercommunicator.
func (w *World) newComm(base engine.Context, id commID, g, remote *Group) *Comm {
	c := &comm{w: w, base: base, id: id, group: g, remote: remote, rank: g.Rank(), topo: w.topology(g)}
	c.rankOf = newRanks(c.peers().procs)
	c.attrs.hints = w.hints
	c.schedules = coll.NewCache(&c.topo)
	members := g.procs
	if remote != nil {
		members = slices.Concat(members, remote.procs)
	}
	for k := range contextsPerComm {
		w.eng.OpenContext(base+k, members)
	}
	if remote != nil {
		w.eng.OpenContext(base+ctxMessages, remote.procs) // nobody else sends there
	}
	w.remember(c)
	return &Comm{comm: c}
}

// topology says in small numbers on which hosts and sites a group's members are.
func (w *World) topology(g *Group) coll.Topo {
	t := coll.Topo{Rank: max(g.Rank(), 0), Size: len(g.procs), Host: make([]int32, len(g.procs)), Site: make([]int32, len(g.procs))}
	hosts, sites := map[int32]int32{}, map[int32]int32{}
	for i, p := range g.procs {
		at := w.placeOf(p)
		t.Host[i], t.Site[i] = renumber(hosts, at.host), renumber(sites, at.site)
	}
	for _, l := range w.table.loads(g.procs) {
		t.Crowded = t.Crowded || l.processors > 0 && l.processes >= 2*l.processors
	}
	return t
}

func renumber(seen map[int32]int32, n int32) int32 {
	m, ok := seen[n]
	if !ok {
		m = int32(len(seen))
		seen[n] = m
	}
	return m
}

// Dup makes a communicator of the same group and topology with a context of its
// own; attributes go with it as their keys say, hints too. It is collective.
//
// Whatever makes communicators, and windows, needs all members: it fails with
// ErrProcFailed when one has died. If one dies meanwhile it may have gone well at
// some; what they have made is revoked then.
func (c *Comm) Dup() (*Comm, error) {
	d, err := c.dup()
	if err != nil {
		return nil, err
	}
	c.attrs.copyTo(&d.attrs)
	return d, nil
}

// dup is Dup without attributes, whose functions see only what the program does.
func (c *Comm) dup() (*Comm, error) {
	if err := c.usable("Dup"); err != nil {
		return nil, err
	}
	o := c.making()
	var d *Comm
	var err error
	if c.Inter() {
		d, err = c.dupInter(o)
	} else {
		d, err = o.newComm(c.group)
	}
	if d, err = o.made(d, err); err != nil {
		return nil, c.wrap("Dup", -1, err)
	}
	d.cart, d.graph, d.info = c.cart, c.graph, c.Info()
	return d, nil
}

// newComm makes a communicator of a group of the circle's members; nil at those who
// are not in it.
func (o *circle) newComm(g *Group) (*Comm, error) {
	base, id, err := o.newContext()
	if err != nil {
		return nil, err
	}
	if g.Rank() == Undefined {
		o.w.contexts.release(int(base / contextsPerComm))
		return nil, nil
	}
	return o.w.newComm(base, id, g, nil), nil
}

// Split makes one communicator for each color, with the members that gave it
// ordered by key and, where keys are equal, by rank. Who gives Undefined gets
// nil. It is collective.
func (c *Comm) Split(color, key int) (*Comm, error) {
	if err := c.usable("Split"); err != nil {
		return nil, err
	}
	if color < 0 && color != Undefined {
		return nil, c.misused(fail("Split", ErrArg, "color %d; at least 0, or Undefined, is allowed", color))
	}
	return c.split("Split", color, key)
}

// split is Split in the name of op.
func (c *Comm) split(op string, color, key int) (*Comm, error) {
	o := c.making()
	var d *Comm
	var err error
	if c.Inter() {
		d, err = c.splitInter(o, op, color, key)
	} else {
		d, err = c.splitIntra(o, color, key)
	}
	if d, err = o.made(d, err); err != nil {
		return nil, c.wrap(op, -1, err)
	}
	return d, nil
}

func (c *Comm) splitIntra(o *circle, color, key int) (*Comm, error) {
	all, err := o.allgather([]int64{int64(color), int64(key)})
	if err != nil {
		return nil, err
	}
	g := c.group.with(nil)
	if color != Undefined {
		g = c.group.with(chosen(c.group.procs, all, color))
	}
	return o.newComm(g)
}

// chosen returns the processes that gave a color, ordered by key and rank. all
// holds color and key of each.
func chosen(procs []engine.Proc, all []int64, color int) []engine.Proc {
	var with []int
	for i := range procs {
		if all[2*i] == int64(color) {
			with = append(with, i)
		}
	}
	slices.SortStableFunc(with, func(a, b int) int { return cmp.Compare(all[2*a+1], all[2*b+1]) })
	out := make([]engine.Proc, len(with))
	for i, r := range with {
		out[i] = procs[r]
	}
	return out
}

// Level is a part of the machinery that processes share.
type Level int

// What SplitBy can split by.
const (
	Host Level = iota // one machine: shared memory
	Site              // one site: a local network
)

// SplitBy makes one communicator for each host or site (MPI 4.1
// MPI_Comm_split_type). It is collective.
func (c *Comm) SplitBy(l Level, key int) (*Comm, error) {
	if err := c.usable("SplitBy"); err != nil {
		return nil, err
	}
	if c.Inter() {
		return nil, fail("SplitBy", ErrComm, "this is an intercommunicator")
	}
	switch l {
	case Host:
		return c.Split(int(c.topo.Host[c.rank]), key)
	case Site:
		return c.Split(int(c.topo.Site[c.rank]), key)
	}
	return nil, c.misused(fail("SplitBy", ErrArg, "level %d; Host and Site are known", l))
}

// Create makes a communicator of a group of the members. All members of c must
// call it, with the same group or with disjoint ones; who is not in its group
// gets nil.
func (c *Comm) Create(g *Group) (*Comm, error) {
	if err := c.usable("Create"); err != nil {
		return nil, err
	}
	if g == nil {
		return nil, c.misused(fail("Create", ErrGroup, "the group is nil"))
	}
	if extra := g.Difference(c.group); extra.Size() > 0 {
		return nil, c.misused(fail("Create", ErrGroup, "%d processes of the group are not in the communicator, or not on our side of it", extra.Size()))
	}
	if c.Inter() {
		return c.createInter(g)
	}
	o := c.making()
	d, err := o.newComm(g)
	d, err = o.made(d, err)
	return d, c.wrap("Create", -1, err)
}

// CreateGroup is Create that only the group's members call, and need: others may
// have died. The tag tells apart
// groups that are made by several goroutines at the same time.
func (c *Comm) CreateGroup(g *Group, tag int) (*Comm, error) {
	if err := c.usable("CreateGroup"); err != nil {
		return nil, err
	}
	switch {
	case g == nil:
		return nil, fail("CreateGroup", ErrGroup, "the group is nil")
	case c.Inter():
		return nil, fail("CreateGroup", ErrComm, "this is an intercommunicator")
	case tag < 0 || tag > MaxTag>>1:
		return nil, fail("CreateGroup", ErrTag, "tag %d; 0 to %d are allowed", tag, MaxTag>>1)
	case g.Difference(c.group).Size() > 0:
		return nil, fail("CreateGroup", ErrGroup, "the group has processes that are not in the communicator")
	case g.Rank() == Undefined:
		return nil, fail("CreateGroup", ErrGroup, "the caller is not in the group")
	}
	ranks := make([]int, len(g.procs))
	for i, p := range g.procs {
		ranks[i] = c.rankOf.of(p)
	}
	o := &circle{w: c.w, procs: g.procs, topo: c.w.topology(g), of: c.comm, id: c.id, ctx: c.base + ctxInternal, tag: c.tagOf(ofGroup, tag, ranks)}
	o.whole = o
	o.begin(c)
	d, err := o.newComm(g)
	d, err = o.made(d, err)
	return d, c.wrap("CreateGroup", -1, err)
}

// nextTag numbers the collective operations of a communicator, so that those
// under way at the same time do not mix.
func (c *comm) nextTag() int32 { return int32(c.sequence.Add(1) & (againTag - 1)) }
