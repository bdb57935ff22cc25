package mesh

import (
	"net/netip"
	"slices"
	"time"

	"github.com/meshmpi/meshmpi/mesh/peer"
)

// Timing of probes. A path in use is known dead within 0.5 s + 4 × 0.4 s, hence
// within three seconds.
const (
	tryFirst     = 50 * time.Millisecond // between the first tries; doubles
	tryCount     = 8                     // then a path nobody vouches for is given up
	busyInterval = 500 * time.Millisecond
	idleInterval = 15 * time.Second // half of the shortest common NAT timeout, 30 s
	pongTimeout  = 400 * time.Millisecond
	lateFor      = 5 * time.Second // an answer is still taken, so that slow paths are measured
	maxMisses    = 4
	doubtMisses  = 2               // then relays are asked whether they still know us, and other paths tried
	maxMissesRx  = 12              // while datagrams still arrive from there: congestion, not death
	maxSilence   = 6 * time.Second // without an answer, whatever arrives
	maxTimeout   = 2 * time.Second
	downFirst    = time.Second
	downMax      = 30 * time.Second
	heardFor     = 5 * time.Second
)

// order is a ping the set wants sent.
type order struct {
	c    *candidate
	txid uint64
	size int
}

// set holds the paths to one peer and chooses among them. It has no clock, no
// I/O and no goroutine: events and the time come in, orders come out.
type set struct {
	cands   []*candidate
	current *candidate
	busy    bool          // the peer is being talked to
	every   time.Duration // between pings of a path that works; 0: as it is used
	txid    func() uint64
	sizes   []int // virtual MTUs to try, largest first
}

// hear notes that an authenticated message came by c, so the peer is likely to
// be reachable that way: it is probed at once unless it is known to work, or
// might be the address of somebody whom a replayed message is to trouble.
func (s *set) hear(now time.Time, c *candidate) {
	c.heard = now
	if c.free && c.state != up && c.waiting() == 0 {
		c.next, c.tries = now, 0
	}
}

// maxAsked bounds the transactions that one path has open.
const maxAsked = 16

// pinged notes that a ping came by c and returns what the pong is to ask, so
// that a path that does not work yet is tried without another datagram; 0: nothing.
func (s *set) pinged(now time.Time, c *candidate) uint64 {
	c.heard = now
	if c.state == up || len(c.pings) >= maxAsked {
		return 0
	}
	p := ping{txid: s.txid(), sent: now}
	c.pings = append(c.pings, p)
	return p.txid
}

// pong takes an authenticated answer; asked says that it asks something, hence
// that the path does not work for the peer yet. It returns the candidate, or
// nil when nobody waits for the answer.
func (s *set) pong(now time.Time, txid uint64, asked bool) *candidate {
	for _, c := range s.cands {
		i := slices.IndexFunc(c.pings, func(p ping) bool { return p.txid == txid })
		if i < 0 {
			continue
		}
		p := c.pings[i]
		rtt := now.Sub(p.sent)
		c.pings = slices.Delete(c.pings, i, i+1)
		c.heard = now
		if p.waiter != nil {
			p.waiter <- rtt
		}
		if p.size > 0 {
			c.mtu.passed(now, p.size)
			return c
		}
		// Older pings have been overtaken, not lost for certain: forget them.
		c.pings = slices.DeleteFunc(c.pings, func(q ping) bool { return q.size == 0 && q.sent.Before(p.sent) })
		c.rtt.sample(rtt)
		c.loss -= c.loss / 16
		c.misses, c.tries, c.answered = 0, 0, now
		c.free, c.reply, c.worked = true, false, true
		if c.state != up {
			c.state, c.rose = up, true
			c.mtu.restart(now)
		}
		c.next = now.Add(s.interval(c))
		if asked { // until our answer has told the peer
			c.next = now.Add(busyInterval)
		}
		return c
	}
	return nil
}

// interval is the time between pings of a path that works.
func (s *set) interval(c *candidate) time.Duration {
	switch {
	case s.every != 0:
		return s.every
	case c == s.current && s.busy:
		return busyInterval
	}
	return idleInterval
}

// use tells the set whether the peer is being talked to.
func (s *set) use(now time.Time, busy bool) {
	if busy && !s.busy && s.current != nil && s.current.waiting() == 0 {
		s.current.next = now
	}
	s.busy = busy
}

// recheck probes everything at once, as after a change of the local network, and
// believes sooner that a path is dead.
func (s *set) recheck(now time.Time) {
	for _, c := range s.cands {
		c.next, c.tries = now, 0
		if c.state == up {
			c.misses = max(c.misses, maxMisses/2)
		}
		c.mtu.verify = now
	}
}

// tick expires what is overdue and returns the pings to send now.
func (s *set) tick(now time.Time) []order {
	var orders []order
	for i := len(s.cands) - 1; i >= 0; i-- {
		c := s.cands[i]
		s.expire(now, c)
		if s.hopeless(now, c) {
			s.removeAt(i)
			continue
		}
		if !c.free {
			continue
		}
		if !now.Before(c.next) {
			orders = append(orders, s.ping(now, c, 0))
			c.next = now.Add(s.pause(c))
			if c.state == up && c == s.current && s.busy {
				if size, ok := c.mtu.doubt(now); ok {
					orders = append(orders, s.ping(now, c, size)) // after the ordinary one, see expire
				}
			}
		}
		if c.state != up {
			continue
		}
		if size, ok := c.mtu.due(now); ok {
			orders = append(orders, s.ping(now, c, size))
		}
	}
	return orders
}

// hopeless reports whether a path is to be forgotten.
func (s *set) hopeless(now time.Time, c *candidate) bool {
	switch {
	case c.state != trying || c.keep || c.worked:
		return false
	case !c.free:
		return now.Sub(c.heard) >= lateFor
	}
	return c.tries > tryCount && len(c.pings) == 0 // nor late ones
}

func (s *set) ping(now time.Time, c *candidate, size int) order {
	p := ping{txid: s.txid(), sent: now, size: size}
	c.pings = append(c.pings, p)
	if size == 0 && c.state != up {
		c.tries++
	}
	return order{c, p.txid, size}
}

// pause is the time until the next ping if this one stays unanswered.
func (s *set) pause(c *candidate) time.Duration {
	switch {
	case c.state == up:
		return max(s.interval(c), c.timeout())
	case c.state == trying && c.tries <= tryCount:
		return tryFirst << min(c.tries-1, 5)
	}
	return min(downFirst<<min(max(c.tries-tryCount, 0), 5), downMax)
}

// expire counts pings that stayed unanswered.
func (s *set) expire(now time.Time, c *candidate) {
	if rx := c.rx; rx != nil && len(c.pings) > 0 {
		c.rxMoving = c.rxMoving || rx() != c.lastRx
	}
	c.pings = slices.DeleteFunc(c.pings, func(p ping) bool { return p.missed && now.Sub(p.sent) >= lateFor })
	for i := range c.pings {
		p := &c.pings[i]
		if p.missed || now.Sub(p.sent) < c.timeout() {
			continue
		}
		p.missed = true
		if p.size > 0 {
			c.mtu.lost(now, p.size, c.misses == 0)
			continue
		}
		c.loss += (1 - c.loss) / 16
		if c.state != up {
			c.doubtful = true
			continue
		}
		if p.waiter != nil {
			continue // users ask when they like, many at once: such silence may be a moment's
		}
		if c.misses++; c.misses == doubtMisses {
			c.doubtful = true
			if c == s.current {
				s.prepare(now)
			}
		}
		c.next = now
		limit := maxMisses
		if c.rxMoving && now.Sub(c.answered) < maxSilence {
			limit = maxMissesRx
		}
		if c.rx != nil {
			c.lastRx, c.rxMoving = c.rx(), false
		}
		if c.misses >= limit {
			c.state, c.misses, c.tries = down, 0, 0
		}
	}
}

// prepare tries all other paths, so that it is known which of them work if the current
// one does no longer: what was in its way may be in theirs.
func (s *set) prepare(now time.Time) {
	for _, c := range s.cands {
		if c != s.current {
			c.next, c.tries = now, 0
		}
	}
}

// deadline is when tick wants to be called next; zero when never.
func (s *set) deadline() time.Time {
	var at time.Time
	earliest := func(t time.Time) {
		if !t.IsZero() && (at.IsZero() || t.Before(at)) {
			at = t
		}
	}
	for _, c := range s.cands {
		if c.free {
			earliest(c.next)
		} else {
			earliest(c.heard.Add(lateFor))
		}
		for _, p := range c.pings {
			if !p.missed {
				earliest(p.sent.Add(c.timeout()))
			}
		}
		if len(c.pings) > 0 && c.pings[0].missed {
			earliest(c.pings[0].sent.Add(lateFor))
		}
		if c.state == up && !c.mtu.wait {
			earliest(c.mtu.next)
		}
	}
	return at
}

// choose picks the path to send by and reports whether it changed. The best
// rung that works wins; on one rung a path must be clearly faster to take over.
// When nothing is known to work the best guess is taken, so that a handshake
// may still get through.
func (s *set) choose(now time.Time) bool {
	best := s.current
	for _, c := range s.cands {
		if c.free && c != best && (best == nil || s.better(now, c, best)) {
			best = c
		}
	}
	changed := best != s.current
	if changed {
		s.current = best
		if best.state == up {
			best.next = now // confirm it soon: traffic depends on it from here on
		}
	}
	return changed
}

// better reports whether a should replace b.
func (s *set) better(now time.Time, a, b *candidate) bool {
	if (a.state == up) != (b.state == up) {
		return a.state == up
	}
	if a.state == up {
		ka, kb := a.path.Info().Kind, b.path.Info().Kind
		if ka != kb {
			return ka > kb
		}
		return a.rtt.smoothed+2*time.Millisecond < b.rtt.smoothed*4/5
	}
	if ha, hb := now.Sub(a.heard) < heardFor, now.Sub(b.heard) < heardFor; ha != hb {
		return ha
	} else if ha {
		return a.heard.After(b.heard)
	}
	// A relay both may be bound to is a better guess than a path that died.
	return a.via.relay != "" && b.via.relay == ""
}

// works reports whether the current path has answered lately, and its rung.
func (s *set) works() (peer.Kind, bool) {
	if s.current == nil || s.current.state != up {
		return peer.KindNone, false
	}
	return s.current.path.Info().Kind, true
}

// worked lists the addresses of direct paths that work or, where none does, of those
// that have: a network may come up later than its nodes do.
func (s *set) worked() (addrs []netip.AddrPort) {
	for _, now := range []bool{true, false} {
		for _, c := range s.cands {
			switch {
			case c.via.relay != "" || !c.worked || (c.state == up) != now:
			case c == s.current:
				addrs = slices.Insert(addrs, 0, c.via.addr)
			default:
				addrs = append(addrs, c.via.addr)
			}
		}
		if len(addrs) > 0 {
			break
		}
	}
	return addrs
}
