package hub

import (
	"context"
	"crypto/tls"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/meshmpi/meshmpi/mesh/cert"
	"github.com/meshmpi/meshmpi/mesh/peer"
)

// TestSlowReader has a node read nothing while others go on.
func TestSlowReader(t *testing.T) {
	w := newWorld(t)
	va, vb := w.connect(w.member("a")), w.connect(w.member("b"))
	slow := w.member("slow")
	conn := w.dial(slow)
	check(t, writeMessage(conn, message{Type: typeAnnounce}))
	va.until("that the slow one is up", func() bool { return va.recs[slow.node.ID].Up })
	ctx, big := context.Background(), make([]byte, peer.MaxSignal)
	for late := time.Now().Add(3 * patience); w.hub.Stats().Dropped == 0; {
		if err := va.Client.Post(ctx, slow.node.ID, big); err != nil {
			time.Sleep(time.Millisecond) // the hub reads no faster than it allows
		}
		if time.Now().After(late) {
			t.Fatal("nothing is dropped")
		}
	}
	began := time.Now()
	vb.until("nothing in its way", func() bool {
		return vb.Client.Post(ctx, vb.Client.cfg.Self.ID, []byte("x")) == nil
	})
	vb.until("a signal", func() bool { return len(vb.signals) > 0 })
	w.member("new")
	va.until("a record", func() bool { return len(va.recs) == 5 })
	if took := time.Since(began); took > 2*time.Second {
		t.Errorf("others waited %v", took)
	}
}

func TestChatterIsHeldBack(t *testing.T) {
	w := newWorld(t)
	conn := w.dial(w.member("b"))
	check(t, writeMessage(conn, message{Type: typeAnnounce}))
	const over = 250
	began := time.Now()
	go func() { // ends with conn
		for range talkBurst + over {
			_ = writeMessage(conn, message{Type: typeRenew})
		}
		_ = writeMessage(conn, message{Type: typeLeave})
	}()
	for {
		if _, err := readMessage(conn, maxControlFrame); err != nil {
			break
		}
	}
	if took := time.Since(began); took < over*time.Second/time.Duration(talkPerSec)*8/10 {
		t.Errorf("%d messages beyond the burst were taken in %v", over, took)
	}
}

// TestSilentHubAtLeaving ends a client before its hub has said a word.
func TestSilentHubAtLeaving(t *testing.T) {
	w := newWorld(t)
	shaken, hold := make(chan struct{}, 1), make(chan struct{})
	addr := listen(t, func(c net.Conn) {
		conn := tls.Server(c, cert.TLSConfig(w.keys, *w.chain.Load(), w.network.Root, time.Now, alpnControl))
		_, _ = readMessage(conn, maxNodeFrame)
		shaken <- struct{}{}
		<-hold
	})
	defer close(hold)
	v := w.watch(w.member("b"), addr)
	v.start()
	<-shaken
	if took := v.leave(); took > 3*time.Second {
		t.Errorf("leaving took %v", took)
	}
}

// TestWrongClocks wants the reason in one line wherever a clock is wrong.
func TestWrongClocks(t *testing.T) {
	for _, ahead := range []time.Duration{-24 * time.Hour, 2 * cert.Lifetime} {
		w := newWorld(t)
		m := w.member("b")
		v := w.watch(m)
		v.clock.add(ahead)
		v.start()
		v.until("the node's word on its clock", func() bool { return v.err != nil && strings.Contains(v.err.Error(), "clock") })
		oneLine(t, v.err)
		v.leave()
		v = w.watch(m)
		w.clock.add(ahead)
		v.start()
		v.until("a word on the hub's clock", func() bool { return v.err != nil && strings.Contains(v.err.Error(), "clock") })
		oneLine(t, v.err)
		if got := v.Client.Sessions()[0].Err; got == nil || v.ups != 0 {
			t.Errorf("session: %v, up %d times", got, v.ups)
		}
	}
}

// TestMisbehavingHub has a hub send what a node must not believe.
func TestMisbehavingHub(t *testing.T) {
	w, other := newWorld(t), newWorld(t)
	stolen := other.member("b")
	m := w.member("b")
	check(t, other.hub.RevokeNode("b"))
	foreign := other.hub.board.revoked[0]
	addr := listen(t, func(c net.Conn) {
		conn := tls.Server(c, cert.TLSConfig(w.keys, *w.chain.Load(), w.network.Root, time.Now, alpnControl))
		_, _ = readMessage(conn, maxNodeFrame)
		for _, m := range []message{
			{Type: typeHello, Name: "\x1b[2J", Time: time.Now().Add(time.Hour)},
			{Type: typeRecords, Records: []record{{ID: stolen.node.ID, Chain: stolen.chain, Up: true}, {ID: w.self.ID, Chain: *w.chain.Load()}}},
			{Type: typeSignal}, {Type: typeSignal, Peer: &peer.ID{}, Data: make([]byte, peer.MaxSignal+1)},
			{Type: typeChain, Chain: stolen.chain}, {Type: typeChain, Chain: m.chain}, {Type: typeChain},
			{Type: typeRevoked}, {Type: typeRevoked, Revoked: &foreign},
			{Type: typePong, Time: time.Unix(0, 0)}, {Type: typeError, Text: "\n"}, {Type: "news"},
			{Type: typeRecords, Full: true, More: true},
		} {
			_ = writeMessage(conn, m)
		}
		for err := error(nil); err == nil; {
			err = writeMessage(conn, message{Type: typeRecords, More: true, Records: make([]record, recordsPerFrame)})
		}
	})
	v := w.watch(m, addr)
	v.start()
	v.until("an end to it", func() bool { return v.err != nil && strings.Contains(v.err.Error(), "tells of more than") })
	v.leave()
	if len(v.first) != 1 || len(v.chains) != 0 || len(v.revoked) != 0 || len(v.signals) != 0 || v.Client.Sessions()[0].RTT != 0 {
		t.Errorf("believed %d records, %d certificates, %d revocations, %d signals", len(v.first), len(v.chains), len(v.revoked), len(v.signals))
	}
	if v.Client.Disbelieved() < 4 {
		t.Errorf("counted %d", v.Client.Disbelieved())
	}
}

// TestPlainNodeIsNoHub has a node of the network pose as a hub.
func TestPlainNodeIsNoHub(t *testing.T) {
	w := newWorld(t)
	m, poser := w.member("b"), w.member("poser")
	addr := listen(t, func(c net.Conn) {
		_ = tls.Server(c, cert.TLSConfig(poser.keys, poser.chain, w.network.Root, time.Now, alpnControl)).Handshake()
	})
	v := w.watch(m, addr)
	v.start()
	v.until("the reason", func() bool { return v.err != nil && strings.Contains(v.err.Error(), "no hub") })
}

// TestStrangersGetNoSession speaks the control protocol with certificates that
// the network did not issue.
func TestStrangersGetNoSession(t *testing.T) {
	w, other := newWorld(t), newWorld(t)
	m := other.member("b")
	raw, err := net.Dial("tcp", w.addr)
	check(t, err)
	defer raw.Close()
	cfg := cert.TLSConfig(m.keys, m.chain, w.network.Root, time.Now, alpnControl)
	conn := tls.Client(raw, cfg)
	check(t, conn.SetDeadline(time.Now().Add(patience)))
	check(t, writeMessage(conn, message{Type: typeAnnounce}))
	if got, err := readMessage(conn, maxControlFrame); err != nil || got.Type != typeError || !strings.Contains(got.Text, "another network") {
		t.Errorf("told %+v, %v", got, err)
	}
	if got, err := readMessage(conn, maxControlFrame); err == nil {
		t.Errorf("and then told %+v", got)
	}
	if _, ok := w.hub.board.record(m.node.ID); ok {
		t.Error("it is on the board")
	}
}
