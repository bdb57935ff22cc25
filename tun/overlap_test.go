package tun

import (
	"bytes"
	"net/netip"
	"strings"
	"testing"
)

func TestPickCIDR4(t *testing.T) {
	isolate(t)
	lan(t)
	for _, c := range []struct{ command, want string }{ // each adds to the ones before
		{"ip link show lan0", "100.80.0.0/16"}, // nothing in the way, a default route aside
		{"ip route add 0.0.0.0/1 dev lan0", "100.80.0.0/16"},
		{"ip route add 100.80.3.0/24 dev lan0", "100.81.0.0/16"},
		{"ip addr add 100.81.255.255/32 dev lan1", "100.82.0.0/16"},
		{"ip route add 100.82.0.9/32 dev lan0 table 4000", "100.83.0.0/16"},
		{"ip route add blackhole 100.83.0.0/16", "100.84.0.0/16"},
		{"ip route add 100.84.0.0/16 nexthop dev lan0 nexthop dev lan1", "100.85.0.0/16"},
		{"ip route add 100.64.0.0/10 dev lan0", "10.80.0.0/16"},
		{"ip route add 10.64.0.0/10 dev lan0", "10.128.0.0/16"},
		{"ip route add 10.128.0.0/9 dev lan0", "10.0.0.0/16"},
		{"ip route add unreachable 10.0.0.0/8", ""},
	} {
		run(t, c.command)
		got, err := PickCIDR4()
		switch {
		case c.want == "" && (err == nil || !strings.Contains(err.Error(), "--cidr")):
			t.Errorf("after %s: got %v, %v", c.command, got, err)
		case c.want != "" && (err != nil || got.String() != c.want):
			t.Errorf("after %s: got %v, %v, want %s", c.command, got, err, c.want)
		}
	}
}

func TestCheckOverlap(t *testing.T) {
	isolate(t)
	lan(t)
	run(t, "ip route add 10.0.0.0/8 via 192.0.2.7")
	run(t, "ip route add unreachable 172.16.0.0/12")
	run(t, "ip -6 route add fd00::/8 dev lan0")
	run(t, "ip -6 route add fd77::/16 dev lan0 table 99")
	for _, c := range []struct{ cidr, want string }{
		{"100.80.0.0/16", ""},
		{"10.80.0.0/16", "the network 10.80.0.0/16 overlaps the route 10.0.0.0/8 of lan0 on this host"},
		{"172.17.0.0/16", ""}, // ours is more specific than a route that leads nowhere
		{"172.0.0.0/8", "unreachable route 172.16.0.0/12"},
		{"192.0.0.0/16", "address 192.0.2.0/24 of lan0"},
		{"127.5.0.0/16", "of lo"},
		{"fd80:1::/64", ""},
		{"fd77:1::/64", "route fd77::/16 of lan0 (table 99)"},
		{"2001:db8::/64", "of lan0"},
	} {
		err := CheckOverlap(cidr6, netip.MustParsePrefix(c.cidr))
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: got %v, want %q", c.cidr, err, c.want)
		}
	}
}

func TestTailscaleDrops(t *testing.T) {
	isolate(t)
	if TailscaleDrops(cidr4) {
		t.Error("there is no Tailscale here")
	}
	run(t, "nft add table ip filter")
	run(t, "nft add chain ip filter ts-input")
	for cidr, want := range map[string]bool{"100.80.0.0/16": true, "100.0.0.0/8": true, "10.80.0.0/16": false, "100.128.0.0/16": false, "fd80::/64": false} {
		if got := TailscaleDrops(netip.MustParsePrefix(cidr)); got != want {
			t.Errorf("TailscaleDrops(%s): got %v, want %v", cidr, got, want)
		}
	}
	if got, err := PickCIDR4(); err != nil || got.String() != "10.80.0.0/16" {
		t.Errorf("PickCIDR4: got %v, %v, want 10.80.0.0/16", got, err)
	}
}

// The entry that opens a user's chain in an iptables-legacy table, as the kernel
// returns it: struct ipt_entry, then an ERROR target named for the chain.
func TestLegacyHasChain(t *testing.T) {
	entry := func(chain string) []byte {
		b := make([]byte, 112+2+30+32)
		copy(b[114:], "ERROR")
		copy(b[144:], chain)
		return b
	}
	for chain, want := range map[string]bool{"ts-input": true, "ts-forward": true, "ts-inputs": false, "DOCKER": false} {
		if got := legacyHasChain(append(bytes.Repeat([]byte{0}, 152), entry(chain)...)); got != want {
			t.Errorf("chain %s: got %v, want %v", chain, got, want)
		}
	}
}
