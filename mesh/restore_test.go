package mesh

import (
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/meshmpi/meshmpi/mesh/peer"
)

// TestRememberedForLong: where a peer was reached in an earlier run is tried for as long as
// the peer is silent, and stays remembered: after a power cut the network may come up later
// than the nodes, and no hub may be there to tell anybody anything.
func TestRememberedForLong(t *testing.T) {
	m := idleMesh(t)
	var memory []Recent
	m.cfg.Remember = func(list []Recent) { memory = list }
	m.loop.recall = map[peer.ID][]netip.AddrPort{}
	a, _ := newIdentity(t, "a", 2)
	m.cfg.Directory.Apply(false, []peer.Record{{Node: a}})
	at := []netip.AddrPort{netip.MustParseAddrPort("127.0.0.1:9"), netip.MustParseAddrPort("127.0.0.2:9")}
	now := time.Now()
	m.restore(now, Recent{ID: a.ID, Addrs: at})
	r := m.loop.remotes[a.ID]
	for end := now.Add(2 * time.Minute); now.Before(end); now = now.Add(time.Second) {
		m.drain()
		m.tick(now)
	}
	m.loop.changed = true // by whatever becomes of another peer
	m.tick(now)
	if len(memory) != 1 || memory[0].ID != a.ID || !slices.Equal(memory[0].Addrs, at) {
		t.Errorf("two minutes of silence have left %v in memory, want %v", memory, at)
	}
	for _, addr := range at {
		c := r.paths.find(via{addr: addr})
		if c == nil || len(c.pings) == 0 && c.next.Sub(now) > downMax {
			t.Errorf("%v is not tried any more: %+v", addr, c)
		}
	}
}

// TestWorked: what works is remembered, the path in use first, and what has worked only
// where nothing does.
func TestWorked(t *testing.T) {
	w := newWorld(t)
	w.add(relayed, peer.KindRelayUDP)
	w.add(far, peer.KindUDP)
	w.add(near, peer.KindUDP)
	w.add(via{addr: netip.MustParseAddrPort("192.0.2.3:1")}, peer.KindUDP) // never answers
	w.alive[relayed], w.alive[near], w.alive[far] = time.Millisecond, 2*time.Millisecond, 20*time.Millisecond
	for _, step := range []struct {
		what   string
		change func()
		want   []netip.AddrPort
	}{
		{"both work", func() {}, []netip.AddrPort{near.addr, far.addr}},
		{"one works", func() { delete(w.alive, far) }, []netip.AddrPort{near.addr}},
		{"none works", func() { delete(w.alive, near) }, []netip.AddrPort{far.addr, near.addr}},
	} {
		step.change()
		w.run(2*idleInterval, nil)
		if got := w.set.worked(); !slices.Equal(got, step.want) {
			t.Errorf("%s: %v, want %v", step.what, got, step.want)
		}
	}
}

// TestRestoreForgetsNobody: who speaks to a node before it has taken up the peers of its
// last run takes no other's place in its memory.
func TestRestoreForgetsNobody(t *testing.T) {
	early, ke := newIdentity(t, "early", 2)
	late, _ := newIdentity(t, "late", 3)
	self, ks := newIdentity(t, "self", 1)
	memories := make(chan []Recent, 100)
	e := start(t, early, ke, 0, nil)
	s := start(t, self, ks, 0, func(c *Config) { c.Remember = func(list []Recent) { memories <- list } })
	s.knows(peer.Record{Node: early}, peer.Record{Node: late})
	e.knows(peer.Record{Node: self, Advertise: s.addr().String()})

	if _, _, err := e.Ping(t.Context(), self.ID); err != nil {
		t.Fatal(err)
	}
	wantKind(t, s, early.ID, peer.KindUDP, arrival)
	if err := s.do(t.Context(), func(now time.Time) { s.remember(now.Add(rememberEvery)) }); err != nil {
		t.Fatal(err)
	}
	memory := []Recent{{ID: late.ID, Addrs: []netip.AddrPort{netip.MustParseAddrPort("127.0.0.1:9")}}}
	if err := s.Restore(t.Context(), memory); err != nil {
		t.Fatal(err)
	}
	for both := false; !both; {
		select {
		case list := <-memories:
			if !slices.ContainsFunc(list, func(r Recent) bool { return r.ID == late.ID && slices.Equal(r.Addrs, memory[0].Addrs) }) {
				t.Fatalf("remembered is %v, and not %v", list, memory[0])
			}
			both = slices.ContainsFunc(list, func(r Recent) bool { return r.ID == early.ID && slices.Contains(r.Addrs, e.addr()) })
		case <-time.After(arrival):
			t.Fatal("what was remembered is not what works")
		}
	}
}
