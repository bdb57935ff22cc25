package tun

import (
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// refused checks that Open says why, in one line, and changes nothing.
func refused(t *testing.T, cfg Config, want ...string) {
	t.Helper()
	before := snapshot(t)
	h, err := Open(cfg)
	if err == nil {
		h.Close()
		t.Errorf("Open worked; want an error with %q", want)
		return
	}
	for _, w := range want {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("got error %q, want %q in it", err, w)
		}
	}
	if strings.Contains(err.Error(), "\n") {
		t.Errorf("the error has several lines: %q", err)
	}
	sameSnapshot(t, before)
}

func TestOpenRefusesWhatIsNotOurs(t *testing.T) {
	isolate(t)
	lan(t)
	for _, c := range []struct{ add, remove, want string }{
		{"ip link add mesh0 type bridge", "ip link del mesh0", "choose another name with --tun or remove it (ip link del mesh0)"},
		{"ip tuntap add mesh0 mode tun vnet_hdr", "ip link del mesh0", "is there already and not ours"},
		{"ip route add 100.80.7.0/24 dev lan0", "ip route del 100.80.7.0/24", "the network 100.80.0.0/16 overlaps the route 100.80.7.0/24 of lan0 on this host"},
		{"ip route add 100.64.0.0/10 dev lan0 table 52", "ip route flush table 52", "overlaps the route 100.64.0.0/10 of lan0 (table 52)"},
		{"ip addr add 100.80.2.1/32 dev lan1", "ip addr del 100.80.2.1/32 dev lan1", "overlaps the address 100.80.2.1/32 of lan1"},
		{"ip route add blackhole 100.80.0.0/16", "ip route del blackhole 100.80.0.0/16", "overlaps the unreachable route 100.80.0.0/16"},
		{"ip addr add fd80:1::77/128 dev lan1", "ip addr del fd80:1::77/128 dev lan1", "overlaps the address fd80:1::77/128 of lan1"},
	} {
		run(t, c.add)
		refused(t, testConfig(t.TempDir()), c.want)
		run(t, c.remove)
	}
}

// The lock is gone, but the TUN itself knows that somebody is attached.
func TestOpenWhileAnotherIsAttached(t *testing.T) {
	isolate(t)
	dir := t.TempDir()
	h := mustOpen(t, testConfig(dir))
	if err := os.Remove(filepath.Join(dir, lockName)); err != nil {
		t.Fatal(err)
	}
	refused(t, testConfig(dir), "another process is attached to mesh0; stop the other meshd first")
	if err := h.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestOpenWithoutTheMeans(t *testing.T) {
	isolate(t)
	if err := unix.Mount("none", "/dev/net", "tmpfs", 0, ""); err != nil {
		t.Fatal(err)
	}
	refused(t, testConfig(t.TempDir()), "tun: /dev/net/tun is missing; load the tun module (modprobe tun) or allow the device in this container")
	if err := unix.Unmount("/dev/net", 0); err != nil {
		t.Fatal(err)
	}

	cfg := testConfig(t.TempDir())
	hdr := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var caps [2]unix.CapUserData
	if err := unix.Capget(&hdr, &caps[0]); err != nil {
		t.Fatal(err)
	}
	without := caps
	without[0].Effective &^= 1 << unix.CAP_NET_ADMIN
	if err := unix.Capset(&hdr, &without[0]); err != nil { // this thread's only
		t.Fatal(err)
	}
	h, err := Open(cfg)
	if err == nil {
		h.Close()
	}
	if want := "tun: creating mesh0 needs CAP_NET_ADMIN; run meshd as root or grant it (setcap cap_net_admin+ep"; err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("got %v, want %q", err, want)
	}
}

func TestOpenWhereIPv6IsOff(t *testing.T) {
	isolate(t)
	run(t, "sysctl -qw net.ipv6.conf.all.disable_ipv6=1 net.ipv6.conf.default.disable_ipv6=1")
	before := snapshot(t)
	h := mustOpen(t, testConfig(t.TempDir()))
	if got := run(t, "ip -6 addr show mesh0"); !strings.Contains(got, own6.String()) {
		t.Errorf("the TUN has no IPv6 though it could: %s", got)
	}
	if err := h.Close(); err != nil {
		t.Fatal(err)
	}
	sameSnapshot(t, before)

	if err := unix.Mount("none", "/proc/sys/net/ipv6", "tmpfs", 0, ""); err != nil { // as if the kernel had none
		t.Fatal(err)
	}
	h = mustOpen(t, testConfig(t.TempDir()))
	if got := h.Warnings(); len(got) != 1 || !strings.Contains(got[0], "IPv6 is off") {
		t.Errorf("warnings: %q", got)
	}
	if got := run(t, "ip addr show mesh0"); !strings.Contains(got, own4.String()) || strings.Contains(got, "inet6") {
		t.Errorf("addresses: %s", got)
	}
	if err := h.SetPeerMTU([]netip.Addr{peer4, peer6}, 1280); err != nil {
		t.Error(err)
	}
	if err := h.Close(); err != nil {
		t.Fatal(err)
	}
	if err := unix.Unmount("/proc/sys/net/ipv6", 0); err != nil {
		t.Fatal(err)
	}
	sameSnapshot(t, before)
}

func TestConfigCheck(t *testing.T) {
	good := testConfig("")
	for _, c := range []struct {
		name string
		edit func(*Config)
		want string // "" for good
	}{
		{"all", func(*Config) {}, ""},
		{"IPv4 only", func(c *Config) { c.Addr6, c.CIDR6 = netip.Addr{}, netip.Prefix{} }, ""},
		{"IPv6 only", func(c *Config) { c.Addr4, c.CIDR4 = netip.Addr{}, netip.Prefix{} }, ""},
		{"nothing", func(c *Config) { *c = Config{} }, "neither"},
		{"long name", func(c *Config) { c.Name = "a123456789012345" }, "no name"},
		{"name with a quote", func(c *Config) { c.Name = `a"b` }, "no name"},
		{"name with a slash", func(c *Config) { c.Name = "../x" }, "no name"},
		{"name all", func(c *Config) { c.Name = "all" }, "no name"},
		{"small MTU", func(c *Config) { c.MTU = 1279 }, "between 1280"},
		{"large MTU", func(c *Config) { c.MTU = 65535 }, "between 1280"},
		{"address outside", func(c *Config) { c.Addr4 = near4 }, "not in the network"},
		{"no address", func(c *Config) { c.Addr4 = netip.Addr{} }, "not in the network"},
		{"no CIDR", func(c *Config) { c.CIDR6 = netip.Prefix{} }, "not the prefix"},
		{"host bits", func(c *Config) { c.CIDR4 = netip.MustParsePrefix("100.80.0.5/16") }, "not the prefix"},
		{"families swapped", func(c *Config) { c.Addr4, c.CIDR4 = own6, cidr6 }, "not the prefix"},
		{"everything", func(c *Config) { c.CIDR4 = netip.MustParsePrefix("0.0.0.0/0") }, "too large"},
	} {
		cfg := good
		c.edit(&cfg)
		err := cfg.check()
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: got %v, want %q", c.name, err, c.want)
		}
	}
}

// A journal that cannot be trusted stops both Open and Restore, whose error
// says what to do, and nothing is touched.
func TestDamagedJournal(t *testing.T) {
	isolate(t)
	dir := t.TempDir()
	if err := mustOpen(t, testConfig(dir)).Detach(); err != nil {
		t.Fatal(err)
	}
	detached(t)
	before := snapshot(t)
	path := filepath.Join(dir, journalName)
	good, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ name, content string }{
		{"empty", ""},
		{"cut off", string(good[:len(good)/2])},
		{"another version", strings.Replace(string(good), `"version": 1`, `"version": 2`, 1)},
		{"unknown field", strings.Replace(string(good), `"version"`, `"more": 1, "version"`, 1)},
		{"bad mark", strings.Replace(string(good), `"owner": "`, `"owner": "x`, 1)},
		{"too large", string(good) + strings.Repeat(" ", maxJournal)},
		{"something after", string(good) + "{}"},
	} {
		if err := os.WriteFile(path, []byte(c.content), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := Restore(dir, nil)
		if err == nil || !strings.Contains(err.Error(), path+" is damaged") || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: Restore: %v", c.name, err)
		}
		refused(t, testConfig(dir), path+" is damaged")
	}
	sameSnapshot(t, before)
}

func TestRestoreAfterReboot(t *testing.T) {
	isolate(t)
	dir := t.TempDir()
	clean := snapshot(t)
	h := mustOpen(t, testConfig(dir))
	if err := h.Detach(); err != nil {
		t.Fatal(err)
	}
	detached(t)
	before := snapshot(t)
	j := *h.journal
	j.BootID = "another"
	if err := j.write(dir); err != nil {
		t.Fatal(err)
	}
	if changed, err := Restore(dir, nil); err != nil || len(changed) > 0 {
		t.Errorf("Restore: %q, %v", changed, err)
	}
	sameSnapshot(t, before)
	if j, err := readJournal(dir); j != nil || err != nil {
		t.Errorf("the journal is still there: %v, %v", j, err)
	}

	if _, err := undo(h.journal, dir); err != nil { // what the reboot would have done
		t.Fatal(err)
	}
	if err := j.write(dir); err != nil {
		t.Fatal(err)
	}
	if err := mustOpen(t, testConfig(dir)).Close(); err != nil {
		t.Fatal(err)
	}
	sameSnapshot(t, clean)
}

// Restore knows its own by their mark: a link and a table by the same names,
// made by another meshd since, are left alone.
func TestRestoreLeavesOthersAlone(t *testing.T) {
	isolate(t)
	first, second := t.TempDir(), t.TempDir()
	if err := mustOpen(t, testConfig(first)).Detach(); err != nil {
		t.Fatal(err)
	}
	run(t, "ip link del mesh0")
	cfg := testConfig(second)
	cfg.Addr4, cfg.CIDR4 = netip.MustParseAddr("10.9.0.1"), netip.MustParsePrefix("10.9.0.0/16")
	cfg.Addr6, cfg.CIDR6 = netip.MustParseAddr("fd80:2::1"), netip.MustParsePrefix("fd80:2::/64")
	h := mustOpen(t, cfg)
	changed, err := Restore(first, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range changed {
		if !strings.HasPrefix(c, "route unreachable") {
			t.Errorf("changed %q", c)
		}
	}
	for _, c := range []struct{ command, want string }{
		{"ip addr show mesh0", "10.9.0.1/16"}, {"nft list tables", "meshmpi_mesh0"}, {"ip route", "unreachable 10.9.0.0/16"},
	} {
		if got := run(t, c.command); !strings.Contains(got, c.want) {
			t.Errorf("%s: no %q in %s", c.command, c.want, got)
		}
	}
	if err := h.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestRestoreWithoutAState(t *testing.T) {
	if changed, err := Restore(filepath.Join(t.TempDir(), "nowhere"), nil); err != nil || len(changed) > 0 {
		t.Errorf("got %q, %v", changed, err)
	}
}
