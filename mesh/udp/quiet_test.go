package udp

import (
	"errors"
	"net"
	"net/netip"
	"os"
	"testing"
	"time"
)

func TestQuiet(t *testing.T) {
	open := func() *Quiet {
		c, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
		if err != nil {
			t.Fatal(err)
		}
		q, err := NewQuiet(c)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = q.Close() })
		return q
	}
	a, b := open(), open()
	buf := make([]byte, 16)
	for _, text := range []string{"one", "", "two"} {
		if n, err := a.WriteTo([]byte(text), b.LocalAddr()); n != len(text) || err != nil {
			t.Fatalf("wrote %d bytes of %q, %v", n, text, err)
		}
		n, from, err := b.ReadFrom(buf)
		if err != nil || string(buf[:n]) != text || from.String() != a.LocalAddr().String() {
			t.Errorf("got %q from %v, %v; want %q from %v", buf[:n], from, err, text, a.LocalAddr())
		}
	}
	if err := b.SetReadDeadline(time.Unix(1, 0)); err != nil {
		t.Fatal(err)
	}
	var timeout net.Error
	if _, _, err := b.ReadFrom(buf); !errors.Is(err, os.ErrDeadlineExceeded) || !errors.As(err, &timeout) || !timeout.Timeout() {
		t.Errorf("after its deadline a read ends with %v", err)
	}
	if err := b.SetReadDeadline(time.Time{}); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error)
	go func() {
		_, _, err := b.ReadFrom(buf)
		ended <- err
	}()
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; !errors.Is(err, net.ErrClosed) {
		t.Errorf("after Close a read ends with %v", err)
	}
	if _, err := a.WriteTo(nil, &net.IPAddr{}); err == nil {
		t.Error("it writes to an address without a port")
	}
	if _, err := a.WriteTo(make([]byte, 70_000), net.UDPAddrFromAddrPort(netip.MustParseAddrPort("127.0.0.1:9"))); err == nil {
		t.Error("it writes more than a datagram holds")
	}
}
