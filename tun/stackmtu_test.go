package tun

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	wgtun "golang.zx2c4.com/wireguard/tun"
	"gvisor.dev/gvisor/pkg/tcpip/header"
)

// narrow joins two stacks by a way that loses what is longer than it carries, at
// first mtu. Both are told of that, and again by the function that it returns.
func narrow(t *testing.T, a, b *Stack, mtu int) (change func(mtu int)) {
	t.Helper()
	var carries atomic.Int64
	change = func(mtu int) {
		if err := errors.Join(a.SetPeerMTU(b.Addrs(), mtu), b.SetPeerMTU(a.Addrs(), mtu)); err != nil {
			t.Error(err)
		}
		carries.Store(int64(mtu))
	}
	change(mtu)
	joinStacks(t, a, b, func(pkt []byte) bool { return int64(len(pkt)) > carries.Load() })
	return change
}

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

// TestStackFragmentsUDP: datagrams arrive that are longer than their way carries, and
// longer than the stack's own packets.
func TestStackFragmentsUDP(t *testing.T) {
	for family := range 2 {
		for _, mtu := range []int{leastMTU, 576, 1200, 1399} {
			t.Run(fmt.Sprintf("IPv%d/%d", 4+2*family, mtu), func(t *testing.T) {
				a, b := twoStacks(t)
				narrow(t, a, b, mtu)
				pa, atA := listenOn(t, a, family)
				pb, atB := listenOn(t, b, family)
				wantDatagrams(t, pa, pb, atB)
				wantDatagrams(t, pb, pa, atA)
			})
		}
	}
}

// TestStackLosesFragments: what is left of a datagram of which a fragment is lost does
// not get in the way of the next.
func TestStackLosesFragments(t *testing.T) {
	for family := range 2 {
		for _, mtu := range []int{0, 1200} {
			a, b := twoStacks(t)
			if err := a.SetPeerMTU(b.Addrs(), mtu); err != nil {
				t.Fatal(err)
			}
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
}

// bothWays sends size bytes each way of a connection at once and checks what arrives;
// midway is called when half has.
func bothWays(t *testing.T, a, b net.Conn, size int, midway func()) {
	t.Helper()
	var wg sync.WaitGroup
	for _, way := range []struct{ from, to net.Conn }{{a, b}, {b, a}} {
		sent := random(size)
		_ = way.from.SetDeadline(time.Now().Add(20 * time.Second))
		wg.Go(func() {
			if _, err := way.from.Write(sent); err != nil {
				t.Error(err)
			}
		})
		wg.Go(func() {
			got := make([]byte, size)
			n, err := io.ReadFull(way.to, got[:size/2])
			if err == nil {
				midway()
				var more int
				more, err = io.ReadFull(way.to, got[n:])
				n += more
			}
			if err != nil || !bytes.Equal(got, sent) {
				t.Errorf("%d of %d bytes came, or others: %v", n, size, err)
			}
		})
	}
	wg.Wait()
}

// connect returns both ends of a connection from a dialler to a listener.
func connect(t *testing.T, l net.Listener, dial func(context.Context, string, string) (net.Conn, error)) (near, far net.Conn) {
	t.Helper()
	accepted := make(chan net.Conn, 1)
	go func() { // ends with the connection, or with the listener
		defer close(accepted)
		if c, err := l.Accept(); err == nil {
			accepted <- c
		}
	}()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	near, err := dial(ctx, "tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { near.Close() })
	select {
	case far = <-accepted:
	case <-ctx.Done():
	}
	if far == nil {
		t.Fatal("no connection was accepted")
	}
	t.Cleanup(func() { far.Close() })
	return near, far
}

// TestStackNarrowTCP: TCP gets through ways of any MTU without waiting, also where it
// shrinks beneath a connection.
func TestStackNarrowTCP(t *testing.T) {
	for family := range 2 {
		for _, mtu := range [][2]int{{576, 576}, {1200, 1200}, {1400, 1350}, {1400, 576}, {576, 1350}} {
			t.Run(fmt.Sprintf("IPv%d/%d,%d", 4+2*family, mtu[0], mtu[1]), func(t *testing.T) {
				a, b := twoStacks(t)
				change := narrow(t, a, b, mtu[0])
				l, err := b.ListenTCP(netip.AddrPortFrom(b.Addrs()[family], 0))
				if err != nil {
					t.Fatal(err)
				}
				defer l.Close()
				near, far := connect(t, l, a.Dial)
				var once sync.Once
				bothWays(t, near, far, 1<<20, func() { once.Do(func() { change(mtu[1]) }) })
			})
		}
	}
}

// TestStackTellsTCP: fragments are what TCP sends until it has learnt better; in IPv6
// it learns of no less than 1280 bytes.
func TestStackTellsTCP(t *testing.T) {
	for _, tc := range []struct {
		family, mtu int
		learns      bool
	}{{0, 576, true}, {1, 1280, true}, {1, 1279, false}} {
		a, b := twoStacks(t)
		if err := a.SetPeerMTU(b.Addrs(), tc.mtu); err != nil {
			t.Fatal(err)
		}
		var pieces atomic.Int64 // all of them from a
		joinStacks(t, a, b, func(pkt []byte) bool {
			if isFragment(pkt) {
				pieces.Add(1)
			}
			return false
		})
		l, err := b.ListenTCP(netip.AddrPortFrom(b.Addrs()[tc.family], 0))
		if err != nil {
			t.Fatal(err)
		}
		near, far := connect(t, l, a.Dial)
		bothWays(t, near, far, 1<<20, func() {})
		l.Close()
		if n := pieces.Load(); n == 0 || (n < 300) != tc.learns { // 1600 are all
			t.Errorf("IPv%d, MTU %d: %d fragments", 4+2*tc.family, tc.mtu, n)
		}
	}
}

func isFragment(pkt []byte) bool {
	if pkt[0]>>4 == 6 {
		return pkt[6] == uint8(header.IPv6FragmentExtHdrIdentifier)
	}
	return header.IPv4(pkt).More() || header.IPv4(pkt).FragmentOffset() != 0
}

// TestStackSetPeerMTU: an address that is none keeps no other from being set.
func TestStackSetPeerMTU(t *testing.T) {
	a, b := twoStacks(t)
	defer a.Close()
	b.Close()
	if err := a.SetPeerMTU([]netip.Addr{b.Addrs()[1], {}, b.Addrs()[0]}, 1000); err == nil {
		t.Error("no address was taken for one")
	}
	for _, addr := range b.Addrs() {
		if mtu, ok := a.small.Load(addr); !ok || mtu != 1000 {
			t.Errorf("%v has an MTU of %v", addr, mtu)
		}
	}
	for _, mtu := range []int{-1, leastMTU - 1} {
		if err := a.SetPeerMTU(b.Addrs(), mtu); err == nil {
			t.Errorf("an MTU of %d was taken", mtu)
		}
	}
	for _, mtu := range []int{0, 1400} {
		if err := errors.Join(a.SetPeerMTU(b.Addrs(), 1000), a.SetPeerMTU(b.Addrs(), mtu)); err != nil {
			t.Error(err)
		}
		a.small.Range(func(addr, small any) bool {
			t.Errorf("after %d: %v has an MTU of %v", mtu, addr, small)
			return true
		})
	}
}

// lossy is a device that what is longer than mtu does not reach.
type lossy struct {
	wgtun.Device
	mtu int
}

func (l lossy) Write(bufs [][]byte, offset int) (int, error) {
	var pass [][]byte
	for _, b := range bufs {
		if len(b)-offset <= l.mtu {
			pass = append(pass, b)
		}
	}
	if len(pass) == 0 {
		return 0, nil
	}
	return l.Device.Write(pass, offset)
}

// TestStackNarrowKernel: a kernel makes of fragments what a stack's programs sent, a
// stack what the kernel's did, and TCP gets through between them.
func TestStackNarrowKernel(t *testing.T) {
	for _, mtu := range []int{576, 1200} {
		t.Run(fmt.Sprint(mtu), func(t *testing.T) { narrowKernel(t, mtu) })
	}
}

func narrowKernel(t *testing.T, mtu int) {
	isolate(t)
	h := mustOpen(t, testConfig(t.TempDir()))
	s, err := NewStack([]netip.Addr{peer4, peer6}, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(h.SetPeerMTU(s.Addrs(), mtu), s.SetPeerMTU([]netip.Addr{own4, own6}, mtu)); err != nil {
		t.Fatal(err)
	}
	dev := h.Device()
	var pumps sync.WaitGroup
	pumps.Go(func() { carry(s, lossy{dev, mtu}) })
	pumps.Go(func() { carry(dev, lossy{s, mtu}) })
	defer pumps.Wait()
	defer h.Close()
	defer s.Close()
	for family, own := range []netip.Addr{own4, own6} {
		in, inAt := listenOn(t, s, family)
		out, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.AddrPortFrom(own, 0)))
		if err != nil {
			t.Fatal(err)
		}
		defer out.Close()
		wantDatagrams(t, in, out, out.LocalAddr().(*net.UDPAddr).AddrPort())
		wantDatagrams(t, out, in, inAt)
		l, err := net.Listen("tcp", netip.AddrPortFrom(own, 0).String())
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		near, far := connect(t, l, s.Dial)
		bothWays(t, near, far, 1<<20, func() {})
	}
}
