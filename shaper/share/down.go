package share

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/meshmpi/meshmpi/mesh/peer"
)

// Timing and thresholds of the receiving side.
const (
	arrives    = 2            // periods between notices of what arrives,
	arrivesFor = 4 * arrives  // for which what a mate said arrives is believed
	capEvery   = CapLease / 4 // between renewals of a cap
	calmAfter  = 2 * CapLease // without congestion, after which caps end
	fullAt     = 0.9          // of the downlink: congestion begins
	calmAt     = 0.6          // of the downlink: congestion ends
	littleOf   = 64           // a site that sends less than one part in so many is not capped, …
	littleAll  = 16           // … if all such send less than one in so many
	busyAt     = 0.85         // of its cap: a site would send more
	growth     = 1.25         // room for a site that sends less than its cap
	atMost     = 256          // senders that a node tells caps
)

// Arrival is what arrives from a node of another site.
type Arrival struct {
	From peer.ID
	Site Site
	Rate int64 // bits per second
}

// arrival is what arrives from a site, in all.
type arrival struct {
	rate    int64
	senders int
}

// downlink is the receiving side.
type downlink struct {
	capacity int64              // of this site; 0 unlimited
	senders  []Arrival          // that send to this node, ordered by ID
	here     map[uint32]arrival // the same by site
	telling  bool               // what arrives is worth telling the mates
	full     time.Duration      // when the downlink was last congested; 0 never
	caps     map[uint32]int64   // by site of origin, while congested
	told     map[peer.ID]int64  // caps as the senders were told them
	renew    time.Duration      // when they are told again
}

// capHeard is a cap that a receiving node has set on us.
type capHeard struct {
	rate  int64
	seq   uint64
	until time.Duration
}

// Downlink says how many bits per second this site may receive from all others
// together; 0 is unlimited.
func (m *Machine) Downlink(now time.Duration, bits int64) {
	m.tick(now)
	m.down.capacity = max(bits, 0)
	m.stale = true
}

// Arriving says what arrives at this node from nodes of other sites, all of it:
// who is not named sends nothing. It is to be called every 10 ms or so while
// something arrives, and once more when that has ended. Arrivals is not kept.
func (m *Machine) Arriving(now time.Duration, arrivals []Arrival) {
	m.tick(now)
	d := &m.down
	d.senders = d.senders[:0]
	d.here = map[uint32]arrival{}
	for _, a := range arrivals {
		if a.Rate <= 0 {
			continue
		}
		if len(d.senders) < atMost {
			d.senders = append(d.senders, a)
		}
		name := PoolName(a.Site)
		sum := d.here[name]
		if len(d.here) < maxEntries || sum.senders > 0 {
			d.here[name] = arrival{sum.rate + a.Rate, min(sum.senders+1, MaxWeight)}
		}
	}
	slices.SortFunc(d.senders, func(a, b Arrival) int { return slices.Compare(a.From[:], b.From[:]) })
	m.judge()
	m.stale = true
}

// Caps returns what this node allows other sites to send to its own, by site,
// while the downlink is congested; nil otherwise.
func (m *Machine) Caps() map[Site]int64 {
	list := map[Site]int64{}
	for _, a := range m.down.senders {
		if c := m.down.caps[PoolName(a.Site)]; c > 0 {
			list[a.Site] = c
		}
	}
	if len(list) == 0 {
		return nil
	}
	return list
}

// updateDown says whether the mates are to be told what arrives.
func (m *Machine) updateDown() {
	var sum int64
	for _, a := range m.down.here {
		sum += a.rate
	}
	d := &m.down
	d.telling = d.capacity > 0 && sum > 0 && sum >= d.capacity/int64(8*m.members)
}

// says adds what arrives to a notice.
func (d *downlink) says(list []entry) []entry {
	if !d.telling {
		return list
	}
	for _, name := range sortedNames(d.here) {
		if a := d.here[name]; len(list) < maxEntries {
			list = append(list, entry{pool: name, kind: entryArriving, weight: uint8(a.senders), a: floor(a.rate)})
		}
	}
	return list
}

// judge works out whether the downlink is congested and what each site may send.
func (m *Machine) judge() {
	d := &m.down
	all := map[uint32]arrival{}
	add := func(from map[uint32]arrival) {
		for name, a := range from {
			all[name] = arrival{all[name].rate + a.rate, all[name].senders + max(a.senders, 1)}
		}
	}
	add(d.here)
	for _, t := range m.mates {
		if t.heldTo > m.now {
			add(t.arrives)
		}
	}
	var sum, little int64
	for _, a := range all {
		sum += a.rate
		if a.rate < d.capacity/littleOf {
			little += a.rate // acknowledgements and the like
		}
	}
	if little > d.capacity/littleAll {
		little = 0 // all are small
	} else {
		maps.DeleteFunc(all, func(_ uint32, a arrival) bool { return a.rate < d.capacity/littleOf })
	}
	mark := fullAt
	if d.caps != nil {
		mark = calmAt
	}
	if len(all) > 1 && float64(sum) >= mark*float64(d.capacity) {
		d.full = m.now
	}
	if d.capacity == 0 || d.full == 0 || len(d.here) == 0 || m.now > d.full+calmAfter {
		d.caps, d.full = nil, 0
		return
	}
	d.allot(all, d.capacity-little)
}

// allot divides what of the downlink is left to the sites that fill it.
func (d *downlink) allot(all map[uint32]arrival, left int64) {
	names := sortedNames(all)
	claims := make([]claim, len(names))
	var weights int64
	for i, name := range names {
		a := all[name]
		want := int64(float64(a.rate) * growth)
		if c := d.caps[name]; c == 0 || float64(a.rate) >= busyAt*float64(c) {
			want = left
		}
		claims[i] = claim{want: want, weight: int64(a.senders)}
		weights += int64(a.senders)
	}
	divide(left, claims)
	caps := map[uint32]int64{}
	for i, name := range names {
		// One that sends little now may come back to its share at once.
		caps[name] = max(floor(max(claims[i].got, left*claims[i].weight/weights)), unit)
	}
	d.caps = caps
}

// capNotices tells the senders their caps, where they have changed or are to be
// renewed.
func (m *Machine) capNotices() (out []Message) {
	d := &m.down
	if len(d.caps) == 0 && len(d.told) == 0 {
		return nil
	}
	renew := m.now >= d.renew
	if renew {
		d.renew = m.now + capEvery
	}
	told := map[peer.ID]int64{}
	for _, a := range d.senders {
		c, was := d.caps[PoolName(a.Site)], d.told[a.From]
		if c == 0 {
			continue // an old one ends by itself
		}
		told[a.From] = was
		if !renew && max(c-was, was-c) <= was/16 {
			continue
		}
		told[a.From] = c
		m.seq = max(m.seq+1, m.start+uint64(m.now/time.Microsecond))
		n := notice{kind: kindCap, lease: uint16(CapLease / (100 * time.Microsecond)), seq: m.seq,
			entries: []entry{{kind: entryCap, a: c}}}
		out = append(out, Message{To: a.From, Data: n.append(nil)})
		m.counts.Sent++
	}
	d.told = told
	return out
}

// wake returns when caps are to be renewed.
func (d *downlink) wake() time.Duration {
	if len(d.caps) == 0 || len(d.senders) == 0 {
		return never
	}
	return d.renew
}

// Capped takes in a notice from a node of another site, which says what may be
// sent there. The caller vouches for from and its site; data is not kept.
func (m *Machine) Capped(now time.Duration, from peer.ID, site Site, data []byte) error {
	m.tick(now)
	n, err := parseNotice(data)
	if err == nil && (n.kind != kindCap || len(n.entries) != 1 || n.entries[0].kind != entryCap || n.entries[0].a == 0) {
		err = fmt.Errorf("%w: no cap from another site", errNotice)
	}
	if err != nil {
		m.counts.Refused++
		return err
	}
	p := m.bySite[site]
	if p == nil || site == "" {
		return nil // nothing is sent there
	}
	c, known := p.caps[from]
	if known && n.seq <= c.seq {
		m.counts.Stale++
		return nil
	}
	if !known && len(p.caps) >= maxCaps {
		return nil // sixty-four others have said it
	}
	if p.caps == nil {
		p.caps = map[peer.ID]capHeard{}
	}
	m.counts.Heard++
	lease := min(time.Duration(n.lease)*100*time.Microsecond, CapLease)
	p.caps[from] = capHeard{rate: n.entries[0].a, seq: n.seq, until: m.now + lease}
	m.stale = true
	return nil
}

// expireCaps sets the pool's cap to the least that still holds.
func (p *pool) expireCaps(now time.Duration) {
	p.capped = 0
	for from, c := range p.caps {
		if c.until <= now {
			delete(p.caps, from)
		} else if p.capped == 0 || c.rate < p.capped {
			p.capped = c.rate
		}
	}
}

func sortedNames(m map[uint32]arrival) []uint32 {
	names := make([]uint32, 0, len(m))
	for name := range m {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}
