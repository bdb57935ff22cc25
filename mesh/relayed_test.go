package mesh

import (
	"context"
	"net/netip"
	"sync/atomic"
	"testing"
	"time"

	"github.com/meshmpi/meshmpi/mesh/peer"
	"github.com/meshmpi/meshmpi/mesh/udp"
	"github.com/meshmpi/meshmpi/relay"
)

// testRelay is a hub's relay on a socket of its own.
type testRelay struct {
	srv  *relay.Server
	node *testNode
}

// relayHub runs a node that relays.
func relayHub(t *testing.T) *testRelay {
	t.Helper()
	id, key := newIdentity(t, "hub", 99)
	r := &testRelay{}
	r.node = start(t, id, key, 0, func(c *Config) {
		r.srv = relay.NewServer(relay.ServerConfig{Name: "hub", Send: c.Socket.Send})
		c.Socket.Forward(r.srv)
	})
	return r
}

// bound is the relay as a node uses it.
type bound struct {
	*relay.Client
	addr netip.AddrPort
}

func (b bound) Name() string              { return "hub" }
func (b bound) Addr() netip.AddrPort      { return b.addr }
func (b bound) Path(to peer.ID) peer.Path { return b.Client.Path(to) }

// join binds a node to the relay.
func (r *testRelay) join(t *testing.T, n *testNode) {
	t.Helper()
	raw, err := r.srv.Admit(n.node.ID, time.Now().Add(time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	g, err := relay.ParseGrant(raw)
	if err != nil {
		t.Fatal(err)
	}
	var b bound
	b.addr = r.node.addr()
	b.Client = relay.NewClient(relay.ClientConfig{Self: n.node.ID, Send: n.sock.Send,
		Bound: func(netip.AddrPort) { n.AddRelay(b) }})
	b.SetGrant(g, b.addr)
	n.AddRelay(b)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() { defer close(ended); _ = b.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-ended })
}

// lateFinder finds the peer's address once it is told to.
type lateFinder struct {
	open atomic.Bool
	addr func() netip.AddrPort
	path func(netip.AddrPort) peer.Path
}

func (f *lateFinder) Find(ctx context.Context, _ peer.ID, _ peer.Signal) (peer.Path, error) {
	if !f.open.Load() {
		return nil, peer.ErrNoPath
	}
	return f.path(f.addr()), nil
}

func (f *lateFinder) Answer(ctx context.Context, _ peer.ID, _ []byte, _ peer.Signal) (peer.Path, error) {
	return nil, peer.ErrNoPath
}

// TestRelayedThenDirect: a pair that nothing joins talks through the relay,
// moves up when a finder finds a path, and no longer needs the relay then.
func TestRelayedThenDirect(t *testing.T) {
	hub := relayHub(t)
	na, ka := newIdentity(t, "a", 1)
	nb, kb := newIdentity(t, "b", 2)
	var a, b *testNode
	f := &lateFinder{}
	withFinder := func(c *Config) { c.Finder, f.path = f, c.Socket.NewPath }
	a = start(t, na, ka, 0, withFinder)
	b = start(t, nb, kb, 0, withFinder)
	f.addr = func() netip.AddrPort { return b.addr() }
	if string(na.ID[:]) > string(nb.ID[:]) {
		f.addr = func() netip.AddrPort { return a.addr() }
	}
	for _, n := range []*testNode{a, b} {
		n.knows(peer.Record{Node: na, Up: true}, peer.Record{Node: nb, Up: true})
		hub.join(t, n)
	}

	a.tun.out <- packet(na.Addr4, nb.Addr4, "over the relay")
	b.arrives(t, "over the relay", arrival)
	b.tun.out <- packet(nb.Addr4, na.Addr4, "back over the relay")
	a.arrives(t, "back over the relay", arrival)
	wantKind(t, a, nb.ID, peer.KindRelayUDP, arrival)

	f.open.Store(true)
	wantKind(t, a, nb.ID, peer.KindUDP, 30*time.Second)
	wantKind(t, b, na.ID, peer.KindUDP, 5*time.Second)
	hub.node.stop()
	a.tun.out <- packet(na.Addr4, nb.Addr4, "without the hub")
	b.arrives(t, "without the hub", arrival)
}

// wantKind waits until n's path to a peer works and is of the kind.
func wantKind(t *testing.T, n *testNode, id peer.ID, kind peer.Kind, within time.Duration) {
	t.Helper()
	deadline := time.Now().Add(within)
	var last []PeerStatus
	for time.Now().Before(deadline) {
		var err error
		if last, err = n.Peers(t.Context()); err != nil {
			t.Fatal(err)
		}
		for _, p := range last {
			if p.ID == id && p.Works && p.Path.Kind == kind {
				return
			}
		}
		<-time.After(20 * time.Millisecond) // between looks; the deadline decides
	}
	t.Fatalf("%s: no working %v path to the peer within %v: %+v", n.node.Name, kind, within, last)
}

// TestRelayIsDoubted: a relay through which pings get lost is asked whether it still
// knows us, well before the path is given up, and again while it stays silent; so is
// every relay when the path in use loses pings.
func TestRelayIsDoubted(t *testing.T) {
	for _, direct := range []bool{false, true} {
		m := idleMesh(t)
		a, _ := newIdentity(t, "a", 2)
		m.cfg.Directory.Apply(false, []peer.Record{{Node: a}})
		got := &taken{}
		m.AddRelay(stubRelay{relayAddr, got})
		now := time.Now()
		m.catchUp(now)
		r := m.configure(now, a.ID)
		relayed := r.paths.find(via{relay: "relay"})
		c := relayed
		if direct {
			c = m.addDirect(now, r, otherAddr, told)
			m.ponged(now, r, probe{txid: r.paths.pinged(now, relayed)})
		}
		m.ponged(now, r, probe{txid: r.paths.pinged(now, c)})
		if r.paths.current != c {
			t.Fatal("the path is not in use")
		}
		passed, first := time.Duration(0), time.Duration(0)
		serve := func(until func() bool) {
			for limit := passed + maxSilence; !until() && passed < limit; passed += 50 * time.Millisecond {
				m.serve(now.Add(passed), r)
				if got.checked > 0 && first == 0 {
					first = passed
				}
			}
		}
		serve(func() bool { return c.state != up })
		if c.state == up || got.checked == 0 || first > 1500*time.Millisecond {
			t.Errorf("direct: %v: the relay was asked %d times, first after %v; the path's state is %d; want within 1.5 s, and down", direct, got.checked, first, c.state)
		}
		if direct {
			continue
		}
		before := got.checked
		if serve(func() bool { return got.checked > before }); got.checked == before {
			t.Error("a relay that stays silent is not asked again")
		}
	}
}

func BenchmarkBindSend(b *testing.B) {
	pair, err := udp.Listen(udp.Ports{})
	if err != nil {
		b.Fatal(err)
	}
	defer pair.Close()
	bind := newBind(pair)
	var p peer.Path = &direct{pair, netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), pair.Port())}
	e := &Endpoint{}
	e.path.Store(&p)
	bufs := make([][]byte, 64)
	for i := range bufs {
		bufs[i] = make([]byte, 1452, 65535)
		bufs[i][0] = 4
	}
	b.SetBytes(64 * 1452)
	b.ReportAllocs()
	for b.Loop() {
		if err := bind.Send(bufs, e); err != nil {
			b.Fatal(err)
		}
	}
}
