package relay

import (
	"context"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/meshmpi/meshmpi/internal/wire"
	"github.com/meshmpi/meshmpi/mesh/peer"
)

// world is a relay and two members on a fabric, inside a synctest bubble.
type world struct {
	t *testing.T
	f *fabric
	*Server
	a, b *memberHost
}

func newWorld(t *testing.T, delay time.Duration) *world {
	t.Helper()
	w := &world{t: t, f: newFabric()}
	w.f.delay = delay
	w.restart()
	w.a = newMemberHost(w.f, node('a'), addrA)
	w.b = newMemberHost(w.f, node('b'), addrB)
	return w
}

// restart replaces the relay by one that remembers nothing.
func (w *world) restart() {
	w.Server = NewServer(ServerConfig{Name: "r1", Send: w.f.socket(func() netip.AddrPort { return relayAddr })})
	w.f.attach(relayAddr, w.Input)
}

// grant admits a member and hands it the grant.
func (w *world) grant(m *memberHost) Grant {
	w.t.Helper()
	doc, err := w.Admit(m.id, time.Now().Add(time.Hour))
	if err != nil {
		w.t.Fatal(err)
	}
	g, err := ParseGrant(doc)
	if err != nil {
		w.t.Fatal(err)
	}
	m.SetGrant(g, relayAddr)
	return g
}

// run starts members; their Run ends before the test does.
func (w *world) run(members ...*memberHost) (stop func()) {
	ctx, cancel := context.WithCancel(w.t.Context())
	ended := make(chan error)
	for _, m := range members {
		go func() { ended <- m.Run(ctx) }()
	}
	return func() {
		cancel()
		for range members {
			if err := <-ended; err != context.Canceled {
				w.t.Errorf("Run = %v, want %v", err, context.Canceled)
			}
		}
	}
}

// after lets time pass and everything settle.
func after(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func TestClientsMeet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const delay = 20 * time.Millisecond
		w := newWorld(t, delay)
		w.grant(w.a)
		w.grant(w.b)
		stop := w.run(w.a, w.b)
		after(2 * delay)
		for _, m := range []*memberHost{w.a, w.b} {
			if !m.Bound() || m.Observed() != m.at() || m.RTT() != 2*delay {
				t.Fatalf("bound %v at %v with RTT %v, want %v and %v", m.Bound(), m.Observed(), m.RTT(), m.at(), 2*delay)
			}
			if got, want := m.told(), []netip.AddrPort{m.at()}; !slices.Equal(got, want) {
				t.Errorf("Bound was told %v, want %v", got, want)
			}
		}
		if err := w.a.Path(w.b.id).Send(numbered(60, 1000)); err != nil {
			t.Fatal(err)
		}
		after(2 * delay)
		if err := checkNumbered(w.b.take(), w.a.id, 60, 1000); err != nil {
			t.Error(err)
		}

		stop() // leaves
		after(delay)
		if w.a.Bound() || w.Stats().Bindings != 0 {
			t.Errorf("after Run: bound %v, server %+v", w.a.Bound(), w.Stats())
		}
	})
}

func TestBindIsRetried(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 0)
		w.grant(w.a)
		w.f.setDrop(func(_, to netip.AddrPort) bool { return to == addrA }) // answers are lost
		start := time.Now()
		stop := w.run(w.a)
		after(750 * time.Millisecond)
		var got []time.Duration
		for _, at := range w.f.sentAt() {
			if d := at.Sub(start); !slices.Contains(got, d) { // bind and answer at one instant
				got = append(got, d)
			}
		}
		const ms = time.Millisecond
		if want := []time.Duration{0, 100 * ms, 300 * ms, 700 * ms}; !slices.Equal(got, want) {
			t.Errorf("binds were sent after %v, want %v", got, want)
		}
		after(time.Hour)
		binds := len(w.f.sentAt()) / 2 // each has its answer
		if want := int(time.Hour / retryMax); binds < want*9/10-10 || binds > want*11/10+10 {
			t.Errorf("%d binds in an hour of silence, want %d", binds, want)
		}
		stop()
	})
}

func TestKeepAliveAndDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 5*time.Millisecond)
		w.grant(w.a)
		stop := w.run(w.a)
		defer stop()
		after(10 * time.Minute)
		if n := w.Stats().Binds; n < 600*10/165 || n > 600*10/135+1 {
			t.Errorf("%d binds in ten minutes, want one every 15 s ± 10 %%", n)
		}
		if got := w.a.told(); !w.a.Bound() || len(got) != 1 {
			t.Fatalf("bound %v, told %v", w.a.Bound(), got)
		}

		w.f.setDrop(func(_, to netip.AddrPort) bool { return to == relayAddr })
		silent := time.Now()
		for w.a.Bound() {
			after(100 * time.Millisecond)
		}
		if d := time.Since(silent); d > KeepAlive+KeepAlive/10+maxLost*answerTime+time.Second {
			t.Errorf("the relay was given up after %v", d)
		}
		if err := w.a.Path(w.b.id).Send(numbered(3, 64)); err != ErrNotBound || w.a.Stats().Unbound != 3 {
			t.Errorf("Send without a binding = %v, stats %+v", err, w.a.Stats())
		}
		after(time.Minute)
		w.f.setDrop(nil)
		after(retryMax + retryMax/10 + time.Second)
		if got, want := w.a.told(), []netip.AddrPort{addrA, {}, addrA}; !w.a.Bound() || !slices.Equal(got, want) {
			t.Errorf("bound %v, told %v; want %v", w.a.Bound(), got, want)
		}
	})
}

func TestOneLostAnswerIsMadeUpFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 5*time.Millisecond)
		w.grant(w.a)
		stop := w.run(w.a)
		defer stop()
		after(time.Second)
		lost := 0
		w.f.setDrop(func(_, to netip.AddrPort) bool {
			if to == addrA && lost < 2 {
				lost++
				return true
			}
			return false
		})
		after(KeepAlive + KeepAlive/10 + 2*answerTime)
		if lost != 2 || w.Stats().Binds != 4 {
			t.Errorf("%d answers lost, %d binds; want 2 and 4", lost, w.Stats().Binds)
		}
		if got := w.a.told(); !w.a.Bound() || len(got) != 1 {
			t.Errorf("bound %v, told %v", w.a.Bound(), got)
		}
	})
}

func TestNATMovesClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, time.Millisecond)
		w.grant(w.a)
		w.grant(w.b)
		stop := w.run(w.a, w.b)
		defer stop()
		after(time.Second)
		w.a.move(w.f, addrC)
		w.a.Rebind()
		after(2 * time.Millisecond)
		if got, want := w.a.told(), []netip.AddrPort{addrA, addrC}; !slices.Equal(got, want) {
			t.Errorf("told %v, want %v", got, want)
		}
		if err := w.b.Path(w.a.id).Send(numbered(2, 64)); err != nil {
			t.Fatal(err)
		}
		after(2 * time.Millisecond)
		if err := checkNumbered(w.a.take(), w.b.id, 2, 64); err != nil {
			t.Error(err)
		}
	})
}

// TestNATMovesSilently: with a hint that packets get lost, a client whose NAT
// shows it at another address is bound there at once, and hints beyond the first
// cost nothing.
func TestNATMovesSilently(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 20*time.Millisecond)
		w.grant(w.a)
		stop := w.run(w.a)
		defer stop()
		after(time.Second)
		w.a.move(w.f, addrC)
		binds := w.Stats().Binds
		for range 20 {
			w.a.Check()
			after(time.Millisecond)
		}
		after(40 * time.Millisecond)
		if got, want := w.a.told(), []netip.AddrPort{addrA, addrC}; !slices.Equal(got, want) {
			t.Errorf("told %v, want %v", got, want)
		}
		if n := w.Stats().Binds - binds; n != 1 {
			t.Errorf("%d binds, want 1", n)
		}
	})
}

// TestOutageEnds: a client that hears of signs of life binds at once, not when its next
// try is due, and hints beyond the first cost nothing.
func TestOutageEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 20*time.Millisecond)
		w.grant(w.a)
		stop := w.run(w.a)
		defer stop()
		after(time.Second)
		var mu sync.Mutex
		var last time.Time // bind
		since := func() time.Duration { mu.Lock(); defer mu.Unlock(); return time.Since(last) }
		w.f.setDrop(func(_, to netip.AddrPort) bool {
			mu.Lock()
			defer mu.Unlock()
			last = time.Now()
			return to == relayAddr
		})
		after(time.Minute)
		if w.a.Bound() {
			t.Fatal("bound although nothing gets through")
		}
		for since() < checkPause || since() > checkPause+100*time.Millisecond {
			after(10 * time.Millisecond)
		}
		w.f.setDrop(nil)
		binds := w.Stats().Binds
		for range 20 {
			w.a.Check()
			after(time.Millisecond)
		}
		if after(40 * time.Millisecond); !w.a.Bound() {
			t.Error("not bound")
		}
		if n := w.Stats().Binds - binds; n != 1 {
			t.Errorf("%d binds, want 1", n)
		}
	})
}

func TestNewGrantKeepsBinding(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 40*time.Millisecond)
		w.grant(w.a)
		stop := w.run(w.a)
		defer stop()
		after(time.Second)
		w.grant(w.a)
		for range 20 {
			if after(10 * time.Millisecond); !w.a.Bound() {
				t.Fatal("a new grant cut the binding")
			}
		}
		if n := w.Stats().Binds; n != 2 {
			t.Errorf("%d binds, want one with each grant", n)
		}

		w.restart() // and the relay knows nobody: a new grant binds at once
		w.grant(w.a)
		after(100 * time.Millisecond)
		if w.Stats().Bindings != 1 || len(w.a.told()) != 1 {
			t.Errorf("server %+v, told %v", w.Stats(), w.a.told())
		}
	})
}

func TestGrantOfAnotherNodeOrNone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, time.Millisecond)
		g := w.grant(w.a)
		stop := w.run(w.a)
		defer stop()
		after(time.Second)
		w.a.SetGrant(Grant{Relay: "r1", Short: node('b').Short(), Key: [32]byte{1}}, relayAddr)
		if after(time.Second); !w.a.Bound() {
			t.Error("another node's grant was taken")
		}
		w.a.SetGrant(g, addrX)
		if after(time.Second); w.a.Bound() {
			t.Error("bound to another address without an answer")
		}
		w.a.SetGrant(g, relayAddr)
		if after(time.Second); !w.a.Bound() {
			t.Error("not bound again")
		}
		w.a.SetGrant(Grant{}, netip.AddrPort{})
		after(time.Second)
		sent := len(w.f.sentAt())
		if after(time.Hour); w.a.Bound() || len(w.f.sentAt()) != sent {
			t.Errorf("without a grant: bound %v, %d datagrams sent", w.a.Bound(), len(w.f.sentAt())-sent)
		}
	})
}

func TestUnwrap(t *testing.T) {
	good := sendFrame(node('b'), []byte("sealed"))
	good[1] = byte(wire.TypeRelayDeliver)
	with := func(i int, v byte) []byte {
		p := slices.Clone(good)
		p[i] = v
		return p
	}
	for _, tc := range []struct {
		name string
		pkt  []byte
		want string
		ok   bool
	}{
		{"deliver", good, "sealed", true},
		{"send", with(1, byte(wire.TypeRelaySend)), "", false},
		{"other protocol", with(0, 4), "", false},
		{"reserved byte", with(2, 1), "", false},
		{"no payload", good[:wire.RelayHeaderLen], "", false},
		{"cut", good[:3], "", false},
		{"empty", nil, "", false},
	} {
		from, payload, ok := (&Client{}).Unwrap(tc.pkt)
		want := peer.Short{}
		if tc.ok {
			want = node('b').Short()
		}
		if ok != tc.ok || string(payload) != tc.want || from != want {
			t.Errorf("%s: Unwrap = %x, %q, %v; want %x, %q, %v", tc.name, from, payload, ok, want, tc.want, tc.ok)
		}
	}
}
