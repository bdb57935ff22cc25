package share

import "time"

// update works everything out anew from what is known at m.now. It sends
// nothing; it marks whom something must be told.
func (m *Machine) update() {
	m.stale = false
	m.members = m.count
	for _, t := range m.mates {
		if t.fresh > m.now {
			m.members = max(m.members, min(t.members, 2*m.count)) // not what one node makes up
		}
	}
	m.forget()
	for _, p := range m.pools {
		p.expireCaps(m.now)
	}
	m.demandUplink()
	for _, p := range m.pools { // the uplink first: it bounds the others
		var usable int64
		if up := m.pools[0]; p != up {
			usable = max(up.rate, up.safe) // what it lends it takes back for this
		}
		p.implied = m.implies(p)
		p.refresh(m.now, m.members, usable, m.contended(p))
		m.borrow(p)
		m.lend(p)
		m.settle(p)
	}
	m.updateDown()
	for _, t := range m.mates {
		t.urgent = m.wrong(t)
	}
}

// demandUplink sums what this node could send to all sites, as their limits are now.
func (m *Machine) demandUplink() {
	up := m.pools[0]
	var sum int64
	all := 0
	for _, p := range m.pools {
		if p != up && p.live > 0 {
			sum += p.clipped()
			all += p.weight
		}
	}
	up.demand(m.now, sum, min(max(all, 1), MaxWeight))
}

// implies reports whether what the uplink carries is the tighter limit of a pool
// anyway. Then there is nothing to borrow in that: who asked for both would have the
// second only after the first, by twice as many notices. (Others still lend of it, to
// whom a receiver holds to less.)
func (m *Machine) implies(p *pool) bool {
	up := m.pools[0]
	return p != up && up.capacity > 0 && p.limit() >= up.capacity
}

// forget ends leases, promises and what was heard, where their time is over.
func (m *Machine) forget() {
	for _, t := range m.mates {
		for p, d := range t.sides {
			if t.fresh <= m.now {
				d.hungry, d.lender, d.want, d.asks, d.spare = false, false, 0, 0, 0
			}
			if d.leaseEnd <= m.now {
				d.lease = 0
			}
			if d.grantEnd <= m.now {
				d.grant = 0
			}
			if d.holdEnd <= m.now || d.hold <= d.grant {
				d.hold, d.holdEnd = d.grant, d.grantEnd
			}
			if d.hold <= d.grant {
				d.cut = 0
			}
			if t.fresh <= m.now && d.lease == 0 && d.hold == 0 && d.ask == 0 && d.lowered == 0 {
				delete(t.sides, p)
			}
		}
	}
}

// contended reports whether another node is known to be hungry in the pool.
func (m *Machine) contended(p *pool) bool {
	for _, t := range m.mates {
		if d := t.sides[p]; d != nil && d.hungry {
			return true
		}
	}
	return false
}

// borrow works out what this node asks of each lender.
func (m *Machine) borrow(p *pool) {
	if !p.hungry {
		for _, t := range m.mates {
			if d := t.sides[p]; d != nil {
				d.askFor(0, 0)
			}
		}
		return
	}
	spared, more := m.excess(p)
	for _, t := range m.mates {
		d := t.side(p)
		slack := p.safe / 64 // differences not worth a notice
		switch {
		case d.hungry:
			d.askFor(0, 0)
		case !d.lender: // unknown: as much as it can
			d.askFor(floor(min(max(p.able-p.safe, 0), p.safe)), slack)
		case spared > 0:
			d.askFor(floor(int64(float64(d.spare)*min(1, float64(more)/float64(spared)))), slack)
		default:
			d.askFor(0, 0)
		}
	}
}

// excess returns what all who have answered spare, and what of it this node gets
// by weighted max–min among the hungry.
func (m *Machine) excess(p *pool) (spared, more int64) {
	claims := []claim{{want: p.able, floor: p.safe, weight: int64(p.weight)}}
	kept := int64(0) // what lenders use themselves
	for _, t := range m.mates {
		d := t.sides[p]
		switch {
		case d == nil:
		case d.hungry:
			claims = append(claims, claim{want: d.want, floor: p.safe, weight: int64(max(d.weight, 1))})
		case d.lender:
			spared += min(d.spare, p.lending)
			keeps := max(p.lending-d.spare, 0)
			if keeps <= p.lending/Reserve+unit { // the reserve of one who is idle, and knows of no cap
				keeps = p.safe / Reserve
			}
			kept += min(keeps, p.safe)
		}
	}
	total := int64(len(claims))*p.safe + spared
	if p.capped > 0 { // lenders may know of no cap: their share is of more
		total = min(total, p.limit()-kept)
	}
	divide(total, claims)
	return spared, max(claims[0].got-p.safe, 0)
}

// side returns what the mate and this node have to do with each other in a pool,
// made at first use.
func (t *mate) side(p *pool) *side {
	d := t.sides[p]
	if d == nil {
		d = &side{}
		t.sides[p] = d
	}
	return d
}

// askFor sets what is asked of a lender. Asking for less gives up the rest of the
// lease at once, and no raise is taken until the lender has heard of it.
func (d *side) askFor(rate, slack int64) {
	if diff := rate - d.ask; diff == 0 || rate > 0 && max(diff, -diff) <= slack {
		return
	}
	if rate < d.ask {
		if d.lowered == 0 {
			d.least = rate
		}
		d.lowered = unsent
		d.lease, d.least = min(d.lease, rate), min(d.least, rate)
	}
	d.ask = rate
}

// lend divides what this node spares among those who ask for it.
func (m *Machine) lend(p *pool) {
	var claims []claim
	var sides []*side
	var ends []time.Duration
	held := int64(0)
	for _, t := range m.mates {
		d := t.sides[p]
		if d == nil {
			continue
		}
		held += d.hold
		if d.hungry || d.hold > 0 {
			claims = append(claims, claim{want: d.asks, weight: int64(max(d.weight, 1))})
			sides = append(sides, d)
			ends = append(ends, t.heard+m.lease())
		}
	}
	if len(sides) == 0 {
		return
	}
	spare := p.spare()
	divide(spare, claims)
	for i, d := range sides { // first what is lowered
		if got := floor(claims[i].got); got < d.grant {
			d.cutAt = m.now
			d.holdEnd = max(d.holdEnd, d.grantEnd)
			d.grant, d.cut = got, unsent
		}
	}
	for i, d := range sides { // then raise, by what nobody may believe to have
		got := floor(claims[i].got)
		if got <= d.grant || ends[i] <= m.now {
			continue
		}
		free := max(spare-held, 0)
		to := min(got, max(d.hold, d.grant)+free)
		held += max(to-d.hold, 0)
		if to > d.grant {
			d.grant, d.grantEnd = to, ends[i]
		}
		if to >= d.hold {
			d.hold, d.holdEnd = d.grant, d.grantEnd
		}
	}
}

// settle sets the pool's rate: what this node borrows besides its share, and not what it
// lends of that.
func (m *Machine) settle(p *pool) {
	p.rate, p.lent = p.safe, 0
	left := p.lending
	for _, t := range m.mates {
		if d := t.sides[p]; d != nil {
			p.lent += d.held(m.now)
			if p.hungry {
				p.rate, left = p.rate+d.lease, left+d.lease
			}
		}
	}
	p.rate = min(p.rate, p.limit())
	if p.implied {
		p.rate = m.pools[0].rate
	}
	if p.lent > 0 && p.lending > 0 {
		p.rate = min(p.rate, max(left-p.lent, p.lending/Reserve))
	}
	if p.limit() > 0 && p.rate == 0 {
		p.rate = unit // 0 would say that there is no limit
	}
}

// wakeAt returns when something changes by itself.
func (m *Machine) wakeAt() time.Duration {
	at := never
	for _, p := range m.pools {
		at = min(at, p.rests(m.now))
	}
	for _, t := range m.mates {
		if t.members > m.count && t.fresh > m.now {
			at = min(at, t.fresh)
		}
		for _, d := range t.sides {
			if d.lease > 0 {
				at = min(at, d.leaseEnd)
			}
			if d.grant > 0 {
				at = min(at, d.grantEnd)
			}
			if d.hold > d.grant {
				at = min(at, d.holdEnd)
				if late := d.cutAt + deaf; late > m.now {
					at = min(at, late)
				}
			}
			if d.hungry || d.lender {
				at = min(at, t.fresh)
			}
		}
	}
	return at
}
