package mpi

import (
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/meshmpi/meshmpi/mpi/coll"
	"github.com/meshmpi/meshmpi/mpi/datatype"
	"github.com/meshmpi/meshmpi/mpi/internal/engine"
)

// run is a collective operation under way: a schedule whose rounds the engine
// starts one after another as messages end, whoever drives it.
type run struct {
	o      *circle
	all    circle // what o is of an operation of a communicator's
	sched  *coll.Schedule
	bufs   [3][]byte // coll.Send, coll.Recv, coll.Tmp
	tmp    *[]byte   // what bufs[coll.Tmp] came from
	reduce func(in, inout []byte)
	swap   engine.Swapper
	swapAt func(off int) engine.Swapper // of what lands there in coll.Recv; nil: swap
	finish func() error                 // after the last round; nil: nothing to do
	// running counts the communicator's operations under way; nil: the caller waits.
	running *atomic.Int32

	id       engine.ID
	round    int
	pending  int           // messages that the round waits for, and one while they are being posted
	later    []int32       // messages that later rounds wait for; nil: none
	messages []engine.ID   // sends and receives that have been begun
	few      [16]engine.ID // what messages uses at first
	source   engine.Proc   // of the message that has ended last
	err      error
	ended    bool
	next     *run // of the operations under way
	prev     *run
	step     func(*engine.Op, engine.Status, error) // r.stepped, made once
	saw      func(*engine.Op, error)                // what the board calls, made once
	board    *engine.Board                          // that it goes by; nil: by messages
	shown    bool                                   // it has shown there what it gives
	mark     mark                                   // of which the pacer is told
	demand   demand                                 // for a profile
}

// of says whose operation it is.
func (r *run) of(all circle) {
	r.all = all
	r.o = &r.all
}

// cleared returns a run that has ended well, whose request has been waited for: neither
// the engine nor anybody else has it any more, so that it may be another operation.
func (r *run) cleared() *run {
	*r = run{step: r.step, saw: r.saw}
	return r
}

// begin starts the schedule, whose request ends with it. After an error nothing has
// begun, and the others have been told that this rank gives up.
func (r *run) begin() (err error) {
	if r.id, err = r.o.w.eng.General(); err != nil {
		r.o.w.eng.Do(func(op *engine.Op) { r.renounce(op, err) })
		return err
	}
	if r.step == nil {
		r.step = r.stepped
	}
	r.messages = r.few[:0]
	if r.sched.Tmp > 0 {
		r.tmp = r.o.w.tmp(r.sched.Tmp)
		r.bufs[coll.Tmp] = *r.tmp
	}
	if r.mark.to != nil {
		r.mark.enter()
	}
	if r.o.w.profile != nil {
		r.demanded()
	}
	r.o.w.eng.Do(r.enter)
	return nil
}

// tmp returns scratch of n bytes, with whatever in it.
func (w *World) tmp(n int) *[]byte {
	if b, _ := w.tmps.Get().(*[]byte); b != nil && cap(*b) >= n {
		*b = (*b)[:n]
		return b
	}
	b := make([]byte, n)
	return &b
}

// wait runs the schedule to its end.
func (r *run) wait() error {
	if err := r.begin(); err != nil {
		return err
	}
	_, err := r.o.w.eng.WaitAwake(r.id, r.watch())
	return err
}

// farAwake is how long a rank that waits for a short message from another site does not
// sleep: as long as that takes to another continent. What comes then finds processors
// awake. Before a long one they have more to do than wait: to bring it.
const farAwake = 50 * time.Millisecond

// watch is how long this rank stays awake when it waits for others.
func (r *run) watch() time.Duration {
	if r.sched.Far {
		return farAwake
	}
	return 0
}

// advance posts rounds until one has to wait for messages.
func (r *run) advance(op *engine.Op) {
	for r.round < len(r.sched.Rounds) && r.err == nil {
		r.pending++ // so that messages that end at once do not end the round
		if r.later != nil {
			r.pending += int(r.later[r.round])
			r.later[r.round] = 0
		}
		for i := range r.sched.Rounds[r.round] {
			r.post(op, &r.sched.Rounds[r.round][i])
		}
		if r.pending--; r.err != nil {
			break
		}
		if r.pending > 0 {
			return
		}
		r.local()
	}
	r.end(op)
}

// stepped is called by the engine when a message has ended that the round at
// hand waits for.
func (r *run) stepped(op *engine.Op, st engine.Status, err error) {
	if r.ended {
		return
	}
	r.pending--
	r.source = st.Source
	r.noted(op, err)
}

// noted goes on after a message has ended.
func (r *run) noted(op *engine.Op, err error) {
	switch {
	case errors.Is(err, engine.ErrRefused): // who has refused gave up, and we are about to be told
		r.pending++
	case err != nil:
		r.err = err
		r.end(op)
	case r.pending == 0:
		r.local()
		r.advance(op)
	}
}

// ender returns what is called when a message has ended that the round target
// waits for.
func (r *run) ender(target int) func(*engine.Op, engine.Status, error) {
	if target == r.round {
		r.pending++
		return r.step
	}
	if r.later == nil {
		r.later = make([]int32, len(r.sched.Rounds))
	}
	r.later[target]++
	return func(op *engine.Op, _ engine.Status, err error) {
		if r.ended {
			return
		}
		if target > r.round {
			r.later[target]--
			if err != nil {
				r.noted(op, err)
			}
			return
		}
		r.pending--
		r.noted(op, err)
	}
}

// shortMessage is up to how many bytes a message is copied if its link does not take it
// at once: it needs no request then, and nobody is called back.
const shortMessage = 1 << 10

func (r *run) post(op *engine.Op, s *coll.Step) {
	if r.err != nil {
		return
	}
	switch s.Kind {
	case coll.SendStep:
		r.send(op, s)
	case coll.RecvStep:
		r.receive(op, s)
	case coll.ShowStep:
		r.show(op, s)
	}
}

func (r *run) send(op *engine.Op, s *coll.Step) {
	a := engine.SendArgs{To: r.o.procs[s.Peer], Context: r.o.ctx, Tag: r.o.tag, Mode: engine.Standard, Data: r.at(s.Src)}
	if len(a.Data) <= shortMessage {
		if sent, err := op.SendNow(&a); sent || err != nil {
			r.err = err
			return
		}
	}
	target := r.target(s)
	a.Done = r.ender(target)
	id, err := op.Isend(&a)
	r.posted(id, target, err)
}

func (r *run) receive(op *engine.Op, s *coll.Step) {
	swap := r.swap
	if r.swapAt != nil && s.Dst.Buf == coll.Recv {
		swap = r.swapAt(s.Dst.Off)
	}
	target := r.target(s)
	id, err := op.Irecv(&engine.RecvArgs{From: r.o.procs[s.Peer], Context: r.o.ctx, Tag: r.o.tag, Buf: r.at(s.Dst), Swap: swap, Done: r.ender(target)})
	r.posted(id, target, err)
}

// target is the round that waits for a message.
func (r *run) target(s *coll.Step) int {
	return min(r.round+int(s.Wait), len(r.sched.Rounds)-1)
}

// posted notes a message that the round target waits for, if it has begun.
func (r *run) posted(id engine.ID, target int, err error) {
	if err == nil {
		r.messages = append(r.messages, id)
		return
	}
	if target == r.round {
		r.pending--
	} else {
		r.later[target]--
	}
	r.err = err
}

// errPanicked is how an operation ends whose function has panicked.
var errPanicked = errors.New("the operation panicked")

func (r *run) at(f coll.Ref) []byte { return r.bufs[f.Buf][f.Off : f.Off+f.N] }

// local does what the round's messages were for. A reduction may be the
// program's own function, and panic.
func (r *run) local() {
	defer func() {
		if p := recover(); p != nil {
			r.err = fmt.Errorf("%w: %v", errPanicked, p)
		}
	}()
	steps := r.sched.Rounds[r.round]
	r.round++
	if r.later == nil {
		r.messages = r.messages[:0]
	}
	for i := range steps {
		switch s := &steps[i]; s.Kind {
		case coll.CopyStep:
			copy(r.at(s.Dst), r.at(s.Src))
		case coll.ReduceStep:
			r.reduce(r.at(s.Src), r.at(s.Dst))
		}
	}
}

// renounce tells the others that an operation fails here, and reports whether they give
// it up.
func (r *run) renounce(op *engine.Op, err error) (told bool) {
	r.err = err
	r.o.spoil()
	told = r.tell(op)
	r.unshow(op) // whoever sees that is told
	return told
}

// end completes the request. After an error what has not been sent or received will
// not be waited for: who should take or send it may have failed as well.
func (r *run) end(op *engine.Op) {
	r.ended = true
	r.leave()
	if r.mark.to != nil {
		r.mark.leave()
	}
	if r.err == nil && r.tmp != nil { // after an error messages may still use it
		r.o.w.tmps.Put(r.tmp)
	}
	if r.err != nil {
		if r.renounce(op, r.err) { // otherwise they may wait for what has been announced
			for _, id := range r.messages {
				op.Abandon(id)
			}
		}
	} else if r.finish != nil {
		r.err = r.finish()
	}
	if r.running != nil {
		r.running.Add(-1)
	}
	op.Complete(r.id, engine.Status{}, r.err)
}

// The operations below are how the members of a communicator agree among
// themselves, on numbers that are small in size and count.

const opMax = datatype.Max

// allreduce combines v of all members, in place.
func (o *circle) allreduce(v []int64, kind datatype.OpKind) error {
	kernel, _ := datatype.Reduce(kind, datatype.Int64)
	s := coll.Allreduce(&o.topo, coll.Args{Count: len(v), Elem: 8, Commutes: true, InPlace: true})
	r := &run{o: o, sched: &s, reduce: kernel, swap: swapInt64}
	r.bufs[coll.Recv] = bytesOf(v)
	return r.wait()
}

// allgather returns what all members gave, by rank. All give equally many.
func (o *circle) allgather(v []int64) ([]int64, error) {
	all := make([]int64, len(v)*len(o.procs))
	s := coll.Allgather(&o.topo, coll.Args{Count: len(v), Elem: 8})
	r := &run{o: o, sched: &s, swap: swapInt64}
	r.bufs[coll.Send], r.bufs[coll.Recv] = bytesOf(v), bytesOf(all)
	return all, r.wait()
}

// allgatherv is allgather of any number from each.
func (o *circle) allgatherv(v []int64) ([]int64, error) {
	counts, err := o.allgather([]int64{int64(len(v))})
	if err != nil {
		return nil, err
	}
	most := slices.Max(counts)
	padded := append(slices.Clone(v), make([]int64, int(most)-len(v))...)
	next := *o
	next.tag |= againTag
	all, err := next.allgather(padded)
	if err != nil {
		return nil, err
	}
	out := all[:0]
	for i, n := range counts {
		out = append(out, all[i*int(most):i*int(most)+int(n)]...)
	}
	return out, nil
}

// againTag sets the second step of an agreement apart from the first, so that a
// member that has gone ahead does not disturb one that has not.
const againTag = 1 << 29

// share gives all members what the root has.
func (o *circle) share(v []int64, root int) error {
	s := coll.Bcast(&o.topo, coll.Args{Count: len(v), Elem: 8, Root: root})
	r := &run{o: o, sched: &s, swap: swapInt64}
	r.bufs[coll.Recv] = bytesOf(v)
	return r.wait()
}
