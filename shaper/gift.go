package shaper

import "time"

// gifts are bytes of a bucket's depth that one node has given and another taken. They
// count for no bucket's rate and are never given back: what is given has been spent by
// who gave it, whether or not it arrives, and may be sent by who has it until it ends.
// Until then the giver's bucket does not fill up beyond what is left of its depth, so
// that together they do not hold more than if nothing had been given.
type gifts struct {
	taken int // bytes that others have given, the sum of got
	got   [mostGifts]gift
	given [mostGifts]gift
	last  int64 // when the last of given ends
}

// gift is what has been given and may still be used.
type gift struct {
	bytes int
	until int64
}

// mostGifts is how many a bucket may have given that have not ended, or have.
const mostGifts = 16

// away is how many bytes that have been given may still be used.
func (g *gifts) away(now int64) (bytes int) {
	if now >= g.last {
		return 0
	}
	for _, x := range g.given {
		if now < x.until {
			bytes += x.bytes
		}
	}
	return bytes
}

// room returns where a gift can be kept in mind, nil for nowhere.
func (g *gifts) room(now int64) *gift {
	for i := range g.given {
		if now >= g.given[i].until {
			return &g.given[i]
		}
	}
	return nil
}

// note keeps a gift in mind, where there is room.
func (g *gifts) note(now int64, x gift) {
	*g.room(now), g.last = x, max(g.last, x.until)
}

// take adds what others have given. If there is no room it ends with what ends first.
func (g *gifts) take(x gift) {
	at := &g.got[0]
	for i := range g.got {
		if y := &g.got[i]; y.bytes == 0 || at.bytes > 0 && y.until < at.until {
			at = y
		}
	}
	if at.bytes > 0 {
		x.until = min(x.until, at.until)
	}
	*at = gift{at.bytes + x.bytes, x.until}
	g.taken += x.bytes
}

// lapse ends what has been taken and was not sent in time.
func (g *gifts) lapse(now int64) {
	if g.taken == 0 {
		return
	}
	for i := range g.got {
		if x := &g.got[i]; now >= x.until {
			g.taken, x.bytes = g.taken-x.bytes, 0
		}
	}
}

// drop ends all that has been taken.
func (g *gifts) drop() {
	if g.taken > 0 {
		g.taken, g.got = 0, [mostGifts]gift{}
	}
}

// use takes bytes that are sent from what has been taken, what ends first before the rest,
// and returns how many are left.
func (g *gifts) use(bytes int) int {
	for g.taken > 0 && bytes > 0 {
		var first *gift
		for i := range g.got {
			if x := &g.got[i]; x.bytes > 0 && (first == nil || x.until < first.until) {
				first = x
			}
		}
		n := min(first.bytes, bytes)
		first.bytes, g.taken, bytes = first.bytes-n, g.taken-n, bytes-n
	}
	return bytes
}

// lasts returns the time for which what has been given keeps a bucket from being full, ns.
func (b *bucket) lasts(now int64) int64 {
	bytes := b.gifts.away(now)
	if bytes == 0 || b.rate == 0 {
		return 0
	}
	return min(int64(bytes)*8e9/int64(b.rate), b.depth) // which may have shrunk since
}

// holds is how many bytes may leave at once by a bucket that has a rate.
func (b *bucket) holds(now int64) int {
	free := b.depth - max(b.tat-now, b.lasts(now), 0)
	return int(float64(max(free, 0))*float64(b.rate)/8e9) + b.gifts.taken
}

// limits are the buckets that limit a link, one or two; none if one of them lets no extra
// bytes through, as while others use this node's share.
func (m *model) limits(l *Link) (all []*bucket) {
	for _, b := range [...]*bucket{&l.down, &m.uplink} {
		if b.rate != 0 && b.bytes <= b.burst {
			return nil
		}
		if b.rate != 0 {
			all = append(all, b)
		}
	}
	return all
}

// short is by how much what waits exceeds what may leave at once.
func (m *model) short(now int64, l *Link) int {
	m.lapse(now)
	limits := m.limits(l)
	if len(limits) == 0 {
		return 0
	}
	n := l.wait.bytes + l.out.bytes
	most := n
	for _, b := range limits {
		most = min(most, b.holds(now))
	}
	return n - most
}

// give spends up to so many bytes of what may leave at once, and returns how many; soon
// that it has none, but will have. Where something waits it notes that it was asked in vain.
func (m *model) give(now int64, l *Link, bytes int, until int64) (given int, soon bool) {
	limits := m.limits(l)
	if len(limits) == 0 {
		return 0, false
	}
	m.heal(now, l) // nothing else does while nothing is sent
	if m.waitsFor(l) {
		l.wanted = true
		return 0, false
	}
	if l.released > 0 {
		return 0, true // what leaves by and by is just being sealed
	}
	for _, b := range limits {
		b.gifts.drop()
		if bytes = min(bytes, b.holds(now)); b.gifts.room(now) == nil {
			return 0, true
		}
	}
	if bytes < m.two/2 {
		return 0, true
	}
	for _, b := range limits {
		b.rested(now)
		b.spend(now, bytes)
		b.gifts.note(now, gift{bytes, until})
	}
	l.given += uint64(bytes)
	return bytes, false
}

// waitsFor reports whether something waits for what a link may send.
func (m *model) waitsFor(l *Link) bool {
	return l.waits() || m.uplink.rate != 0 && m.backlogged()
}

// takeFreed reports whether a link that was asked in vain may give now, once.
func (m *model) takeFreed() (freed bool) {
	for _, l := range m.links {
		if l.wanted && !m.waitsFor(l) {
			l.wanted, freed = false, true
		}
	}
	return freed
}

// accept lets a link that waits send so many bytes at once.
func (m *model) accept(now int64, l *Link, bytes int, until int64) bool {
	m.lapse(now)
	limits := m.limits(l)
	if !l.waits() || len(limits) == 0 || now >= until {
		return false
	}
	for _, b := range limits {
		b.gifts.take(gift{bytes, until})
	}
	l.taken += uint64(bytes)
	return true
}

// lapse ends gifts whose time is over.
func (m *model) lapse(now int64) {
	m.uplink.gifts.lapse(now)
	for _, l := range m.busy {
		l.down.gifts.lapse(now)
	}
}

// Short returns by how many bytes what waits for the link exceeds what may leave at once,
// where it is worth a notice to others that may have something to give; else 0, as for a
// link without extra bytes (SetMost).
func (l *Link) Short() int {
	if l.demand.waiting.Load() < Backlog {
		return 0
	}
	s := l.s
	s.mu.lock()
	defer s.mu.unlock()
	if n := s.m.short(s.clock.now(), l); n >= Backlog {
		return n
	}
	return 0
}

// Give spends up to so many bytes of what this node could send at once over a link that
// it does not use, and returns how many. Another node may send them instead, within life
// from now on: if not, they are lost. If it gives nothing, soon says that it has given or
// sent all that it had, or is about to, and will have more within milliseconds. A link without extra bytes
// gives nothing; nor does one for which something waits: when that ends, Config.Freed is
// called.
func (l *Link) Give(bytes int, life time.Duration) (given int, soon bool) {
	s := l.s
	s.mu.lock()
	defer s.mu.unlock()
	now := s.clock.now()
	return s.m.give(now, l, bytes, now+int64(life))
}

// Accept lets the link send so many bytes more than its rate allows, which another node
// has given, until a moment and as fast as extra bytes. It reports whether they are of
// use: where nothing waits, or there are no extra bytes, they are lost.
func (l *Link) Accept(bytes int, until time.Time) bool {
	s := l.s
	s.mu.lock()
	used := s.m.accept(s.clock.now(), l, bytes, s.clock.at(until))
	s.finish()
	return used
}
