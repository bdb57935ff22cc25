// Package deaf lets tests dial where nobody listens. It exists because a port that
// a test has closed is free for the next socket that asks for any: what is dialled
// there is then somebody else's server, and once in a thousand runs the test's own.
package deaf

import (
	"net"
	"strings"
	"testing"
)

// Addr returns an address of the loopback interface, IPv4 and a port, that
// refuses whatever comes, and that no other socket is given until the test ends.
// The network is "tcp" or "udp". The port belongs to a connection, which takes
// nothing from any but its peer.
func Addr(t testing.TB, network string) (addr string) {
	t.Helper()
	var peer string
	if strings.HasPrefix(network, "tcp") {
		ln, err := net.Listen("tcp4", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { ln.Close() })
		peer = ln.Addr().String()
	} else {
		peer = "127.0.0.1:9" // a connection of UDP needs no other end
	}
	c, err := net.Dial(network, peer)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c.LocalAddr().String()
}
