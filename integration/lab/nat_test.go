package lab_test

import (
	"bytes"
	"net"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/meshmpi/meshmpi/integration/lab"
)

// twoHubs is TwoSites with a second public host.
func twoHubs(nat lab.NAT) lab.Config {
	return lab.TwoSites(nat).With(func(s *lab.Site) { s.Hosts = []string{"hub", "hub2"} }, "hubs")
}

// udp opens a UDP socket of a host.
func udp(t *testing.T, h *lab.Host, port uint16) *net.UDPConn {
	t.Helper()
	var c *net.UDPConn
	err := h.Do(func() (err error) {
		c, err = net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.AddrPortFrom(netip.IPv6Unspecified(), port)))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func send(t *testing.T, c *net.UDPConn, to netip.AddrPort, text string) {
	t.Helper()
	if _, err := c.WriteToUDPAddrPort([]byte(text), to); err != nil {
		t.Fatal(err)
	}
}

// receive returns the next datagram and its source, or "" if none comes in time.
func receive(t *testing.T, c *net.UDPConn, within time.Duration) (string, netip.AddrPort) {
	t.Helper()
	if err := c.SetReadDeadline(time.Now().Add(within)); err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 1500)
	n, from, err := c.ReadFromUDPAddrPort(buf)
	if err != nil {
		return "", netip.AddrPort{}
	}
	return string(buf[:n]), netip.AddrPortFrom(from.Addr().Unmap(), from.Port())
}

// servers are two public sockets that show how a NAT maps.
type servers struct {
	c    [2]*net.UDPConn
	addr [2]netip.AddrPort
}

func newServers(t *testing.T, l *lab.Lab) (s servers) {
	for i, name := range []string{"hub", "hub2"} {
		s.c[i] = udp(t, l.Host(name), 7)
		s.addr[i] = netip.AddrPortFrom(l.Host(name).Addr4, 7)
	}
	return s
}

// mapping returns the source that server i sees of a socket.
func (s servers) mapping(t *testing.T, c *net.UDPConn, i int) netip.AddrPort {
	t.Helper()
	send(t, c, s.addr[i], "who am I")
	if text, from := receive(t, s.c[i], time.Second); text == "who am I" {
		return from
	}
	return netip.AddrPort{}
}

func TestNATMapping(t *testing.T) {
	const port = 5000
	tests := []struct {
		nat       lab.NAT
		blocked   bool // no UDP at all
		sameEvery bool // the mapping does not depend on the destination
		keepsPort bool
	}{
		{nat: lab.PortPreserving, sameEvery: true, keepsPort: true},
		{nat: lab.Symmetric},
		{nat: lab.Double, sameEvery: true, keepsPort: true},
		{nat: lab.UDPBlocked, blocked: true},
		{nat: lab.HTTPSOnly, blocked: true},
		{nat: lab.SSHOnly, blocked: true},
	}
	l := lab.Start(t, twoHubs(lab.PortPreserving))
	s, c := newServers(t, l), udp(t, l.Host("a1"), port)
	for _, tt := range tests {
		t.Run(tt.nat.String(), func(t *testing.T) {
			if err := l.SetNAT("alpha", tt.nat); err != nil {
				t.Fatal(err)
			}
			if tt.blocked {
				send(t, c, s.addr[0], "lost")
				if text, from := receive(t, s.c[0], 200*time.Millisecond); text != "" {
					t.Errorf("%q came through from %v", text, from)
				}
				return
			}
			m0, m1 := s.mapping(t, c, 0), s.mapping(t, c, 1)
			public, err := l.PublicAddr("alpha")
			if err != nil || m0.Addr() != public || m1.Addr() != public {
				t.Errorf("servers see %v and %v, want address %v (%v)", m0, m1, public, err)
			}
			if got := m0 == m1; got != tt.sameEvery {
				t.Errorf("servers see %v and %v: same is %v, want %v", m0, m1, got, tt.sameEvery)
			}
			if got := m0.Port() == port; got != tt.keepsPort {
				t.Errorf("port %d became %d, want it kept: %v", port, m0.Port(), tt.keepsPort)
			}
			// Only who was written to may answer. The answer of the second server
			// shows that the first's, sent before, was dropped.
			c2 := udp(t, l.Host("a1"), port+1)
			m := s.mapping(t, c2, 1)
			send(t, s.c[0], m, "unasked")
			send(t, s.c[1], m, "answer")
			if text, from := receive(t, c2, time.Second); text != "answer" {
				t.Errorf("got %q from %v, want the answer alone", text, from)
			}
		})
	}
}

// punch lets two hosts behind NATs learn their mappings from a server and send
// to each other's at once, and reports whether both heard the other.
func punch(t *testing.T, l *lab.Lab, s servers, port uint16) bool {
	t.Helper()
	a, b := udp(t, l.Host("a1"), port), udp(t, l.Host("b1"), port)
	ma, mb := s.mapping(t, a, 0), s.mapping(t, b, 0)
	if !ma.IsValid() || !mb.IsValid() {
		return false
	}
	for range 3 {
		send(t, a, mb, "hello")
		send(t, b, ma, "hello")
	}
	// Frames keep their order, so what has not come when the server's has, does not come.
	heard := func(c *net.UDPConn, m netip.AddrPort) (yes bool) {
		send(t, s.c[0], m, "end")
		for {
			switch text, _ := receive(t, c, time.Second); text {
			case "hello":
				yes = true
			case "end":
				return yes
			default:
				t.Fatalf("the server's end did not come through")
			}
		}
	}
	return heard(a, ma) && heard(b, mb)
}

func TestHolePunch(t *testing.T) {
	tests := []struct {
		alpha, beta lab.NAT
		want        bool
	}{
		{lab.PortPreserving, lab.PortPreserving, true},
		{lab.Double, lab.PortPreserving, true},
		{lab.Double, lab.Double, true},
		{lab.Symmetric, lab.Symmetric, false},
		{lab.PortPreserving, lab.Symmetric, false},
		{lab.UDPBlocked, lab.PortPreserving, false},
	}
	l := lab.Start(t, twoHubs(lab.PortPreserving))
	s := newServers(t, l)
	for i, tt := range tests {
		t.Run(tt.alpha.String()+" "+tt.beta.String(), func(t *testing.T) {
			if err := l.SetNAT("alpha", tt.alpha); err != nil {
				t.Fatal(err)
			}
			if err := l.SetNAT("beta", tt.beta); err != nil {
				t.Fatal(err)
			}
			if got := punch(t, l, s, uint16(6000+i)); got != tt.want {
				t.Errorf("the hole was punched: %v, want %v", got, tt.want)
			}
		})
	}
}

// wantDial checks whether a host reaches a TCP port of another. What should be
// reached is given the time of a few retransmissions.
func wantDial(t *testing.T, what string, from *lab.Host, to netip.AddrPort, want bool) {
	t.Helper()
	d := net.Dialer{Timeout: 300 * time.Millisecond}
	if want {
		d.Timeout = 5 * time.Second
	}
	err := from.Do(func() error {
		c, err := d.DialContext(t.Context(), "tcp", to.String())
		if err == nil {
			c.Close()
		}
		return err
	})
	if (err == nil) != want {
		t.Errorf("%s: %s dials %v: got error %v, want success %v", what, from.Name, to, err, want)
	}
}

// listen accepts TCP connections on a port of a host until the test ends.
func listen(t *testing.T, h *lab.Host, addr netip.Addr, port uint16) netip.AddrPort {
	t.Helper()
	at := netip.AddrPortFrom(addr, port)
	err := h.Do(func() error {
		ln, err := net.Listen("tcp", at.String())
		if err == nil {
			t.Cleanup(func() { ln.Close() })
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return at
}

func TestFirewallsForTCP(t *testing.T) {
	l := lab.Start(t, lab.TwoSites(lab.PortPreserving).With(func(s *lab.Site) {
		s.Forwards = []lab.Forward{{Proto: "tcp", First: 4000, Last: 4010, Host: "a2"}}
	}, "alpha"))
	hub, a1, a2 := l.Host("hub"), l.Host("a1"), l.Host("a2")
	ports := map[uint16]netip.AddrPort{}
	for _, p := range []uint16{22, 443, 8080} {
		ports[p] = listen(t, hub, hub.Addr4, p)
	}
	for nat, open := range map[lab.NAT][]bool{
		lab.PortPreserving: {true, true, true}, lab.Symmetric: {true, true, true}, lab.UDPBlocked: {true, true, true},
		lab.HTTPSOnly: {false, true, false}, lab.SSHOnly: {true, false, false},
	} {
		if err := l.SetNAT("alpha", nat); err != nil {
			t.Fatal(err)
		}
		for i, p := range []uint16{22, 443, 8080} {
			wantDial(t, nat.String(), a1, ports[p], open[i])
		}
	}
	if err := l.SetNAT("alpha", lab.PortPreserving); err != nil {
		t.Fatal(err)
	}
	public, err := l.PublicAddr("alpha")
	if err != nil {
		t.Fatal(err)
	}
	listen(t, a2, a2.Addr4, 4005)
	wantDial(t, "forwarded", hub, netip.AddrPortFrom(public, 4005), true)
	wantDial(t, "beside the forwarded range", hub, netip.AddrPortFrom(public, 4011), false)
	if err := l.SetNAT("hubs", lab.Firewalled); err != nil {
		t.Fatal(err)
	}
	wantDial(t, "firewalled hub", a1, ports[8080], false)
	if err := l.SetNAT("alpha", lab.None); err == nil || strings.Contains(err.Error(), "\n") {
		t.Errorf("a private site became public: %v", err)
	}
}

func TestIPv6(t *testing.T) {
	l := lab.Start(t, lab.TwoSites(lab.PortPreserving).With(func(s *lab.Site) { s.IPv6 = true }))
	a1, b1, hub := l.Host("a1"), l.Host("b1"), l.Host("hub")
	a, b, h := udp(t, a1, 5000), udp(t, b1, 5000), udp(t, hub, 5000)
	send(t, a, netip.AddrPortFrom(hub.Addr6, 5000), "to the hub")
	if _, from := receive(t, h, time.Second); from != netip.AddrPortFrom(a1.Addr6, 5000) {
		t.Errorf("the hub sees a1 at %v, want %v: IPv6 is not translated", from, a1.Addr6)
	}
	send(t, b, netip.AddrPortFrom(a1.Addr6, 5000), "unasked")
	send(t, h, netip.AddrPortFrom(a1.Addr6, 5000), "answer")
	if text, _ := receive(t, a, time.Second); text != "answer" {
		t.Errorf("a1 got %q, want the answer alone", text)
	}
}

func TestFailures(t *testing.T) {
	l := lab.Start(t, lab.TwoSites(lab.PortPreserving))
	hub, a1, a2 := l.Host("hub"), l.Host("a1"), l.Host("a2")
	at := listen(t, hub, hub.Addr4, 80)
	lan := listen(t, a2, a2.Addr4, 80)
	check := func(what string, do func() error, wan, neighbour bool) {
		t.Helper()
		if err := do(); err != nil {
			t.Fatal(err)
		}
		wantDial(t, what+": hub", a1, at, wan)
		wantDial(t, what+": neighbour", a1, lan, neighbour)
	}
	check("cut", func() error { return l.Cut("alpha") }, false, true)
	check("mended", func() error { return l.Mend("alpha") }, true, true)
	check("unplugged", a1.Unplug, false, false)
	check("plugged", a1.Plug, true, true)

	run(t, a1, "sh", "-c", "echo kept >/var/lib/meshd/f; touch /etc/lost; sleep 1000 >/dev/null 2>&1 &")
	d, err := a1.Start("sleep", "1000")
	if err != nil {
		t.Fatal(err)
	}
	if err := a1.PowerOff(); err != nil {
		t.Fatal(err)
	}
	if err := d.Wait(); err == nil {
		t.Error("a daemon outlived its host")
	}
	if _, err := a1.Run(soon(t), "true"); err == nil || !strings.Contains(err.Error(), "a1") {
		t.Errorf("a command on a host that is off: %v", err)
	}
	check("booted", a1.Boot, true, true)
	if got := run(t, a1, "sh", "-c", "cat /var/lib/meshd/f; ls /etc/lost 2>&1 | wc -l; pgrep -c sleep || true"); got != "kept\n1\n0" {
		t.Errorf("after a boot: %q", got)
	}
	if text, err := os.ReadFile(a1.Path("/var/lib/meshd/f")); err != nil || !bytes.Equal(text, []byte("kept\n")) {
		t.Errorf("the machine sees %q, %v", text, err)
	}
}
