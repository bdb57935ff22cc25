package tun

import (
	"context"
	"errors"
	"os/exec"
	"testing"
	"time"
)

// TestWatchIsCalm: a host that changes all the time has that told now and then.
func TestWatchIsCalm(t *testing.T) {
	isolate(t)
	lan(t)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	cmd := exec.Command("sh", "-c", "for i in 1 2 3 4 5 6; do sleep 0.5; ip addr add 198.51.100.$i/32 dev lan0; done")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	told := 0
	if err := Watch(ctx, func() { told++ }); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Watch ended with %v", err)
	}
	if err := cmd.Wait(); err != nil {
		t.Fatal(err)
	}
	if told < 2 || told > 3 {
		t.Errorf("six changes within three seconds were told %d times, want 2 or 3", told)
	}
}

// TestWatch: changes of the host's own addresses and default route are told,
// once each, those of the overlay's link are not.
func TestWatch(t *testing.T) {
	isolate(t)
	lan(t)
	h := mustOpen(t, testConfig(t.TempDir()))
	for _, tc := range []struct {
		change string
		told   bool
	}{
		{"ip addr add 198.51.100.7/24 dev lan0; ip addr add 198.51.100.8/24 dev lan0", true},
		{"ip route add default via 198.51.100.1 dev lan0 metric 77", true},
		{"ip route add 203.0.113.0/24 dev lan0", false},
		{"ip addr add 100.80.0.77/32 dev mesh0; ip route add 100.80.0.78/32 dev mesh0", false},
	} {
		ctx, cancel := context.WithTimeout(t.Context(), 1500*time.Millisecond)
		cmd := exec.Command("sh", "-c", "sleep 0.3; "+tc.change) // in this thread's namespace, after Watch has begun
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		told := 0
		if err := h.Watch(ctx, func() { told++ }); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Watch ended with %v", err)
		}
		cancel()
		if err := cmd.Wait(); err != nil {
			t.Fatalf("%s: %v", tc.change, err)
		}
		if want := map[bool]int{true: 1}[tc.told]; told != want {
			t.Errorf("%s: told %d times, want %d", tc.change, told, want)
		}
	}
}

// toldOf returns how often a change that a shell makes is told within d.
func toldOf(t *testing.T, d time.Duration, change string) int {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	defer cancel()
	cmd := exec.Command("sh", "-c", "sleep 0.3; "+change)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	told := 0
	_ = Watch(ctx, func() { told++ })
	if err := cmd.Wait(); err != nil {
		t.Fatalf("%s: %v", change, err)
	}
	return told
}

// TestWatchLinkDown: the link with the default route is set down; what leaves the host
// now goes by another one, from another address.
func TestWatchLinkDown(t *testing.T) {
	isolate(t)
	for _, c := range []string{
		"ip link add up0 type veth peer name peer0", "ip link add up1 type veth peer name peer1",
		"ip link set peer0 up", "ip link set peer1 up",
		"sysctl -qw net.ipv6.conf.up0.disable_ipv6=1 net.ipv6.conf.up1.disable_ipv6=1",
		"ip link set up0 up", "ip link set up1 up",
		"ip addr add 192.0.2.1/24 dev up0", "ip addr add 198.51.100.1/24 dev up1",
		"ip route add default via 192.0.2.254 metric 100", "ip route add default via 198.51.100.254 metric 200",
	} {
		run(t, c)
	}
	time.Sleep(settle) // it is over
	if n := toldOf(t, 2*time.Second, "ip link set up0 down"); n != 1 {
		t.Errorf("the default route's link was set down: told %d times, want 1", n)
	}
}

// TestWatchRefreshed: an address whose lifetime is extended, as by every router
// advertisement and every renewal of a lease, is no change.
func TestWatchRefreshed(t *testing.T) {
	isolate(t)
	lan(t)
	run(t, "ip addr add 2001:db8::55/64 dev lan0 nodad valid_lft 3600 preferred_lft 1800")
	run(t, "ip addr add 192.0.2.55/24 dev lan0 valid_lft 3600 preferred_lft 1800")
	time.Sleep(settle) // they are told of before
	if n := toldOf(t, 2*time.Second, "ip addr change 2001:db8::55/64 dev lan0 valid_lft 3601 preferred_lft 1801"); n != 0 {
		t.Errorf("IPv6: told %d times that the network has changed", n)
	}
	if n := toldOf(t, 2*time.Second, "ip addr change 192.0.2.55/24 dev lan0 valid_lft 3601 preferred_lft 1801"); n != 0 {
		t.Errorf("IPv4: told %d times that the network has changed", n)
	}
}

// TestWatchRestless: while something changes all the time, a change of the default route
// is told all the same.
func TestWatchRestless(t *testing.T) {
	isolate(t)
	lan(t)
	n := toldOf(t, 8*time.Second, "i=0; while [ $i -lt 35 ]; do ip addr add 198.51.100.$i/32 dev lan0; i=$((i+1)); sleep 0.2; done")
	if n < 2 {
		t.Errorf("in 7 s of changes every 200 ms: told %d times", n)
	}
}
