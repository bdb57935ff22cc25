package engine

// With several sockets to a peer, messages of different tags may overtake each
// other on the way: that is what they are for, since a packet lost on one does
// not hold up the others. Messages of the same context and tag always take the
// same socket, so a receive that names a tag may have the first that comes. One
// that takes any tag may not (MPI 4.1 §3.5): it must get what was sent first.
//
// So messages are numbered for each (context, process). One that comes while an
// earlier one is missing is early:
//   - It is received at once if the first receive that matches names its tag and
//     no message of the same tag waits among the early ones. No missing message
//     can have that tag, so none could have been for this receive.
//   - Otherwise it waits, invisible to receives of any tag, until all before it
//     have come; then it is processed as if it had come in its turn.

// track counts the messages between two processes in one context.
type track struct {
	next uint32   // the first that has not come
	base uint32   // what the first bit of came is about
	came []uint64 // which came, and were received, before their turn
}

// farthest is how much before its turn a message may be received. Beyond, it
// waits, so that what has to be remembered is bounded.
const farthest = 1 << 20

// skip notes that a message is received before its turn; false: it is too far.
func (t *track) skip(seq uint32) bool {
	if len(t.came) == 0 {
		t.base = t.next
	}
	if !t.near(seq) {
		return false
	}
	i := seq - t.base
	for int(i/64) >= len(t.came) {
		t.came = append(t.came, 0)
	}
	t.came[i/64] |= 1 << (i % 64)
	return true
}

// near reports whether skip would take a message.
func (t *track) near(seq uint32) bool { return seq-t.next < farthest }

// advance counts the next message, and those after it that came before.
func (t *track) advance() {
	for {
		t.next++
		i := t.next - t.base
		for len(t.came) > 0 && i >= 64 {
			t.came, t.base, i = t.came[1:], t.base+64, i-64
		}
		if len(t.came) == 0 {
			t.came = nil
			return
		}
		if t.came[0]&(1<<i) == 0 {
			return
		}
	}
}

// sequence is the number of the next message to a peer in a context. Peers with
// one link for messages do not count.
func (p *peer) sequence(c Context) uint32 {
	if len(p.conns) <= 1 {
		return 0
	}
	for int(c) >= len(p.out) {
		p.out = append(p.out, make([]track, int(c)+1-len(p.out))...)
	}
	n := p.out[c].next
	p.out[c].next++
	return n
}

// inTurn reports whether a message is the next from a peer, and counts it if so.
func (p *peer) inTurn(c Context, seq uint32) bool {
	if len(p.conns) <= 1 {
		return true
	}
	for int(c) >= len(p.in) {
		p.in = append(p.in, make([]track, int(c)+1-len(p.in))...)
	}
	if p.in[c].next != seq {
		return false
	}
	p.in[c].advance()
	return true
}

// skip notes that the message is received before its turn; false: it must wait.
func (p *peer) skip(c Context, seq uint32) bool { return p.in[c].skip(seq) }

// earlyReceiver finds the receive that an early message may have now.
func (d *domain) earlyReceiver(source Proc, tag int32) *request {
	r := d.receiver(source, tag)
	if r == nil || r.tag == AnyTag {
		return nil
	}
	for m := d.early.first; m != nil; m = m.links[byTime].next {
		if m.peer == source && m.tag == tag {
			return nil
		}
	}
	return r
}

// findEarly finds the early message that a receive posted now may have.
func (e *Engine) findEarly(d *domain, from Proc, tag int32) *message {
	if d.early.first == nil || tag == AnyTag {
		return nil
	}
	for m := d.early.first; m != nil; m = m.links[byTime].next {
		if m.tag != tag || from != AnyProc && m.peer != from || !e.peers[m.peer].in[d.id].near(m.seq) {
			continue
		}
		// A receive posted before this one that matches as well may be for it.
		if d.receiver(m.peer, m.tag) == nil {
			return m
		}
	}
	return nil
}

// catchUp processes early messages of a process whose turn has come.
func (e *Engine) catchUp(d *domain, p *peer) {
	for again := true; again && d.early.first != nil; {
		again = false
		for m := d.early.first; m != nil; m = m.links[byTime].next {
			if m.peer != p.proc || !p.inTurn(d.id, m.seq) {
				continue
			}
			d.early.remove(byTime, m)
			e.place(d, m)
			again = true
			break
		}
	}
}

// place gives a message to the receive that waits for it, or holds it.
func (e *Engine) place(d *domain, m *message) {
	r := d.receiver(m.peer, m.tag)
	if r == nil {
		d.hold(m)
		e.wakeProbes()
		return
	}
	d.unpost(r)
	e.give(m, r)
}
