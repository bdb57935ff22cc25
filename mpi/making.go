package mpi

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"slices"

	"github.com/meshmpi/meshmpi/mpi/coll"
	"github.com/meshmpi/meshmpi/mpi/internal/engine"
)

// The making of a communicator is several collective operations, one after the
// other, of circles that differ: the members of one side, the two leaders, all
// together. They need every member, so a death of one ends the making at whoever
// knows of it; and who gives it up, at whatever step, tells all whom it concerns,
// by the context and tag of the whole. Where it has gone well already, the new
// communicator is revoked: nobody waits there for those who have none.
//
// All steps are sent in the context of the whole, with its tag: messages between
// two processes match in order, and each step sends what the next does not expect
// before that.

// making is all members, for the making of a communicator as their next operation.
func (c *Comm) making() *circle {
	o := c.everybody(c.nextTag())
	o.ctx = c.base + ctxInternal
	o.whole = &o
	o.begin(c)
	return &o
}

// begin says that a making is under way, until made.
func (o *circle) begin(c *Comm) {
	o.ended, o.view = c.orRevoke(), c.ctx
	o.w.runs.makings.Add(1)
}

// side is the caller's side in the making of a communicator.
func (c *comm) side(o *circle) *circle { return o.part(c.group.procs, c.topo) }

// part is some of those whom a making concerns, for a step.
func (o *circle) part(procs []engine.Proc, topo coll.Topo) *circle {
	return &circle{w: o.w, procs: procs, topo: topo, id: o.id, ctx: o.ctx, tag: o.tag, whole: o.whole}
}

// pair is this process and another, for steps of a making between two leaders.
func (o *circle) pair(with engine.Proc, id commID, ctx engine.Context, tag int32) *circle {
	return &circle{w: o.w, procs: []engine.Proc{o.w.self.group.self, with}, id: id, ctx: ctx, tag: tag, own: 1, whole: o.whole}
}

// turns are the circles that notices about an operation may be about: its own, that
// of the whole that it is a step of, and that of the two leaders in it.
func (o *circle) turns() []*circle {
	if o.whole == nil {
		return []*circle{o}
	}
	t := []*circle{o.whole}
	if o != o.whole {
		t = append(t, o)
	}
	if far := o.whole.far; far != nil && far != o {
		t = append(t, far)
	}
	return t
}

func (o *circle) turn() turn { return turn{o.id, o.ctx, o.tag} }

// made ends a making. Where it has failed all are told; where others have given it
// up it has failed here as well.
func (o *circle) made(d *Comm, err error) (*Comm, error) {
	d, err = o.agreed(d, err)
	o.w.eng.Do(func(*engine.Op) { o.w.runs.settled(o.w) })
	if d != nil {
		d.ctx = o.view
	}
	return d, o.ended(err)
}

func (o *circle) agreed(d *Comm, err error) (*Comm, error) {
	if err == nil {
		o.w.eng.Do(func(op *engine.Op) {
			if err = o.w.toldOf(o); err == nil && d != nil {
				o.forget()
				d.born = o
				d.revokeEarly(op)
			}
		})
	}
	if err == nil {
		return d, nil
	}
	if d != nil {
		d.discard()
	}
	o.w.eng.Do(func(op *engine.Op) { o.tellAll(op, err) })
	return nil, err
}

// discard gives a communicator back that others may have made with us.
func (c *comm) discard() {
	c.spoilt.Store(true)
	c.freed.Store(true)
	c.release()
}

// forget lets go of the communicators that an operation was of: what it has made lives on
// without them.
func (o *circle) forget() {
	if o.of = nil; o.far != nil {
		o.far.of = nil
	}
}

// toldOf takes a notice about an operation that others have given up. The engine is
// held.
func (w *World) toldOf(o *circle) error {
	if len(w.runs.given)+len(w.runs.older) == 0 {
		return nil
	}
	for _, t := range o.turns() {
		if err := w.runs.recall(t); err != nil {
			return err
		}
	}
	return nil
}

// tellAll has all whom a making concerns give it up, if err is a reason for that.
func (o *circle) tellAll(op *engine.Op, err error) {
	for _, t := range []*circle{o, o.far} {
		if t == nil {
			continue
		}
		why, ok := t.reason(err)
		if !ok {
			return
		}
		hdr := t.notice(why)
		for i, p := range t.procs {
			if p != o.w.self.group.self && i != int(why) {
				_ = op.Post(p, amGiveUp, &hdr, nil, nil) // the dead need not know
			}
		}
	}
}

// unmake revokes a communicator whose making another member has given up, and has
// those know who may not have been told. It reports whether there is one.
func (w *World) unmake(op *engine.Op, at turn, n notice) bool {
	for _, c := range w.bornAt(at) {
		for _, t := range c.born.turns() {
			if t.turn() != at {
				continue
			}
			if err := t.concerned(n); err != nil {
				if !c.revoked.Load() {
					c.revokeHeld(op)
					c.born.tellAll(op, err)
				}
				return true
			}
		}
	}
	return false
}

// bornAt finds the communicators that an operation has made. The engine is held.
func (w *World) bornAt(at turn) (found []*comm) {
	w.comms.mu.Lock()
	defer w.comms.mu.Unlock()
	for _, c := range w.comms.all {
		if c.born == nil {
			continue
		}
		if c.born.turn() == at || c.born.far != nil && c.born.far.turn() == at {
			found = append(found, c)
		}
	}
	return found
}

// mournMakings ends the makings under way that concern who has died.
func (w *World) mournMakings(op *engine.Op, dead engine.ErrProcFailed) {
	for r := w.runs.first; r != nil; {
		next := r.next
		if r.o.whole != nil && slices.Contains(r.o.whole.procs, dead.Proc) {
			r.giveUp(op, dead)
		}
		r = next
	}
}

// lose ends a making because the other side's processes are gone. The engine is held.
func (o *circle) lose(op *engine.Op, why error) {
	o.whole.lost = why
	for r := o.w.runs.first; r != nil; {
		next := r.next
		if r.o.whole == o.whole {
			r.giveUp(op, why)
		}
		r = next
	}
}

// hopeless says why a making cannot be done, if so: the other side or a member is known
// to be dead, or the communicator is revoked.
func (o *circle) hopeless(op *engine.Op) error {
	if o.whole.lost != nil {
		return o.whole.lost
	}
	if o.whole.of.revoked.Load() {
		return engine.ErrRevoked
	}
	for _, p := range o.whole.procs {
		if err := op.Failed(p); err != nil {
			return err
		}
	}
	return nil
}

// mostTraded bounds the numbers that one leader takes from another: the records of
// as many processes as there can be.
const mostTraded = 1 << 24

// trade exchanges any number of numbers with the other of a pair, which does the
// same.
func (o *circle) trade(mine []int64) ([]int64, error) {
	size := []int64{0}
	if err := o.swapWith([]int64{int64(len(mine))}, size); err != nil {
		return nil, err
	}
	if size[0] < 0 || size[0] > mostTraded {
		return nil, fmt.Errorf("the other side sends %d numbers; up to %d are allowed", size[0], mostTraded)
	}
	theirs := make([]int64, size[0])
	return theirs, o.swapWith(mine, theirs)
}

// swapWith sends one of a pair numbers and receives as many as fit theirs.
func (o *circle) swapWith(mine, theirs []int64) error {
	out, in := bytesOf(mine), bytesOf(theirs)
	return o.exchange(out, in, coll.Round{
		sendTo(1, coll.Ref{Buf: coll.Send, N: len(out)}), recvFrom(1, coll.Ref{Buf: coll.Recv, N: len(in)}),
	}).wait()
}

// send sends the other of a pair numbers.
func (o *circle) send(mine []int64) error {
	out := bytesOf(mine)
	return o.exchange(out, nil, coll.Round{sendTo(1, coll.Ref{Buf: coll.Send, N: len(out)})}).wait()
}

// receive receives numbers from the other of a pair, and returns who that is.
func (o *circle) receive(theirs []int64) (engine.Proc, error) {
	r := o.receiving(theirs)
	err := r.wait()
	return r.source, err
}

// receiving is the step that receive waits for.
func (o *circle) receiving(theirs []int64) *run {
	in := bytesOf(theirs)
	return o.exchange(nil, in, coll.Round{recvFrom(1, coll.Ref{Buf: coll.Recv, N: len(in)})})
}

// exchange is a step of one round.
func (o *circle) exchange(out, in []byte, round coll.Round) *run {
	r := &run{o: o, sched: &coll.Schedule{Rounds: []coll.Round{round}, Name: "exchange"}, swap: swapInt64}
	r.bufs[coll.Send], r.bufs[coll.Recv] = out, in
	return r
}

// errFarDeath says that somebody has died whom we do not know: on the other side of
// an intercommunicator that was to be made.
type errFarDeath struct{ by engine.Proc }

func (e errFarDeath) Error() string {
	return "the other side has lost a process and given the operation up"
}

// Notices may tell more than the number of a member.
const (
	farDeath   = 1<<32 - 1 // somebody has died who is no member
	wasRevoked = 1<<32 - 2
)

// reason is how a notice says why the making is given up; not ok: err is none that
// the others would not come to by themselves.
func (o *circle) reason(err error) (why uint32, ok bool) {
	var dead engine.ErrProcFailed
	var far errFarDeath
	switch {
	case errors.As(err, &dead):
		if at := slices.Index(o.procs, dead.Proc); at >= 0 {
			return uint32(at), true
		}
		return farDeath, true
	case errors.As(err, &far), errors.Is(err, ErrProcFailed):
		return farDeath, true
	case errors.Is(err, engine.ErrRevoked), errors.Is(err, ErrRevoked):
		return wasRevoked, true
	case errors.As(err, new(errGivenUp)):
		return nobodyDied, true
	}
	return 0, false
}

// tagOf makes the tag of a making that not all members of a communicator take part
// in, so that they cannot count it: of a number that they have given, of who they
// are, and of how often they have done the same before. What an earlier try has left
// behind, which was given up, is not taken for a message of this one then.
func (c *comm) tagOf(kind uint8, tag int, who []int, with ...int) int32 {
	key := hashOf(kind, append(append([]int{tag}, who...), with...))
	c.mu.Lock()
	if c.meetings == nil {
		c.meetings = map[uint64]int{}
	}
	n := c.meetings[key]
	c.meetings[key] = n + 1
	c.mu.Unlock()
	return groupTag | int32(hashOf(kind, append([]int{tag, n}, who...))&(groupTag-1))
}

// Kinds of makings that are not all members'.
const (
	ofGroup uint8 = iota + 1
	ofLeaders
)

func hashOf(kind uint8, numbers []int) uint64 {
	h := fnv.New64a()
	b := []byte{kind}
	for _, n := range numbers {
		b = binary.LittleEndian.AppendUint64(b, uint64(n))
	}
	_, _ = h.Write(b) // never fails
	return h.Sum64()
}

// groupTag sets the tags of those apart from those of whole communicators.
const groupTag = 1 << 30
