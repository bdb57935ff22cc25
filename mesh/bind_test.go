package mesh

import (
	"fmt"
	"net/netip"
	"os/exec"
	"testing"
	"time"

	"github.com/meshmpi/meshmpi/internal/wire"
	"github.com/meshmpi/meshmpi/mesh/peer"
	wgconn "golang.zx2c4.com/wireguard/conn"
	"golang.zx2c4.com/wireguard/device"
)

// taken records where a receiver sent what it received.
type taken struct{ handshakes, answers, probes, stun, forwarded, bound, checked int }

func (s *taken) handshake([]byte, *source)     { s.handshakes++ }
func (s *taken) answered([]byte, *source) bool { s.answers++; return true }
func (s *taken) probe([]byte, *source)         { s.probes++ }
func (s *taken) initiated(*Endpoint, []byte)   {}
func (s *taken) denied([]byte)                 {}

// Input implements Forwarder.
func (s *taken) Input(pkts [][]byte, _ netip.AddrPort) { s.forwarded += len(pkts) }

// stubRelay unwraps as any relay client does and counts the rest.
type stubRelay struct {
	addr netip.AddrPort
	got  *taken
}

func (r stubRelay) Name() string                       { return "relay" }
func (r stubRelay) Addr() netip.AddrPort               { return r.addr }
func (r stubRelay) Bound() bool                        { return true }
func (r stubRelay) Check()                             { r.got.checked++ }
func (r stubRelay) Path(peer.ID) peer.Path             { return fakePath{peer.KindRelayUDP} }
func (r stubRelay) HandleBound([]byte, netip.AddrPort) { r.got.bound++ }
func (r stubRelay) Unwrap(b []byte) (peer.Short, []byte, bool) {
	if len(b) < wire.RelayHeaderLen {
		return peer.Short{}, nil, false
	}
	return peer.Short(b[4:12]), b[wire.RelayHeaderLen:], true
}

var (
	relayAddr = netip.MustParseAddrPort("192.0.2.1:51820")
	otherAddr = netip.MustParseAddrPort("192.0.2.9:51820")
)

// receiveOne gives one datagram to a receiver and returns what WireGuard gets.
func receiveOne(pkt []byte, from netip.AddrPort) (got taken, toWG []byte, ep wgconn.Endpoint) {
	b := &Bind{sink: &got, relay: &got, stun: func([]byte, netip.AddrPort) { got.stun++ }}
	b.relays.Store(&map[netip.AddrPort]Relay{relayAddr: stubRelay{relayAddr, &got}})
	r := &receiver{b: b, from: []netip.AddrPort{from}}
	bufs, sizes, eps := [][]byte{make([]byte, wire.MaxDatagram)}, []int{0}, make([]wgconn.Endpoint, 1)
	sizes[0] = copy(bufs[0], pkt)
	r.dispatch(bufs, sizes, eps)
	return got, bufs[0][:sizes[0]], eps[0]
}

func wireGuard(typ byte, size int) []byte {
	b := make([]byte, size)
	b[0], b[size-1] = typ, 0x77
	return b
}

func framed(t wire.Type, inner []byte) []byte {
	return append([]byte{wire.Magic, byte(t), 0, 0, 1, 2, 3, 4, 5, 6, 7, 8}, inner...)
}

func TestDispatch(t *testing.T) {
	key := pairKey{1}
	ping := appendPing(nil, &key, peer.Short{1}, 2, 3, 4, 0)
	data := wireGuard(device.MessageTransportType, 100)
	for _, tc := range []struct {
		name string
		pkt  []byte
		from netip.AddrPort
		want taken
		toWG bool
	}{
		{"data", data, otherAddr, taken{}, true},
		{"initiation", wireGuard(1, device.MessageInitiationSize), otherAddr, taken{handshakes: 1}, false},
		{"response", wireGuard(2, device.MessageResponseSize), otherAddr, taken{answers: 1}, true},
		{"ping", ping, otherAddr, taken{probes: 1}, false},
		{"relayed data", framed(wire.TypeRelayDeliver, data), relayAddr, taken{}, true},
		{"relayed data from no relay of ours", framed(wire.TypeRelayDeliver, data), otherAddr, taken{}, false},
		{"relayed ping", framed(wire.TypeRelayDeliver, ping), relayAddr, taken{probes: 1}, false},
		{"relayed relay frame", framed(wire.TypeRelayDeliver, framed(wire.TypeRelaySend, data)), relayAddr, taken{}, false},
		{"relayed nothing", framed(wire.TypeRelayDeliver, nil), relayAddr, taken{}, false},
		{"to forward", framed(wire.TypeRelaySend, data), otherAddr, taken{forwarded: 1}, false},
		{"bound", framed(wire.TypeRelayBound, nil), relayAddr, taken{bound: 1}, false},
		{"garbage", []byte("hello"), otherAddr, taken{}, false},
	} {
		got, toWG, ep := receiveOne(tc.pkt, tc.from)
		if got != tc.want || (len(toWG) > 0) != tc.toWG {
			t.Errorf("%s: got %+v, %d bytes for WireGuard; want %+v, %v", tc.name, got, len(toWG), tc.want, tc.toWG)
		}
		if tc.toWG && (ep == nil || toWG[len(toWG)-1] != 0x77) {
			t.Errorf("%s: WireGuard gets %x from %v", tc.name, toWG, ep)
		}
	}
}

// FuzzDispatch: no datagram panics, and WireGuard sees nothing but its own.
func FuzzDispatch(f *testing.F) {
	key := pairKey{1}
	f.Add(appendPing(nil, &key, peer.Short{1}, 2, 3, 4, 0), true)
	f.Add(framed(wire.TypeRelayDeliver, wireGuard(4, 64)), true)
	f.Add(framed(wire.TypeRelaySend, wireGuard(1, 148)), false)
	f.Fuzz(func(t *testing.T, pkt []byte, byRelay bool) {
		from := otherAddr
		if byRelay {
			from = relayAddr
		}
		if _, toWG, ep := receiveOne(pkt, from); len(toWG) > 0 && (wire.Classify(toWG) != wire.ClassWireGuard || ep == nil || !ep.DstIP().IsValid()) {
			t.Fatalf("WireGuard is given %x", toWG)
		}
	})
}

// keepingPath keeps what is sent by it.
type keepingPath struct {
	fakePath
	sent *[][]byte
}

func (p keepingPath) Send(pkts [][]byte) error {
	for _, b := range pkts {
		*p.sent = append(*p.sent, append([]byte(nil), b...))
	}
	return nil
}

// TestEndpointHolds: a few packets wait for the first path, in order and not for long, and
// count when they are sent.
func TestEndpointHolds(t *testing.T) {
	for _, tc := range []struct {
		after time.Duration
		want  int
	}{{0, maxHeld}, {2 * heldFor, 0}} {
		var sent [][]byte
		var p peer.Path = keepingPath{fakePath{peer.KindUDP}, &sent}
		e := &Endpoint{}
		buf := make([]byte, 1)
		for i := range byte(maxHeld + 8) {
			buf[0] = i // the caller's memory is its own again
			e.send([][]byte{buf})
		}
		e.use(time.Now().Add(tc.after), &p)
		for i, b := range sent {
			if int(b[0]) != i {
				t.Errorf("packet %d was sent as the %dth", b[0], i)
			}
		}
		if got, dropped := len(sent), e.noPath.Load(); got != tc.want || int(dropped) != maxHeld+8-tc.want {
			t.Errorf("path after %v: %d sent, %d dropped; want %d sent, the others counted", tc.after, got, dropped, tc.want)
		}
		if e.send([][]byte{buf}); len(sent) != tc.want+1 {
			t.Error("a packet with a path was not sent")
		}
		if packets, bytes := e.txPackets.Load(), e.txBytes.Load(); packets != uint64(len(sent)) || bytes != packets {
			t.Errorf("path after %v: %d packets of %d bytes are counted, %d of a byte were sent", tc.after, packets, bytes, len(sent))
		}
	}
}

// TestReaderSurvives: an error of the socket, as ss -K or a kernel without memory
// makes one, must not leave the node deaf for good and running.
func TestReaderSurvives(t *testing.T) {
	a, b := pair(t)
	a.tun.out <- packet(a.node.Addr4, b.node.Addr4, "before")
	b.arrives(t, "before", arrival)
	failReads(t, b)
	for deadline := time.Now().Add(arrival); time.Now().Before(deadline); {
		a.tun.out <- packet(a.node.Addr4, b.node.Addr4, "after")
		if b.has("after", time.After(100*time.Millisecond)) {
			return
		}
	}
	t.Error("b is deaf")
}

// failReads has one read of each of n's sockets fail, as a firewall's or an
// administrator's "ss -K" does; the sockets themselves stay bound and work.
func failReads(t *testing.T, n *testNode) {
	t.Helper()
	out, err := exec.Command("ss", "-K", "-u", "-a", "-n", "sport", "=", fmt.Sprintf(":%d", n.sock.Port())).CombinedOutput()
	if err != nil {
		t.Skipf("ss -K: %v %s", err, out)
	}
	t.Logf("%s", out)
}
