package mpi

import (
	"context"
	"encoding/binary"
	"errors"

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
	case errors.As(err, new(errElements)):
		return ErrType
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
	case errors.Is(err, engine.ErrLimit), errors.Is(err, errFull):
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
// the way; and before their messages are refused, so that they know why.
func (c *comm) revokeHeld(op *engine.Op) {
	if c.gone || c.revoked.Swap(true) {
		return
	}
	c.spoilt.Store(true)
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
	for k := range ctxRecovery {
		op.Revoke(c.base+k, engine.ErrRevoked)
	}
	c.w.revokeRuns(op, c.id)
	c.closeBoard(op, engine.ErrRevoked)
	if win := c.win.Load(); win != nil {
		for r := range win.targets {
			win.lost(op, r, engine.ErrRevoked)
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
	a := newAgreement(c.rank, c.Size())
	a.and = int64(flags)
	c.mu.Lock()
	for _, p := range c.acked {
		a.acked.add(c.group.rankOf(p))
	}
	c.mu.Unlock()
	if err := c.reach(a, c.nextRecovery()); err != nil {
		return 0, c.wrap(op, -1, err)
	}
	for i := range c.group.procs {
		if a.fresh.has(i) {
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
		a, tag := newAgreement(c.rank, c.Size()), c.nextRecovery()
		a.most = [3]int64{int64(n), -int64(n), proposeID()}
		err := c.reach(a, tag)
		if err == nil && a.most[0] == -a.most[1] {
			if n >= maxComms {
				c.w.contexts.release(n)
				return nil, errFull
			}
			var alive []engine.Proc
			for i, p := range c.group.procs {
				if !a.dead.has(i) {
					alive = append(alive, p)
				}
			}
			o := &circle{w: c.w, procs: c.group.procs, id: c.id, ctx: c.base + ctxRecovery, tag: tag, of: c.comm}
			o.whole = o
			return o.agreed(c.w.newComm(engine.Context(n)*contextsPerComm, commID(a.most[2]), c.group.with(alive), nil), nil)
		}
		if err != nil {
			c.w.spoil(n)
			return nil, err
		}
		c.w.contexts.release(n)
		at = int(a.most[0])
	}
}
