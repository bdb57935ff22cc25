package node

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/meshmpi/meshmpi/mesh/peer"
	"github.com/meshmpi/meshmpi/shaper"
	"github.com/meshmpi/meshmpi/shaper/hint"
	"github.com/meshmpi/meshmpi/shaper/share"
)

// pacing decides how fast this node may send to each other site and has the shaper
// keep to it. Rates come from what is declared of the sites' links, from what the
// nodes of this site tell each other, and from what programs ask for.
type pacing struct {
	d      *daemon
	mode   Pace
	shaper *shaper.Shaper
	kick   atomic.Pointer[func()] // has the TUN's reader look
	bell   *bell                  // has kick called
	late   *bell                  // has poll called
	first  *firstWindows          // of TCP's
	free   atomic.Bool            // others that have asked for gifts in vain may ask again

	mu     sync.Mutex // guards the rest
	links  map[string]*pacedLink
	uplink int64
	head   headroom
	live   map[string]lentRate // what the others leave to this node, by site; "": to all
	asked  hint.Request        // by programs, as it was taken into account last
	nodes  int                 // that share this site's links
	weight int                 // of this one, where links are divided among those that send
}

// pacedLink is the way to another site.
type pacedLink struct {
	*shaper.Link
	stake
	now    int64 // the rate that the link was given last
	head   headroom
	sought time.Time // when it was short last, and gifts were asked for
	why    string
}

// Pace says how a node shares the links of its site.
type Pace string

// The ways. Whatever the way, only declared limits are kept to, and what programs
// ask for.
const (
	PaceLive   Pace = "live"   // what idle nodes leave is lent to those that send
	PaceStatic Pace = "static" // each node has an equal share, used or not
	PaceOff    Pace = "off"    // nothing is paced
)

// startPacing starts the shaper; it paces nothing until there are limits.
func (d *daemon) startPacing() error {
	mode := d.cfg.Pace
	if mode == "" {
		mode = PaceLive
	}
	d.limits.changed = d.tellMaxRate
	if mode == PaceOff {
		return nil
	}
	p := &pacing{d: d, mode: mode, links: map[string]*pacedLink{}, live: map[string]lentRate{}}
	p.first = newFirstWindows(p.share, p.burst, d.log)
	var err error
	if p.bell, err = newBell(p.kickReader); err != nil {
		return err
	}
	d.onClose("the pacer's bell", p.bell) // after the pacer, which rings it
	if p.late, err = newBell(p.poll); err != nil {
		return err
	}
	d.onClose("the pacer's other bell", p.late)
	cfg := shaper.Config{Log: d.log, Kick: p.bell.ring, Poll: p.poll, PollLate: p.late.ring, Freed: p.freed, Active: p.active, Hold: d.mayHold()}
	if p.shaper, err = shaper.New(cfg); err != nil {
		return err
	}
	d.pacing = p
	d.limits.changed = func() { // one at a time, so that programs are left with the newest
		d.tellMaxRate()
		p.membersChanged()
	}
	d.onClose("the pacer", p.shaper)
	if mode != PaceLive {
		return nil
	}
	conn, err := d.listenShares()
	if err != nil {
		return err
	}
	d.shares = newLiveShares(shareConfig{
		self: d.id.self, conn: conn, port: SharesPort, limits: &d.limits, dir: d.dir, log: d.log,
		informed: func() bool { return d.links != nil && d.links.connected() },
		demand:   p.demand, give: p.give, given: p.given, received: p.received, onRate: p.sharesChanged,
		measure: measureConfig{traffic: p.traffic, known: d.loadMeasured(), found: p.measured, save: d.saveMeasured},
	})
	d.onClose("the live shares' port", once(conn))
	return nil
}

// runShares begins to share with the other nodes of the site, over the overlay.
func (d *daemon) runShares(ctx context.Context) error {
	if d.shares != nil {
		d.group.Go(func() error { return ignoreCancel(d.shares.run(ctx)) })
	}
	return nil
}

// demand tells the live shares what is wanted of a link.
func (p *pacing) demand(site string) linkDemand {
	p.mu.Lock()
	l := p.links[site]
	if l == nil {
		p.mu.Unlock()
		return linkDemand{}
	}
	want := linkDemand{weight: p.weight, share: l.fair(), rate: l.now, ahead: l.head.extra}
	want.contended = p.live[site].contended || p.live[""].contended
	if p.uplink > 0 {
		want.ahead = min(want.ahead, p.head.extra)
	}
	if want.ahead <= shaper.Pair {
		want.ahead = 0 // no more than leaves at once anyway: nobody has anything to give
	}
	if l.set > 0 || l.asked.MATB > 0 {
		want.most = l.now
	}
	p.mu.Unlock()
	d := l.Demand()
	want.waiting, want.sent, want.last, want.full = d.Waiting, d.Sent, d.Last, d.Full
	return want
}

// received tells them what has come from each node of another site.
func (p *pacing) received(yield func(from peer.ID, bytes int64)) {
	if p.d.mesh != nil {
		p.d.mesh.Traffic(func(t peer.Traffic) { yield(t.ID, t.Received) }) // on the wire, as limits count
	}
}

// traffic tells them what passes to and from each node of another site.
func (p *pacing) traffic(yield func(peer.Traffic)) {
	if p.d.mesh != nil {
		p.d.mesh.Traffic(yield)
	}
}

// measured is called when what may be sent on links that are measured has changed.
func (p *pacing) measured(rates map[string]int64) { p.d.limits.measured(p.d.id.self.Site, rates) }

// sharesChanged is called when the live shares have.
func (p *pacing) sharesChanged(site string, r lentRate) {
	p.mu.Lock()
	was := p.live[site]
	p.live[site] = r
	p.mu.Unlock()
	if was.contended = r.contended; was != r {
		p.changed()
	}
	if s := p.d.shares; s != nil && was.lent > 0 && r.lent == 0 {
		s.offer()
	}
}

// Flow implements peer.Pacer: nodes of this site are not paced.
func (p *pacing) Flow(n peer.Node, send func(pkts [][]byte)) peer.Flow {
	if n.Site == p.d.id.self.Site {
		return nil
	}
	l := p.link(n.Site, func(*pacedLink) {})
	p.changed()
	return noticesFirst{l.Flow(n.ID, send), p.d.id.self.Addr4.As4()}
}

// link returns the link to a site, made at first use, after do.
func (p *pacing) link(site string, do func(*pacedLink)) *shaper.Link {
	p.mu.Lock()
	defer p.mu.Unlock()
	l := p.links[site]
	if l == nil {
		l = &pacedLink{Link: p.shaper.Link(site)}
		p.links[site] = l
	}
	do(l)
	return l.Link
}

// Take implements peer.Pacer.
func (p *pacing) Take(bufs [][]byte, sizes []int, offset int) int {
	return p.shaper.Take(bufs, sizes, offset)
}

// OnKick implements peer.Pacer.
func (p *pacing) OnKick(kick func()) { p.kick.Store(&kick) }

func (p *pacing) kickReader() {
	if kick := p.kick.Load(); kick != nil {
		(*kick)()
	}
}

// active is called when a link to a site wakes.
func (p *pacing) active(site string) {
	if s := p.d.shares; s != nil {
		s.active(site)
	}
}

// freed is called, also by the pacing thread, when links have nothing waiting any more that others
// have asked to give.
func (p *pacing) freed() {
	p.free.Store(true)
	p.late.ring()
}

// membersChanged is called when the nodes of the site or the limits have changed.
func (p *pacing) membersChanged() {
	if p.d.shares != nil {
		p.d.shares.changed()
	}
	p.changed()
	p.first.changed()
}

// poll is called again and again while there is traffic, since programs change their
// pages without a word. It may be called by several at a time.
func (p *pacing) poll() {
	if s := p.d.shares; s != nil {
		s.glance()
		if p.free.Swap(false) {
			s.offer()
		}
		p.askAround()
	}
	p.mu.Lock()
	nodes, asked := p.nodes, p.asked
	p.mu.Unlock()
	if p.d.asked(nodes) != asked {
		p.changed()
	}
}

// changed gives every link its rate. It is called when limits, nodes, shares or what
// programs ask for have changed.
func (p *pacing) changed() {
	d := p.d
	own := d.id.self.Site
	p.mu.Lock()
	defer p.mu.Unlock()
	p.nodes = d.sharers() // looked up here, so that of two calls the later does not leave the older count
	asked := d.asked(p.nodes)
	if asked.MATB != p.asked.MATB {
		p.first.changed()
	}
	p.asked = asked
	var set int64 // by an administrator, of all links
	for site, l := range p.links {
		l.whole, l.nodes, l.asked = d.limits.between(own, site), p.nodes, asked
		l.live, l.lent = p.live[site].bits, p.live[site].lent
		set += l.set
		r, why := l.stake.rate()
		head := l.whole
		if l.set > 0 || asked.MATB > 0 || r >= l.whole || l.lowered() {
			head = 0 // to be kept to the byte, all there is, or too much for who receives it
		}
		l.why = why
		p.relimit(&l.now, r, l.SetRate, func() {
			p.deepen(&l.head, head, l.SetMost)
		})
	}
	up, _ := d.limits.of(own)
	r, _ := stake{whole: up, nodes: p.nodes, live: p.live[""].bits, asked: asked}.rate()
	if r > 0 {
		r = max(r, set)
	}
	if r >= up || set > 0 || asked.MATB > 0 {
		up = 0
	}
	p.relimit(&p.uplink, r, p.shaper.SetUplink, func() {
		p.deepen(&p.head, up, p.shaper.SetUplinkMost)
	})
}

// relimit gives a link its rate, and what depends on what that may become, by most: after
// it has risen, before it falls, since by both it is told what has waited for too long.
func (p *pacing) relimit(was *int64, r int64, set func(shaper.Rate), most func()) {
	before := *was
	*was = r
	rises := before != 0 && (r == 0 || r > before)
	if !rises {
		most()
	}
	if r != before {
		set(shaper.Rate(r))
	}
	if rises {
		most()
	}
}

// What the nodes of a site may together fill of the queue before the link when they
// wake in one moment. It is less than the 64 kB that the queue of a small switch holds.
// Packets leave in pairs, so each of them takes the room of one; what is left is heads,
// of which each may send one at the site's rate: meanwhile the link carries as much, so
// that N heads leave N−1 in the queue.
const queueBytes = 58 << 10

// headBytes is what one of so many nodes may send ahead.
func headBytes(nodes int) int {
	return max(queueBytes-nodes*shaper.Pair, 0) / max(nodes-1, 1)
}

// headroom is what a limit may be exceeded by, with whose rate.
type headroom struct {
	whole int64
	extra int
}

// deepen gives a link its head, under live shares.
func (p *pacing) deepen(was *headroom, whole int64, set func(shaper.Rate, int)) {
	now := headroom{whole, headBytes(p.nodes)}
	if p.mode != PaceLive || whole == 0 {
		now = headroom{}
	}
	if now != *was {
		*was = now
		set(shaper.Rate(now.whole), now.extra)
	}
}

// sharers counts the nodes that share this site's links: those that are up, or all
// while no hub tells which are.
func (d *daemon) sharers() int {
	up, all := d.siteNodes(d.id.self.Site)
	if d.links != nil && d.links.connected() {
		return up
	}
	return all
}

// stake is what decides over a node's rate on a link that its site shares, in bits
// per second.
type stake struct {
	whole int64 // the limit of all nodes together; 0: none is known
	nodes int   // of the site that are up
	set   int64 // by an administrator, over everything; 0: nothing
	live  int64 // what the live shares give this node; 0: they have not said
	lent  int64 // what of its share others may be using
	asked hint.Request
}

// fair is an equal share.
func (s stake) fair() int64 {
	if s.whole == 0 {
		return 0
	}
	return max(share.Safe(s.whole, s.nodes), 1)
}

// lowered reports whether live shares give the node less than its share and what it lends
// of that: the receiving site says so, or a node of this one counts more.
func (s stake) lowered() bool { return s.live > 0 && s.live+s.lent < s.fair() }

// rate returns what the node may send, 0 for as much as it can, and why. What a
// program has set counts before what is shared. An all-to-all and a pattern say how
// many send at most; live shares know how many do: of the pairwise exchanges of an
// all-to-all some keep one node of a site busy only.
func (s stake) rate() (bits int64, why string) {
	asked := s.asked.Rate(s.whole)
	if fair := s.fair(); asked > fair && asked <= s.whole/int64(max(s.nodes, 1)) {
		asked = fair // B/N is what it means
	}
	switch {
	case s.set > 0:
		return s.set, "set"
	case s.asked.MATB > 0:
		return asked, "program's MATB"
	case s.whole == 0:
		return 0, "no limit"
	case asked > 0 && s.live == 0:
		if s.asked.Hosts > 0 {
			return asked, s.asked.Op.String()
		}
		return asked, "pattern"
	case s.live > s.fair():
		return s.live, "lent by others"
	case s.lowered():
		return s.live, "lowered by others"
	case s.live > 0 && s.live < s.fair():
		return s.live, "lent to others"
	}
	return s.fair(), "equal share"
}
