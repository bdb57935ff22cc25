package engine

// domain is a context: the receives that wait for a message and the messages
// that wait for a receive. Both are kept by source, in bins, so that a process
// that talks to many does not search among all; what names no source is kept by
// order of time beside them.
type domain struct {
	id      Context
	open    bool  // the caller has opened it; until then messages only gather
	strange bool  // only peers have named it
	revoked error // why operations are refused
	members []Proc
	unacked []Proc // members that have failed and were not acknowledged

	bins    []bin    // a power of two
	wild    requests // receives from AnyProc
	arrived messages // all messages, in order of arrival
	early   messages // those that came before one sent earlier; see order.go
	stamp   uint64   // of the next receive
}

// bin is what concerns the sources that fall into it.
type bin struct {
	posted  requests
	arrived messages
}

const (
	fewBins  = 4
	mostBins = 64
)

func (d *domain) bin(p Proc) *bin { return &d.bins[int(p)&(len(d.bins)-1)] }

// spread gives the domain bins for so many members.
func (d *domain) spread(members int) {
	n := fewBins
	for n < members && n < mostBins {
		n *= 2
	}
	if n <= len(d.bins) {
		return
	}
	old := d.bins
	d.bins = make([]bin, n)
	for i := range old {
		for r := old[i].posted.first; r != nil; {
			next := r.next
			d.bin(r.peer).posted.push(r)
			r = next
		}
	}
	for m := d.arrived.first; m != nil; m = m.links[byTime].next {
		d.bin(m.peer).arrived.push(bySource, m)
	}
}

// message is one that has arrived, or was announced, without a receive for it.
type message struct {
	slot, gen uint32
	envelope
	seq     uint32
	kind    kind
	state   messageState
	swapped bool     // of the other byte order
	orphan  bool     // to be dropped when it has arrived
	seized  bool     // by a matched probe
	size    int      // of the message
	data    []byte   // eager: its contents
	remote  uint64   // sync, rts: the sender's request
	addr    uint64   // rts: where the data is
	via     *conn    // the link it came by; nil: it is ours
	local   *request // the send itself, if it is ours
	claimed *request // the receive that gets it when it is all there
	small   [64]byte // data of small messages
	links   [2]link
}

type messageState uint8

const (
	noMessage messageState = iota
	arriving               // its contents are on their way
	ready
)

type link struct{ next, prev *message }

// The lists that a message is in.
const (
	byTime   = 0 // domain.arrived, domain.early
	bySource = 1 // bin.arrived
)

// messages is a list of messages, linked through themselves.
type messages struct{ first, last *message }

func (l *messages) push(k int, m *message) {
	m.links[k] = link{prev: l.last}
	if l.last == nil {
		l.first = m
	} else {
		l.last.links[k].next = m
	}
	l.last = m
}

func (l *messages) remove(k int, m *message) {
	at := m.links[k]
	if at.prev == nil {
		l.first = at.next
	} else {
		at.prev.links[k].next = at.next
	}
	if at.next == nil {
		l.last = at.prev
	} else {
		at.next.links[k].prev = at.prev
	}
	m.links[k] = link{}
}

// hold puts a message among those that wait for a receive.
func (d *domain) hold(m *message) {
	d.arrived.push(byTime, m)
	d.bin(m.peer).arrived.push(bySource, m)
}

// drop takes a message out of those that wait.
func (d *domain) drop(m *message) {
	d.arrived.remove(byTime, m)
	d.bin(m.peer).arrived.remove(bySource, m)
}

// post adds a receive to those that wait for a message.
func (d *domain) post(r *request) {
	r.state = posted
	r.stamp = d.stamp
	d.stamp++
	if r.peer == AnyProc {
		d.wild.push(r)
	} else {
		d.bin(r.peer).posted.push(r)
	}
}

// unpost takes a receive out of those that wait.
func (d *domain) unpost(r *request) {
	if r.flags&warned != 0 { // of what does not matter any more
		r.flags &^= warned
		r.err = nil
	}
	if r.peer == AnyProc {
		d.wild.remove(r)
	} else {
		d.bin(r.peer).posted.remove(r)
	}
}

// receiver finds the receive that was posted first of those that match a
// message, and leaves it where it is.
func (d *domain) receiver(source Proc, tag int32) *request {
	r := d.bin(source).posted.first
	for ; r != nil; r = r.next {
		if r.peer == source && (r.tag == tag || r.tag == AnyTag) {
			break
		}
	}
	w := d.wild.first
	for ; w != nil; w = w.next {
		if w.tag == tag || w.tag == AnyTag {
			break
		}
	}
	if r == nil || w != nil && w.stamp < r.stamp {
		return w
	}
	return r
}

// find finds the message that a receive posted now gets, and leaves it where it
// is; early tells in which list.
func (e *Engine) find(d *domain, from Proc, tag int32) (m *message, early bool) {
	if from == AnyProc {
		for m = d.arrived.first; m != nil; m = m.links[byTime].next {
			if m.tag == tag || tag == AnyTag {
				return m, false
			}
		}
	} else {
		for m = d.bin(from).arrived.first; m != nil; m = m.links[bySource].next {
			if m.peer == from && (m.tag == tag || tag == AnyTag) {
				return m, false
			}
		}
	}
	return e.findEarly(d, from, tag), true
}

// take is find that removes the message.
func (e *Engine) take(d *domain, from Proc, tag int32) *message {
	m, early := e.find(d, from, tag)
	switch {
	case m == nil:
	case early:
		e.peers[m.peer].skip(d.id, m.seq)
		d.early.remove(byTime, m)
	default:
		d.drop(m)
	}
	return m
}

// newMessage takes a message from the slab, with room for n bytes.
func (e *Engine) newMessage(n int) *message {
	m, i := e.messages.get()
	m.slot = i
	if m.gen == 0 {
		m.gen = 1
	}
	if n <= len(m.small) {
		m.data = m.small[:n]
	} else {
		m.data = e.buffers.get(n)
	}
	return m
}

// freeMessage gives a message and its memory back. It is in no list any more.
func (e *Engine) freeMessage(m *message) {
	if len(m.data) > len(m.small) {
		e.buffers.put(m.data)
	}
	gen := m.gen + 1
	if gen == 0 {
		gen = 1
	}
	// Field by field: the array of small data need not be cleared.
	m.gen, m.state, m.data, m.local, m.claimed, m.via = gen, noMessage, nil, nil, nil, nil
	m.remote, m.addr, m.swapped, m.orphan, m.seized = 0, 0, false, false, false
	e.messages.put(m.slot)
}
