package mpi

import (
	"encoding/binary"
	"errors"
	"slices"

	"github.com/meshmpi/meshmpi/mpi/coll"
	"github.com/meshmpi/meshmpi/mpi/internal/engine"
)

// A collective operation that needs a dead process fails at the ranks that exchange
// messages with it. Others wait for those, who have given up: so whoever gives an
// operation up because of a death tells all with whom it would have exchanged
// messages in it, and they give up as well (ULFM: no operation waits for ever when a
// process has failed; which ranks it fails at may differ).
//
// Who is told of an operation that it has not begun yet, or that has ended there,
// remembers that: the operation fails when it begins.
//
// The header of amGiveUp, little-endian:
//
//	 0 ctx   uint32  ┐ which operation: the sender's context and tag
//	 4 tag   uint32  ┘
//	 8 dead  uint32  the number of who has died, as the sender counts the members
//	12 size  uint32  how many members take part

// runs are the operations under way, and those that others have given up. They are
// guarded by the engine: who has an Op may use them.
type runs struct {
	first   *run
	given   map[turn]notice
	dropped int // notices beyond mostGiven
}

// turn is which operation of a context.
type turn struct {
	ctx engine.Context
	tag int32
}

// notice is what another member has told.
type notice struct {
	from       engine.Proc
	dead, size uint32
}

// mostGiven bounds the notices that are remembered. Programs that see a failure
// revoke or free the communicator; one that goes on for so many operations without
// has the rest of them fail for want of what is dropped here, or wait.
const mostGiven = 1 << 14

// enter begins an operation, unless another member has given it up.
func (r *run) enter(op *engine.Op) {
	all := &r.o.w.runs
	r.next = all.first
	if r.next != nil {
		r.next.prev = r
	}
	all.first = r
	if len(all.given) > 0 {
		at := turn{r.o.ctx, r.o.tag}
		if n, ok := all.given[at]; ok {
			delete(all.given, at)
			if dead, ok := r.o.concerned(n); ok {
				r.giveUp(op, n.from, dead)
				return
			}
		}
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

// giveUp ends an operation that another member has given up.
func (r *run) giveUp(op *engine.Op, from, dead engine.Proc) {
	r.err = engine.ErrProcFailed{Proc: dead, Err: errGivenUp{from}}
	r.end(op)
}

// errGivenUp says who has told of a death.
type errGivenUp struct{ by engine.Proc }

func (e errGivenUp) Error() string { return "another member has given the operation up" }

// concerned says which member has died, if a notice is from a member of the circle
// and about an operation of as many.
func (o *circle) concerned(n notice) (engine.Proc, bool) {
	from := slices.Index(o.procs, n.from)
	if from < 0 || int(n.size) != len(o.procs) || int(n.dead) >= len(o.procs) {
		return 0, false
	}
	at := int(n.dead)
	if o.own > 0 && from >= o.own { // it counts its side first, which is not ours
		if theirs := len(o.procs) - o.own; at < theirs {
			at += o.own
		} else {
			at -= theirs
		}
	}
	return o.procs[at], true
}

// tell has all with whom the operation exchanges messages give it up.
func (r *run) tell(op *engine.Op) {
	var dead engine.ErrProcFailed
	if !errors.As(r.err, &dead) {
		return
	}
	o := r.o
	at := slices.Index(o.procs, dead.Proc)
	if at < 0 {
		return
	}
	var hdr [24]byte
	binary.LittleEndian.PutUint32(hdr[0:], uint32(o.ctx))
	binary.LittleEndian.PutUint32(hdr[4:], uint32(o.tag))
	binary.LittleEndian.PutUint32(hdr[8:], uint32(at))
	binary.LittleEndian.PutUint32(hdr[12:], uint32(len(o.procs)))
	told := make([]bool, len(o.procs))
	told[at] = true
	for _, round := range r.sched.Rounds {
		for i := range round {
			if s := &round[i]; (s.Kind == coll.SendStep || s.Kind == coll.RecvStep) && !told[s.Peer] {
				told[s.Peer] = true
				_ = op.Post(o.procs[s.Peer], amGiveUp, &hdr, nil, nil) // the dead need not know
			}
		}
	}
}

// gaveUp is told that another member has given an operation up.
func (w *World) gaveUp(op *engine.Op, from engine.Proc, hdr *[24]byte, _ []byte) {
	at := turn{engine.Context(binary.LittleEndian.Uint32(hdr[0:])), int32(binary.LittleEndian.Uint32(hdr[4:]))}
	n := notice{from, binary.LittleEndian.Uint32(hdr[8:]), binary.LittleEndian.Uint32(hdr[12:])}
	for r := w.runs.first; r != nil; r = r.next {
		if r.o.ctx != at.ctx || r.o.tag != at.tag {
			continue
		}
		if dead, ok := r.o.concerned(n); ok {
			r.giveUp(op, from, dead)
			return
		}
	}
	if len(w.runs.given) >= mostGiven {
		w.runs.dropped++
		return
	}
	if w.runs.given == nil {
		w.runs.given = map[turn]notice{}
	}
	w.runs.given[at] = n
}

// forgive forgets what was told of a communicator's operations: its contexts are
// about to be used anew.
func (w *World) forgive(base engine.Context) {
	w.eng.Do(func(*engine.Op) {
		for at := range w.runs.given {
			if at.ctx >= base && at.ctx < base+contextsPerComm {
				delete(w.runs.given, at)
			}
		}
	})
}
