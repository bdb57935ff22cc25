package tun

import (
	"errors"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// neighbourMAC is from whom the tests' wire sends.
const neighbourMAC = "02:00:00:00:00:01"

// openNative opens the LAN to peer4, whose address there is near4, for all packets.
func openNative(t *testing.T, h *Host) Hop {
	t.Helper()
	hop, err := h.Near(near4)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(h.OpenNative(peer4, hop), h.AdmitNative(peer4)); err != nil {
		t.Fatal(err)
	}
	return hop
}

func nativeLAN(t *testing.T) {
	t.Helper()
	isolate(t)
	lan(t)
	run(t, "ip neigh replace 192.0.2.7 lladdr "+neighbourMAC+" dev lan0")
}

// sendProbe sends as a probe is sent.
func sendProbe(to netip.Addr, payload string) error {
	c, err := net.ListenUDP("udp4", net.UDPAddrFromAddrPort(netip.AddrPortFrom(own4, NativePort)))
	if err != nil {
		return err
	}
	defer c.Close()
	_, err = c.WriteToUDPAddrPort([]byte(payload), netip.AddrPortFrom(to, NativePort))
	return err
}

func TestNear(t *testing.T) {
	nativeLAN(t)
	h := mustOpen(t, testConfig(t.TempDir()))
	defer h.Close()
	hop, err := h.Near(near4)
	if err != nil || hop.MTU != 1500 || hop.name != "lan0" || hop.mac != [6]byte{2, 0, 0, 0, 0, 1} || hop.ownAddr != lan4 || hop.ownMAC != [6]byte(hardwareAddr(t, "lan0")) {
		t.Errorf("the neighbour is %+v, %v", hop, err)
	}
	theirs := hop
	theirs.addr, theirs.mac, theirs.ownAddr, theirs.ownMAC = hop.ownAddr, hop.ownMAC, hop.addr, hop.mac
	if hop.Ends() != theirs.Ends() {
		t.Error("both ends see different ends")
	}
	if theirs.mac[5]++; hop.Ends() == theirs.Ends() {
		t.Error("other hardware makes no difference")
	}
	for name, at := range map[string]string{
		"beyond the router": "198.51.100.1", "the host itself": lan4.String(), "loopback": "127.0.0.1",
		"a peer's virtual address": peer4.String(), "nobody there": "192.0.2.99", "IPv6": near6.String(),
	} {
		if hop, err := h.Near(netip.MustParseAddr(at)); !errors.Is(err, ErrNotOnLAN) {
			t.Errorf("%s: got %+v, %v", name, hop, err)
		}
	}
}

// TestNative: probes first, then everything, goes over the LAN and back; only the peer
// itself is let in.
func TestNative(t *testing.T) {
	nativeLAN(t)
	run(t, "sysctl -qw net.ipv4.conf.lan0.rp_filter=1 net.ipv4.conf.all.rp_filter=1")
	before := snapshot(t)
	h := mustOpen(t, testConfig(t.TempDir()))
	w := newWire(t)
	sock, port := listenUDP(t)
	clean := routes(t)
	arrives := func(name string, src, dst netip.Addr, want bool) {
		t.Helper()
		w.send(udp(src, dst, port, name))
		w.send(udp(near4, lan4, port, "after it"))
		got := receive(t, sock)
		if want != (got == name) {
			t.Errorf("%s: let in is %t, want %t", name, got == name, want)
		}
		if got == name {
			receive(t, sock)
		}
	}
	arrives("before it is open", peer4, own4, false)
	if err := sendProbe(peer4, "probe before"); err == nil {
		w.wants("probe before", false)
	}
	hop, err := h.Near(near4)
	if err := errors.Join(err, h.OpenNative(peer4, hop)); err != nil {
		t.Fatal(err)
	}
	arrives("before the peer has proved to be there", peer4, own4, false)
	probed := udp(peer4, own4, NativePort, "a probe to us")
	if c, err := net.ListenUDP("udp4", net.UDPAddrFromAddrPort(netip.AddrPortFrom(own4, NativePort))); err != nil {
		t.Fatal(err)
	} else {
		w.send(probed)
		if got := receive(t, c); got != "a probe to us" {
			t.Errorf("for a probe we got %q", got)
		}
		c.Close()
	}
	if err := errors.Join(h.AdmitNative(peer4), h.AdmitNative(peer4)); err != nil {
		t.Fatal(err)
	}
	if !h.StillNear(peer4) {
		t.Error("the peer is no longer there")
	}
	arrives("from the peer", peer4, own4, true)
	arrives("from the peer to the LAN's address", peer4, lan4, false)
	arrives("from another's address", netip.MustParseAddr("100.80.0.10"), own4, false)
	arrives("from the LAN to ours", near4, own4, false)
	run(t, "ip neigh replace 192.0.2.7 lladdr "+hardwareAddr(t, "lan1").String()+" dev lan0") // whom our own packets go to; the firewall knows the other
	arrives("still from the peer", peer4, own4, true)
	if h.StillNear(peer4) {
		t.Error("other hardware is taken for the peer's")
	}
	if err := sendProbe(peer4, "probe"); err != nil {
		t.Errorf("a probe: %v", err)
	}
	w.wants("probe", true)
	if err := sendProbe(netip.MustParseAddr("100.80.0.10"), "stray"); !errors.Is(err, unix.EHOSTUNREACH) {
		t.Errorf("a probe to a peer that is not open: %v", err)
	}
	if err := sendUDP(t, peer4, 9, "by the TUN"); err != nil {
		t.Fatal(err)
	}
	w.wants("by the TUN", false)

	if err := h.SetPeerMTU([]netip.Addr{peer4}, 1300); err != nil {
		t.Fatal(err)
	}
	if err := h.UseNative(peer4, 1492); err != nil {
		t.Fatal(err)
	}
	if got := run(t, "ip route get 100.80.0.9"); !strings.Contains(got, "100.80.0.9 via 192.0.2.7 dev lan0 src 100.80.0.5") || !strings.Contains(got, "mtu 1492") {
		t.Errorf("in use, the route is %s", got)
	}
	if err := sendUDP(t, peer4, 9, "by the LAN"); err != nil {
		t.Fatal(err)
	}
	w.wants("by the LAN", true)
	if mended, err := h.repair(); err != nil || len(mended) > 0 {
		t.Errorf("repair mends %q, %v", mended, err)
	}
	run(t, "nft flush ruleset")
	run(t, "ip route del 100.80.0.9 via 192.0.2.7")
	run(t, "ip rule del priority 1077")
	if mended, err := h.repair(); err != nil || !slices.Equal(mended, []string{"firewall table"}) {
		t.Errorf("after a flush repair mends %q, %v", mended, err)
	}
	arrives("after the repair", peer4, own4, true)
	if err := sendProbe(peer4, "probe after the repair"); err != nil {
		t.Errorf("a probe: %v", err)
	}
	w.wants("probe after the repair", true)
	if err := sendUDP(t, peer4, 9, "by the LAN again"); err != nil {
		t.Fatal(err)
	}
	w.wants("by the LAN again", true)
	arrives("another's after the repair", netip.MustParseAddr("100.80.0.10"), own4, false)

	if err := h.UseNative(peer4, 0); err != nil {
		t.Fatal(err)
	}
	if got := run(t, "ip route get 100.80.0.9"); !strings.Contains(got, "dev mesh0") || !strings.Contains(got, "mtu 1300") {
		t.Errorf("no longer in use, the route is %s", got)
	}
	if err := errors.Join(h.SetPeerMTU([]netip.Addr{peer4}, 0), h.CloseNative(peer4), h.CloseNative(peer4)); err != nil {
		t.Fatal(err)
	}
	if got := routes(t); got != clean {
		t.Errorf("left are\n%s\nwant\n%s", got, clean)
	}
	arrives("closed again", peer4, own4, false)
	for _, a := range []netip.Addr{own4, near4, peer6, {}} {
		if err := h.OpenNative(a, Hop{}); err == nil {
			t.Errorf("OpenNative took %v", a)
		}
	}
	if h.UseNative(peer4, 1500) == nil || h.AdmitNative(peer4) == nil {
		t.Error("UseNative or AdmitNative works where it is not open")
	}
	openNative(t, h)
	if err := h.UseNative(peer4, 1500); err != nil {
		t.Fatal(err)
	}
	if err := h.Close(); err != nil {
		t.Fatal(err)
	}
	run(t, "ip neigh replace 192.0.2.7 lladdr "+neighbourMAC+" dev lan0")
	sameSnapshot(t, before)
}

// TestNativeAfterDeath: a successor begins without, and Restore takes all of it out.
func TestNativeAfterDeath(t *testing.T) {
	nativeLAN(t)
	run(t, "sysctl -qw net.ipv4.conf.lan0.rp_filter=1")
	before := snapshot(t)
	dir := t.TempDir()
	h := mustOpen(t, testConfig(dir))
	clean := routes(t)
	use := func(h *Host) {
		t.Helper()
		openNative(t, h)
		if err := h.UseNative(peer4, 1500); err != nil {
			t.Fatal(err)
		}
	}
	use(h)
	if err := h.Detach(); err != nil {
		t.Fatal(err)
	}
	h = mustOpen(t, testConfig(dir))
	if got := routes(t); got != clean {
		t.Errorf("adopted with\n%s\nwant\n%s", got, clean)
	}
	if got := run(t, "nft list ruleset"); strings.Contains(got, "192.0.2") || strings.Contains(got, neighbourMAC) {
		t.Errorf("adopted with\n%s", got)
	}
	use(h)
	if err := h.Detach(); err != nil {
		t.Fatal(err)
	}
	changed, err := Restore(dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"native route to 100.80.0.9 removed", "rule for native probes removed", "rp_filter=2 of lan0 removed"} {
		if !slices.Contains(changed, want) {
			t.Errorf("no %q in %q", want, changed)
		}
	}
	sameSnapshot(t, before)
}

// What somebody has set since is left alone.
func TestNativeLeavesOthersFilter(t *testing.T) {
	nativeLAN(t)
	run(t, "sysctl -qw net.ipv4.conf.lan0.rp_filter=1")
	h := mustOpen(t, testConfig(t.TempDir()))
	openNative(t, h)
	run(t, "sysctl -qw net.ipv4.conf.lan0.rp_filter=0")
	if err := h.Close(); err != nil {
		t.Fatal(err)
	}
	if b, err := os.ReadFile(rpFilter("lan0")); err != nil || string(b) != "0\n" {
		t.Errorf("rp_filter is %q, %v", b, err)
	}
}

// TestNativeWhenRenamed: it is the TUN's setting that is changed, not that of a link
// which has its name, and the LAN's comes back.
func TestNativeWhenRenamed(t *testing.T) {
	nativeLAN(t)
	h := mustOpen(t, testConfig(t.TempDir()))
	for _, c := range []string{
		"ip link set mesh0 down", "ip link set mesh0 name renamed", "ip link set renamed up",
		"ip link add mesh0 type veth peer name mesh1", "sysctl -qw net.ipv4.conf.all.rp_filter=1",
	} {
		run(t, c)
	}
	filters := func() []string {
		t.Helper()
		return strings.Fields(run(t, "sysctl -n net.ipv4.conf.renamed.rp_filter net.ipv4.conf.lan0.rp_filter net.ipv4.conf.mesh0.rp_filter"))
	}
	before := filters()
	if _, err := h.repair(); err != nil { // its addresses went while it was down
		t.Fatal(err)
	}
	openNative(t, h)
	if got := filters(); !slices.Equal(got, []string{loose, loose, before[2]}) {
		t.Errorf("TUN, LAN and the other link have %q, before %q", got, before)
	}
	if err := h.Close(); err != nil {
		t.Fatal(err)
	}
	if got := run(t, "sysctl -n net.ipv4.conf.lan0.rp_filter"); got != before[1]+"\n" {
		t.Errorf("the LAN is left with %q, before %q", got, before[1])
	}
}
