package ice

import (
	"bytes"
	"context"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/meshmpi/meshmpi/internal/simnet"
	"github.com/meshmpi/meshmpi/mesh/peer"
	"github.com/pion/stun"
)

// sent is a Config.Send that keeps what it is given.
type sent struct {
	pkts [][]byte
	to   []netip.AddrPort
}

func (s *sent) send(pkt []byte, to netip.AddrPort) error {
	s.pkts, s.to = append(s.pkts, bytes.Clone(pkt)), append(s.to, to)
	return nil
}

func newServer(s *sent) *ICE {
	return New(Config{Send: s.send, Port: func() uint16 { return port }, NewPath: func(netip.AddrPort) peer.Path { return nil }, Serve: true})
}

// TestServe asks as pion's client would, and as nobody should.
func TestServe(t *testing.T) {
	v4, v6 := netip.MustParseAddrPort("192.0.2.7:4242"), netip.MustParseAddrPort("[2001:db8::7]:4242")
	build := func(setters ...stun.Setter) []byte {
		return stun.MustBuild(append([]stun.Setter{stun.BindingRequest, stun.TransactionID}, setters...)...).Raw
	}
	for _, tt := range []struct {
		name    string
		request []byte
		from    netip.AddrPort
		want    bool
	}{
		{"ours, IPv4", newQuery(newTxID()), v4, true},
		{"ours, IPv6", newQuery(newTxID()), v6, true},
		{"ours, IPv4 in IPv6", newQuery(newTxID()), netip.MustParseAddrPort("[::ffff:192.0.2.7]:4242"), true},
		{"bare, IPv4", build(), v4, true},
		{"bare, IPv6: the answer would be 2.2 times as long", build(), v6, false},
		{"with fingerprint", build(stun.Fingerprint), v4, true},
		{"with software", build(stun.NewSoftware("someone else's client")), v6, true},
		{"with an integrity nobody can check", build(stun.NewShortTermIntegrity("secret")), v4, false},
		{"with an attribute to be understood", build(stun.RawAttribute{Type: 0x0003, Value: []byte{0, 0, 0, 6}}), v4, false},
		{"an indication", stun.MustBuild(stun.NewType(stun.MethodBinding, stun.ClassIndication), stun.TransactionID).Raw, v4, false},
		{"another method", stun.MustBuild(stun.NewType(stun.MethodAllocate, stun.ClassRequest), stun.TransactionID).Raw, v4, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := new(sent)
			newServer(s).Input(tt.request, tt.from)
			if got := len(s.pkts) == 1; got != tt.want {
				t.Fatalf("answered %v, want %v", got, tt.want)
			}
			if !tt.want {
				return
			}
			request, answer := stun.Message{Raw: tt.request}, stun.Message{Raw: s.pkts[0]}
			if err := request.Decode(); err != nil {
				t.Fatal(err)
			}
			if err := answer.Decode(); err != nil {
				t.Fatalf("pion cannot read the answer: %v", err)
			}
			var mapped stun.XORMappedAddress
			if err := mapped.GetFrom(&answer); err != nil {
				t.Fatal(err)
			}
			got := unmap(netip.AddrPortFrom(netip.MustParseAddr(mapped.IP.String()), uint16(mapped.Port)))
			if want := unmap(tt.from); got != want || s.to[0] != want {
				t.Errorf("told %v, to %v, want %v", got, s.to[0], want)
			}
			if answer.Type != stun.BindingSuccess || answer.TransactionID != request.TransactionID {
				t.Errorf("answer %v does not belong to %v", answer, request)
			}
			if request.Contains(stun.AttrFingerprint) {
				if err := stun.Fingerprint.Check(&answer); err != nil {
					t.Error(err)
				}
			}
			if 10*len(s.pkts[0]) > 16*len(tt.request) {
				t.Errorf("answer of %d bytes to a request of %d", len(s.pkts[0]), len(tt.request))
			}
		})
	}
}

func TestServeOnlyHubs(t *testing.T) {
	s := new(sent)
	x := newServer(s)
	x.cfg.Serve = false
	x.Input(newQuery(newTxID()), netip.MustParseAddrPort("192.0.2.7:1"))
	if got := x.Stats(); len(s.pkts) != 0 || got.Refused != 1 {
		t.Errorf("sent %d, %+v", len(s.pkts), got)
	}
}

func TestLimiter(t *testing.T) {
	l := newLimiter()
	now := time.Unix(1e9, 0)
	count := func(source string, asked int) (n int) {
		for range asked {
			if l.allow(netip.MustParseAddr(source), now) {
				n++
			}
		}
		return n
	}
	if got := count("192.0.2.1", 1000); got != sourceBurst {
		t.Errorf("one source got %d at once, want %d", got, sourceBurst)
	}
	now = now.Add(time.Second)
	if got := count("192.0.2.1", 1000); got != sourceRate {
		t.Errorf("a second later it got %d, want %d", got, sourceRate)
	}
	if a, b := count("2001:db8::1", 300), count("2001:db8::2", 300); a+b != sourceBurst {
		t.Errorf("two of an IPv6 /64 got %d and %d, want %d together", a, b, sourceBurst)
	}
	now = now.Add(-time.Hour) // a clock that was set back costs nobody anything
	if got := count("198.51.100.1", 1); got != 1 {
		t.Errorf("after the clock was set back: %d, want 1", got)
	}
	all := 0
	now = now.Add(2 * time.Hour)
	for i := range 256 {
		all += count(netip.AddrFrom4([4]byte{10, 0, byte(i), 1}).String(), 100)
	}
	if all != totalBurst {
		t.Errorf("256 sources got %d, want %d", all, totalBurst)
	}
}

func TestReflexive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		lan := w.site("10.1.0.0/24", simnet.NATConfig{Kind: simnet.Symmetric})
		n := w.node(lan)
		start := time.Now()
		one, err1 := n.ice.Reflexive(t.Context(), w.hubs[0].addr())
		two, err2 := n.ice.Reflexive(t.Context(), w.hubs[1].addr())
		if err1 != nil || err2 != nil {
			t.Fatal(err1, err2)
		}
		if took := time.Since(start); took > 50*time.Millisecond {
			t.Errorf("two queries took %v at a round trip of 20ms", took)
		}
		if one.Addr() != two.Addr() || one.Port() == two.Port() || one.Addr() == n.addr().Addr() {
			t.Errorf("mapped to %v and %v, want two ports of the NAT", one, two)
		}

		w.public.SetLink(simnet.Link{Delay: 10 * time.Millisecond, Loss: 0.5})
		if _, err := n.ice.Reflexive(t.Context(), w.hubs[0].addr()); err != nil {
			t.Errorf("with loss: %v", err)
		}
		w.public.SetLink(simnet.Link{Loss: 1})
		start = time.Now()
		_, err := n.ice.Reflexive(t.Context(), w.hubs[0].addr())
		if err == nil || !strings.Contains(err.Error(), w.hubs[0].addr().String()) || time.Since(start) != 6300*time.Millisecond {
			t.Errorf("silent server: %v after %v", err, time.Since(start))
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := n.ice.Reflexive(ctx, w.hubs[0].addr()); err == nil || ctx.Err() == nil {
			t.Errorf("got %v before the context ended", err)
		}
		if len(n.ice.pending) != 0 {
			t.Errorf("%d transactions left", len(n.ice.pending))
		}
	})
}

// TestReflexiveTrustsServerOnly has an answer with the right transaction come
// from elsewhere.
func TestReflexiveTrustsServerOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server, other := netip.MustParseAddrPort("192.0.2.1:1"), netip.MustParseAddrPort("192.0.2.2:1")
		lie, truth := netip.MustParseAddrPort("203.0.113.1:1"), netip.MustParseAddrPort("203.0.113.2:2")
		var x *ICE
		x = New(Config{Port: func() uint16 { return 1 }, NewPath: func(netip.AddrPort) peer.Path { return nil },
			Send: func(pkt []byte, to netip.AddrPort) error {
				m, _ := parseSTUN(pkt)
				time.AfterFunc(time.Millisecond, func() { x.Input(newReply(m.tx, lie, true), other) })
				time.AfterFunc(2*time.Millisecond, func() { x.Input(newReply(m.tx, truth, true), server) })
				return nil
			}})
		if got, err := x.Reflexive(t.Context(), server); err != nil || got != truth {
			t.Errorf("got %v, %v, want %v", got, err, truth)
		}
	})
}

// TestFlood sends more checks with an attempt's fragment than it takes.
func TestFlood(t *testing.T) {
	x := newServer(new(sent))
	x.cfg.LocalAddrs = func() ([]netip.Addr, error) { return []netip.Addr{netip.MustParseAddr("192.0.2.1")}, nil }
	a, err := x.newAttempt(nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	x.slots <- struct{}{}
	x.running.Add(1)
	defer x.retire(a, 0)
	check := stun.MustBuild(stun.BindingRequest, stun.TransactionID, stun.NewUsername(a.ours.Ufrag+":evil"), stun.Fingerprint).Raw
	const n = 100_000
	for i := range n {
		x.Input(check, netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)}), 1))
	}
	if got := len(a.sock.remotes); got != maxRemotes {
		t.Errorf("%d remotes, want %d", got, maxRemotes)
	}
	for range n {
		x.Input(check, netip.MustParseAddrPort("10.0.0.0:1"))
	}
	if q, got := len(a.sock.conns[0].queue), x.Stats().QueueFull; q != queueLen || got != 2*n-queueLen {
		t.Errorf("%d queued and %d dropped of %d, want %d queued", q, got, 2*n, queueLen)
	}
}

// TestThinning checks a silent address for ten seconds.
func TestThinning(t *testing.T) {
	s := newShares(newServer(new(sent)), []netip.AddrPort{netip.MustParseAddrPort("192.0.2.1:1")})
	to := netip.MustParseAddrPort("192.0.2.2:1")
	now := time.Unix(1e9, 0)
	n := 0
	for range 200 {
		if s.admit(&stunMessage{tx: newTxID()}, to, now, s.conns[0]) {
			n++
		}
		now = now.Add(checkInterval)
	}
	if n < 60 || n > 70 {
		t.Errorf("%d checks in 10s, want 20 and then 5 a second", n)
	}
	if !s.admit(&stunMessage{tx: newTxID(), useCandidate: true}, to, now, s.conns[0]) {
		t.Error("a nomination was held back")
	}
	for range 2 * maxPending {
		s.admit(&stunMessage{tx: newTxID(), useCandidate: true}, to, now, s.conns[0])
	}
	if got := len(s.x.pending); got != maxPending {
		t.Errorf("%d transactions pending, want at most %d", got, maxPending)
	}
	_ = s.Close()
	if got := len(s.x.pending); got != 0 || s.admit(&stunMessage{tx: newTxID()}, to, now, s.conns[0]) {
		t.Errorf("after Close: %d pending, or more admitted", got)
	}
}

func TestClassify(t *testing.T) {
	at := netip.MustParseAddrPort
	host, hub1, hub2 := at("10.0.0.1:5"), at("192.0.2.1:1"), at("192.0.2.2:1")
	for _, tt := range []struct {
		name string
		seen []mapping
		want behaviour
	}{
		{"nothing", nil, natSilent},
		{"our own address", []mapping{{hub1, host}, {hub2, host}}, natNone},
		{"one server", []mapping{{hub1, at("203.0.113.1:5")}}, natUnknown},
		{"one server twice", []mapping{{hub1, at("203.0.113.1:5")}, {at("192.0.2.1:2"), at("203.0.113.1:5")}}, natUnknown},
		{"the same", []mapping{{hub1, at("203.0.113.1:5")}, {hub2, at("203.0.113.1:5")}}, natSteady},
		{"another port", []mapping{{hub1, at("203.0.113.1:5")}, {hub2, at("203.0.113.1:6")}}, natVaries},
		{"one server inside", []mapping{{hub1, at("203.0.113.1:5")}, {at("10.0.0.9:1"), host}}, natUnknown},
		{"IPv6 beside", []mapping{{hub1, at("203.0.113.1:5")}, {hub2, at("203.0.113.1:5")}, {at("[2001:db8::1]:1"), at("[2001:db8::2]:7")}}, natSteady},
	} {
		if got := classify(tt.seen, []netip.AddrPort{host}); got != tt.want {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
	}
}

func TestSystemAddrs(t *testing.T) {
	addrs, err := systemAddrs()
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range addrs {
		if !a.IsValid() || a.IsLoopback() {
			t.Errorf("listed %v", a)
		}
	}
}
