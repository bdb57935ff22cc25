package hub

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/meshmpi/meshmpi/mesh/cert"
	"github.com/meshmpi/meshmpi/mesh/peer"
)

func TestRecords(t *testing.T) {
	w := newWorld(t)
	a, b := w.member("a"), w.member("b")
	va := w.connect(a)
	if r := va.recs[b.node.ID]; r.Up || r.Node.Name != "b" || len(va.recs) != 3 {
		t.Errorf("a knows of %d nodes, and of b %+v", len(va.recs), r)
	}
	vb := w.connect(b)
	va.until("that b is up", func() bool { r := va.recs[b.node.ID]; return r.Up && r.Cores == 4 })
	if s := va.Client.Sessions(); len(s) != 1 || !s[0].Up || s[0].Name != "hub" || s[0].Err != nil {
		t.Errorf("sessions: %+v", s)
	}
	joined, err := w.join(w.token(1), "c")
	check(t, err)
	va.until("that c has joined", func() bool { return va.recs[joined.node.ID].Node.Name == "c" })
	if took := vb.leave(); took > 2*time.Second {
		t.Errorf("leaving took %v", took)
	}
	va.until("that b has left", func() bool { return !va.recs[b.node.ID].Up })
	check(t, w.hub.RemoveNode("b"))
	va.until("that b was removed", func() bool { _, ok := va.recs[b.node.ID]; return !ok })
	if got := fmt.Sprint(va.grants); got != fmt.Sprintf(`[{"for":"%v"}]`, a.node.ID) {
		t.Errorf("granted %s", got)
	}
	if nodes, err := w.hub.Nodes(); err != nil || len(nodes) != 4 || !nodes[0].Up || !nodes[1].Removed {
		t.Errorf("nodes: %+v, %v", nodes, err)
	}
}

func TestBrokenConnection(t *testing.T) {
	w := newWorld(t)
	a, b := w.member("a"), w.member("b")
	va := w.connect(a)
	conn := w.dial(b)
	check(t, writeMessage(conn, message{Type: typeAnnounce}))
	va.until("that b is up", func() bool { return va.recs[b.node.ID].Up })
	began := time.Now()
	conn.NetConn().Close()
	va.until("that b is down", func() bool { return !va.recs[b.node.ID].Up })
	if took := time.Since(began); took > 3*time.Second {
		t.Errorf("noticed after %v", took)
	}
}

func TestSignals(t *testing.T) {
	w := newWorld(t)
	va, vb := w.connect(w.member("a")), w.connect(w.member("b"))
	b := vb.Client.cfg.Self.ID
	ctx := context.Background()
	long := strings.Repeat("x", peer.MaxSignal)
	msg := []byte("hello")
	check(t, va.Client.Post(ctx, b, msg))
	msg[0] = 'X' // the caller's again
	check(t, va.Client.Post(ctx, b, []byte(long)))
	vb.until("the signals", func() bool { return len(vb.signals) == 2 && vb.signals[0] == "hello" && vb.signals[1] == long })
	if err := va.Client.Post(ctx, b, make([]byte, peer.MaxSignal+1)); err == nil {
		t.Error("posted a signal that is too long")
	}
	check(t, va.Client.Post(ctx, peer.ID{9}, msg)) // to nobody: the hub says so, and the session goes on
	vb.leave()
	check(t, va.Client.Post(ctx, b, msg))
	check(t, va.Client.Post(ctx, va.Client.cfg.Self.ID, []byte("to myself")))
	va.until("its own signal", func() bool { return len(va.signals) == 1 })
	w.stop()
	va.until("the end of the session", func() bool { return va.err != nil })
	if err := va.Client.Post(ctx, b, msg); !errors.Is(err, ErrNoHub) {
		t.Errorf("without a hub: %v", err)
	}
}

func TestRevocation(t *testing.T) {
	w := newWorld(t)
	a, b := w.member("a"), w.member("b")
	va, vb := w.connect(a), w.connect(b)
	if !w.relay.has(b.node.ID) {
		t.Error("b may not use the relay")
	}
	check(t, w.hub.RevokeNode("b"))
	va.until("the revocation", func() bool {
		return va.revoked[b.node.ID].Name == "b" && va.recs[b.node.ID].Revoked && !va.recs[b.node.ID].Up
	})
	vb.until("the reason", func() bool { return errors.Is(vb.err, ErrRevoked) && vb.revoked[b.node.ID].Name == "b" })
	oneLine(t, vb.err)
	if w.relay.has(b.node.ID) {
		t.Error("b may still use the relay")
	}
	if err := vb.Client.Post(context.Background(), a.node.ID, []byte("x")); !errors.Is(err, ErrNoHub) {
		t.Errorf("b may still signal: %v", err)
	}
	va.leave()
	w.stop()
	w.start(w.addr) // which knows from its store
	va = w.connect(a)
	va.until("the revocation once more", func() bool { return va.revoked[b.node.ID].Name == "b" && va.recs[b.node.ID].Revoked })
}

func TestRemoval(t *testing.T) {
	w := newWorld(t)
	b := w.member("b")
	vb := w.connect(b)
	check(t, w.hub.RemoveNode("b"))
	vb.until("the reason", func() bool { return vb.err != nil && strings.Contains(vb.err.Error(), "removed") })
	oneLine(t, vb.err)
	if w.relay.has(b.node.ID) {
		t.Error("b may still use the relay")
	}
	again, err := w.joinWith(w.token(1), "b", b.keys)
	check(t, err)
	vb.until("the next session", func() bool { return vb.err == nil && vb.recs[b.node.ID].Up })
	if again.node.Addr4 != b.node.Addr4 {
		t.Errorf("it now has %v instead of %v", again.node.Addr4, b.node.Addr4)
	}
}

// TestManyRevocations has more revocations, removals and records than queue places.
func TestManyRevocations(t *testing.T) {
	const many = maxOutgoing + 50
	w := newWorld(t)
	var revoked, removed []member
	for i := range many {
		revoked, removed = append(revoked, w.member(fmt.Sprintf("x%d", i))), append(removed, w.member(fmt.Sprintf("y%d", i)))
	}
	for i := range many / 2 {
		check(t, w.hub.RevokeNode(fmt.Sprintf("x%d", i)))
	}
	v := w.connect(w.member("a"))
	v.until("earlier revocations", func() bool { return len(v.revoked) == many/2 })
	v.note(func() {
		if len(v.first) < 2*many {
			t.Errorf("the set that replaces all others has %d records", len(v.first))
		}
	})
	for i := range many {
		if i >= many/2 {
			check(t, w.hub.RevokeNode(fmt.Sprintf("x%d", i)))
		}
		check(t, w.hub.RemoveNode(fmt.Sprintf("y%d", i)))
	}
	v.until("all of it", func() bool { return len(v.revoked) == many && len(v.recs) == many+2 })
	v.note(func() {
		for i := range many {
			if !v.recs[revoked[i].node.ID].Revoked || !v.recs[removed[i].node.ID].Node.ID.IsZero() {
				t.Errorf("x%d and y%d: %+v", i, i, v.recs[revoked[i].node.ID])
			}
		}
	})
}

// dial is a node's end of a session by hand.
func (w *world) dial(m member) *tls.Conn {
	w.t.Helper()
	raw, err := net.Dial("tcp", w.addr)
	check(w.t, err)
	c := tls.Client(raw, cert.TLSConfig(m.keys, m.chain, w.network.Root, time.Now, alpnControl))
	check(w.t, c.Handshake())
	check(w.t, c.SetDeadline(time.Now().Add(patience)))
	w.t.Cleanup(func() { c.Close() })
	return c
}

// TestCutOffWhileConnecting revokes or removes a node after the hub has seen its
// certificate and before it has announced itself.
func TestCutOffWhileConnecting(t *testing.T) {
	for _, cut := range []func(*Hub) error{
		func(h *Hub) error { return h.RevokeNode("b") }, func(h *Hub) error { return h.RemoveNode("b") },
	} {
		w := newWorld(t)
		b := w.member("b")
		s := newSession(w.hub.board, b.node, w.dial(b))
		check(t, w.hub.ledger.good(b.node.ID))
		check(t, cut(w.hub))
		if _, ok := w.hub.board.attach(time.Now(), s, b.chain, "", 0); ok {
			t.Error("let in")
		}
		w.hub.grant(s)
		if w.relay.has(b.node.ID) {
			t.Error("granted the use of the relay")
		}
		check(t, writeMessage(s.conn, message{Type: typeAnnounce}))
		if m, err := readMessage(s.conn, maxControlFrame); err != nil || m.Type != typeError {
			t.Errorf("told %+v, %v", m, err)
		}
	}
}

// TestRemovedAndBack has a slow reader hear last what was last.
func TestRemovedAndBack(t *testing.T) {
	w := newWorld(t)
	b := w.member("b")
	s := newSession(w.hub.board, w.self, nil)
	if _, ok := w.hub.board.attach(time.Now(), s, *w.chain.Load(), "", 0); !ok {
		t.Fatal("not let in")
	}
	defer w.hub.board.detach(s)
	check(t, w.hub.RemoveNode("b"))
	_, err := w.joinWith(w.token(1), "b", b.keys)
	check(t, err)
	var last record
	for _, m := range s.take() {
		for _, r := range m.Records {
			if r.ID == b.node.ID {
				last = r
			}
		}
	}
	if last.Removed || last.Chain == nil {
		t.Errorf("last told: %+v", last)
	}
}

// TestOldCertificate has a node show one from before it was admitted anew.
func TestOldCertificate(t *testing.T) {
	w := newWorld(t)
	old := w.member("b")
	w.clock.add(2 * time.Second)
	fresh, err := w.joinWith(w.token(1), "c", old.keys)
	check(t, err)
	w.member("b") // another node has the name now
	v := w.connect(old)
	v.until("the certificate that it lost", func() bool { return len(v.chains) == 1 })
	if !bytes.Equal(v.chains[0][0], fresh.chain[0]) || v.recs[old.node.ID].Node.Name != "c" {
		t.Errorf("it is known as %q", v.recs[old.node.ID].Node.Name)
	}
}

func TestRenewalOverTheWire(t *testing.T) {
	w := newWorld(t)
	m := w.member("b")
	conn := w.dial(m)
	check(t, writeMessage(conn, message{Type: typeAnnounce}))
	ask := func() [][]byte {
		check(t, writeMessage(conn, message{Type: typeRenew}))
		for {
			got, err := readMessage(conn, maxControlFrame)
			check(t, err)
			if got.Type == typeChain {
				return got.Chain
			}
		}
	}
	for range 3 {
		if got := ask(); !bytes.Equal(got[0], m.chain[0]) {
			t.Fatal("renewed before half of its life")
		}
	}
	w.clock.add(cert.Lifetime/2 + time.Hour)
	renewed := ask()
	n, err := cert.Verify(renewed, w.network.Root, w.clock.now())
	if err != nil || !n.NotAfter.After(m.node.NotAfter) || n.Addr4 != m.node.Addr4 {
		t.Errorf("renewed to %+v, %v", n, err)
	}
	if r, _ := w.hub.board.record(m.node.ID); !bytes.Equal(r.Chain[0], renewed[0]) {
		t.Error("others are not told of the new certificate")
	}
	w.clock.add(2 * cert.Lifetime)
	check(t, writeMessage(conn, message{Type: typePing}))
	for err = nil; err == nil; {
		_, err = readMessage(conn, maxControlFrame)
	}
	if v, late := w.hub.board.session(m.node.ID), errors.Is(err, context.DeadlineExceeded); late {
		t.Errorf("the session %v outlives the certificate", v)
	}
}

func TestHubRestarts(t *testing.T) {
	w := newWorld(t)
	a, b := w.member("a"), w.member("b")
	va, vb := w.connect(a), w.connect(b)
	for times := range 2 {
		w.stop()
		va.until("the end of the session", func() bool { return va.err != nil })
		oneLine(t, va.Client.Sessions()[0].Err)
		w.start(w.addr)
		for _, v := range []*watcher{va, vb} {
			v.until("the next session", func() bool { return v.ups == times+2 })
		}
	}
	check(t, vb.Client.Post(context.Background(), a.node.ID, []byte("still here")))
	va.until("a signal", func() bool { return len(va.signals) > 0 })
}

// TestTwoSessionsOfANode has the newer count and the older end.
func TestTwoSessionsOfANode(t *testing.T) {
	w := newWorld(t)
	a, b := w.member("a"), w.member("b")
	va := w.connect(a)
	older := w.dial(b)
	check(t, writeMessage(older, message{Type: typeAnnounce, Cores: 1}))
	va.until("that b is up", func() bool { return va.recs[b.node.ID].Cores == 1 })
	newer := w.dial(b)
	check(t, writeMessage(newer, message{Type: typeAnnounce, Cores: 2}))
	va.until("the newer session", func() bool { return va.recs[b.node.ID].Cores == 2 })
	var err error
	for err == nil {
		_, err = readMessage(older, maxControlFrame)
	}
	check(t, va.Client.Post(context.Background(), b.node.ID, []byte("x")))
	for {
		m, err := readMessage(newer, maxControlFrame)
		check(t, err)
		if m.Type == typeSignal {
			break
		}
	}
	if r, _ := w.hub.board.record(b.node.ID); !r.Up {
		t.Error("the end of the older session took the node down")
	}
}

// TestHubOfTwoNames: a node that knows one hub by two addresses has a session that
// stays up, and its peers do not see it come and go.
func TestHubOfTwoNames(t *testing.T) {
	w := newWorld(t)
	_, port, _ := net.SplitHostPort(w.addr)
	v := w.watch(w.member("a"), w.addr, "localhost:"+port)
	v.start()
	v.until("a session", func() bool { return v.ups > 0 })
	<-time.After(4 * time.Second) // what is watched for is that nothing happens
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.ups > 2 { // both may begin at once
		t.Errorf("in 4 s sessions of one node with one hub began %d times; %v", v.ups, v.err)
	}
}
