package tun

import (
	"bytes"
	"crypto/rand"
	"net"
	"net/netip"
	"testing"
	"time"
)

func random(size int) []byte {
	b := make([]byte, size)
	rand.Read(b)
	return b
}

// wantDatagrams sends datagrams of several sizes to a socket, one at a time, and
// checks what arrives there.
func wantDatagrams(t *testing.T, from, at net.PacketConn, to netip.AddrPort) {
	t.Helper()
	buf := make([]byte, 65536)
	for _, size := range []int{100, 1152, 1153, 1372, 1373, 4 << 10, 20_000, 60_000} {
		sent := random(size)
		if _, err := from.WriteTo(sent, net.UDPAddrFromAddrPort(to)); err != nil {
			t.Fatalf("%d bytes to %v: %v", size, to, err)
		}
		_ = at.SetReadDeadline(time.Now().Add(5 * time.Second))
		n, _, err := at.ReadFrom(buf)
		if err != nil {
			t.Fatalf("%d bytes to %v: %v", size, to, err)
		}
		if !bytes.Equal(buf[:n], sent) {
			t.Errorf("%d bytes came of %d to %v, or others", n, size, to)
		}
	}
}

// listenOn opens a UDP socket at one of a stack's addresses.
func listenOn(t *testing.T, s *Stack, family int) (net.PacketConn, netip.AddrPort) {
	t.Helper()
	c, err := s.ListenUDP(netip.AddrPortFrom(s.Addrs()[family], 0))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c, c.LocalAddr().(*net.UDPAddr).AddrPort()
}

// TestStackLosesFragments: what is left of a datagram of which a fragment is lost does
// not get in the way of the next.
func TestStackLosesFragments(t *testing.T) {
	for family := range 2 {
		a, b := twoStacks(t)
		first := true // of the packets from a; b sends none
		joinStacks(t, a, b, func([]byte) bool {
			lost := first
			first = false
			return lost
		})
		pa, _ := listenOn(t, a, family)
		pb, to := listenOn(t, b, family)
		if _, err := pa.WriteTo(random(5000), net.UDPAddrFromAddrPort(to)); err != nil {
			t.Fatal(err)
		}
		wantDatagrams(t, pa, pb, to)
	}
}
