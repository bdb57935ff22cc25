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

// TestFirstWindows: windows follow shares and round trips where those change by much, are
// set once each, again after a failure, and go with the path.
func TestFirstWindows(t *testing.T) {
	shares, bursts := map[string]int64{}, map[string]int{}
	var set []string
	fail := false
	w := newFirstWindows(func(site string) int64 { return shares[site] }, func(site string, bytes int) { bursts[site] = bytes }, slog.New(slog.DiscardHandler))
	w.set = func(addrs []netip.Addr, n int) error {
		set = append(set, fmt.Sprint(addrs[0], " ", n))
		if fail {
			return errors.New("no")
		}
		return nil
	}
	const ms = time.Millisecond
	b1, b2, c1 := other("b1", "beta", 1).Node, other("b2", "beta", 3).Node, other("c1", "gamma", 2).Node
	one, two := b1.Addrs()[0].String(), b2.Addrs()[0].String()
	path := func(n peer.Node, rtt time.Duration) func() { return func() { w.path(n, rtt) } }
	share := func(bits int64) func() { return func() { shares["beta"] = bits } }
	for _, step := range []struct {
		name  string
		do    func()
		set   []string
		burst int // of beta, afterwards
	}{
		{"two paths, nothing is paced", func() { w.path(b1, 20*ms); w.path(c1, 20*ms) }, nil, 0},
		{"a share", share(25 * mbit), []string{one + " 75"}, 187_500},
		{"the same", func() {}, nil, 187_500},
		{"hardly more", share(30 * mbit), nil, 187_500},
		{"a longer way", path(b1, 40*ms), []string{one + " 151"}, 375_000},
		{"more, and it fails", func() { shares["beta"], fail = 50*mbit, true }, []string{one + " 253"}, 625_000},
		{"once more", func() { fail = false }, []string{one + " 253"}, 625_000},
		{"a nearer one", path(b2, 10*ms), []string{two + " 101"}, 625_000},
		{"the farther one goes", path(b1, 0), []string{one + " 0"}, 250_000},
		{"both are gone", path(b2, 0), []string{two + " 0"}, 0},
		{"one is back", path(b1, 20*ms), []string{one + " 151"}, 375_000},
		{"no limit any more", share(0), []string{one + " 0"}, 0},
		{"gone and back at once", func() { w.path(b1, 0); w.path(b1, 20*ms); shares["beta"] = 50 * mbit }, []string{one + " 151"}, 375_000},
	} {
		set = nil
		step.do()
		w.update()
		if !slices.Equal(set, step.set) || bursts["beta"] != step.burst {
			t.Errorf("%s: set %q, and %d bytes may wait unmarked; want %q, %d", step.name, set, bursts["beta"], step.set, step.burst)
		}
	}
	w.path(b1, 0)
	w.path(c1, 0)
	w.update()
	if len(w.peers) != 0 {
		t.Errorf("%d peers are kept without a path", len(w.peers))
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
	w := d.pacing.first
	w.path(b1.Node, 20*time.Millisecond)
	w.path(a2.Node, 20*time.Millisecond)
	now := func(change func()) {
		change()
		select {
		case <-w.stir:
			w.update()
		default:
		}
	}
	now(func() { d.limits.take(said(1, 50*mbit, 0, 0)) })
	now(func() { d.pacing.sharesChanged("beta", lentRate{bits: 50 * mbit}) })
	now(func() { d.limits.take(said(2, 100*mbit, 0, 0)) })
	now(func() { d.dir.Apply(false, []peer.Record{other("a3", "alpha", 3)}); d.pacing.membersChanged() })
	now(func() { must(0, d.pacing.setRate("beta", 10*mbit))(t) })
	now(func() { must(0, d.pacing.setRate("beta", 0))(t) })
	now(func() { d.limits.take(said(3, 0, 0, 0)) })
	now(func() { must(0, d.pacing.setRate("beta", 20*mbit))(t) })
	if want := []int{75, 151, 100, 30, 100, 0, 60}; !slices.Equal(got, want) {
		t.Errorf("windows %v, want %v", got, want)
	}
}
