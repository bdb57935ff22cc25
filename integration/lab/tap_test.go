package lab

import (
	"encoding/binary"
	"net"
	"net/netip"
	"testing"
	"time"
)

// TestTap: frames of a site are noted in order, with their sizes on the wire, ends and
// times.
func TestTap(t *testing.T) {
	for name, open := range map[string]func(*Lab) (*Tap, error){
		"line": func(l *Lab) (*Tap, error) { return l.Tap("near", 1000) },
		"host": func(l *Lab) (*Tap, error) { return l.Host("h1").Tap(1000) },
	} {
		t.Run(name, func(t *testing.T) { testTap(t, open) })
	}
}

func testTap(t *testing.T, open func(*Lab) (*Tap, error)) {
	l := Start(t, Config{Sites: []Site{{Name: "near", Hosts: []string{"h1"}}, {Name: "far", Hosts: []string{"h2"}}}})
	tap, err := open(l)
	if err != nil {
		t.Fatal(err)
	}
	defer tap.Close()
	from, to := netip.AddrPortFrom(l.Host("h1").Addr4, 7001), netip.AddrPortFrom(l.Host("h2").Addr4, 7002)
	var sink, c *net.UDPConn
	if err := l.Host("h2").Do(func() (err error) { sink, err = net.ListenUDP("udp4", net.UDPAddrFromAddrPort(to)); return err }); err != nil {
		t.Fatal(err)
	}
	defer sink.Close()
	if err := l.Host("h1").Do(func() (err error) { c, err = net.ListenUDP("udp4", net.UDPAddrFromAddrPort(from)); return err }); err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	began := time.Now().UnixNano()
	const n = 20
	for i := range n {
		if _, err := c.WriteToUDPAddrPort(make([]byte, 100+i), to); err != nil {
			t.Fatal(err)
		}
		if err := sink.SetReadDeadline(time.Now().Add(5 * time.Second)); err != nil {
			t.Fatal(err)
		}
		if _, err := sink.Read(make([]byte, 2000)); err != nil {
			t.Fatal(err)
		}
	}
	ended := time.Now().UnixNano()
	all, err := tap.Arrivals()
	if err != nil {
		t.Fatal(err)
	}
	i, last := 0, began
	for _, a := range all {
		if a.From != from || a.To != to {
			continue // ARP
		}
		if a.Size != 14+20+8+100+i || a.At < last || a.At > ended {
			t.Errorf("frame %d: %+v, after %d and before %d", i, a, last, ended)
		}
		i, last = i+1, a.At
	}
	if i != n {
		t.Errorf("%d of %d frames are noted: %+v", i, n, all)
	}
	if err := tap.Close(); err != nil {
		t.Error(err)
	}
}

func TestTapRefuses(t *testing.T) {
	l := Start(t, Config{Sites: []Site{{Name: "near", Hosts: []string{"h1"}}}})
	for _, tt := range []struct {
		site   string
		frames int
	}{{"nowhere", 10}, {"near", 0}, {"near", MostArrivals + 1}} {
		if tap, err := l.Tap(tt.site, tt.frames); err == nil {
			t.Errorf("%+v: no error", tt)
			_ = tap.Close()
		}
	}
}

// slot is a filled one: an IP packet after an Ethernet header at 66.
func slot(length uint32, ip []byte) []byte {
	b := make([]byte, tapSlot)
	order := binary.NativeEndian
	order.PutUint32(b, 1)
	order.PutUint32(b[4:], length)
	order.PutUint32(b[8:], uint32(14+len(ip)))
	order.PutUint16(b[12:], 66)
	order.PutUint16(b[14:], 80)
	order.PutUint32(b[16:], 1_700_000_000)
	order.PutUint32(b[20:], 123)
	copy(b[80:], ip)
	return b
}

func TestParseSlot(t *testing.T) {
	udp := []byte{0x45, 0, 0, 28, 0, 0, 0, 0, 64, 17, 0, 0, 192, 0, 2, 1, 192, 0, 2, 2, 0x1b, 0x58, 0x1b, 0x59}
	options := append([]byte{0x46}, udp[1:20]...)
	options = append(options, 1, 1, 1, 1, 0, 7, 0, 9)
	fragment, icmp, six := append([]byte(nil), udp...), append([]byte(nil), udp...), append([]byte(nil), udp...)
	fragment[7], icmp[9], six[0] = 8, 1, 0x60
	ends := func(a, b uint16) [2]netip.AddrPort {
		return [2]netip.AddrPort{netip.AddrPortFrom(netip.MustParseAddr("192.0.2.1"), a), netip.AddrPortFrom(netip.MustParseAddr("192.0.2.2"), b)}
	}
	for name, tt := range map[string]struct {
		ip   []byte
		want [2]netip.AddrPort
	}{
		"udp": {udp, ends(7000, 7001)}, "options": {options, ends(7, 9)}, "a later fragment": {fragment, ends(0, 0)},
		"icmp": {icmp, ends(0, 0)}, "IPv6": {six, [2]netip.AddrPort{}}, "short": {udp[:19], [2]netip.AddrPort{}}, "no ports": {udp[:22], ends(0, 0)},
	} {
		a := parseSlot(slot(1514, tt.ip))
		if got := [2]netip.AddrPort{a.From, a.To}; got != tt.want || a.Size != 1514 || a.At != 1_700_000_000_000_000_123 {
			t.Errorf("%s: %+v, want %v", name, a, tt.want)
		}
	}
}

// FuzzParseSlot: whatever stands there, nothing outside is read.
func FuzzParseSlot(f *testing.F) {
	f.Add(slot(1514, []byte{0x4f, 0, 0, 28, 0, 0, 0, 0, 64, 17}))
	f.Add([]byte{1, 2, 3})
	f.Fuzz(func(t *testing.T, b []byte) {
		if a := parseSlot(b); a.Size < 0 {
			t.Errorf("%+v", a)
		}
	})
}
