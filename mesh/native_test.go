package mesh

import (
	"context"
	"errors"
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/meshmpi/meshmpi/internal/eventually"
	"github.com/meshmpi/meshmpi/mesh/peer"
)

// cable is a LAN of two nodes.
type cable struct {
	mu      sync.Mutex // guards what follows
	allowed bool
	cut     bool
	passes  int  // bytes of the largest packet
	between bool // somebody stands between, and relays what he sees
	ends    map[netip.Addr]*cableEnd
}

// cableEnd is a node's LAN.
type cableEnd struct {
	*cable
	own      netip.Addr
	node     *testNode
	open     bool
	admitted bool
	used     int
}

func (e *cableEnd) Allowed() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.allowed
}

func (e *cableEnd) Open(_ peer.Node, at netip.Addr) (Segment, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !at.IsLoopback() {
		return Segment{}, errors.New("not on the LAN")
	}
	e.open, e.admitted, e.used = true, false, 0
	s := Segment{MTU: 9000, Ends: "a and b"}
	if e.between {
		s.Ends = e.own.String() + " and somebody"
	}
	return s, nil
}

func (e *cableEnd) Admit(peer.Node) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.admitted = true
	return nil
}

func (e *cableEnd) Still(peer.Node) bool { return true }

func (e *cableEnd) Use(n peer.Node, mtu int) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if other := e.ends[n.Addr4]; !e.open || mtu != 0 && (other == nil || !other.admitted) {
		return errors.New("not open, or what goes there is not let in")
	}
	e.used = mtu
	return nil
}

func (e *cableEnd) Close(peer.Node) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.open, e.admitted, e.used = false, false, 0
	return nil
}

func (e *cableEnd) Probe(n peer.Node, pkt []byte) {
	e.mu.Lock()
	other := e.ends[n.Addr4]
	passes := e.open && !e.cut && other != nil && other.open && len(pkt)+nearHeaders <= e.passes
	e.mu.Unlock()
	if passes {
		other.node.Near(pkt, e.own)
	}
}

func (w *cable) set(change func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	change()
}

// usedBy returns the MTU with which a node uses the LAN.
func (w *cable) usedBy(n *testNode) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.ends[n.node.Addr4].used
}

func (w *cable) opened(n *testNode) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.ends[n.node.Addr4].open
}

// wired starts two nodes on a LAN that have talked to each other.
func wired(t *testing.T) (w *cable, a, b *testNode) {
	t.Helper()
	w = &cable{passes: 9000, ends: map[netip.Addr]*cableEnd{}}
	na, ka := newIdentity(t, "a", 1)
	nb, kb := newIdentity(t, "b", 2)
	begin := func(n peer.Node, key [32]byte) *testNode {
		e := &cableEnd{cable: w, own: n.Addr4}
		w.ends[n.Addr4] = e
		e.node = start(t, n, key, 0, func(c *Config) { c.LAN = e })
		return e.node
	}
	a, b = begin(na, ka), begin(nb, kb)
	a.knows(peer.Record{Node: nb, Up: true, Advertise: b.addr().String()})
	b.knows(peer.Record{Node: na, Up: true})
	a.tun.out <- packet(na.Addr4, nb.Addr4, "first")
	b.arrives(t, "first", arrival)
	return w, a, b
}

func kindTo(t *testing.T, n *testNode) peer.Kind {
	t.Helper()
	peers, err := n.Peers(context.Background())
	if err != nil || len(peers) != 1 {
		t.Fatalf("%s: peers are %v, %v", n.node.Name, peers, err)
	}
	return peers[0].Path.Kind
}

// TestNativePath: the LAN is used where the site allows it and probes pass, with the
// MTU that passes, and left for the other path when it no longer works.
func TestNativePath(t *testing.T) {
	w, a, b := wired(t)
	bothUse := func(what string, mtu int) {
		t.Helper()
		eventually.Holds(t, what, func() bool { return w.usedBy(a) == mtu && w.usedBy(b) == mtu })
	}
	time.Sleep(2 * sampleEvery) // in which it must not be used: nobody has allowed it
	if got := w.usedBy(a); got != 0 || kindTo(t, a) != peer.KindUDP {
		t.Fatalf("not allowed, the LAN is used with an MTU of %d", got)
	}
	w.set(func() { w.allowed = true })
	bothUse("both use the LAN", 9000)
	if got := kindTo(t, a); got != peer.KindNative {
		t.Errorf("the path is %v", got)
	}
	if rtt, info, err := a.Ping(context.Background(), b.node.ID); err != nil || rtt <= 0 || info.Kind != peer.KindNative {
		t.Errorf("a ping takes %v by %v, %v", rtt, info.Kind, err)
	}
	w.set(func() { w.passes = 1500 })
	bothUse("both have found that jumbo frames no longer pass", 1500)
	w.set(func() { w.cut = true })
	bothUse("both have left the cut LAN", 0)
	if got := kindTo(t, a); got != peer.KindUDP {
		t.Errorf("the path is %v", got)
	}
	w.set(func() { w.cut = false })
	bothUse("both use the LAN again", 1500)
	w.set(func() { w.allowed = false })
	bothUse("both have left the LAN that is no longer allowed", 0)
	eventually.Holds(t, "both have closed it", func() bool { return !w.opened(a) && !w.opened(b) })
}

// TestNativeRevoked: a node that is cut off is cut off from the LAN, too.
func TestNativeRevoked(t *testing.T) {
	w, a, b := wired(t)
	w.set(func() { w.allowed = true })
	eventually.Holds(t, "a uses the LAN", func() bool { return w.usedBy(a) != 0 })
	a.knows(peer.Record{Node: b.node, Up: true, Revoked: true})
	eventually.Holds(t, "a has closed the LAN", func() bool { return !w.opened(a) })
	if got := w.usedBy(a); got != 0 {
		t.Errorf("the LAN is used with an MTU of %d", got)
	}
	a.Near(appendPing(nil, &pairKey{}, b.node.ID.Short(), 1, 1, 0, 0), b.node.Addr4) // neither it nor what it forges opens anything
	time.Sleep(2 * sampleEvery)                                                      // in which it must not
	if w.opened(a) {
		t.Error("the LAN is open to a revoked node")
	}
}

// TestNativeOutlivesDaemon: who answers by no path at all may still be reached over the
// LAN, by its kernel.
func TestNativeOutlivesDaemon(t *testing.T) {
	w, a, b := wired(t)
	w.set(func() { w.allowed = true })
	eventually.Holds(t, "a uses the LAN", func() bool { return w.usedBy(a) != 0 })
	err := a.do(context.Background(), func(now time.Time) { // long ago: what goes over the LAN the mesh does not see
		for _, r := range a.loop.remotes {
			r.lastUsed = now.Add(-2 * busyFor)
			r.paths.use(now, false)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	b.stop()
	eventually.Holds(t, "a has noticed", func() bool {
		peers, err := a.Peers(context.Background())
		return err == nil && len(peers) == 1 && !peers[0].Works
	})
	time.Sleep(2 * nearEvery) // in which it must not be left
	if w.usedBy(a) == 0 {
		t.Error("the LAN was left for a path that does not work either")
	}
}

// TestNativeBetween: whoever stands between two nodes, and passes on their probes, has
// neither of them use what it takes for the other's LAN.
func TestNativeBetween(t *testing.T) {
	w, a, b := wired(t)
	w.set(func() { w.allowed, w.between = true, true })
	eventually.Holds(t, "both try the LAN", func() bool { return w.opened(a) && w.opened(b) })
	time.Sleep(2 * sampleEvery) // in which it must not be used
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, e := range w.ends {
		if e.used != 0 || e.admitted {
			t.Errorf("%s uses the LAN with an MTU of %d, lets all in: %t", e.node.node.Name, e.used, e.admitted)
		}
	}
}

// TestNativeWithinSite: nodes of other sites are not reached natively, whatever is allowed.
func TestNativeWithinSite(t *testing.T) {
	w := &cable{passes: 9000, allowed: true, ends: map[netip.Addr]*cableEnd{}}
	na, ka := newIdentity(t, "a", 1)
	nb, kb := newIdentity(t, "b", 2)
	nb.Site = "other"
	e := &cableEnd{cable: w, own: na.Addr4}
	w.ends[na.Addr4] = e
	a, b := start(t, na, ka, 0, func(c *Config) { c.LAN = e }), start(t, nb, kb, 0, nil)
	a.knows(peer.Record{Node: nb, Up: true, Advertise: b.addr().String()})
	b.knows(peer.Record{Node: na, Up: true})
	a.tun.out <- packet(na.Addr4, nb.Addr4, "first")
	b.arrives(t, "first", arrival)
	time.Sleep(2 * sampleEvery) // in which it must not be opened
	w.mu.Lock()
	defer w.mu.Unlock()
	if e.open {
		t.Error("the LAN is open to a node of another site")
	}
}
