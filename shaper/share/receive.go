package share

import (
	"fmt"
	"time"

	"github.com/meshmpi/meshmpi/mesh/peer"
)

// forgotten is how long after a node's last notice any sequence number is taken
// from it, as after a restart with its clock set back. It is longer than any
// lease, so nothing said before matters any more.
const forgotten = 5 * time.Second

// Receive takes in a notice from a node of this site. The caller vouches for
// from; data is not kept. What is old is ignored; an error says that the notice
// was refused and changed nothing.
func (m *Machine) Receive(now time.Duration, from peer.ID, data []byte) error {
	m.tick(now)
	n, err := parseNotice(data)
	if err != nil {
		m.counts.Refused++
		return err
	}
	t := m.byID[from]
	if t == nil || n.kind != kindSite {
		m.counts.Refused++
		return fmt.Errorf("%w: %v", ErrStranger, from)
	}
	if n.seq <= t.seq && now < t.heard+forgotten {
		m.counts.Stale++
		return nil
	}
	m.counts.Heard++
	lease := time.Duration(n.lease) * 100 * time.Microsecond
	t.seq, t.heard, t.fresh, t.members = n.seq, m.now, m.now+lease, n.members
	if n.echo > m.seq || n.echo < m.start {
		n.echo = 0 // of another life
	}
	if n.ack {
		t.owes = true
	}
	t.acknowledged(n.echo)
	m.apply(t, &n, m.sentAt(n.echo)+lease)
	if !t.withholds() {
		t.retry = 0
	}
	m.stale = true
	return nil
}

// acknowledged settles what was lowered before the notice that the mate has
// heard last.
func (t *mate) acknowledged(echo uint64) {
	for _, d := range t.sides {
		if d.cut > 0 && echo >= d.cut {
			d.hold, d.holdEnd, d.cut = d.grant, d.grantEnd, 0
		}
	}
}

// withholds reports whether the mate may believe it was lent more than it is.
func (t *mate) withholds() bool {
	for _, d := range t.sides {
		if d.hold > d.grant {
			return true
		}
	}
	return false
}

// apply takes in what a notice says of every pool; what it does not name is
// zero. Grants in it last until end.
func (m *Machine) apply(t *mate, n *notice, end time.Duration) {
	named := map[*pool]entry{}
	arrives := map[uint32]arrival{}
	for _, e := range n.entries {
		switch p := m.byName[e.pool]; {
		case e.kind == entryArriving:
			arrives[e.pool] = arrival{rate: e.a, senders: int(e.weight)}
		case p != nil && (e.kind == entryHungry || e.kind == entryLender):
			named[p] = e
			t.side(p)
		}
	}
	if len(arrives) > 0 || m.now >= t.heldTo {
		t.arrives = arrives
		t.heldTo = m.now + arrivesFor*m.period()
	}
	for p, d := range t.sides {
		e := named[p]
		d.hungry, d.lender = e.kind == entryHungry, e.kind == entryLender
		d.want, d.asks, d.spare, d.weight = 0, 0, 0, int(e.weight)
		var granted int64
		switch {
		case d.hungry:
			d.want, d.asks = e.a, e.b
			if n.answer && (p.spare() > 0 || d.hold > 0) {
				t.owes = true
			}
		case d.lender:
			d.spare, granted = e.a, e.b
		}
		d.granted(granted, n.echo, end, m.now)
		// It uses no more than it asks for, until we raise that again.
		d.hold = min(d.hold, d.asks)
		d.grant = min(d.grant, d.asks)
	}
}

// granted takes in what the lender grants.
func (d *side) granted(rate int64, echo uint64, end, now time.Duration) {
	if echo < d.lowered {
		rate = min(rate, d.least) // it has not heard yet that we gave the rest up
	} else {
		d.lowered = 0
	}
	d.lease, d.leaseEnd = min(rate, d.ask), end
	if end <= now {
		d.lease = 0
	}
}

// sentAt returns when a notice of this life was sent, rounded down; long ago for
// those of others.
func (m *Machine) sentAt(seq uint64) time.Duration {
	if seq < m.start || seq == 0 || seq > m.seq {
		return -1 << 40
	}
	return time.Duration(seq-m.start) * time.Microsecond
}
