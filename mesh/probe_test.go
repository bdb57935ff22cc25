package mesh

import (
	"bytes"
	"encoding/binary"
	"net/netip"
	"testing"
	"time"

	"github.com/meshmpi/meshmpi/internal/wire"
	"github.com/meshmpi/meshmpi/mesh/peer"
	"golang.zx2c4.com/wireguard/conn"
	"golang.zx2c4.com/wireguard/device"
)

// keysOf derives the pair keys as each of two nodes does.
func keysOf(t testing.TB) (ofA, ofB [2]pairKey, a, b peer.Node) {
	t.Helper()
	a, ka := newIdentity(t, "a", 1)
	b, kb := newIdentity(t, "b", 2)
	for _, side := range []struct {
		key         [32]byte
		self, other peer.Node
		out         *[2]pairKey
	}{{ka, a, b, &ofA}, {kb, b, a, &ofB}} {
		p, s, err := pairKeys(side.key, peer.Fingerprint{7}, side.self, side.other)
		if err != nil {
			t.Fatal(err)
		}
		*side.out = [2]pairKey{p, s}
	}
	return ofA, ofB, a, b
}

func TestPairKeysAgree(t *testing.T) {
	ofA, ofB, a, b := keysOf(t)
	if ofA != ofB {
		t.Error("the two ends derive different keys")
	}
	if ofA[0] == ofA[1] {
		t.Error("probes and signals share a key")
	}
	// A node with b's WireGuard key but another signing key is another node.
	_, ka := newIdentity(t, "a", 1)
	impostor := b
	impostor.SignKey = a.SignKey
	p1, _, _ := pairKeys(ka, peer.Fingerprint{7}, a, b)
	p2, _, _ := pairKeys(ka, peer.Fingerprint{7}, a, impostor)
	p3, _, _ := pairKeys(ka, peer.Fingerprint{8}, a, b)
	if p1 == p2 || p1 == p3 {
		t.Error("the key does not depend on the signing keys or the network")
	}
}

func TestProbeRoundTrip(t *testing.T) {
	keys, _, a, _ := keysOf(t)
	for _, size := range []int{0, probeLength, 1432} {
		b := appendPing(nil, &keys[0], a.ID.Short(), 42, 7, 8, size)
		if want := max(size, probeLength); len(b) != want {
			t.Errorf("ping of size %d has %d bytes", size, len(b))
		}
		p, err := parseProbe(b)
		if err != nil || p.typ != wire.TypePing || p.txid != 42 || p.seq != 7 || p.seen != 8 || p.from != a.ID.Short() || !p.authentic(&keys[0]) {
			t.Errorf("ping came back as %+v, %v", p, err)
		}
		for i := range b {
			b[i] ^= 1
			if p, err := parseProbe(b); err == nil && p.authentic(&keys[0]) {
				t.Fatalf("a flipped bit in byte %d goes unnoticed", i)
			}
			b[i] ^= 1
		}
	}
	p, err := parseProbe(appendPong(nil, &keys[0], a.ID.Short(), 43, 44))
	if err != nil || p.typ != wire.TypePong || p.txid != 43 || p.ask != 44 || !p.authentic(&keys[0]) {
		t.Errorf("pong came back as %+v, %v", p, err)
	}
}

// TestSequence: a ping counts once, may be overtaken a little, and a node whose
// clock went back while it was away is heard again once it was told.
func TestSequence(t *testing.T) {
	now := time.Unix(1e9, 0)
	a, b := newSequence(now), newSequence(now)
	ping := func(from *sequence) probe { return probe{seq: from.next(), seen: from.seen} }
	first := ping(&a)
	var sent []probe
	for range 2 * seqWindow {
		sent = append(sent, ping(&a))
	}
	last := len(sent) - 1
	for _, tc := range []struct {
		what string
		p    probe
		want bool
	}{
		{"the first", first, true},
		{"a copy", first, false},
		{"the latest", sent[last], true},
		{"one that was overtaken", sent[last-seqWindow+1], true},
		{"its copy", sent[last-seqWindow+1], false},
		{"one from long ago", sent[10], false},
		{"a number that no clock shows", probe{seq: seqLimit}, false},
	} {
		if got := b.fresh(tc.p); got != tc.want {
			t.Errorf("%s is taken for fresh: %v, want %v", tc.what, got, tc.want)
		}
	}
	back := newSequence(now.Add(-time.Hour))
	if b.fresh(ping(&back)) {
		t.Error("a ping from an hour ago is taken for fresh")
	}
	if !back.fresh(ping(&b)) || !b.fresh(ping(&back)) {
		t.Error("a node whose clock went back is not heard after it heard its peer")
	}
	if back.fresh(probe{seq: b.next(), seen: 1<<64 - 1}); back.next() >= seqLimit {
		t.Error("a peer can claim to have seen a number that leaves no room")
	}
}

func FuzzParseProbe(f *testing.F) {
	key := pairKey{1}
	f.Add(appendPing(nil, &key, peer.Short{2}, 3, 4, 5, 100))
	f.Add(appendPong(nil, &key, peer.Short{2}, 3, 4))
	f.Fuzz(func(t *testing.T, b []byte) {
		p, err := parseProbe(b)
		if err != nil {
			return
		}
		if len(b) < probeLength || (p.typ != wire.TypePing && p.typ != wire.TypePong) {
			t.Fatalf("accepted %x", b)
		}
		other := pairKey{9}
		if p.authentic(&other) {
			t.Fatal("authentic under a key nobody used")
		}
	})
}

func FuzzOpenSignal(f *testing.F) {
	key := pairKey{5}
	b, err := sealSignal(&key, peer.ID{1}, signalOffer, flowID{1}, []byte("candidates"))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	f.Fuzz(func(t *testing.T, in []byte) {
		kind, id, msg, err := openSignal(&key, peer.ID{1}, in)
		if err == nil && (kind != signalOffer || id != flowID{1} || string(msg) != "candidates") { // the key is this test's own
			t.Fatalf("opened what was never sealed: %x", in)
		}
	})
}

// TestSignalHasADirection: a hub cannot make a node take its own message for
// the peer's.
func TestSignalHasADirection(t *testing.T) {
	key, a, b := pairKey{5}, peer.ID{1}, peer.ID{2}
	sealed, err := sealSignal(&key, a, signalCall, flowID{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, _, _, err := openSignal(&key, a, sealed); err != nil {
		t.Errorf("the peer's message: %v", err)
	}
	if _, _, _, err := openSignal(&key, b, sealed); err == nil {
		t.Error("a node's own message, sent back, is opened")
	}
}

func TestSignalTooLong(t *testing.T) {
	key := pairKey{5}
	if _, err := sealSignal(&key, peer.ID{1}, signalAnswer, flowID{}, make([]byte, peer.MaxSignal)); err == nil {
		t.Error("sealed a signal longer than any hub passes on")
	}
}

// captureInitiation has a real wireguard-go device make a handshake initiation.
func captureInitiation(t testing.TB, from, to peer.Node, key [32]byte) []byte {
	t.Helper()
	c := &captureBind{got: make(chan []byte, 1)}
	tun := newPipeTUN()
	dev := device.NewDevice(tun, c, device.NewLogger(device.LogLevelSilent, ""))
	defer dev.Close()
	hexOf := func(b []byte) string { return string(appendHex(nil, b)) }
	if err := dev.IpcSet("private_key=" + hexOf(key[:]) + "\npublic_key=" + hexOf(to.ID[:]) +
		"\nendpoint=x\nallowed_ip=0.0.0.0/0\n"); err != nil {
		t.Fatal(err)
	}
	if err := dev.Up(); err != nil {
		t.Fatal(err)
	}
	tun.out <- packet(from.Addr4, to.Addr4, "x")
	select {
	case b := <-c.got:
		return b
	case <-time.After(5 * time.Second):
		t.Fatal("wireguard-go sent no initiation")
	}
	return nil
}

func appendHex(dst, b []byte) []byte {
	const digits = "0123456789abcdef"
	for _, c := range b {
		dst = append(dst, digits[c>>4], digits[c&15])
	}
	return dst
}

// captureBind keeps the first datagram sent.
type captureBind struct {
	got    chan []byte
	closed chan struct{}
}

func (c *captureBind) Open(uint16) ([]conn.ReceiveFunc, uint16, error) {
	c.closed = make(chan struct{})
	return nil, 1, nil
}
func (c *captureBind) Close() error                                { return nil }
func (c *captureBind) SetMark(uint32) error                        { return nil }
func (c *captureBind) BatchSize() int                              { return 1 }
func (c *captureBind) ParseEndpoint(string) (conn.Endpoint, error) { return &Endpoint{}, nil }
func (c *captureBind) Send(bufs [][]byte, _ conn.Endpoint) error {
	select {
	case c.got <- bytes.Clone(bufs[0]):
	default:
	}
	return nil
}

// TestOpenInitiation opens what wireguard-go made, and only that.
func TestOpenInitiation(t *testing.T) {
	a, ka := newIdentity(t, "a", 1)
	b, kb := newIdentity(t, "b", 2)
	msg := captureInitiation(t, a, b, ka)
	o, err := newOpener(kb)
	if err != nil {
		t.Fatal(err)
	}
	if id, _, err := o.open(msg); err != nil || id != a.ID {
		t.Errorf("open = %v, %v; want node a", id, err)
	}
	_, kc := newIdentity(t, "c", 3)
	if other, _ := newOpener(kc); other.addressed(msg) {
		t.Error("another node takes the initiation for its own")
	}
	for i := range msg[:initMAC2] {
		msg[i] ^= 0x80
		if _, _, err := o.open(msg); err == nil {
			t.Errorf("a changed byte %d goes unnoticed", i)
		}
		msg[i] ^= 0x80
	}
}

func FuzzOpenInitiation(f *testing.F) {
	a, ka := newIdentity(f, "a", 1)
	b, kb := newIdentity(f, "b", 2)
	msg := captureInitiation(f, a, b, ka)
	o, err := newOpener(kb)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(msg)
	f.Fuzz(func(t *testing.T, in []byte) {
		if id, _, err := o.open(in); err == nil && (id != a.ID || !bytes.Equal(in[:initMAC2], msg[:initMAC2])) {
			t.Fatalf("opened a forged initiation: %x", in)
		}
	})
}

func FuzzDestination(f *testing.F) {
	f.Add(packet(netip.MustParseAddr("100.80.0.1"), netip.MustParseAddr("100.80.0.2"), "x"))
	f.Fuzz(func(t *testing.T, b []byte) {
		a, ok := destination(b)
		if !ok {
			return
		}
		if v := b[0] >> 4; (v == 4) != a.Is4() || v == 4 && binary.BigEndian.Uint32(b[16:]) != binary.BigEndian.Uint32(a.AsSlice()) {
			t.Fatalf("destination of %x = %v", b, a)
		}
	})
}
