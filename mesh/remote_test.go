package mesh

import (
	"maps"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/meshmpi/meshmpi/mesh/peer"
)

// TestTellRTT: a round trip is told at first, when it has changed by more than a
// quarter, and when it is not known any more.
func TestTellRTT(t *testing.T) {
	var told []time.Duration
	m := &Mesh{cfg: Config{PathRTT: func(_ peer.Node, rtt time.Duration) { told = append(told, rtt) }}}
	r := &remote{}
	for _, ms := range []time.Duration{0, 20, 24, 16, 26, 26, 15, 0, 0, 1} {
		m.tellRTT(r, ms*time.Millisecond)
	}
	for i := range told {
		told[i] /= time.Millisecond
	}
	if want := []time.Duration{20, 26, 15, 0, 1}; !slices.Equal(told, want) {
		t.Errorf("told %v ms, want %v", told, want)
	}
	(&Mesh{}).tellRTT(r, time.Second) // nobody asks
}

// TestOtherAddresses: a node that comes back with other addresses, since its own were
// given away, is reached at those, and nobody is taken for it at the old ones.
func TestOtherAddresses(t *testing.T) {
	m := idleMesh(t)
	a, _ := newIdentity(t, "a", 2)
	m.cfg.Directory.Apply(false, []peer.Record{{Node: a}})
	before := m.configure(time.Now(), a.ID).node
	a.Addr4 = netip.MustParseAddr("100.80.0.9")
	m.cfg.Directory.Apply(false, []peer.Record{{Node: a}})
	m.checkRecords(time.Now())
	m.configure(time.Now(), a.ID)
	known := *m.tun.known.Load()
	if known[a.Addr4] == nil || known[before.Addr4] != nil {
		t.Errorf("known are %v; want %v", slices.Collect(maps.Keys(known)), a.Addrs())
	}
}

// TestOtherSite: what goes to a node that has moved to another site, and has joined anew
// there, is paced as what goes to that site.
func TestOtherSite(t *testing.T) {
	m := idleMesh(t)
	m.bind.pacer = &stubPacer{}
	a, _ := newIdentity(t, "a", 2)
	for _, site := range []string{"near", "far", "near"} {
		a.Site = site
		m.cfg.Directory.Apply(false, []peer.Record{{Node: a}})
		m.checkRecords(time.Now())
		if paced := m.configure(time.Now(), a.ID).ep.flow != nil; paced != (site == "far") {
			t.Errorf("what goes to a node now at site %s is paced: %v", site, paced)
		}
	}
}

// TestSourceOfEvicted: an address that lost its place to others and comes back is
// counted again, so that congestion is not taken for its death.
func TestSourceOfEvicted(t *testing.T) {
	m := idleMesh(t)
	a, _ := newIdentity(t, "a", 2)
	m.cfg.Directory.Apply(false, []peer.Record{{Node: a}})
	now := time.Now()
	r := m.configure(now, a.ID)
	at := func(n int) netip.AddrPort { return netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), uint16(10+n)) }
	c := m.addDirect(now, r, at(0), told)
	c.state = up
	m.watchDirect(r, c)
	if c.rx == nil {
		t.Fatal("not counted")
	}
	c.state = down
	for i := 1; i <= maxCandidates+2; i++ { // a NAT that gives another port each time
		n := m.addDirect(now, r, at(i), told)
		n.state, n.heard = down, now.Add(time.Duration(i))
		m.choose(now, r)
	}
	if r.paths.find(via{addr: at(0)}) != nil {
		t.Fatal("it was not evicted")
	}
	again := m.addDirect(now, r, at(0), told)
	again.state = up
	m.watchDirect(r, again)
	if again.rx == nil {
		t.Error("what comes from there counts for nothing")
	}
}
