package node

import (
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/meshmpi/meshmpi/mesh/peer"
)

// TestWindows: more than a share's round trip, no less than the kernel's own, bounded.
func TestWindows(t *testing.T) {
	const ms = time.Millisecond
	for _, tc := range []struct {
		rate            int64
		rtt             time.Duration
		segments, burst int
	}{
		{0, 20 * ms, 0, 0},
		{25 * mbit, 0, 0, 0},
		{25 * mbit, 20 * ms, 75, 187_500},
		{25 * mbit, ms, 27, 68_750},
		{5 * mbit, ms, 0, 0}, // ten: as ever
		{100 * mbit, 100 * ms, 1114, 2_750_000},
		{10_000 * mbit, 300 * ms, 1700, 4 << 20},
	} {
		if got, burst := windows(tc.rate, tc.rtt); got != tc.segments || burst != tc.burst {
			t.Errorf("%d bits per second, %v: %d segments, %d bytes; want %d, %d", tc.rate, tc.rtt, got, burst, tc.segments, tc.burst)
		}
	}
}

// TestFirstWindows: windows follow shares and round trips, are set once each, and go
// with the path.
func TestFirstWindows(t *testing.T) {
	shares, fail := map[string]int64{}, false
	var set []string
	bursts := map[string]int{}
	w := &firstWindows{burst: func(site string, bytes int) { bursts[site] = bytes }, share: func(site string) int64 { return shares[site] }, log: slog.New(slog.DiscardHandler), peers: map[peer.ID]*firstWindow{},
		set: func(addrs []netip.Addr, n int) error {
			set = append(set, fmt.Sprint(addrs[0], " ", n))
			if fail {
				return errors.New("no")
			}
			return nil
		}}
	b1, b2, c1 := other("b1", "beta", 1).Node, other("b2", "beta", 3).Node, other("c1", "gamma", 2).Node
	w.path(b1, 20*time.Millisecond)
	w.path(c1, 20*time.Millisecond)
	shares["beta"] = 25 * mbit
	w.changed()
	w.changed()
	w.path(b1, 40*time.Millisecond)
	shares["beta"] = 50 * mbit
	fail = true
	w.changed()
	w.changed() // not again
	fail = false
	if bursts["beta"] != 625_000 {
		t.Errorf("of each peer %d bytes may wait unmarked, want 625000", bursts["beta"])
	}
	w.path(b2, 10*time.Millisecond)
	w.path(b1, 0)
	if bursts["beta"] != 250_000 {
		t.Errorf("without the farther peer %d bytes may wait unmarked, want 250000", bursts["beta"])
	}
	w.path(b2, 0)
	w.changed()
	w.path(b1, 20*time.Millisecond)
	shares["beta"] = 0
	w.changed()
	a, b := b1.Addrs()[0].String(), b2.Addrs()[0].String()
	if want := []string{a + " 75", a + " 126", a + " 253", b + " 101", a + " 0", b + " 0", a + " 151", a + " 0"}; !slices.Equal(set, want) {
		t.Errorf("set %q, want %q", set, want)
	}
}

// TestShare: TCP may begin with an equal share of the link to another site, while
// something is declared of it, whoever sends.
func TestShare(t *testing.T) {
	b1, a2 := other("b1", "beta", 6), other("a2", "alpha", 2)
	d := pacer(t, PaceStatic, a2, b1)
	var got []int
	d.pacing.first.set = func(_ []netip.Addr, n int) error {
		got = append(got, n)
		return nil
	}
	d.pacing.first.path(b1.Node, 20*time.Millisecond)
	d.pacing.first.path(a2.Node, 20*time.Millisecond)
	d.limits.take(said(1, 50*mbit, 0, 0))
	d.pacing.lent("beta", lentRate{bits: 50 * mbit})
	d.limits.take(said(2, 100*mbit, 0, 0))
	d.dir.Apply(false, []peer.Record{other("a3", "alpha", 3)})
	d.pacing.membersChanged()
	d.limits.take(said(3, 0, 0, 0))
	if want := []int{75, 151, 101, 0}; !slices.Equal(got, want) {
		t.Errorf("windows %v, want %v", got, want)
	}
}
