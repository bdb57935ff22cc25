package tun

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"io"
	"net"
	"net/netip"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// connected returns both ends of a connection between two stacks.
func connected(t *testing.T, from, to *Stack) (a, b net.Conn) {
	t.Helper()
	l, err := to.ListenTCP(netip.AddrPortFrom(to.Addrs()[0], 0))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if a, err = from.Dial(ctx, "tcp", l.Addr().String()); err != nil {
		t.Fatal(err)
	}
	if b, err = l.Accept(); err != nil {
		t.Fatal(err)
	}
	return a, b
}

// TestLeaveDelivers: what a program has written before it closes a connection, or half
// of it, arrives though the stack ends at once and packets are lost.
func TestLeaveDelivers(t *testing.T) {
	for what, end := range map[string]func(net.Conn) error{
		"closed":      net.Conn.Close,
		"half-closed": func(c net.Conn) error { return c.(interface{ CloseWrite() error }).CloseWrite() },
	} {
		a, b := twoStacks(t)
		var n atomic.Int64
		joinStacks(t, a, b, func([]byte) bool { return n.Add(1)%29 == 0 })
		c, peer := connected(t, a, b)
		sent := make([]byte, 1<<20)
		rand.Read(sent)
		got := make(chan []byte)
		go func() { // ends with the connection
			all, err := io.ReadAll(peer)
			if err != nil {
				t.Errorf("%s: the peer: %v", what, err)
			}
			got <- all
		}()
		if _, err := c.Write(sent); err != nil {
			t.Fatal(err)
		}
		if err := end(c); err != nil {
			t.Fatal(err)
		}
		a.Leave(t.Context())
		a.Close()
		if all := <-got; !bytes.Equal(all, sent) {
			t.Errorf("%s: %d of %d bytes arrived", what, len(all), len(sent))
		}
	}
}

// TestLeaveResets: peers of connections that are open hear that they have ended, and
// none begins any more.
func TestLeaveResets(t *testing.T) {
	a, b := twoStacks(t)
	joinStacks(t, a, b, nil)
	c, peer := connected(t, a, b)
	a.Leave(t.Context())
	if err := peer.SetReadDeadline(time.Now().Add(10 * time.Second)); err != nil {
		t.Fatal(err)
	}
	if _, err := peer.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("the peer: %v, want %v", err, syscall.ECONNRESET)
	}
	if _, err := c.Read(make([]byte, 1)); !errors.Is(err, net.ErrClosed) {
		t.Errorf("the own end: %v, want %v", err, net.ErrClosed)
	}
	if _, err := a.DialTCP(t.Context(), netip.AddrPortFrom(b.Addrs()[0], 9)); !errors.Is(err, net.ErrClosed) {
		t.Errorf("dial: %v, want %v", err, net.ErrClosed)
	}
	if _, err := a.ListenTCP(netip.AddrPortFrom(a.Addrs()[0], 0)); !errors.Is(err, net.ErrClosed) {
		t.Errorf("listen: %v, want %v", err, net.ErrClosed)
	}
}

// TestLeaveGivesUp: who has vanished holds nobody up for ever, and no longer than the
// caller wants.
func TestLeaveGivesUp(t *testing.T) {
	t.Parallel()
	for what, patience := range map[string]time.Duration{"the peer is silent": time.Minute, "the caller gives up": 10 * time.Millisecond} {
		a, b := twoStacks(t)
		var gone atomic.Bool
		joinStacks(t, a, b, func([]byte) bool { return gone.Load() })
		c, _ := connected(t, a, b)
		gone.Store(true)
		if _, err := c.Write([]byte("lost")); err != nil {
			t.Fatal(err)
		}
		c.Close()
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		a.Leave(ctx)
		if what == "the peer is silent" && ctx.Err() != nil {
			t.Errorf("%s: it waited for a minute", what)
		}
		cancel()
		a.Close()
	}
}
