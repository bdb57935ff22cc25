package mesh

import (
	"net/netip"
	"slices"
	"time"

	"github.com/meshmpi/meshmpi/mesh/peer"
)

// The slots of a peer's path set are shared out by how a path came to be known,
// so that no kind takes the place of another: whatever relays a network has and
// however many addresses a hub advertises, what a finder finds has room.
const (
	maxCandidates = 12
	maxRelays     = 4
	maxAdvertised = 3
	maxUnproven   = 2 // addresses of which nothing but a datagram's word is known
)

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

// origin is how a path came to be known.
type origin uint8

const (
	heard origin = iota // a datagram came that way, which anybody may have replayed
	told                // found by a finder, or remembered: tried for a while
	kept                // a relay, or an address the peer advertises: tried for ever
)

// candidate is one path and what its probes told.
type candidate struct {
	via    via
	path   peer.Path
	keep   bool          // never given up
	free   bool          // may be sent to unasked: not only heard, or it has answered
	reply  bool          // not free, and an initiation came from there: it may get one response
	worked bool          // has answered, in this run or an earlier one: it stays while there is room
	rx     func() uint64 // datagrams received from there
	state  state
	rose   bool // it has just come up
	rtt    rttEstimate
	loss   float64

	pings    []ping // unanswered
	misses   int
	doubtful bool // misses has just come to doubtMisses, or it is not up and still silent
	tries    int
	lastRx   uint64
	rxMoving bool
	heard    time.Time // when an authenticated message last came this way
	answered time.Time // when a ping of ours was last answered
	next     time.Time
	mtu      mtuSearch
}

// ping is a probe under way.
type ping struct {
	txid   uint64
	sent   time.Time
	size   int                  // 0: an ordinary one
	missed bool                 // overdue; counted as lost
	waiter chan<- time.Duration // of size 1, gets the round trip; may be nil
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

// timeout is how long an answer may take.
func (c *candidate) timeout() time.Duration {
	return min(max(pongTimeout, 2*c.rtt.bound()), maxTimeout)
}

// expendable reports whether a can go before b when there is no room for both:
// what never answered before what once did, what was silent for longer first.
func (c *candidate) expendable(b *candidate) bool {
	if c.state != b.state {
		return c.state == trying
	}
	if !c.heard.Equal(b.heard) {
		return c.heard.Before(b.heard)
	}
	return c.tries > b.tries
}

// add makes a path known, or returns the candidate that already stands for it;
// nil when there is no room.
func (s *set) add(now time.Time, v via, o origin, path func() peer.Path) *candidate {
	c := s.find(v)
	if c == nil {
		if !s.makeRoom(v, o) {
			return nil
		}
		c = &candidate{via: v, path: path(), heard: now, mtu: mtuSearch{sizes: s.sizes}}
		if o != heard {
			c.heard = time.Time{}
		}
		s.cands = append(s.cands, c)
	}
	if o != heard && !c.free {
		c.free, c.reply, c.next, c.tries = true, false, now, 0
	}
	if o == kept && !c.keep {
		c.keep = v.relay != "" || s.count(isAdvertised) < maxAdvertised
	}
	return c
}

func isRelayed(c *candidate) bool    { return c.via.relay != "" }
func isAdvertised(c *candidate) bool { return c.keep && !isRelayed(c) }
func isUnproven(c *candidate) bool   { return !c.free }
func isPassing(c *candidate) bool    { return !c.keep }

func (s *set) count(is func(*candidate) bool) (n int) {
	for _, c := range s.cands {
		if is(c) {
			n++
		}
	}
	return n
}

func (s *set) find(v via) *candidate {
	for _, c := range s.cands {
		if c.via == v {
			return c
		}
	}
	return nil
}

// makeRoom sees to it that one more path may be added.
func (s *set) makeRoom(v via, o origin) bool {
	switch {
	case v.relay != "" && s.count(isRelayed) >= maxRelays:
		return s.evict(isRelayed)
	case o == heard && s.count(isUnproven) >= maxUnproven:
		return s.evict(isUnproven)
	case len(s.cands) >= maxCandidates:
		return s.evict(isPassing)
	}
	return true
}

// evict drops the most expendable of those paths that do not work.
func (s *set) evict(among func(*candidate) bool) bool {
	worst := -1
	for i, c := range s.cands {
		if c != s.current && c.state != up && among(c) && (worst < 0 || c.expendable(s.cands[worst])) {
			worst = i
		}
	}
	if worst < 0 {
		return false
	}
	s.removeAt(worst)
	return true
}

// unkeep lets the addresses go that the peer advertised, once they are silent.
func (s *set) unkeep() {
	for _, c := range s.cands {
		c.keep = c.keep && isRelayed(c)
	}
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
