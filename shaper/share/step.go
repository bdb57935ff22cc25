package share

import (
	"slices"
	"time"
)

// Step does what is due and returns the notices to be sent, and when it is to be
// called next if nothing else happens; 0 is never. It is to be called after
// every event.
func (m *Machine) Step(now time.Duration) (out []Message, wake time.Duration) {
	m.tick(now)
	m.update()
	loud := m.beatDue()
	settled := !slices.ContainsFunc(m.mates, (*mate).withholds)
	for _, t := range m.mates {
		own := loud && (!m.rests(t) || m.now >= t.sent+m.pause()-m.period()/2) || t.retry > 0 && m.now >= t.retry || t.urgent && m.mayNow(t, settled)
		if !own && !t.owes {
			continue
		}
		out = append(out, Message{To: t.id, Data: m.build(t, own)})
	}
	out = append(out, m.capNotices()...)
	return out, m.wake()
}

// beatDue reports whether everyone is to be told now.
func (m *Machine) beatDue() bool {
	every := time.Duration(0)
	if m.down.telling {
		every = arrives * m.period()
	}
	for _, p := range m.pools {
		if p.hungry {
			every = m.pause()
			if slices.ContainsFunc(m.mates, func(t *mate) bool { return !m.rests(t) }) {
				every = m.period()
			}
			break
		}
	}
	switch {
	case every == 0:
		m.beat = 0
	case m.beat == 0 || m.now >= m.beat || m.beat > m.now+every:
		m.beat = m.now + every
		return true
	}
	return false
}

// rests reports whether a mate need not be told so often that this node is hungry: it
// is hungry too, and there is nothing that either could lend the other.
func (m *Machine) rests(t *mate) bool {
	if m.down.telling || !t.any {
		return false
	}
	both := false
	for p, d := range t.sides {
		if d.ask > 0 || d.lease > 0 || d.hold > 0 {
			return false
		}
		both = both || p.hungry && d.hungry
	}
	return both
}

// mayNow reports whether an urgent notice may leave now: at once where a grant is taken
// back, or is the first and all that was taken back for it has been given up (settled), else
// not too soon after the last.
func (m *Machine) mayNow(t *mate, settled bool) bool {
	if !t.any || m.now >= t.sent+sendGap {
		return true
	}
	for _, d := range t.sides {
		first := settled && d.grant > 0 && d.told.kind == entryLender && d.told.b == 0
		if d.cut == unsent || first {
			return true
		}
	}
	return false
}

// wake returns when Step is to be called next.
func (m *Machine) wake() time.Duration {
	at := min(m.wakeAt(), m.down.wake())
	if m.beat > 0 {
		at = min(at, m.beat)
	}
	for _, t := range m.mates {
		if t.retry > 0 {
			at = min(at, t.retry)
		}
		if t.urgent {
			at = min(at, t.sent+sendGap)
		}
	}
	if at == never {
		return 0
	}
	return max(at, m.now+1)
}

// says returns what there is to tell a mate of a pool.
func (p *pool) says(d *side) entry {
	e := entry{pool: p.name, weight: uint8(p.weight)}
	switch {
	case p.mute:
		return entry{}
	case p.hungry:
		e.kind, e.a = entryHungry, floor(p.able+unit-1)
		if d != nil {
			e.b = d.ask
		}
	case d != nil && (d.hungry || d.hold > 0):
		e.kind, e.a, e.b = entryLender, p.spare(), d.grant
	default:
		return entry{}
	}
	return e
}

// wrong reports whether what a mate was told last is wrong in a way that cannot
// wait for the next notice.
func (m *Machine) wrong(t *mate) bool {
	room := maxEntries
	for _, p := range m.pools {
		d := t.sides[p]
		now, told := p.says(d), entry{}
		if now.kind != 0 {
			if room--; room < 0 {
				now = entry{} // as build does
			}
		}
		if d != nil {
			told = d.told
		}
		small := p.lending / notch
		switch {
		case now.kind != told.kind:
			if now.kind != 0 || told.kind == entryHungry {
				return true
			}
		case now.kind == entryHungry:
			if now.b != told.b {
				return true
			}
		case now.kind == entryLender:
			if now.b < told.b || now.b > told.b+small/4 || max(now.a-told.a, told.a-now.a) > small {
				return true
			}
		}
	}
	return false
}

// build writes the notice for a mate and notes what it has been told. own says
// that the notice is not just an answer.
func (m *Machine) build(t *mate, own bool) []byte {
	m.seq = max(m.seq+1, m.start+uint64(m.now/time.Microsecond))
	lease := m.lease()
	if m.rests(t) { // no grant is in it
		lease = m.pause() * (Lease / Period)
	}
	n := notice{kind: kindSite, members: m.count, lease: uint16(lease / (100 * time.Microsecond)), seq: m.seq, echo: t.seq}
	for _, p := range m.pools {
		d := t.sides[p]
		e := p.says(d)
		if e.kind != 0 && d == nil {
			d = t.side(p)
		}
		if e.kind != 0 && len(n.entries) == maxEntries {
			m.counts.Unsaid++
			e = entry{}
			d.askFor(0, 0) // which is what the mate hears
			m.stale = true
		}
		if d == nil {
			continue
		}
		if d.cut == unsent {
			t.retry = 0 // repeated soon, whatever was before
		}
		d.sent(e, m.seq, t.heard+m.lease())
		if e.kind != 0 {
			n.entries = append(n.entries, e)
			n.answer = n.answer || own && e.kind == entryHungry
		}
		n.ack = n.ack || d.hold > d.grant
	}
	n.entries = m.down.says(n.entries)
	switch {
	case !n.ack:
		t.retry, t.gap = 0, 0
	case t.retry == 0:
		t.gap = retryGap
		t.retry = m.now + t.gap
	case m.now >= t.retry:
		t.gap *= 2
		t.retry = m.now + t.gap
	}
	t.sent, t.any, t.owes, t.urgent = m.now, true, false, false
	m.counts.Sent++
	return n.append(nil)
}

// sent notes that a notice says e; a grant in it lasts until end.
func (d *side) sent(e entry, seq uint64, end time.Duration) {
	d.told = e
	if d.lowered == unsent {
		d.lowered = seq
	}
	if d.cut == unsent {
		d.cut = seq
	}
	if e.kind != entryLender || e.b == 0 {
		return
	}
	settled := d.hold <= d.grant
	d.grantEnd = end
	if settled {
		d.holdEnd = end
	}
}
