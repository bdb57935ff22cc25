package hub

import (
	"context"
	"net"
	"slices"
	"syscall"

	"golang.org/x/sys/unix"
)

// segment is the largest TCP segment that either end of a connection to a hub
// may send, in bytes. What hubs and nodes say is small, so that nothing is lost
// by it, and it passes links that swallow longer packets without a word: the
// overlay probes its paths' MTU, but it must come up first.
const segment = 1160

// dialer is what everybody dials hubs with unless told otherwise.
func dialer() dialFunc {
	d := net.Dialer{Timeout: exchangeTime, KeepAlive: pingEvery, Control: func(_, _ string, c syscall.RawConn) error {
		return c.Control(func(fd uintptr) {
			_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_MAXSEG, segment) // without it we are as others are
		})
	}}
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		return d.DialContext(ctx, network, addr)
	}
}

// gone reports whether an address of a connection is one that this host no longer has,
// as far as can be told.
func gone(a net.Addr) bool {
	tcp, ok := a.(*net.TCPAddr)
	if !ok || tcp.IP.IsLoopback() {
		return false
	}
	have, err := net.InterfaceAddrs()
	return err == nil && !slices.ContainsFunc(have, func(h net.Addr) bool {
		n, ok := h.(*net.IPNet)
		return ok && n.IP.Equal(tcp.IP)
	})
}
