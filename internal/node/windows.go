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
	// windowTime bounds what it may begin with to half of what the pacer queues for a
	// peer, so that two connections' at once are not too much for that.
	windowTime = 75 * time.Millisecond
)

// firstWindows tells TCP how much it may have under way towards nodes of other sites
// before anything is acknowledged, at first and again after a pause: what this node's
// share of the link carries in a round trip. The ten segments that are the rule are for
// who knows nothing of a link. A program that computes for a while between exchanges has
// to grow its window anew in each of them, a round trip for every doubling; what is paced
// need not, since a burst waits in the pacer, and no switch overflows. Where nothing is
// paced the rule holds.
type firstWindows struct {
	share func(site string) int64 // of this node, bits per second; 0: it is not paced
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
}

// segments is how many of them a rate of bits per second carries in a time; 0: no more
// than TCP begins with anyway.
func segments(rate int64, rtt time.Duration) int {
	const onWire = shaper.Pair / 2
	n := int(float64(rate) / 8 * min(rtt, windowTime).Seconds() / onWire)
	if n <= kernelWindow {
		return 0
	}
	return n
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
	n := segments(w.share(p.node.Site), p.rtt)
	if n == p.segments {
		return
	}
	if err := w.set(p.node.Addrs(), n); err != nil {
		w.log.Warn("cannot set the route's first window", "node", p.node.Name, "segments", n, "err", err)
	}
	p.segments = n
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
