package ice

import (
	"net"
	"net/netip"
	"sync"
	"time"

	pionice "github.com/pion/ice/v2"
)

const (
	// queueLen is a datagram from each of a full set of candidates, twice.
	queueLen = 128
	// maxRemotes bounds the addresses an attempt hears from or checks.
	maxRemotes = 96
	// maxPending bounds the transactions an attempt has under way: at most
	// seconds' worth of checks, after which pion has forgotten them too.
	maxPending = 512
	// After quickChecks an address that stays silent is checked at slowCheck.
	quickChecks = 20
	slowCheck   = 180 * time.Millisecond
)

// shares is an attempt's part of the shared socket, as pion wants to see it: a
// mux that offers one connection a family. One local candidate a family is
// enough, since all of our addresses send through the same socket (RFC 8445
// §6.1.2.4 would prune the others), whatever number the peer is told.
type shares struct {
	x     *ICE
	local []net.Addr // at most one a family
	conns [2]*conn   // by family

	mu      sync.Mutex
	live    bool // the attempt can still get responses
	remotes map[netip.AddrPort]*pace
	pending [maxPending]txID // a ring
	next    int              // in pending
}

// pace is how often an address was checked.
type pace struct {
	checks int
	last   time.Time
}

var _ pionice.UDPMux = (*shares)(nil)

// newShares makes the connections for the families of our host candidates.
func newShares(x *ICE, hosts []netip.AddrPort) *shares {
	s := &shares{x: x, live: true, remotes: make(map[netip.AddrPort]*pace)}
	for _, h := range hosts {
		if f := family(h.Addr()); s.conns[f] == nil {
			a := net.UDPAddrFromAddrPort(h)
			s.conns[f] = &conn{s: s, local: a, queue: make(chan datagram, queueLen), closed: make(chan struct{})}
			s.local = append(s.local, a)
		}
	}
	return s
}

// GetListenAddresses implements pionice.UDPMux.
func (s *shares) GetListenAddresses() []net.Addr { return s.local }

// GetConn implements pionice.UDPMux. There is one agent, so the fragment says nothing.
func (s *shares) GetConn(_ string, addr net.Addr) (net.PacketConn, error) {
	u, ok := addr.(*net.UDPAddr)
	if !ok {
		return nil, net.ErrClosed
	}
	c := s.conns[family(u.AddrPort().Addr().Unmap())]
	if c == nil {
		return nil, net.ErrClosed
	}
	return c, nil
}

// RemoveConnByUfrag implements pionice.UDPMux. The agent closes its
// connections, and the attempt those it never took.
func (s *shares) RemoveConnByUfrag(string) {}

// Close implements pionice.UDPMux. It forgets the transactions under way.
func (s *shares) Close() error {
	s.mu.Lock()
	s.live = false
	s.mu.Unlock()
	s.x.unexpect(s.pending[:]...) // not touched any more
	for _, c := range s.conns {
		if c != nil {
			_ = c.Close()
		}
	}
	return nil
}

// receive queues a datagram for pion. Neither blocks nor retains pkt. What comes
// from addresses that could be no candidates would make candidates of them.
func (s *shares) receive(pkt []byte, from netip.AddrPort) {
	c := s.conns[family(from.Addr())]
	if c == nil || !usable(from.Addr()) {
		s.x.n.unclaimed.Add(1)
		return
	}
	s.mu.Lock()
	known := s.know(from) != nil
	s.mu.Unlock()
	if !known {
		s.x.n.queueFull.Add(1)
		return
	}
	select {
	case c.queue <- datagram{append([]byte(nil), pkt...), net.UDPAddrFromAddrPort(from)}:
	default:
		s.x.n.queueFull.Add(1)
	}
}

// know returns the pace of a remote address, nil where there are too many. The
// caller holds s.mu.
func (s *shares) know(remote netip.AddrPort) *pace {
	p := s.remotes[remote]
	if p == nil && len(s.remotes) < maxRemotes {
		p = new(pace)
		s.remotes[remote] = p
	}
	return p
}

// admit decides whether a request may be sent, and if so makes sure that its
// response will find the way back.
func (s *shares) admit(m *stunMessage, to netip.AddrPort, now time.Time, r responder) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.know(to)
	if !s.live || p == nil {
		return false
	}
	if !m.useCandidate && p.checks >= quickChecks && now.Sub(p.last) < slowCheck {
		return false
	}
	p.checks++
	p.last = now
	s.x.unexpect(s.pending[s.next])
	s.pending[s.next] = m.tx
	s.next = (s.next + 1) % maxPending
	s.x.expect(m.tx, r)
	return true
}

// checked counts the addresses that were checked at least once.
func (s *shares) checked() (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range s.remotes {
		if p.checks > 0 {
			n++
		}
	}
	return n
}

type datagram struct {
	pkt  []byte
	from *net.UDPAddr
}

// conn is the net.PacketConn of one family. Its deadlines do nothing: pion sets
// one only to end a read that Close ends anyway.
type conn struct {
	s     *shares
	local net.Addr
	queue chan datagram

	once   sync.Once
	closed chan struct{}
}

var _ net.PacketConn = (*conn)(nil)

// ReadFrom implements net.PacketConn.
func (c *conn) ReadFrom(b []byte) (int, net.Addr, error) {
	select {
	case d := <-c.queue:
		return copy(b, d.pkt), d.from, nil
	case <-c.closed:
		return 0, nil, net.ErrClosed
	}
}

// WriteTo implements net.PacketConn. Checks that are not sent now count as
// sent: to pion it looks like loss.
func (c *conn) WriteTo(b []byte, addr net.Addr) (int, error) {
	u, ok := addr.(*net.UDPAddr)
	if !ok {
		return 0, net.ErrClosed
	}
	to := unmap(u.AddrPort())
	m, ok := parseSTUN(b)
	if !ok || m.kind == kindRequest && !c.s.admit(&m, to, time.Now(), c) {
		c.s.x.n.thinned.Add(1)
		return len(b), nil
	}
	if err := c.s.x.cfg.Send(b, to); err != nil {
		c.s.x.n.sendErrors.Add(1)
		return 0, err
	}
	return len(b), nil
}

// response implements responder.
func (c *conn) response(pkt []byte, _ *stunMessage, from netip.AddrPort) { c.s.receive(pkt, from) }

// Close implements net.PacketConn.
func (c *conn) Close() error {
	c.once.Do(func() { close(c.closed) })
	return nil
}

// LocalAddr implements net.PacketConn.
func (c *conn) LocalAddr() net.Addr { return c.local }

// SetDeadline implements net.PacketConn.
func (c *conn) SetDeadline(time.Time) error { return nil }

// SetReadDeadline implements net.PacketConn.
func (c *conn) SetReadDeadline(time.Time) error { return nil }

// SetWriteDeadline implements net.PacketConn.
func (c *conn) SetWriteDeadline(time.Time) error { return nil }
