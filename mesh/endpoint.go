package mesh

import (
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/meshmpi/meshmpi/internal/wire"
	"github.com/meshmpi/meshmpi/mesh/peer"
	"github.com/meshmpi/meshmpi/mesh/udp"
	"golang.org/x/time/rate"
	wgconn "golang.zx2c4.com/wireguard/conn"
)

// Endpoint is what wireguard-go keeps of a peer: one object for the peer's
// whole life, whose path changes beneath it. So no change of path touches the
// session, and no datagram from elsewhere moves the endpoint.
type Endpoint struct {
	id   peer.ID
	ip   netip.Addr // the peer's virtual IPv6 address: unique and stable
	path atomic.Pointer[peer.Path]
	fate atomic.Uint32 // of what is sent
	flow peer.Flow     // paces what is sent; nil: nothing does

	txPackets atomic.Uint64
	txBytes   atomic.Uint64
	rxWire    atomic.Int64  // on the wire, as txWire counts; counted where packets are paced
	rtt       atomic.Int64  // of the path, ns; 0: not measured
	noPath    atomic.Uint64 // packets dropped for want of a path

	stuck stuck // TCP's segments whose fate was not fine

	mu   sync.Mutex // guards held
	held [][]byte   // waiting for a path
	last time.Time  // when the latest was held
}

// A session may be ready a moment before the path is: the peer's address has
// yet to prove itself. A few packets wait, lest TCP wait a second for them.
const (
	maxHeld = 32
	heldFor = time.Second
)

var _ wgconn.Endpoint = (*Endpoint)(nil)

func (e *Endpoint) send(bufs [][]byte) {
	if e.flow != nil {
		e.flow.Send(bufs)
		return
	}
	e.transmit(bufs)
}

// transmit sends now.
func (e *Endpoint) transmit(bufs [][]byte) {
	p := e.path.Load()
	if p == nil {
		if p = e.hold(time.Now(), bufs); p == nil {
			return
		}
	}
	e.sendBy(*p, bufs)
}

// sendBy sends by a path, and counts. What cannot be sent is lost, as datagrams may be;
// the path counts it.
func (e *Endpoint) sendBy(p peer.Path, bufs [][]byte) {
	n := 0
	for _, b := range bufs {
		n += len(b)
	}
	e.txPackets.Add(uint64(len(bufs)))
	e.txBytes.Add(uint64(n))
	_ = p.Send(bufs)
}

// hold keeps packets until there is a path, or returns the path if there is one now.
func (e *Endpoint) hold(now time.Time, bufs [][]byte) *peer.Path {
	e.mu.Lock()
	defer e.mu.Unlock()
	if p := e.path.Load(); p != nil {
		return p
	}
	if now.Sub(e.last) > heldFor {
		e.noPath.Add(uint64(len(e.held)))
		e.held = nil
	}
	for _, b := range bufs {
		if len(e.held) == maxHeld {
			e.noPath.Add(1)
			continue
		}
		e.held, e.last = append(e.held, append([]byte(nil), b...)), now
	}
	return nil
}

// txWire is how many bytes have left: sealed, with the headers of IPv4, whatever the
// path, so that the other end comes to the same.
func (e *Endpoint) txWire() int64 {
	return int64(e.txBytes.Load() + peer.OverheadIPv4*e.txPackets.Load())
}

// wireSize is what a packet of n bytes that has arrived took on the wire, as txWire
// counts at the other end, whose TUN has the same MTU as here.
func wireSize(n, mtu int) int64 {
	return int64(max(n, min((n+15)&^15, mtu)) + peer.Sealing + peer.OverheadIPv4)
}

// use sets the path, nil for none, and sends by it what was held.
func (e *Endpoint) use(now time.Time, p *peer.Path) {
	e.path.Store(p)
	if p == nil {
		return
	}
	if e.flow != nil {
		e.flow.SetOverhead(overhead((*p).Info()))
	}
	e.mu.Lock()
	held, last := e.held, e.last
	e.held = nil
	e.mu.Unlock()
	if len(held) > 0 && now.Sub(last) <= heldFor {
		e.sendBy(*p, held)
	} else {
		e.noPath.Add(uint64(len(held)))
	}
}

// overhead is what a datagram takes on the wire beyond what is sealed in it, on a path.
func overhead(i peer.PathInfo) int {
	n := peer.OverheadIPv4
	if a := i.Remote.Addr(); a.Is6() && !a.Is4In6() {
		n = peer.OverheadIPv6
	}
	if i.Kind == peer.KindRelayUDP {
		n += wire.RelayHeaderLen
	}
	return n
}

// ClearSrc implements conn.Endpoint; paths have no cached source address.
func (e *Endpoint) ClearSrc() {}

// SrcToString implements conn.Endpoint.
func (e *Endpoint) SrcToString() string { return "" }

// DstToString implements conn.Endpoint.
func (e *Endpoint) DstToString() string { return e.id.String() }

// DstToBytes implements conn.Endpoint.
func (e *Endpoint) DstToBytes() []byte { return e.id[:] }

// DstIP implements conn.Endpoint.
func (e *Endpoint) DstIP() netip.Addr { return e.ip }

// SrcIP implements conn.Endpoint.
func (e *Endpoint) SrcIP() netip.Addr { return netip.Addr{} }

// source is whence a datagram came: an address, or a peer behind a relay.
// WireGuard uses it for cookies and rate limits only, because its peers'
// endpoints do not roam.
type source struct {
	via   via
	short peer.Short // of the sender, when it came through a relay
	back  peer.Path  // the way back, when it came through a relay
	rx    atomic.Uint64
	key   any         // in Bind.sources; nil when not registered
	stale atomic.Bool // no longer registered

	budget *rate.Limiter // of initiations; nil when not registered
}

// allow reports whether an initiation from here has a budget of its own: a peer
// has proved to be here.
func (s *source) allow() bool { return s.budget != nil && !s.stale.Load() && s.budget.Allow() }

var _ wgconn.Endpoint = (*source)(nil)

func (s *source) send(pair *udp.Pair, bufs [][]byte) error {
	if s.via.relay == "" {
		return pair.Send(bufs, s.via.addr)
	}
	if s.back == nil {
		return nil // a stranger behind a relay gets no cookie; its binding limits it
	}
	return s.back.Send(bufs)
}

// ClearSrc implements conn.Endpoint.
func (s *source) ClearSrc() {}

// SrcToString implements conn.Endpoint.
func (s *source) SrcToString() string { return "" }

// DstToString implements conn.Endpoint.
func (s *source) DstToString() string {
	if s.via.relay != "" {
		return "relay " + s.via.relay
	}
	return s.via.addr.String()
}

// DstToBytes implements conn.Endpoint.
func (s *source) DstToBytes() []byte {
	if s.via.relay != "" {
		return s.short[:]
	}
	b, _ := s.via.addr.MarshalBinary() // cannot fail for an AddrPort
	return b
}

// DstIP implements conn.Endpoint. What comes through a relay is counted by its
// sender: an address of the discard prefix (RFC 6666) stands for it.
func (s *source) DstIP() netip.Addr {
	if s.via.relay == "" {
		return s.via.addr.Addr()
	}
	a := [16]byte{0: 0x01}
	copy(a[8:], s.short[:])
	return netip.AddrFrom16(a)
}

// SrcIP implements conn.Endpoint.
func (s *source) SrcIP() netip.Addr { return netip.Addr{} }

// direct is a path straight to an address.
type direct struct {
	pair *udp.Pair
	addr netip.AddrPort
}

var _ peer.Path = (*direct)(nil)

// Send implements peer.Path.
func (d *direct) Send(pkts [][]byte) error { return d.pair.Send(pkts, d.addr) }

// Info implements peer.Path; what probes measure is added by the mesh.
func (d *direct) Info() peer.PathInfo {
	return peer.PathInfo{Kind: peer.KindUDP, Remote: d.addr}
}

// Close implements peer.Path; the socket is shared and stays.
func (d *direct) Close() error { return nil }
