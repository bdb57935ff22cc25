package engine

import (
	"net/netip"
	"testing"

	"golang.org/x/sys/unix"
)

// endsOf returns the addresses of a link's socket.
func endsOf(t *testing.T, c *conn) (ours, theirs string) {
	t.Helper()
	fd := c.wire.(*tcpWire).fd
	a, err := unix.Getsockname(fd)
	if err != nil {
		t.Fatal(err)
	}
	b, err := unix.Getpeername(fd)
	if err != nil {
		t.Fatal(err)
	}
	text := func(s unix.Sockaddr) string {
		switch s := s.(type) {
		case *unix.SockaddrInet4:
			return netip.AddrFrom4(s.Addr).String()
		case *unix.SockaddrInet6:
			return netip.AddrFrom16(s.Addr).Unmap().String()
		}
		return ""
	}
	return text(a), text(b)
}
