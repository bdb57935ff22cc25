package relay

import (
	"context"
	"log/slog"
	"net/netip"
	"time"

	"github.com/meshmpi/meshmpi/mesh/peer"
)

// key is one grant's key. Counters belong to it, so that a node whose clock was
// set back is cured by a new grant.
type key struct {
	secret  [32]byte
	mac     *mac
	counter uint64 // of the last bind; 0 while unused
	expires time.Time
}

// member is an admitted node and its binding. The server's mutex guards it.
type member struct {
	id    peer.ID
	short peer.Short // of id, so that no packet costs a hash
	key   *key       // of the last grant
	old   *key       // the key in use before it, or nil
	grace time.Time  // when old ends

	addr  netip.AddrPort // zero while unbound
	until time.Time      // when the binding ends without another bind
}

// bound reports whether packets may be taken from and sent to m.
func (m *member) bound(now time.Time) bool {
	return m.addr.IsValid() && now.Before(m.until)
}

// admit returns the secret of m's next key: secret, or that of the grant before, if
// nobody has bound with it yet. Of two grants that are made one after the other the
// first may be the last to arrive. The key in use is kept for a while, since the new
// grant may not arrive at all.
func (m *member) admit(secret [32]byte, now, until time.Time) [32]byte {
	if m.key != nil && m.key.counter == 0 {
		secret = m.key.secret
	} else {
		m.old = m.key
	}
	m.key = &key{secret: secret, mac: newMAC(&secret), expires: until}
	if m.old != nil {
		m.old.expires = earlier(m.old.expires, until)
	}
	m.grace = now.Add(Grace)
	m.until = earlier(m.until, until)
	return secret
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

// authenticate finds the key that sealed the bind f in raw and moves its counter.
func (m *member) authenticate(f bind, raw []byte, now time.Time) (*key, cause) {
	why := causeExpired
	for _, k := range [...]*key{m.key, m.old} {
		switch {
		case k == nil || !now.Before(k.expires) || k == m.old && !now.Before(m.grace):
			continue
		case f.counter <= k.counter:
			why = causeReplayed
			continue
		case !k.mac.valid(raw):
			why = causeForged
			continue
		}
		k.counter = f.counter
		if k == m.key {
			m.old = nil // from now on a delayed bind under it would be a step back
		}
		return k, causeNone
	}
	return nil, why
}

// bind handles the bind pkts[0]: it moves the binding and answers in the same
// buffer, or drops it in silence.
func (s *Server) bind(pkts [][]byte, from netip.AddrPort, now time.Time) {
	f, ok := parseBind(pkts[0])
	if !ok || !from.IsValid() || from.Port() == 0 {
		s.count.drop(causeMalformed, 1)
		return
	}
	id, moved, why := s.accept(f, pkts[0], from, now)
	if why != causeNone {
		s.count.drop(why, 1)
		return
	}
	s.count.binds.Add(1)
	if moved && s.log.Enabled(context.Background(), slog.LevelDebug) {
		s.log.Debug("relay binding moved", "node", id, "addr", from)
	}
	if f.flags&flagLeave != 0 {
		return
	}
	if s.send(pkts, from) != nil {
		s.count.drop(causeUnsent, 1)
	}
}

// accept authenticates a bind, applies it, and turns raw into the sealed answer.
func (s *Server) accept(f bind, raw []byte, from netip.AddrPort, now time.Time) (id peer.ID, moved bool, why cause) {
	s.mu.Lock()
	defer s.mu.Unlock()
	m := s.members[f.short]
	if m == nil {
		return id, false, causeUnknown
	}
	k, why := m.authenticate(f, raw, now)
	if why != causeNone {
		return id, false, why
	}
	if f.flags&flagLeave != 0 {
		s.unbind(m)
		return m.id, false, causeNone
	}
	moved = m.addr != from
	s.place(m, from)
	m.until = earlier(now.Add(BindingLife), k.expires)
	putBound(raw, from)
	k.mac.seal(raw)
	return m.id, moved, causeNone
}

// place puts m at an address. Whoever was there before is unbound: a NAT gave
// the port away.
func (s *Server) place(m *member, addr netip.AddrPort) {
	if m.addr == addr {
		return
	}
	s.unbind(m)
	if other := s.byAddr[addr]; other != nil {
		s.unbind(other)
	}
	m.addr = addr
	s.byAddr[addr] = m
}

func (s *Server) unbind(m *member) {
	if m.addr.IsValid() {
		delete(s.byAddr, m.addr)
		m.addr = netip.AddrPort{}
	}
}

func (s *Server) remove(m *member) {
	s.unbind(m)
	delete(s.members, m.short)
}

// sweep removes members whose grants have expired, when it is time or there is
// no room.
func (s *Server) sweep(now time.Time) {
	if len(s.members) < s.max && now.Sub(s.swept) < sweepEvery {
		return
	}
	s.swept = now
	for _, m := range s.members {
		if !now.Before(m.key.expires) {
			s.remove(m)
		}
	}
}
