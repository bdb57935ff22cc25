package node

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/meshmpi/meshmpi/internal/eventually"
	"github.com/meshmpi/meshmpi/mesh"
	"github.com/meshmpi/meshmpi/mesh/peer"
	"github.com/meshmpi/meshmpi/mesh/udp"
	"github.com/meshmpi/meshmpi/relay"
	"github.com/meshmpi/meshmpi/tun"
	"golang.org/x/sync/errgroup"

	"github.com/meshmpi/meshmpi/mesh/cert"
	"github.com/meshmpi/meshmpi/mesh/hub"
)

// TestRevokedOnce: a revoked node is told so at every attempt to connect; it
// says so once.
func TestRevokedOnce(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state")
	found(t, dir)
	d := remembering(t, dir)
	l := newLinks(d, nil)
	for range 5 {
		l.revoked(cert.Revocation{ID: d.id.self.ID, Name: "a1"})
		l.revoked(cert.Revocation{ID: other("stranger", "x", 9).Node.ID, Name: "stranger"})
	}
	if got := d.notes.all(); len(got) != 1 || !strings.Contains(got[0], "join with a new token") {
		t.Errorf("notes: %q", got)
	}
	if got := d.events.listen().take(); len(got) != 1 {
		t.Errorf("events: %v", got)
	}
}

// TestSessionEvents: an event says what is wrong with a session, up or not.
func TestSessionEvents(t *testing.T) {
	d := knowing()
	d.log = slog.New(slog.DiscardHandler)
	l := newLinks(d, nil)
	l.session("hub:1", true, nil)
	l.session("hub:1", true, errors.New("its clock is wrong"))
	l.session("hub:1", false, errors.New("it is silent"))
	var got []string
	for _, e := range d.events.listen().take() {
		got = append(got, e.Text)
	}
	want := []string{"control session with hub:1 is up", "control session with hub:1 is up, but its clock is wrong", "control session with hub:1 is down: it is silent"}
	if !slices.Equal(got, want) {
		t.Errorf("events say %q, want %q", got, want)
	}
}

// TestToldAnew: a list of nodes is of the time in which a hub answers; after that who is
// not on it may have joined, until a hub has told its next.
func TestToldAnew(t *testing.T) {
	d, l := meshed(t)
	d.saved = newSaver(func(error) {})
	l.session("hub:1", true, nil)
	l.records("hub:1", true, nil)
	if !l.told.Load() {
		t.Error("nobody is told of with a hub's list")
	}
	l.session("hub:1", false, errors.New("it is silent"))
	l.session("hub:1", true, nil)
	if l.told.Load() {
		t.Error("the list from before counts with the next session, which has told none")
	}
}

// TestHubs: a hub reaches itself where it listens, and others as it was told.
func TestHubs(t *testing.T) {
	d := knowing()
	d.port = 4000
	d.id.config.Hubs = []string{"127.0.0.1:51820", "other.example.org:51820"}
	d.id.config.Advertise = "hub.example.org:51820"
	if got := d.hubs(); !slices.Equal(got, d.id.config.Hubs) {
		t.Errorf("no hub: %q", got)
	}
	d.hub = &hubSide{}
	if got, want := d.hubs(), []string{"127.0.0.1:4000", "other.example.org:51820"}; !slices.Equal(got, want) {
		t.Errorf("hubs() = %q, want %q", got, want)
	}
}

// TestKnowsWhoIsUp: a hub that has just started, and hears from nobody yet, does
// not have a node take its site's link for its own; nor does one of two.
func TestKnowsWhoIsUp(t *testing.T) {
	now := time.Now()
	old, fresh := hub.SessionInfo{Up: true, Since: now.Add(-time.Hour)}, hub.SessionInfo{Up: true, Since: now.Add(-time.Second)}
	down := hub.SessionInfo{Since: now.Add(-time.Second)}
	for _, tc := range []struct {
		sessions []hub.SessionInfo
		want     bool
	}{
		{nil, false}, {[]hub.SessionInfo{down}, false}, {[]hub.SessionInfo{fresh}, false},
		{[]hub.SessionInfo{old, fresh}, false}, {[]hub.SessionInfo{old}, true}, {[]hub.SessionInfo{down, old}, true},
	} {
		if got := knowsWhoIsUp(tc.sessions, now); got != tc.want {
			t.Errorf("%+v: %v", tc.sessions, got)
		}
	}
}

// TestHubStartsAnew: nodes stay up that a hub which has just started has not heard
// from yet, until it has had time to; what it says of others counts at once.
func TestHubStartsAnew(t *testing.T) {
	d := knowing(other("a2", "alpha", 2), other("a3", "alpha", 3), other("a4", "alpha", 4))
	l := newLinks(d, nil)
	down := func(r *peer.Record) { r.Up = false }
	recs := []peer.Record{other("a2", "alpha", 2, down), other("a3", "alpha", 3, down), other("a4", "alpha", 4, down), other("a5", "alpha", 5, down)}
	say := func(full bool, recs ...peer.Record) {
		l.keepUp(full, recs, time.Now())
		d.dir.Apply(full, recs)
	}
	up := func(when string, want ...string) {
		t.Helper()
		var got []string
		for _, r := range d.dir.All() {
			if r.Up {
				got = append(got, r.Node.Name)
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: %q are up, want %q", when, got, want)
		}
	}
	say(true, recs...)
	up("a new hub's list", "a2", "a3", "a4")
	say(false, other("a2", "alpha", 2))
	say(false, other("a4", "alpha", 4, down))
	up("a2 has come back and a4 has gone", "a2", "a3")
	for _, r := range l.missing() {
		d.dir.Apply(false, []peer.Record{r})
	}
	up("all had time to", "a2")
	if l.missing() != nil {
		t.Error("they are missed twice")
	}
}

// TestBothFamilies: a hub that is known by a name is asked at its addresses of both
// families what NATs are between, whichever the control session has taken.
func TestBothFamilies(t *testing.T) {
	d := knowing()
	d.log = slog.New(slog.DiscardHandler)
	d.group = new(errgroup.Group)
	l := newLinks(d, nil)
	ctx, cancel := context.WithCancel(t.Context())
	l.ctx = ctx
	l.lookUp = func(_ context.Context, _, host string) ([]netip.Addr, error) {
		if host != "hub.example.org" {
			t.Errorf("looks up %q", host)
		}
		return []netip.Addr{netip.MustParseAddr("2001:db8::1"), netip.MustParseAddr("::ffff:192.0.2.1")}, nil
	}
	own := must(json.Marshal(relay.Grant{Relay: d.id.self.Name, Key: [32]byte{1}, Expires: time.Now().Add(time.Hour)}))(t)
	want := []netip.AddrPort{netip.MustParseAddrPort("192.0.2.1:51820"), netip.MustParseAddrPort("192.0.2.2:51820"), netip.MustParseAddrPort("[2001:db8::1]:51820")}
	for range 2 { // a grant comes with every session
		l.grant("hub.example.org:51820", netip.MustParseAddrPort("[2001:db8::1]:51820"), own)
		l.grant("192.0.2.2:51820", netip.MustParseAddrPort("192.0.2.2:51820"), own)
		eventually.Holds(t, "both families are known", func() bool { return slices.Equal(l.stunServers(), want) })
	}
	cancel()
	_ = d.group.Wait()
}

// meshed returns a node's links on a mesh that runs until the test ends.
func meshed(t *testing.T) (*daemon, *links) {
	t.Helper()
	d := knowing()
	d.log = slog.New(slog.DiscardHandler)
	ctx, cancel := context.WithCancel(t.Context())
	sock := must(mesh.NewSocket(udp.Ports{}))(t)
	stack := must(tun.NewStack(d.id.self.Addrs(), 0))(t)
	d.mesh = must(mesh.New(mesh.Config{Network: d.id.network, Self: d.id.self, Socket: sock, TUN: stack, Directory: d.dir}))(t)
	d.group = new(errgroup.Group)
	d.group.Go(func() error { return d.mesh.Run(ctx) })
	l := newLinks(d, sock)
	l.ctx = ctx
	t.Cleanup(func() {
		cancel()
		if err := d.group.Wait(); err != nil {
			t.Error(err)
		}
		stack.Close()
	})
	return d, l
}

// TestRelayOfOtherFamily: a relay that cannot be reached by UDP in the family of the
// control session is found in the other.
func TestRelayOfOtherFamily(t *testing.T) {
	d, l := meshed(t)
	moves := newMovingRelay(t)
	there := moves.at(t)
	l.lookUp = func(context.Context, string, string) ([]netip.Addr, error) { return []netip.Addr{there.Addr()}, nil }
	l.grant("hub.example.org:1", netip.AddrPortFrom(netip.IPv6Loopback(), there.Port()),
		must(moves.srv.Admit(d.id.self.ID, time.Now().Add(time.Hour)))(t))
	eventually.Holds(t, "the relay is bound", func() bool {
		l.mu.Lock()
		defer l.mu.Unlock()
		return l.relays["r1"].Bound()
	})
}

// TestRelayMoves: a relay that is offered at a second address while it works at
// the first is looked for there once it is silent, without another offer.
func TestRelayMoves(t *testing.T) {
	d, l := meshed(t)

	moves := newMovingRelay(t)
	offer := func(at netip.AddrPort) {
		l.grant("hub:1", at, must(moves.srv.Admit(d.id.self.ID, time.Now().Add(time.Hour)))(t))
	}
	bound := func(at netip.AddrPort) func() bool {
		return func() bool {
			l.mu.Lock()
			defer l.mu.Unlock()
			r := l.relays["r1"]
			return r != nil && r.addr == at && r.Bound()
		}
	}
	first, second := moves.at(t), moves.at(t)
	offer(first)
	eventually.Holds(t, "the relay is bound", bound(first))
	offer(second)
	if !bound(first)() {
		t.Error("a second address takes a working relay away")
	}
	moves.leave(first)
	l.mu.Lock()
	l.relays["r1"].Check()
	l.mu.Unlock()
	eventually.Holds(t, "the relay is bound where it moved", bound(second))
}

// movingRelay is a relay that answers at several sockets.
type movingRelay struct {
	srv *relay.Server

	mu    sync.Mutex // guards what follows
	socks map[netip.AddrPort]*net.UDPConn
	from  *net.UDPConn // whose datagram is being answered
}

func newMovingRelay(t *testing.T) *movingRelay {
	m := &movingRelay{socks: map[netip.AddrPort]*net.UDPConn{}}
	m.srv = relay.NewServer(relay.ServerConfig{Name: "r1", Send: func(pkts [][]byte, to netip.AddrPort) error {
		for _, p := range pkts {
			if _, err := m.from.WriteToUDPAddrPort(p, to); err != nil {
				return err
			}
		}
		return nil
	}})
	return m
}

// at opens another socket until the test ends.
func (m *movingRelay) at(t *testing.T) netip.AddrPort {
	c := must(net.ListenUDP("udp4", net.UDPAddrFromAddrPort(netip.MustParseAddrPort("127.0.0.1:0"))))(t)
	addr := c.LocalAddr().(*net.UDPAddr).AddrPort()
	m.socks[addr] = c
	var reader sync.WaitGroup
	reader.Go(func() {
		buf := make([]byte, 2000)
		for {
			n, from, err := c.ReadFromUDPAddrPort(buf)
			if err != nil {
				return
			}
			m.mu.Lock()
			m.from = c
			m.srv.Input([][]byte{buf[:n]}, from)
			m.mu.Unlock()
		}
	})
	t.Cleanup(func() { c.Close(); reader.Wait() })
	return addr
}

func (m *movingRelay) leave(addr netip.AddrPort) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.socks[addr].Close()
}

func TestStanding(t *testing.T) {
	for _, tc := range []struct {
		left time.Duration
		hub  bool
		want string
	}{
		{20 * 24 * time.Hour, true, ""},
		{20 * 24 * time.Hour, false, "no hub answers; known nodes go on until certificates expire, this one's in 20 days"},
		{5 * 24 * time.Hour, true, "expires in 5 days and no hub has renewed it"},
		{90 * time.Minute, false, "in 1h30m0s"},
		{-time.Second, true, "has expired"},
	} {
		if got := standing(tc.left, tc.hub); !strings.Contains(got, tc.want) || (got == "") != (tc.want == "") {
			t.Errorf("standing(%v, %v) = %q, want %q", tc.left, tc.hub, got, tc.want)
		}
	}
}

// TestRelayComesBack: a relay known by two addresses of which only the first takes
// UDP from here. It is silent for a while, as when this host has no network, and comes
// back where it was: it must be bound again, though no hub offers it anew.
func TestRelayComesBack(t *testing.T) {
	d, l := meshed(t)
	moves := newMovingRelay(t)
	offer := func(at netip.AddrPort) {
		l.grant("hub:1", at, must(moves.srv.Admit(d.id.self.ID, time.Now().Add(time.Hour)))(t))
	}
	is := func(bound bool) func() bool {
		return func() bool {
			l.mu.Lock()
			defer l.mu.Unlock()
			r := l.relays["r1"]
			return r != nil && r.Bound() == bound
		}
	}
	first, second := moves.at(t), moves.at(t)
	moves.leave(second) // TCP gets there, UDP does not
	offer(first)
	eventually.Holds(t, "the relay is bound", is(true))
	offer(second)
	eventually.Holds(t, "the relay is still bound", is(true))
	moves.mu.Lock() // it answers no more
	l.mu.Lock()
	l.relays["r1"].Rebind()
	l.mu.Unlock()
	eventually.Holds(t, "the relay is lost", is(false))
	eventually.Holds(t, "the relay is looked for elsewhere", func() bool {
		l.mu.Lock()
		defer l.mu.Unlock()
		return l.relays["r1"].addr == second
	})
	moves.mu.Unlock() // it answers again, where it was
	eventually.Holds(t, "the relay is found again", is(true))
}
