package engine

import "fmt"

// inbound is the frame that a link is receiving.
type inbound struct {
	h   header
	dst []byte // where the payload goes; what is beyond is dropped
	got int    // bytes of payload that have come

	of   *conn // the link that the frame belongs to
	open bool  // it has begun and has not come whole
	cut  bool  // eager, sync: its wire was lost before; see resume

	req *request // eager, sync, data: whose buffer dst is
	msg *message // eager, sync: what dst is in, for want of a receive
}

// forget stops filling a request's buffer.
func (in *inbound) forget(r *request) {
	if in.req == r {
		in.req, in.dst = nil, nil
	}
}

// left is how much of the payload is still to come.
func (in *inbound) left() int { return int(in.h.n) - in.got }

// space returns where the next bytes of the payload go; nil: they are dropped.
func (in *inbound) space() []byte {
	if in.got < len(in.dst) {
		return in.dst[in.got:]
	}
	return nil
}

// fill takes bytes of the payload, at most what is left.
func (in *inbound) fill(p []byte) {
	copy(in.space(), p)
	in.got += len(p)
}

// begin looks at the header of a frame, in c.in.h, and decides where its payload
// goes. An error breaks the link.
func (e *Engine) begin(c *conn) error {
	in := &c.in
	in.dst, in.got, in.req, in.msg = nil, 0, nil, nil
	if c.peer.state != up {
		return fmt.Errorf("%w: frame after goodbye", errViolation)
	}
	var err error
	if in.of, err = c.owner(&in.h); err != nil {
		return err
	}
	in.open = true
	switch h := &in.h; h.kind {
	case kindEager, kindSync, kindRTS:
		if c.peer.cut > 0 {
			if again, err := e.resume(c.peer, in); again || err != nil {
				return err
			}
		}
		return e.beginMessage(in)
	case kindData:
		return e.beginData(c, h)
	case kindPost:
		if h.n > 0 {
			in.dst = e.buffers.get(int(h.n))
		}
	}
	return nil
}

// beginMessage matches a message.
func (e *Engine) beginMessage(in *inbound) error {
	c, h := in.of, &in.h
	p := c.peer
	if h.flags&flagVoid != 0 {
		return e.passOver(p, h)
	}
	size := int(h.n)
	if h.kind == kindRTS {
		size = 0
		if h.y > maxMessage {
			return fmt.Errorf("%w: message of %d bytes", errViolation, h.y)
		}
	}
	if err := c.hold(size); err != nil {
		return err
	}
	d, err := e.landing(h.ctx)
	if err != nil {
		return err
	}
	turn := p.inTurn(h.ctx, h.seq)
	var r *request
	if d.revoked != nil {
		if !turn {
			p.skip(h.ctx, h.seq)
		}
	} else if turn { // also when the context was closed: receives under way go on
		r = d.receiver(p.proc, h.tag)
	} else if r = d.earlyReceiver(p.proc, h.tag); r != nil && !p.skip(h.ctx, h.seq) {
		r = nil
	}
	if r != nil {
		d.unpost(r)
	}
	if h.kind != kindRTS && r != nil {
		r.peer, r.tag, r.state = p.proc, h.tag, moving
		in.req, in.dst = r, r.buf[:min(size, len(r.buf))]
	} else {
		e.keep(in, d, r, turn)
		if c.held.messages >= c.granted.messages/4*3 && e.awaits(p.proc) {
			e.indulge(c)
		}
	}
	if turn && d.early.first != nil {
		e.catchUp(d, p)
	}
	return nil
}

// passOver counts a message that was numbered and will not come.
func (e *Engine) passOver(p *peer, h *header) error {
	d, err := e.landing(h.ctx)
	switch {
	case err != nil:
		return err
	case !p.inTurn(h.ctx, h.seq):
		p.skip(h.ctx, h.seq)
	case d.early.first != nil:
		e.catchUp(d, p)
	}
	return nil
}

// keep makes a message of a frame that no receive waits for, or of an
// announcement. r, if not nil, is the receive that gets it.
func (e *Engine) keep(in *inbound, d *domain, r *request, turn bool) {
	c, h := in.of, &in.h
	m := e.newMessage(int(h.n))
	m.envelope = envelope{h.ctx, h.tag, c.peer.proc}
	m.kind, m.seq, m.remote, m.swapped, m.via = h.kind, h.seq, h.x, c.swapped, c
	m.size, m.state = int(h.n), arriving
	if h.kind == kindRTS {
		m.size, m.addr, m.state = int(h.y), h.z, ready
	} else {
		in.msg, in.dst = m, m.data
	}
	switch {
	case d.revoked != nil:
		m.orphan = true
		if m.state == ready {
			e.discard(m)
		}
	case r != nil:
		e.give(m, r)
	case !turn:
		d.early.push(byTime, m)
		e.wakeProbes() // its announcement is there, which may be all that they want
	default:
		d.hold(m)
		e.wakeProbes()
	}
}

// beginData finds the receive that a piece of a large message is for.
func (e *Engine) beginData(c *conn, h *header) error {
	r := e.named(h.x, recvRequest, moving, c.peer.proc)
	if r == nil {
		return nil // given up in between: dropped
	}
	n := uint64(h.n)
	if h.y > uint64(r.total) || n > uint64(r.total)-h.y || n > uint64(r.total-r.moved-r.pieces) || r.addr != 0 && r.until == 0 {
		return fmt.Errorf("%w: data beyond what was asked for", errViolation)
	}
	if r.addr != 0 { // its sender was there to send it
		e.pulls.remove(r)
		r.addr, r.until = 0, 0
		e.answers.end(true)
	}
	r.pieces += int(n)
	c.in.req, c.in.dst = r, r.buf[h.y:h.y+n]
	return nil
}

// complete is called when the whole payload of a frame has come.
func (e *Engine) complete(c *conn) error {
	in := &c.in
	r, m, dst := in.req, in.msg, in.dst
	in.req, in.msg, in.dst, in.open = nil, nil, nil, false
	e.count(c)
	switch h := &in.h; h.kind {
	case kindEager, kindSync:
		e.completeMessage(in, r, m)
	case kindData:
		if r != nil {
			e.completeData(r, int(h.n), c.swapped)
		}
	case kindGot:
		return e.arrived(c, h)
	case kindCTS:
		e.cleared(in.of, h)
	case kindFin:
		e.matched(in.of, h)
	case kindRefuse:
		e.refused(in.of, h)
	case kindCredit:
		if err := in.of.credited(h); err != nil {
			return err
		}
		e.unblock(in.of)
	case kindPost:
		e.handle(c.peer.proc, h, dst)
		e.buffers.put(dst)
	case kindBye:
		e.goodbye(in.of)
	case kindLost:
		return e.lostThere(c.peer, h)
	}
	return nil
}

// completeMessage ends what an eager message was received into: a receive's
// buffer, memory of ours, or nothing any more.
func (e *Engine) completeMessage(in *inbound, r *request, m *message) {
	c, h := in.of, &in.h
	if h.flags&flagVoid != 0 {
		return
	}
	if m == nil {
		if h.kind == kindSync {
			e.control(c, &header{kind: kindFin, x: h.x})
		}
		e.consume(c, int(h.n))
		if r != nil {
			if c.swapped {
				r.flags |= swapped
			}
			e.received(r, min(int(h.n), len(r.buf)), int(h.n))
		}
		return
	}
	m.state = ready
	switch {
	case m.orphan:
		e.discard(m)
	case m.claimed != nil:
		e.deliver(m, m.claimed)
	default:
		e.wakeProbes()
	}
}

// completeData ends a piece of a large message, and the receive with the last.
func (e *Engine) completeData(r *request, n int, swap bool) {
	if swap {
		r.flags |= swapped
	}
	r.pieces -= n
	if r.moved += n; r.moved == r.total {
		if r.way != unknownWay {
			e.ways.note(r.way, r.total, e.clock()-r.began)
		}
		e.received(r, r.total, int(r.status.Bytes))
	}
}

// discard drops a message that nobody will receive, and tells who waits for it.
func (e *Engine) discard(m *message) {
	if m.state == arriving {
		m.orphan = true
		return
	}
	if m.local != nil {
		e.end(m.local, ErrRefused)
		e.freeMessage(m)
		return
	}
	size := m.size
	if m.kind == kindRTS {
		size = 0
	}
	e.consume(m.via, size)
	if m.kind != kindEager {
		e.control(m.via, &header{kind: kindRefuse, flags: e.whyRefused(m.ctx), x: m.remote})
	}
	e.freeMessage(m)
}

// maxMessage bounds a message; a peer that announces more lies.
const maxMessage = 1 << 46
