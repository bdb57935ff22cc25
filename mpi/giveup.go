package mpi

import (
	"encoding/binary"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"sync/atomic"

	"github.com/meshmpi/meshmpi/mpi/coll"
	"github.com/meshmpi/meshmpi/mpi/internal/engine"
)

// A collective operation that needs a dead process fails at the ranks that exchange
// messages with it. Others wait for those, who have given up: so whoever gives an
// operation up because of a death tells all with whom it would have exchanged
// messages in it, and they give up as well (ULFM: no operation waits for ever when a
// process has failed; which ranks it fails at may differ). The same is done when an
// operation of the program fails for another reason, such as a message that is longer
// than its receiver expects: what comes after that would be waited for.
//
// Who is told of an operation that it has not begun yet, or that has ended there,
// remembers that: the operation fails when it begins. What makes communicators
// (making.go) is given up in the same way, as a whole.
//
// The header of amGiveUp, little-endian:
//
//	 0 ctx   uint32  ┐ which operation: the context and tag of messages, and whose
//	 4 tag   uint32  │ context that is, at this time
//	16 id    uint64  ┘
//	 8 dead  uint32  the number of who has died, as the sender counts the members; or
//	                 farDeath, wasRevoked, nobodyDied, strayed
//	12 size  uint32  how many members take part

// runs are the operations under way, and those that others have given up. They are
// guarded by the engine: who has an Op may use them.
type runs struct {
	first   *run
	given   map[turn]notice
	older   map[turn]notice // those before
	dropped int             // notices beyond mostGiven
	refused [32]turn        // the last that have been given up here before they began
	next    int             // of these
	makings atomic.Int32    // under way: notices may be about communicators that are not there yet
	log     *slog.Logger
}

// turn is which operation: of all that there have been or will be.
type turn struct {
	id  commID
	ctx engine.Context
	tag int32
}

// notice is what another member has told.
type notice struct {
	from       engine.Proc
	dead, size uint32
}

// In a notice: the operation has failed for another reason, or because some members did
// it by their board and others did not. Then none uses that any more.
const (
	nobodyDied = 1<<32 - 3
	strayed    = 1<<32 - 4
)

// mostGiven bounds the notices that are remembered. Programs that see a failure
// revoke or free the communicator; if one goes on without, the oldest are forgotten,
// half of them at a time: they are of operations that have ended here, or else begin
// so late that they wait for ever.
const mostGiven = 1 << 14

// remember takes note of an operation that has been given up and does not go on here.
func (a *runs) remember(at turn, n notice) {
	if len(a.given) >= mostGiven/2 {
		if len(a.older) > 0 && a.dropped == 0 && a.log != nil {
			a.log.Warn("many operations given up by others: the oldest are forgotten", "remembered", mostGiven)
		}
		a.dropped += len(a.older)
		a.older, a.given = a.given, nil
	}
	if a.given == nil {
		a.given = map[turn]notice{}
	}
	a.given[at] = n
}

// refuse notes that this process gives an operation up before it begins: what others say
// of it is of no use.
func (a *runs) refuse(at turn) {
	a.refused[a.next] = at
	a.next = (a.next + 1) % len(a.refused)
	delete(a.given, at)
	delete(a.older, at)
}

// recall returns why an operation that is about to begin was given up before; nil: it
// was not.
func (a *runs) recall(o *circle) error {
	for _, m := range []map[turn]notice{a.given, a.older} {
		if o.tag&persistentTag != 0 {
			far := o.turn()
			far.tag ^= startHalf
			delete(m, far) // of a start whose tag comes again in half the time that tags last
		}
		if n, ok := m[o.turn()]; ok {
			if err := o.concerned(n); err != nil {
				delete(m, o.turn())
				return err
			}
		}
	}
	return nil
}

// enter begins an operation, unless another member has given it up.
func (r *run) enter(op *engine.Op) {
	all := &r.o.w.runs
	r.next = all.first
	if r.next != nil {
		r.next.prev = r
	}
	all.first = r
	err := r.o.w.toldOf(r.o)
	if err == nil && r.o.whole != nil {
		err = r.o.hopeless(op)
	}
	if err != nil {
		r.giveUp(op, err)
		return
	}
	r.advance(op)
}

// leave takes an operation that ends out of those under way.
func (r *run) leave() {
	if r.prev != nil {
		r.prev.next = r.next
	} else {
		r.o.w.runs.first = r.next
	}
	if r.next != nil {
		r.next.prev = r.prev
	}
	r.next, r.prev = nil, nil
}

// spoil says that messages of an operation that has failed may still come.
func (o *circle) spoil() {
	for _, c := range []*comm{o.of, o.all().of} {
		if c != nil {
			c.spoilt.Store(true)
		}
	}
}

// refuse gives up an operation that has not begun here, and cannot. With strayed nobody
// uses the board any more, on which others wait for it.
func (c *comm) refuse(all circle, how uint32) {
	hdr := all.notice(how)
	c.w.eng.Do(func(op *engine.Op) {
		if how == strayed {
			c.closeBoard(op, errGivenUp{by: c.w.self.group.self, strayed: true})
		}
		c.w.runs.refuse(all.turn())
		all.spoil()
		for _, p := range all.procs {
			if p != c.w.self.group.self {
				_ = op.Post(p, amGiveUp, &hdr, nil, nil) // the dead need not know
			}
		}
	})
}

// misused gives up the making that would be the members' next operation, and returns why.
func (c *comm) misused(why error) error {
	all := c.everybody(c.nextTag())
	all.ctx = c.base + ctxInternal
	c.refuse(all, nobodyDied)
	return why
}

// all are all whom an operation concerns.
func (o *circle) all() *circle {
	if o.whole != nil {
		return o.whole
	}
	return o
}

// giveUp ends an operation that another member has given up, or that cannot be done.
func (r *run) giveUp(op *engine.Op, err error) {
	r.err = err
	r.end(op)
}

// errGivenUp says who has given an operation up.
type errGivenUp struct {
	by      engine.Proc
	strayed bool
}

func (e errGivenUp) Error() string { return "another member has given the operation up" }

// has reports whether a notice is from a member and about an operation of as many.
func (o *circle) has(n notice) bool {
	return int(n.size) == len(o.procs) && slices.Contains(o.procs, n.from)
}

// concerned is the error of a notice, if that is from a member of the circle and
// about an operation of as many; otherwise nil.
func (o *circle) concerned(n notice) error {
	if !o.has(n) {
		return nil
	}
	from := slices.Index(o.procs, n.from)
	switch {
	case o.whole != nil && n.dead == farDeath, o.whole != nil && o == o.whole.far && n.dead == wasRevoked: // what was revoked there is not ours
		return errFarDeath{n.from}
	case o.whole != nil && n.dead == wasRevoked:
		return engine.ErrRevoked
	case n.dead == nobodyDied, n.dead == strayed:
		return errGivenUp{n.from, n.dead == strayed}
	case n.dead >= uint32(len(o.procs)):
		return nil
	}
	at := int(n.dead)
	if o.own > 0 && from >= o.own { // it counts its side first, which is not ours
		if theirs := len(o.procs) - o.own; at < theirs {
			at += o.own
		} else {
			at -= theirs
		}
	}
	return engine.ErrProcFailed{Proc: o.procs[at], Err: errGivenUp{by: n.from}}
}

// notice is what the others are told.
func (o *circle) notice(dead uint32) (hdr [24]byte) {
	binary.LittleEndian.PutUint32(hdr[0:], uint32(o.ctx))
	binary.LittleEndian.PutUint32(hdr[4:], uint32(o.tag))
	binary.LittleEndian.PutUint32(hdr[8:], dead)
	binary.LittleEndian.PutUint32(hdr[12:], uint32(len(o.procs)))
	binary.LittleEndian.PutUint64(hdr[16:], uint64(o.id))
	return hdr
}

// tell has all with whom the operation exchanges messages give it up. It reports
// whether they do, or come to it by themselves. How members agree among themselves
// fails for other reasons than a death only if memory or requests end, and since its turns may
// come again nobody is told of that. In a making more than those are told, by
// circle.made.
func (r *run) tell(op *engine.Op) bool {
	o, at := r.o, uint32(nobodyDied)
	if o.whole != nil {
		_, will := o.reason(r.err)
		return will
	}
	var dead engine.ErrProcFailed
	var given errGivenUp
	switch {
	case errors.As(r.err, &dead) && slices.Contains(o.procs, dead.Proc):
		at = uint32(slices.Index(o.procs, dead.Proc))
	case errors.Is(r.err, engine.ErrRevoked), errors.Is(r.err, engine.ErrClosed):
		return true
	case o.ctx%contextsPerComm != ctxCollective:
		return false
	case errors.As(r.err, new(engine.ErrStray)), errors.As(r.err, &given) && given.strayed:
		at = strayed
		o.of.closeBoard(op, r.err)
	}
	hdr := o.notice(at)
	told := make([]bool, len(o.procs))
	if at < uint32(len(told)) {
		told[at] = true
	}
	tell := func(peer int) {
		if !told[peer] {
			told[peer] = true
			_ = op.Post(o.procs[peer], amGiveUp, &hdr, nil, nil) // the dead need not know
		}
	}
	for _, round := range r.sched.Rounds {
		for i := range round {
			switch s := &round[i]; s.Kind {
			case coll.SendStep, coll.RecvStep:
				tell(s.Peer)
			case coll.ShowStep:
				for peer := range o.procs {
					if peer != o.topo.Rank {
						tell(peer)
					}
				}
			}
		}
	}
	return true
}

// gaveUp is told that another member has given an operation up.
func (w *World) gaveUp(op *engine.Op, from engine.Proc, hdr *[24]byte, _ []byte) {
	at := turn{commID(binary.LittleEndian.Uint64(hdr[16:])), engine.Context(binary.LittleEndian.Uint32(hdr[0:])), int32(binary.LittleEndian.Uint32(hdr[4:]))}
	n := notice{from, binary.LittleEndian.Uint32(hdr[8:]), binary.LittleEndian.Uint32(hdr[12:])}
	if c := w.commOf(at.id); n.dead == strayed && c != nil && c.rankOf.of(from) >= 0 {
		c.closeBoard(op, errGivenUp{by: from, strayed: true})
	}
	for r := w.runs.first; r != nil; r = r.next {
		for _, o := range r.o.turns() {
			if o.turn() != at {
				continue
			}
			if err := o.concerned(n); err != nil {
				r.giveUp(op, err)
				return
			}
		}
	}
	if w.unmake(op, at, n) {
		return
	}
	if !slices.Contains(w.runs.refused[:], at) && (w.runs.makings.Load() > 0 || w.concerns(at.id)) {
		w.runs.remember(at, n)
	}
}

// revokeRuns ends the operations under way of a communicator that is revoked, and the
// makings. Their messages have ended, but for those that another has refused: for them
// an operation waits to be told why; and a leader's steps with another are not sent
// there.
func (w *World) revokeRuns(op *engine.Op, id commID) {
	for r := w.runs.first; r != nil; {
		next := r.next
		if r.o.all().id == id {
			r.giveUp(op, engine.ErrRevoked)
		}
		r = next
	}
}

// forgive forgets a communicator in which nothing is under way any more, and what was
// told of its operations: there will be none.
func (w *World) forgive(c *comm) {
	w.eng.Do(func(op *engine.Op) {
		c.gone = true
		c.closeBoard(op, engine.ErrClosed)
		w.comms.mu.Lock()
		delete(w.comms.all, c.id)
		w.comms.mu.Unlock()
		w.runs.forget(func(id commID) bool { return id == c.id })
	})
}

// forget drops the notices about some communicators.
func (a *runs) forget(about func(commID) bool) {
	for _, m := range []map[turn]notice{a.given, a.older} {
		maps.DeleteFunc(m, func(at turn, _ notice) bool { return about(at.id) })
	}
}

// settled says that a making is over. With the last, nothing is to be remembered any
// more of communicators that are not there. The engine is held.
func (a *runs) settled(w *World) {
	if a.makings.Add(-1) == 0 && len(a.given)+len(a.older) > 0 {
		a.forget(func(id commID) bool { return !w.concerns(id) })
	}
}

// concerns reports whether notices about a communicator that no making is about can be
// of any use. Whoever calls at a port may have given that up before we answer.
func (w *World) concerns(id commID) bool { return id == idMeeting || w.commOf(id) != nil }
