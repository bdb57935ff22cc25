//go:build !linux

package engine

import "testing"

// endsOf returns the addresses of a link's socket.
func endsOf(t *testing.T, c *conn) (ours, theirs string) {
	t.Helper()
	host := func(a string) string {
		for i := len(a) - 1; i >= 0; i-- {
			if a[i] == ':' {
				return a[:i]
			}
		}
		return a
	}
	nc := c.wire.(*netWire).nc
	return host(nc.LocalAddr().String()), host(nc.RemoteAddr().String())
}
