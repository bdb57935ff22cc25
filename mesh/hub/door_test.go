package hub

import (
	"net"
	"net/netip"
	"testing"
	"time"
)

// caller is a connection that only has an address.
type caller struct {
	net.Conn
	from   net.Addr
	closed bool
}

func (c *caller) RemoteAddr() net.Addr { return c.from }
func (c *caller) Close() error         { c.closed = true; return nil }

func from(addr string) *caller {
	return &caller{from: net.TCPAddrFromAddrPort(netip.AddrPortFrom(netip.MustParseAddr(addr), 4711))}
}

func TestOldestStrangerMakesRoom(t *testing.T) {
	d := newDoor()
	var all []*caller
	for range maxStrangers {
		c := from("192.0.2.1")
		all = append(all, c)
		if !d.enter(c) {
			t.Fatal("turned away with places free")
		}
	}
	d.leave(all[0])
	d.leave(all[0])
	if !d.enter(from("192.0.2.2")) || all[1].closed || d.refused() != 0 {
		t.Error("a place given back is not free")
	}
	last := from("192.0.2.3")
	if !d.enter(last) || !all[1].closed || all[2].closed || last.closed || d.refused() != 1 {
		t.Error("it was not the oldest, and no other, that had to go")
	}
}

func TestSourcesHaveRates(t *testing.T) {
	for _, tc := range []struct {
		a, b string
		same bool
	}{
		{"192.0.2.1", "192.0.2.2", false},
		{"192.0.2.1", "::ffff:192.0.2.1", true},
		{"2001:db8::1", "2001:db8::2:0:0:1", true},
		{"2001:db8::1", "2001:db8:0:1::1", false},
		{"fe80::1%eth0", "fe80::1%eth1", true},
	} {
		d := newDoor()
		for d.mayJoin(from(tc.a).from) {
		}
		if same := !d.mayJoin(from(tc.b).from); same != tc.same {
			t.Errorf("%s and %s share a rate: %v", tc.a, tc.b, same)
		}
		entered := 0
		for d.enter(from(tc.a)) {
			entered++
		}
		if entered < connBurst || entered > connBurst+int(connsPerSec) {
			t.Errorf("%s: %d connections, want about %d", tc.a, entered, connBurst)
		}
	}
}

func TestSourcesAreBounded(t *testing.T) {
	d := newDoor()
	a := netip.MustParseAddr("10.0.0.1")
	for range 2 * maxRemembered {
		d.mayJoin(net.TCPAddrFromAddrPort(netip.AddrPortFrom(a, 1)))
		a = a.Next()
	}
	if len(d.sources) != maxRemembered {
		t.Errorf("%d are remembered, want %d", len(d.sources), maxRemembered)
	}
}

// TestIdlersDoNotKeepOthersOut fills every place with connections that say
// nothing.
func TestIdlersDoNotKeepOthersOut(t *testing.T) {
	w := newWorld(t)
	for range maxStrangers + 50 {
		c, err := net.Dial("tcp", w.addr)
		check(t, err)
		defer c.Close()
	}
	began := time.Now()
	m, err := w.join(w.token(1), "b1")
	check(t, err)
	w.connect(m)
	if took := time.Since(began); took >= exchangeTime {
		t.Errorf("it took %v, until the idlers were gone", took)
	}
}
