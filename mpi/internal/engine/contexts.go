package engine

import (
	"fmt"
	"slices"
)

// strangeMost bounds the contexts that peers name before we open them. They run
// ahead of us by one step of making a communicator.
const strangeMost = 1 << 12

// domain finds a context that the caller has opened.
func (e *Engine) domain(c Context) (*domain, error) {
	if int(c) >= len(e.contexts) || e.contexts[c] == nil || !e.contexts[c].open {
		return nil, ErrContext
	}
	return e.contexts[c], nil
}

// landing finds a context that a message is for. If it is not open yet, the
// message will wait there: credit bounds how many do.
func (e *Engine) landing(c Context) (*domain, error) {
	if int(c) < len(e.contexts) && e.contexts[c] != nil {
		return e.contexts[c], nil
	}
	if e.strange >= strangeMost {
		return nil, fmt.Errorf("%w: %d contexts that do not exist", errViolation, e.strange)
	}
	e.strange++
	d := e.newDomain(c)
	d.strange = true
	return d, nil
}

// known counts a context no more among those that only peers have named.
func (e *Engine) known(d *domain) {
	if d.strange {
		d.strange = false
		e.strange--
	}
}

func (e *Engine) newDomain(c Context) *domain {
	if int(c) >= len(e.contexts) {
		e.contexts = append(e.contexts, make([]*domain, int(c)+1-len(e.contexts))...)
	}
	d := &domain{id: c}
	d.spread(0)
	e.contexts[c] = d
	return d
}

// OpenContext makes a context usable. Its members are those who may send in it:
// a receive from AnyProc is told when one fails. What members have sent before
// is there. To open an open context changes its members.
func (e *Engine) OpenContext(c Context, members []Proc) {
	e.gate.lock()
	defer e.leave()
	if c >= MaxContexts || e.closed {
		return
	}
	var d *domain
	if int(c) < len(e.contexts) && e.contexts[c] != nil {
		d = e.contexts[c]
		e.known(d)
	} else {
		d = e.newDomain(c)
	}
	if !d.open {
		d.revoked = nil
	}
	d.open = true
	d.members = slices.Clone(members)
	d.unacked = nil
	for _, p := range d.members {
		if p >= 0 && int(p) < len(e.peers) && e.peers[p].state == failed {
			d.unacked = append(d.unacked, p)
		}
	}
	d.spread(len(members))
}

// CloseContext ends the use of a context. Messages that nobody has received are
// dropped; operations under way go on. It reports whether there are none: the
// number may be used again when it has done so at all members. Until then it is
// to be called once more from time to time.
func (e *Engine) CloseContext(c Context) (idle bool) {
	e.gate.lock()
	defer e.leave()
	if int(c) >= len(e.contexts) || e.contexts[c] == nil {
		return true
	}
	d := e.contexts[c]
	if d.open {
		d.open = false
		d.unacked, d.members = nil, nil
	}
	e.purge(d)
	for i := range d.bins {
		if d.bins[i].posted.first != nil {
			return false
		}
	}
	if d.wild.first != nil || d.early.first != nil || e.busy(c) {
		return false
	}
	e.contexts[c] = nil
	e.known(d)
	return true
}

// busy reports whether a request is under way in a context.
func (e *Engine) busy(c Context) bool {
	for _, chunk := range e.requests.chunks {
		for i := range chunk {
			if r := &chunk[i]; r.underWay() && r.ctx == c {
				return true
			}
		}
	}
	return false
}

// RefuseContext has what comes in a context that is closed and idle dropped instead of
// kept, until it is closed once more or opened.
func (e *Engine) RefuseContext(c Context) {
	e.gate.lock()
	defer e.leave()
	if c >= MaxContexts || e.closed {
		return
	}
	if int(c) >= len(e.contexts) || e.contexts[c] == nil {
		e.newDomain(c)
	}
	if d := e.contexts[c]; !d.open {
		e.known(d)
		d.revoked = ErrRevoked
		e.refuse(d)
	}
}

// refuse drops the messages that wait in a context, or for those before them, which will
// not be waited for any more.
func (e *Engine) refuse(d *domain) {
	for m := d.early.first; m != nil; m = d.early.first {
		d.early.remove(byTime, m)
		e.peers[m.peer].skip(d.id, m.seq)
		e.discard(m)
	}
	e.purge(d)
}

// purge drops the messages that wait in a context.
func (e *Engine) purge(d *domain) {
	for m := d.arrived.first; m != nil; m = d.arrived.first {
		d.drop(m)
		e.discard(m)
	}
}

// Acknowledge stops receives from AnyProc in a context from being told of the
// failures known now (MPIX_Comm_failure_ack).
func (e *Engine) Acknowledge(c Context) {
	e.gate.lock()
	defer e.leave()
	e.acknowledge(c)
}

func (e *Engine) acknowledge(c Context) {
	d, err := e.domain(c)
	if err != nil {
		return
	}
	d.unacked = nil
	for r := d.wild.first; r != nil; r = r.next {
		r.flags &^= warned
		r.err = nil
	}
}

// Revoke ends everything under way in a context, which may be closed, with err and
// refuses what is begun there from now on. Nil: ErrRevoked.
func (e *Engine) Revoke(c Context, err error) {
	e.gate.lock()
	defer e.leave()
	e.revoke(c, err)
}

func (e *Engine) revoke(c Context, err error) {
	if int(c) >= len(e.contexts) || e.contexts[c] == nil || e.contexts[c].revoked != nil {
		return
	}
	d := e.contexts[c]
	if err == nil {
		err = ErrRevoked
	}
	d.revoked = err
	e.endAll(func(r *request) bool { return r.ctx == c }, err)
	e.refuse(d)
	e.wakeProbes()
}

// endAll ends the requests under way that a condition picks.
func (e *Engine) endAll(pick func(*request) bool, err error) {
	for _, chunk := range e.requests.chunks {
		for i := range chunk {
			r := &chunk[i]
			if r.underWay() && pick(r) {
				e.detachRequest(r)
				e.end(r, err)
			}
		}
	}
}

// detachRequest takes a request that is under way out of everything that refers
// to it or to its buffer.
func (e *Engine) detachRequest(r *request) {
	if r.kind == recvRequest {
		if r.state == posted {
			e.contexts[r.ctx].unpost(r)
		} else {
			e.abandon(r)
		}
		return
	}
	p := e.peers[r.peer]
	switch {
	case r.state == posted:
		e.withdraw(p, r)
		return
	case p.proc == e.self:
		e.forgetSelf(r)
		return
	case r.state == announced:
		e.conceal(r)
	case r.remote != 0 && r.moved < r.total:
		p.streams.remove(r)
		p.backlog -= r.total - r.moved
	}
	for _, c := range p.conns {
		c.disown(r)
	}
}

// withdraw takes back a send that waits. If it has a number, the other side is told
// not to wait for it.
func (e *Engine) withdraw(p *peer, r *request) {
	if len(p.conns) == 0 {
		p.blocked.remove(r)
		return
	}
	c := p.rail(r.ctx, r.tag)
	c.blocked.remove(r)
	if len(p.conns) > 1 {
		e.control(c, &header{kind: kindEager, flags: flagVoid, ctx: r.ctx, tag: r.tag, seq: uint32(r.stamp)})
	}
}

// disown makes frames independent of a send's buffer: what has begun has to be
// sent to its end.
func (c *conn) disown(r *request) {
	for f := c.out.first; f != nil; f = f.next {
		if f.req == r {
			f.own(c.e)
		}
	}
	for f := c.trail.kept.first; f != nil; f = f.next {
		if f.req == r {
			c.trail.bytes += len(f.payload)
			f.own(c.e)
		}
	}
}

// own has a frame keep a copy of its payload, and belong to no request.
func (f *frame) own(e *Engine) {
	if !f.owned && len(f.payload) > 0 {
		own := e.buffers.get(len(f.payload))
		copy(own, f.payload)
		f.payload, f.owned = own, true
	}
	f.req = nil
}
