package shaper

import "time"

const (
	// windowTime is how much of the link's time stage 1 keeps between itself
	// and the wire, so that stage 2 does not run dry although goroutines
	// beside spinning ranks are late by milliseconds, and so that the reader
	// is woken for several packets at a time: each wake costs as much as
	// sealing them. It grows up to windowMax where it runs dry.
	windowTime = 10 * int64(time.Millisecond)
	windowMax  = 20 * int64(time.Millisecond)
	windowEase = int64(250 * time.Millisecond) // how often it shrinks by an eighth of its growth

	// markAfter is the wait from which packets are marked. Three flows of
	// TCP's that cut their windows together, to 0.7 of them, still fill a link
	// with a round trip of 23 ms. It is a wait at the most that the link's
	// rate may become: what waits so long at a quarter of it is not enough to
	// fill the whole when it is given, and TCP needs many round trips to have
	// more under way. markMost bounds the wait at the present rate.
	markAfter = int64(10 * time.Millisecond)
	markMost  = int64(50 * time.Millisecond)

	// markBytes is what of a flow may wait unmarked however long. A message that a
	// program has handed over to the last byte waits here or there; a mark only
	// makes the next one wait for acknowledgements, of which a collective operation
	// has the time of every step. All-to-alls of 16 KiB take a quarter less than
	// if all that waits for 10 ms is marked. Others may say that it has to be more;
	// see Link.SetBurst. All flows' together are half of what a link holds, so that
	// marks come before drops.
	markBytes = 64 << 10

	// TCP without marks doubles its window in a time in which the link carries
	// one, so a flow's queue must hold the growth of a markAfter and a round
	// trip; twice that of a WAN is on the safe side. A link's hold all flows'. At
	// least they hold so many times what may wait unmarked: of the burst of each of
	// four peers all, of more peers' a part.
	flowTime, flowBursts = int64(150 * time.Millisecond), 4
	linkTime, linkBursts = int64(300 * time.Millisecond), 8
	linkLeast            = 1 << 20

	// share is what a flow may always queue, bytes, even when others fill the
	// link's limit.
	share = 16 << 10

	// turnBytes is what a flow may send per turn: a large datagram.
	turnBytes = 1542

	// freshBytes is what of a flow that had nothing waiting goes before others' turns,
	// in the order in which such flows came: a message of 16 KiB as it is on the wire.
	// Served in turns, all of several messages would come when the last does; so stage 2
	// has the same.
	freshBytes = 20 << 10
)

// counted is how stage 1 and the count of released bytes see a packet of n
// bytes, for which stage 2 sees n rounded up to 16 or, at the MTU, less: here
// both come to the same. (Its exact size on the wire is what stage 2 charges.)
func counted(n int) int { return (n+15)&^15 + sealing + overheadIPv4 }

// flying is what the link has released and not yet sent, bytes. What was sealed late,
// after it had been given up as lost, or while there was no limit, leaves the count of
// released bytes too small: what stage 2 holds is known.
func (l *Link) flying() int { return max(l.released, l.out.bytes) }

// windowBytes is how much may be released and not yet sent.
func (m *model) windowBytes(l *Link) int {
	return max(m.two+m.two/2, int(float64(m.span(l, l.window))*m.crowd()))
}

// crowd is what part of its limit each link has of those that wait, where the uplink
// carries less than all: else what is under way together would wait for longer the more
// links there are.
func (m *model) crowd() float64 {
	sum := Rate(0)
	for _, l := range m.busy {
		if l.waits() {
			sum += m.limit(l)
		}
	}
	if m.uplink.rate == 0 || sum <= m.uplink.rate {
		return 1
	}
	return float64(m.uplink.rate) / float64(sum)
}

// part is what of a window a flow that has nothing waiting may have under way though
// others wait: what it would have if it waited with them. Were it more, one batch of
// the TUN's could fill another window before theirs; were it none, a flow that sends a
// few packets at a time would wait for half a window each time.
func (m *model) part(f *Flow, window int) int {
	n := len(f.link.wait.queues)
	if !f.wait.in {
		n++
	}
	return max(window/n, turnBytes)
}

// admit decides on packets before encryption, each in its buffer from offset on, and makes
// the size of those zero that are not to be sealed now; see Flow.Admit.
func (m *model) admit(now int64, f *Flow, bufs [][]byte, sizes []int, offset int) {
	l := f.link
	if f.closed || m.closed || m.limit(l) == 0 && l.wait.packets == 0 {
		return
	}
	m.wake(now, l)
	m.heal(now, l)
	window := m.windowBytes(l)
	for i, n := range sizes {
		if !m.lets(now, f, bufs[i][offset:offset+n], window) {
			sizes[i] = 0
			window = m.windowBytes(l) // now that something waits
		}
	}
}

// lets reports whether a packet may be sealed now, if the link's window is of so many bytes.
// If not, it is queued or dropped.
func (m *model) lets(now int64, f *Flow, pkt []byte, window int) bool {
	l, size := f.link, counted(len(pkt))
	if f.wait.packets+f.out.packets == 0 && (l.wait.packets == 0 || f.released+size <= m.part(f, window)) {
		// Stage 2 is fair: who has less than its part under way does not wait for others'
		// turns here. And while nobody waits, twice the window bridges a reader that
		// comes late: one flow of TCP's loses 4 % of 100 Mb/s by less, beside spinning
		// processes.
		window *= 2
	} else if bareAck(pkt) {
		window *= 2
	} else if l.wait.packets > 0 {
		window = 0
	}
	if l.flying()+size <= window {
		m.release(now, f, size)
		if l.wait.packets > 0 && f.wait.empty() && !bareAck(pkt) {
			l.wait.addFresh(&f.wait) // it goes before others
			f.wait.credit = max(f.wait.credit-size, -freshBytes)
		}
		return true
	}
	if len(pkt) == 0 || len(pkt) > chunkSize || !m.room(l, f, size) {
		f.stats.Dropped++
		return false
	}
	if f.wait.empty() {
		l.wait.addFresh(&f.wait)
	}
	f.wait.push(&m.pool, rec{at: now, carried: m.carries(now, l)}, pkt, size)
	l.wait.bytes += size
	l.wait.packets++
	m.settle(l)
	return false
}

// markedFrom is the wait from which a link's packets are marked.
func (m *model) markedFrom(l *Link) int64 {
	now := m.limit(l)
	if now == 0 || l.most <= now {
		return markAfter
	}
	return min(int64(float64(markAfter)*float64(l.most)/float64(now)), markMost)
}

// late reports whether a packet has waited for long enough to be marked: at the rate that
// there is now. What waited while the rate was lower says nothing of the queue that it
// leaves behind, and marked for that TCP would cut its window just when there is more to
// be had: given a whole link instead of a third, it took half a second to fill it.
func (m *model) late(now int64, l *Link, came rec) bool {
	after := m.markedFrom(l)
	return now-came.at > after && (m.limit(l) == 0 || m.carries(now, l)-came.carried > int64(m.span(l, after)))
}

// unmarked is how many bytes of a flow may wait unmarked however long.
func (m *model) unmarked(l *Link) int {
	_, ofLink := m.holds(l)
	return min(l.markBytes(), ofLink/2/len(l.wait.queues))
}

// markBytes is what of each flow may wait unmarked, if they are few.
func (l *Link) markBytes() int { return max(markBytes, l.burst) }

// holds is how much stage 1 holds of a flow, and of a link, at most.
func (m *model) holds(l *Link) (ofFlow, ofLink int) {
	ofFlow, ofLink = flowBursts*l.markBytes(), max(linkBursts*l.markBytes(), linkLeast)
	if m.limit(l) == 0 {
		return ofFlow, ofLink
	}
	return max(ofFlow, m.span(l, flowTime)), max(ofLink, m.span(l, linkTime))
}

// room reports whether stage 1 may hold size more bytes of a flow.
func (m *model) room(l *Link, f *Flow, size int) bool {
	ofFlow, ofLink := m.holds(l)
	return f.wait.bytes+size <= share || f.wait.bytes+size <= ofFlow && l.wait.bytes+size <= ofLink
}

// release lets bytes of a limited link through to encryption.
func (m *model) release(now int64, f *Flow, size int) {
	l := f.link
	if m.limit(l) == 0 {
		return
	}
	if l.released == 0 {
		l.progress = now
	}
	if f.lost && now-l.progress < healAfter {
		return // it takes its turns, and no room
	}
	f.lost = false
	if f.released == 0 {
		f.progress = now
	}
	l.released += size
	f.released += size
}

// heal forgets released packets that must have been lost on the way to stage 2: all of a
// link's when nothing comes there any more, or those of a flow, for which WireGuard has no
// session, say, while others get on.
func (m *model) heal(now int64, l *Link) {
	if l.released > 0 && l.out.packets == 0 && now-l.progress >= healAfter {
		l.forget()
		l.progress = now
		l.healed++
		return
	}
	for _, f := range l.flows {
		if f.released > 0 && f.out.packets == 0 && now-f.progress >= healAfter {
			l.released, f.released, f.lost = l.released-f.released, 0, true
			l.healed++
		}
	}
}

// take moves released packets into the reader's buffers; see Shaper.Take.
func (m *model) take(now int64, bufs [][]byte, sizes []int, offset int) int {
	m.kicked = false
	n := 0
	for i := range m.busy {
		if n == len(bufs) {
			break
		}
		l := m.busy[(m.turn+i)%len(m.busy)]
		m.heal(now, l)
		n += m.takeLink(now, l, bufs[n:], sizes[n:], offset)
	}
	for i := 0; i < len(m.busy); { // settle may remove it
		l := m.busy[i]
		m.settle(l)
		if i < len(m.busy) && m.busy[i] == l {
			i++
		}
	}
	m.turn++
	return n
}

// takeLink is take for one link: deficit round robin over its flows, as far as
// the window goes.
func (m *model) takeLink(now int64, l *Link, bufs [][]byte, sizes []int, offset int) int {
	n := 0
	for n < len(bufs) && l.wait.packets > 0 {
		q := l.wait.turn(waitingSize, func(left int) int { return left + turnBytes }, neverBusy)
		pkt, came := q.head()
		size := counted(len(pkt))
		if m.limit(l) != 0 && l.flying() > 0 && l.flying()+size > m.windowBytes(l) {
			break
		}
		f := q.flow
		f.worst[0].note(now, now-came.at)
		if len(bufs[n]) < offset+len(pkt) {
			f.stats.Dropped++ // the reader's buffers are smaller than the packets it reads
		} else {
			sizes[n] = copy(bufs[n][offset:], pkt)
			if m.late(now, l, came) && q.bytes > m.unmarked(l) && mark(bufs[n][offset:offset+sizes[n]]) {
				f.stats.Marked++
			}
			m.release(now, f, size)
			n++
		}
		m.popWaiting(l, q, size)
	}
	return n
}

// waitingSize is how the first packet of a queue of stage 1 counts.
func waitingSize(q *fifo) int { return counted(q.next()) }

func neverBusy(*fifo) bool { return false }

// popWaiting removes the first packet of a queue of stage 1.
func (m *model) popWaiting(l *Link, q *fifo, size int) {
	q.credit -= size
	q.pop(&m.pool, size)
	l.wait.bytes -= size
	l.wait.packets--
	if l.wait.packets == 0 {
		l.wait.clear() // nobody has waited for what others had on credit
	}
}

// ready reports whether the reader should come: half the window is free, so
// that it comes for many packets at a time.
func (m *model) ready(l *Link) bool {
	return l.wait.packets > 0 && (m.limit(l) == 0 || l.flying() <= m.windowBytes(l)/2)
}

// kick reports whether the reader is to be told that it should come.
func (m *model) kick() bool {
	if m.kicked || m.closed {
		return false
	}
	for _, l := range m.busy {
		if m.ready(l) {
			m.kicked = true
			return true
		}
	}
	return false
}
