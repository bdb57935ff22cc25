package estimate

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/meshmpi/meshmpi/mesh/peer"
)

// Timing between nodes.
const (
	TallyEvery = Slot // what arrives is told so often while something does

	hold       = 60 * time.Millisecond  // until a tally is taken to be lost or late
	gather     = 60 * time.Millisecond  // the same of a report
	answerTime = time.Second            // without a tally before a destination counts as one that sends none
	awake      = time.Second            // after the last byte
	repeat     = 100 * time.Millisecond // between verdicts of which nothing is new
	patience   = 2 * time.Second        // for a leader that does not answer
	mute       = 5 * time.Minute        // it is left out for, unless it answers meanwhile
	reminders  = 4                      // so many that do not answer are reported to now and then
	aside      = 100                    // slots in which most goes to those who do not tell, until there is no limit
	maxPeers   = 4096                   // of each sort
)

// Config says what a Meter needs.
type Config struct {
	Self peer.ID
	// Sent tells how many bytes have ever been sent to each node of another site,
	// counted as its tallies count them, and the round trip there. It is called in
	// Step.
	Sent func(yield func(to peer.ID, site string, bytes int64, rtt time.Duration))
}

// Message is to be sent to a node of the own site. Data is the caller's.
type Message struct {
	To   peer.ID
	Data []byte
}

// Meter is a node's part in finding what its site's links carry. It is not safe for
// concurrent use. Times are since any fixed moment and must not decrease.
type Meter struct {
	cfg      Config
	order    []peer.ID // nodes of the site that are up, by ID, self among them
	pools    []*pool   // that are measured, by site; "" is the uplink
	feeds    map[peer.ID]*feed
	mates    map[peer.ID]*mate // that report to this node, itself too if it leads
	skip     map[peer.ID]time.Duration
	asking   time.Duration // since when the leader has not answered; 0: it has
	next     time.Duration // slot that is due; 0: asleep
	reminded time.Duration // when nodes that do not answer were last reported to
	active   time.Duration // when something was last sent
	counts   Counters
}

// Counters counts since the start.
type Counters struct {
	Refused uint64 // no messages, or from strangers
	Unsaid  uint64 // nodes and pools beyond what is kept or told
}

// pool is a link that is measured.
type pool struct {
	site     string
	name     uint32
	own      counters      // of this node
	lag      time.Duration // of what was sent in this slot
	vague    bool          // more may have arrived than this node knows
	lead     *Estimator    // nil: this node does not lead
	recent   [2]float64    // bytes to those that tell and to others, lately
	strange  int           // slots in which most went to others
	rate     int64         // pace, bits per second; 0: no limit
	found    int64
	measured time.Duration // when found was last measured; below 0: never
}

// feed is a node of another site that is sent to.
type feed struct {
	bytes    int64 // ever, as told last; counted from the first time on
	known    bool
	asked    time.Duration // since when it has been sent to without a tally; 0: not
	steady   int           // slots on end with something sent
	tells    bool
	arrived  series
	credited int64 // of arrived.got, what pools have
}

// mate is a node of the site that reports to this one.
type mate struct {
	heard  time.Duration
	told   time.Duration // when a verdict was last sent to it
	lag    map[uint32]time.Duration
	vague  map[uint32]bool
	series map[uint32]*series
	taken  map[uint32]counters // by the estimators
}

// NewMeter returns the Meter of a node that is alone and measures nothing.
func NewMeter(cfg Config) *Meter {
	return &Meter{
		cfg: cfg, order: []peer.ID{cfg.Self}, feeds: map[peer.ID]*feed{}, mates: map[peer.ID]*mate{},
		skip: map[peer.ID]time.Duration{},
	}
}

// Members says which nodes of this site are up; self counts whether or not it is
// listed. What is beyond 4096 is left out.
func (m *Meter) Members(up []peer.ID) {
	m.order = append(slices.Clone(up), m.cfg.Self)
	slices.SortFunc(m.order, compareIDs)
	m.order = slices.Compact(m.order)
	if len(m.order) > maxPeers {
		m.counts.Unsaid += uint64(len(m.order) - maxPeers)
		m.order = m.order[:maxPeers]
	}
	for id := range m.mates {
		if !m.member(id) {
			delete(m.mates, id)
		}
	}
	for id := range m.skip {
		if !m.member(id) {
			delete(m.skip, id)
		}
	}
}

func compareIDs(a, b peer.ID) int { return bytes.Compare(a[:], b[:]) }

func (m *Meter) member(id peer.ID) bool {
	_, ok := slices.BinarySearchFunc(m.order, id, compareIDs)
	return ok
}

// Measure says what is measured: what this site sends to each of the named sites,
// and to all together where "" is among them. known tells the rate found earlier,
// in bits per second, 0 where there is none; it is asked of those that are new.
func (m *Meter) Measure(sites []string, known func(site string) int64) {
	m.pools = slices.DeleteFunc(m.pools, func(p *pool) bool { return !slices.Contains(sites, p.site) })
	for _, site := range sites {
		if m.pool(site) != nil {
			continue
		}
		if len(m.pools) == maxPools {
			m.counts.Unsaid++
			continue
		}
		p := &pool{site: site, name: poolName(site), measured: -1}
		p.found = max(known(site), 0)
		p.rate = NewEstimator(p.found).Pace()
		m.pools = append(m.pools, p)
	}
	slices.SortFunc(m.pools, func(a, b *pool) int { return cmp.Compare(a.site, b.site) })
	if len(m.pools) == 0 {
		m.next = 0
		clear(m.feeds)
		clear(m.mates)
	}
}

func (m *Meter) pool(site string) *pool {
	for _, p := range m.pools {
		if p.site == site {
			return p
		}
	}
	return nil
}

func (m *Meter) byName(name uint32) *pool {
	for _, p := range m.pools {
		if p.name == name {
			return p
		}
	}
	return nil
}

// Rate returns what all nodes of the site may send to another now, or to all with
// "", in bits per second; 0: there is no limit, or it is not measured.
func (m *Meter) Rate(site string) int64 {
	if p := m.pool(site); p != nil {
		return p.rate
	}
	return 0
}

// Measured is what there is to say of a link.
type Measured struct {
	To    string        // site; "": all together
	Rate  int64         // what may be sent now, bits per second; 0: no limit
	Found int64         // what the link was found to carry; 0: nothing is found yet
	Age   time.Duration // since it was last measured; below 0: not since the node has started
}

// Explain returns what there is to say of every link that is measured, by site.
func (m *Meter) Explain(now time.Duration) []Measured {
	var list []Measured
	for _, p := range m.pools {
		age := time.Duration(-1)
		if p.measured >= 0 {
			age = max(now-p.measured, 0)
		}
		list = append(list, Measured{To: p.site, Rate: p.rate, Found: p.found, Age: age})
	}
	return list
}

// Counters returns what has been counted.
func (m *Meter) Counters() Counters { return m.counts }

// Wake says that something may be sent to other sites again. It may be called at
// any time.
func (m *Meter) Wake(now time.Duration) {
	if len(m.pools) == 0 {
		return
	}
	m.active = now
	if m.next == 0 {
		m.next = now - now%Slot + Slot
		m.asking = 0
	}
}

// ErrStranger says that a message came from a node that it may not come from.
var ErrStranger = errors.New("estimate: a message from a node that may not send it")

// Receive takes in a message from a node, of this site or another. The caller
// vouches for from and for whether it is of this site; data is not kept. An error
// says that the message was refused and changed nothing that is known; a tally wakes
// the Meter even so.
func (m *Meter) Receive(now time.Duration, from peer.ID, own bool, data []byte) error {
	var err error
	switch {
	case len(data) > 0 && data[0] == kindTally:
		err = m.tally(now, from, own, data)
	case !own || !m.member(from) || from == m.cfg.Self:
		err = fmt.Errorf("%w: %v", ErrStranger, from)
	default:
		err = m.fromMate(now, from, data)
	}
	if err != nil {
		m.counts.Refused++
	}
	return err
}

// tally takes in what a receiver tells.
func (m *Meter) tally(now time.Duration, from peer.ID, own bool, data []byte) error {
	at, got, err := parseTally(data)
	if err != nil {
		return err
	}
	if !own { // something is sent there: where there is no limit nobody else says so
		m.Wake(now)
	}
	f := m.feeds[from]
	if own || f == nil {
		return fmt.Errorf("%w: %v", ErrStranger, from) // nothing is sent there, or nothing yet
	}
	if !f.tells { // from here on it counts
		f.tells, f.arrived, f.credited = true, series{}, 0
	}
	f.asked = 0
	f.arrived.add(now, at, counters{got: got})
	return nil
}

func (m *Meter) fromMate(now time.Duration, from peer.ID, data []byte) error {
	kind, msg, err := parseTold(data)
	if err != nil {
		return err
	}
	if kind == kindVerdict {
		m.obey(now, from, msg)
		return nil
	}
	t := m.mates[from]
	if t == nil {
		t = newMate()
		m.mates[from] = t
	}
	t.report(now, msg, m)
	m.Wake(now)
	return nil
}

// obey takes in what the leader has found.
func (m *Meter) obey(now time.Duration, from peer.ID, msg told) {
	if lead := m.leader(now); from != lead {
		if compareIDs(from, lead) > 0 {
			return
		}
		delete(m.skip, from) // it is back, and every node comes to the same
	}
	m.asking = 0
	for _, v := range msg.pools {
		p := m.byName(v.name)
		if p == nil {
			continue
		}
		p.rate, p.found, p.measured = v.pace, v.found, -1
		if v.age >= 0 {
			p.measured = max(now-v.age, 0)
		}
	}
}

// leader returns the node that this one reports to, perhaps itself.
func (m *Meter) leader(now time.Duration) peer.ID {
	for _, id := range m.order {
		if id == m.cfg.Self || m.skip[id] <= now {
			return id
		}
	}
	return m.cfg.Self
}
