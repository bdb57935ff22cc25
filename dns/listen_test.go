package dns

import (
	"net/netip"
	"strings"
	"testing"
)

func TestListenMovesOn(t *testing.T) {
	cfg := testConfig()
	first, err := bind(netip.MustParseAddrPort("127.77.9.53:0"))
	if err != nil {
		t.Fatal(err)
	}
	defer first.close()
	cfg.Listen = []netip.AddrPort{first.addr}
	var servers []*Server
	for i := range LoopbackTries {
		s := newServer(t, cfg)
		err := s.Listen()
		defer s.Close()
		if i == LoopbackTries-1 {
			if err == nil || !strings.Contains(err.Error(), first.addr.String()) || strings.Contains(err.Error(), "\n") {
				t.Fatalf("got %v, want one line that names %s", err, first.addr)
			}
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		servers = append(servers, s)
	}
	want := netip.AddrPortFrom(netip.MustParseAddr("127.77.9.54"), first.addr.Port())
	if got := servers[0].Addrs()[0]; got != want {
		t.Errorf("moved on to %s, want %s", got, want)
	}
}

// TestListenBeforeAddress binds a virtual address that does not exist yet.
func TestListenBeforeAddress(t *testing.T) {
	cfg := testConfig()
	cfg.Listen = append(cfg.Listen, netip.MustParseAddrPort("100.80.0.1:0"), netip.MustParseAddrPort("[fd00:5::1]:0"))
	s := newServer(t, cfg)
	if err := s.Listen(); err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if got := len(s.Addrs()); got != 3 {
		t.Errorf("bound %d addresses, want 3", got)
	}
}

// TestListenWithoutVirtual goes on without a virtual address that is taken.
func TestListenWithoutVirtual(t *testing.T) {
	taken, err := bind(netip.MustParseAddrPort("100.80.0.1:0"))
	if err != nil {
		t.Fatal(err)
	}
	defer taken.close()
	cfg := testConfig()
	cfg.Listen = []netip.AddrPort{taken.addr}
	if err := newServer(t, cfg).Listen(); err == nil {
		t.Error("no address is free, and Listen says nothing")
	}
	cfg.Listen = append(cfg.Listen, netip.MustParseAddrPort("127.0.0.1:0"))
	s := newServer(t, cfg)
	if err := s.Listen(); err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if got := s.Addrs(); len(got) != 1 || !got[0].Addr().IsLoopback() {
		t.Errorf("bound %v, want the loopback alone", got)
	}
}
