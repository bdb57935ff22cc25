package estimate

import (
	"time"

	"github.com/meshmpi/meshmpi/mesh/peer"
)

// Step does what is due and returns the messages to be sent, and when it is to be
// called next if nothing else happens; 0 is never.
func (m *Meter) Step(now time.Duration) (out []Message, wake time.Duration) {
	if m.next == 0 {
		return nil, 0
	}
	if now < m.next {
		return nil, m.next
	}
	m.count(now)
	lead := m.leader(now)
	if lead == m.cfg.Self {
		m.reportSelf(now)
	} else {
		m.yield()
		if msg, ok := m.report(now, lead); ok {
			out = append(out, msg)
		}
	}
	out = m.remind(now, lead, out)
	news := false
	for ; m.next <= now; m.next += Slot { // slots that a busy host has missed come in a bunch
		if lead == m.cfg.Self {
			news = m.lead(now, m.next) || news
		}
	}
	out = m.verdicts(now, news, out)
	if now > m.active+awake {
		m.sleep()
		return out, 0
	}
	return out, m.next
}

// sleep forgets what is only of use while something is sent.
func (m *Meter) sleep() {
	m.next = 0
	clear(m.mates)
	clear(m.feeds)
	for _, p := range m.pools {
		p.lead = nil
	}
}

// count takes in what this node has sent and what of it has arrived.
func (m *Meter) count(now time.Duration) {
	for _, p := range m.pools {
		p.vague, p.lag = false, 0
	}
	m.cfg.Sent(func(to peer.ID, site string, bytes int64, rtt time.Duration) {
		f := m.feeds[to]
		if f == nil {
			if len(m.feeds) == maxPeers {
				m.counts.Unsaid++
				return
			}
			f = &feed{}
			m.feeds[to] = f
		}
		grown := f.slot(now, bytes, rtt)
		for _, p := range m.pools {
			if p.site == "" || p.site == site {
				p.own = p.own.plus(grown)
				if grown.sent > 0 {
					p.lag = max(p.lag, rtt)
				}
				p.vague = p.vague || f.late(now, rtt)
			}
		}
		if grown.sent+grown.blind > 0 {
			m.active = now
		}
	})
}

// slot takes in how much has ever been sent to the node and returns what has come
// to that and to what has arrived.
func (f *feed) slot(now time.Duration, bytes int64, rtt time.Duration) (grown counters) {
	sent := max(bytes-f.bytes, 0)
	if !f.known {
		sent = 0
	}
	f.bytes, f.known = bytes, true
	f.steady++
	if sent == 0 {
		f.steady = 0
	} else if f.asked == 0 {
		f.asked = now
	}
	if f.asked > 0 && now > f.asked+answerTime+rtt {
		f.tells = false
	}
	if !f.tells {
		return counters{blind: sent}
	}
	got := f.arrived.read(now - hold).got
	grown = counters{sent: sent, got: max(got-f.credited, 0)}
	f.credited = max(f.credited, got)
	return grown
}

// late reports whether a tally should have come by now.
func (f *feed) late(now, rtt time.Duration) bool {
	return f.tells && time.Duration(f.steady)*Slot > rtt+2*Slot && f.arrived.until() < now-hold
}

// told is what this node tells of its pools.
func (m *Meter) told(now time.Duration) told {
	msg := told{at: now}
	for _, p := range m.pools {
		msg.pools = append(msg.pools, poolTold{name: p.name, lag: p.lag, vague: p.vague, counters: p.own})
	}
	return msg
}

// report tells the leader, unless it has long not answered.
func (m *Meter) report(now time.Duration, lead peer.ID) (Message, bool) {
	if m.asking == 0 {
		m.asking = now
	} else if now > m.asking+patience {
		m.skip[lead], m.asking = now+mute, 0
		return Message{}, false // the next leads from the next slot on
	}
	return Message{To: lead, Data: m.told(now).appendReport(nil)}, true
}

// remind reports now and then to nodes that should lead and have not answered.
func (m *Meter) remind(now time.Duration, lead peer.ID, out []Message) []Message {
	if now < m.reminded+repeat {
		return out
	}
	for i, id := range m.order {
		if id == lead || i == reminders {
			break
		}
		m.reminded = now
		out = append(out, Message{To: id, Data: m.told(now).appendReport(nil)})
	}
	return out
}

// yield ends this node's lead. Who still reports to it hears what its leader says.
func (m *Meter) yield() {
	delete(m.mates, m.cfg.Self)
	for _, p := range m.pools {
		p.lead = nil
	}
}

// reportSelf is report for a node that leads.
func (m *Meter) reportSelf(now time.Duration) {
	t := m.mates[m.cfg.Self]
	if t == nil {
		t = newMate()
		m.mates[m.cfg.Self] = t
	}
	t.report(now, m.told(now), m)
	m.asking = 0
}

func newMate() *mate {
	return &mate{
		lag: map[uint32]time.Duration{}, vague: map[uint32]bool{},
		series: map[uint32]*series{}, taken: map[uint32]counters{},
	}
}

// report takes in what the mate tells of pools that this node knows.
func (t *mate) report(now time.Duration, msg told, m *Meter) {
	t.heard = now
	for _, p := range msg.pools {
		if m.byName(p.name) == nil {
			continue
		}
		s := t.series[p.name]
		if s == nil {
			s = &series{}
			t.series[p.name] = s
		}
		t.lag[p.name] = p.lag
		t.vague[p.name] = p.vague
		s.add(now, msg.at, p.counters)
	}
}

// lead runs the estimators with one slot, if somebody reports to this node, and
// reports whether a pace has changed.
func (m *Meter) lead(now, slot time.Duration) (news bool) {
	for _, p := range m.pools {
		news = p.judge(now, slot, m.mates) || news
	}
	return news
}

// judge adds up what the mates say of one slot and has the estimator see it.
func (p *pool) judge(now, slot time.Duration, mates map[peer.ID]*mate) (news bool) {
	var sum counters
	var lag time.Duration
	vague := false
	for _, t := range mates {
		s := t.series[p.name]
		if s == nil {
			continue
		}
		c := s.read(slot - gather)
		sum = sum.plus(c.minus(t.taken[p.name]).clipped())
		t.taken[p.name] = c
		lag = max(lag, t.lag[p.name])
		vague = vague || t.vague[p.name] || s.until() < slot-gather
	}
	if p.lead == nil {
		p.lead = NewEstimator(p.found)
	}
	if sum != (counters{}) || p.lead.n > 0 {
		p.lead.Add(sum.sent, sum.got, int((lag+hold+Slot/2)/Slot), !vague)
	}
	rate := p.lead.Pace()
	if p.stranger(sum) {
		rate = 0
	}
	news = rate != p.rate
	found, age := p.lead.Found()
	if p.rate = rate; p.lead.sure > 0 {
		p.found, p.measured = found, now-age
	}
	return news
}

// stranger reports whether most has long gone to destinations that do not tell what
// arrives: then nothing can be found.
func (p *pool) stranger(c counters) bool {
	const keep = 0.98
	p.recent[0] = p.recent[0]*keep + float64(c.sent)
	p.recent[1] = p.recent[1]*keep + float64(c.blind)
	if p.recent[1] > 20_000 && p.recent[1] > p.recent[0] {
		p.strange++
	} else if c.sent > 0 {
		p.strange = 0
	}
	return p.strange > aside
}

// verdicts tells those that have reported, at once what is new, else now and then.
func (m *Meter) verdicts(now time.Duration, news bool, out []Message) []Message {
	var data []byte
	for _, id := range m.order {
		t := m.mates[id]
		if t != nil && now > t.heard+awake {
			delete(m.mates, id)
			continue
		}
		if t == nil || id == m.cfg.Self || !news && now < t.told+repeat {
			continue
		}
		if data == nil {
			msg := told{at: now}
			for _, x := range m.Explain(now) {
				msg.pools = append(msg.pools, poolTold{name: poolName(x.To), pace: x.Rate, found: x.Found, age: x.Age})
			}
			data = msg.appendVerdict(nil)
		}
		t.told = now
		out = append(out, Message{To: id, Data: data})
	}
	return out
}
