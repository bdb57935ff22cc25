package hub

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/meshmpi/meshmpi/mesh/cert"
	"github.com/meshmpi/meshmpi/mesh/peer"
	"github.com/meshmpi/meshmpi/mesh/sites"
	"github.com/meshmpi/meshmpi/mesh/token"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience is how long a test waits for what is to happen soon.
const patience = 10 * time.Second

// clock is the time of day plus what a test adds to it.
type clock struct{ ahead atomic.Int64 }

func (c *clock) now() time.Time      { return time.Now().Add(time.Duration(c.ahead.Load())) }
func (c *clock) add(d time.Duration) { c.ahead.Add(int64(d)) }

// world is a network with one hub on a loopback port.
type world struct {
	t       testing.TB
	clock   clock // the hub's
	network peer.Network
	issuer  *cert.Issuer
	store   Store
	keys    cert.Keys
	self    peer.Node
	chain   atomic.Pointer[[][]byte]
	relay   *grants
	hub     *Hub
	addr    string
	stop    func() // of the hub
}

// member is a node and what it keeps on its disk.
type member struct {
	keys  cert.Keys
	node  peer.Node
	chain [][]byte
}

// newNetwork founds a network and its first hub's certificates.
func newNetwork(t testing.TB, cidr string) *world {
	t.Helper()
	w := &world{t: t, store: NewMemoryStore(), relay: &grants{live: map[peer.ID]int{}}}
	root, err := cert.NewRoot(peer.Network{Name: "mesh", Domain: "mesh.internal", CIDR4: netip.MustParsePrefix(cidr), CIDR6: netip.MustParsePrefix("fd00:1:2:3::/64")}, time.Now())
	check(t, err)
	w.network, err = cert.NetworkOf(root.Cert.Raw)
	check(t, err)
	w.issuer, err = root.NewIssuer("hub", time.Now())
	check(t, err)
	w.keys, err = cert.NewKeys()
	check(t, err)
	var chain [][]byte
	w.self, chain, err = AdmitFirst(w.store, w.network, w.issuer, w.keys, "hub", "core", time.Now())
	check(t, err)
	w.chain.Store(&chain)
	return w
}

// newWorld founds a network and starts its hub.
func newWorld(t testing.TB) *world {
	t.Helper()
	w := newNetwork(t, "100.80.0.0/16")
	w.start("127.0.0.1:0")
	t.Cleanup(func() { w.stop() })
	return w
}

// start serves a new hub, on the store as it is, at addr.
func (w *world) start(addr string) {
	w.t.Helper()
	ln, err := net.Listen("tcp", addr)
	check(w.t, err)
	w.addr = ln.Addr().String()
	w.hub, err = New(Config{
		Network: w.network, Self: w.self, Keys: w.keys, Chain: func() [][]byte { return *w.chain.Load() }, Issuer: w.issuer,
		Store: w.store, Relay: w.relay, Advertise: []string{w.addr}, Now: w.clock.now,
	})
	check(w.t, err)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	h := w.hub
	go func() { done <- h.Serve(ctx, ln) }()
	w.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			w.t.Errorf("Serve: %v", err)
		}
	})
}

func (w *world) token(uses int) token.Token {
	w.t.Helper()
	tok, err := w.hub.CreateToken("", uses, 0)
	check(w.t, err)
	return tok
}

// join has a node with new keys join over the wire.
func (w *world) join(tok token.Token, name string) (member, error) {
	k, err := cert.NewKeys()
	check(w.t, err)
	return w.joinWith(tok, name, k)
}

func (w *world) joinWith(tok token.Token, name string, k cert.Keys) (member, error) {
	res, err := Join(context.Background(), JoinRequest{Token: tok, Name: name, Keys: k, Now: w.clock.now})
	return member{k, res.Node, res.Chain}, err
}

// member enters a node without the wire.
func (w *world) member(name string) member {
	w.t.Helper()
	k, err := cert.NewKeys()
	check(w.t, err)
	n, chain, err := w.hub.ledger.admit(nil, applicant{id: k.ID(), signKey: k.Public(), name: name, site: "s"}, w.clock.now())
	check(w.t, err)
	w.hub.board.enter(n, chain)
	return member{k, n, chain}
}

// watcher is a node's client and what it was told.
type watcher struct {
	t      testing.TB
	Client *Client
	clock  clock
	leave  func() time.Duration // ends Run; how long that took

	mu      sync.Mutex // guards what follows
	sets    int        // calls of Records
	first   []peer.Record
	recs    map[peer.ID]peer.Record
	signals []string
	grants  []string
	chains  [][][]byte
	revoked map[peer.ID]cert.Revocation
	limits  []sites.Limits
	ups     int
	err     error
	news    chan struct{} // size 1: something came
}

// watch makes a client for a member. start runs it.
func (w *world) watch(m member, hubs ...string) *watcher {
	v := &watcher{t: w.t, recs: map[peer.ID]peer.Record{}, revoked: map[peer.ID]cert.Revocation{}, news: make(chan struct{}, 1)}
	if hubs == nil {
		hubs = []string{w.addr}
	}
	v.Client = NewClient(ClientConfig{
		Network: w.network, Self: m.node, Keys: m.keys, Hubs: hubs, Now: v.clock.now, Events: v.events(), Cores: 4,
		Chain: func() [][]byte {
			v.mu.Lock()
			defer v.mu.Unlock()
			if n := len(v.chains); n > 0 {
				return v.chains[n-1]
			}
			return m.chain
		},
	})
	return v
}

// connect runs a client for a member until the test ends and waits for its session.
func (w *world) connect(m member) *watcher { w.t.Helper(); return w.connectBy(m, nil) }

// connectBy is connect with a way to dial of its own; nil: the client's.
func (w *world) connectBy(m member, dial dialFunc) *watcher {
	w.t.Helper()
	v := w.watch(m)
	if dial != nil {
		v.Client.cfg.Dial = dial
	}
	v.start()
	v.until("a session", func() bool { return v.ups > 0 && v.recs[m.node.ID].Up })
	return v
}

func (v *watcher) start() {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); _ = v.Client.Run(ctx) }() // ends with leave
	v.leave = sync.OnceValue(func() time.Duration {
		began := time.Now()
		cancel()
		<-done
		return time.Since(began)
	})
	v.t.Cleanup(func() { v.leave() })
}

// note takes something down.
func (v *watcher) note(f func()) {
	v.mu.Lock()
	f()
	v.mu.Unlock()
	select {
	case v.news <- struct{}{}:
	default:
	}
}

func (v *watcher) events() Events {
	return Events{
		Records: func(_ string, full bool, recs []peer.Record) {
			v.note(func() {
				if full {
					clear(v.recs)
				}
				if v.sets++; v.sets == 1 {
					v.first = recs
				}
				for _, r := range recs {
					if v.recs[r.Node.ID] = r; r.Removed {
						delete(v.recs, r.Node.ID)
					}
				}
			})
		},
		Signal: func(_ peer.ID, msg []byte) { v.note(func() { v.signals = append(v.signals, string(msg)) }) },
		Grant: func(_ string, _ netip.AddrPort, g json.RawMessage) {
			v.note(func() { v.grants = append(v.grants, string(g)) })
		},
		Chain:   func(chain [][]byte) { v.note(func() { v.chains = append(v.chains, chain) }) },
		Revoked: func(r cert.Revocation) { v.note(func() { v.revoked[r.ID] = r }) },
		Limits:  func(_ string, l sites.Limits) { v.note(func() { v.limits = append(v.limits, l) }) },
		Session: func(_ string, up bool, err error) {
			v.note(func() {
				if v.err = err; up {
					v.ups++
				}
			})
		},
	}
}

// until waits for what is to come soon.
func (v *watcher) until(what string, ok func() bool) {
	v.t.Helper()
	late := time.After(patience)
	for {
		v.mu.Lock()
		good := ok()
		v.mu.Unlock()
		if good {
			return
		}
		select {
		case <-v.news:
		case <-late:
			v.t.Fatalf("%s did not come within %v", what, patience)
		}
	}
}

// grants is a relay that only counts.
type grants struct {
	mu   sync.Mutex
	live map[peer.ID]int
}

func (g *grants) Admit(id peer.ID, until time.Time) (json.RawMessage, error) {
	if time.Until(until) <= 0 {
		return nil, errors.New("it is over already")
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.live[id]++
	return json.RawMessage(`{"for":"` + id.String() + `"}`), nil
}

func (g *grants) Revoke(id peer.ID) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.live, id)
}

func (g *grants) has(id peer.ID) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.live[id] > 0
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// oneLine reports an error whose text a user would not want to read.
func oneLine(t testing.TB, err error) {
	t.Helper()
	if err == nil {
		return
	}
	for _, r := range err.Error() {
		if r < ' ' || r == 0x7f {
			t.Errorf("not one line: %q", err)
			return
		}
	}
}
