package ice

import (
	"bytes"
	"net/netip"
	"reflect"
	"strings"
	"testing"

	"github.com/meshmpi/meshmpi/mesh/peer"
	"github.com/pion/stun"
)

// FuzzMessage: what is accepted obeys the bounds and survives a round trip.
func FuzzMessage(f *testing.F) {
	e := newExchange("abcdefghijkl", "abcdefghijklmnopqrstuvwxyz", []netip.AddrPort{netip.MustParseAddrPort("[2001:db8::1]:5")}, nil)
	seed, err := e.ours.encode()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(seed)
	f.Add([]byte(`{"id":"a","answer":true,"ufrag":"abcd","pwd":"abcdefghijklmnopqrstuv","candidates":[{"t":"srflx","a":"192.0.2.1:7"},{"t":"host","a":"127.0.0.1:7"},{"t":"host","a":"[fe80::1%eth0]:7"},{"t":"relay","a":"192.0.2.1:7"}],"nat":"odd","end":true}`))
	f.Add([]byte(`{"id":"a","ufrag":"abcd","pwd":"abcdefghijklmnopqrstuv","candidates":[` + strings.Repeat(`{},`, 40) + `{}]}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := decodeMessage(b)
		if err != nil {
			return
		}
		if len(m.Candidates) > maxCandidates || len(m.ID) > maxName {
			t.Fatalf("accepted %+v", m)
		}
		for i, c := range m.Candidates {
			if _, err := remoteCandidate(c, i); err != nil {
				t.Fatalf("candidate %+v: %v", c, err)
			}
		}
		enc, err := m.encode()
		if err != nil || len(enc) > peer.MaxSignal {
			t.Fatalf("%d bytes, %v", len(enc), err)
		}
		again, err := decodeMessage(enc)
		if err != nil || again.ID != m.ID || len(again.Candidates) != len(m.Candidates) ||
			len(m.Candidates) > 0 && !reflect.DeepEqual(again.Candidates, m.Candidates) {
			t.Fatalf("round trip: %+v, then %+v, %v", m, again, err)
		}
	})
}

// FuzzInput: nothing that arrives upsets an ICE that serves and has an attempt
// and a query under way.
func FuzzInput(f *testing.F) {
	client := netip.MustParseAddrPort("[2001:db8::7]:4242")
	tx := txID{1, 2, 3}
	f.Add(newQuery(tx))
	f.Add(newReply(tx, client, true))
	f.Add(newReply(tx, netip.MustParseAddrPort("192.0.2.1:1"), false))
	f.Add(stun.MustBuild(stun.BindingRequest, stun.TransactionID, stun.NewUsername("fuzzed:x"), stun.RawAttribute{Type: stun.AttrUseCandidate},
		stun.NewShortTermIntegrity("p"), stun.Fingerprint).Raw)
	f.Add(stun.MustBuild(stun.BindingError, stun.NewTransactionIDSetter(tx), stun.CodeRoleConflict).Raw)
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		out := new(sent)
		x := newServer(out)
		sock := newShares(x, []netip.AddrPort{netip.MustParseAddrPort("192.0.2.1:1"), netip.MustParseAddrPort("[2001:db8::1]:1")})
		x.attempts["fuzzed"] = &attempt{x: x, sock: sock}
		q := &query{server: client, answer: make(chan netip.AddrPort, 1)}
		x.expect(tx, q)
		x.expect(txID{}, sock.conns[1])
		x.Input(b, client)
		x.Input(b, netip.AddrPort{})
		x.Input(b, netip.MustParseAddrPort("192.0.2.9:9"))
		buf := make([]byte, 2*maxSTUN)
		for _, c := range sock.conns { // what pion gets is what came
			for len(c.queue) > 0 {
				if n, _, err := c.ReadFrom(buf); err != nil || !bytes.Equal(buf[:n], b) {
					t.Fatalf("read %x, %v, want %x", buf[:n], err, b)
				}
			}
		}
		for i := range out.pkts {
			if 10*len(out.pkts[i]) > 16*len(b) {
				t.Fatalf("%d bytes to %d", len(out.pkts[i]), len(b))
			}
		}
		if m, ok := parseSTUN(b); ok {
			p := stun.Message{Raw: b}
			if err := p.Decode(); err != nil {
				t.Fatalf("we accept %x, pion does not: %v", b, err)
			}
			if v, err := p.Get(stun.AttrUsername); (err == nil) != (m.username != nil) || string(v) != string(m.username) {
				t.Fatalf("username %q, pion has %q", m.username, v)
			}
		}
	})
}
