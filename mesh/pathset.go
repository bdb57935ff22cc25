package mesh

import (
	"net/netip"
	"slices"
	"time"

	"github.com/meshmpi/meshmpi/mesh/peer"
)

// Timing of probes. A path in use is known dead within 0.5 s + 4 × 0.4 s, hence
// within the three seconds of DESIGN §6.
const (
	tryFirst     = 50 * time.Millisecond // between the first tries; doubles
	tryCount     = 8                     // then a path nobody vouches for is given up
	busyInterval = 500 * time.Millisecond
	idleInterval = 15 * time.Second // half of the shortest common NAT timeout, 30 s
	pongTimeout  = 400 * time.Millisecond
	lateFor      = 5 * time.Second // an answer is still taken, so that slow paths are measured
	maxMisses    = 4
	maxMissesRx  = 12 // while datagrams still arrive from there: congestion, not death
	downFirst    = time.Second
	downMax      = 30 * time.Second
	heardFor     = 5 * time.Second
	mtuTries     = 3
	mtuRecheck   = 10 * time.Minute
)

// maxCandidates bounds the paths kept for one peer.
const maxCandidates = 8

// via names a path: by the relay, or directly by the address.
type via struct {
	relay string
	addr  netip.AddrPort
}

type state uint8

const (
	trying state = iota // never answered
	up
	down // answered once, or is kept in spite of silence
)

// candidate is one path and what its probes told.
type candidate struct {
	via   via
	path  peer.Path
	keep  bool          // never given up: a relay we are bound to, an advertised address
	rx    func() uint64 // datagrams received from there
	state state
	rtt   rttEstimate
	loss  float64

	pings    []ping // unanswered
	misses   int
	tries    int
	lastRx   uint64
	rxMoving bool
	heard    time.Time // when an authenticated message last came this way
	next     time.Time
	mtu      mtuSearch
}

// ping is a probe under way.
type ping struct {
	txid   uint64
	sent   time.Time
	size   int  // 0: an ordinary one
	missed bool // overdue; counted as lost
}

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
	busy    bool // the peer is being talked to
	txid    func() uint64
	sizes   []int // virtual MTUs to try, largest first
}

// add makes a path known, or returns the candidate that already stands for it.
func (s *set) add(now time.Time, v via, path func() peer.Path) *candidate {
	if c := s.find(v); c != nil {
		return c
	}
	if len(s.cands) >= maxCandidates && !s.evict() {
		return nil
	}
	c := &candidate{via: v, path: path(), next: now, mtu: mtuSearch{sizes: s.sizes}}
	s.cands = append(s.cands, c)
	return c
}

func (s *set) find(v via) *candidate {
	for _, c := range s.cands {
		if c.via == v {
			return c
		}
	}
	return nil
}

// evict makes room by dropping the least promising path.
func (s *set) evict() bool {
	worst := -1
	for i, c := range s.cands {
		if c == s.current || c.keep || c.state == up {
			continue
		}
		if worst < 0 || c.heard.Before(s.cands[worst].heard) {
			worst = i
		}
	}
	if worst < 0 {
		return false
	}
	s.removeAt(worst)
	return true
}

func (s *set) removeAt(i int) {
	_ = s.cands[i].path.Close()
	if s.current == s.cands[i] {
		s.current = nil
	}
	s.cands = slices.Delete(s.cands, i, i+1)
}

// remove drops every path that match selects.
func (s *set) remove(match func(via) bool) {
	for i := len(s.cands) - 1; i >= 0; i-- {
		if match(s.cands[i].via) {
			s.removeAt(i)
		}
	}
}

// hear notes that an authenticated message came by c, so the peer is likely to
// be reachable that way: it is probed at once unless it is known to work.
func (s *set) hear(now time.Time, c *candidate) {
	c.heard = now
	if c.state != up && c.waiting() == 0 {
		c.next, c.tries = now, 0
	}
}

// waiting counts the pings that may still be answered in time.
func (c *candidate) waiting() (n int) {
	for _, p := range c.pings {
		if !p.missed {
			n++
		}
	}
	return n
}

// pong takes an authenticated answer. It returns the candidate and the round
// trip it measured, or nil when nobody waits for it.
func (s *set) pong(now time.Time, txid uint64) (*candidate, time.Duration) {
	for _, c := range s.cands {
		i := slices.IndexFunc(c.pings, func(p ping) bool { return p.txid == txid })
		if i < 0 {
			continue
		}
		p := c.pings[i]
		rtt := now.Sub(p.sent)
		c.pings = slices.Delete(c.pings, i, i+1)
		c.heard = now
		if p.size > 0 {
			c.mtu.passed(now, p.size)
			return c, rtt
		}
		// Older pings have been overtaken, not lost for certain: forget them.
		c.pings = slices.DeleteFunc(c.pings, func(q ping) bool { return q.size == 0 && q.sent.Before(p.sent) })
		c.rtt.sample(rtt)
		c.loss -= c.loss / 16
		c.misses, c.tries = 0, 0
		if c.state != up {
			c.state = up
			c.mtu.restart(now)
		}
		c.next = now.Add(s.interval(c))
		return c, rtt
	}
	return nil, 0
}

// interval is the time between pings of a path that works.
func (s *set) interval(c *candidate) time.Duration {
	if c == s.current && s.busy {
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

// recheck probes everything at once, as after a change of the local network.
func (s *set) recheck(now time.Time) {
	for _, c := range s.cands {
		c.next, c.tries = now, 0
	}
}

// tick expires what is overdue and returns the pings to send now.
func (s *set) tick(now time.Time) []order {
	var orders []order
	for i := len(s.cands) - 1; i >= 0; i-- {
		c := s.cands[i]
		s.expire(now, c)
		if c.state == trying && c.tries > tryCount && !c.keep && len(c.pings) == 0 { // nor late ones
			s.removeAt(i)
			continue
		}
		if !now.Before(c.next) {
			orders = append(orders, s.ping(now, c, 0))
			c.next = now.Add(s.pause(c))
		}
		if size, ok := c.mtu.due(now); ok && c.state == up {
			orders = append(orders, s.ping(now, c, size))
		}
	}
	return orders
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

// timeout is how long an answer may take.
func (c *candidate) timeout() time.Duration {
	return max(pongTimeout, 2*c.rtt.bound())
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
			c.mtu.lost(now, p.size)
			continue
		}
		c.loss += (1 - c.loss) / 16
		if c.state != up {
			continue
		}
		c.misses++
		c.next = now
		limit := maxMisses
		if c.rxMoving {
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

// deadline is when tick wants to be called next; zero when never.
func (s *set) deadline() time.Time {
	var at time.Time
	earliest := func(t time.Time) {
		if !t.IsZero() && (at.IsZero() || t.Before(at)) {
			at = t
		}
	}
	for _, c := range s.cands {
		earliest(c.next)
		for _, p := range c.pings {
			if !p.missed {
				earliest(p.sent.Add(c.timeout()))
			}
		}
		if len(c.pings) > 0 && c.pings[0].missed {
			earliest(c.pings[0].sent.Add(lateFor))
		}
		if c.state == up {
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
		if c != best && (best == nil || s.better(now, c, best)) {
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
