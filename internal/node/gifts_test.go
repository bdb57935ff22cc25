package node

import (
	"fmt"
	"log/slog"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/meshmpi/meshmpi/internal/eventually"
	"github.com/meshmpi/meshmpi/mesh/directory"
	"github.com/meshmpi/meshmpi/mesh/peer"
	"github.com/meshmpi/meshmpi/shaper/share"
)

// TestGifts: over real sockets a node asks the others of its site, who give what they have
// and no more than is asked for.
func TestGifts(t *testing.T) {
	town := shareTown(t, fixedLimits{link: 100 * mbit}, "here", "here", "here", "there")
	spare := func(bytes int) {
		for _, n := range town {
			n.mu.Lock()
			n.spare = bytes
			n.mu.Unlock()
		}
	}
	got := func() []int {
		town[0].mu.Lock()
		defer town[0].mu.Unlock()
		return slices.Clone(town[0].gifts)
	}
	eventually.Holds(t, "two others give", func() bool { // one may be late
		spare(9000)
		town[0].ask("there", 4000)
		time.Sleep(share.GiftLife)
		return len(got()) >= 4
	})
	for _, bytes := range got() {
		if bytes != 4000 {
			t.Errorf("4000 bytes were asked for, and %d given", bytes)
		}
	}
	town[0].ask("elsewhere", 4000) // a site that nobody knows
	for i, n := range town[1:3] {
		n.mu.Lock()
		if len(n.gifts) > 0 {
			t.Errorf("node %d has not asked and was given %d", i+1, n.gifts)
		}
		n.mu.Unlock()
	}
}

// TestGiftsTakenIn: of what others say that they give only what answers a request of just
// now counts, once from each.
func TestGiftsTakenIn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var got []string
		s := newLiveShares(shareConfig{
			dir: &directory.Directory{}, log: slog.New(slog.DiscardHandler),
			given: func(site string, bytes int, until time.Time) {
				got = append(got, fmt.Sprint(site, " ", bytes, " ", time.Until(until)))
			},
		})
		s.sites = []string{"there"}
		mates := []peer.ID{{9}}
		s.mates.Store(&mates)
		gift := func(from byte, site string, bytes int, asked time.Duration) {
			g := share.Gift{Gives: true, Pool: share.PoolName(site), Bytes: bytes, Asked: asked}
			if err := s.takeGift(peer.ID{from}, g.Append(nil)); err != nil {
				t.Error(err)
			}
		}
		time.Sleep(time.Second)
		first := s.now()
		s.ask("there", 1000)
		time.Sleep(time.Millisecond)
		gift(1, "there", 100, first)
		gift(1, "there", 101, first)                  // for the same request
		gift(2, "there", 102, first+time.Microsecond) // for none
		gift(2, "elsewhere", 103, first)
		gift(2, "there", 104, first)
		time.Sleep(share.GiftLife)
		gift(3, "there", 105, first) // too late
		if want := []string{"there 100 3ms", "there 104 3ms"}; !slices.Equal(got, want) {
			t.Errorf("it takes in %q, want %q", got, want)
		}
		if err := s.takeGift(peer.ID{1}, []byte{0x14, 0}); err == nil {
			t.Error("half a notice passes")
		}
	})
}

// TestAskFor: all that is asked for can be sent in time, and is what is short at most,
// but a packet.
func TestAskFor(t *testing.T) {
	for _, tt := range []struct {
		short       int
		whole       int64
		nodes, want int
	}{{9000, 100 * mbit, 4, 3000}, {1 << 20, 100 * mbit, 4, 12_500}, {1 << 20, 8 * mbit, 4, 1542}, {50_000, 8 * mbit, 2, 3000}, {3000, 100 * mbit, 16, 1542}, {3000, 100 * mbit, 1, 3000}} {
		if got := askFor(tt.short, tt.whole, tt.nodes); got != tt.want {
			t.Errorf("of %d bytes at %d b/s each of %d nodes is asked for %d, want %d", tt.short, tt.whole, tt.nodes, got, tt.want)
		}
	}
}

// TestAsking: who is given nothing asks more seldom, and a new backlog asks at once.
func TestAsking(t *testing.T) {
	var a asking
	now := time.Unix(100, 0)
	for i, want := range []time.Duration{1, 2, 4, 4} {
		if a.asked(now); a.every != want*time.Millisecond {
			t.Errorf("after %d requests it waits %v, want %v ms", i+1, a.every, want)
		}
		now = now.Add(a.every)
	}
	now = now.Add(time.Second)
	if a.asked(now); a.every != share.AskEvery {
		t.Errorf("after a pause it waits %v", a.every)
	}
}
