package engine

import "fmt"

// Isend begins to send. Small messages are on their way, or copied, when it
// returns; the request must be completed by Wait or Test, or freed.
func (e *Engine) Isend(a *SendArgs) (ID, error) {
	e.gate.lock()
	r, err := e.isend(a)
	id := ID{}
	if err == nil {
		id = r.id()
	}
	e.leave()
	return id, err
}

// Send sends and waits until Data may be used again.
func (e *Engine) Send(a *SendArgs) error {
	e.gate.lock()
	if a.Done == nil && a.Mode != Synchronous {
		if sent, err := e.sendNow(a); sent || err != nil {
			e.leave()
			return err
		}
	}
	r, err := e.isend(a)
	if err == nil {
		_, err = e.await(r)
	}
	e.leave()
	return err
}

// SendNow sends a message if it can be handed to its link at once; else, with sent
// false, it has done nothing and Send is to be called. It keeps nothing of a: Data
// may be on the caller's stack.
func (e *Engine) SendNow(a *SendArgs) (sent bool, err error) {
	e.gate.lock()
	sent, err = e.sendNow(a)
	e.leave()
	return sent, err
}

// checkSend finds whom and in what to send.
func (e *Engine) checkSend(a *SendArgs) (*peer, error) {
	if e.closed {
		return nil, ErrClosed
	}
	if a.Tag < 0 {
		return nil, ErrTag
	}
	p, err := e.peerOf(a.To)
	if err != nil {
		return nil, err
	}
	if err := p.gone(); err != nil {
		return nil, err
	}
	d, err := e.domain(a.Context)
	if err != nil {
		return nil, err
	}
	return p, d.revoked
}

// sendNow sends a message without a request if nothing is in its way.
func (e *Engine) sendNow(a *SendArgs) (sent bool, err error) {
	p, err := e.checkSend(a)
	if err != nil {
		return false, err
	}
	if p.state != up || p.proc == e.self {
		return false, nil
	}
	c := p.rail(a.Context, a.Tag)
	if w := c.carrier(); c.blocked.first != nil || !c.takes(len(a.Data)) || w.out.first != nil || w.broken {
		return false, nil
	}
	h := header{kind: kindEager, n: uint32(len(a.Data)), ctx: a.Context, tag: a.Tag}
	if len(p.conns) > 1 {
		h.seq = p.sequence(a.Context)
	}
	c.left.bytes -= len(a.Data) + overhead
	c.left.messages--
	return e.writeCopy(c, &h, a.Data), nil // if not, nothing can be sent any more, and the request is told why
}

// isend begins to send.
func (e *Engine) isend(a *SendArgs) (*request, error) {
	p, err := e.checkSend(a)
	if err != nil {
		return nil, err
	}
	r, err := e.newRequest(sendRequest)
	if err != nil {
		return nil, err
	}
	r.ctx, r.tag, r.peer, r.buf, r.done = a.Context, a.Tag, a.To, a.Data, a.Done
	r.status = Status{Source: e.self, Tag: a.Tag, Bytes: int64(len(a.Data))}
	r.total = len(a.Data)
	if a.Mode == Synchronous {
		r.flags = synchronous
	}
	switch {
	case p.proc == e.self:
		e.sendSelf(r)
	case p.state == up:
		e.queue(p, r)
	default:
		r.state = posted
		p.blocked.push(r)
		e.reach(p)
	}
	return r, nil
}

// queue numbers a message and sends it, or has it wait for its link's credit. It
// is numbered here, since those of other links do not wait for it.
func (e *Engine) queue(p *peer, r *request) {
	c := p.rail(r.ctx, r.tag)
	r.stamp = uint64(p.sequence(r.ctx))
	if c.blocked.first == nil && c.takesOne() {
		e.launch(c, r)
		return
	}
	r.state = posted
	c.blocked.push(r)
}

// launch sends a message, or announces it. There is credit for one more.
func (e *Engine) launch(c *conn, r *request) {
	h := header{kind: kindEager, n: uint32(len(r.buf)), ctx: r.ctx, tag: r.tag, seq: uint32(r.stamp)}
	whole := c.takes(len(r.buf))
	c.left.messages--
	if !whole {
		e.announce(c, r, h)
		return
	}
	c.left.bytes -= len(r.buf) + overhead
	if r.flags&synchronous != 0 {
		h.kind, h.x = kindSync, r.wire()
		r.state = announced
	} else {
		r.state = moving
	}
	e.write(c, &h, r.buf, r)
}

// announce sends the header of a message, which the other side will fetch or
// ask for.
func (e *Engine) announce(c *conn, r *request, h header) {
	h.kind, h.n, h.x, h.y = kindRTS, 0, r.wire(), uint64(len(r.buf))
	c.left.bytes -= overhead
	r.state = announced
	if c.pull != nil && len(r.buf) > 0 {
		h.z = c.pull.expose(h.x, r.buf)
		if r.addr = h.z; r.addr != 0 {
			e.shown++
		}
	}
	e.write(c, &h, nil, nil)
}

// unblock sends what has waited for credit.
func (e *Engine) unblock(c *conn) {
	for c.peer.state == up && c.takesOne() {
		r := c.blocked.first
		if r == nil {
			return
		}
		c.blocked.remove(r)
		e.launch(c, r)
	}
}

// cleared answers a clear to send: the data of a message may go.
func (e *Engine) cleared(c *conn, h *header) {
	if r := e.named(h.x, sendRequest, moving, c.peer.proc); r != nil && r.remote == h.y {
		return // it was asked again, since we seemed not to be there
	}
	r := e.named(h.x, sendRequest, announced, c.peer.proc)
	if r == nil || h.z > uint64(len(r.buf)) {
		e.control(c, &header{kind: kindRefuse, flags: flagOurs | e.whyRefused(h.ctx), x: h.y})
		return
	}
	if !e.takeBack(r) {
		return // the other side reads it by now
	}
	r.remote, r.total, r.moved = h.y, int(h.z), 0
	if r.total == 0 {
		e.end(r, nil)
		return
	}
	r.state = moving
	c.peer.streams.push(r)
	c.peer.backlog += r.total
	e.stream(c.peer)
}

// stream sends pieces of large messages over the links that take them now.
func (e *Engine) stream(p *peer) {
	for p.streams.first != nil && p.state == up {
		c, n := e.lane(p)
		if c == nil {
			return
		}
		e.sendPiece(c, n)
	}
}

// lane chooses the link for the next piece, and how long the piece is to be; nil:
// none takes one now.
func (e *Engine) lane(p *peer) (*conn, int) {
	if len(p.conns) == 1 {
		c := p.conns[0]
		if c.out.first != nil || c.broken {
			return nil, 0
		}
		return c, c.piece
	}
	p.lanes = p.lanes[:0]
	for _, c := range p.conns {
		p.lanes = append(p.lanes, lane{&c.gauge, c.out.first == nil && !c.broken})
	}
	n := min(pieceOf(p.backlog, len(p.conns)), p.streams.first.total-p.streams.first.moved)
	i := pick(p.lanes, n, p.backlog)
	if i < 0 {
		return nil, 0
	}
	p.conns[i].gauge.sent(e.clock(), n)
	return p.conns[i], n
}

// sendPiece sends at most so many of the next bytes.
func (e *Engine) sendPiece(c *conn, most int) {
	p := c.peer
	r := p.streams.first
	n := min(r.total-r.moved, most)
	h := header{kind: kindData, n: uint32(n), x: r.remote, y: uint64(r.moved)}
	data := r.buf[r.moved : r.moved+n]
	r.moved += n
	p.backlog -= n
	p.streams.remove(r)
	if r.moved < r.total {
		p.streams.push(r) // behind the others: they take turns
	}
	r.pieces++
	e.write(c, &h, data, r)
}

// arrived takes the acknowledgement of what has come by a wire.
func (e *Engine) arrived(c *conn, h *header) error {
	if h.ctx > 0 && !c.gauge.got(e.clock(), int(h.ctx)) {
		return fmt.Errorf("%w: acknowledges %d bytes too many", errViolation, h.ctx)
	}
	if err := e.acknowledged(c, h.seq); err != nil {
		return err
	}
	e.stream(c.peer)
	return nil
}

// sent is called when a frame with a send's data needs the send no more: its last
// byte is with the wire or, where it may have to be sent again, has come or was
// copied.
func (e *Engine) sent(r *request, k kind) {
	switch k {
	case kindEager:
		e.end(r, nil)
	case kindData:
		if r.pieces--; r.pieces == 0 && r.moved == r.total {
			e.end(r, nil)
		}
	case kindSync: // its end is the answer
	}
}

// matched is called when the other side says that it has taken a message.
func (e *Engine) matched(c *conn, h *header) {
	r := e.named(h.x, sendRequest, announced, c.peer.proc)
	if r == nil {
		return // revoked or failed in between
	}
	e.end(r, nil)
}

// refused is called when the other side does not know a message any more.
func (e *Engine) refused(c *conn, h *header) {
	err := ErrRefused
	if h.flags&flagRevoked != 0 {
		err = errRevokedThere
	}
	if h.flags&flagOurs != 0 {
		if r := e.named(h.x, recvRequest, moving, c.peer.proc); r != nil {
			e.abandon(r)
			e.end(r, err)
		}
		return
	}
	if r := e.named(h.x, sendRequest, announced, c.peer.proc); r != nil {
		e.end(r, err)
	}
}

// whyRefused is the flag of a refusal in a context that is revoked.
func (e *Engine) whyRefused(c Context) uint8 {
	if c < Context(len(e.contexts)) && e.contexts[c] != nil && e.contexts[c].revoked != nil {
		return flagRevoked
	}
	return 0
}

// takeBack is conceal, unless the other side makes use of its right already.
func (e *Engine) takeBack(r *request) bool {
	if r.addr != 0 {
		if c := e.peers[r.peer].rail(r.ctx, r.tag); c.pull != nil && !c.pull.withdraw(r.wire()) {
			return false
		}
		r.addr = 0
		e.shown--
	}
	return true
}

// conceal takes back the other side's right to read a send's data.
func (e *Engine) conceal(r *request) {
	if r.addr == 0 || r.kind != sendRequest {
		return
	}
	r.addr = 0
	e.shown--
	if p := e.peers[r.peer]; len(p.conns) > 0 {
		if c := p.rail(r.ctx, r.tag); c.pull != nil {
			c.pull.conceal(r.wire())
		}
	}
}
