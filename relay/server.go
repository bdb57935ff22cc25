package relay

import (
	"bytes"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/netip"
	"sync"
	"time"

	"github.com/meshmpi/meshmpi/internal/wire"
	"github.com/meshmpi/meshmpi/mesh/peer"
)

// defaultMaxBindings is beyond the largest network this design is meant for.
const defaultMaxBindings = 16 << 10

// sweepEvery is how often admissions clear out expired grants.
const sweepEvery = time.Minute

// ServerConfig says how a relay runs. Only Send is required.
type ServerConfig struct {
	// Name is the relay's node name, which grants carry.
	Name string
	// Send sends up to 128 datagrams to one address. It retains nothing, does
	// not block, and may write behind a datagram up to its capacity.
	Send func(pkts [][]byte, to netip.AddrPort) error
	// Now is the clock; nil means time.Now.
	Now func() time.Time
	// MaxBindings bounds the nodes admitted at one time; 0 means 16384.
	MaxBindings int
	// Log hears of bindings; nil is silent.
	Log *slog.Logger
}

// Server forwards packets between the nodes that are bound to it. It has no
// goroutines; its methods are safe for concurrent use.
type Server struct {
	name  string
	send  func(pkts [][]byte, to netip.AddrPort) error
	now   func() time.Time
	max   int
	log   *slog.Logger
	count serverCounters

	mu      sync.RWMutex
	members map[peer.Short]*member
	byAddr  map[netip.AddrPort]*member // of those with an address
	swept   time.Time
}

// NewServer returns a relay that nobody is admitted to. It panics without a
// Send.
func NewServer(cfg ServerConfig) *Server {
	if cfg.Send == nil {
		panic("relay: ServerConfig.Send is nil")
	}
	s := &Server{
		name:    cfg.Name,
		send:    cfg.Send,
		now:     cfg.Now,
		max:     cfg.MaxBindings,
		log:     logger(cfg.Log),
		members: make(map[peer.Short]*member),
		byAddr:  make(map[netip.AddrPort]*member),
	}
	if s.now == nil {
		s.now = time.Now
	}
	if s.max <= 0 {
		s.max = defaultMaxBindings
	}
	return s
}

// Admit lets a node bind until the given time and returns a Grant for it in JSON,
// with a fresh key unless nobody has used the last one. A live binding goes on: the
// key it uses stays good until the node binds with the new one, for Grace at most.
func (s *Server) Admit(id peer.ID, until time.Time) (json.RawMessage, error) {
	now := s.now()
	if !now.Before(until) {
		return nil, fmt.Errorf("relay: %s cannot admit %s: the grant ended at %s; check the clocks of both nodes", s.name, id, until.Format(time.RFC3339))
	}
	g := Grant{Relay: s.name, Short: id.Short(), Expires: until}
	rand.Read(g.Key[:]) // never fails, see crypto/rand

	s.mu.Lock()
	defer s.mu.Unlock()
	m := s.members[g.Short]
	switch {
	case m != nil && m.id != id:
		return nil, fmt.Errorf("relay: %s cannot admit %s: its short name is that of %s; join one of them again with new keys", s.name, id, m.id)
	case m == nil:
		if s.sweep(now); len(s.members) >= s.max {
			return nil, fmt.Errorf("relay: %s cannot admit %s: it serves %d nodes, its limit; use another relay", s.name, id, s.max)
		}
		m = &member{id: id, short: g.Short}
		s.members[g.Short] = m
	}
	g.Key = m.admit(g.Key, now, until)
	doc, err := json.Marshal(g)
	if err != nil {
		return nil, fmt.Errorf("relay: encode grant for %s: %w", id, err)
	}
	return doc, nil
}

// Revoke takes a node's grant and binding away at once, both as a sender and as
// a destination. Only packets that are being sent at this moment still leave.
func (s *Server) Revoke(id peer.ID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if m := s.members[id.Short()]; m != nil && m.id == id {
		s.remove(m)
	}
}

// Input takes a batch of datagrams of the types bind and send from one source.
// They are borrowed until it returns and rewritten in place; it neither blocks
// nor allocates. Neighbours to one destination leave in one Send, in order.
func (s *Server) Input(pkts [][]byte, from netip.AddrPort) {
	now := s.now()
	from = unmap(from)
	for len(pkts) > 0 {
		n := 1
		switch {
		case mayForward(pkts[0]):
			n = runLength(pkts)
			s.forward(pkts[:n], from, now)
		case isRelay(pkts[0], wire.TypeRelayBind):
			s.bind(pkts[:1], from, now)
		default:
			s.count.drop(causeMalformed, 1)
		}
		pkts = pkts[n:]
	}
}

// Stats returns what the relay did so far.
func (s *Server) Stats() ServerStats {
	st := s.count.read()
	now := s.now()
	s.mu.RLock()
	defer s.mu.RUnlock()
	for _, m := range s.members {
		if now.Before(m.key.expires) {
			st.Grants++
		}
		if m.bound(now) {
			st.Bindings++
		}
	}
	return st
}

// runLength counts the leading packets that go to the destination of the first,
// which may be forwarded.
func runLength(pkts [][]byte) int {
	header := pkts[0][:wire.RelayHeaderLen]
	n := 1
	for n < len(pkts) && n < batchSize && mayForward(pkts[n]) && bytes.Equal(pkts[n][:wire.RelayHeaderLen], header) {
		n++
	}
	return n
}

// forward rewrites a run of sends to one destination and passes it on.
func (s *Server) forward(run [][]byte, from netip.AddrPort, now time.Time) {
	r, why := s.route(from, peer.Short(run[0][shortAt:]), now)
	if why != causeNone {
		s.count.drop(why, len(run))
		return
	}
	size := 0
	for _, p := range run {
		putHeader(p, wire.TypeRelayDeliver, r.origin)
		size += len(p)
	}
	if s.send(run, r.to) != nil {
		s.count.drop(causeUnsent, len(run))
		return
	}
	s.count.packets.Add(uint64(len(run)))
	s.count.bytes.Add(uint64(size))
}

// route is where a run goes and what it will say of its origin.
type route struct {
	origin peer.Short
	to     netip.AddrPort
}

// route finds who sends, and where the destination is bound.
func (s *Server) route(from netip.AddrPort, dest peer.Short, now time.Time) (route, cause) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	src := s.byAddr[from]
	if src == nil || !src.bound(now) {
		return route{}, causeUnbound
	}
	dst := s.members[dest]
	if dst == nil || !dst.bound(now) {
		return route{}, causeAbsent
	}
	if dst == src {
		return route{}, causeRefused
	}
	return route{src.short, dst.addr}, causeNone
}
