package tun

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/meshmpi/meshmpi/internal/eventually"
	"golang.org/x/sys/unix"
	wgtun "golang.zx2c4.com/wireguard/tun"
)

// headroom is what the device needs before a packet for its own header.
const headroom = 16

// listenUDP listens on every address of the namespace.
func listenUDP(t *testing.T) (*net.UDPConn, uint16) {
	t.Helper()
	c, err := net.ListenUDP("udp", &net.UDPAddr{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c, c.LocalAddr().(*net.UDPAddr).AddrPort().Port()
}

// sendUDP sends a payload by the host's routes and returns the kernel's answer.
func sendUDP(t *testing.T, to netip.Addr, port uint16, payload string) error {
	t.Helper()
	c, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(netip.AddrPortFrom(to, port)))
	if err != nil {
		return err
	}
	defer c.Close()
	_, err = c.Write([]byte(payload))
	return err
}

func receive(t *testing.T, c *net.UDPConn) string {
	t.Helper()
	if err := c.SetReadDeadline(time.Now().Add(5 * time.Second)); err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 2048)
	n, err := c.Read(buf)
	if err != nil {
		t.Fatalf("nothing received: %v", err)
	}
	return string(buf[:n])
}

// readUntil reads from the device until a packet contains the payload.
func readUntil(t *testing.T, dev wgtun.Device, payload string) []byte {
	t.Helper()
	bufs, sizes := buffers(dev)
	for {
		n, err := dev.Read(bufs, sizes, headroom)
		if err != nil {
			t.Fatal(err)
		}
		for i := range n {
			if pkt := bufs[i][headroom : headroom+sizes[i]]; bytes.Contains(pkt, []byte(payload)) {
				return pkt
			}
		}
	}
}

func buffers(dev wgtun.Device) ([][]byte, []int) {
	bufs := make([][]byte, dev.BatchSize())
	for i := range bufs {
		bufs[i] = make([]byte, 65535+headroom)
	}
	return bufs, make([]int, len(bufs))
}

func inject(t *testing.T, dev wgtun.Device, pkt []byte) {
	t.Helper()
	if _, err := dev.Write([][]byte{append(make([]byte, headroom), pkt...)}, headroom); err != nil {
		t.Fatal(err)
	}
}

func TestPacketsFlow(t *testing.T) {
	isolate(t)
	lan(t)
	h := mustOpen(t, testConfig(t.TempDir()))
	defer h.Close()
	wantFlow(t, h)
}

// TestPacketsFlowWhenRenamed: an administrator may give the TUN another name while it is
// in use, and what then has its name is none of ours.
func TestPacketsFlowWhenRenamed(t *testing.T) {
	isolate(t)
	lan(t)
	h := mustOpen(t, testConfig(t.TempDir()))
	defer h.Close()
	w := newWire(t)
	for _, c := range []string{
		"ip link set mesh0 down", "ip link set mesh0 name renamed", "ip link set renamed up",
		"ip link set lan0 down", "ip link set lan0 name mesh0", "ip link set mesh0 up",
	} {
		run(t, c)
	}
	if _, err := h.repair(); err != nil { // its addresses went while it was down
		t.Fatal(err)
	}
	wantFlow(t, h)
	eventually.Holds(t, "the wire is up again", func() bool { // the kernel finishes in its own time
		return strings.Count(run(t, "ip link"), "state UP") == 2
	})
	sock, port := listenUDP(t)
	w.send(udp(peer4, own4, port, "spoofed"))
	w.send(udp(near4, lan4, port, "honest"))
	if got := receive(t, sock); got != "honest" {
		t.Errorf("got %q past the table", got)
	}
}

// wantFlow sends packets to this host, to peers and from them.
func wantFlow(t *testing.T, h *Host) {
	t.Helper()
	sock, port := listenUDP(t)
	for _, c := range []struct{ own, peer netip.Addr }{{own4, peer4}, {own6, peer6}} {
		if err := sendUDP(t, c.own, port, "to myself"); err != nil {
			t.Fatalf("to own address %v: %v", c.own, err)
		}
		if got := receive(t, sock); got != "to myself" {
			t.Errorf("at own address: got %q", got)
		}
		if err := sendUDP(t, c.peer, port, "to the peer"); err != nil {
			t.Fatalf("to %v: %v", c.peer, err)
		}
		src, dst := c.own.AsSlice(), c.peer.AsSlice()
		if pkt := readUntil(t, h.Device(), "to the peer"); !bytes.Contains(pkt, append(src, dst...)) {
			t.Errorf("the device read %x, want it from %v to %v", pkt, c.own, c.peer)
		}
		inject(t, h.Device(), udp(c.peer, c.own, port, "from the peer"))
		if got := receive(t, sock); got != "from the peer" {
			t.Errorf("from the peer: got %q", got)
		}
	}
}

// What a neighbour on the LAN sends with a virtual source or destination is
// dropped. The same packets without the table arrive, so it is the table.
func TestNeighbourCannotSpoof(t *testing.T) {
	isolate(t)
	lan(t)
	h := mustOpen(t, testConfig(t.TempDir()))
	defer h.Close()
	w := newWire(t)
	sock, port := listenUDP(t)
	attacks := []struct{ src, dst netip.Addr }{{peer4, lan4}, {near4, own4}, {peer6, lan6}, {near6, own6}, {peer4, own4}, {peer6, own6}}
	attack := func() {
		for i, a := range attacks {
			w.send(udp(a.src, a.dst, port, fmt.Sprintf("attack %d", i)))
		}
		w.send(udp(near4, lan4, port, "honest"))
		w.send(udp(near6, lan6, port, "honest"))
	}
	attack()
	for range 2 {
		if got := receive(t, sock); got != "honest" {
			t.Errorf("got %q past the table", got)
		}
	}
	run(t, "nft delete table inet meshmpi_mesh0")
	attack()
	for i := range attacks {
		if got, want := receive(t, sock), fmt.Sprintf("attack %d", i); got != want {
			t.Errorf("without the table: got %q, want %q: the test proves nothing", got, want)
		}
	}
}

// Nothing with a virtual address leaves by another interface: not what peers
// would have us forward, not what is for peers while the TUN is gone.
func TestNothingLeaks(t *testing.T) {
	isolate(t)
	lan(t)
	dir := t.TempDir()
	h := mustOpen(t, testConfig(dir))
	w := newWire(t)
	run(t, "sysctl -qw net.ipv4.ip_forward=1")
	inject(t, h.Device(), udp(peer4, near4, 9, "forwarded one"))
	w.wants("forwarded one", false)
	run(t, "nft delete table inet meshmpi_mesh0")
	inject(t, h.Device(), udp(peer4, near4, 9, "forwarded two"))
	w.wants("forwarded two", true) // so it was the table
	if err := h.Detach(); err != nil {
		t.Fatal(err)
	}
	h = mustOpen(t, testConfig(dir))
	if err := h.Detach(); err != nil {
		t.Fatal(err)
	}
	detached(t)
	// Each row takes one more guard away; the last shows that the packets are real.
	for _, c := range []struct {
		remove []string
		want   error
		why    string
		leaks  bool
	}{
		{nil, nil, "detached: dropped at the TUN, so that TCP waits", false},
		{[]string{"ip link del mesh0"}, unix.EHOSTUNREACH, "no TUN: unreachable route", false},
		{[]string{"ip route del unreachable 100.80.0.0/16 metric 1073741824", "ip -6 route del unreachable fd80:1::/64 metric 1073741824"},
			unix.EPERM, "no routes: firewall", false},
		{[]string{"nft delete table inet meshmpi_mesh0"}, nil, "no guard", true},
	} {
		for _, r := range c.remove {
			run(t, r)
		}
		for i, to := range []netip.Addr{peer4, peer6} {
			payload := fmt.Sprintf("%s %d", c.why, i)
			if err := sendUDP(t, to, 9, payload); !errors.Is(err, c.want) {
				t.Errorf("%s: to %v: got %v, want %v", c.why, to, err, c.want)
			}
			w.wants(payload, c.leaks)
		}
	}
	if _, err := Restore(dir, nil); err != nil {
		t.Errorf("Restore when all was removed by hand: %v", err)
	}
}

// echoFar opens the overlay on another host, at peer4, and serves one TCP
// connection there, echoing. stop closes all of it.
func echoFar(t *testing.T) (dev wgtun.Device, port uint16, stop func()) {
	t.Helper()
	dir := t.TempDir()
	type host struct {
		h *Host
		l net.Listener
	}
	ready, leave, left := make(chan host, 1), make(chan struct{}), make(chan struct{})
	go func() { // ends when stop is called; its thread is the other host
		defer close(left)
		defer close(ready)
		isolate(t)
		cfg := testConfig(dir)
		cfg.Addr4, cfg.Addr6 = peer4, peer6
		h, err := Open(cfg)
		if err != nil {
			t.Error(err)
			return
		}
		defer h.Close()
		l, err := net.Listen("tcp4", ":0")
		if err != nil {
			t.Error(err)
			return
		}
		defer l.Close()
		ready <- host{h, l}
		<-leave
	}()
	far, ok := <-ready
	if !ok {
		t.FailNow()
	}
	served := make(chan struct{})
	go func() {
		defer close(served)
		c, err := far.l.Accept()
		if err != nil {
			return
		}
		defer c.Close()
		_ = c.SetDeadline(time.Now().Add(20 * time.Second))
		_, _ = io.Copy(c, c)
	}()
	return far.h.Device(), far.l.Addr().(*net.TCPAddr).AddrPort().Port(), func() {
		close(leave)
		<-left
		<-served
	}
}

// carry moves packets from one device to another until either is closed.
func carry(from wgtun.Device, to interface {
	Write(bufs [][]byte, offset int) (int, error)
}) {
	bufs, sizes := buffers(from)
	for {
		n, err := from.Read(bufs, sizes, headroom)
		if errors.Is(err, os.ErrClosed) {
			return
		}
		pkts := make([][]byte, n)
		for i := range n {
			pkts[i] = bufs[i][:headroom+sizes[i]]
		}
		if _, err := to.Write(pkts, headroom); errors.Is(err, os.ErrClosed) {
			return
		}
	}
}

// current writes to whichever device the host has now; between two, packets
// are lost.
type current struct{ host *atomic.Pointer[Host] }

func (c current) Write(bufs [][]byte, offset int) (int, error) {
	n, err := c.host.Load().Device().Write(bufs, offset)
	if errors.Is(err, os.ErrClosed) {
		return n, nil
	}
	return n, err
}

func TestConnectionsSurviveTheDaemon(t *testing.T) {
	isolate(t)
	before := snapshot(t)
	dir := t.TempDir()
	h := mustOpen(t, testConfig(dir))
	far, port, stop := echoFar(t)
	var pumps sync.WaitGroup
	dev := h.Device()
	pumps.Go(func() { carry(dev, far) })
	var near atomic.Pointer[Host]
	near.Store(h)
	pumps.Go(func() { carry(far, current{&near}) })
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", netip.AddrPortFrom(peer4, port).String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	deadline, _ := ctx.Deadline()
	_ = conn.SetDeadline(deadline)
	say := func(text string) {
		if _, err := conn.Write([]byte(text)); err != nil {
			t.Fatalf("saying %q: %v", text, err)
		}
	}
	hear := func(want string) {
		t.Helper()
		buf := make([]byte, len(want))
		if _, err := io.ReadFull(conn, buf); err != nil || string(buf) != want {
			t.Fatalf("got %q, %v, want %q", buf, err, want)
		}
	}
	big := string(bytes.Repeat([]byte("segments "), 20_000)) // exercises offloads both ways
	say(big)
	hear(big)
	index := run(t, "ip -o link show mesh0")
	if err := h.Detach(); err != nil {
		t.Fatal(err)
	}
	say("while nobody is there")
	h = mustOpen(t, testConfig(dir))
	if got := run(t, "ip -o link show mesh0"); got[:3] != index[:3] {
		t.Errorf("the link was made anew: %s, was %s", got, index)
	}
	near.Store(h)
	successor := h.Device()
	pumps.Go(func() { carry(successor, far) })
	hear("while nobody is there")
	say(big)
	hear(big)

	_ = conn.(*net.TCPConn).CloseWrite()
	if rest, err := io.ReadAll(conn); err != nil || len(rest) > 0 { // the far side closes too
		t.Errorf("at the end: %d bytes, %v", len(rest), err)
	}
	if err := h.Close(); err != nil {
		t.Fatal(err)
	}
	stop()
	pumps.Wait()
	sameSnapshot(t, before)
}
