package dns

import (
	"bytes"
	"context"
	"encoding/binary"
	"net/netip"
	"slices"
	"sync"
	"time"

	miekgdns "github.com/miekg/dns"
)

// Limits of forwarding.
const (
	maxInFlight  = 512                         // questions being forwarded at a time
	maxSame      = 64                          // of them, asking the same thing in different octets
	maxUpstreams = 4                           // asked for one question
	tryTimeout   = 2 * time.Second             // of one upstream
	allTimeout   = 4500 * time.Millisecond     // of one question: below the 5 s after which clients ask again
	ailingFor    = 15 * time.Second            // an upstream that timed out is asked last for so long
	rcodeBusy    = miekgdns.RcodeServerFailure // makes the client ask its next server at once
)

// A forwarder passes questions to the upstreams, in order. The questions and
// answers travel as they are but for the ID, which is random on the way out, as
// is the source port (RFC 5452).
//
// Identical questions share one exchange: when a job starts, all ranks of a
// host ask for the same name. This also breaks loops through other forwarders
// on the host that have us as their upstream: a question that comes back as it
// was waits for itself and times out; one that comes back altered is cut off
// after maxSame rounds. These are no fewer because ranks whose questions carry
// cookies, of each process its own (RFC 7873), cannot share an exchange either.
type forwarder struct {
	upstreams func() []netip.AddrPort
	ours      func(netip.AddrPort) bool
	now       func() time.Time
	count     *counters
	slots     chan struct{} // a slot for each question; size maxInFlight

	mu      sync.Mutex
	flights map[string]*flight           // by the question's octets after the ID
	asking  map[miekgdns.Question]int    // flights, by what they ask for
	ailing  map[netip.AddrPort]time.Time // until when to ask it last
}

// A flight is one exchange that several clients may wait for.
type flight struct {
	done   chan struct{} // closed when answer is set
	answer []byte        // nil: none
}

func newForwarder(upstreams func() []netip.AddrPort, ours func(netip.AddrPort) bool, now func() time.Time, count *counters) *forwarder {
	return &forwarder{
		upstreams: upstreams, ours: ours, now: now, count: count,
		slots:   make(chan struct{}, maxInFlight),
		flights: make(map[string]*flight),
		asking:  make(map[miekgdns.Question]int),
		ailing:  make(map[netip.AddrPort]time.Time),
	}
}

// enter takes a slot; leave gives it back.
func (f *forwarder) enter() bool {
	select {
	case f.slots <- struct{}{}:
		return true
	default:
		f.count.dropped.Add(1)
		return false
	}
}

func (f *forwarder) leave() { <-f.slots }

// forward answers q with what an upstream says, or SERVFAIL.
func (s *Server) forward(ctx context.Context, q *query) []byte {
	answer := s.fwd.ask(ctx, q)
	switch {
	case ctx.Err() != nil:
		return nil
	case answer == nil:
		s.count.failed.Add(1)
		m := s.reply(q)
		m.RecursionAvailable = true
		m.Rcode = miekgdns.RcodeServerFailure
		return s.pack(m, q)
	case len(answer) > q.limit: // an upstream that ignores the client's size
		s.count.truncated.Add(1)
		m := s.reply(q)
		m.RecursionAvailable, m.Truncated = true, true
		return s.pack(m, q)
	}
	answer = slices.Clone(answer) // others wait for it too, with other IDs
	copy(answer, q.raw[:2])
	return answer
}

// ask joins the exchange for q's octets or makes it. The answer is shared.
func (f *forwarder) ask(ctx context.Context, q *query) []byte {
	how := byte('u')
	if q.tcp {
		how = 't'
	}
	key := string(append(q.raw[2:len(q.raw):len(q.raw)], how))
	same := q.msg.Question[0]
	same.Name = miekgdns.CanonicalName(same.Name)

	f.mu.Lock()
	if fl, ok := f.flights[key]; ok {
		f.mu.Unlock()
		f.count.joined.Add(1)
		select {
		case <-fl.done:
			return fl.answer
		case <-ctx.Done():
			return nil
		}
	}
	if f.asking[same] >= maxSame {
		f.mu.Unlock()
		f.count.looped.Add(1)
		return nil
	}
	fl := &flight{done: make(chan struct{})}
	f.flights[key] = fl
	f.asking[same]++
	f.mu.Unlock()

	f.count.forwarded.Add(1)
	fl.answer = f.exchange(ctx, q)

	f.mu.Lock()
	delete(f.flights, key)
	if f.asking[same]--; f.asking[same] == 0 {
		delete(f.asking, same)
	}
	f.mu.Unlock()
	close(fl.done)
	return fl.answer
}

// exchange asks the upstreams one after another until one answers. A code that
// only says that this server could not help counts as none, but is kept in
// case that nobody does better. Who is left less than a whole try by those
// before, and fails, is not held to be ailing: it may well answer when it is the
// first to be asked.
func (f *forwarder) exchange(ctx context.Context, q *query) []byte {
	ctx, cancel := context.WithTimeout(ctx, allTimeout)
	defer cancel()
	deadline, _ := ctx.Deadline()
	var kept []byte
	for _, up := range f.order() {
		whole := time.Until(deadline) >= tryTimeout
		answer, err := askUpstream(ctx, up, q)
		if whole || err == nil {
			f.mark(up, err)
		}
		if err != nil {
			if ctx.Err() != nil {
				break
			}
			continue
		}
		switch int(answer[3] & 0x0f) {
		case miekgdns.RcodeServerFailure, miekgdns.RcodeRefused, miekgdns.RcodeNotImplemented:
			if kept == nil {
				kept = answer
			}
			continue
		}
		return answer
	}
	return kept
}

// order lists the upstreams to ask: as configured, without ourselves, those
// that timed out lately last.
func (f *forwarder) order() []netip.AddrPort {
	var well, ill []netip.AddrPort
	now := f.now()
	all := f.upstreams()
	f.mu.Lock()
	defer f.mu.Unlock()
	for up := range f.ailing {
		if !slices.Contains(all, up) {
			delete(f.ailing, up)
		}
	}
	for _, up := range all {
		switch {
		case !up.IsValid() || up.Port() == 0 || f.ours(up), slices.Contains(well, up), slices.Contains(ill, up):
		case now.Before(f.ailing[up]):
			ill = append(ill, up)
		default:
			well = append(well, up)
		}
	}
	list := append(well, ill...)
	return list[:min(len(list), maxUpstreams)]
}

// mark remembers whether an upstream answered.
func (f *forwarder) mark(up netip.AddrPort, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err != nil {
		f.ailing[up] = f.now().Add(ailingFor)
	} else {
		delete(f.ailing, up)
	}
}

// answers reports whether raw answers the question asked: same ID, and the
// same question but for letter case, which the client checks if it cares.
func answers(raw, asked []byte) bool {
	if len(raw) < headerLen || raw[2]&bitQR == 0 || !bytes.Equal(raw[:2], asked[:2]) {
		return false
	}
	switch binary.BigEndian.Uint16(raw[4:]) {
	case 0: // some servers leave the question out of errors
		return raw[3]&0x0f != miekgdns.RcodeSuccess
	case 1:
	default:
		return false
	}
	end := questionEnd(asked)
	return end > 0 && len(raw) >= end && bytes.EqualFold(raw[headerLen:end], asked[headerLen:end])
}

// questionEnd returns the offset behind the first question of raw, whose name
// is not compressed, or 0.
func questionEnd(raw []byte) int {
	for off := headerLen; off < len(raw); {
		n := int(raw[off])
		switch {
		case n == 0 && off+5 <= len(raw):
			return off + 5
		case n == 0 || n > 63:
			return 0
		}
		off += 1 + n
	}
	return 0
}
