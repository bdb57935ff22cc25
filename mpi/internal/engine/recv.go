package engine

import "time"

// Irecv begins to receive. The request must be completed by Wait or Test, or freed.
func (e *Engine) Irecv(a *RecvArgs) (ID, error) {
	e.gate.lock()
	r, err := e.irecv(a)
	id := ID{}
	if err == nil {
		id = r.id()
	}
	e.leave()
	return id, err
}

// Recv receives and waits for the end. If a process has failed that could have
// sent to a receive from AnyProc, it ends with ErrProcFailed.
func (e *Engine) Recv(a *RecvArgs) (Status, error) {
	e.gate.lock()
	r, err := e.irecv(a)
	st := Status{}
	if err == nil {
		st, err = e.awaitRecv(r)
	}
	e.leave()
	return st, err
}

// irecv begins to receive.
func (e *Engine) irecv(a *RecvArgs) (*request, error) {
	d, err := e.checkRecv(a.From, a.Context, a.Tag)
	if err != nil {
		return nil, err
	}
	r, err := e.newRequest(recvRequest)
	if err != nil {
		return nil, err
	}
	r.envelope = envelope{a.Context, a.Tag, a.From}
	r.buf, r.swap, r.done = a.Buf, a.Swap, a.Done
	if m := e.take(d, a.From, a.Tag); m != nil {
		e.give(m, r)
		return r, nil
	}
	if a.From != AnyProc {
		if err := e.peers[a.From].gone(); err != nil {
			e.release(r)
			return nil, err
		}
		e.reach(e.peers[a.From])
	}
	d.post(r)
	e.indulgeAll(a.From)
	if a.From == AnyProc && len(d.unacked) > 0 {
		e.warn(r, d.unacked[0])
	}
	return r, nil
}

// checkRecv finds in what to receive.
func (e *Engine) checkRecv(from Proc, c Context, tag int32) (*domain, error) {
	if e.closed {
		return nil, ErrClosed
	}
	if tag < 0 && tag != AnyTag {
		return nil, ErrTag
	}
	if from != AnyProc && (from < 0 || int(from) >= len(e.peers)) {
		return nil, ErrRankRange{from}
	}
	d, err := e.domain(c)
	if err != nil {
		return nil, err
	}
	return d, d.revoked
}

// awaitRecv waits for a blocking receive, which does not stay pending.
func (e *Engine) awaitRecv(r *request) (Status, error) {
	id := r.id()
	st, err := e.await(r)
	if p, ok := err.(ErrProcFailedPending); ok && e.lookup(id) == r {
		e.contexts[r.ctx].unpost(r)
		e.release(r)
		return Status{}, ErrProcFailed{p.Proc, p}
	}
	return st, err
}

// give starts what gets a message, which is in no list, into a receive's buffer.
func (e *Engine) give(m *message, r *request) {
	switch {
	case m.local != nil:
		e.giveSelf(m, r)
	case m.kind == kindRTS:
		p := e.peers[m.peer]
		e.consume(m.via, 0)
		if p.state == up {
			e.fetch(r, p, m)
		} else { // a matched probe had it when the peer went
			e.end(r, ErrProcFailed{p.proc, p.err})
		}
		e.freeMessage(m)
	case m.state == arriving:
		r.peer, r.tag, r.state = m.peer, m.tag, moving
		m.claimed = r
	default:
		e.deliver(m, r)
	}
}

// deliver copies a message that is here into a receive's buffer and ends it.
func (e *Engine) deliver(m *message, r *request) {
	n := copy(r.buf, m.data)
	if m.swapped {
		r.flags |= swapped
	}
	if m.kind == kindSync {
		e.control(m.via, &header{kind: kindFin, x: m.remote})
	}
	e.consume(m.via, m.size)
	r.peer, r.tag = m.peer, m.tag
	size := m.size
	e.freeMessage(m)
	e.received(r, n, size)
}

// received ends a receive: n bytes of a message are in its buffer.
func (e *Engine) received(r *request, n, size int) {
	if r.flags&swapped != 0 && r.swap != nil {
		r.swap.Swap(r.buf[:n])
	}
	r.status = Status{Source: r.peer, Tag: r.tag, Bytes: int64(n)}
	var err error
	if size > n {
		err = ErrTruncate{int64(size), int64(n)}
	}
	e.end(r, err)
}

// fetch gets the data of a message that was announced: by reading the sender's
// memory or by asking for it.
func (e *Engine) fetch(r *request, p *peer, m *message) {
	r.peer, r.tag = m.peer, m.tag
	r.status.Bytes = int64(m.size)
	r.remote, r.moved, r.total = m.remote, 0, min(m.size, len(r.buf))
	if m.swapped {
		r.flags |= swapped
	}
	r.way = unknownWay
	c := p.rail(r.ctx, m.tag)
	switch {
	case r.total == 0:
		e.control(m.via, &header{kind: kindFin, x: r.remote})
		e.received(r, 0, m.size)
	case m.addr != 0 && c.pull != nil:
		r.state, r.addr = moving, m.addr
		e.pulls.push(r)
		r.way, r.began = byReading, e.clock()
		if e.ways.prefer(r.total) == bySending {
			if patience := e.answers.begin(); patience > 0 {
				r.way, r.until = bySending, r.began+time.Duration(patience)*time.Microsecond
				e.ask(m.via, r)
			}
		}
		if r.way == byReading && r.total <= pullNow {
			e.pullSome(r)
		}
	default:
		r.state = moving
		e.ask(m.via, r)
	}
}

// ask tells the sender of a message that was announced to send its data.
func (e *Engine) ask(c *conn, r *request) {
	e.control(c, &header{kind: kindCTS, ctx: r.ctx, x: r.remote, y: r.wire(), z: uint64(r.total)})
}

const (
	pullNow   = 64 << 10 // read across at once what is at most so long
	pullPiece = 1 << 20  // and of the rest so much before looking at other things
)

// pullSome reads the next piece of a message from its sender's memory, if that is not
// expected to be sent.
func (e *Engine) pullSome(r *request) {
	if r.until > 0 {
		if e.clock() < r.until {
			return
		}
		r.until, r.way = 0, unknownWay
		e.answers.end(false)
	}
	p := e.peers[r.peer]
	c := p.rail(r.ctx, r.tag)
	n := min(r.total-r.moved, pullPiece)
	err := ErrRefused
	if r.moved > 0 || c.pull.claim(r.remote) {
		err = c.pull.pull(r.remote, r.addr, r.moved, r.buf[r.moved:r.moved+n])
	}
	if err != nil {
		e.pulls.remove(r)
		r.addr, r.way = 0, unknownWay
		r.moved = 0 // the sender is to send it, or does, or is to say that it does not know it any more; or its death is noticed
		c.pull.unclaim(r.remote)
		e.ask(c, r)
		return
	}
	if r.moved += n; r.moved < r.total {
		return
	}
	e.pulls.remove(r)
	r.addr = 0
	e.ways.note(r.way, r.total, e.clock()-r.began)
	e.control(c, &header{kind: kindFin, x: r.remote})
	e.received(r, r.total, int(r.status.Bytes))
}

// pullAll gives each message that is being read across its turn.
func (e *Engine) pullAll() bool {
	last := e.pulls.last
	if last == nil {
		return false
	}
	for r := e.pulls.first; r != nil; {
		next, end := r.next, r == last
		e.pullSome(r)
		if end {
			break
		}
		r = next
	}
	return true
}

// abandon takes a receive out of whatever fills it, so that its buffer can be
// given back. It is not among the posted ones.
func (e *Engine) abandon(r *request) {
	if r.addr != 0 {
		e.pulls.remove(r)
		r.addr, r.until = 0, 0
		return
	}
	if p := e.peers[r.peer]; p != nil {
		for _, c := range p.conns {
			c.in.forget(r)
		}
	}
	for i := range e.messages.chunks { // one that was claimed while arriving
		for k := range e.messages.chunks[i] {
			if m := &e.messages.chunks[i][k]; m.claimed == r {
				m.claimed = nil
				m.orphan = true
			}
		}
	}
}
