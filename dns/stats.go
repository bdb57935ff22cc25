package dns

import "sync/atomic"

// Stats counts what the server did since New. Every question that was read is
// in Queries; the others say what became of it.
type Stats struct {
	Queries   uint64 // datagrams and stream messages read
	Answered  uint64 // from the overlay's zones, whatever the answer
	Forwarded uint64 // passed to an upstream
	Joined    uint64 // forwarded by sharing an identical question's answer
	Refused   uint64 // not theirs to ask, or a kind of question we do not take
	Malformed uint64 // not DNS questions
	Failed    uint64 // SERVFAIL: no upstream answered
	Dropped   uint64 // SERVFAIL at once: too many questions in flight
	Looped    uint64 // SERVFAIL at once: a question that keeps coming back
	Truncated uint64 // answers cut to the client's size
	TCPClosed uint64 // connections closed because there were too many
	InFlight  int    // questions being forwarded now
}

// counters is Stats while it is being counted.
type counters struct {
	queries, answered, forwarded, joined, refused, malformed atomic.Uint64
	failed, dropped, looped, truncated, tcpClosed            atomic.Uint64
}

// Stats returns the counters; they are read one by one, not at one instant.
func (s *Server) Stats() Stats {
	c := &s.count
	return Stats{
		Queries:   c.queries.Load(),
		Answered:  c.answered.Load(),
		Forwarded: c.forwarded.Load(),
		Joined:    c.joined.Load(),
		Refused:   c.refused.Load(),
		Malformed: c.malformed.Load(),
		Failed:    c.failed.Load(),
		Dropped:   c.dropped.Load(),
		Looped:    c.looped.Load(),
		Truncated: c.truncated.Load(),
		TCPClosed: c.tcpClosed.Load(),
		InFlight:  len(s.fwd.slots),
	}
}
