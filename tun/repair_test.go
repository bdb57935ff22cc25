package tun

import (
	"context"
	"errors"
	"net/netip"
	"os/exec"
	"testing"
	"time"
)

// TestWatchKeepsTheHost: what somebody takes from the host comes back while the
// daemon runs; a link that is down stays down, and what is asked for meanwhile
// is there when it is up.
func TestWatchKeepsTheHost(t *testing.T) {
	isolate(t)
	lan(t)
	h := mustOpen(t, testConfig(t.TempDir()))
	defer h.Close()
	if err := h.SetPeerMTU([]netip.Addr{peer4, peer6}, 1300); err != nil {
		t.Fatal(err)
	}
	want, addrs := routes(t), run(t, "ip -o addr show dev mesh0")
	for _, damage := range []string{
		"ip link set mesh0 down; sleep 0.5; ip link set mesh0 up",
		"ip route flush proto 77; ip -6 route flush proto 77",
		"ip addr del 100.80.0.5/16 dev mesh0",
	} {
		ctx, cancel := context.WithTimeout(t.Context(), 2500*time.Millisecond)
		cmd := exec.Command("sh", "-c", "sleep 0.3; "+damage) // in this thread's namespace, after Watch has begun
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		if err := h.Watch(ctx, func() { t.Errorf("%s: taken for a change of the host's network", damage) }); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Watch ended with %v", err)
		}
		cancel()
		if err := cmd.Wait(); err != nil {
			t.Fatalf("%s: %v", damage, err)
		}
		if got := routes(t); got != want {
			t.Errorf("%s: routes\n%s\nwant\n%s", damage, got, want)
		}
		if got := run(t, "ip -o addr show dev mesh0"); got != addrs {
			t.Errorf("%s: addresses\n%s\nwant\n%s", damage, got, addrs)
		}
	}

	run(t, "ip link set mesh0 down")
	if err := h.SetPeerMTU([]netip.Addr{peer4}, 1290); err != nil {
		t.Errorf("a peer's MTU while the link is down: %v", err)
	}
	if mended, err := h.repair(); err != nil || len(mended) != 0 {
		t.Errorf("with the link down %q was put back, %v; want nothing", mended, err)
	}
	run(t, "ip link set mesh0 up")
	if mended, err := h.repair(); err != nil || len(mended) == 0 {
		t.Errorf("with the link up %q was put back, %v", mended, err)
	}
	if err := h.SetPeerMTU([]netip.Addr{peer4}, 1300); err != nil {
		t.Fatal(err)
	}
	if got := routes(t); got != want {
		t.Errorf("routes\n%s\nwant\n%s", got, want)
	}
}

// TestRepairFirewall: a firewall that was flushed, all of it or its rules alone, is put
// back, an administrator's address on the link and rule in a chain are left alone, and
// where nothing is missing nothing is done.
func TestRepairFirewall(t *testing.T) {
	isolate(t)
	h := mustOpen(t, testConfig(t.TempDir()))
	defer h.Close()
	want := run(t, "nft list ruleset")
	run(t, "ip addr add 100.80.0.77/32 dev mesh0")
	for _, damage := range []string{
		"nft flush ruleset", "nft flush table inet meshmpi_mesh0", "nft flush chain inet meshmpi_mesh0 out",
		"nft delete chain inet meshmpi_mesh0 in",
	} {
		run(t, damage)
		if mended, err := h.repair(); err != nil || len(mended) != 1 {
			t.Errorf("%s: %q was put back, %v; want the firewall's table", damage, mended, err)
		}
		if got := run(t, "nft list ruleset"); got != want {
			t.Errorf("%s: ruleset\n%s\nwant\n%s", damage, got, want)
		}
	}
	run(t, "nft insert rule inet meshmpi_mesh0 in iifname administrators accept")
	if mended, err := h.repair(); err != nil || len(mended) != 0 {
		t.Errorf("%q was put back, %v; want nothing", mended, err)
	}
}
