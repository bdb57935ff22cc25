package tun

import (
	"errors"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func mustOpen(t *testing.T, cfg Config) *Host {
	t.Helper()
	h, err := Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = h.Detach() }) // for failed tests; nothing after Close
	return h
}

func TestOpenSetsUpAndCloseLeavesNoTrace(t *testing.T) {
	isolate(t)
	lan(t)
	dir := t.TempDir()
	before := snapshot(t)
	h := mustOpen(t, testConfig(dir))
	for _, c := range []struct{ command, want string }{
		{"ip -d link show mesh0", "mtu 1400"},
		{"ip -d link show mesh0", "qlen 1000"},
		{"ip -d link show mesh0", "tun type tun"},
		{"ip -d link show mesh0", "persist on"},
		{"ip -d link show mesh0", "user root"},
		{"ip -d link show mesh0", "alias meshmpi:"},
		{"ip addr show mesh0", "inet 100.80.0.5/16 scope global noprefixroute mesh0"},
		{"ip addr show mesh0", "inet6 fd80:1::5/64 scope global nodad noprefixroute"},
		{"ip -4 route", "100.80.0.0/16 dev mesh0 proto 77 scope link src 100.80.0.5 features ecn"},
		{"ip -4 route", "unreachable 100.80.0.0/16 proto 77 metric 1073741824"},
		{"ip -6 route", "fd80:1::/64 dev mesh0 proto 77 src fd80:1::5 metric 1024 features ecn"},
		{"ip -6 route", "unreachable fd80:1::/64 dev lo proto 77 metric 1073741824"},
		{"nft list ruleset", "ip saddr 100.80.0.0/16 counter packets 0 bytes 0 drop"},
		{"nft list ruleset", "ip6 daddr fd80:1::/64 counter packets 0 bytes 0 drop"},
		{"nft list ruleset", `oif "mesh0" accept`},
	} {
		if got := run(t, c.command); !strings.Contains(got, c.want) {
			t.Errorf("%s: no %q in\n%s", c.command, c.want, got)
		}
	}
	if got := run(t, "ip -6 addr show mesh0"); strings.Contains(got, "fe80") {
		t.Errorf("the TUN has a link-local address:\n%s", got)
	}
	if s, err := getSettings("mesh0"); err != nil || s.speed != linkSpeed {
		t.Errorf("speed: got %d, %v, want %d", s.speed, err, linkSpeed)
	}
	if got := h.Device().BatchSize(); got < 2 {
		t.Errorf("the device moves batches of %d: it has no offloads", got)
	}
	if w := h.Warnings(); len(w) > 0 {
		t.Errorf("warnings: %q", w)
	}
	if err := h.Close(); err != nil {
		t.Fatal(err)
	}
	sameSnapshot(t, before)
	if err := h.Close(); err != nil {
		t.Errorf("second Close: %v", err)
	}
	if changed, err := Restore(dir, nil); err != nil || len(changed) > 0 {
		t.Errorf("Restore after Close: %q, %v", changed, err)
	}
}

func TestCloseAfterTheMeshClosedTheDevice(t *testing.T) {
	isolate(t)
	before := snapshot(t)
	h := mustOpen(t, testConfig(t.TempDir()))
	_ = h.Device().Close()
	if err := h.Close(); err != nil {
		t.Fatal(err)
	}
	sameSnapshot(t, before)
}

func TestRestoreAfterKill(t *testing.T) {
	isolate(t)
	lan(t)
	dir := t.TempDir()
	before := snapshot(t)
	child := startChild(t, dir)
	if _, err := Restore(dir, nil); err == nil || !strings.Contains(err.Error(), "another meshd is running") {
		t.Errorf("Restore beside a running daemon: %v", err)
	}
	if _, err := Open(testConfig(dir)); err == nil || !strings.Contains(err.Error(), "another meshd is running") {
		t.Errorf("Open beside a running daemon: %v", err)
	}
	if _, err := Open(testConfig(t.TempDir())); err == nil || !strings.Contains(err.Error(), "--tun") {
		t.Errorf("Open with the name of another daemon's TUN: %v", err)
	}
	kill(child)
	changed, err := Restore(dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"link mesh0 removed", "route unreachable 100.80.0.0/16 removed",
		"route unreachable fd80:1::/64 removed", "firewall table inet meshmpi_mesh0 removed",
	}
	if !slices.Equal(changed, want) {
		t.Errorf("changed: got %q, want %q", changed, want)
	}
	sameSnapshot(t, before)
	if changed, err := Restore(dir, nil); err != nil || len(changed) > 0 {
		t.Errorf("second Restore: %q, %v", changed, err)
	}
}

// A daemon that dies while it opens, whenever that is, leaves what Restore takes
// away.
func TestRestoreAfterKillAtAnyInstant(t *testing.T) {
	isolate(t)
	before := snapshot(t)
	for delay := time.Duration(0); delay < 40*time.Millisecond; delay += 2 * time.Millisecond {
		dir := t.TempDir()
		child := exec.Command("/proc/self/exe")
		child.Env = append(os.Environ(), childEnv+"="+dir)
		if err := child.Start(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(delay) // not for anything to happen: it is the instant
		kill(child)
		changed, err := Restore(dir, nil)
		if err != nil {
			t.Errorf("killed after %v: %v", delay, err)
		}
		t.Logf("killed after %v: %d changes taken back", delay, len(changed))
		sameSnapshot(t, before)
	}
}

// crash takes the first n of Open's steps and stops as kill -9 would.
func crash(t *testing.T, dir string, n int) {
	t.Helper()
	cfg := testConfig(dir)
	if err := cfg.check(); err != nil {
		t.Fatal(err)
	}
	lock, err := lockState(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close()
	h := &Host{cfg: cfg, log: cfg.Log, lock: lock, fd: -1}
	if err := h.open(h.steps()[:n]); err != nil {
		t.Fatal(err)
	}
	if h.dev != nil {
		_ = h.closeDevice()
	} else {
		unix.Close(h.fd)
	}
}

func TestCrashAtEveryStep(t *testing.T) {
	isolate(t)
	before := snapshot(t)
	for n := range len((&Host{}).steps()) + 1 {
		dir := t.TempDir()
		crash(t, dir, n)
		if _, err := Restore(dir, nil); err != nil {
			t.Errorf("Restore after %d steps: %v", n, err)
		}
		sameSnapshot(t, before)

		crash(t, dir, n)
		if err := mustOpen(t, testConfig(dir)).Close(); err != nil {
			t.Errorf("Close after a crash after %d steps: %v", n, err)
		}
		sameSnapshot(t, before)
	}
}

func TestFailureAtEveryStepRollsBack(t *testing.T) {
	isolate(t)
	before := snapshot(t)
	broken := errors.New("broken")
	for n := range len((&Host{}).steps()) {
		cfg := testConfig(t.TempDir())
		if err := cfg.check(); err != nil {
			t.Fatal(err)
		}
		h := &Host{cfg: cfg, log: cfg.Log, fd: -1}
		err := h.open(append(h.steps()[:n:n], step{"test", func() error { return broken }}))
		if !errors.Is(err, broken) {
			t.Errorf("after %d steps: got %v, want %v", n, err, broken)
		}
		sameSnapshot(t, before)
		if _, err := os.Stat(filepath.Join(cfg.StateDir, journalName)); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("the journal is still there: %v", err)
		}
	}
}

func TestOpenWithOtherAddressesReplacesTheOld(t *testing.T) {
	isolate(t)
	before := snapshot(t)
	dir := t.TempDir()
	if err := mustOpen(t, testConfig(dir)).Detach(); err != nil {
		t.Fatal(err)
	}
	cfg := testConfig(dir)
	cfg.Name, cfg.Addr4, cfg.CIDR4 = "mesh7", netip.MustParseAddr("10.9.0.1"), netip.MustParsePrefix("10.9.0.0/16")
	h := mustOpen(t, cfg)
	state := snapshot(t)
	if strings.Contains(state, "100.80.") || strings.Contains(state, "mesh0") {
		t.Errorf("remains of the old network:\n%s", state)
	}
	if err := h.Close(); err != nil {
		t.Fatal(err)
	}
	sameSnapshot(t, before)
}

func TestOpenRepairsWhatSomebodyRemoved(t *testing.T) {
	isolate(t)
	before := snapshot(t)
	dir := t.TempDir()
	if err := mustOpen(t, testConfig(dir)).Detach(); err != nil {
		t.Fatal(err)
	}
	want := routes(t)
	for _, damage := range []string{
		"ip link del mesh0", "ip link set mesh0 down", "ip addr add 100.80.1.1/16 dev mesh0",
		"ip route flush proto 77", "nft delete table inet meshmpi_mesh0", "ip link set mesh0 name other",
	} {
		run(t, damage)
		if err := mustOpen(t, testConfig(dir)).Detach(); err != nil {
			t.Errorf("%s: %v", damage, err)
		}
		if got := routes(t); got != want {
			t.Errorf("%s: routes\n%s\nwant\n%s", damage, got, want)
		}
	}
	if _, err := Restore(dir, nil); err != nil {
		t.Fatal(err)
	}
	sameSnapshot(t, before)
}

func TestSetPeerMTU(t *testing.T) {
	isolate(t)
	before := snapshot(t)
	dir := t.TempDir()
	h := mustOpen(t, testConfig(dir))
	clean := routes(t)
	set := func(mtu int) {
		t.Helper()
		if err := h.SetPeerMTU([]netip.Addr{peer4, peer6}, mtu); err != nil {
			t.Fatal(err)
		}
	}
	set(1300)
	set(1280)
	for _, c := range []struct{ command, want string }{
		{"ip route get 100.80.0.9", "mtu 1280"},
		{"ip route get fd80:1::9", "mtu 1280"},
		{"ip route", "100.80.0.9 dev mesh0 proto 77 scope link src 100.80.0.5 mtu 1280 features ecn"},
	} {
		if got := run(t, c.command); !strings.Contains(got, c.want) {
			t.Errorf("%s: no %q in %s", c.command, c.want, got)
		}
	}
	for _, mtu := range []int{0, 0, DefaultMTU} {
		set(1280)
		set(mtu)
		if got := routes(t); got != clean {
			t.Errorf("MTU %d leaves\n%s\nwant\n%s", mtu, got, clean)
		}
	}
	for _, a := range []netip.Addr{own4, near4, {}} {
		if err := h.SetPeerMTU([]netip.Addr{a}, 1280); err == nil {
			t.Errorf("SetPeerMTU took %v", a)
		}
	}
	set(1280) // a successor begins without
	if err := h.Detach(); err != nil {
		t.Fatal(err)
	}
	h = mustOpen(t, testConfig(dir))
	if got := routes(t); got != clean {
		t.Errorf("adopted with\n%s\nwant\n%s", got, clean)
	}
	set(1280)
	if err := h.Close(); err != nil {
		t.Fatal(err)
	}
	sameSnapshot(t, before)
	if err := h.SetPeerMTU([]netip.Addr{peer4}, 1280); err == nil {
		t.Error("SetPeerMTU works after Close")
	}
}

// TestSetPeerWindow: what TCP is told of a peer's window and of its MTU stand beside
// each other in one route.
func TestSetPeerWindow(t *testing.T) {
	isolate(t)
	h := mustOpen(t, testConfig(t.TempDir()))
	clean := routes(t)
	peers := []netip.Addr{peer4, peer6}
	for _, step := range []struct {
		name        string
		mtu, window int
		want        string // in the route to each of the peers
	}{
		{"a window", 0, 64, "initcwnd 64"},
		{"and an MTU", 1280, 64, "mtu 1280 initcwnd 64"},
		{"another window", 1280, 33, "mtu 1280 initcwnd 33"},
		{"the MTU only", 1280, 0, "mtu 1280"},
		{"neither", 0, 0, ""},
	} {
		if err := errors.Join(h.SetPeerWindow(peers, step.window), h.SetPeerMTU(peers, step.mtu)); err != nil {
			t.Fatalf("%s: %v", step.name, err)
		}
		if step.want == "" {
			if got := routes(t); got != clean {
				t.Errorf("%s: left are\n%s\nwant\n%s", step.name, got, clean)
			}
			continue
		}
		for _, p := range peers {
			got := run(t, "ip route get "+p.String())
			if !strings.Contains(got, step.want) || step.window == 0 && strings.Contains(got, "initcwnd") {
				t.Errorf("%s: no %q in %s", step.name, step.want, got)
			}
			if out := run(t, "ip -4 route") + run(t, "ip -6 route"); strings.Count(out, "features ecn") != 4 {
				t.Errorf("%s: not all routes ask for ECN:\n%s", step.name, out)
			}
		}
	}
	for _, a := range []netip.Addr{own4, near4, {}} {
		if err := h.SetPeerWindow([]netip.Addr{a}, 64); err == nil {
			t.Errorf("SetPeerWindow took %v", a)
		}
	}
	if err := h.SetPeerWindow(peers, -1); err == nil {
		t.Error("SetPeerWindow took a negative window")
	}
	if err := h.Close(); err != nil {
		t.Fatal(err)
	}
}
