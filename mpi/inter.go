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
	if c.Inter() || leader < 0 || leader >= c.Size() {
		return nil, fail(op, ErrRank, "leader %d of %d; it must be in an ordinary communicator", leader, c.Size())
	}
	return c.meet(op, leader, func(mine []int64) ([]int64, error) {
		if bridge == nil {
			return nil, fail(op, ErrComm, "the leader has no communicator to the other side")
		}
		to, err := bridge.dest(op, remoteLeader, tag)
		if err != nil {
			return nil, err
		}
		return c.w.trade(bridge.base+ctxMessages, to, mine, int32(tag))
	})
}

// meet makes an intercommunicator. The leader exchanges what it is given with
// the other side's.
func (c *Comm) meet(op string, leader int, lead func(mine []int64) ([]int64, error)) (*Comm, error) {
	local, err := c.dup() // for agreeing among ourselves from now on
	if err != nil {
		return nil, err
	}
	for at := 0; ; {
		n, theirs, err := local.propose(op, leader, at, lead)
		if err != nil {
			local.release()
			return nil, err
		}
		if n < 0 {
			at = -n
			continue
		}
		procs, err := c.w.procsOf(theirs)
		if err != nil {
			c.w.contexts.release(n)
			local.release()
			return nil, &Error{Op: op, Class: ErrIntern, Peer: -1, Err: err}
		}
		remote := c.group.with(procs)
		if remote.Intersection(c.group).Size() > 0 {
			c.w.contexts.release(n)
			local.release()
			return nil, fail(op, ErrComm, "a process is on both sides")
		}
		d := c.w.newComm(engine.Context(n)*contextsPerComm, c.group)
		d.remote, d.local, d.rankOf = remote, local, newRanks(remote.procs)
		d.first = slices.Compare(c.w.namesOf(c.group.procs), theirs) < 0 // numbers of processes differ between jobs
		for k := range contextsPerComm {
			c.w.eng.OpenContext(d.base+k, append(slices.Clone(c.group.procs), remote.procs...))
		}
		return d, nil
	}
}

// propose is one try to agree on a context with the other side. It returns the
// number, or less than zero when the sides differ: minus where to look on.
func (c *Comm) propose(op string, leader, at int, lead func([]int64) ([]int64, error)) (n int, theirs []int64, err error) {
	mine := c.w.contexts.reserve(at)
	most := []int64{int64(mine), -int64(mine)}
	if err := c.circle().allreduce(most, opMax); err != nil {
		c.w.contexts.release(mine)
		return 0, nil, c.wrap(op, -1, err)
	}
	head := []int64{0, 0, 0} // class of what went wrong, highest proposal, length of what follows
	if c.rank == leader {
		theirs, err = lead(append([]int64{most[0], -most[1]}, c.w.namesOf(c.group.procs)...))
		if err == nil && len(theirs) < 2 {
			err = fmt.Errorf("the other side's proposal has %d numbers, not 2 and its processes", len(theirs))
		}
		if err != nil {
			head[0] = int64(ClassOf(c.wrap(op, -1, err))) // the others say the same
		} else {
			head[1], head[2] = max(most[0], theirs[0]), int64(len(theirs))
			if most[0] != -most[1] || theirs[0] != theirs[1] || theirs[0] != most[0] {
				head[1] = -head[1]
			}
		}
	}
	if e := c.circle().share(head, leader); err == nil && e != nil {
		err = c.wrap(op, -1, e)
	}
	if err == nil && head[0] != 0 {
		err = fail(op, Class(head[0]), "the leader did not reach the other side")
	}
	if err == nil {
		if c.rank != leader {
			theirs = make([]int64, head[2])
		}
		if e := c.circle().share(theirs, leader); e != nil {
			err = c.wrap(op, -1, e)
		}
	}
	if err != nil || head[1] < 0 || int(head[1]) != mine {
		c.w.contexts.release(mine)
	}
	if err != nil {
		return 0, nil, err
	}
	return int(head[1]), theirs[2:], nil
}

// trade exchanges any number of numbers with one process, which does the same.
func (w *World) trade(ctx engine.Context, with engine.Proc, mine []int64, tag int32) ([]int64, error) {
	id, err := w.eng.Isend(&engine.SendArgs{To: with, Context: ctx, Tag: tag, Data: bytesOf(mine)})
	if err != nil {
		return nil, err
	}
	msg, st, err := w.eng.Mprobe(with, ctx, tag)
	if err != nil {
		w.eng.Free(id)
		return nil, err
	}
	theirs := make([]int64, st.Bytes/8)
	in, err := w.eng.Imrecv(msg, &engine.RecvArgs{Buf: bytesOf(theirs), Swap: swapInt64})
	if err == nil {
		_, err = w.eng.Wait(in)
	}
	_, e := w.eng.Wait(id)
	if err = errors.Join(err, e); err != nil {
		return nil, err
	}
	return theirs, nil
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
	theirs, err := c.tellAcross([]int64{sign})
	if err != nil {
		return nil, c.wrap(op, -1, err)
	}
	if len(theirs) != 1 {
		return nil, fail(op, ErrOther, "the other side says %d numbers of its order, not 1", len(theirs))
	}
	first := c.first
	if theirs[0] != sign {
		first = !high
	}
	a, b := c.group.procs, c.remote.procs
	if !first {
		a, b = b, a
	}
	both := c.group.with(append(slices.Clone(a), b...))
	o := &circle{w: c.w, procs: both.procs, topo: c.w.topology(both), ctx: c.base + ctxInternal, tag: c.nextTag()}
	base, err := o.newContext()
	if err != nil {
		return nil, c.wrap(op, -1, err)
	}
	return c.w.newComm(base, both), nil
}

// tellAcross gives the other side numbers that all of ours know, and returns
// what it told, any number of them.
func (c *Comm) tellAcross(ours []int64) ([]int64, error) {
	tag := c.nextTag()
	size := []int64{0}
	var theirs []int64
	var err error
	if c.rank == 0 {
		if theirs, err = c.w.trade(c.base+ctxInternal, c.remote.procs[0], ours, tag); err == nil {
			size[0] = int64(len(theirs))
		} else {
			size[0] = -1
		}
	}
	if e := c.circle().share(size, 0); err == nil {
		err = e
	}
	if err == nil && size[0] < 0 {
		err = engine.ErrClosed
	}
	if err != nil {
		return nil, err
	}
	if c.rank != 0 {
		theirs = make([]int64, size[0])
	}
	return theirs, c.circle().share(theirs, 0)
}

// dupInter is Dup of an intercommunicator: its sides agree through their leaders.
func (c *Comm) dupInter() (*Comm, error) { return c.across("Dup", c.local, c.remote.procs[0]) }

// across makes an intercommunicator of a part of our side, whose rank 0 leads,
// and a part of the other, led by the process given. Both sides call it as their
// next operation on c.
func (c *Comm) across(op string, part *Comm, leader engine.Proc) (*Comm, error) {
	tag := c.nextTag()
	return part.meet(op, 0, func(mine []int64) ([]int64, error) {
		return c.w.trade(c.base+ctxInternal, leader, mine, tag)
	})
}

// splitInter is Split of an intercommunicator: those of a color on one side are
// joined with those of the same color on the other; nil where there are none.
func (c *Comm) splitInter(color, key int) (*Comm, error) {
	ours, err := c.circle().allgather([]int64{int64(color), int64(key)})
	if err != nil {
		return nil, c.wrap("Split", -1, err)
	}
	theirs, err := c.tellAcross(ours)
	if err != nil {
		return nil, c.wrap("Split", -1, err)
	}
	part, err := c.local.split(color, key)
	if err != nil {
		return nil, c.wrap("Split", -1, err)
	}
	if part == nil {
		c.nextTag() // as across does
		return nil, nil
	}
	defer part.release()
	remote := chosen(c.remote.procs, theirs, color)
	if len(remote) == 0 {
		c.nextTag()
		return nil, nil
	}
	return c.across("Split", part, remote[0])
}

// createInter is Create of an intercommunicator: g is of the caller's side, and
// the other side gives its own.
func (c *Comm) createInter(g *Group) (*Comm, error) {
	color, key := Undefined, 0
	if r := g.Rank(); r != Undefined {
		color, key = 0, r
	}
	return c.splitInter(color, key)
}
