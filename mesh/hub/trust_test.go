package hub

import (
	"context"
	"encoding/json"
	"errors"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/meshmpi/meshmpi/mesh/cert"
	"github.com/meshmpi/meshmpi/mesh/peer"
)

// TestSkewedClocks has nodes whose clocks differ from the hub's, but not by so
// much that certificates do not hold.
func TestSkewedClocks(t *testing.T) {
	w := newWorld(t)
	const skew = maxSkew + time.Minute
	for _, ahead := range []time.Duration{-skew, skew} {
		w.clock.add(max(0, -ahead)) // the hub's certificate is too young for a node that is behind
		tok := w.token(1)
		k, err := cert.NewKeys()
		check(t, err)
		_, err = Join(context.Background(), JoinRequest{Token: tok, Name: "b1", Keys: k, Now: func() time.Time { return time.Now().Add(max(0, ahead)) }})
		w.clock.add(min(0, ahead))
		if !errors.Is(err, ErrClock) || !strings.Contains(err.Error(), w.addr) {
			t.Errorf("%v ahead: %v", ahead, err)
		}
		oneLine(t, err)
		m, err := w.join(tok, "b1") // with other keys: neither token nor name has been taken
		check(t, err)
		check(t, w.hub.RemoveNode(m.node.Name))
	}

	v := w.watch(w.member("b2"))
	v.clock.add(skew)
	v.start()
	v.until("a complaint", func() bool { return v.err != nil })
	info := v.Client.Sessions()[0]
	if !info.Up || !errors.Is(info.Err, ErrClock) || v.recs[v.Client.cfg.Self.ID].Up != true {
		t.Errorf("the session: %+v", info)
	}
	oneLine(t, info.Err)
	if ok := w.connect(w.member("b3")).Client.Sessions()[0]; ok.Err != nil {
		t.Errorf("a good clock: %v", ok.Err)
	}
}

// TestRefusalsArrive refuses nodes again and again: every time they must hear
// why, whatever TCP does to a connection that is closed.
func TestRefusalsArrive(t *testing.T) {
	w := newWorld(t)
	revoked, removed := w.member("b1"), w.member("b2")
	check(t, w.hub.RevokeNode("b1"))
	check(t, w.hub.RemoveNode("b2"))
	for _, tc := range []struct {
		name string
		m    member
		want error
		text string
		set  func()
	}{
		{"revoked", revoked, ErrRevoked, "new token", func() {}},
		{"removed", removed, ErrRefused, "b2 was removed", func() {}},
		{"expired by the hub's clock", w.member("b3"), ErrRefused, "node b3's certificate expired", func() { w.clock.add(cert.Lifetime + time.Hour) }},
	} {
		tc.set()
		v := w.watch(tc.m)
		for range 10 {
			err := v.Client.links[0].session(context.Background())
			if !errors.Is(err, tc.want) || !strings.Contains(err.Error(), tc.text) {
				t.Fatalf("%s: %v", tc.name, err)
			}
			oneLine(t, err)
		}
	}
}

func TestNewOnAnotherStore(t *testing.T) {
	w := newNetwork(t, "100.80.0.0/16")
	_, err := New(Config{Network: w.network, Self: w.self, Keys: w.keys, Chain: func() [][]byte { return *w.chain.Load() }, Issuer: w.issuer, Store: NewMemoryStore()})
	if err == nil || !strings.Contains(err.Error(), "not that of hub") {
		t.Errorf("a hub starts on an empty store: %v", err)
	}
	oneLine(t, err)
}

// hearing is a reader without a connection, of a client for m.
func (w *world) hearing(m member) (*ear, *watcher) {
	v := w.watch(m)
	return &ear{l: v.Client.links[0], hub: "hub", told: map[peer.ID]struct{}{}}, v
}

// TestHubTellsTooMuch has a hub name nodes without end.
func TestHubTellsTooMuch(t *testing.T) {
	w := newWorld(t)
	next := uint32(0)
	frame := func(removed bool) []record {
		recs := make([]record, recordsPerFrame)
		for i := range recs {
			next++
			recs[i] = record{ID: peer.ID{byte(next), byte(next >> 8), byte(next >> 16), 1}, Removed: removed}
		}
		return recs
	}
	for name, tc := range map[string]struct {
		m    func(first bool) message
		ends bool
	}{
		"a set without an end":         {func(first bool) message { return message{Full: first, More: true, Records: frame(true)} }, true},
		"ever new nodes":               {func(bool) message { return message{Records: frame(false)} }, true},
		"nodes that come and go":       {func(bool) message { return message{Records: frame(true)} }, false},
		"all of them, again and again": {func(bool) message { return message{Full: true, Records: frame(false)} }, false},
	} {
		e, v := w.hearing(w.member("b" + string(rune('0'+next%7))))
		var err error
		frames := 0
		for ; err == nil && frames < 2*maxRecords/recordsPerFrame; frames++ {
			m := tc.m(frames == 0)
			m.Type = typeRecords
			err = e.take(m)
		}
		if (err != nil) != tc.ends {
			t.Errorf("%s: after %d frames: %v", name, frames, err)
		}
		oneLine(t, err)
		v.mu.Lock()
		if len(v.recs) != 0 {
			t.Errorf("%s: %d records were believed", name, len(v.recs))
		}
		v.mu.Unlock()
		check(t, w.hub.RemoveNode(v.Client.cfg.Self.Name))
	}
}

// TestForeignCertificates has a hub hand a node certificates that it could not
// serve with.
func TestForeignCertificates(t *testing.T) {
	w := newWorld(t)
	m := w.member("b1")
	e, v := w.hearing(m)
	issue := func(change func(*peer.Node)) [][]byte {
		n := m.node
		change(&n)
		chain, err := w.issuer.Issue(n, time.Now().Add(time.Minute)) // newer, and not before its time
		check(t, err)
		return chain
	}
	other, err := cert.NewKeys()
	check(t, err)
	for name, chain := range map[string][][]byte{
		"none":                   nil,
		"another's key":          issue(func(n *peer.Node) { n.ID = other.ID() }),
		"another's signing key":  issue(func(n *peer.Node) { n.SignKey = other.Public() }),
		"another's address":      issue(func(n *peer.Node) { n.Addr4 = netip.MustParseAddr("100.80.0.77") }),
		"another's IPv6 address": issue(func(n *peer.Node) { n.Addr6 = netip.MustParseAddr("fd00:1:2:3::77") }),
	} {
		before := v.Client.Disbelieved()
		check(t, e.take(message{Type: typeChain, Chain: chain}))
		if len(v.chains) != 0 || v.Client.Disbelieved() != before+1 {
			t.Fatalf("%s was taken", name)
		}
	}
	check(t, e.take(message{Type: typeChain, Chain: issue(func(*peer.Node) {})}))
	if len(v.chains) != 1 {
		t.Error("its own was not taken")
	}
}

// TestComplaints has a hub refuse something during a session.
func TestComplaints(t *testing.T) {
	w := newWorld(t)
	m := w.member("b1")
	e, v := w.hearing(m)
	e.l.up("hub", nil)
	other := peer.ID{1}
	check(t, e.take(message{Type: typeError, Peer: &other, Code: codeAbsent, Text: "not here"}))
	if info := e.l.info(); info.Err != nil {
		t.Errorf("an absent peer: %v", info.Err)
	}
	check(t, e.take(message{Type: typeError, Text: "no\n\x1b[2Jmore"}))
	info := e.l.info()
	if !info.Up || !errors.Is(info.Err, ErrRefused) || v.err == nil {
		t.Errorf("a refusal: %+v", info)
	}
	oneLine(t, info.Err)
	chain, err := w.issuer.Issue(m.node, time.Now().Add(time.Minute))
	check(t, err)
	check(t, e.take(message{Type: typeChain, Chain: chain}))
	if info := e.l.info(); !info.Up || info.Err != nil {
		t.Errorf("after the renewal: %+v", info)
	}
}

// TestLongNonsense decodes frames whose errors would quote all of them.
func TestLongNonsense(t *testing.T) {
	digits := strings.Repeat("1", 10_000)
	for _, frame := range []string{
		`{"cores":` + digits + `}`, `{"cores":"` + digits + `"}`, `{"time":"` + digits + `"}`, `{"peer":"` + digits + `"}`, `{"type":"\u001b[2J` + digits + `"`,
	} {
		_, err := decodeMessage([]byte(frame))
		if err == nil || len(err.Error()) > maxText+100 {
			t.Errorf("%.20s…: an error of %d bytes", frame, len(err.Error()))
		}
		oneLine(t, err)
	}
	many, err := json.Marshal(message{Type: typeRecords, Records: make([]record, recordsPerFrame+1)})
	check(t, err)
	if _, err := decodeMessage(many); err == nil {
		t.Error("a frame may hold any number of records")
	}
}
