package share

import (
	"bytes"
	"cmp"
	"errors"
	"math"
	"slices"
	"time"

	"github.com/meshmpi/meshmpi/mesh/peer"
)

// Site names a site.
type Site = string

// Timing. A lease outlives two lost renewals in a row and a daemon that is
// scheduled late by several milliseconds beside spinning ranks; a partition is
// noticed when it ends.
const (
	Period   = 20 * time.Millisecond  // between notices of a hungry node to who may lend, at sites of up to 80 nodes
	Lease    = 4 * Period             // how long a grant lasts, from its request
	CapLease = 150 * time.Millisecond // how long a receiver's cap lasts

	perNode   = 250 * time.Microsecond // of Period at larger sites: bounds a node's notices to 4,000 a second
	maxPeriod = time.Second
	retryGap  = time.Millisecond      // before a notice that lowers a grant is first repeated; doubles
	sendGap   = 4 * time.Millisecond  // between notices to one node that can wait
	quiet     = 2 * time.Millisecond  // without demand before a node counts as idle
	deaf      = 16 * time.Millisecond // after which what a node does not acknowledge to have given back is used
	linger    = 50 * time.Millisecond // leases of an idle node are kept so long where nobody else wants them
)

// Reserve is the part of its safe share that an idle node does not lend: one in
// so many.
const Reserve = 32

// Unshared is the part of a limit that is nobody's share where several nodes have one: one
// in so many. What nobody paces (connectivity checks, what goes to hubs) has room in it, else the
// queue would grow for as long as all send; and what waits there leaves.
const Unshared = 256

// Safe returns what each of so many nodes may send of a limit, whatever the others do.
func Safe(limit int64, members int) int64 {
	if members <= 1 {
		return limit
	}
	return (limit - limit/Unshared) / int64(members)
}

// notch is the step in which a node keeps what it uses of its own share: one in
// so many of the share, so that small changes of demand take nothing back.
const notch = 16

// Limits on what a Machine holds.
const (
	MaxMembers = 4096
	maxCaps    = 64 // receivers heard per pool
	MaxWeight  = 255
)

// ErrStranger says that a notice came from a node it may not come from.
var ErrStranger = errors.New("share: a notice from a node that is not of this site")

// Config configures a Machine.
type Config struct {
	// Start is any number that is larger at each start of a node, best the Unix
	// time in microseconds: sequence numbers begin there, so that nobody takes
	// what an earlier life said for this one's. 0 is for tests.
	Start uint64
}

// Message is a notice to be sent. Data is the caller's.
type Message struct {
	To   peer.ID
	Data []byte
}

// Machine is a node's part in dividing its site's links. It is not safe for
// concurrent use. Times are since any fixed moment and must not decrease.
type Machine struct {
	self    peer.ID
	start   uint64
	now     time.Duration
	seq     uint64 // the last one used
	count   int    // nodes of the site that the directory knows to be up
	members int    // the largest count heard: N
	mates   []*mate
	byID    map[peer.ID]*mate
	pools   []*pool // ordered by site; the uplink, named "", first
	bySite  map[Site]*pool
	byName  map[uint32]*pool
	beat    time.Duration // when hungry: the next notice to everyone
	stale   bool          // something has happened since the last update
	counts  Counters
	down    downlink
}

// Counters counts since the start.
type Counters struct {
	Sent, Heard uint64 // notices
	Stale       uint64 // heard, but older than one heard before
	Refused     uint64 // no notices, or from strangers
	Unsaid      uint64 // entries that found no room in a notice
}

// mate is another node of this site.
type mate struct {
	id      peer.ID
	heard   time.Duration // when its last notice came
	fresh   time.Duration // what it said holds until then
	members int           // as it counts
	seq     uint64        // of its last notice; 0 none
	sent    time.Duration // when the last notice to it left
	any     bool          // one has left
	owes    bool          // it wants an answer
	urgent  bool          // what it was told last is wrong and cannot wait
	retry   time.Duration // when a lowered grant is repeated; 0 not
	gap     time.Duration // and after how long again
	sides   map[*pool]*side
	arrives map[uint32]arrival // at it, by site of origin
	heldTo  time.Duration      // until when that is believed
}

// New returns the Machine of a node that is alone and has no limits.
func New(self peer.ID, cfg Config) *Machine {
	m := &Machine{
		self: self, start: cfg.Start, seq: cfg.Start, count: 1, members: 1,
		byID: map[peer.ID]*mate{}, bySite: map[Site]*pool{}, byName: map[uint32]*pool{},
	}
	m.pool("") // the uplink
	return m
}

// Members says which nodes of this site are up; self counts whether or not it is
// listed. What is beyond MaxMembers is left out.
func (m *Machine) Members(now time.Duration, up []peer.ID) {
	m.tick(now)
	listed := map[peer.ID]bool{}
	for _, id := range up {
		if id == m.self || listed[id] || len(listed) == MaxMembers-1 {
			continue
		}
		listed[id] = true
		if m.byID[id] == nil {
			m.byID[id] = &mate{id: id, sides: map[*pool]*side{}}
		}
	}
	for id := range m.byID {
		if !listed[id] {
			delete(m.byID, id) // and all it lent
		}
	}
	m.mates = m.mates[:0]
	for _, t := range m.byID {
		m.mates = append(m.mates, t)
	}
	slices.SortFunc(m.mates, func(a, b *mate) int { return bytes.Compare(a.id[:], b.id[:]) })
	m.count = len(m.mates) + 1
	m.stale = true
}

// Capacity says how many bits per second this site may send to another; 0 is
// unlimited.
func (m *Machine) Capacity(now time.Duration, to Site, bits int64) {
	m.tick(now)
	m.pool(to).capacity = max(bits, 0)
	m.stale = true
}

// Uplink says how many bits per second this site may send to all others
// together; 0 is unlimited. Rate("") is this node's part.
func (m *Machine) Uplink(now time.Duration, bits int64) { m.Capacity(now, "", bits) }

// Demand says how many bits per second this node could send to a site now, 0
// when it has nothing to send, and its weight where shares are divided (1 to
// 255, what is below counts as 1): the number of jobs or flows, say. It is to be
// called when a link wakes, when its backlog empties, and every few milliseconds
// between, while there are other members.
func (m *Machine) Demand(now time.Duration, to Site, want int64, weight int) {
	m.tick(now)
	m.pool(to).demand(m.now, max(want, 0), min(max(weight, 1), MaxWeight))
	m.stale = true
}

// Rate returns what this node may send to a site now, in bits per second; 0 is
// unlimited. The uplink's limit, which is Rate(""), counts besides.
func (m *Machine) Rate(to Site) int64 {
	m.current()
	p := m.bySite[to]
	if p == nil {
		return 0
	}
	return p.rate
}

// Lent returns what of this node's share of a pool others may be using, in bits per second,
// so that its own rate is less.
func (m *Machine) Lent(to Site) int64 {
	m.current()
	p := m.bySite[to]
	switch {
	case p == nil:
		return 0
	case p.implied:
		return p.lent + m.pools[0].lent
	}
	return p.lent
}

// Contended reports whether another node is known to want more than its share of a pool.
func (m *Machine) Contended(to Site) bool {
	m.current()
	p := m.bySite[to]
	return p != nil && m.contended(m.borrowed(p))
}

// Hungry reports whether a node has said last that it wants more than its share of a pool.
func (m *Machine) Hungry(id peer.ID, to Site) bool {
	p, t := m.bySite[to], m.byID[id]
	if p == nil || t == nil {
		return false
	}
	d := t.sides[m.borrowed(p)]
	return d != nil && d.hungry
}

// borrowed returns the pool of which is borrowed for one: the uplink where that implies it.
func (m *Machine) borrowed(p *pool) *pool {
	if p.implied {
		return m.pools[0]
	}
	return p
}

// Counters returns what has been counted.
func (m *Machine) Counters() Counters { return m.counts }

// Share is what there is to say of a pool.
type Share struct {
	To       Site  // "" is the uplink
	Capacity int64 // of the whole site, bits per second; 0 unlimited
	Capped   int64 // what the receiving site allows of it; 0: it has not said
	Safe     int64 // this node's share that nobody can take
	Rate     int64 // what it may send now
	Leased   int64 // of that, lent by others
	Lent     int64 // what it lends to others
	Senders  int   // nodes known to want more than their safe share, this one included
	Answers  int   // others that have answered lately
}

// Explain returns every pool that has a limit, the uplink first, then by site.
func (m *Machine) Explain() []Share {
	m.current()
	var list []Share
	for _, p := range m.pools {
		if p.limit() == 0 {
			continue
		}
		s := Share{To: p.site, Capacity: p.capacity, Capped: p.capped, Safe: p.safe, Rate: p.rate}
		counts := m.borrowed(p)
		if counts.hungry {
			s.Senders++
		}
		for _, t := range m.mates {
			d := t.sides[counts]
			if d == nil {
				continue
			}
			s.Leased += d.lease
			s.Lent += d.grant
			if t.fresh > m.now {
				s.Answers++
				if d.hungry {
					s.Senders++
				}
			}
		}
		list = append(list, s)
	}
	return list
}

// period returns the time between notices, which grows with the site.
func (m *Machine) period() time.Duration {
	return min(max(Period, time.Duration(m.members)*perNode), maxPeriod)
}

// pause returns the time between notices to who is hungry too.
func (m *Machine) pause() time.Duration { return max(m.period(), min(4*m.period(), maxPeriod)) }

// lease returns how long grants of this node last.
func (m *Machine) lease() time.Duration { return m.period() * (Lease / Period) }

// pool returns the pool of a site, made at first use.
func (m *Machine) pool(to Site) *pool {
	p := m.bySite[to]
	if p == nil {
		p = &pool{site: to, name: PoolName(to)}
		other, taken := m.byName[p.name]
		m.bySite[to], m.byName[p.name] = p, p
		if taken {
			m.byName[p.name], p.mute = nil, true
			if other != nil {
				other.mute = true
			}
		}
		m.pools = append(m.pools, p)
		slices.SortFunc(m.pools, func(a, b *pool) int { return cmp.Compare(a.site, b.site) })
	}
	return p
}

// current takes in what has happened.
func (m *Machine) current() {
	if m.stale {
		m.update()
	}
}

// tick takes the time in, which never goes back.
func (m *Machine) tick(now time.Duration) { m.now = max(m.now, now) }

// never is later than every time.
const never = time.Duration(math.MaxInt64)
