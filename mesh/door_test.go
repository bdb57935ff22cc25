package mesh

import (
	"context"
	"encoding/binary"
	"errors"
	"net/netip"
	"testing"
	"time"

	"github.com/meshmpi/meshmpi/mesh/directory"
	"github.com/meshmpi/meshmpi/mesh/peer"
	"github.com/meshmpi/meshmpi/mesh/udp"
	"golang.org/x/crypto/blake2s"
	"golang.zx2c4.com/wireguard/device"
)

// idleMesh is a mesh whose loop does not run: the test is its loop.
func idleMesh(t *testing.T) *Mesh {
	t.Helper()
	node, key := newIdentity(t, "self", 1)
	sock, err := NewSocket(udp.Ports{})
	if err != nil {
		t.Fatal(err)
	}
	m, err := New(Config{Network: testNet, Self: node, WGKey: key, Socket: sock, TUN: newPipeTUN(), Directory: &directory.Directory{}})
	if err != nil {
		t.Fatal(err)
	}
	m.loop.ctx = t.Context()
	t.Cleanup(func() { m.dev.Close(); _ = sock.Close() })
	return m
}

// drain runs what waits for the loop and returns how much it was.
func (m *Mesh) drain() (n int) {
	for {
		select {
		case f := <-m.events:
			f(time.Now())
			n++
		default:
			return n
		}
	}
}

// forged is an initiation by somebody who knows no more than a node's public key.
func forged(to peer.ID, n int) []byte {
	pkt := make([]byte, device.MessageInitiationSize)
	pkt[0] = device.MessageInitiationType
	binary.LittleEndian.PutUint64(pkt[initEphemeral:], uint64(n+1))
	key := blake2s.Sum256(append([]byte(device.WGLabelMAC1), to[:]...))
	h, _ := blake2s.New128(key[:])
	h.Write(pkt[:initMAC1])
	h.Sum(pkt[:initMAC1])
	return pkt
}

// TestFloodOfInitiations: however many strangers knock, a peer at a path that
// works is opened to, and comes to WireGuard before them.
func TestFloodOfInitiations(t *testing.T) {
	m := idleMesh(t)
	a, ka := newIdentity(t, "a", 2)
	m.cfg.Directory.Apply(false, []peer.Record{{Node: a}})
	genuine := captureInitiation(t, a, m.cfg.Self, ka)
	known := &source{via: via{addr: otherAddr}}
	m.bind.register(otherAddr, known)

	const flood = 5000
	for i := range flood {
		from := netip.AddrPortFrom(netip.MustParseAddr("203.0.113.1"), uint16(i+1))
		m.handshake(forged(m.cfg.Self.ID, i), &source{via: via{addr: from}})
	}
	opened := m.drain()
	if opened < strangersBurst || opened > strangersBurst+strangersRate*10 {
		t.Errorf("%d of %d strangers were opened to, want about %d", opened, flood, strangersBurst)
	}
	if len(m.bind.spill) != cap(m.bind.spill) || len(m.bind.inject) != 0 {
		t.Fatalf("WireGuard has %d and %d messages waiting; the flood should fill the second queue alone", len(m.bind.inject), len(m.bind.spill))
	}
	m.door.initiations.SetLimit(0) // the flood has just taken what was to be had
	m.door.initiations.SetBurst(0)
	m.handshake(genuine, known)
	if m.drain() != 1 || len(m.bind.inject) != 1 {
		t.Error("a known peer's initiation is lost in the flood")
	}
	// A first contact by ping is as open as ever.
	_, kb := newIdentity(t, "b", 3)
	b := a
	b.ID, b.Name, b.Addr4, b.Addr6 = publicOf(t, kb), "b", netip.MustParseAddr("100.80.0.3"), netip.MustParseAddr("fd80::3")
	m.cfg.Directory.Apply(false, []peer.Record{{Node: b}})
	key, _, err := pairKeys(kb, testNet.Root, b, m.cfg.Self)
	if err != nil {
		t.Fatal(err)
	}
	m.probe(appendPing(nil, &key, b.ID.Short(), 1, 2, 0, 0), &source{via: via{addr: otherAddr}})
	if m.drain() != 1 || m.loop.remotes[b.ID] == nil {
		t.Error("a node that pings for the first time is not let in")
	}
}

func publicOf(t *testing.T, key [32]byte) peer.ID {
	t.Helper()
	o, err := newOpener(key)
	if err != nil {
		t.Fatal(err)
	}
	return peer.ID(o.private.PublicKey().Bytes())
}

// TestKnownSourceIsBounded: nor does a path that works open the door for a flood
// that claims to come from it.
func TestKnownSourceIsBounded(t *testing.T) {
	m := idleMesh(t)
	known := &source{via: via{addr: otherAddr}}
	m.bind.register(otherAddr, known)
	m.door.initiations.SetLimit(0)
	m.door.initiations.SetBurst(0)
	for i := range 1000 {
		m.handshake(forged(m.cfg.Self.ID, i), known)
	}
	if n := m.drain(); n < knownBurst || n > knownBurst+10*knownRate {
		t.Errorf("%d initiations from one source were opened, want about %d", n, knownBurst)
	}
}

// TestCopiesCostNothing: the same initiation again, from wherever, is neither
// opened nor handed on.
func TestCopiesCostNothing(t *testing.T) {
	m := idleMesh(t)
	a, ka := newIdentity(t, "a", 2)
	m.cfg.Directory.Apply(false, []peer.Record{{Node: a}})
	pkt := captureInitiation(t, a, m.cfg.Self, ka)
	for i := range 100 {
		m.handshake(pkt, &source{via: via{addr: netip.AddrPortFrom(otherAddr.Addr(), uint16(i+1))}})
	}
	if n := m.drain(); n != 1 || len(m.bind.inject)+len(m.bind.spill) != 1 {
		t.Errorf("of 100 copies %d were opened, %d reached WireGuard; want 1", n, len(m.bind.inject)+len(m.bind.spill))
	}
	for i := range 3 * latelyKept {
		m.door.lately.add(forged(m.cfg.Self.ID, i))
	}
	if n := len(m.door.lately.known); n > latelyKept {
		t.Errorf("%d initiations are remembered, want at most %d", n, latelyKept)
	}
	m.handshake(pkt, &source{via: via{addr: otherAddr}}) // forgotten, yet not new
	if m.drain(); len(m.bind.inject)+len(m.bind.spill) != 1 {
		t.Error("an old initiation reached WireGuard")
	}
}

// TestStrangerBecomesKnown: a peer repeats its initiation until it is answered. The first
// may come before we hear who the peer is; those after it must count.
func TestStrangerBecomesKnown(t *testing.T) {
	m := idleMesh(t)
	a, ka := newIdentity(t, "a", 2)
	pkt := captureInitiation(t, a, m.cfg.Self, ka)
	repeat := func() int {
		m.handshake(pkt, &source{via: via{addr: otherAddr}})
		m.drain()
		return len(m.bind.inject)
	}
	if repeat() != 0 {
		t.Fatal("an unknown node's initiation reached WireGuard")
	}
	m.cfg.Directory.Apply(false, []peer.Record{{Node: a}})
	m.checkRecords(time.Now())
	if repeat() != 1 {
		t.Error("the repeated initiation of a node that has become known is dropped")
	}
	for i := range 2 * maxRefusedInitiations {
		m.door.lately.refuse(forged(m.cfg.Self.ID, i))
	}
	if n := len(m.door.lately.refused); n > maxRefusedInitiations {
		t.Errorf("%d refused initiations are remembered", n)
	}
}

// TestForgedPingsCostAHash: pings in the name of a node that we have not talked
// to cost one key agreement in all, and never reach the loop after that.
func TestForgedPingsCostAHash(t *testing.T) {
	m := idleMesh(t)
	a, _ := newIdentity(t, "a", 2)
	m.cfg.Directory.Apply(false, []peer.Record{{Node: a}})
	key := pairKey{1}
	for i := range uint64(100) {
		m.probe(appendPing(nil, &key, a.ID.Short(), i, i, 0, 0), &source{via: via{addr: otherAddr}})
		if n := m.drain(); n > 0 && i > 0 {
			t.Fatalf("forgery %d reached the loop", i)
		}
	}
	m.cfg.Directory.Apply(false, []peer.Record{{Node: a, Revoked: true}})
	m.checkRecords(time.Now())
	if _, ok := m.bind.probeKeys.Load(a.ID.Short()); ok {
		t.Error("the key of a revoked node is kept")
	}
}

// TestWantedIsNotLost: with the loop's queue full, what must not be lost is done
// all the same.
func TestWantedIsNotLost(t *testing.T) {
	m := idleMesh(t)
	a, _ := newIdentity(t, "a", 2)
	m.cfg.Directory.Apply(false, []peer.Record{{Node: a}})
	r := m.configure(time.Now(), a.ID)
	for m.post(func(time.Time) {}) {
	}
	got := &taken{}
	rl := stubRelay{relayAddr, got}
	m.AddRelay(rl)
	m.Recheck()
	m.catchUp(time.Now())
	old := r.paths.find(via{relay: rl.Name()})
	if old == nil || (*m.bind.relays.Load())[relayAddr] == nil {
		t.Fatal("a relay that was added is not used")
	}
	if r.searches != 0 || !r.nextSearch.After(time.Time{}) {
		t.Error("no recheck")
	}
	m.RemoveRelay(rl.Name()) // and another one of the same name, before the loop looks
	m.AddRelay(stubRelay{otherAddr, got})
	m.catchUp(time.Now())
	if c := r.paths.find(via{relay: rl.Name()}); c == nil || c == old || (*m.bind.relays.Load())[otherAddr] == nil {
		t.Error("a relay's path outlives it")
	}
	m.RemoveRelay(rl.Name())
	m.catchUp(time.Now())
	if r.paths.find(via{relay: rl.Name()}) != nil || len(*m.bind.relays.Load()) != 0 {
		t.Error("a relay that was removed is used")
	}
}

// TestDoMinds: whoever asks a loop that does not answer gets away in time.
func TestDoMinds(t *testing.T) {
	m := idleMesh(t)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if err := m.do(ctx, func(time.Time) {}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("do = %v", err)
	}
	if _, err := m.Peers(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Peers = %v", err)
	}
}

// TestReaderIsNotHeldUp: packets to a peer that is not to be talked to never
// wait, and those to a peer that cannot be configured now wait once.
func TestReaderIsNotHeldUp(t *testing.T) {
	m := idleMesh(t)
	expired, _ := newIdentity(t, "expired", 2)
	expired.NotAfter = time.Now().Add(-time.Minute)
	slow, _ := newIdentity(t, "slow", 3)
	m.cfg.Directory.Apply(false, []peer.Record{{Node: expired}, {Node: slow}})
	for range 100 {
		m.tun.ask(time.Now(), expired.Addr4)
	}
	if n := len(m.events); n != 0 || m.Stats().NoOwner != 100 {
		t.Errorf("the loop was asked %d times for an expired peer; %d packets counted", n, m.Stats().NoOwner)
	}
	began := time.Now()
	for range 100 {
		m.tun.ask(began, slow.Addr4)
	}
	if n := len(m.events); n != 1 {
		t.Errorf("the loop, which does not answer, was asked %d times within a second", n)
	}
	m.drain()
	if m.loop.remotes[slow.ID] == nil {
		t.Error("what the reader gave up is not done later")
	}
}

// TestCutOffWhileWaiting: what a peer sent before it was cut off, and what waits
// for the loop still, does not bring it back.
func TestCutOffWhileWaiting(t *testing.T) {
	m := idleMesh(t)
	a, ka := newIdentity(t, "a", 2)
	m.cfg.Directory.Apply(false, []peer.Record{{Node: a}})
	key, _, err := pairKeys(ka, testNet.Root, a, m.cfg.Self)
	if err != nil {
		t.Fatal(err)
	}
	m.probe(appendPing(nil, &key, a.ID.Short(), 1, 1, 0, 0), &source{via: via{addr: otherAddr}})
	m.handshake(captureInitiation(t, a, m.cfg.Self, ka), &source{via: via{addr: otherAddr}})
	m.cfg.Directory.Apply(false, []peer.Record{{Node: a, Revoked: true}})
	m.checkRecords(time.Now())
	if n := m.drain(); n != 2 || len(m.loop.remotes) != 0 {
		t.Errorf("after %d late events %d peers are configured, want none after 2", n, len(m.loop.remotes))
	}
}

// TestReplaysLeaveRoom: authentic probes that somebody has caught and sends again
// cost the loop time, but do not keep handshakes from it.
func TestReplaysLeaveRoom(t *testing.T) {
	m := idleMesh(t)
	a, ka := newIdentity(t, "a", 2)
	m.cfg.Directory.Apply(false, []peer.Record{{Node: a}})
	key, _, err := pairKeys(ka, testNet.Root, a, m.cfg.Self)
	if err != nil {
		t.Fatal(err)
	}
	m.configure(time.Now(), a.ID)
	ping := appendPing(nil, &key, a.ID.Short(), 1, 1, 0, 0)
	for range 2 * eventsWaiting {
		m.probe(ping, &source{via: via{addr: otherAddr}})
	}
	if n := len(m.events); n == 0 || n > probesWaiting || m.Stats().Events == 0 {
		t.Errorf("%d probes wait for the loop, want at most %d; %d were dropped", n, probesWaiting, m.Stats().Events)
	}
	if !m.post(func(time.Time) {}) {
		t.Error("nothing else has room")
	}
}
