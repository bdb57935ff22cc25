package relay

import (
	"net/netip"
	"slices"
	"testing"
	"time"
)

// TestHandleBoundRefuses feeds a client answers that its relay did not give.
func TestHandleBoundRefuses(t *testing.T) {
	b := newRig(t, ServerConfig{})
	g := b.admit(node('a'))
	var bind []byte
	c := NewClient(ClientConfig{Self: node('a'), Now: func() time.Time { return b.time }, Send: func([][]byte, netip.AddrPort) error { return nil }})
	step := func() []byte {
		bind = make([]byte, bindLen)
		b.time = b.time.Add(time.Second)
		if _, to := c.step(bind, b.time); to != relayAddr {
			t.Fatalf("a bind is sent to %v, want %v", to, relayAddr)
		}
		return b.input(addrA, bind)[0].pkts[0]
	}
	c.SetGrant(g, relayAddr)
	first := step()
	second := step()
	alter := func(i int) []byte {
		p := slices.Clone(second)
		p[i] ^= 1
		return p
	}
	resealed := alter(counterAt)
	newMAC(&g.Key).seal(resealed)
	for _, tc := range []struct {
		name string
		pkt  []byte
		from netip.AddrPort
	}{
		{"from elsewhere", second, addrX},
		{"to another", alter(shortAt), relayAddr},
		{"unknown counter", resealed, relayAddr},
		{"altered address", alter(observedAt + 15), relayAddr},
		{"wrong MAC", alter(bindLen - 1), relayAddr},
		{"our own bind", bind, relayAddr},
		{"cut", second[:bindLen-1], relayAddr},
		{"empty", nil, relayAddr},
	} {
		before := c.Stats().Refused
		c.HandleBound(tc.pkt, tc.from)
		if c.Bound() || c.Stats().Refused != before+1 {
			t.Fatalf("%s: bound %v, %d refused", tc.name, c.Bound(), c.Stats().Refused-before)
		}
	}
	c.HandleBound(second, relayAddr)
	if !c.Bound() || c.Observed() != addrA {
		t.Fatalf("the right answer: bound %v at %v", c.Bound(), c.Observed())
	}
	for name, pkt := range map[string][]byte{"replayed": second, "older": first} {
		before := c.Stats().Refused
		if c.HandleBound(pkt, relayAddr); c.Stats().Refused != before+1 {
			t.Errorf("a %s answer was taken", name)
		}
	}
}

func TestCounterRisesThoughClockFalls(t *testing.T) {
	b := newRig(t, ServerConfig{})
	c := NewClient(ClientConfig{Self: node('a'), Send: func([][]byte, netip.AddrPort) error { return nil }})
	c.SetGrant(b.admit(node('a')), relayAddr)
	for i := range 5 {
		frame := make([]byte, bindLen)
		c.Rebind()
		c.step(frame, b.time.Add(-time.Duration(i)*time.Hour))
		if out := b.input(addrA, frame); len(out) != 1 {
			t.Fatalf("bind %d, with the clock set back, was not answered", i)
		}
	}
}
