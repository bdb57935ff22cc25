package relay

import (
	"bytes"
	"errors"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/meshmpi/meshmpi/internal/wire"
	"github.com/meshmpi/meshmpi/mesh/peer"
)

func TestForward(t *testing.T) {
	b := newRig(t, ServerConfig{})
	b.bind(b.admit(node('a')), addrA)
	b.bind(b.admit(node('b')), addrB)
	probe := append([]byte{wire.Magic, byte(wire.TypePing)}, make([]byte, 60)...)
	for _, payload := range [][]byte{wireGuard(32, 1), wireGuard(1452, 2), probe} {
		out := b.input(addrA, sendFrame(node('b'), payload))
		if len(out) != 1 || len(out[0].pkts) != 1 || out[0].to != addrB {
			t.Fatalf("sent %v, want one packet to %v", out, addrB)
		}
		from, got, ok := (&Client{}).Unwrap(out[0].pkts[0])
		if !ok || from != node('a').Short() || !bytes.Equal(got, payload) {
			t.Errorf("delivered %x from %x, ok %v; want %x from %x", got, from, ok, payload, node('a').Short())
		}
	}
	st := b.Stats()
	want := ServerStats{Grants: 2, Bindings: 2, Binds: 2, Packets: 3, Bytes: 3*wire.RelayHeaderLen + 32 + 1452 + 62}
	if st != want {
		t.Errorf("Stats() = %+v, want %+v", st, want)
	}
}

func TestForwardNeedsBothBindings(t *testing.T) {
	for _, tc := range []struct {
		name     string
		src, dst bool
		want     bool
		drops    Drops
	}{
		{"neither", false, false, false, Drops{Unbound: 1}},
		{"sender alone", true, false, false, Drops{Absent: 1}},
		{"destination alone", false, true, false, Drops{Unbound: 1}},
		{"both", true, true, true, Drops{}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			b := newRig(t, ServerConfig{})
			a, c := b.admit(node('a')), b.admit(node('b'))
			if tc.src {
				b.bind(a, addrA)
			}
			if tc.dst {
				b.bind(c, addrB)
			}
			if got := b.forwards(addrA, node('b'), addrB); got != tc.want {
				t.Errorf("forwarded = %v, want %v", got, tc.want)
			}
			if got := b.Stats().Drops; got != tc.drops {
				t.Errorf("drops = %+v, want %+v", got, tc.drops)
			}
		})
	}
}

func TestSpoofedSourceRefused(t *testing.T) {
	b := newRig(t, ServerConfig{})
	b.bind(b.admit(node('a')), addrA)
	b.bind(b.admit(node('b')), addrB)
	otherPort := netip.AddrPortFrom(addrA.Addr(), addrA.Port()+1)
	for _, from := range []netip.AddrPort{addrX, otherPort, {}} {
		if b.forwards(from, node('b'), addrB) {
			t.Errorf("a packet from %v, where nobody is bound, was forwarded", from)
		}
	}
	mapped := netip.AddrPortFrom(netip.AddrFrom16(addrA.Addr().As16()), addrA.Port())
	if !b.forwards(mapped, node('b'), addrB) {
		t.Errorf("a packet from %v, the same as %v, was dropped", mapped, addrA)
	}
}

func TestPayloadMustBeSealed(t *testing.T) {
	b := newRig(t, ServerConfig{})
	g := b.admit(node('a'))
	b.bind(g, addrA)
	b.bind(b.admit(node('b')), addrB)
	nonzero := sendFrame(node('b'), wireGuard(64, 0))
	nonzero[3] = 1
	for name, pkt := range map[string][]byte{
		"nothing":         {},
		"half a header":   sendFrame(node('b'), nil)[:7],
		"no payload":      sendFrame(node('b'), nil),
		"plain text":      sendFrame(node('b'), []byte("GET / HTTP/1.1\r\nHost: elsewhere\r\n\r\n")),
		"short WireGuard": sendFrame(node('b'), wireGuard(31, 0)),
		"a send within":   sendFrame(node('b'), sendFrame(node('b'), wireGuard(64, 0))),
		"a bind within":   sendFrame(node('b'), bindFrame(g, 1<<62, 0)),
		"reserved bytes":  nonzero,
		"deliver":         append([]byte{wire.Magic, byte(wire.TypeRelayDeliver)}, make([]byte, 80)...),
		"bound":           append([]byte{wire.Magic, byte(wire.TypeRelayBound)}, make([]byte, bindLen-2)...),
	} {
		before := b.Stats().Drops.Malformed
		if out := b.input(addrA, pkt); out != nil || b.Stats().Drops.Malformed != before+1 {
			t.Errorf("%s: sent %v, malformed %d more; want nothing and 1", name, out, b.Stats().Drops.Malformed-before)
		}
	}
}

func TestBindRefused(t *testing.T) {
	b := newRig(t, ServerConfig{})
	g := b.admit(node('a'))
	other := b.admit(node('b'))
	ended := b.admitUntil(node('c'), b.time.Add(time.Second))
	b.time = b.time.Add(time.Minute)
	b.bind(g, addrA)
	last := uint64(b.time.UnixNano())

	forged := bindFrame(g, last+1, 0)
	forged[flagsAt] ^= flagLeave
	stolen := other
	stolen.Short = g.Short
	stranger := g
	stranger.Short = node('z').Short()
	for _, tc := range []struct {
		name  string
		frame []byte
		want  Drops
	}{
		{"the same again", bindFrame(g, last, 0), Drops{Replayed: 1}},
		{"an older one", bindFrame(g, last-1, 0), Drops{Replayed: 1}},
		{"altered flags", forged, Drops{Forged: 1}},
		{"another's key", bindFrame(stolen, last+1, 0), Drops{Forged: 1}},
		{"no grant", bindFrame(stranger, last+1, 0), Drops{Unknown: 1}},
		{"grant ended", bindFrame(ended, last+1, 0), Drops{Expired: 1}},
		{"counter zero", bindFrame(other, 0, 0), Drops{Malformed: 1}},
		{"cut", bindFrame(g, last+1, 0)[:bindLen-1], Drops{Malformed: 1}},
		{"too long", append(bindFrame(g, last+1, 0), 0), Drops{Malformed: 1}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			before := b.Stats()
			if out := b.input(addrX, tc.frame); out != nil {
				t.Errorf("was answered with %v", out)
			}
			after := b.Stats()
			if got := sub(after.Drops, before.Drops); got != tc.want {
				t.Errorf("drops = %+v, want %+v", got, tc.want)
			}
			if after.Binds != before.Binds || after.Bindings != before.Bindings {
				t.Errorf("binds, bindings = %d, %d; were %d, %d", after.Binds, after.Bindings, before.Binds, before.Bindings)
			}
		})
	}
	b.bind(other, addrB)
	if !b.forwards(addrA, node('b'), addrB) || b.forwards(addrX, node('b'), addrB) {
		t.Error("a refused bind moved the binding")
	}
}

func sub(a, b Drops) Drops {
	return Drops{
		Malformed: a.Malformed - b.Malformed, Unknown: a.Unknown - b.Unknown, Expired: a.Expired - b.Expired,
		Forged: a.Forged - b.Forged, Replayed: a.Replayed - b.Replayed, Unbound: a.Unbound - b.Unbound,
		Absent: a.Absent - b.Absent, Refused: a.Refused - b.Refused, Unsent: a.Unsent - b.Unsent,
	}
}

func TestNewerBindMovesBinding(t *testing.T) {
	b := newRig(t, ServerConfig{})
	a := b.admit(node('a'))
	b.bind(a, addrA)
	b.bind(b.admit(node('b')), addrB)
	b.bind(a, addrC)
	if b.forwards(addrA, node('b'), addrB) {
		t.Error("the address before still sends")
	}
	if !b.forwards(addrC, node('b'), addrB) || !b.forwards(addrB, node('a'), addrC) {
		t.Error("the new address does not send and receive")
	}
}

func TestAddressChangesHands(t *testing.T) {
	b := newRig(t, ServerConfig{})
	b.bind(b.admit(node('a')), addrA)
	b.bind(b.admit(node('b')), addrB)
	b.bind(b.admit(node('c')), addrA) // a NAT gave a's port to c
	if b.forwards(addrB, node('a'), addrA) {
		t.Error("packets for a reach c")
	}
	if !b.forwards(addrB, node('c'), addrA) || b.Stats().Bindings != 2 {
		t.Errorf("c is not bound in a's place: %+v", b.Stats())
	}
}

func TestNothingToOneself(t *testing.T) {
	b := newRig(t, ServerConfig{})
	b.bind(b.admit(node('a')), addrA)
	if b.forwards(addrA, node('a'), addrA) || b.Stats().Drops.Refused != 1 {
		t.Errorf("a packet came back to its sender: %+v", b.Stats())
	}
}

func TestRunsLeaveTogether(t *testing.T) {
	b := newRig(t, ServerConfig{})
	b.bind(b.admit(node('a')), addrA)
	b.bind(b.admit(node('b')), addrB)
	c := b.admit(node('c'))
	to := func(id peer.ID, mark byte) []byte { return sendFrame(id, wireGuard(40, mark)) }
	out := b.input(addrA,
		to(node('b'), 1), to(node('b'), 2), []byte("junk"), to(node('b'), 3),
		to(node('c'), 4), // not bound
		to(node('b'), 5), to(node('b'), 6), to(node('b'), 7))
	var runs []int
	for _, s := range out {
		runs = append(runs, len(s.pkts))
	}
	if want := []int{2, 1, 3}; !slices.Equal(runs, want) {
		t.Errorf("left in runs of %v, want %v", runs, want)
	}
	b.bind(c, addrC)
	out = b.input(addrA, slices.Repeat([][]byte{to(node('c'), 1)}, batchSize+2)...)
	if len(out) != 2 || len(out[0].pkts) != batchSize || len(out[1].pkts) != 2 {
		t.Errorf("%d packets did not leave as %d and 2", batchSize+2, batchSize)
	}
}

func TestUnsentIsCounted(t *testing.T) {
	b := newRig(t, ServerConfig{})
	b.bind(b.admit(node('a')), addrA)
	b.bind(b.admit(node('b')), addrB)
	b.fail = errors.New("no buffer space")
	b.input(addrA, sendFrame(node('b'), wireGuard(64, 0)), sendFrame(node('b'), wireGuard(64, 1)))
	if st := b.Stats(); st.Drops.Unsent != 2 || st.Packets != 0 {
		t.Errorf("Stats() = %+v, want 2 unsent, none forwarded", st)
	}
}

// TestServerConcurrently is for the race detector, and loses count of nothing.
func TestServerConcurrently(t *testing.T) {
	var clock sync.Mutex
	now := time.Unix(1_700_000_000, 0)
	s := NewServer(ServerConfig{
		Name: "r1",
		Send: func([][]byte, netip.AddrPort) error { return nil },
		Now: func() time.Time {
			clock.Lock()
			defer clock.Unlock()
			now = now.Add(time.Millisecond)
			return now
		},
	})
	var wg sync.WaitGroup
	for i, addr := range []netip.AddrPort{addrA, addrB} {
		self, other := node('a'+byte(i)), node('b'-byte(i))
		wg.Go(func() {
			for n := range uint64(300) {
				doc, err := s.Admit(self, s.now().Add(time.Hour))
				if err != nil {
					t.Error(err)
					return
				}
				g, err := ParseGrant(doc)
				if err != nil {
					t.Error(err)
					return
				}
				s.Input([][]byte{bindFrame(g, n+1, 0), sendFrame(other, wireGuard(64, 0))}, addr)
				s.Stats()
				if n%10 == 9 {
					s.Revoke(self)
				}
			}
		})
	}
	wg.Wait()
	if st := s.Stats(); st.Binds != 600 || st.Packets+st.Drops.Absent != 600 {
		t.Errorf("Stats() = %+v, want 600 binds, and 600 packets forwarded or dropped for want of a destination", st)
	}
}
