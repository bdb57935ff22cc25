package node

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/netip"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/meshmpi/meshmpi/internal/eventually"
	"github.com/meshmpi/meshmpi/mesh/directory"
	"github.com/meshmpi/meshmpi/mesh/peer"
	"github.com/meshmpi/meshmpi/shaper/share"
	"github.com/meshmpi/meshmpi/tun"
	"golang.org/x/sync/errgroup"
)

const mbit = 1_000_000

// fixedLimits are limits of every link alike.
type fixedLimits struct{ up, down, link int64 }

func (l fixedLimits) of(string) (up, down int64)   { return l.up, l.down }
func (l fixedLimits) between(string, string) int64 { return l.link }
func (l fixedLimits) toMeasure(string) []string    { return nil }
func (l fixedLimits) measures(_, _ string) bool    { return false }

// shareNode is a node whose pacer is played by the test: it has a backlog or not.
type shareNode struct {
	*liveShares
	mu       sync.Mutex // guards what follows
	sending  bool
	spare    int   // bytes that it gives away
	soon     bool  // it will have some soon, if it gives none
	taken    []int // bytes that it was given
	looks    int   // that have found it sending
	received map[peer.ID]int64
	rates    map[string]int64
	passed   map[peer.ID]peer.Traffic
	measured map[string]int64
	saved    map[string]int64
}

func (n *shareNode) measure() measureConfig {
	note := func(where *map[string]int64) func(map[string]int64) {
		return func(rates map[string]int64) {
			n.mu.Lock()
			*where = rates
			n.mu.Unlock()
			n.changed()
		}
	}
	return measureConfig{traffic: n.traffic, found: note(&n.measured), save: note(&n.saved)}
}

func (n *shareNode) traffic(yield func(peer.Traffic)) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, t := range n.passed {
		yield(t)
	}
}

func (n *shareNode) give(_ string, bytes int, _ time.Duration) (given int, soon bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	bytes = min(bytes, n.spare)
	n.spare -= bytes
	return bytes, bytes == 0 && n.soon
}

func (n *shareNode) given(_ string, bytes int, until time.Time) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if time.Until(until) <= share.GiftLife {
		n.taken = append(n.taken, bytes)
	}
	return true
}

func (n *shareNode) demand(string) linkDemand {
	n.mu.Lock()
	defer n.mu.Unlock()
	if !n.sending {
		return linkDemand{}
	}
	n.looks++
	return linkDemand{waiting: 1 << 16, last: time.Now()}
}

func (n *shareNode) arrived(yield func(peer.ID, int64)) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for id, b := range n.received {
		yield(id, b)
	}
}

func (n *shareNode) send(site string, on bool) {
	n.mu.Lock()
	n.sending = on
	n.mu.Unlock()
	n.active(site)
}

func (n *shareNode) rate(site string) int64 {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.rates[site]
}

// shareTown runs live shares on loopback addresses, node i of the named site.
func shareTown(t *testing.T, limits shareLimits, siteOf ...string) []*shareNode {
	t.Helper()
	dir := &directory.Directory{}
	var recs []peer.Record
	var conns []net.PacketConn
	port := uint16(0)
	for i, site := range siteOf {
		addr := netip.AddrFrom4([4]byte{127, 0, 3, byte(i + 1)})
		c := must(net.ListenUDP("udp4", net.UDPAddrFromAddrPort(netip.AddrPortFrom(addr, port))))(t)
		port = c.LocalAddr().(*net.UDPAddr).AddrPort().Port()
		conns = append(conns, c)
		recs = append(recs, peer.Record{Up: true, Node: peer.Node{ID: peer.ID{byte(i + 1)}, Name: fmt.Sprint("n", i), Site: site, Addr4: addr}})
	}
	dir.Apply(true, recs)
	ctx, cancel := context.WithCancel(t.Context())
	var group errgroup.Group
	var nodes []*shareNode
	for i, r := range recs {
		n := &shareNode{rates: map[string]int64{}, received: map[peer.ID]int64{}, passed: map[peer.ID]peer.Traffic{}}
		n.liveShares = newLiveShares(shareConfig{
			self: r.Node, conn: conns[i], port: port, limits: limits, dir: dir,
			demand: n.demand, give: n.give, given: n.given, received: n.arrived, measure: n.measure(), log: slog.New(slog.DiscardHandler),
			onRate: func(site string, r lentRate) {
				n.mu.Lock()
				defer n.mu.Unlock()
				n.rates[site] = r.bits
			},
		})
		nodes = append(nodes, n)
		group.Go(func() error { return n.run(ctx) })
	}
	t.Cleanup(func() {
		cancel()
		if err := group.Wait(); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
	return nodes
}

// TestLiveShares: four nodes over real sockets lend to the one that sends, share
// when another begins, and return to the safe share.
func TestLiveShares(t *testing.T) {
	const b = 100 * mbit
	town := shareTown(t, fixedLimits{link: b}, "here", "here", "here", "here", "there")
	for i, n := range town[:4] {
		eventually.Holds(t, fmt.Sprintf("node %d has its safe share", i), func() bool { return n.rate("there") == share.Safe(b, 4) })
	}
	town[0].send("there", true)
	eventually.Holds(t, "a lone sender has the link", func() bool { return town[0].rate("there") >= b*95/100 })
	eventually.Holds(t, "another knows that it does not rest", func() bool {
		book := &town[1].gifts
		book.mu.Lock()
		defer book.mu.Unlock()
		return !book.asking(giver{town[0].cfg.self.ID, share.PoolName("there")}).heard.IsZero()
	})
	town[1].send("there", true)
	eventually.Holds(t, "two senders have half each", func() bool {
		x, y := town[0].rate("there"), town[1].rate("there")
		return x > b*45/100 && y > b*45/100 && x+y <= b
	})
	x, err := town[0].explain(t.Context())
	if err != nil || len(x.links) != 1 || x.links[0].To != "there" || x.links[0].Senders < 1 || x.notices.Sent == 0 {
		t.Errorf("explained as %+v, %v", x, err)
	}
	town[0].send("there", false)
	eventually.Holds(t, "the other has the link", func() bool { return town[1].rate("there") >= b*95/100 })
	town[1].send("there", false)
	eventually.Holds(t, "all are back", func() bool {
		return town[0].rate("there") == share.Safe(b, 4) && town[1].rate("there") == share.Safe(b, 4)
	})
	dir := town[0].cfg.dir.(*directory.Directory)
	gone, _ := dir.ByID(peer.ID{4})
	gone.Up = false
	dir.Apply(false, []peer.Record{gone})
	town[0].changed()
	eventually.Holds(t, "three share what four did", func() bool { return town[0].rate("there") == share.Safe(b, 3) })
}

// TestAlone: a node that shares with nobody does not look at its links, but does so as
// soon as there is another, without a link that wakes.
func TestAlone(t *testing.T) {
	const b = 100 * mbit
	town := shareTown(t, fixedLimits{link: b}, "here", "here", "there")
	dir := town[0].cfg.dir.(*directory.Directory)
	other, _ := dir.ByID(peer.ID{2})
	other.Up = false
	dir.Apply(false, []peer.Record{other})
	town[0].changed()
	eventually.Holds(t, "it has it all", func() bool { return town[0].rate("there") == b })
	if _, err := town[0].explain(t.Context()); err != nil { // after that its looks are over
		t.Fatal(err)
	}
	looks := func() int {
		town[0].mu.Lock()
		defer town[0].mu.Unlock()
		return town[0].looks
	}
	town[0].send("there", true)
	for range 3 { // each is a turn
		if _, err := town[0].explain(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if n := looks(); n > 0 {
		t.Errorf("it has looked %d times", n)
	}
	other.Up = true
	dir.Apply(false, []peer.Record{other})
	town[0].changed()
	eventually.Holds(t, "it looks, and borrows from the other", func() bool { return looks() > 0 && town[0].rate("there") >= b*95/100 })
	other.Up = false
	dir.Apply(false, []peer.Record{other})
	town[0].changed()
	eventually.Holds(t, "it has it all again", func() bool { return town[0].rate("there") == b })
	was := looks()
	time.Sleep(20 * time.Millisecond) // three looks, were there any
	if n := looks(); n > was {
		t.Errorf("alone again, it has looked %d times", n-was)
	}
}

// TestIncast: a site that is sent too much by two others lowers both.
func TestIncast(t *testing.T) {
	const b = 100 * mbit
	town := shareTown(t, fixedLimits{link: b, down: b}, "a", "b", "c")
	for _, n := range town[:2] {
		n.send("c", true)
	}
	stop := make(chan struct{})
	var group errgroup.Group
	group.Go(func() error { // the network: what is sent arrives
		last := time.Now()
		for tick := time.NewTicker(time.Millisecond); ; {
			select {
			case <-stop:
				tick.Stop()
				return nil
			case now := <-tick.C:
				for i, n := range town[:2] {
					bytes := float64(n.rate("c")) / 8 * now.Sub(last).Seconds()
					town[2].mu.Lock()
					town[2].received[peer.ID{byte(i + 1)}] += int64(bytes)
					town[2].mu.Unlock()
				}
				last = now
			}
		}
	})
	defer func() { close(stop); _ = group.Wait() }()
	eventually.Holds(t, "both senders are lowered to half", func() bool {
		x, y := town[0].rate("c"), town[1].rate("c")
		return x > b*4/10 && x < b*6/10 && y > b*4/10 && y < b*6/10
	})
}

// TestSharesStrangers: what comes from elsewhere is not looked at.
func TestSharesStrangers(t *testing.T) {
	town := shareTown(t, fixedLimits{link: mbit}, "here", "here")
	c := must(net.Dial("udp4", town[0].cfg.conn.LocalAddr().String()))(t)
	defer c.Close()
	_, _ = c.Write([]byte("hello"))
	eventually.Holds(t, "a datagram from nowhere is counted", func() bool { return town[0].strangers.Load() == 1 })
}

// TestListenShares: the kernel's socket or the stack's; a taken port is named.
func TestListenShares(t *testing.T) {
	addr := netip.MustParseAddr("127.0.4.1")
	d := &daemon{id: &identity{self: peer.Node{Addr4: addr}}}
	c := must(d.listenShares())(t)
	_, err := d.listenShares()
	wantLine(t, err, "live shares", "7724", "in use")
	c.Close()
	d.id.self.Addr4 = netip.MustParseAddr("100.80.0.1")
	d.stack = must(tun.NewStack([]netip.Addr{d.id.self.Addr4}, 0))(t)
	defer d.stack.Close()
	n := &shareNode{rates: map[string]int64{}}
	n.liveShares = newLiveShares(shareConfig{
		self: peer.Node{ID: peer.ID{1}, Site: "here"}, conn: must(d.listenShares())(t), port: SharesPort,
		limits: fixedLimits{link: mbit}, dir: &directory.Directory{}, demand: n.demand,
		onRate: func(string, lentRate) {}, log: slog.New(slog.DiscardHandler),
	})
	ctx, cancel := context.WithCancel(t.Context())
	var group errgroup.Group
	group.Go(func() error { return n.run(ctx) })
	if _, err := n.explain(t.Context()); err != nil {
		t.Error(err)
	}
	time.AfterFunc(10*time.Millisecond, cancel)
	if err := group.Wait(); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

func TestSenderSees(t *testing.T) {
	start := time.Unix(100, 0)
	at := func(ms int) time.Time { return start.Add(time.Duration(ms) * time.Millisecond) }
	var s sender
	for _, step := range []struct {
		ms   int
		d    linkDemand
		want int64
	}{
		{0, linkDemand{}, 0},
		{1, linkDemand{sent: 100, last: at(1)}, 1},                              // no sample yet
		{2, linkDemand{sent: 200, waiting: 9000, last: at(2)}, 1},               // a backlog, for the moment
		{11, linkDemand{sent: 200, waiting: 9000, last: at(11)}, 181_817},       // that
		{12, linkDemand{sent: 10_000, waiting: 9000, last: at(12)}, unbounded},  // lasts
		{22, linkDemand{sent: 20_000, waiting: 9000, last: at(22)}, unbounded},  // as before
		{23, linkDemand{sent: 21_000, last: at(23)}, unbounded},                 // it has gone, for the moment
		{27, linkDemand{sent: 30_000, last: at(27)}, 20_000_000},                // a whole sample: 10,000 bytes in 5 ms, and a quarter more
		{28, linkDemand{sent: 31_000, waiting: 9000, last: at(28)}, 20_000_000}, // a burst
		{30, linkDemand{sent: 40_000, last: at(30)}, 20_000_000},                // is no demand
		{32, linkDemand{sent: 45_000, last: at(32)}, 30_000_000},                // until it counts
		{41, linkDemand{sent: 45_000, last: at(32)}, 1},                         // nothing in a sample, but no silence yet
		{43, linkDemand{sent: 45_000, last: at(32)}, 0},                         // silence
		{44, linkDemand{waiting: 9000, last: at(44), share: 10e6}, 10e6},        // its share takes 7 ms
		{46, linkDemand{waiting: 60_000, last: at(46), share: 10e6}, 10e6},      // more of it is what gifts are for
		{50, linkDemand{last: at(47)}, 1},
		{80, linkDemand{last: at(60)}, 0},
		{86, linkDemand{waiting: 9000, last: at(86), full: at(82)}, 1},              // a look that comes late
		{92, linkDemand{waiting: 9000, last: at(92), full: at(82)}, unbounded},      // and knows since when
		{93, linkDemand{waiting: 9000, last: at(93), full: at(82), most: 4e6}, 4e6}, // no more than is set
		{120, linkDemand{last: at(100)}, 0},
		{130, linkDemand{waiting: 9000, last: at(130), full: at(130), share: 25e6, ahead: 15_000}, 25e6},
		{187, linkDemand{waiting: 9000, last: at(187), full: at(130), share: 25e6, ahead: 15_000}, 25e6},      // where others can give something
		{188, linkDemand{waiting: 9000, last: at(188), full: at(130), share: 25e6, ahead: 15_000}, unbounded}, // a backlog has to last
		{380, linkDemand{last: at(340)}, 0},
		{390, linkDemand{waiting: 9000, last: at(390), full: at(390), share: 100e6, ahead: 15_000}, 100e6},
		{400, linkDemand{waiting: 9000, last: at(400), full: at(390), share: 100e6, ahead: 15_000}, unbounded}, // but not where that is little
		{620, linkDemand{last: at(570)}, 0},
		{630, linkDemand{waiting: 9000, last: at(630), full: at(630), share: 25e6, ahead: 15_000, contended: true}, 25e6},
		{640, linkDemand{waiting: 9000, last: at(640), full: at(630), share: 25e6, ahead: 15_000, contended: true}, unbounded}, // nor where others borrow
		{700, linkDemand{last: at(650)}, 0},
		{710, linkDemand{waiting: 9000, last: at(710), full: at(710), share: 25e6, ahead: 15_000, resting: true}, 25e6},
		{738, linkDemand{waiting: 9000, last: at(738), full: at(710), share: 25e6, ahead: 15_000, resting: true}, 25e6},
		{739, linkDemand{waiting: 9000, last: at(739), full: at(710), share: 25e6, ahead: 15_000, resting: true}, unbounded}, // half as long where somebody rests
		{900, linkDemand{last: at(800)}, 0},
		{910, linkDemand{waiting: 500, last: at(910), share: 25e6, rate: 1e6}, 1},        // what it does not lend may do
		{912, linkDemand{waiting: 500, last: at(912), share: 25e6, rate: 1e6}, 25e6 / 8}, // it does not
		{914, linkDemand{waiting: 500, last: at(914), share: 25e6, rate: 25e6}, 1},
		{916, linkDemand{waiting: 500, last: at(916), share: 25e6, rate: 1e6, ahead: 15_000}, 1},
		{918, linkDemand{waiting: 500, last: at(918), share: 25e6, rate: 1e6, ahead: 15_000}, 25e6 / 8}, // nor does that leave ahead
		{920, linkDemand{waiting: 500, last: at(920), share: 25e6, rate: 3e6, ahead: 15_000}, 6e6},
		{922, linkDemand{waiting: 500, last: at(922), share: 25e6, rate: 20e6, ahead: 15_000}, 25e6},
	} {
		if s.see(at(step.ms), step.d); s.want != step.want {
			t.Errorf("at %d ms it wants %d, want %d", step.ms, s.want, step.want)
		}
	}
}

// TestPatience: bursts for which nobody has anything to lend make a link wait longer the
// next time, up to a bound, and one for which somebody has less again. While it waits
// it wants no more than its share, although it sends all of that.
func TestPatience(t *testing.T) {
	const share = 24_000_000 // 3,000 bytes each ms
	now, sent := time.Unix(100, 0), int64(0)
	s := sender{}
	burst := func(length int, rate int64) (waited int) { // in ms, rate from the moment it is wanted
		waited = -1
		for ms := range length + 20 {
			now = now.Add(time.Millisecond)
			d := linkDemand{sent: sent, last: now, waiting: 9000, share: share, rate: share}
			if waited >= 0 && rate > 0 {
				d.rate += 1
			}
			if ms >= length {
				d.waiting, d.last = 0, now.Add(time.Duration(length-1-ms)*time.Millisecond)
			}
			switch s.see(now, d); {
			case s.want == unbounded && waited < 0:
				waited = ms
			case waited < 0 && s.want > share:
				t.Fatalf("it wants %d after %d ms", s.want, ms)
			}
			if ms < length {
				if sent += 3000; waited >= 0 {
					sent += rate
				}
			}
		}
		return waited
	}
	for i, step := range []struct {
		length int
		more   int64 // bytes each ms, borrowed
		waits  int   // -1: as long as it lasts
	}{{30, 0, 10}, {30, 0, 20}, {30, 0, -1}, {50, 0, 40}, {60, 9000, 40}, {15, 1000, 10}, {25, 1000, 10}, {60, 9000, 10}} {
		if got := burst(step.length, step.more); got != step.waits {
			t.Errorf("burst %d: it wants more after %d ms, want %d", i, got, step.waits)
		}
	}
}

func TestInflow(t *testing.T) {
	f := newInflow()
	bytes := map[peer.ID]int64{{1}: 1000, {2}: 5}
	sample := func(at time.Duration) map[peer.ID]share.Arrival {
		got := map[peer.ID]share.Arrival{}
		for _, a := range f.sample(time.Unix(5, 0).Add(at), func(yield func(peer.ID, int64)) {
			for id, b := range maps.All(bytes) {
				yield(id, b)
			}
		}, func(id peer.ID) string { return map[peer.ID]string{{1}: "a", {3}: "b"}[id] }) {
			got[a.From] = a
		}
		return got
	}
	if got := sample(0); len(got) != 0 {
		t.Errorf("the first sample says %v", got)
	}
	bytes[peer.ID{1}], bytes[peer.ID{2}], bytes[peer.ID{3}] = 2000, 500, 9999
	got := sample(10 * time.Millisecond)
	if want := (share.Arrival{From: peer.ID{1}, Site: "a", Rate: 800_000}); len(got) != 1 || got[peer.ID{1}] != want {
		t.Errorf("got %v, want %v alone: the others are of this site or new", got, want)
	}
}

// TestSharesWithoutHub: four nodes of a site start while no hub answers, as after a power
// cut: their directories come from the disk, where nobody is up. None takes the whole link.
func TestSharesWithoutHub(t *testing.T) {
	const b = 100 * mbit
	town := shareTown(t, fixedLimits{link: b}, "here", "here", "here", "here", "there")
	town[0].cfg.dir.(*directory.Directory).Down()
	for _, n := range town[:4] {
		if _, err := n.explain(t.Context()); err != nil { // it runs, and has read what is written now
			t.Fatal(err)
		}
		n.cfg.informed = func() bool { return false }
		n.changed()
	}
	for i, n := range town[:4] {
		eventually.Holds(t, fmt.Sprint("node ", i, " has its share"), func() bool {
			r, _ := stake{whole: b, nodes: 4, live: n.rate("there")}.rate() // nodes: as sharers says without a hub
			return r == share.Safe(b, 4)
		})
	}
}

// TestMatters: what wavers is not told; what changes what others may have or give is.
func TestMatters(t *testing.T) {
	for _, tt := range []struct {
		was, is, share int64
		want           bool
	}{
		{0, 0, 25e6, false}, {0, 1, 25e6, true}, {1, 0, 25e6, true}, {20e6, 21e6, 25e6, false}, {20e6, 22e6, 25e6, true}, {24e6, 26e6, 25e6, true},
		{50e6, 55e6, 25e6, false}, {50e6, 60e6, 25e6, true}, {unbounded, unbounded, 25e6, false}, {unbounded, 50e6, 25e6, true}, {50e6, 51e6, 0, false}, {50e6, 60e6, 0, true},
	} {
		if got := matters(tt.was, tt.is, tt.share); got != tt.want {
			t.Errorf("from %d to %d at a share of %d: %v", tt.was, tt.is, tt.share, got)
		}
	}
}

// TestGlance: who sends wakes the live shares when there is something to tell, and else
// does not.
func TestGlance(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var d linkDemand
		s := newLiveShares(shareConfig{conn: deafConn{}, demand: func(string) linkDemand { return d }})
		s.watch(maps.Keys(map[string]bool{"there": true}))
		glance := func(after time.Duration, waiting int64) bool {
			time.Sleep(after)
			d = linkDemand{waiting: waiting, last: time.Now(), sent: d.sent + 2500*after.Milliseconds(), share: 25 * mbit}
			s.poked.Store(false)
			s.glance()
			told := s.poked.Load()
			s.tellDemand()
			return told
		}
		for i, step := range []struct {
			after   time.Duration
			waiting int64
			told    bool
		}{
			{2 * time.Millisecond, 0, true},        // it sends
			{time.Millisecond, 1 << 20, false},     // too soon
			{2 * time.Millisecond, 1 << 20, true},  // its share from now on
			{10 * time.Millisecond, 1 << 20, true}, // it could send more than its share
			{2 * time.Millisecond, 1 << 20, false},
			{20 * time.Millisecond, 1 << 20, false},
			{20 * time.Millisecond, 0, true}, // it could not
		} {
			if got := glance(step.after, step.waiting); got != step.told {
				t.Errorf("step %d: told %v", i, got)
			}
		}
	})
}

// deafConn is a socket of which only the deadline is of use.
type deafConn struct{ net.PacketConn }

func (deafConn) SetReadDeadline(time.Time) error { return nil }
