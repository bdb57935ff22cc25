package shaper

const (
	maxBatch = 128 // datagrams that a path takes at once

	// Stage 2 holds what stage 1 has released, and in bad moments what
	// WireGuard kept back while it shook hands.
	outLeast, outWindows = 1 << 20, 4
	urgentMost           = 64 << 10
)

// isUrgent reports whether a sealed datagram goes first: handshakes, cookies
// and keepalives, without which there is no session.
func isUrgent(pkt []byte) bool {
	return len(pkt) <= sealing || pkt[0] != typeData
}

// direct takes as many of pkts as may leave at once, without a copy, and
// returns how many. The caller sends them and calls sent.
func (m *model) direct(now int64, f *Flow, pkts [][]byte) int {
	l := f.link
	if f.busy || f.closed || m.closed || l.out.packets+l.urgent.packets > 0 {
		return 0
	}
	m.wake(now, l)
	m.lapse(now)
	if l.wait.packets > 0 {
		m.credit(now, l)
	} else {
		m.refill(now, l, 0)
	}
	n, bytes, overhead, burst := 0, 0, int(f.overhead.Load()), m.burst(l)
	for n < len(pkts) && n < maxBatch {
		wire := len(pkts[n]) + overhead
		if n > 0 && bytes+wire > burst {
			break
		}
		m.grow(now, wire)
		bytes += wire
		n++
	}
	for n > 0 && !m.fits(now, l, bytes) {
		n--
		bytes -= len(pkts[n]) + overhead
	}
	if n > 0 {
		f.busy = true
		m.begin(now, f, pkts[:n], overhead)
	}
	return n
}

// queued is how a datagram of n bytes counts while it waits in stage 2, whose
// overhead may change meanwhile.
func queued(n int) int { return n + overheadIPv4 }

// enqueue copies datagrams that must wait for their time.
func (m *model) enqueue(now int64, f *Flow, pkts [][]byte) {
	if len(pkts) == 0 {
		return
	}
	l := f.link
	m.wake(now, l)
	most := outLeast
	if m.limit(l) != 0 {
		most = max(most, outWindows*m.windowBytes(l))
	}
	for _, pkt := range pkts {
		s, q, limit := &l.out, &f.out, most
		if isUrgent(pkt) {
			s, q, limit = &l.urgent, &f.urgent, urgentMost
		}
		size := queued(len(pkt))
		if f.closed || m.closed || len(pkt) == 0 || len(pkt) > chunkSize || s.bytes+size > limit {
			f.stats.Dropped++
			m.departed(now, f, pkt)
			continue
		}
		m.grow(now, len(pkt)+int(f.overhead.Load()))
		if s == &l.urgent {
			s.add(q)
		} else if q.empty() {
			s.addFresh(q)
		}
		q.push(&m.pool, rec{at: now}, pkt, size)
		s.bytes += size
		s.packets++
	}
	m.settle(l)
}

// departed notes that a packet that was released, unless its link had no limit then, is
// no longer on its way.
func (m *model) departed(now int64, f *Flow, pkt []byte) {
	if isUrgent(pkt) {
		return
	}
	l, size := f.link, min(counted(len(pkt)-sealing), f.released)
	f.released -= size
	l.released -= size
	l.progress, f.progress, f.lost = now, now, false
}

// account charges bytes on the wire that leave now, of one flow, all at once.
func (m *model) account(now int64, f *Flow, packets, wire int) {
	l := f.link
	for i, b := range m.buckets(l) {
		was := b.tat
		b.charge(now, wire)
		f.costs[i] = b.tat - was
	}
	// What its own limit has kept a link from sending it does not get from others later.
	l.virtual = max(l.virtual, m.served-min(m.served, uint64(4*m.burst(l))))
	m.served = max(m.served, l.virtual)
	l.virtual += uint64(wire)
	f.stats.Sent += uint64(packets)
	f.stats.SentBytes += uint64(wire)
	l.demand.sent.Add(int64(wire))
	m.seen(now, l)
}

// next returns the queue of stage 2 whose turn it is, nil for none: by deficit round robin,
// new messages first, as stage 1 has let them through. Those of flows that are just sending
// are passed by.
func (m *model) next(l *Link) (*stage, *fifo) {
	for _, s := range [...]*stage{&l.urgent, &l.out} {
		if s.packets == 0 {
			continue
		}
		if q := s.turn(queuedSize, func(left int) int { return min(left, m.burst(l)) + m.quantum(l) }, isBusy); q != nil {
			return s, q
		}
	}
	return nil, nil
}

// queuedSize is how the first packet of a queue of stage 2 counts.
func queuedSize(q *fifo) int { return queued(q.next()) }

func isBusy(q *fifo) bool { return q.flow.busy }

// burst is what may leave of a link at once, bytes; the link has something to send.
func (m *model) burst(l *Link) int {
	switch {
	case l.down.rate == 0 && m.uplink.rate == 0:
		return chunkSize
	case l.down.rate == 0:
		return m.uplink.burst
	case m.uplink.rate == 0:
		return l.down.burst
	}
	return min(l.down.burst, m.uplink.burst)
}

// worth is for how much of what waits the pacing thread comes. A link that is slower
// than the uplink may then find that others use that just now, for longer than lateness
// is free: there one datagram is enough.
func (m *model) worth(l *Link) int {
	switch {
	case l.down.rate == 0 && m.uplink.rate == 0:
		return chunkSize
	case l.down.rate == 0:
		return m.uplink.worth()
	case m.uplink.rate == 0:
		return l.down.worth()
	case l.down.rate < m.uplink.rate:
		return max(m.burst(l)/4, m.two/2)
	}
	return m.uplink.worth()
}

// quantum is what a flow may send before others of its link: half a burst, but two datagrams.
func (m *model) quantum(l *Link) int { return max(m.burst(l)/2, m.two) }

// dueLink is when the pacing thread has something to do for a link.
func (m *model) dueLink(l *Link) int64 {
	due := never
	if s, q := m.next(l); s != nil {
		pkt, _ := q.head()
		want := len(pkt) + int(q.flow.overhead.Load())
		if s == &l.out {
			want = max(want, min(q.bytes, m.worth(l)))
		}
		due = m.at(l, want)
	}
	if l.wait.packets > 0 && l.out.packets == 0 && m.limit(l) != 0 && l.released > m.windowBytes(l)/2 {
		due = min(due, l.progress+healAfter)
	}
	return due
}

// due is when the pacing thread has something to do.
func (m *model) due() int64 {
	due := never
	for _, l := range m.busy {
		due = min(due, m.dueLink(l))
	}
	return due
}

// pick takes the next burst that may leave now and returns its flow, whose batch
// the caller sends; then it calls sent. It returns nil when nothing is due.
func (m *model) pick(now int64) *Flow {
	var l *Link
	due := false
	m.lapse(now)
	for _, x := range m.busy {
		m.heal(now, x)
		s, q := m.next(x)
		if s == nil {
			continue
		}
		// Once the thread is here links take turns, whatever each would have come for:
		// else one that comes for less would always be before others.
		due = due || m.dueLink(x) <= now
		if pkt, _ := q.head(); m.fits(now, x, len(pkt)+int(q.flow.overhead.Load())) && (l == nil || x.virtual < l.virtual) {
			l = x
		}
	}
	if !due || l == nil {
		return nil
	}
	m.credit(now, l)
	_, q := m.next(l)
	m.fill(now, l, q)
	return q.flow
}

// fill makes the batch: what of the queue may leave at once and is the flow's turn.
func (m *model) fill(now int64, l *Link, q *fifo) {
	f := q.flow
	overhead, burst := int(f.overhead.Load()), m.burst(l)
	f.from, f.busy = q, true
	more, bytes, whole := true, 0, m.fits(now, l, burst)
	for c := q.first; c != nil && more; c = c.next {
		first, end := len(f.batch), c.head
		for ; end < len(c.recs); end++ {
			r := c.recs[end]
			pkt := c.data[r.from:r.to]
			bytes += len(pkt) + overhead
			if n := len(f.batch); n == maxBatch || n > 0 && (queued(len(pkt)) > q.credit || bytes > burst || !whole && !m.fits(now, l, bytes)) {
				more = false
				break
			}
			q.credit -= queued(len(pkt))
			f.worst[1].note(now, now-r.at)
			f.batch = append(f.batch, pkt)
		}
		// A path may join datagrams in place, so their capacity ends with the last of
		// those that lie back to back.
		for i := range f.batch[first:] {
			r := c.recs[c.head+i]
			f.batch[first+i] = c.data[r.from:r.to:c.recs[end-1].to]
		}
	}
	m.begin(now, f, f.batch, overhead)
}

// begin charges datagrams that are being sent from now on.
func (m *model) begin(now int64, f *Flow, pkts [][]byte, overhead int) {
	f.began = now
	wire := 0
	for _, pkt := range pkts {
		wire += len(pkt) + overhead
		m.departed(now, f, pkt)
	}
	m.account(now, f, len(pkts), wire)
}

// sent notes that the send for a flow has returned.
func (m *model) sent(now int64, f *Flow) {
	l, q := f.link, f.from
	m.sends.note(now - f.began)
	for i, b := range m.buckets(l) {
		b.delayed(now-int64(m.sends), f.costs[i])
	}
	if q != nil {
		s := &l.out
		if q == &f.urgent {
			s = &l.urgent
		}
		for _, pkt := range f.batch {
			size := queued(len(pkt))
			q.pop(&m.pool, size)
			s.bytes -= size
			s.packets--
		}
		switch {
		case s.packets == 0:
			s.clear() // nobody has waited for what others had on credit
		case !q.empty() && min(q.bytes, m.burst(l)) > q.credit:
			s.yield(q) // what is left of its turn would cut a burst short
		}
		clear(f.batch)
		f.batch = f.batch[:0]
	}
	f.from, f.busy = nil, false
	if m.closed {
		m.discard(f)
	}
	m.settle(l)
}

// credit makes room for the bytes of a link that waited longer than it had to,
// because the pacing thread or the goroutines before it were late: not at once,
// but to be sent at a 2.5 % above the rate. If the other of the two rates
// was what it waited for, it did not wait too long.
func (m *model) credit(now int64, l *Link) {
	credit := maxLate
	for _, b := range m.buckets(l) {
		credit = min(credit, b.unused(now)) // the crests, too: gifts leave as fast as they let them
	}
	m.refill(now, l, credit)
	if l.out.packets == 0 && credit > 0 {
		l.window, l.eased = min(l.window+credit, windowMax), now
	} else if now-l.eased > windowEase {
		l.window, l.eased = l.window-(l.window-windowTime)/8, now
	}
}

// buckets are all that what a link sends must pass.
func (m *model) buckets(l *Link) [4]*bucket {
	return [...]*bucket{&l.down, &m.uplink, &l.crest, &m.crest}
}

// fits reports whether bytes of a link may leave now in one burst.
func (m *model) fits(now int64, l *Link, bytes int) bool { return now >= m.at(l, bytes) }

// at is the time from which they may.
func (m *model) at(l *Link, bytes int) (at int64) {
	for _, b := range m.buckets(l) {
		at = max(at, b.at(bytes))
	}
	return at
}

// refill forgets what has been unused, credit of it excepted; see bucket.fill. There is no
// credit while extra bytes last, so what spaces them knows by itself whether it was late.
func (m *model) refill(now int64, l *Link, credit int64) {
	l.down.fill(now, credit)
	m.uplink.fill(now, credit)
	for _, b := range [...]*bucket{&l.crest, &m.crest} {
		kept := credit
		if l.waits() {
			kept = max(credit, min(b.unused(now), b.slack()))
		}
		b.fill(now, kept)
	}
}
