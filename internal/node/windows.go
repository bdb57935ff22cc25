package node

import (
	"log/slog"
	"net/netip"
	"sync"
	"time"

	"github.com/meshmpi/meshmpi/mesh/peer"
	"github.com/meshmpi/meshmpi/shaper"
)

const (
	// kernelWindow is what TCP begins with of itself, segments (RFC 6928).
	kernelWindow = 10
	// pacerTime is how much longer a round trip is while a link is in use: what the pacer
	// keeps ready between a program and the wire.
	pacerTime = 10 * time.Millisecond
	// firstTrips is what TCP begins with instead, in what a share carries in such a round
	// trip: with one, the link would be idle until the first acknowledgements, since it
	// has a queue, too.
	firstTrips = 1.25
	// burstTrips is what of a peer may wait unmarked, likewise: all that such a window
	// has become after a round trip. Marked for that, of half a window each time, a
	// connection ends with less than a link needs.
	burstTrips = 2
	// mostTrip bounds a round trip's bytes: the pacer holds up to eight of them for a
	// peer and 32 for a site.
	mostTrip = 2 << 20
)

// firstWindows tells TCP how much it may have under way towards nodes of other sites
// before anything is acknowledged, at first and again after a pause: what this node's
// share of the link carries in a round trip. The ten segments that are the rule are for
// who knows nothing of a link. A program that computes for a while between exchanges has
// to grow its window anew in each of them, a round trip for every doubling; what is paced
// need not, since a burst waits in the pacer, and no switch overflows. Where nothing is
// paced the rule holds.
type firstWindows struct {
	share func(site string) int64      // of this node, bits per second; 0: it is not paced
	burst func(site string, bytes int) // tells the pacer what it lets wait unmarked
	set   func(addrs []netip.Addr, segments int) error
	log   *slog.Logger

	mu    sync.Mutex // guards what follows, and what has been set
	peers map[peer.ID]*firstWindow
}

// firstWindow is that towards one peer.
type firstWindow struct {
	node     peer.Node
	rtt      time.Duration
	segments int
	burst    int // bytes
}

// windows is what TCP may begin with where a rate of bits per second is its share, in
// segments, and what of it may wait unmarked, in bytes on the wire; 0: what the kernel
// and the pacer have of themselves.
func windows(rate int64, rtt time.Duration) (segments, burst int) {
	const onWire = shaper.Pair / 2
	if rtt == 0 {
		return 0, 0
	}
	trip := min(float64(rate)/8*(rtt+pacerTime).Seconds(), mostTrip)
	if segments = int(firstTrips * trip / onWire); segments <= kernelWindow {
		return 0, 0
	}
	return segments, int(burstTrips * trip)
}

// path takes the round trip to a peer; 0: none is known.
func (w *firstWindows) path(n peer.Node, rtt time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	p := w.peers[n.ID]
	if p == nil {
		p = &firstWindow{}
		w.peers[n.ID] = p
	}
	p.node, p.rtt = n, rtt
	w.update(p)
	if rtt == 0 {
		delete(w.peers, n.ID)
	}
}

// changed is called when shares may have changed.
func (w *firstWindows) changed() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, p := range w.peers {
		w.update(p)
	}
}

// update sets one peer's window if it is another now.
func (w *firstWindows) update(p *firstWindow) {
	n, burst := windows(w.share(p.node.Site), p.rtt)
	if n == p.segments {
		return
	}
	p.burst = burst
	for _, o := range w.peers {
		if o.node.Site == p.node.Site {
			burst = max(burst, o.burst)
		}
	}
	w.burst(p.node.Site, burst)
	if err := w.set(p.node.Addrs(), n); err != nil {
		w.log.Warn("cannot set the route's first window", "node", p.node.Name, "segments", n, "err", err)
	}
	p.segments = n
}

// burst sets what may wait unmarked of each peer of a site.
func (p *pacing) burst(site string, bytes int) {
	p.link(site, func(*pacedLink) {}).SetBurst(bytes)
}

// share is this node's equal share of the link to another site, bits per second; 0 where
// nothing is paced. What others leave comes on top, and may be gone in an instant.
func (p *pacing) share(site string) int64 {
	own := p.d.id.self.Site
	if site == own {
		return 0
	}
	return stake{whole: p.d.limits.between(own, site), nodes: p.d.sharers()}.fair()
}
