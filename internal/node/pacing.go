package node

import (
	"sync"
	"sync/atomic"

	"github.com/meshmpi/meshmpi/mesh/peer"
	"github.com/meshmpi/meshmpi/shaper"
	"github.com/meshmpi/meshmpi/shaper/hint"
)

// pacing decides how fast this node may send to each other site and has the shaper
// keep to it. Rates come from what is declared of the sites' links, from what the
// nodes of this site tell each other, and from what programs ask for.
type pacing struct {
	d      *daemon
	mode   Pace
	shaper *shaper.Shaper
	kick   atomic.Pointer[func()] // has the TUN's reader look

	mu     sync.Mutex // guards the rest
	links  map[string]*pacedLink
	uplink int64
	nodes  int // that share this site's links
}

// pacedLink is the way to another site.
type pacedLink struct {
	*shaper.Link
	share
	now int64 // the rate that the link was given last
	why string
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

// liveShares are what the nodes of the site leave to each other.
type liveShares interface {
	rate(site string) int64 // what this node may send now, "" to all sites; 0: not known
	active(site string)     // something is to be sent after a rest
}

// startPacing starts the shaper; it paces nothing until there are limits.
func (d *daemon) startPacing() error {
	mode := d.cfg.Pace
	if mode == "" {
		mode = PaceLive
	}
	if mode == PaceOff {
		return nil
	}
	p := &pacing{d: d, mode: mode, links: map[string]*pacedLink{}}
	var err error
	cfg := shaper.Config{Log: d.log, Kick: p.kickReader, Poll: p.changed, Active: p.active}
	if p.shaper, err = shaper.New(cfg); err != nil {
		return err
	}
	d.pacing = p
	d.limits.changed = p.changed
	d.onClose("the pacer", p.shaper)
	return nil
}

// Flow implements peer.Pacer: nodes of this site are not paced.
func (p *pacing) Flow(n peer.Node, send func(pkts [][]byte)) peer.Flow {
	if n.Site == p.d.id.self.Site {
		return nil
	}
	l := p.link(n.Site, func(*pacedLink) {})
	p.changed()
	return l.Flow(n.ID, send)
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

// changed gives every link its rate. It is called when limits, nodes or shares have
// changed, and again and again while there is traffic, since programs change their
// pages without a word.
func (p *pacing) changed() {
	d := p.d
	own := d.id.self.Site
	var asked hint.Request
	if d.hints != nil {
		asked = d.hints.Strictest()
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.nodes = d.sharers()
	for site, l := range p.links {
		l.whole, l.nodes, l.asked = d.limits.between(own, site), p.nodes, asked
		if d.shares != nil {
			l.live = d.shares.rate(site)
		}
		r, why := l.share.rate()
		if l.why = why; r != l.now {
			l.now = r
			l.SetRate(shaper.Rate(r))
		}
	}
	up, _ := d.limits.of(own)
	s := share{whole: up, nodes: p.nodes}
	if d.shares != nil {
		s.live = d.shares.rate("")
	}
	if r, _ := s.rate(); r != p.uplink {
		p.uplink = r
		p.shaper.SetUplink(shaper.Rate(r))
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

// share is what decides over a node's rate on a link that its site shares, in bits
// per second.
type share struct {
	whole int64 // the limit of all nodes together; 0: none is known
	nodes int   // of the site that are up
	set   int64 // by an administrator, over everything; 0: nothing
	live  int64 // what the others leave to this node; 0: they have not said
	asked hint.Request
}

// fair is an equal share.
func (s share) fair() int64 {
	if s.whole == 0 {
		return 0
	}
	return max(s.whole/int64(max(s.nodes, 1)), 1)
}

// rate returns what the node may send, 0 for as much as it can, and why. What a
// program has set counts before what is shared. An all-to-all and a pattern say how
// many will send at once before they do, but not that nobody else does.
func (s share) rate() (bits int64, why string) {
	asked := s.asked.Rate(s.whole)
	switch {
	case s.set > 0:
		return s.set, "set"
	case s.asked.MATB > 0:
		return asked, "program's MATB"
	case s.whole == 0:
		return 0, "no limit"
	case asked > 0 && (s.live == 0 || asked < max(s.live, s.fair())):
		if s.asked.Hosts > 0 {
			return asked, s.asked.Op.String()
		}
		return asked, "pattern"
	case s.live > s.fair():
		return s.live, "lent by others"
	}
	return s.fair(), "equal share"
}
