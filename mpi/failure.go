package mpi

import (
	"context"
	"encoding/binary"
	"errors"
	"math"
	"slices"

	"github.com/meshmpi/meshmpi/mpi/internal/engine"
)

// User-level failure mitigation, after the ULFM chapter proposed to the MPI
// Forum. Where the launcher lets a job outlive its processes (meshrun --ft), an
// operation that needs a dead process fails with ErrProcFailed, and the program
// goes on: it revokes the communicator so that nobody waits in vain, shrinks it
// to those alive, and agrees on what has been done.

// Kinds of active messages.
const (
	amRevoke uint8 = iota + 1
	amWindow
	amGiveUp // giveup.go
)

// wrap makes an Error of what the engine or a circle returned.
func (c *comm) wrap(op string, peer int, err error) error {
	var own *Error
	if err == nil || errors.As(err, &own) {
		return err
	}
	e := &Error{Op: op, Class: classOf(err), Peer: peer, Err: err}
	var dead engine.ErrProcFailed
	var warned engine.ErrProcFailedPending
	var given errGivenUp
	switch {
	case errors.As(err, &dead):
		e.Peer = c.rankOf.of(dead.Proc)
	case errors.As(err, &warned):
		e.Peer = c.rankOf.of(warned.Proc)
	case errors.As(err, &given):
		e.Peer = c.rankOf.of(given.by)
	}
	e.Peer = max(e.Peer, -1)
	return e
}

// classOf returns the class of an error of the engine.
func classOf(err error) Class {
	var (
		cut    engine.ErrTruncate
		rank   engine.ErrRankRange
		dead   engine.ErrProcFailed
		far    errFarDeath
		over   errWithdrawn
		warned engine.ErrProcFailedPending
		panics engine.ErrPanic
	)
	switch {
	case errors.As(err, &cut):
		return ErrTruncate
	case errors.As(err, &rank):
		return ErrRank
	case errors.As(err, &dead), errors.As(err, &far):
		return ErrProcFailed
	case errors.As(err, &warned):
		return ErrProcFailedPending
	case errors.As(err, &panics):
		return ErrOp
	case errors.Is(err, engine.ErrRevoked), errors.As(err, &over):
		return ErrRevoked
	case errors.Is(err, engine.ErrClosed):
		return ErrNotInitialized
	case errors.Is(err, engine.ErrRequest), errors.Is(err, engine.ErrMessage), errors.Is(err, engine.ErrBusy):
		return ErrRequest
	case errors.Is(err, engine.ErrTag):
		return ErrTag
	case errors.Is(err, engine.ErrContext):
		return ErrComm
	case errors.Is(err, engine.ErrLimit):
		return ErrNoMem
	case errors.Is(err, errPanicked):
		return ErrOp
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return ErrPending
	}
	return ErrOther
}

// Revoke ends all operations on the communicator, at all its members, with
// ErrRevoked, and lets none begin any more but Shrink, Agree and Free. Any member
// may call it, alone.
func (c *Comm) Revoke() error {
	if err := c.exists("Revoke"); err != nil {
		return err
	}
	c.revoke()
	return nil
}

// revoke revokes here and tells the others.
func (c *comm) revoke() { c.w.eng.Do(c.revokeHeld) }

// revokeHeld has all members revoke it, those that are still making it when they have.
// Every one tells every other, so that all learn of it even when the first has died on
// the way.
func (c *comm) revokeHeld(op *engine.Op) {
	if c.gone || c.revoked.Swap(true) {
		return
	}
	c.spoilt.Store(true)
	for k := range ctxRecovery {
		op.Revoke(c.base+k, engine.ErrRevoked)
	}
	c.w.revokeRuns(op, c.id)
	if win := c.win.Load(); win != nil {
		for r := range win.targets {
			win.lost(op, r, engine.ErrRevoked)
		}
	}
	var hdr [24]byte
	binary.LittleEndian.PutUint64(hdr[:], uint64(c.id))
	for _, g := range []*Group{c.group, c.remote} {
		if g == nil {
			continue
		}
		for _, p := range g.procs {
			if p != g.self {
				_ = op.Post(p, amRevoke, &hdr, nil, nil) // the dead need not know
			}
		}
	}
}

// revokedByPeer is told that another member has revoked a communicator, whose ID the
// header begins with.
func (w *World) revokedByPeer(op *engine.Op, from engine.Proc, hdr *[24]byte, _ []byte) {
	id := commID(binary.LittleEndian.Uint64(hdr[:]))
	if c := w.commOf(id); c != nil {
		if c.has(from) {
			c.revokeHeld(op)
		}
		return
	}
	if w.runs.makings.Load() > 0 { // it may be of one of them; otherwise it has been here
		w.runs.remember(revocation(id), notice{from: from, dead: wasRevoked})
	}
}

// revocation is where it is remembered that a communicator has been revoked that is
// being made.
func revocation(id commID) turn { return turn{id: id, ctx: engine.MaxContexts} }

// revokeEarly revokes a communicator that has just been made, if another member has done
// so before.
func (c *comm) revokeEarly(op *engine.Op) {
	at := revocation(c.id)
	for _, m := range []map[turn]notice{c.w.runs.given, c.w.runs.older} {
		if n, ok := m[at]; ok && c.has(n.from) {
			delete(m, at)
			c.revokeHeld(op)
		}
	}
}

// has reports whether a process is a member, on either side.
func (c *comm) has(p engine.Proc) bool { return c.rankOf.of(p) >= 0 || c.group.rankOf(p) >= 0 }

// Revoked reports whether the communicator has been revoked.
func (c *Comm) Revoked() bool { return c.revoked.Load() }

// Failed returns the members that are known here to be dead. Others may know of
// more: Agree and Shrink make that the same everywhere.
func (c *Comm) Failed() *Group {
	var g *Group
	c.w.eng.Do(func(op *engine.Op) { g = c.failed(op) })
	return g
}

// failed is Failed with the engine held.
func (c *comm) failed(op *engine.Op) *Group {
	var dead []engine.Proc
	for _, g := range []*Group{c.group, c.remote} {
		if g == nil {
			continue
		}
		for _, p := range g.procs {
			if op.Failed(p) != nil {
				dead = append(dead, p)
			}
		}
	}
	return c.group.with(dead)
}

// AckFailed acknowledges the failures known now, so that a Recv from AnySource
// waits for the living instead of failing with ErrProcFailedPending, and Agree
// does not fail for them. It returns who they are.
func (c *Comm) AckFailed() (*Group, error) {
	if err := c.exists("AckFailed"); err != nil {
		return nil, err
	}
	var g *Group
	c.w.eng.Do(func(op *engine.Op) { // at one moment: who dies now is told of later
		g = c.failed(op)
		op.Acknowledge(c.base + ctxMessages)
	})
	c.mu.Lock()
	defer c.mu.Unlock()
	c.acked = g.procs
	return g, nil
}

// Agree returns the bitwise and of flags over the members that are alive, the
// same at all of them, revoked or not. If a member has died that not all have
// acknowledged, the error is ErrProcFailed at all, and the result is valid
// nevertheless. It is collective.
func (c *Comm) Agree(flags int) (int, error) {
	const op = "Agree"
	if err := c.exists(op); err != nil {
		return 0, err
	}
	if c.Inter() {
		return 0, fail(op, ErrUnsupported, "of intercommunicators; agree on the two sides, or on what Merge has made of them")
	}
	c.mu.Lock()
	acked := slices.Clone(c.acked)
	c.mu.Unlock()
	a := c.newAgreement()
	a.and, a.acked = int64(flags), acked
	if err := a.reach(); err != nil {
		return 0, c.wrap(op, -1, err)
	}
	for i := range c.group.procs {
		if a.fresh[i/64]>>(i%64)&1 != 0 {
			return int(a.and), &Error{Op: op, Class: ErrProcFailed, Peer: i, Err: errors.New("its failure was not acknowledged by all")}
		}
	}
	return int(a.and), nil
}

// Shrink makes a communicator of the members that are alive, in the same order.
// It works on a revoked one, and is collective over the living.
func (c *Comm) Shrink() (*Comm, error) {
	const op = "Shrink"
	if err := c.exists(op); err != nil {
		return nil, err
	}
	if c.Inter() {
		return nil, fail(op, ErrUnsupported, "of intercommunicators; shrink the two sides and join them anew")
	}
	c.w.reap()
	c.w.runs.makings.Add(1)
	d, err := c.shrink()
	c.w.eng.Do(func(*engine.Op) { c.w.runs.settled(c.w) })
	return d, c.wrap(op, -1, err)
}

func (c *Comm) shrink() (*Comm, error) {
	for at := 0; ; {
		n := c.w.contexts.reserve(at)
		a := c.newAgreement()
		a.most = [3]int64{int64(n), -int64(n), proposeID()}
		err := a.reach()
		if err == nil && a.most[0] == -a.most[1] {
			o := &circle{w: c.w, procs: c.group.procs, id: c.id, ctx: c.base + ctxRecovery, tag: a.tag, of: c.comm}
			o.whole = o
			return o.agreed(c.w.newComm(engine.Context(n)*contextsPerComm, commID(a.most[2]), c.group.with(a.alive()), nil), nil)
		}
		if err != nil {
			c.w.spoil(n)
			return nil, err
		}
		c.w.contexts.release(n)
		at = int(a.most[0])
	}
}

// agreement is how the living members of a communicator come to the same values,
// whoever dies meanwhile: they tell each other all they know, round after round,
// until a round has brought news of no death; then everybody knows what anybody
// alive does (the early-stopping form of flooding consensus; Charron-Bost and
// Schiper, "Uniform consensus is harder than consensus"). The engine is the
// failure detector: waiting for the dead ends with an error.
type agreement struct {
	c     *Comm
	tag   int32
	and   int64
	most  [3]int64      // the largest that anybody has given
	dead  []uint64      // members known to be dead, a bit each
	found []uint64      // those that this process has found so itself: nothing reaches them
	gone  []bool        // members that are done, have said so, and send nothing more
	fresh []uint64      // dead whom somebody has not acknowledged
	done  bool          // the values are those of all
	acked []engine.Proc // whose deaths the caller of Agree has acknowledged
}

// nextRecovery numbers what goes on after a failure, when the living no longer
// have begun equally many of the other operations.
func (c *comm) nextRecovery() int32 { return int32(c.recoveries.Add(1) & (againTag - 1)) }

// leastInts are no larger than what anybody gives.
var leastInts = [3]int64{math.MinInt64, math.MinInt64, math.MinInt64}

func (c *Comm) newAgreement() *agreement {
	n := (c.Size() + 63) / 64
	return &agreement{
		c: c, tag: c.nextRecovery(), and: -1, most: leastInts,
		dead: make([]uint64, n), fresh: make([]uint64, n), found: make([]uint64, n), gone: make([]bool, c.Size()),
	}
}

// words is what is told: done, and, most, dead, fresh.
func (a *agreement) words() []int64 {
	out := []int64{0, a.and, a.most[0], a.most[1], a.most[2]}
	if a.done {
		out[0] = 1
	}
	for _, set := range [][]uint64{a.dead, a.fresh} {
		for _, w := range set {
			out = append(out, int64(w))
		}
	}
	return out
}

// learn takes what another member told. Who is done has told, or returned, values
// that must not change any more: they replace ours, which may know of a death
// that came too late.
func (a *agreement) learn(v []int64) {
	if a.done {
		return
	}
	if v[0] != 0 {
		a.done, a.and, a.most = true, -1, leastInts
		clear(a.dead)
		clear(a.fresh)
	}
	a.and &= v[1]
	for i := range a.most {
		a.most[i] = max(a.most[i], v[2+i])
	}
	sets := v[2+len(a.most):]
	for i := range a.dead {
		a.dead[i] |= uint64(sets[i])
		a.fresh[i] |= uint64(sets[len(a.dead)+i])
	}
}

// alive returns the members that are not known to be dead.
func (a *agreement) alive() (procs []engine.Proc) {
	for i, p := range a.c.group.procs {
		if !a.isDead(i) {
			procs = append(procs, p)
		}
	}
	return procs
}

func (a *agreement) isDead(i int) bool { return a.dead[i/64]>>(i%64)&1 != 0 }

// reach runs rounds until the values are the same everywhere. Who has them tells
// so in one more round, for which it does not wait.
func (a *agreement) reach() error {
	if a.c.Size() == 1 {
		return nil
	}
	for round := 0; ; round++ {
		ids, in, err := a.exchange(round)
		if err != nil {
			return err
		}
		if a.done {
			for _, id := range ids {
				a.c.w.eng.Free(id)
			}
			return nil
		}
		settled, err := a.collect(ids, in)
		if err != nil {
			return err
		}
		if round > 0 && settled {
			a.done = true
		}
	}
}

// exchange begins to tell all, and to hear of all, that are not known to be dead:
// in ids are a receive and a send for each member. Whom only others have found dead is
// told so as well, in case it lives.
func (a *agreement) exchange(round int) (ids []engine.ID, in []int64, err error) {
	w := a.c.w
	ctx, tag := a.c.base+ctxRecovery, a.tag|int32(round&1)<<30
	mine := a.words()
	in = make([]int64, len(mine)*a.c.Size())
	ids = make([]engine.ID, 2*a.c.Size())
	for i, p := range a.c.group.procs {
		if i == a.c.rank || has(a.found, i) || a.gone[i] {
			continue
		}
		buf := bytesOf(in[i*len(mine) : (i+1)*len(mine)])
		if !a.isDead(i) {
			ids[2*i], err = w.eng.Irecv(&engine.RecvArgs{From: p, Context: ctx, Tag: tag, Buf: buf, Swap: swapInt64})
		}
		if err == nil {
			ids[2*i+1], err = w.eng.Isend(&engine.SendArgs{To: p, Context: ctx, Tag: tag, Data: bytesOf(mine)})
		}
		if err != nil && !died(err) {
			return nil, nil, err
		}
		err = nil
		if a.isDead(i) { // nobody waits for that
			w.eng.Free(ids[2*i+1])
		}
	}
	return ids, in, nil
}

// errDisowned is how an agreement ends at a process that others count as dead: their
// links to it have failed, and the others go on without it.
var errDisowned = errors.New("other members count this process as dead")

// collect waits for what exchange has begun. It reports whether all from whom it has
// heard know of the same deaths, and no other was noticed. Where two living members have
// lost each other, the one of the lower rank is believed.
func (a *agreement) collect(ids []engine.ID, in []int64) (settled bool, err error) {
	before := slices.Clone(a.dead)
	size := len(in) / a.c.Size()
	var heard []int
	for i := range a.c.group.procs {
		if i == a.c.rank || a.isDead(i) || a.gone[i] {
			continue
		}
		_, err := a.c.w.eng.Wait(ids[2*i])
		_, _ = a.c.w.eng.Wait(ids[2*i+1]) // if it has failed, the next round's receive will
		switch {
		case ids[2*i] == (engine.ID{}): // it was dead before
			a.bury(i)
		case err == nil:
			heard = append(heard, i)
		case died(err):
			a.bury(i)
		default:
			return false, err
		}
	}
	settled = true
	for _, i := range heard {
		v := in[i*size : (i+1)*size]
		told := v[2+len(a.most):][:len(a.dead)]
		if told[a.c.rank/64]>>(a.c.rank%64)&1 != 0 {
			return false, engine.ErrProcFailed{Proc: a.c.group.self, Err: errDisowned}
		}
		a.gone[i] = v[0] != 0
		if a.isDead(i) && !a.gone[i] { // one that was heard of before says so
			continue
		}
		settled = settled && slices.EqualFunc(told, before, func(x int64, y uint64) bool { return uint64(x) == y })
		a.learn(v)
	}
	return settled && slices.Equal(before, a.dead), nil
}

// has reports whether a set has a member.
func has(set []uint64, i int) bool { return set[i/64]>>(i%64)&1 != 0 }

func (a *agreement) bury(i int) {
	a.dead[i/64] |= 1 << (i % 64)
	a.found[i/64] |= 1 << (i % 64)
	if !slices.Contains(a.acked, a.c.group.procs[i]) {
		a.fresh[i/64] |= 1 << (i % 64)
	}
}

func died(err error) bool {
	var dead engine.ErrProcFailed
	return errors.As(err, &dead)
}
