package mesh

import (
	"encoding/hex"
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/meshmpi/meshmpi/internal/wire"
	"github.com/meshmpi/meshmpi/mesh/peer"
	"github.com/meshmpi/meshmpi/mesh/udp"
	"golang.org/x/time/rate"
	wgconn "golang.zx2c4.com/wireguard/conn"
	"golang.zx2c4.com/wireguard/device"
)

// sink takes what the shared socket receives and WireGuard must not see, or not
// at once, and its handshake messages on their way out. Its methods are called from
// the sockets' readers and WireGuard's workers: they must not block and must not
// keep the bytes, except handshake, probe and initiated, which are given copies.
type sink interface {
	handshake(pkt []byte, from *source)
	answered(pkt []byte, from *source) bool // a handshake response, borrowed: whether WireGuard is to have it now
	probe(pkt []byte, from *source)
	initiated(e *Endpoint, pkt []byte)
	denied(cookie []byte) // WireGuard sends this for a handshake message; borrowed
}

// Bind is wireguard-go's view of the node's one UDP port: it hands WireGuard's
// datagrams up and everything else to whom it belongs, and sends to a peer by
// whatever path the mesh has chosen at that moment.
type Bind struct {
	pair   *udp.Pair
	sink   sink
	pacer  peer.Pacer // nil: nothing is paced
	stun   func(pkt []byte, from netip.AddrPort)
	relay  Forwarder
	log    *slog.Logger
	inject chan injected // handshake messages that the mesh has looked at
	spill  chan injected // those it had no time for; they come after the others

	endpoints sync.Map // hex of peer.ID → *Endpoint
	sources   sync.Map // netip.AddrPort or relaySource → *source
	probeKeys sync.Map // peer.Short → *nodeKey
	relays    atomic.Pointer[map[netip.AddrPort]Relay]

	mu     sync.Mutex // guards opened, closed
	opened bool
	closed chan struct{}

	other atomic.Uint64 // datagrams of no known protocol
}

var _ wgconn.Bind = (*Bind)(nil)

// injected is a datagram on its way to WireGuard by a detour.
type injected struct {
	pkt  []byte
	from *source
}

// relaySource keys the sources map for what comes through a relay.
type relaySource struct {
	relay netip.AddrPort
	from  peer.Short
}

func newBind(pair *udp.Pair) *Bind {
	b := &Bind{
		pair:   pair,
		inject: make(chan injected, 256), // as many first contacts as may wait for WireGuard
		spill:  make(chan injected, 64),  // a flood may be lost
		closed: make(chan struct{}),
		log:    slog.New(slog.DiscardHandler),
	}
	b.relays.Store(&map[netip.AddrPort]Relay{})
	return b
}

// Open implements conn.Bind. The port was opened before; the argument is ignored.
func (b *Bind) Open(uint16) ([]wgconn.ReceiveFunc, uint16, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.opened {
		return nil, 0, wgconn.ErrBindAlreadyOpen
	}
	select {
	case <-b.closed:
		return nil, 0, net.ErrClosed // the port cannot be had again
	default:
	}
	b.opened = true
	fns := []wgconn.ReceiveFunc{b.receiveInjected}
	for _, r := range b.pair.Readers() {
		fns = append(fns, newReceiver(b, r).receive)
	}
	return fns, b.pair.Port(), nil
}

// Close implements conn.Bind. wireguard-go also calls it before Open, when
// there is nothing to close.
func (b *Bind) Close() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.opened {
		return nil
	}
	b.opened = false
	close(b.closed)
	return b.pair.Close()
}

// SetMark implements conn.Bind; the mesh needs no mark.
func (b *Bind) SetMark(uint32) error { return nil }

// BatchSize implements conn.Bind.
func (b *Bind) BatchSize() int { return udp.BatchSize }

// ParseEndpoint implements conn.Bind: the string is the hex form of a node ID.
func (b *Bind) ParseEndpoint(s string) (wgconn.Endpoint, error) {
	if e, ok := b.endpoints.Load(s); ok {
		return e.(*Endpoint), nil
	}
	return nil, errors.New("mesh: no such endpoint")
}

// Send implements conn.Bind. Handshakes go to the mesh, which sends them by
// every path that may work; data goes by the chosen path, or nowhere.
func (b *Bind) Send(bufs [][]byte, ep wgconn.Endpoint) error {
	switch e := ep.(type) {
	case *Endpoint:
		if len(bufs) == 1 && isHandshake(bufs[0]) {
			b.sink.initiated(e, append([]byte(nil), bufs[0]...))
			return nil
		}
		e.send(bufs)
		return nil
	case *source: // nothing but cookies
		for _, pkt := range bufs {
			if len(pkt) == device.MessageCookieReplySize {
				b.sink.denied(pkt)
			}
		}
		return e.send(b.pair, bufs)
	}
	return wgconn.ErrWrongEndpointType
}

func isHandshake(pkt []byte) bool {
	return len(pkt) >= 4 && (pkt[0] == device.MessageInitiationType || pkt[0] == device.MessageResponseType)
}

// receiveInjected is a ReceiveFunc like the sockets'.
func (b *Bind) receiveInjected(bufs [][]byte, sizes []int, eps []wgconn.Endpoint) (int, error) {
	var in injected
	select {
	case in = <-b.inject:
	default:
		select {
		case in = <-b.inject:
		case in = <-b.spill:
		case <-b.closed:
			return 0, net.ErrClosed
		}
	}
	sizes[0], eps[0] = copy(bufs[0], in.pkt), in.from
	return 1, nil
}

// endpoint returns the stable Endpoint of a peer, made on first use. The loop
// calls it.
func (b *Bind) endpoint(n peer.Node) *Endpoint {
	key := hex.EncodeToString(n.ID[:])
	if e, ok := b.endpoints.Load(key); ok {
		return e.(*Endpoint)
	}
	e := &Endpoint{id: n.ID, ip: n.Addr6}
	if b.pacer != nil {
		e.flow = b.pacer.Flow(n, e.transmit)
	}
	b.endpoints.Store(key, e)
	return e
}

func (b *Bind) dropEndpoint(id peer.ID) {
	if e, ok := b.endpoints.LoadAndDelete(hex.EncodeToString(id[:])); ok && e.(*Endpoint).flow != nil {
		e.(*Endpoint).flow.Close()
	}
}

// register makes datagrams of a candidate's source countable and free of
// allocation, until unregister, or until another source takes its place: two
// peers may be seen at one address one after the other.
func (b *Bind) register(key any, s *source) {
	s.key, s.budget = key, rate.NewLimiter(knownRate, knownBurst)
	if old, ok := b.sources.Swap(key, s); ok && old != s {
		old.(*source).stale.Store(true)
	}
}

func (b *Bind) unregister(s *source) {
	s.stale.Store(true)
	b.sources.CompareAndDelete(s.key, s)
}

// receiver reads one family's socket.
type receiver struct {
	b     *Bind
	r     *udp.Reader
	from  []netip.AddrPort
	run   [][]byte // relay frames of one sender, in order
	last  *source
	relay struct {
		key  relaySource
		last *source
	}
}

// readAgain is how long a reader waits whose socket has an error. WireGuard would give
// the reader up, and the node would be deaf; but errors pass.
const readAgain = 100 * time.Millisecond

func newReceiver(b *Bind, r *udp.Reader) *receiver {
	return &receiver{b: b, r: r, from: make([]netip.AddrPort, udp.BatchSize), run: make([][]byte, 0, udp.BatchSize)}
}

func (r *receiver) receive(bufs [][]byte, sizes []int, eps []wgconn.Endpoint) (int, error) {
	for said := false; ; said = true {
		n, err := r.r.Read(bufs, sizes, r.from)
		if err == nil {
			r.dispatch(bufs[:n], sizes, eps)
			return n, nil
		}
		if errors.Is(err, net.ErrClosed) {
			return 0, err
		}
		if !said {
			r.b.log.Warn("cannot read from the UDP port; trying again", "err", err)
		}
		select {
		case <-r.b.closed:
			return 0, net.ErrClosed
		case <-time.After(readAgain):
		}
	}
}

// dispatch hands each datagram to whom it is for; what is WireGuard's stays in
// bufs with its size and source set, the size of everything else becomes zero.
func (r *receiver) dispatch(bufs [][]byte, sizes []int, eps []wgconn.Endpoint) {
	for i := range bufs {
		pkt, from := bufs[i][:sizes[i]], r.from[i]
		sizes[i] = 0
		switch wire.Classify(pkt) {
		case wire.ClassWireGuard:
			if s := r.source(from); r.toWireGuard(pkt, s) {
				sizes[i], eps[i] = len(pkt), s
			}
		case wire.ClassSTUN:
			if r.b.stun != nil {
				r.b.stun(pkt, from)
			}
		case wire.ClassMesh:
			if inner, s := r.mesh(pkt, from); inner != nil && r.toWireGuard(inner, s) {
				sizes[i], eps[i] = copy(bufs[i], inner), s
			}
		default:
			r.b.other.Add(1)
		}
		if len(r.run) > 0 && (i+1 == len(bufs) || r.from[i+1] != from) {
			r.b.relay.Input(r.run, from)
			r.run = r.run[:0]
		}
	}
}

// toWireGuard reports whether WireGuard is to have pkt now. Initiations take
// the way round by the mesh, which is also asked about responses.
func (r *receiver) toWireGuard(pkt []byte, s *source) bool {
	s.rx.Add(1)
	switch pkt[0] {
	case device.MessageInitiationType:
		r.b.sink.handshake(append([]byte(nil), pkt...), s)
		return false
	case device.MessageResponseType:
		return r.b.sink.answered(pkt, s)
	}
	return true
}

// mesh handles a datagram of our own protocol. It returns the WireGuard
// datagram inside a relayed one, and whence it came.
func (r *receiver) mesh(pkt []byte, from netip.AddrPort) ([]byte, *source) {
	if len(pkt) < 2 {
		return nil, nil
	}
	switch wire.Type(pkt[1]) {
	case wire.TypePing, wire.TypePong:
		s := r.source(from)
		s.rx.Add(1)
		r.b.sink.probe(append([]byte(nil), pkt...), s)
	case wire.TypeRelayBind, wire.TypeRelaySend:
		if r.b.relay != nil {
			r.run = append(r.run, pkt)
		}
	case wire.TypeRelayBound:
		if relay := (*r.b.relays.Load())[from]; relay != nil {
			relay.HandleBound(pkt, from)
		}
	case wire.TypeRelayDeliver:
		return r.delivered(pkt, from)
	default:
		r.b.other.Add(1)
	}
	return nil, nil
}

func (r *receiver) delivered(pkt []byte, from netip.AddrPort) ([]byte, *source) {
	relay := (*r.b.relays.Load())[from]
	if relay == nil {
		return nil, nil
	}
	short, inner, ok := relay.Unwrap(pkt)
	if !ok {
		return nil, nil
	}
	s := r.relaySource(relaySource{from, short}, relay)
	switch wire.Classify(inner) {
	case wire.ClassWireGuard:
		return inner, s
	case wire.ClassMesh: // a probe of the relayed path; nothing else may be nested
		if t := wire.Type(inner[1]); len(inner) >= probeLength && (t == wire.TypePing || t == wire.TypePong) {
			s.rx.Add(1)
			r.b.sink.probe(append([]byte(nil), inner...), s)
		}
	}
	return nil, nil
}

// source finds whence a datagram came, without allocating for paths in use.
func (r *receiver) source(from netip.AddrPort) *source {
	if r.last != nil && r.last.via.addr == from && !r.last.stale.Load() {
		return r.last
	}
	if s, ok := r.b.sources.Load(from); ok {
		r.last = s.(*source)
		return r.last
	}
	return &source{via: via{addr: from}}
}

func (r *receiver) relaySource(key relaySource, relay Relay) *source {
	if r.relay.last != nil && r.relay.key == key && !r.relay.last.stale.Load() {
		return r.relay.last
	}
	if s, ok := r.b.sources.Load(key); ok {
		r.relay.key, r.relay.last = key, s.(*source)
		return r.relay.last
	}
	return &source{via: via{relay: relay.Name()}, short: key.from}
}
