package cert

import (
	"crypto/tls"
	"errors"
	"net"
	"testing"
	"time"

	"github.com/meshmpi/meshmpi/mesh/peer"
)

const alpn = "mesh/test"

// shake runs a handshake and one byte each way, and returns what either end
// made of it.
func shake(t *testing.T, client, server *tls.Config) (c, s *tls.Conn, cErr, sErr error) {
	t.Helper()
	a, b := net.Pipe()
	c, s = tls.Client(a, client), tls.Server(b, server)
	deadline := time.Now().Add(10 * time.Second)
	a.SetDeadline(deadline)
	b.SetDeadline(deadline)
	t.Cleanup(func() { a.Close(); b.Close() })
	served := make(chan error)
	go func() {
		err := s.Handshake()
		if err == nil {
			_, err = s.Write([]byte{1})
		}
		if err != nil {
			b.Close() // the alert went out before
		}
		served <- err
	}()
	_, cErr = c.Read(make([]byte, 1))
	if cErr != nil {
		a.Close()
	}
	return c, s, cErr, <-served
}

func hubOf(t *testing.T, w *world) (Keys, [][]byte) {
	t.Helper()
	k := must(NewKeys())
	n := testNode(k, "h1", 1)
	n.Roles = peer.RoleHub | peer.RoleRelay
	return k, must(w.issuer.Issue(n, epoch()))
}

func TestTLSBetweenNodes(t *testing.T) {
	w := newWorld(t)
	hubKeys, hubChain := hubOf(t, w)
	c, s, cErr, sErr := shake(t,
		TLSConfig(w.keys, w.chain, w.pin, epoch, alpn),
		TLSConfig(hubKeys, hubChain, w.pin, epoch, alpn))
	if cErr != nil || sErr != nil {
		t.Fatalf("client: %v, server: %v", cErr, sErr)
	}
	if got := c.ConnectionState().Version; got != tls.VersionTLS13 {
		t.Errorf("version %x", got)
	}
	for conn, want := range map[*tls.Conn]string{c: "h1", s: "b1"} {
		n, chain, err := NodeOf(conn.ConnectionState(), w.pin, epoch())
		if err != nil || n.Name != want || len(chain) != 3 {
			t.Errorf("other end is %q (chain of %d), %v; want %s", n.Name, len(chain), err, want)
		}
		if _, _, err := NodeOf(conn.ConnectionState(), w.pin, epoch().Add(2*Lifetime)); !errors.Is(err, ErrExpired) {
			t.Errorf("two lives later: %v", err)
		}
	}
}

func TestTLSRefuses(t *testing.T) {
	w, other := newWorld(t), newWorld(t)
	thief := must(NewKeys())
	good := TLSConfig(w.keys, w.chain, w.pin, epoch, alpn)
	later := func() time.Time { return epoch().Add(2 * Lifetime) }
	tests := []struct {
		name           string
		client, server *tls.Config
		cWant, sWant   error // what the end that refuses says; nil: it only sees the other's refusal
	}{
		{"server of another network", good, TLSConfig(other.keys, other.chain, w.pin, epoch, alpn), ErrUntrusted, nil},
		{"client of another network", TLSConfig(other.keys, other.chain, w.pin, epoch, alpn), good, nil, ErrUntrusted},
		{"client without certificate", PinnedTLSConfig(w.pin, epoch, alpn), good, ErrUntrusted, nil},
		{"client's clock", TLSConfig(w.keys, w.chain, w.pin, later, alpn), good, ErrExpired, nil},
		{"server's clock", good, TLSConfig(w.keys, w.chain, w.pin, later, alpn), nil, ErrExpired},
		{"stolen chain", TLSConfig(thief, w.chain, w.pin, epoch, alpn), good, nil, nil},
		{"other protocol", good, TLSConfig(w.keys, w.chain, w.pin, epoch, "mesh/other"), nil, nil},
		{"client with no protocol", TLSConfig(w.keys, w.chain, w.pin, epoch), good, nil, ErrUntrusted},
		{"server with no protocol", good, TLSConfig(w.keys, w.chain, w.pin, epoch), ErrUntrusted, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, _, cErr, sErr := shake(t, tt.client, tt.server)
			if cErr == nil || sErr == nil {
				t.Fatalf("client: %v, server: %v; want both refused", cErr, sErr)
			}
			if tt.cWant != nil && !errors.Is(cErr, tt.cWant) {
				t.Errorf("client: %v, want %v", cErr, tt.cWant)
			}
			if tt.sWant != nil && !errors.Is(sErr, tt.sWant) {
				t.Errorf("server: %v, want %v", sErr, tt.sWant)
			}
		})
	}
}

func TestTLSJoining(t *testing.T) {
	w, other := newWorld(t), newWorld(t)
	hubKeys, hubChain := hubOf(t, w)
	hub := HubTLSConfig(hubKeys, func() [][]byte { return hubChain }, alpn)

	c, s, cErr, sErr := shake(t, PinnedTLSConfig(w.pin, epoch, alpn), hub)
	if cErr != nil || sErr != nil {
		t.Fatalf("client: %v, server: %v", cErr, sErr)
	}
	if n, _, err := NodeOf(c.ConnectionState(), w.pin, epoch()); err != nil || n.Name != "h1" {
		t.Errorf("the hub is %q, %v", n.Name, err)
	}
	if _, _, err := NodeOf(s.ConnectionState(), w.pin, epoch()); !errors.Is(err, ErrUntrusted) {
		t.Errorf("the joining client is somebody: %v", err)
	}

	_, _, cErr, _ = shake(t, PinnedTLSConfig(other.pin, epoch, alpn), hub)
	wantLine(t, cErr, "another network", "token")
	node := HubTLSConfig(w.keys, func() [][]byte { return w.chain }, alpn)
	_, _, cErr, _ = shake(t, PinnedTLSConfig(w.pin, epoch, alpn), node)
	wantLine(t, cErr, "b1 is no hub")
}

func TestTLSFollowsRenewal(t *testing.T) {
	w := newWorld(t)
	now := epoch()
	chain := w.chain
	clock := func() time.Time { return now }
	cfg := RenewingTLSConfig(w.keys, func() [][]byte { return chain }, w.pin, clock, alpn)
	now = epoch().Add(Lifetime + time.Hour)
	if _, _, cErr, _ := shake(t, cfg, cfg); !errors.Is(cErr, ErrExpired) {
		t.Fatalf("got %v, want ErrExpired", cErr)
	}
	chain = must(w.issuer.Issue(w.node, now))
	if _, _, cErr, sErr := shake(t, cfg, cfg); cErr != nil || sErr != nil {
		t.Errorf("after renewal: client %v, server %v", cErr, sErr)
	}
}
