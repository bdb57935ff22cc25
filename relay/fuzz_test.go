package relay

import (
	"encoding/json"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/meshmpi/meshmpi/internal/wire"
)

// FuzzServerInput feeds a relay with two bound nodes a batch of one to three
// datagrams from any of three addresses. Whatever comes, rig.input checks that no
// more goes out than came in; what goes out is well formed and goes only where it
// may. With seal, binds are given the MAC of a node that has a grant, so that the
// fuzzer gets behind it.
func FuzzServerInput(f *testing.F) {
	g := Grant{Short: node('a').Short(), Key: [32]byte{1}}
	f.Add([]byte{}, uint8(0), uint8(0), false)
	f.Add(bindFrame(g, 5, 0), uint8(0), uint8(0), true)
	f.Add(bindFrame(g, 1<<63, flagLeave), uint8(0), uint8(1), true)
	f.Add(sendFrame(node('b'), wireGuard(148, 0)), uint8(0), uint8(0), false)
	f.Add(append(sendFrame(node('b'), wireGuard(32, 0)), sendFrame(node('a'), wireGuard(32, 0))...), uint8(44), uint8(1), false)
	f.Fuzz(func(t *testing.T, data []byte, cut, source uint8, seal bool) {
		r := newRig(t, ServerConfig{})
		ga, gb := r.admit(node('a')), r.admit(node('b'))
		r.bind(ga, addrA)
		r.bind(gb, addrB)
		from := []netip.AddrPort{addrA, addrB, addrX}[source%3]
		n := min(int(cut), len(data))
		batch := [][]byte{data[:n], data[n:], data}
		if seal && len(data) == bindLen {
			newMAC(&ga.Key).seal(data)
		}
		for _, s := range r.input(from, batch...) {
			for _, p := range s.pkts {
				switch {
				case isRelay(p, wire.TypeRelayBound):
					if s.to != from || !newMAC(&ga.Key).valid(p) {
						t.Errorf("%v was sent bound %x for a bind from %v", s.to, p, from)
					}
				case isRelay(p, wire.TypeRelayDeliver):
					if from == addrX && !seal || s.to == from {
						t.Errorf("%x was delivered from %v to %v", p, from, s.to)
					}
				default:
					t.Errorf("sent %x", p)
				}
			}
		}
	})
}

// FuzzHandleBound feeds a client that waits for an answer. Without the key
// nothing may bind it.
func FuzzHandleBound(f *testing.F) {
	key := [32]byte{1}
	answer := make([]byte, bindLen)
	putBind(answer, bind{short: node('a').Short(), counter: 1})
	putBound(answer, addrB)
	newMAC(&key).seal(answer)
	f.Add(answer, false)
	f.Add(answer, true)
	f.Add(answer[:bindLen-1], true)
	f.Add([]byte{}, false)
	f.Fuzz(func(t *testing.T, data []byte, seal bool) {
		c := NewClient(ClientConfig{
			Self: node('a'),
			Now:  func() time.Time { return time.Unix(0, 1) },
			Send: func([][]byte, netip.AddrPort) error { return nil },
		})
		c.SetGrant(Grant{Relay: "r1", Short: node('a').Short(), Key: key}, relayAddr)
		c.step(make([]byte, bindLen), time.Unix(0, 1))
		wasValid := len(data) == bindLen && newMAC(&key).valid(data)
		if seal && len(data) == bindLen {
			newMAC(&key).seal(data)
		}
		c.HandleBound(data, relayAddr)
		if c.Bound() && !seal && !wasValid {
			t.Errorf("bound by %x without the key", data)
		}
		if c.Bound() != c.Observed().IsValid() {
			t.Errorf("bound %v at %v", c.Bound(), c.Observed())
		}
	})
}

// FuzzUnwrap checks that a payload is what follows the header, and no more.
func FuzzUnwrap(f *testing.F) {
	deliver := sendFrame(node('b'), wireGuard(32, 0))
	deliver[1] = byte(wire.TypeRelayDeliver)
	f.Add(deliver)
	f.Add(deliver[:wire.RelayHeaderLen])
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, data []byte) {
		from, payload, ok := (&Client{}).Unwrap(data)
		if !ok {
			return
		}
		again := append([]byte{wire.Magic, byte(wire.TypeRelayDeliver), 0, 0}, from[:]...)
		if string(append(again, payload...)) != string(data) || len(payload) == 0 {
			t.Errorf("%x was taken apart into %x and %x", data, from, payload)
		}
	})
}

// FuzzGrant checks that a grant that is read can be written and read again.
func FuzzGrant(f *testing.F) {
	doc, err := json.Marshal(Grant{Relay: "r1", Short: node('a').Short(), Key: [32]byte{1}, Expires: time.Unix(1_800_000_000, 0)})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(doc)
	f.Add([]byte(`{"relay":"r1","short":"AAAAAAAAAAA=","key":"","expires":"2027-01-01T00:00:00Z"}`))
	f.Add([]byte(`null`))
	f.Fuzz(func(t *testing.T, data []byte) {
		g, err := ParseGrant(data)
		if err != nil {
			return
		}
		doc, err := json.Marshal(g)
		if err != nil {
			t.Fatalf("%+v cannot be written: %v", g, err)
		}
		again, err := ParseGrant(doc)
		if err != nil || !again.Expires.Equal(g.Expires) || again.Key != g.Key || again.Short != g.Short || again.Relay != g.Relay {
			t.Errorf("%s was read again as %v, %v", doc, again, err)
		}
	})
}

func TestParseGrantRefuses(t *testing.T) {
	good := Grant{Relay: "r1", Short: node('a').Short(), Key: [32]byte{1}, Expires: time.Unix(1_800_000_000, 0)}
	for name, change := range map[string]func(*Grant){
		"no relay":   func(g *Grant) { g.Relay = "" },
		"long relay": func(g *Grant) { g.Relay = strings.Repeat("r", maxName+1) },
		"no key":     func(g *Grant) { g.Key = [32]byte{} },
		"no expiry":  func(g *Grant) { g.Expires = time.Time{} },
	} {
		g := good
		change(&g)
		doc, err := json.Marshal(g)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := ParseGrant(doc); err == nil {
			t.Errorf("%s: read %v from %s", name, got, doc)
		}
	}
	for _, doc := range []string{"", "{", "[]", `{"relay":"r1","short":"AAAA","key":"AAAA","expires":"2027-01-01T00:00:00Z"}`, strings.Repeat(" ", maxGrant+1)} {
		if got, err := ParseGrant([]byte(doc)); err == nil {
			t.Errorf("read %v from %.60q", got, doc)
		}
	}
}

func TestGrantKeepsItsKeyOutOfLogs(t *testing.T) {
	g := Grant{Relay: "r1", Key: [32]byte{0xAB, 0xCD}, Expires: time.Unix(0, 0)}
	for _, s := range []string{g.String(), g.LogValue().String()} {
		if strings.Contains(strings.ToLower(s), "abcd") || !strings.Contains(s, "r1") {
			t.Errorf("a grant prints as %s", s)
		}
	}
}
