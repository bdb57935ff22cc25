package tun

import (
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"slices"
	"syscall"
	"testing"
	"time"

	"golang.org/x/net/nettest"
)

func oneStack(t *testing.T, a netip.Addr) *Stack {
	t.Helper()
	s, err := NewStack([]netip.Addr{a}, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// TestStackConn: connections are what package net's own tests want of any.
func TestStackConn(t *testing.T) {
	at := netip.MustParseAddrPort("100.80.0.1:99")
	nettest.TestConn(t, func() (net.Conn, net.Conn, func(), error) {
		s, err := NewStack([]netip.Addr{at.Addr()}, 0)
		if err != nil {
			return nil, nil, nil, err
		}
		l, err := s.ListenTCP(at)
		if err != nil {
			return nil, nil, nil, err
		}
		c, err := s.DialTCP(context.Background(), at)
		if err != nil {
			return nil, nil, nil, err
		}
		d, err := l.Accept()
		return c, d, func() { c.Close(); d.Close(); l.Close(); s.Close() }, err
	})
}

// kinds are the errors that callers look for.
var kinds = []error{
	io.EOF, net.ErrClosed, os.ErrDeadlineExceeded,
	syscall.ECONNREFUSED, syscall.ECONNRESET, syscall.EPIPE, syscall.EADDRINUSE, syscall.EADDRNOTAVAIL, syscall.EMSGSIZE,
}

func kindOf(err error) (kind string) {
	if err == nil {
		return "nil"
	}
	i := slices.IndexFunc(kinds, func(k error) bool { return errors.Is(err, k) })
	if i < 0 {
		return "another: " + err.Error()
	}
	if t, ok := errors.AsType[net.Error](err); ok && t.Timeout() {
		kind = "timeout, "
	}
	return kind + kinds[i].Error()
}

// network is a stack or the kernel.
type testNetwork struct {
	dial   func(netip.AddrPort) (net.Conn, error)
	listen func(netip.AddrPort) (net.Listener, error)
	packet func(netip.AddrPort) (net.PacketConn, error)
}

// said is which error each step of a program meets.
func (n testNetwork) said(t *testing.T, own, foreign netip.Addr) (all []string) {
	note := func(what string, err error) { all = append(all, what+": "+kindOf(err)) }
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	later := func(do func() error) (done chan struct{}) { // Accept and Read end before Close has
		done = make(chan struct{})
		time.AfterFunc(50*time.Millisecond, func() { _ = do(); close(done) })
		return done
	}
	b := make([]byte, 1)

	l, err := n.listen(netip.AddrPortFrom(own, 0))
	must(err)
	at := l.Addr().(*net.TCPAddr).AddrPort()
	pair := func() (c, d net.Conn) {
		t.Helper()
		c, err := n.dial(at)
		must(err)
		d, err = l.Accept()
		must(err)
		return c, d
	}
	_, err = n.listen(at)
	note("listen on a port that is taken", err)
	_, err = n.listen(netip.AddrPortFrom(foreign, 0))
	note("listen on another's address", err)

	c, d := pair()
	must(c.SetReadDeadline(time.Now().Add(-time.Second)))
	_, err = c.Read(b)
	note("read after the deadline", err)
	must(c.SetReadDeadline(time.Now().Add(20 * time.Millisecond)))
	_, err = c.Read(b)
	note("read until the deadline", err)
	must(c.SetDeadline(time.Time{}))
	later(d.Close)
	_, err = c.Read(b)
	note("read while the peer closes", err)
	later(c.Close)
	for err = nil; err == nil; { // the peer resets, or this end is closed
		_, err = c.Write(b)
		time.Sleep(time.Millisecond)
	}
	if k := kindOf(err); k != kindOf(syscall.EPIPE) && k != kindOf(syscall.ECONNRESET) {
		note("write to a peer that has closed", err) // a kernel's may be either
	}
	_, err = d.Read(b)
	note("read what is closed", err)
	_, err = d.Write(b)
	note("write to what is closed", err)
	note("close what is closed", d.Close())
	note("set a deadline of what is closed", d.SetDeadline(time.Now()))

	c, d = pair()
	closed := later(c.Close)
	_, err = c.Read(b)
	<-closed
	note("read while it is closed here", err)
	_, err = d.Read(b)
	note("and at the other end", err)
	if c.LocalAddr() == nil || c.RemoteAddr() == nil || c.RemoteAddr().String() != at.String() {
		t.Errorf("addresses %v and %v of a closed connection to %v", c.LocalAddr(), c.RemoteAddr(), at)
	}

	closed = later(l.Close)
	_, err = l.Accept()
	<-closed
	note("accept while it is closed", err)
	_, err = l.Accept()
	note("accept what is closed", err)
	note("close the listener again", l.Close())
	_, err = n.dial(at)
	note("dial where nobody listens", err)

	u, err := n.packet(netip.AddrPortFrom(own, 0))
	must(err)
	_, err = n.packet(u.LocalAddr().(*net.UDPAddr).AddrPort())
	note("another at the same port", err)
	_, err = u.WriteTo(make([]byte, 70_000), u.LocalAddr())
	note("too large a datagram", err)
	must(u.SetReadDeadline(time.Now().Add(20 * time.Millisecond)))
	_, _, err = u.ReadFrom(b)
	note("read no datagram", err)
	must(u.SetReadDeadline(time.Time{}))
	closed = later(u.Close)
	_, _, err = u.ReadFrom(b)
	<-closed
	note("read while the socket is closed", err)
	_, _, err = u.ReadFrom(b)
	note("read of a closed socket", err)
	_, err = u.WriteTo(b, u.LocalAddr())
	note("write to a closed socket", err)
	note("close the socket again", u.Close())
	return all
}

// TestStackErrors: whatever goes wrong, a program is told as by the kernel's sockets.
func TestStackErrors(t *testing.T) {
	own, foreign := netip.MustParseAddr("127.0.0.1"), netip.MustParseAddr("192.0.2.1")
	kernel := testNetwork{
		func(at netip.AddrPort) (net.Conn, error) { return net.Dial("tcp", at.String()) },
		func(at netip.AddrPort) (net.Listener, error) { return net.Listen("tcp", at.String()) },
		func(at netip.AddrPort) (net.PacketConn, error) { return net.ListenPacket("udp", at.String()) },
	}
	want := kernel.said(t, own, foreign)
	for _, own := range []netip.Addr{netip.MustParseAddr("100.80.0.1"), netip.MustParseAddr("fd00::1")} {
		s := oneStack(t, own)
		of := testNetwork{
			func(at netip.AddrPort) (net.Conn, error) { return s.DialTCP(t.Context(), at) }, s.ListenTCP, s.ListenUDP,
		}
		foreign := foreign
		if own.Is6() {
			foreign = netip.MustParseAddr("2001:db8::1")
		}
		got := of.said(t, own, foreign)
		for i := range max(len(got), len(want)) {
			if i >= len(got) || i >= len(want) || got[i] != want[i] {
				t.Errorf("%v: %q; the kernel's %q", own, got[min(i, len(got)-1):], want[min(i, len(want)-1):])
				break
			}
		}
	}
}

// TestStackEnds: when the stack is closed, so is all that hangs on it.
func TestStackEnds(t *testing.T) {
	at := netip.MustParseAddrPort("100.80.0.1:99")
	s := oneStack(t, at.Addr())
	l, err1 := s.ListenTCP(at)
	u, err2 := s.ListenUDP(at)
	c, err3 := s.DialTCP(t.Context(), at)
	if err := errors.Join(err1, err2, err3); err != nil {
		t.Fatal(err)
	}
	if _, err := l.Accept(); err != nil {
		t.Fatal(err)
	}
	waits := map[string]func() error{
		"accept":   func() error { _, err := l.Accept(); return err },
		"read":     func() error { _, err := c.Read(make([]byte, 1)); return err },
		"readfrom": func() error { _, _, err := u.ReadFrom(make([]byte, 1)); return err },
	}
	type end struct {
		what string
		err  error
	}
	ends := make(chan end)
	for what, wait := range waits {
		go func() { ends <- end{what, wait()} }()
	}
	time.Sleep(20 * time.Millisecond) // until they wait; or they find it closed, which is right as well
	s.Close()
	for range waits {
		if e := <-ends; !errors.Is(e.err, net.ErrClosed) {
			t.Errorf("%s: %v", e.what, e.err)
		}
	}
}
