package mesh

import (
	"errors"
	"net"
	"net/netip"
	"os"
	"testing"
	"time"

	"github.com/meshmpi/meshmpi/mesh/peer"
)

// bystander is an address that somebody claims to speak from.
type bystander struct {
	*net.UDPConn
	to netip.AddrPort
}

func newBystander(t *testing.T, to netip.AddrPort) bystander {
	t.Helper()
	c, err := net.ListenUDP("udp4", net.UDPAddrFromAddrPort(netip.MustParseAddrPort("127.0.0.1:0")))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return bystander{c, to}
}

func (v bystander) says(t *testing.T, pkt []byte) {
	t.Helper()
	if _, err := v.WriteToUDPAddrPort(pkt, v.to); err != nil {
		t.Fatal(err)
	}
}

// gets returns how many datagrams and bytes reach the bystander within a time.
func (v bystander) gets(t *testing.T, within time.Duration) (datagrams, bytes int) {
	t.Helper()
	if err := v.SetReadDeadline(time.Now().Add(within)); err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 2000)
	for {
		n, err := v.Read(buf)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return datagrams, bytes
		} else if err != nil {
			t.Fatal(err)
		}
		datagrams, bytes = datagrams+1, bytes+n
	}
}

// quiet is longer than any message to a likely address takes to be repeated.
const quiet = 300 * time.Millisecond

// TestReplaysTroubleNobody: whoever caught a peer's message and sends it again
// from another's address gets that other one datagram at most, no longer than
// the message, and no path is changed.
func TestReplaysTroubleNobody(t *testing.T) {
	na, ka := newIdentity(t, "a", 1)
	nb, kb := newIdentity(t, "b", 2)
	b := start(t, nb, kb, 0, nil)
	b.knows(peer.Record{Node: na, Up: true})
	key, _, err := pairKeys(ka, testNet.Root, na, nb)
	if err != nil {
		t.Fatal(err)
	}
	seq := newSequence(time.Now())
	ping := func(size int) []byte { return appendPing(nil, &key, na.ID.Short(), 1, seq.next(), 0, size) }
	stale := appendPing(nil, &key, na.ID.Short(), 1, seq.next()-seqWindow-1, 0, 0)
	older, newer := captureInitiation(t, na, nb, ka), captureInitiation(t, na, nb, ka)

	for _, tc := range []struct {
		name string
		pkt  []byte
		want int
	}{
		{"a ping that never arrived", ping(0), 1},
		{"a long one", ping(1000), 1},
		{"a ping from long ago", stale, 0},
		{"an initiation that never arrived", newer, 1},
		{"an older one", older, 0},
	} {
		v := newBystander(t, b.addr())
		v.says(t, tc.pkt)
		if n, bytes := v.gets(t, quiet); n != tc.want || bytes > len(tc.pkt) {
			t.Errorf("%s, %d bytes, was answered by %d datagrams of %d bytes; want %d, not longer", tc.name, len(tc.pkt), n, bytes, tc.want)
		}
		w := newBystander(t, b.addr())
		for range 10 {
			v.says(t, tc.pkt)
			w.says(t, tc.pkt)
		}
		if n, bytes := v.gets(t, quiet); n != 0 {
			t.Errorf("%s, replayed, was answered by %d datagrams of %d bytes", tc.name, n, bytes)
		}
		if n, _ := w.gets(t, time.Millisecond); n != 0 {
			t.Errorf("%s, replayed from elsewhere, was answered by %d datagrams", tc.name, n)
		}
	}
	peers, err := b.Peers(t.Context())
	if err != nil || len(peers) != 1 || peers[0].Works || peers[0].Path.Kind != peer.KindNone {
		t.Errorf("peers = %+v, %v; want one without a path", peers, err)
	}
	if b.Stats().Replayed == 0 {
		t.Error("no replay was counted")
	}
}

// TestHeardAddressIsProved: a peer that a NAT shows at an address nobody
// announced is answered there at once and, once it answered in its turn, is
// talked to there.
func TestHeardAddressIsProved(t *testing.T) {
	a, b := pair(t) // b knows no address of a
	if _, _, err := a.Ping(t.Context(), b.node.ID); err != nil {
		t.Fatal(err)
	}
	wantKind(t, b, a.node.ID, peer.KindUDP, arrival)
}

// TestOneAddressTwoPeers: what comes from an address counts for the peer that
// proved to be there last, and for no other.
func TestOneAddressTwoPeers(t *testing.T) {
	m := idleMesh(t)
	now := time.Now()
	first, _ := newIdentity(t, "first", 11)
	second, _ := newIdentity(t, "second", 12)
	at := netip.MustParseAddrPort("192.0.2.33:4500")
	r := newReceiver(m.bind, nil)
	prove := func(n peer.Node) *candidate {
		t.Helper()
		m.cfg.Directory.Apply(false, []peer.Record{{Node: n}})
		remote := m.configure(now, n.ID)
		c := m.addDirect(now, remote, at, told)
		if c == nil {
			t.Fatal("no candidate")
		}
		ask := remote.paths.pinged(now, c)
		m.ponged(now, remote, probe{txid: ask})
		return c
	}
	one := prove(first)
	r.source(at).rx.Add(5)
	two := prove(second)
	r.source(at).rx.Add(7)
	m.addDirect(now, m.loop.remotes[first.ID], at, told) // somebody says so
	r.source(at).rx.Add(1)
	if got1, got2 := one.rx(), two.rx(); got1 != 5 || got2 != 8 {
		t.Errorf("datagrams counted for the earlier and the later peer: %d, %d; want 5, 8", got1, got2)
	}
	m.forget(m.loop.remotes[first.ID])
	if r.source(at).rx.Add(1); two.rx() != 9 {
		t.Error("forgetting the earlier peer takes the address from the later one")
	}
}
