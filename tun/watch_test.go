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
