package hub

import (
	"context"
	"crypto/ed25519"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/meshmpi/meshmpi/internal/deaf"
	"github.com/meshmpi/meshmpi/mesh/cert"
	"github.com/meshmpi/meshmpi/mesh/peer"
)

func TestJoin(t *testing.T) {
	w := newWorld(t)
	tok := w.token(2)
	var seen peer.Network
	k := keys(t)
	res, err := Join(context.Background(), JoinRequest{Token: tok, Name: "b1", Keys: k, Check: func(n peer.Network) error { seen = n; return nil }})
	check(t, err)
	if res.Node.Name != "b1" || res.Node.Site != "core" || res.Node.ID != k.ID() || res.Node.Addr4.String() != "100.80.0.2" {
		t.Errorf("admitted as %+v", res.Node)
	}
	if res.Network != w.network || seen != w.network || len(res.Hubs) != 1 || res.Hubs[0] != w.addr {
		t.Errorf("of network %+v with hubs %v", res.Network, res.Hubs)
	}
	if r, ok := w.hub.board.record(k.ID()); !ok || r.Up {
		t.Errorf("on the board: %+v", r)
	}
}

func TestJoinRefused(t *testing.T) {
	w := newWorld(t)
	good := w.token(1)
	unknown, expired, revoked, used := good, w.token(1), w.token(1), w.token(1)
	unknown.Secret[0]++
	list, err := w.hub.Tokens()
	check(t, err)
	for _, i := range list {
		if i.ID == hexID(revoked.ID) {
			check(t, w.hub.RevokeToken(i.ID))
		}
	}
	_, err = w.join(used, "b0")
	check(t, err)
	gone := w.member("gone")
	check(t, w.hub.RevokeNode("gone"))

	for _, test := range []struct {
		name string
		run  func() error
		want error
	}{
		{"unknown", func() error { _, err := w.join(unknown, "b1"); return err }, ErrTokenUnknown},
		{"revoked", func() error { _, err := w.join(revoked, "b1"); return err }, ErrTokenRevoked},
		{"used", func() error { _, err := w.join(used, "b1"); return err }, ErrTokenUsed},
		{"name taken", func() error { _, err := w.join(good, "b0"); return err }, ErrNameTaken},
		{"revoked key", func() error { _, err := w.joinWith(good, "gone", gone.keys); return err }, ErrRevoked},
		{"no name", func() error { _, err := w.join(good, "No Name"); return err }, nil},
		{"expired", func() error {
			w.clock.add(25 * time.Hour)
			defer w.clock.add(-25 * time.Hour)
			_, err := w.join(expired, "b1")
			return err
		}, ErrTokenExpired},
	} {
		err := test.run()
		if err == nil || test.want != nil && !errors.Is(err, test.want) {
			t.Errorf("%s: got %v, want %v", test.name, err, test.want)
		}
		oneLine(t, err)
	}
	if _, err := w.join(good, "b1"); err != nil {
		t.Errorf("what was refused spent the token: %v", err)
	}
}

func hexID(id [8]byte) string { return fmt.Sprintf("%x", id) }

// TestCheckSpendsNothing has a joiner that does not like the network go away.
func TestCheckSpendsNothing(t *testing.T) {
	w := newWorld(t)
	tok, overlap := w.token(1), errors.New("it overlaps eth0")
	_, err := Join(context.Background(), JoinRequest{Token: tok, Name: "b1", Keys: keys(t), Check: func(peer.Network) error { return overlap }})
	if !errors.Is(err, overlap) {
		t.Fatalf("got %v", err)
	}
	_, err = w.join(tok, "b1")
	check(t, err)
}

// listen answers every connection with serve, until the test ends.
func listen(t *testing.T, serve func(net.Conn)) (addr string) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	check(t, err)
	done := make(chan struct{})
	go func() { // ends with ln
		defer close(done)
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			serve(c)
			c.Close()
		}
	}()
	t.Cleanup(func() { ln.Close(); <-done })
	return ln.Addr().String()
}

// TestNoHub dials what is no hub of the network. Each must be told apart in one
// line, and none may keep a joiner from the next hub.
func TestNoHub(t *testing.T) {
	w, other := newWorld(t), newWorld(t)
	closed := listen(t, func(net.Conn) {})
	dead := deaf.Addr(t, "tcp")
	chatty := listen(t, func(c net.Conn) { c.Write([]byte("220 mail.example ESMTP ready\r\n")) })
	m := w.member("plain") // a node of the network that is no hub
	plain := listen(t, func(c net.Conn) {
		_ = tls.Server(c, cert.HubTLSConfig(m.keys, func() [][]byte { return m.chain }, alpnJoin)).Handshake()
	})
	rude := listen(t, func(c net.Conn) { // a hub that dies in the middle
		conn := tls.Server(c, cert.HubTLSConfig(w.keys, func() [][]byte { return *w.chain.Load() }, alpnJoin))
		_ = writeMessage(conn, message{Type: typeChallenge, Key: w.self.ID[:], Nonce: make([]byte, 32)})
		_, _ = readMessage(conn, maxNodeFrame)
	})
	for _, test := range []struct{ name, addr, says string }{
		{"nobody", dead, "cannot reach " + dead + " (tcp: connect: connection refused); check the address"},
		{"another network", other.addr, "another network"},
		{"no TLS", chatty, "does not speak TLS"},
		{"hangs up", closed, "broke off"},
		{"no hub", plain, "is no hub"},
		{"dies", rude, "broke off"},
	} {
		t.Run(test.name, func(t *testing.T) {
			tok := w.token(1)
			tok.Hubs = []string{test.addr}
			_, err := w.join(tok, "x")
			if err == nil || !strings.Contains(err.Error(), test.says) {
				t.Errorf("join says %v, want %q", err, test.says)
			}
			oneLine(t, err)
			tok.Hubs = []string{test.addr, test.addr}
			_, err = w.join(tok, "x")
			oneLine(t, err)
			tok.Hubs = []string{test.addr, w.addr}
			if _, err = w.join(tok, strings.ToLower(strings.ReplaceAll(test.name, " ", "-"))); err != nil {
				t.Errorf("the next hub did not admit: %v", err)
			}
		})
	}
}

// TestSilentHub bounds how long one waits for a hub that says nothing.
func TestSilentHub(t *testing.T) {
	w := newWorld(t)
	hold := make(chan struct{})
	silent := listen(t, func(net.Conn) { <-hold })
	defer close(hold)
	tok := w.token(1)
	tok.Hubs = []string{silent}
	ctx, cancel := context.WithTimeout(context.Background(), 200*time.Millisecond)
	defer cancel()
	began := time.Now()
	_, err := Join(ctx, JoinRequest{Token: tok, Name: "b1", Keys: keys(t)})
	if !errors.Is(err, context.DeadlineExceeded) || time.Since(began) > 5*time.Second {
		t.Errorf("after %v: %v", time.Since(began), err)
	}
	oneLine(t, err)
}

func TestClocksAtJoining(t *testing.T) {
	w := newWorld(t)
	for _, ahead := range []time.Duration{-24 * time.Hour, 2 * cert.Lifetime} {
		_, err := Join(context.Background(), JoinRequest{Token: w.token(1), Name: "b1", Keys: keys(t), Now: func() time.Time { return time.Now().Add(ahead) }})
		if err == nil || !strings.Contains(err.Error(), "clock") {
			t.Errorf("%v ahead: %v", ahead, err)
		}
		oneLine(t, err)
	}
}

// stranger is a joiner by hand.
func (w *world) stranger() (conn *tls.Conn, challenge message) {
	w.t.Helper()
	raw, err := net.Dial("tcp", w.addr)
	check(w.t, err)
	conn = tls.Client(raw, cert.PinnedTLSConfig(w.network.Root, time.Now, alpnJoin))
	w.t.Cleanup(func() { conn.Close() })
	check(w.t, conn.SetDeadline(time.Now().Add(patience)))
	challenge, err = expect(conn, typeChallenge, maxJoinFrame)
	check(w.t, err)
	return conn, challenge
}

// TestProofs has a joiner lie about the keys it holds.
func TestProofs(t *testing.T) {
	w := newWorld(t)
	tok := w.token(1)
	k, other := keys(t), keys(t)
	_, old := w.stranger()
	for name, change := range map[string]func(*message, message){
		"another's WireGuard key": func(m *message, _ message) { id := other.ID(); m.Key = id[:] },
		"another's signing key":   func(m *message, _ message) { m.Sign = other.Public() },
		"no proof":                func(m *message, _ message) { m.Proof = nil },
		"no signature":            func(m *message, _ message) { m.Sig = nil },
		"another name":            func(m *message, _ message) { m.Name = "b2" },
		"short keys":              func(m *message, _ message) { m.Key, m.Sign = m.Key[:31], m.Sign[:31] },
		"low order key":           func(m *message, _ message) { m.Key = make([]byte, 32) },
		"an answer to another challenge": func(m *message, _ message) {
			*m, _ = JoinRequest{Token: tok, Name: "b1", Keys: k}.answer(old)
		},
		"a signature for another challenge": func(m *message, _ message) {
			m.Sig = ed25519.Sign(k.Sign, transcript(old, *m))
		},
		"the same key, another nonce": func(m *message, c message) {
			c.Nonce = old.Nonce
			*m, _ = JoinRequest{Token: tok, Name: "b1", Keys: k}.answer(c)
		},
	} {
		conn, challenge := w.stranger()
		m, err := JoinRequest{Token: tok, Name: "b1", Keys: k}.answer(challenge)
		check(t, err)
		change(&m, challenge)
		check(t, writeMessage(conn, m))
		if _, err := expect(conn, typeWelcome, maxJoinFrame); !errors.Is(err, ErrRefused) {
			t.Errorf("%s: %v", name, err)
		}
		conn.Close()
	}
	_, err := w.joinWith(tok, "b1", k)
	check(t, err)
}

// fullStore is a store on a disk that is full, while it is.
type fullStore struct {
	Store
	full atomic.Bool
}

func (s *fullStore) Update(f func(Tx) error) error {
	return s.Store.Update(func(tx Tx) error {
		if err := f(tx); err != nil || !s.full.Load() {
			return err
		}
		return syscall.ENOSPC
	})
}

// TestFullDisk: a hub that cannot write does not say that it refuses the node, and
// another one is asked.
func TestFullDisk(t *testing.T) {
	w := newNetwork(t, "100.80.0.0/16")
	full := &fullStore{Store: w.store}
	w.store = full
	w.start("127.0.0.1:0")
	defer w.stop()
	tok := w.token(1)
	full.full.Store(true)
	_, err := w.join(tok, "b1")
	if !errors.Is(err, ErrNotNow) || errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), "no space") {
		t.Errorf("got %v", err)
	}
	oneLine(t, err)
	first := true
	tok.Hubs = append(tok.Hubs, w.addr)
	k := keys(t)
	_, err = Join(t.Context(), JoinRequest{Token: tok, Name: "b1", Keys: k, Check: func(peer.Network) error {
		full.full.Store(first)
		first = false
		return nil
	}})
	if err != nil {
		t.Errorf("the second hub has room: %v", err)
	}
}

// TestFlood has one address ask faster than it may.
func TestFlood(t *testing.T) {
	w := newWorld(t)
	tok := w.token(1)
	tok.Secret[0]++
	w.hub.door.mu.Lock()
	w.hub.door.source(&net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)}).joins.SetLimit(0) // this machine may be slow
	w.hub.door.mu.Unlock()
	for range joinBurst + 1 {
		if _, err := w.join(tok, "b1"); err == nil {
			t.Fatal("admitted with a wrong secret")
		} else if errors.Is(err, ErrNotNow) {
			if !strings.Contains(err.Error(), "too many") || w.hub.Stats().Refused == 0 {
				t.Errorf("got %v, counted %d", err, w.hub.Stats().Refused)
			}
			return
		}
	}
	t.Error("nothing stops it")
}

// TestStrangersAreLimited opens more connections than strangers may hold.
func TestStrangersAreLimited(t *testing.T) {
	w := newWorld(t)
	var conns []net.Conn
	defer func() {
		for _, c := range conns {
			c.Close()
		}
	}()
	for range maxStrangers + 20 {
		c, err := net.Dial("tcp", w.addr)
		check(t, err)
		conns = append(conns, c)
	}
	late := time.Now().Add(patience)
	for w.hub.Stats().Refused < 20 && time.Now().Before(late) {
		time.Sleep(time.Millisecond) // until all have been accepted
	}
	if got := w.hub.Stats().Refused; got != 20 {
		t.Errorf("%d were refused, want 20", got)
	}
	for _, c := range conns {
		c.Close()
	}
	var err error
	for time.Now().Before(late) {
		if _, err = w.join(w.token(1), "b1"); err == nil {
			return
		}
	}
	t.Errorf("when they have gone: %v", err)
}

// TestManyJoin has a site's nodes join at once with one token.
func TestManyJoin(t *testing.T) {
	w := newWorld(t)
	const nodes = 40
	tok := w.token(nodes)
	addrs, failed := make(chan string, nodes), atomic.Int32{}
	for i := range nodes {
		go func() {
			m, err := w.join(tok, "b"+string(rune('a'+i/10))+string(rune('0'+i%10)))
			if err != nil {
				failed.Add(1)
				t.Error(err)
			}
			addrs <- m.node.Addr4.String()
		}()
	}
	seen := map[string]bool{}
	for range nodes {
		seen[<-addrs] = true
	}
	if len(seen) != nodes || failed.Load() != 0 {
		t.Errorf("%d nodes have %d addresses", nodes, len(seen))
	}
}
