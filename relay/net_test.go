package relay

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/meshmpi/meshmpi/internal/wire"
	"github.com/meshmpi/meshmpi/mesh/peer"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var (
	relayAddr = netip.MustParseAddrPort("203.0.113.1:51820")
	addrA     = netip.MustParseAddrPort("198.51.100.10:4001")
	addrB     = netip.MustParseAddrPort("[2001:db8::b]:4002")
	addrC     = netip.MustParseAddrPort("198.51.100.30:4003")
	addrX     = netip.MustParseAddrPort("192.0.2.66:6666")
)

// node returns the ID of a node named by one letter.
func node(name byte) peer.ID { return peer.ID{0: name, 31: 1} }

// wireGuard returns what a relay takes for a WireGuard message of size bytes.
func wireGuard(size int, mark byte) []byte {
	b := make([]byte, size)
	for i := range b {
		b[i] = mark + byte(i)
	}
	copy(b, []byte{4, 0, 0, 0})
	return b
}

// sendFrame returns a send of the payload to a node.
func sendFrame(to peer.ID, payload []byte) []byte {
	b := make([]byte, wire.RelayHeaderLen, wire.RelayHeaderLen+len(payload))
	putHeader(b, wire.TypeRelaySend, to.Short())
	return append(b, payload...)
}

// bindFrame returns a bind under a grant.
func bindFrame(g Grant, counter uint64, flags byte) []byte {
	b := make([]byte, bindLen)
	putBind(b, bind{short: g.Short, counter: counter, flags: flags})
	newMAC(&g.Key).seal(b)
	return b
}

// sent is one call of Send.
type sent struct {
	pkts [][]byte
	to   netip.AddrPort
}

// rig is a server with its clock and everything it sends.
type rig struct {
	*Server
	t    testing.TB
	time time.Time
	out  []sent
	fail error // of Send
}

func newRig(t testing.TB, cfg ServerConfig) *rig {
	b := &rig{t: t, time: time.Unix(1_700_000_000, 0)}
	cfg.Name = "r1"
	cfg.Now = func() time.Time { return b.time }
	cfg.Send = func(pkts [][]byte, to netip.AddrPort) error {
		s := sent{to: to}
		for _, p := range pkts {
			s.pkts = append(s.pkts, slices.Clone(p))
		}
		b.out = append(b.out, s)
		return b.fail
	}
	b.Server = NewServer(cfg)
	return b
}

// admit returns a node's new grant for an hour.
func (b *rig) admit(id peer.ID) Grant {
	b.t.Helper()
	return b.admitUntil(id, b.time.Add(time.Hour))
}

func (b *rig) admitUntil(id peer.ID, until time.Time) Grant {
	b.t.Helper()
	doc, err := b.Admit(id, until)
	if err != nil {
		b.t.Fatalf("Admit: %v", err)
	}
	g, err := ParseGrant(doc)
	if err != nil {
		b.t.Fatalf("ParseGrant(%s): %v", doc, err)
	}
	return g
}

// input feeds copies of packets and returns what the server sent for them. No
// input whatever may make it send more bytes or packets than it took.
func (b *rig) input(from netip.AddrPort, pkts ...[]byte) []sent {
	b.t.Helper()
	in, out, packets := 0, 0, 0
	batch := make([][]byte, len(pkts))
	for i, p := range pkts {
		batch[i] = slices.Clone(p)
		in += len(p)
	}
	b.out = nil
	b.Input(batch, from)
	for _, s := range b.out {
		packets += len(s.pkts)
		for _, p := range s.pkts {
			out += len(p)
		}
	}
	if out > in || packets > len(pkts) {
		b.t.Fatalf("amplification: %d bytes in %d packets came in, %d in %d went out", in, len(pkts), out, packets)
	}
	return b.out
}

// bind binds a node now and checks the answer.
func (b *rig) bind(g Grant, from netip.AddrPort) {
	b.t.Helper()
	b.time = b.time.Add(time.Microsecond) // counters rise
	out := b.input(from, bindFrame(g, uint64(b.time.UnixNano()), 0))
	if len(out) != 1 || len(out[0].pkts) != 1 || out[0].to != from {
		b.t.Fatalf("bind from %v was answered with %v", from, out)
	}
	answer := out[0].pkts[0]
	short, counter, observed, ok := parseBound(answer)
	if !ok || short != g.Short || counter != uint64(b.time.UnixNano()) || observed != from || !newMAC(&g.Key).valid(answer) {
		b.t.Fatalf("answer %x: short %x, counter %d, observed %v, ok %v", answer, short, counter, observed, ok)
	}
}

// forwards reports whether a packet from an address reaches a node at another.
func (b *rig) forwards(from netip.AddrPort, to peer.ID, at netip.AddrPort) bool {
	b.t.Helper()
	out := b.input(from, sendFrame(to, wireGuard(100, 7)))
	if len(out) == 0 {
		return false
	}
	if len(out) != 1 || out[0].to != at {
		b.t.Fatalf("a packet to %v went to %v", at, out)
	}
	return true
}

// fabric is a network in memory: what is sent to an address is handed to its
// host, by the sender's own goroutine or later with a delay.
type fabric struct {
	mu    sync.Mutex
	hosts map[netip.AddrPort]func(pkts [][]byte, from netip.AddrPort)
	delay time.Duration
	drop  func(from, to netip.AddrPort) bool
	seen  []time.Time
}

func newFabric() *fabric {
	return &fabric{hosts: make(map[netip.AddrPort]func([][]byte, netip.AddrPort))}
}

func (f *fabric) attach(at netip.AddrPort, host func(pkts [][]byte, from netip.AddrPort)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.hosts[at] = host
}

func (f *fabric) setDrop(drop func(from, to netip.AddrPort) bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.drop = drop
}

// sentAt returns when anything was sent so far, lost or not.
func (f *fabric) sentAt() []time.Time {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.seen)
}

// socket returns a Send for the host that the others see at from.
func (f *fabric) socket(from func() netip.AddrPort) func([][]byte, netip.AddrPort) error {
	return func(pkts [][]byte, to netip.AddrPort) error {
		f.mu.Lock()
		src := from()
		host, delay := f.hosts[to], f.delay
		f.seen = append(f.seen, time.Now())
		lost := host == nil || f.drop != nil && f.drop(src, to)
		f.mu.Unlock()
		if lost {
			return nil
		}
		batch := make([][]byte, len(pkts))
		for i, p := range pkts {
			batch[i] = slices.Clone(p)
		}
		if delay == 0 {
			host(batch, src)
		} else {
			time.AfterFunc(delay, func() { host(batch, src) })
		}
		return nil
	}
}

// delivered is a packet that a member took from its relay.
type delivered struct {
	from    peer.Short
	payload []byte
}

// memberHost is a node on a fabric: a client and what reached it.
type memberHost struct {
	*Client
	id peer.ID

	mu       sync.Mutex
	addr     netip.AddrPort
	got      []delivered
	observed []netip.AddrPort // as Bound was told
}

func newMemberHost(f *fabric, id peer.ID, addr netip.AddrPort) *memberHost {
	m := &memberHost{id: id}
	m.Client = NewClient(ClientConfig{
		Self: id,
		Send: f.socket(m.at),
		Bound: func(seen netip.AddrPort) {
			m.mu.Lock()
			defer m.mu.Unlock()
			m.observed = append(m.observed, seen)
		},
	})
	m.move(f, addr)
	return m
}

func (m *memberHost) at() netip.AddrPort {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.addr
}

// move gives the host another address, as a NAT does.
func (m *memberHost) move(f *fabric, addr netip.AddrPort) {
	m.mu.Lock()
	m.addr = addr
	m.mu.Unlock()
	f.attach(addr, m.receive)
}

// receive is a node's demultiplexer.
func (m *memberHost) receive(pkts [][]byte, from netip.AddrPort) {
	for _, p := range pkts {
		if wire.Type(p[1]) == wire.TypeRelayBound {
			m.HandleBound(p, from)
			continue
		}
		if origin, payload, ok := m.Unwrap(p); ok && from == m.Relay() {
			m.mu.Lock()
			m.got = append(m.got, delivered{origin, slices.Clone(payload)})
			m.mu.Unlock()
		}
	}
}

func (m *memberHost) take() []delivered {
	m.mu.Lock()
	defer m.mu.Unlock()
	got := m.got
	m.got = nil
	return got
}

func (m *memberHost) told() []netip.AddrPort {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.observed)
}

// numbered returns n sealed packets of size bytes that say their number.
func numbered(n, size int) [][]byte {
	pkts := make([][]byte, n)
	for i := range pkts {
		pkts[i] = wireGuard(size, byte(i))
		binary.BigEndian.PutUint32(pkts[i][4:], uint32(i))
	}
	return pkts
}

// checkNumbered reports what is wrong with packets that numbered made.
func checkNumbered(got []delivered, from peer.ID, n, size int) error {
	if len(got) != n {
		return fmt.Errorf("%d packets arrived, want %d", len(got), n)
	}
	for i, want := range numbered(n, size) {
		if got[i].from != from.Short() || string(got[i].payload) != string(want) {
			return fmt.Errorf("packet %d from %x is %.12x…, want %.12x… from %x", i, got[i].from, got[i].payload, want, from.Short())
		}
	}
	return nil
}
