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
		return slices.Clone(town[0].taken)
	}
	eventually.Holds(t, "two others give", func() bool { // one may be late
		spare(9000)
		town[0].ask(time.Now(), "there", 8000, 100*mbit)
		time.Sleep(share.GiftLife)
		return len(got()) >= 4
	})
	for _, bytes := range got() {
		if bytes != 4000 {
			t.Errorf("4000 bytes were asked for, and %d given", bytes)
		}
	}
	town[0].ask(time.Now(), "elsewhere", 8000, 100*mbit) // a site that nobody knows
	for i, n := range town[1:3] {
		n.mu.Lock()
		if len(n.taken) > 0 {
			t.Errorf("node %d has not asked and was given %d", i+1, n.taken)
		}
		n.mu.Unlock()
	}
}

// TestBarren: of who is hungry, or lends to this node, is known that there is little to be
// had, until that ends.
func TestBarren(t *testing.T) {
	town := shareTown(t, fixedLimits{link: 100 * mbit}, "here", "here", "there")
	sends := func(i int, sending bool) {
		town[i].mu.Lock()
		town[i].sending = sending
		town[i].mu.Unlock()
		town[i].active("there")
	}
	known := func(i int) bool {
		b := &town[i].gifts
		b.mu.Lock()
		defer b.mu.Unlock()
		a := b.asking(giver{town[1-i].cfg.self.ID, share.PoolName("there")})
		return !a.barren.IsZero() && !a.barren.Equal(town[i].began)
	}
	for range 2 { // the first makes them known
		known(0)
		known(1)
		sends(0, true)
		eventually.Holds(t, "it is known that node 0 is hungry and node 1 lends to it", func() bool { return known(0) && known(1) })
		sends(0, false)
		eventually.Holds(t, "it is known that neither is so", func() bool { return !known(0) && !known(1) })
	}
}

// TestGiftsTakenIn: of what others say that they give only what answers a request of just
// now counts, once from each.
func TestGiftsTakenIn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var got []string
		s := newLiveShares(shareConfig{
			dir: &directory.Directory{}, log: slog.New(slog.DiscardHandler),
			given: func(site string, bytes int, until time.Time) bool {
				got = append(got, fmt.Sprint(site, " ", bytes, " ", time.Until(until)))
				return true
			},
		})
		s.sites = []string{"there"}
		s.mates.Store(&[]peer.ID{{1}, {2}, {3}})
		gift := func(from byte, site string, bytes int, asked time.Duration) {
			g := share.Gift{Gives: true, Pool: share.PoolName(site), Bytes: bytes, Asked: asked}
			if err := s.takeGift(peer.ID{from}, g.Append(nil)); err != nil {
				t.Error(err)
			}
		}
		time.Sleep(time.Second)
		first := s.now()
		s.ask(time.Now(), "there", 1000, 100*mbit)
		time.Sleep(time.Millisecond)
		gift(1, "there", 100, first)
		gift(1, "there", 101, first)                  // for the same request
		gift(2, "there", 102, first+time.Microsecond) // for none
		gift(2, "elsewhere", 103, first)
		gift(4, "there", 104, first) // from who was not asked
		gift(2, "there", 105, first)
		time.Sleep(share.GiftLife)
		gift(3, "there", 106, first) // too late
		if want := []string{"there 100 3ms", "there 105 3ms"}; !slices.Equal(got, want) {
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
		short        int
		whole        int64
		others, want int
	}{{9000, 100 * mbit, 3, 3000}, {1 << 20, 100 * mbit, 3, 12_500}, {1 << 20, 8 * mbit, 3, 1542}, {50_000, 8 * mbit, 1, 3000}, {3000, 100 * mbit, 15, 1542}, {3000, 100 * mbit, 0, 3000}} {
		if got := askFor(tt.short, tt.whole, tt.others); got != tt.want {
			t.Errorf("of %d bytes at %d b/s each of %d others is asked for %d, want %d", tt.short, tt.whole, tt.others, got, tt.want)
		}
	}
}

// TestAsking: who has given nothing is asked more seldom, each other node by itself; what
// it gives, or a new backlog, has it asked soon again. And who is hungry itself is asked
// less than that.
func TestAsking(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newLiveShares(shareConfig{
			dir: &directory.Directory{}, log: slog.New(slog.DiscardHandler),
			given: func(string, int, time.Time) bool { return true },
		})
		s.sites = []string{"there"}
		s.mates.Store(&[]peer.ID{{1}, {2}, {3}})
		s.gifts.asking(giver{peer.ID{3}, share.PoolName("there")}).barren = time.Now().Add(36 * time.Millisecond)
		asks := map[peer.ID][]int64{} // ms
		began := time.Now()
		for d := range int64(100) {
			before := map[peer.ID]time.Time{}
			for by, a := range s.gifts.askings {
				before[by.id] = a.last
			}
			if d < 40 || d >= 80 {
				s.ask(time.Now(), "there", 9000, 100*mbit)
			}
			for by, a := range s.gifts.askings {
				if a.last != before[by.id] {
					asks[by.id] = append(asks[by.id], time.Since(began).Milliseconds())
				}
			}
			if d == 15 {
				g := share.Gift{Gives: true, Pool: share.PoolName("there"), Bytes: 100, Asked: s.gifts.requests[len(s.gifts.requests)-1].at}
				if err := s.takeGift(peer.ID{2}, g.Append(nil)); err != nil {
					t.Error(err)
				}
			}
			time.Sleep(time.Millisecond)
		}
		for id, want := range map[peer.ID][]int64{{1}: {0, 2, 6, 14, 22, 30, 38, 80, 82, 86, 94}, {2}: {0, 2, 6, 14, 16, 20, 28, 36, 80, 82, 86, 94}, {3}: {0, 32, 36, 80, 82, 86, 94}} {
			if got := asks[id]; !slices.Equal(got, want) {
				t.Errorf("node %d is asked after %d ms, want %d", id[0], got, want)
			}
		}
	})
}
