package node

import (
	"fmt"
	"log/slog"
	"net"
	"slices"
	"sync"
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

// TestOffers: over real sockets, who has asked in vain a node that sends or lends hears from
// it when that ends, and one that has nothing left for the moment says so at once.
func TestOffers(t *testing.T) {
	town := shareTown(t, fixedLimits{link: 100 * mbit}, "here", "here", "there")
	asker, other := town[0], town[1]
	by := giver{other.cfg.self.ID, share.PoolName("there")}
	set := func(spare int, soon bool) {
		other.mu.Lock()
		other.spare, other.soon = spare, soon
		other.mu.Unlock()
	}
	next := func() time.Duration { // from now until it is asked
		asker.gifts.mu.Lock()
		defer asker.gifts.mu.Unlock()
		return time.Until(asker.gifts.asking(by).next)
	}
	ask := func() {
		t.Helper()
		eventually.Holds(t, "the other is known, and asked", func() bool { return asker.ask(time.Now(), "there", 8000, 100*mbit) })
	}
	owed := func() bool {
		other.gifts.mu.Lock()
		defer other.gifts.mu.Unlock()
		return other.gifts.asking(giver{asker.cfg.self.ID, by.pool}).owed
	}
	set(0, false)
	ask()
	eventually.Holds(t, "a node that sends owes an offer", owed)
	asker.gifts.mu.Lock()
	asker.gifts.asking(by).next = time.Now().Add(time.Hour) // the silence is no time that a test could tell from its own lateness
	asker.gifts.mu.Unlock()
	other.offer()
	eventually.Holds(t, "the offer has come", func() bool { return next() <= share.AskOffered })
	if owed() {
		t.Error("after an offer another one is owed")
	}
	set(0, true)
	ask()
	eventually.Holds(t, "who has nothing for the moment offers at once", func() bool { return next() <= share.AskOffered && !owed() })
	other.offer() // to nobody
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
			g := share.Gift{Does: share.Gives, Pool: share.PoolName(site), Bytes: bytes, Asked: asked}
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

// TestOfferPause: at once where shares are large, else when the share has brought a packet, and
// no later than without an offer.
func TestOfferPause(t *testing.T) {
	for _, tt := range []struct {
		whole  int64
		others int
		want   time.Duration
	}{{100 * mbit, 3, share.AskOffered}, {20 * mbit, 3, 2467200}, {100 * mbit, 63, 7895040}, {mbit / 10, 3, share.AskSilent}, {0, 0, share.AskSilent}} {
		if got := offerPause(tt.whole, tt.others); got != tt.want {
			t.Errorf("at %d b/s with %d others %v, want %v", tt.whole, tt.others, got, tt.want)
		}
	}
}

// TestAsking: who does not answer is asked seldom, each other node by itself; who gives, or
// makes an offer, is asked soon again.
func TestAsking(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newLiveShares(shareConfig{
			dir: &directory.Directory{}, log: slog.New(slog.DiscardHandler),
			given: func(string, int, time.Time) bool { return true },
		})
		s.sites = []string{"there"}
		s.mates.Store(&[]peer.ID{{1}, {2}, {3}})
		asks := map[peer.ID][]int64{} // ms
		began := time.Now()
		for d := range int64(100) {
			before := map[peer.ID]time.Time{}
			for by, a := range s.gifts.askings {
				before[by.id] = a.next
			}
			asked := s.ask(time.Now(), "there", 9000, 100*mbit)
			for by, a := range s.gifts.askings {
				if a.next != before[by.id] {
					asks[by.id] = append(asks[by.id], time.Since(began).Milliseconds())
					asked = false
				}
			}
			if asked {
				t.Errorf("after %d ms it says that it has asked, and has not", d)
			}
			last := s.gifts.requests[len(s.gifts.requests)-1].at
			notices := map[int64]share.Gift{
				0:  {Does: share.Gives, Bytes: 100, Asked: last},
				2:  {Does: share.Gives, Bytes: 100, Asked: last},
				15: {Does: share.Offers},
			}
			if g, ok := notices[d]; ok {
				g.Pool = share.PoolName("there")
				if err := s.takeGift(peer.ID{2}, g.Append(nil)); err != nil {
					t.Error(err)
				}
			}
			time.Sleep(time.Millisecond)
		}
		for id, want := range map[peer.ID][]int64{{1}: {0, 32, 64, 96}, {2}: {0, 2, 4, 16, 48, 80}, {3}: {0, 32, 64, 96}} {
			if got := asks[id]; !slices.Equal(got, want) {
				t.Errorf("node %d is asked after %d ms, want %d", id[0], got, want)
			}
		}
	})
}

// TestResting: where one of the site's nodes has not asked for gifts for long, nor wanted to
// borrow, a link with a backlog knows; each site's pool by itself.
func TestResting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := linkDemand{waiting: 9000, share: 25 * mbit, ahead: 15_000}
		s := newLiveShares(shareConfig{
			dir: &directory.Directory{}, log: slog.New(slog.DiscardHandler),
			demand: func(string) linkDemand { return d },
			give:   func(string, int, time.Duration) (int, bool) { return 0, false },
		})
		s.sites = []string{"there", "elsewhere"}
		want := func(when, site string, rests bool) {
			t.Helper()
			if got := s.demand(time.Now(), site).resting; got != rests {
				t.Errorf("%s, to %s: another rests: %v", when, site, got)
			}
		}
		want("before anybody is known", "there", false)
		s.mates.Store(&[]peer.ID{{1}, {2}})
		want("at first", "there", true)
		for id := range byte(2) {
			if err := s.takeGift(peer.ID{id + 1}, share.Gift{Does: share.Asks, Pool: share.PoolName("there"), Bytes: 3000}.Append(nil)); err != nil {
				t.Fatal(err)
			}
		}
		want("when all have asked", "there", false)
		want("when all have asked", "elsewhere", true)
		time.Sleep(d.restsAfter() - time.Millisecond)
		want("shortly before they rest", "there", false)
		s.gifts.wants(giver{peer.ID{1}, share.PoolName("there")}, time.Now())
		time.Sleep(time.Millisecond)
		want("when one wants to borrow and one rests", "there", true)
		s.gifts.wants(giver{peer.ID{2}, share.PoolName("there")}, time.Now())
		want("when both want to", "there", false)
		time.Sleep(time.Second)
		d.waiting = 0
		want("when nothing waits", "there", false)
	})
}

// mailbox notes notices that are sent.
type mailbox struct {
	net.PacketConn
	mu   sync.Mutex
	sent []share.Gift
}

func (m *mailbox) WriteTo(data []byte, _ net.Addr) (int, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if g, err := share.ParseGift(data); err == nil {
		m.sent = append(m.sent, g)
	}
	return len(data), nil
}

func (m *mailbox) offers() (n int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, g := range m.sent {
		if g.Does == share.Offers {
			n++
		}
	}
	return n
}

// TestOffersOfPacer: who is asked while it sends makes one offer when it has sent all, and
// who is asked while it lends makes one when that ends.
func TestOffersOfPacer(t *testing.T) {
	b1 := other("b1", "beta", 9)
	mate := other("a2", "alpha", 2)
	d := pacer(t, PaceStatic, mate, other("a3", "alpha", 3), b1)
	p := d.pacing
	p.mode = PaceLive
	box := &mailbox{}
	d.shares = newLiveShares(shareConfig{self: d.id.self, conn: box, port: SharesPort, dir: d.dir, log: d.log, give: p.give, given: p.given})
	d.shares.sites = []string{"beta"}
	f := p.Flow(b1.Node, func([][]byte) {})
	defer f.Close()
	d.limits.take(said(1, 15*mbit, 0, 0))
	ask := func() {
		t.Helper()
		g := share.Gift{Pool: share.PoolName("beta"), Bytes: 4000, Asked: time.Second}
		if err := d.shares.takeGift(mate.Node.ID, g.Append(nil)); err != nil {
			t.Fatal(err)
		}
	}
	pkt := make([]byte, 1452)
	pkt[0] = 4 // data, of WireGuard
	for range 200 {
		f.Send([][]byte{pkt})
	}
	if ask(); box.offers() > 0 {
		t.Error("it makes an offer while it sends")
	}
	eventually.Holds(t, "it makes an offer when it has sent all", func() bool { return box.offers() == 1 })
	p.sharesChanged("beta", lentRate{bits: 1 * mbit, lent: 4 * mbit})
	if ask(); box.offers() > 1 {
		t.Error("it makes an offer while it lends")
	}
	if p.sharesChanged("beta", lentRate{bits: 5 * mbit}); box.offers() != 2 {
		t.Errorf("it has made %d offers when it lends no longer, want 2", box.offers())
	}
}
