package engine

// A small message that a ring brings while its receiver waits for nothing else
// needs no request: it is copied from the ring to where it goes. So it is as fast
// as shared memory lets it be.

const (
	nowLooks = 16 * looks // at the ring, about as long as an answer takes
	nowTurns = 64         // messages received in this way before everything is polled
)

// RecvNow receives if that takes no more than a glance and a copy; else, with done
// false, it has done nothing and Recv is to be called. It keeps nothing of a: Buf
// may be on the caller's stack.
func (e *Engine) RecvNow(a *RecvArgs) (st Status, done bool, err error) {
	e.gate.lock()
	st, done, err = e.recvNow(a)
	e.leave()
	return st, done, err
}

// recvNow receives from one process what comes next from its ring. It is not done
// if that is, or may be, not what the receive is for, if something else is to be
// done as well, or if nothing comes: then the engine is as it was.
func (e *Engine) recvNow(a *RecvArgs) (st Status, done bool, err error) {
	c := e.undisturbed(a)
	if c == nil {
		return st, false, nil
	}
	for i := nowLooks; !c.ring.in.filled(); i-- {
		if i == 0 || e.spins == 0 || e.gate.want.Load() != 0 {
			return st, false, nil
		}
	}
	f, err := c.ring.in.peek()
	if err != nil || len(f) < shortHeader || kind(f[0]) != kindEager {
		return st, false, nil // the poll that follows sees the same
	}
	var h header
	if n, err := h.decode(f); err != nil || len(f)-n != int(h.n) || h.ctx != a.Context || h.tag != a.Tag && a.Tag != AnyTag {
		return st, false, nil
	}
	p, size := c.peer, int(h.n)
	if c.hold(size) != nil {
		c.held.bytes -= size + overhead
		c.held.messages--
		return st, false, nil
	}
	n := copy(a.Buf, f[shortHeader:])
	if c.ring.in.advance(f) && c.ring.asleep.Load() != 0 {
		c.ring.bell()
	}
	e.consume(c, size)
	e.turns++
	if size > n {
		err = ErrTruncate{int64(size), int64(n)}
	}
	return Status{Source: p.proc, Tag: h.tag, Bytes: int64(n)}, true, err
}

// undisturbed returns the link that a receive's message will come by if its ring
// is all that has to be looked at.
func (e *Engine) undisturbed(a *RecvArgs) *conn {
	if a.Done != nil || a.From < 0 || int(a.From) >= len(e.peers) || e.closed || e.turns%nowTurns == 0 ||
		e.driver != nil && e.driver != &e.helper || e.asleep.Load() != 0 ||
		len(e.output) > 0 || len(e.leavers) > 0 || e.pulls.first != nil || len(e.probing) > 0 {
		return nil
	}
	p := e.peers[a.From]
	if p.state != up || len(p.conns) != 1 || p.conns[0].ring == nil || p.conns[0].swapped {
		return nil
	}
	d, err := e.domain(a.Context)
	if err != nil || d.revoked != nil || d.wild.first != nil || d.early.first != nil {
		return nil
	}
	if b := d.bin(a.From); b.posted.first != nil || b.arrived.first != nil {
		return nil
	}
	return p.conns[0]
}
