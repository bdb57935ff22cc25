package simnet

import (
	"bytes"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// inbox collects what a socket receives. Its fields are read after
// synctest.Wait only.
type inbox struct {
	*Socket
	t    *testing.T
	got  [][]byte
	from []netip.AddrPort
	at   []time.Time
}

func listen(t *testing.T, m *Machine, port uint16) *inbox {
	t.Helper()
	b := &inbox{t: t}
	s, err := m.Listen(port, func(pkt []byte, from netip.AddrPort) {
		b.got, b.from, b.at = append(b.got, bytes.Clone(pkt)), append(b.from, from), append(b.at, time.Now())
	})
	if err != nil {
		t.Fatal(err)
	}
	b.Socket = s
	return b
}

func (b *inbox) send(to netip.AddrPort) {
	b.t.Helper()
	if err := b.Send([]byte("hello"), to); err != nil {
		b.t.Fatal(err)
	}
}

// settle lets everything under way arrive.
func settle() {
	time.Sleep(time.Second)
	synctest.Wait()
}

func prefix(s string) netip.Prefix { return netip.MustParsePrefix(s) }

// natCase is what a kind of NAT does to a flow from inside port 5000.
type natCase struct {
	kind                   Kind
	preserves, samePort    bool // the port; the mapping for another server
	otherPort, otherServer bool // whether they get in unasked
}

func TestNATKinds(t *testing.T) {
	for _, tt := range []natCase{
		{Plain, true, true, true, true},
		{Cone, true, true, true, true},
		{AddressRestricted, true, true, true, false},
		{PortRestricted, true, true, false, false},
		{Symmetric, false, false, false, false},
	} {
		t.Run(tt.kind.String(), func(t *testing.T) { synctest.Test(t, tt.run) })
	}
}

// run sends from an inside host to one server, then towards the mapping from
// that server's other port and from another server, and looks at the mapping
// that the second server sees.
func (tt natCase) run(t *testing.T) {
	s := Start(7)
	defer s.Close()
	public := s.Network(prefix("198.18.0.0/24"), Link{Delay: 10 * time.Millisecond})
	lan := s.Network(prefix("192.168.1.0/24"), Link{})
	nat := s.NAT(lan, public, NATConfig{Kind: tt.kind})
	inside := listen(t, s.Machine(lan), 5000)
	one, two := s.Machine(public), s.Machine(public)
	a, b, c := listen(t, one, 80), listen(t, one, 81), listen(t, two, 80)
	addr := func(m *Machine) netip.AddrPort { return netip.AddrPortFrom(m.Addrs()[0], 80) }

	start := time.Now()
	inside.send(addr(one))
	settle()
	if len(a.from) != 1 {
		t.Fatalf("first server got %d packets, want 1", len(a.from))
	}
	seen := a.from[0]
	if got := a.at[0].Sub(start); got != 10*time.Millisecond {
		t.Errorf("one way took %v, want 10ms", got)
	}
	if got, want := seen.Addr() == nat.Public(), tt.kind != Plain; got != want {
		t.Errorf("seen from %v: translated %v, want %v", seen, got, want)
	}
	if got := seen.Port() == 5000; got != tt.preserves {
		t.Errorf("seen from %v: port preserved %v, want %v", seen, got, tt.preserves)
	}
	count := func(send func()) int {
		before := len(inside.got)
		send()
		settle()
		return len(inside.got) - before
	}
	if got := count(func() { a.send(seen) }); got != 1 {
		t.Errorf("answers let in: %d, want 1", got)
	}
	if got := count(func() { b.send(seen) }) == 1; got != tt.otherPort {
		t.Errorf("other port let in: %v, want %v", got, tt.otherPort)
	}
	if got := count(func() { c.send(seen) }) == 1; got != tt.otherServer {
		t.Errorf("other server let in: %v, want %v", got, tt.otherServer)
	}
	inside.send(addr(two))
	settle()
	if got := c.from[0] == seen; got != tt.samePort {
		t.Errorf("second server sees %v, the first %v: same %v, want %v", c.from[0], seen, got, tt.samePort)
	}
}

func TestMappingsExpire(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := Start(1)
		defer s.Close()
		public := s.Network(prefix("198.18.0.0/24"), Link{})
		lan := s.Network(prefix("10.0.0.0/24"), Link{})
		s.NAT(lan, public, NATConfig{Kind: Cone, Idle: 30 * time.Second})
		in, out := listen(t, s.Machine(lan), 1), listen(t, s.Machine(public), 2)
		in.send(netip.AddrPortFrom(out.m.Addrs()[0], 2))
		settle()
		time.Sleep(28 * time.Second)
		out.send(out.from[0])
		time.Sleep(2 * time.Second)
		out.send(out.from[0])
		settle()
		if len(in.got) != 1 {
			t.Errorf("got %d packets, want the one sent before the mapping expired", len(in.got))
		}
		if got := s.Stats().Filtered; got != 1 {
			t.Errorf("filtered %d, want 1", got)
		}
	})
}

func TestHairpinAndPortCollision(t *testing.T) {
	for _, hairpin := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			s := Start(1)
			defer s.Close()
			public := s.Network(prefix("198.18.0.0/24"), Link{})
			lan := s.Network(prefix("10.0.0.0/24"), Link{})
			s.NAT(lan, public, NATConfig{Kind: Cone, Hairpin: hairpin})
			a, b, server := listen(t, s.Machine(lan), 9), listen(t, s.Machine(lan), 9), listen(t, s.Machine(public), 9)
			to := netip.AddrPortFrom(server.m.Addrs()[0], 9)
			a.send(to)
			settle()
			b.send(to)
			settle()
			if server.from[0] == server.from[1] {
				t.Fatalf("two hosts share the mapping %v", server.from[0])
			}
			a.send(server.from[1])
			settle()
			if got := len(b.got) == 1; got != hairpin {
				t.Errorf("with hairpin %v: arrived %v", hairpin, got)
			}
			if hairpin && b.from[0] != server.from[0] {
				t.Errorf("hairpinned packet came from %v, want %v", b.from[0], server.from[0])
			}
		})
	}
}

func TestSeedDecidesLoss(t *testing.T) {
	run := func(t *testing.T, seed uint64) (n int) {
		synctest.Test(t, func(t *testing.T) {
			s := Start(seed)
			defer s.Close()
			n4 := s.Network(prefix("10.0.0.0/24"), Link{Loss: 0.5, Jitter: time.Millisecond})
			a, b := listen(t, s.Machine(n4), 1), listen(t, s.Machine(n4), 1)
			for range 1000 {
				a.send(netip.AddrPortFrom(b.m.Addrs()[0], 1))
			}
			settle()
			n = len(b.got)
			if st := s.Stats(); st.Delivered+st.Lost != 1000 {
				t.Errorf("delivered %d + lost %d, want 1000", st.Delivered, st.Lost)
			}
		})
		return n
	}
	first, again, other := run(t, 3), run(t, 3), run(t, 4)
	if first != again || first == other || first < 400 || first > 600 {
		t.Errorf("seeds 3, 3, 4 delivered %d, %d, %d of 1000", first, again, other)
	}
}

func TestUnreachable(t *testing.T) {
	s := Start(1)
	defer s.Close()
	lan := s.Network(prefix("10.0.0.0/24"), Link{})
	m := s.Machine(lan)
	a := listen(t, m, 1)
	if err := a.Send(nil, netip.MustParseAddrPort("192.0.2.1:1")); err != ErrUnreachable {
		t.Errorf("off the network: %v, want %v", err, ErrUnreachable)
	}
	m.Detach(lan)
	if err := a.Send(nil, netip.MustParseAddrPort("10.0.0.9:1")); err != ErrUnreachable {
		t.Errorf("after Detach: %v, want %v", err, ErrUnreachable)
	}
	if _, err := m.Listen(1, nil); err == nil {
		t.Error("the same port opened twice")
	}
	_ = a.Close()
	if err := a.Send(nil, netip.MustParseAddrPort("10.0.0.9:1")); err == nil {
		t.Error("a closed socket sent")
	}
}
