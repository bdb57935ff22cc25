package shaper

import (
	"time"

	"github.com/meshmpi/meshmpi/mesh/peer"
)

// LinkStats is a snapshot of a link. Counters go up since the link was made.
type LinkStats struct {
	Site    string
	Rate    Rate   // the link's own limit, 0 for none
	Uplink  Rate   // of the node, 0 for none
	Waiting int    // bytes that wait before encryption
	Flying  int    // bytes released to be encrypted and not yet sent
	Queued  int    // bytes that wait for their time after encryption
	Healed  uint64 // how often released packets were given up as lost
	Given   uint64 // bytes; see Link.Give
	Taken   uint64 // bytes; see Link.Accept
	Flows   []FlowStats
	Gone    FlowStats // sums of the counters of flows that have been closed
}

// FlowStats is a snapshot of a flow. Nothing is counted while its link has no limit.
type FlowStats struct {
	Peer    peer.ID
	Waiting int // packets that wait before encryption
	Queued  int // datagrams that wait after encryption

	Sent      uint64 // datagrams
	SentBytes uint64 // on the wire
	Marked    uint64 // packets that were told of congestion
	Dropped   uint64 // packets and datagrams

	WorstWait  time.Duration // longest wait before encryption in the last 10 to 20 s
	WorstQueue time.Duration // the same after encryption
}

func (s *FlowStats) add(o FlowStats) {
	s.Sent += o.Sent
	s.SentBytes += o.SentBytes
	s.Marked += o.Marked
	s.Dropped += o.Dropped
}

// Stats returns what there is to say of all links and flows.
func (s *Shaper) Stats() []LinkStats {
	s.mu.lock()
	defer s.mu.unlock()
	now := s.clock.now()
	all := make([]LinkStats, 0, len(s.m.links))
	for _, l := range s.m.links {
		all = append(all, l.stats(now, s.m.uplink.rate))
	}
	return all
}

func (l *Link) stats(now int64, uplink Rate) LinkStats {
	st := LinkStats{
		Site: l.site, Rate: l.down.rate, Uplink: uplink,
		Waiting: l.wait.bytes, Flying: max(l.released-l.out.bytes, 0), Queued: l.out.bytes + l.urgent.bytes,
		Healed: l.healed, Given: l.given, Taken: l.taken, Gone: l.gone,
		Flows: make([]FlowStats, 0, len(l.flows)),
	}
	for _, f := range l.flows {
		fs := f.stats
		fs.Peer = f.id
		fs.Waiting, fs.Queued = f.wait.packets, f.out.packets+f.urgent.packets
		fs.WorstWait, fs.WorstQueue = f.worst[0].last(now), f.worst[1].last(now)
		st.Flows = append(st.Flows, fs)
	}
	return st
}

// worst keeps the longest of the waits of the last 10 to 20 s.
type worst struct {
	since       int64
	now, before int64
}

const worstFor = int64(10 * time.Second)

func (w *worst) note(now, wait int64) {
	w.turn(now)
	w.now = max(w.now, wait)
}

func (w *worst) turn(now int64) {
	switch age := now - w.since; {
	case age >= 2*worstFor:
		w.now, w.before, w.since = 0, 0, now
	case age >= worstFor:
		w.now, w.before, w.since = 0, w.now, now
	}
}

func (w *worst) last(now int64) time.Duration {
	w.turn(now)
	return time.Duration(max(w.now, w.before))
}
