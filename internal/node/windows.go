package node

import (
	"context"
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
	// mostTrip bounds a round trip's bytes, since the pacer holds eight of them, or more,
	// for a peer, and 16 for a site.
	mostTrip = 2 << 20
)

// firstWindows tells TCP how much it may have under way towards nodes of other sites
// before anything is acknowledged, at first and again after a pause: what this node's
// share of the link carries in a round trip. The ten segments that are the rule are for
// who knows nothing of a link. A program that computes for a while between exchanges has
// to grow its window anew in each of them, a round trip for every doubling; what is paced
// need not, since a burst waits in the pacer, and no switch overflows. Where nothing is
// paced the rule holds.
//
// Setting a route takes a while, so run does that, and others only say what has changed.
type firstWindows struct {
	share func(site string) int64      // of this node, bits per second; 0: it is not paced
	burst func(site string, bytes int) // tells the pacer what it lets wait unmarked
	set   func(addrs []netip.Addr, segments int) error
	log   *slog.Logger
	stir  chan struct{} // holds one while something may have changed

	mu     sync.Mutex // guards peers
	peers  map[peer.ID]*firstWindow
	bursts map[string]int // that the pacer was told, bytes, by site; run's
}

// firstWindow is that towards one peer.
type firstWindow struct {
	node     peer.Node
	rtt      time.Duration // 0: there is no path any more
	segments int           // as set
}

func newFirstWindows(share func(site string) int64, burst func(site string, bytes int), log *slog.Logger) *firstWindows {
	return &firstWindows{share: share, burst: burst, log: log, stir: make(chan struct{}, 1),
		peers: map[peer.ID]*firstWindow{}, bursts: map[string]int{}}
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

// path takes the round trip to a peer; 0: there is none. It does not block.
func (w *firstWindows) path(n peer.Node, rtt time.Duration) {
	w.mu.Lock()
	p := w.peers[n.ID]
	if p == nil {
		p = &firstWindow{}
		w.peers[n.ID] = p
	}
	p.node, p.rtt = n, rtt
	w.mu.Unlock()
	w.changed()
}

// changed is called when shares may have changed. It does not block.
func (w *firstWindows) changed() {
	select {
	case w.stir <- struct{}{}:
	default:
	}
}

// run sets windows until ctx ends, not more often than ten times a second.
func (w *firstWindows) run(ctx context.Context) error {
	const pause = 100 * time.Millisecond
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-w.stir:
		}
		w.update()
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(pause):
		}
	}
}

// update sets what is to be another now.
func (w *firstWindows) update() {
	w.mu.Lock()
	peers := make(map[peer.ID]firstWindow, len(w.peers))
	for id, p := range w.peers {
		peers[id] = *p
	}
	w.mu.Unlock()
	shares, bursts := map[string]int64{}, map[string]int{}
	for id, p := range peers {
		site := p.node.Site
		if _, known := shares[site]; !known {
			shares[site] = w.share(site)
		}
		n, burst := windows(shares[site], p.rtt)
		bursts[site] = max(bursts[site], burst)
		if differs(n, p.segments) {
			if err := w.set(p.node.Addrs(), n); err != nil {
				w.log.Warn("cannot set the route's first window", "node", p.node.Name, "segments", n, "err", err)
				continue // until the next change
			}
			p.segments = n
		}
		w.done(id, p.segments)
	}
	for site := range w.bursts {
		if _, left := bursts[site]; !left {
			bursts[site] = 0 // there is no peer any more
		}
	}
	for site, burst := range bursts {
		if differs(burst, w.bursts[site]) {
			w.burst(site, burst)
			w.bursts[site] = burst
		}
	}
}

// done notes what has been set, and forgets a peer to which there is no path.
func (w *firstWindows) done(id peer.ID, segments int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	p := w.peers[id]
	p.segments = segments
	if p.rtt == 0 && segments == 0 {
		delete(w.peers, id)
	}
}

// differs reports whether a value is another one by more than a quarter, or is 0 instead.
func differs(now, was int) bool {
	return (now == 0) != (was == 0) || 4*max(now-was, was-now) > was
}

// burst sets what may wait unmarked of each peer of a site.
func (p *pacing) burst(site string, bytes int) {
	p.link(site, func(*pacedLink) {}).SetBurst(bytes)
}

// share is what this node may count on of the link to another site, bits per second: its
// equal share, or what it has been told if that is less; 0 where nothing is paced. What
// others leave comes on top, and may be gone in an instant.
func (p *pacing) share(site string) int64 {
	own := p.d.id.self.Site
	if site == own {
		return 0
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	s := stake{whole: p.d.limits.between(own, site), nodes: p.nodes, asked: p.asked}
	if l := p.links[site]; l != nil {
		s.set = l.set
	}
	r, _ := s.rate()
	if fair := s.fair(); fair > 0 {
		return min(r, fair)
	}
	return r
}
