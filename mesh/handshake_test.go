package mesh

import (
	"testing"
	"time"

	"github.com/meshmpi/meshmpi/mesh/peer"
	"golang.zx2c4.com/wireguard/device"
)

// TestInitiationsThatCameTogether: after a node has stood still, it finds two initiations
// of a peer, of which only the second waits for an answer. WireGuard would drop that one.
func TestInitiationsThatCameTogether(t *testing.T) {
	m := idleMesh(t)
	a, ka := newIdentity(t, "a", 2)
	m.cfg.Directory.Apply(false, []peer.Record{{Node: a}})
	first := captureInitiation(t, a, m.cfg.Self, ka)
	second := captureInitiation(t, a, m.cfg.Self, ka)
	for !stampOf(t, m, second).after(stampOf(t, m, first)) { // they count in 16 ms
		second = captureInitiation(t, a, m.cfg.Self, ka)
	}
	now, from := time.Now(), &source{via: via{addr: otherAddr}}
	m.met(now, first, from)
	m.met(now, second, from)
	if n := len(m.bind.inject); n != 1 {
		t.Fatalf("WireGuard gets %d initiations of a peer at once, want one", n)
	}
	if <-m.bind.inject; m.loop.wake.IsZero() || m.loop.wake.Sub(now) > holdFor {
		t.Fatalf("the loop wakes in %v for the other", m.loop.wake.Sub(now))
	}
	for end := now.Add(time.Second); now.Before(end); now = now.Add(device.HandshakeInitationRate) {
		m.tick(now)
	}
	if n := len(m.bind.inject); n != 1 {
		t.Fatalf("WireGuard gets %d initiations a second later, want one", n)
	}
	if in := <-m.bind.inject; string(in.pkt) != string(second) {
		t.Error("WireGuard does not get the one that the peer waits for")
	}
}

// stampOf says when an initiation was made.
func stampOf(t *testing.T, m *Mesh, pkt []byte) stamp {
	t.Helper()
	_, made, err := m.open.open(pkt)
	if err != nil {
		t.Fatal(err)
	}
	return made
}
