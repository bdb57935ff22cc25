package engine

// Messages to oneself need no link: a send looks for its receive directly. One
// that finds none is copied if it is small and there is credit left, as with
// any other peer, and waits where it is otherwise.

// sendSelf sends a message to this process.
func (e *Engine) sendSelf(r *request) {
	d := e.contexts[r.ctx]
	if to := d.receiver(e.self, r.tag); to != nil {
		d.unpost(to)
		to.peer, to.tag = e.self, r.tag
		n := copy(to.buf, r.buf)
		size := len(r.buf)
		e.end(r, nil)
		e.received(to, n, size)
		return
	}
	p := e.peers[e.self]
	n := len(r.buf)
	small := r.flags&synchronous == 0 && n <= p.eager && p.own.held.bytes+n+overhead <= p.own.granted.bytes
	room := 0
	if small {
		room = n
	}
	m := e.newMessage(room)
	m.envelope = envelope{r.ctx, r.tag, e.self}
	m.kind, m.state, m.size, m.local = kindRTS, ready, n, r
	r.state = announced
	if small {
		copy(m.data, r.buf)
		m.kind, m.local = kindEager, nil
		p.own.held.add(n)
		e.end(r, nil)
	}
	d.hold(m)
	e.wakeProbes()
}

// giveSelf gives a message that waits with its sender, ourselves, to a receive.
func (e *Engine) giveSelf(m *message, r *request) {
	from := m.local
	r.peer, r.tag = e.self, m.tag
	n := copy(r.buf, from.buf)
	size := m.size
	e.freeMessage(m)
	e.end(from, nil)
	e.received(r, n, size)
}

// forgetSelf drops the message of a send to ourselves that ends without it.
func (e *Engine) forgetSelf(r *request) {
	d := e.contexts[r.ctx]
	for m := d.bin(e.self).arrived.first; m != nil; m = m.links[bySource].next {
		if m.local == r {
			d.drop(m)
			e.freeMessage(m)
			return
		}
	}
	for i := range e.messages.chunks { // one that a matched probe has
		for k := range e.messages.chunks[i] {
			if m := &e.messages.chunks[i][k]; m.local == r {
				m.local, m.orphan = nil, true
			}
		}
	}
}
