package share

import (
	"math"
	"time"

	"github.com/meshmpi/meshmpi/mesh/peer"
)

// pool is what the site may send to one other site, or to all (the uplink).
type pool struct {
	site     Site
	name     uint32
	capacity int64 // of the site; 0 unlimited
	capped   int64 // the least cap of the receiving site's nodes; 0 none
	caps     map[peer.ID]capHeard

	live      int64 // demand as told last
	want      int64 // demand that counts: the last that was not zero, until quiet
	able      int64 // want, as far as the pool and the uplink can carry it
	weight    int
	peak      int64         // the most that able was lately
	till      time.Duration // until when that counts if nobody else is hungry
	sustained bool          // able is more than want, because of peak
	idle      time.Duration // since when live is zero
	hungry    bool          // it wants more than its safe share, or did lately

	safe    int64         // this node's share of the limit
	lending int64         // its share as a lender: of the capacity, whatever the cap
	own     int64         // what of that it keeps for itself
	ownTill time.Duration // it keeps less from then on; 0: it needs all it keeps
	rate    int64
	lent    int64 // what of its share others may be using
	implied bool  // the uplink is no wider: it alone counts
	mute    bool  // another pool has the same name: nothing is said of either, nor shared
}

// side is what this node and one other have to do with each other in a pool.
type side struct {
	// Said by the other.
	hungry bool
	want   int64 // if hungry, in all
	weight int
	asks   int64 // of this node
	lender bool  // it has said what it spares
	spare  int64

	// Borrowed from it.
	ask      int64
	lease    int64         // what it lends
	leaseEnd time.Duration // and until when
	lowered  uint64        // the notice that last asked for less: until it is heard no raise is taken …
	least    int64         // … beyond the least that was asked for since there is such a notice

	// Lent to it.
	grant    int64
	grantEnd time.Duration // when what was sent last ends
	hold     int64         // the most it may believe it has, ≥ grant
	holdEnd  time.Duration // when that ends, where hold > grant
	cut      uint64        // the notice that last lowered the grant
	cutAt    time.Duration // and when that was

	told entry // what it was told last
}

// held is what this node leaves to the other of its own share.
func (d *side) held(now time.Duration) int64 {
	if d.hold > d.grant && now >= d.cutAt+deaf {
		return d.grant
	}
	return d.hold
}

// unsent is the number of a notice that has still to be sent.
const unsent = math.MaxUint64

// demand takes in what this node could send.
func (p *pool) demand(now time.Duration, want int64, weight int) {
	if want == 0 && p.live > 0 {
		p.idle = now
	}
	p.live = want
	if want > 0 {
		p.want, p.weight = want, weight
	}
}

// limit returns what the site may send, 0 unlimited.
func (p *pool) limit() int64 {
	if p.capped > 0 && (p.capacity == 0 || p.capped < p.capacity) {
		return p.capped
	}
	return p.capacity
}

// clipped returns the demand as far as the pool can ever carry it.
func (p *pool) clipped() int64 { return within(p.want, p.limit()) }

// within returns what a bound allows of a rate; a bound of 0 allows any.
func within(rate, bound int64) int64 {
	if bound > 0 {
		return min(rate, bound)
	}
	return rate
}

// refresh works out this node's own state in the pool: its share, whether it is
// hungry, and what it keeps of its share. usable is what the uplink lets it send;
// contended says that another is hungry.
func (p *pool) refresh(now time.Duration, members int, usable int64, contended bool) {
	limit := p.limit()
	p.safe, p.lending = Safe(limit, members), Safe(p.capacity, members)
	quietEnd := p.idle + quiet
	resting := p.live == 0 && now >= quietEnd
	p.able = within(p.clipped(), usable)
	p.sustain(now, within(within(p.peak, limit), usable), contended)
	switch {
	case limit == 0 || members == 1 || p.want == 0 || p.implied || p.mute:
		p.hungry = false
	case !resting:
		p.hungry = p.able > p.safe
	default: // it keeps its leases for a while, if nobody else wants them
		p.hungry = p.hungry && !contended && now < p.idle+linger
	}
	if resting && !p.hungry {
		p.want, p.able = 0, 0
	}
	p.keep(now)
}

// sustain keeps up for a while what a borrower wanted, if nobody else wants it: a flow
// that was marked has little to send for some milliseconds and then as much as before.
// peak is what of it can be carried now, which may have become less.
func (p *pool) sustain(now time.Duration, peak int64, contended bool) {
	p.sustained = false
	switch {
	case p.able >= p.peak, contended, now >= p.till:
		p.peak, p.till = p.able, now+linger
	case peak > p.safe && peak > p.able:
		p.able, p.sustained = peak, true
	}
}

// keep sets how much of its share the node keeps for itself. It keeps more at
// once and less only after a while, so that demand that wavers takes nothing
// back.
func (p *pool) keep(now time.Duration) {
	own := p.lending / Reserve
	switch step := p.lending / notch; {
	case p.hungry, p.implied && p.able > p.safe, p.want > own && step == 0:
		own = p.lending
	case p.want > own:
		own = min((p.want+step-1)/step*step, p.lending)
	}
	switch {
	case own >= p.own || p.own > p.lending || p.want == 0:
		p.own, p.ownTill = own, 0
	case p.ownTill == 0:
		p.ownTill = now + quiet
	case now >= p.ownTill:
		p.own, p.ownTill = own, 0
	}
}

// spare returns what this node can lend in all.
func (p *pool) spare() int64 {
	if p.hungry || p.capacity == 0 || p.mute {
		return 0
	}
	return floor(p.lending - p.own)
}

// rests returns when the state of the pool changes by itself, if it does.
func (p *pool) rests(now time.Duration) time.Duration {
	at := never
	if p.live == 0 && p.want > 0 {
		if t := p.idle + quiet; t > now {
			at = t
		} else if p.hungry {
			at = p.idle + linger
		}
	}
	if p.ownTill > 0 {
		at = min(at, p.ownTill)
	}
	if p.hungry && p.sustained && p.till > now {
		at = min(at, p.till)
	}
	for _, c := range p.caps {
		at = min(at, c.until)
	}
	return at
}
