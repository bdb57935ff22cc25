package ice

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/meshmpi/meshmpi/internal/simnet"
	"github.com/meshmpi/meshmpi/mesh/peer"
)

// TestDirectByNAT puts the two nodes behind every pair of NATs.
func TestDirectByNAT(t *testing.T) {
	type kind = simnet.Kind
	const (
		plain     = simnet.Plain
		cone      = simnet.Cone
		addr      = simnet.AddressRestricted
		portR     = simnet.PortRestricted
		symmetric = simnet.Symmetric
	)
	for _, tt := range []struct {
		a, b kind
		why  string // "" where a direct path exists
	}{
		{plain, plain, ""},
		{plain, symmetric, ""},
		{cone, cone, ""},
		{cone, addr, ""},
		{cone, portR, ""},
		{cone, symmetric, ""},
		{symmetric, cone, ""},
		{addr, addr, ""},
		{addr, portR, ""},
		{addr, symmetric, ""},
		{symmetric, addr, ""},
		{portR, portR, ""},
		{portR, symmetric, "the peer's NAT maps per destination"},
		{symmetric, portR, "our NAT maps per destination"},
		{symmetric, symmetric, "both NATs map per destination"},
	} {
		t.Run(tt.a.String()+" to "+tt.b.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				a := w.node(w.site("10.1.0.0/24", simnet.NATConfig{Kind: tt.a}))
				b := w.node(w.site("10.2.0.0/24", simnet.NATConfig{Kind: tt.b}))
				find, answer := w.meet(a, b, 5*time.Second)
				if tt.why == "" {
					if find.err != nil || answer.err != nil {
						t.Fatalf("find: %v\nanswer: %v", find, answer)
					}
					if slowest := max(find.took, answer.took); slowest > 400*time.Millisecond {
						t.Errorf("took %v, want at most 400ms at a round trip of 20ms", slowest)
					}
					t.Logf("find %v, answer %v", find, answer)
					return
				}
				for _, o := range []outcome{find, answer} {
					if !errors.Is(o.err, peer.ErrNoPath) || strings.Contains(o.err.Error(), "\n") {
						t.Errorf("got %v, want one line wrapping %v", o, peer.ErrNoPath)
					}
				}
				if !strings.Contains(find.err.Error(), tt.why) {
					t.Errorf("got %q, want it to say %q", find.err, tt.why)
				}
				if find.took != 5*time.Second {
					t.Errorf("gave up after %v, want the context's 5s", find.took)
				}
			})
		})
	}
}

// TestHostsFirst expects the LAN address to win inside a site, whatever the NAT
// would also allow, with addresses on the list that lead nowhere.
func TestHostsFirst(t *testing.T) {
	for _, tt := range []struct {
		name string
		nat  simnet.NATConfig
	}{
		{"no hairpin", simnet.NATConfig{Kind: simnet.PortRestricted}},
		{"hairpin", simnet.NATConfig{Kind: simnet.Cone, Hairpin: true}},
		{"symmetric", simnet.NATConfig{Kind: simnet.Symmetric}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				lan := w.site("10.1.0.0/24", tt.nat)
				a, b := w.node(lan), w.node(lan)
				both := netip.MustParseAddr("172.17.0.1") // a bridge that each host has
				a.extra, b.extra = []netip.Addr{both}, []netip.Addr{both}
				find, answer := w.meet(a, b, 5*time.Second)
				if find.remote != b.addr() || answer.remote != a.addr() {
					t.Fatalf("find: %v, want %v\nanswer: %v, want %v", find, b.addr(), answer, a.addr())
				}
				if find.took > 200*time.Millisecond {
					t.Errorf("took %v, want at most 200ms", find.took)
				}
			})
		})
	}
}

// TestManyAtOnce has one node find 24 peers behind as many NATs at the same
// time, through one socket; every other of them takes the lead.
func TestManyAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		a := w.node(w.site("10.1.0.0/24", simnet.NATConfig{Kind: simnet.PortRestricted}))
		const peers = 24
		var others []*node
		var publics []netip.AddrPort // of others
		for i := range peers {
			lan := w.sim.Network(netip.MustParsePrefix(fmt.Sprintf("10.2.%d.0/24", i)), simnet.Link{})
			nat := w.sim.NAT(lan, w.public, simnet.NATConfig{Kind: simnet.PortRestricted})
			others, publics = append(others, w.node(lan)), append(publics, netip.AddrPortFrom(nat.Public(), port))
		}
		results := make(chan error, peers)
		for i, b := range others {
			go func() {
				var find, answer, ours outcome
				if i%2 == 0 {
					find, answer = w.meet(a, b, 5*time.Second)
					ours = find
				} else {
					find, answer = w.meet(b, a, 5*time.Second)
					ours = answer
				}
				err := errors.Join(find.err, answer.err)
				if err == nil && ours.remote != publics[i] {
					err = fmt.Errorf("found %v, want %v", ours, publics[i])
				}
				results <- err
			}()
		}
		for range peers {
			if err := <-results; err != nil {
				t.Error(err)
			}
		}
		if got := a.ice.Stats(); got.Found != peers || got.QueueFull != 0 {
			t.Errorf("%+v", got)
		}
	})
}

// TestRealTime runs outside of a bubble, so that goleak sees what remains.
func TestRealTime(t *testing.T) {
	w := newWorld(t)
	a := w.node(w.site("10.1.0.0/24", simnet.NATConfig{Kind: simnet.Cone}))
	b := w.node(w.site("10.2.0.0/24", simnet.NATConfig{Kind: simnet.PortRestricted}))
	find, answer := w.meet(a, b, 10*time.Second)
	if find.err != nil || answer.err != nil {
		t.Fatalf("find: %v\nanswer: %v", find, answer)
	}
	t.Logf("find %v, answer %v", find, answer)
}

// TestIPv6Direct has nodes that share an IPv6 network, and an IPv4 one each.
func TestIPv6Direct(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		v6 := w.sim.Network(netip.MustParsePrefix("2001:db8::/64"), simnet.Link{Delay: 10 * time.Millisecond})
		a := w.node(w.site("10.1.0.0/24", simnet.NATConfig{Kind: simnet.Symmetric}), v6)
		b := w.node(v6, w.site("10.2.0.0/24", simnet.NATConfig{Kind: simnet.Symmetric}))
		find, answer := w.meet(a, b, 5*time.Second)
		if find.err != nil || answer.err != nil || !find.remote.Addr().Is6() {
			t.Fatalf("find: %v\nanswer: %v", find, answer)
		}
	})
}

// TestLossySignalsAndLinks loses a third of all datagrams and the first two
// messages of either side.
func TestLossySignalsAndLinks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.lose = 2
		w.public.SetLink(simnet.Link{Delay: 10 * time.Millisecond, Jitter: 5 * time.Millisecond, Loss: 0.3})
		a := w.node(w.site("10.1.0.0/24", simnet.NATConfig{Kind: simnet.PortRestricted}))
		b := w.node(w.site("10.2.0.0/24", simnet.NATConfig{Kind: simnet.PortRestricted}))
		find, answer := w.meet(a, b, 10*time.Second)
		if find.err != nil || answer.err != nil {
			t.Fatalf("find: %v\nanswer: %v", find, answer)
		}
		if find.took > 3*time.Second {
			t.Errorf("took %v, want at most 3s", find.took)
		}
	})
}

func TestReasons(t *testing.T) {
	for _, tt := range []struct {
		name string
		set  func(w *world, a, b *node)
		want string
	}{
		{"no answer", func(w *world, a, b *node) { w.lose = 1000 }, "did not answer the offer"},
		{"UDP blocked", func(w *world, a, b *node) { w.public.SetLink(simnet.Link{Loss: 1}) }, "UDP seems to be blocked"},
		{"excluded", func(w *world, a, b *node) { a.exclude = netip.MustParsePrefix("0.0.0.0/0") }, "no address"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				a := w.node(w.site("10.1.0.0/24", simnet.NATConfig{Kind: simnet.Cone}))
				b := w.node(w.site("10.2.0.0/24", simnet.NATConfig{Kind: simnet.Cone}))
				tt.set(w, a, b)
				find, _ := w.meet(a, b, 5*time.Second)
				if !errors.Is(find.err, peer.ErrNoPath) || !strings.Contains(find.err.Error(), tt.want) {
					t.Errorf("got %q, want it to say %q", find.err, tt.want)
				}
			})
		})
	}
}

// TestExcludedNeverUsed gives both nodes a second network, the overlay, which
// must carry no check.
func TestExcludedNeverUsed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		overlay := w.sim.Network(netip.MustParsePrefix("100.80.0.0/16"), simnet.Link{})
		a, b := w.node(overlay, w.public), w.node(overlay, w.public)
		a.exclude = netip.MustParsePrefix("100.80.0.0/16") // b does not know
		find, answer := w.meet(a, b, 5*time.Second)
		if find.err != nil || answer.err != nil || a.exclude.Contains(find.remote.Addr()) || a.exclude.Contains(answer.remote.Addr()) {
			t.Errorf("find: %v\nanswer: %v", find, answer)
		}
	})
}

// TestStrayMessages mixes other attempts' messages and rubbish into both inboxes.
func TestStrayMessages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		a, b := w.node(w.public), w.node(w.public)
		stray := func(answer bool) []byte {
			m := newExchange("strayufrag", "straypasswordofanattemptbefore", nil, nil).ours
			m.Answer = answer
			enc, err := m.encode()
			if err != nil {
				t.Fatal(err)
			}
			return enc
		}
		for _, msg := range [][]byte{stray(false), stray(true), []byte("{"), nil} {
			a.box(b) <- msg
		}
		time.AfterFunc(15*time.Millisecond, func() { b.box(a) <- stray(true); b.box(a) <- []byte("[]") })
		find, answer := w.meet(a, b, 5*time.Second)
		if find.err != nil || answer.err != nil || find.took > 400*time.Millisecond {
			t.Errorf("find: %v\nanswer: %v", find, answer)
		}
		if got := a.ice.Stats().BadSignals; got != 2 {
			t.Errorf("bad signals: %d, want 2", got)
		}
	})
}

// TestAnswerFollowsNewFind begins with the offer of an attempt that the peer has
// given up, as when it was restarted.
func TestAnswerFollowsNewFind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		a, b := w.node(w.public), w.node(w.public)
		old := newExchange("oldufrag", "oldpasswordofanattemptbefore", []netip.AddrPort{a.addr()}, nil).ours
		enc, err := old.encode()
		if err != nil {
			t.Fatal(err)
		}
		b.box(a) <- enc
		time.AfterFunc(30*time.Millisecond, func() { b.box(a) <- enc }) // once more, late
		find, answer := w.meet(a, b, 5*time.Second)
		if find.err != nil || answer.err != nil {
			t.Errorf("find: %v\nanswer: %v", find, answer)
		}
	})
}

func TestAnswerRefusesRubbish(t *testing.T) {
	x := New(Config{Send: func([]byte, netip.AddrPort) error { return nil }, Port: func() uint16 { return 1 }, NewPath: func(netip.AddrPort) peer.Path { return nil }})
	for _, offer := range []string{"", "null", `{"id":"x"}`, strings.Repeat("x", peer.MaxSignal+1)} {
		if _, err := x.Answer(t.Context(), peer.ID{}, []byte(offer), nil); !errors.Is(err, errMessage) {
			t.Errorf("offer %.20q: %v, want %v", offer, err, errMessage)
		}
	}
}

// TestRefusedPath has a mesh that makes no path of what was found.
func TestRefusedPath(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		a, b := w.node(w.public), w.node(w.public)
		a.ice.cfg.NewPath = func(netip.AddrPort) peer.Path { return nil }
		find, _ := w.meet(a, b, 5*time.Second)
		if !errors.Is(find.err, peer.ErrNoPath) || !strings.Contains(find.err.Error(), b.addr().String()) {
			t.Errorf("got %v, want %v naming %v", find.err, peer.ErrNoPath, b.addr())
		}
	})
}

// TestCloseEndsAttempts closes in the middle; synctest sees to it that no
// goroutine remains.
func TestCloseEndsAttempts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		a, b := w.node(w.public), w.node(w.public)
		w.lose = 1000
		done := make(chan error, 1)
		go func() {
			_, err := a.ice.Find(t.Context(), b.id, a)
			done <- err
		}()
		time.Sleep(time.Second)
		start := time.Now()
		_ = a.ice.Close()
		if took := time.Since(start); took != 0 {
			t.Errorf("Close took %v", took)
		}
		if err := <-done; !errors.Is(err, ErrClosed) || !errors.Is(err, peer.ErrNoPath) {
			t.Errorf("got %v, want %v and %v", err, ErrClosed, peer.ErrNoPath)
		}
		if _, err := a.ice.Find(t.Context(), b.id, a); !errors.Is(err, ErrClosed) {
			t.Errorf("after Close: %v, want %v", err, ErrClosed)
		}
		if _, err := a.ice.Reflexive(t.Context(), w.hubs[0].addr()); !errors.Is(err, ErrClosed) {
			t.Errorf("Reflexive after Close: %v, want %v", err, ErrClosed)
		}
	})
}

// TestSlots starts more attempts than may run.
func TestSlots(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		a, b := w.node(w.public), w.node(w.public)
		w.lose = 1 << 20
		// Nothing is answered, so each of the first lot fails after a second.
		results := make(chan error, maxAttempts)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		sig := silentSignal{}
		for range maxAttempts {
			go func() {
				_, err := a.ice.Find(ctx, b.id, sig)
				results <- err
			}()
		}
		synctest.Wait()
		if got := a.ice.Stats().Active; got != maxAttempts {
			t.Errorf("%d attempts run, want %d", got, maxAttempts)
		}
		short, cancelShort := context.WithTimeout(t.Context(), 500*time.Millisecond)
		defer cancelShort()
		if _, err := a.ice.Find(short, b.id, sig); !errors.Is(err, peer.ErrNoPath) || !strings.Contains(err.Error(), "no turn") {
			t.Errorf("one too many: %v", err)
		}
		for range maxAttempts {
			if err := <-results; !errors.Is(err, peer.ErrNoPath) {
				t.Errorf("got %v", err)
			}
		}
		time.Sleep(time.Millisecond)
		if got := a.ice.Stats(); got.Active != 0 || got.Stuck != 0 {
			t.Errorf("afterwards: %+v", got)
		}
	})
}

// silentSignal takes messages and has none.
type silentSignal struct{}

func (silentSignal) Post(context.Context, peer.ID, []byte) error { return nil }
func (silentSignal) Next(ctx context.Context, _ peer.ID) ([]byte, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

// TestQuietAfterSuccess counts what an attempt still sends when it lingers, and
// that nothing of it stays.
func TestQuietAfterSuccess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		a, b := w.node(w.public), w.node(w.public)
		find, answer := w.meet(a, b, 5*time.Second)
		if find.err != nil || answer.err != nil {
			t.Fatalf("find: %v\nanswer: %v", find, answer)
		}
		time.Sleep(100 * time.Millisecond)
		before := w.sim.Stats().Delivered
		time.Sleep(2 * linger)
		if got := w.sim.Stats().Delivered - before; got > 4 {
			t.Errorf("%d datagrams after success, want at most 4", got)
		}
		for _, n := range []*node{a, b} {
			n.ice.mu.Lock()
			if len(n.ice.attempts)+len(n.ice.pending) != 0 || len(n.ice.slots) != 0 {
				t.Errorf("left: %d attempts, %d transactions, %d slots", len(n.ice.attempts), len(n.ice.pending), len(n.ice.slots))
			}
			n.ice.mu.Unlock()
		}
	})
}
