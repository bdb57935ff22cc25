package mpi

import (
	"errors"
	"fmt"
	"slices"

	"github.com/meshmpi/meshmpi/mpi/internal/engine"
)

// InterCreate makes an intercommunicator of two groups that have nobody in
// common (MPI 4.1 §7.6.2): c is the caller's side, whose rank leader talks to
// rank remoteLeader of bridge, which only the leaders need. The tag is one that
// nothing else uses in bridge. It is collective over both sides.
func (c *Comm) InterCreate(leader int, bridge *Comm, remoteLeader, tag int) (*Comm, error) {
	const op = "InterCreate"
	if err := c.usable(op); err != nil {
		return nil, err
	}
	if c.Inter() {
		return nil, fail(op, ErrComm, "an intercommunicator has two sides already; Merge makes them one")
	}
	if leader < 0 || leader >= c.Size() {
		return nil, c.misused(fail(op, ErrRank, "leader %d of %d", leader, c.Size()))
	}
	o := c.making()
	var why error
	if c.rank == leader {
		o.far, why = o.overBridge(op, bridge, remoteLeader, tag)
	}
	d, err := o.meet(op, leader, c.group, func() (*circle, error) { return o.far, why })
	d, err = o.made(d, err)
	return d, c.wrap(op, -1, err)
}

// overBridge is the leader of a making and the one of the other side, who is a rank
// of a communicator.
func (o *circle) overBridge(op string, bridge *Comm, remoteLeader, tag int) (*circle, error) {
	if bridge == nil {
		return nil, fail(op, ErrComm, "the leader has no communicator to the other side")
	}
	to, err := bridge.dest(op, remoteLeader, tag)
	if err != nil {
		return nil, err
	}
	far := o.pair(to, bridge.id, bridge.base+ctxInternal, bridge.tagOf(ofLeaders, tag, nil, remoteLeader))
	far.of = bridge.comm
	return far, nil
}

// meet makes an intercommunicator of a group, which is the circle, and another. The
// leader says how it reaches the other's. All steps are of the same making.
func (o *circle) meet(op string, leader int, g *Group, reach func() (*circle, error)) (*Comm, error) {
	w := o.w
	w.reap()
	var far *circle
	var theirs []int64
	var id commID
	n := 0
	for found := false; !found; {
		p := proposal{n: w.contexts.reserve(n), leads: g.Rank() == leader}
		var err error
		if far == nil && p.leads {
			far, p.why = reach()
		}
		if found, err = o.propose(op, leader, g, far, &p); err != nil {
			w.spoil(p.n)
			return nil, err
		}
		if n, id, theirs = p.n, p.id, p.theirs; !found {
			w.contexts.release(p.n)
			n = p.next
		}
	}
	d, err := w.between(op, engine.Context(n)*contextsPerComm, id, g, theirs)
	if err != nil {
		w.spoil(n)
	}
	return d, err
}

// between makes the intercommunicator of a group and one that has been named.
func (w *World) between(op string, base engine.Context, id commID, g *Group, theirs []int64) (*Comm, error) {
	procs, err := w.procsOf(theirs)
	if err != nil {
		return nil, &Error{Op: op, Class: ErrIntern, Peer: -1, Err: err}
	}
	remote := g.with(procs)
	if remote.Intersection(g).Size() > 0 {
		return nil, fail(op, ErrComm, "a process is on both sides")
	}
	d := w.newComm(base, id, g, remote)
	d.first = slices.Compare(w.namesOf(g.procs), theirs) < 0 // numbers of processes differ between jobs
	return d, nil
}

// proposal is one try to agree on a context with the other side.
type proposal struct {
	n      int     // which the caller proposes
	leads  bool    // the caller is the leader
	why    error   // of the leader, who does not reach the other side
	next   int     // where to look on
	id     commID  // what it is to be
	theirs []int64 // who the other side are
}

// propose is one try. It reports whether all of both sides have proposed the same.
func (o *circle) propose(op string, leader int, g *Group, far *circle, p *proposal) (bool, error) {
	if _, ends := o.reason(p.why); ends {
		return false, p.why
	}
	most := []int64{int64(p.n), -int64(p.n), proposeID()}
	if err := o.allreduce(most, opMax); err != nil {
		return false, err
	}
	head := []int64{0, 0, 0, 0, 0} // class of what went wrong, highest proposal, whether all are the same, length of what follows, ID
	if p.leads {
		if p.why == nil {
			p.theirs, p.why = far.trade(append([]int64{most[0], -most[1], most[2]}, o.w.namesOf(g.procs)...))
		}
		if p.why == nil {
			p.why = checkProposal(p.theirs)
		}
		if _, ends := o.reason(p.why); ends {
			return false, p.why
		}
		if p.why != nil {
			head[0], p.theirs = o.w.sayWhy(op, p.why)
		} else {
			head[1], head[4] = max(most[0], p.theirs[0]), max(most[2], p.theirs[2])
			if most[0] == -most[1] && p.theirs[0] == p.theirs[1] && p.theirs[0] == most[0] {
				head[2] = 1
			}
		}
		head[3] = int64(len(p.theirs))
	}
	if err := o.share(head, leader); err != nil {
		return false, err
	}
	if !p.leads {
		p.theirs = make([]int64, head[3])
	}
	if err := o.share(p.theirs, leader); err != nil {
		return false, err
	}
	switch {
	case p.why != nil:
		return false, p.why
	case head[0] != 0:
		return false, toldWhy(op, head[0], p.theirs)
	}
	p.next, p.id, p.theirs = int(head[1]), commID(head[4]), p.theirs[3:]
	return head[2] == 1, nil
}

// sayWhy is how the leader tells its side why it does not reach the other: the class of
// the error, and its text as numbers.
func (w *World) sayWhy(op string, why error) (class int64, text []int64) {
	var own *Error
	_ = errors.As(w.world.wrap(op, -1, why), &own) // always is one
	if why = own.Err; why == nil {
		why = own.Class
	}
	return int64(own.Class), packText(why.Error())
}

// toldWhy is the inverse: the others' error is the leader's.
func toldWhy(op string, class int64, text []int64) error {
	why, err := unpackText(text)
	if err != nil {
		return err
	}
	return fail(op, Class(class), "%s", why)
}

// checkProposal looks at what the other side's leader has sent.
func checkProposal(theirs []int64) error {
	if len(theirs) < 3 {
		return fmt.Errorf("the other side's proposal has %d numbers, not 3 and its processes", len(theirs))
	}
	if n := theirs[0]; n < 0 || n >= int64(maxComms) {
		return fmt.Errorf("the other side proposes communicator %d, of at most %d", n, maxComms)
	}
	return nil
}

// Merge makes one ordinary communicator of both sides of an intercommunicator;
// the side that gives high comes second. If both give the same, the library
// decides. It is collective over both sides.
func (c *Comm) Merge(high bool) (*Comm, error) {
	const op = "Merge"
	if err := c.usable(op); err != nil {
		return nil, err
	}
	if !c.Inter() {
		return nil, fail(op, ErrComm, "this is not an intercommunicator")
	}
	sign := int64(0)
	if high {
		sign = 1
	}
	o := c.making()
	d, err := c.merge(o, sign)
	d, err = o.made(d, err)
	return d, c.wrap(op, -1, err)
}

func (c *Comm) merge(o *circle, sign int64) (*Comm, error) {
	theirs, err := c.tellAcross(o, []int64{sign})
	if err != nil {
		return nil, err
	}
	if len(theirs) != 1 {
		return nil, fail("Merge", ErrOther, "the other side says %d numbers of its order, not 1", len(theirs))
	}
	first := c.first
	if theirs[0] != sign {
		first = sign == 0
	}
	a, b := c.group.procs, c.remote.procs
	if !first {
		a, b = b, a
	}
	both := c.group.with(append(slices.Clone(a), b...))
	return o.part(both.procs, c.w.topology(both)).newComm(both)
}

// tellAcross gives the other side numbers that all of ours know, and returns
// what it told, any number of them.
func (c *Comm) tellAcross(o *circle, ours []int64) (theirs []int64, err error) {
	side, size := c.side(o), []int64{0}
	if c.rank == 0 {
		if theirs, err = o.leaders(c.remote.procs[0]).trade(ours); err != nil {
			return nil, err
		}
		size[0] = int64(len(theirs))
	}
	if err := side.share(size, 0); err != nil {
		return nil, err
	}
	if c.rank != 0 {
		theirs = make([]int64, size[0])
	}
	return theirs, side.share(theirs, 0)
}

// leaders is this process and one of the other side, in the making of an
// intercommunicator from another.
func (o *circle) leaders(other engine.Proc) *circle { return o.pair(other, o.id, o.ctx, o.tag) }

// dupInter is Dup of an intercommunicator: its sides agree through their leaders.
func (c *Comm) dupInter(o *circle) (*Comm, error) {
	return c.side(o).meet("Dup", 0, c.group, func() (*circle, error) { return o.leaders(c.remote.procs[0]), nil })
}

// splitInter is Split of an intercommunicator: those of a color on one side are
// joined with those of the same color on the other; nil where there are none.
func (c *Comm) splitInter(o *circle, op string, color, key int) (*Comm, error) {
	ours, err := c.side(o).allgather([]int64{int64(color), int64(key)})
	if err != nil {
		return nil, err
	}
	theirs, err := c.tellAcross(o, ours)
	if err != nil {
		return nil, err
	}
	if color == Undefined {
		return nil, nil
	}
	part := c.group.with(chosen(c.group.procs, ours, color))
	remote := chosen(c.remote.procs, theirs, color)
	if len(remote) == 0 {
		return nil, nil
	}
	return o.part(part.procs, c.w.topology(part)).meet(op, 0, part, func() (*circle, error) { return o.leaders(remote[0]), nil })
}

// createInter is Create of an intercommunicator: g is of the caller's side, and
// the other side gives its own.
func (c *Comm) createInter(g *Group) (*Comm, error) {
	color, key := Undefined, 0
	if r := g.Rank(); r != Undefined {
		color, key = 0, r
	}
	return c.split("Create", color, key)
}
