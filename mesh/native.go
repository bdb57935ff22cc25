package mesh

import (
	"net/netip"
	"time"

	"github.com/meshmpi/meshmpi/mesh/peer"
)

// LAN is how the host's kernel reaches nodes of this site on a network that both are
// attached to, past the TUN and in clear: the best rung of the ladder, if the site has
// chosen it. The mesh finds out whether it works, by probes, and says when the host is to
// use it. WireGuard and its paths stay as they are beside it, for when it does not.
//
// The loop calls these methods; they may take some milliseconds.
type LAN interface {
	// Allowed reports whether the site's nodes may use it, now.
	Allowed() bool
	// Open has probes to and from a node pass, whose daemon has an address on the LAN,
	// and returns the LAN's MTU. Opening anew looks anew where the node is.
	Open(n peer.Node, at netip.Addr) (mtu int, err error)
	// Use has the host send all that goes to a node for which it is open over it, in
	// packets of at most mtu bytes; 0: through the TUN again.
	Use(n peer.Node, mtu int) error
	// Close ends both.
	Close(n peer.Node) error
	// Probe sends a datagram to a node for which it is open over it, or not at all.
	Probe(n peer.Node, pkt []byte)
}

const (
	nearEvery   = 2 * time.Second  // between probes of a LAN that is open, whatever goes over it: the mesh does not see that
	nearFirst   = time.Second      // after the first failure to open it; doubles
	nearRefresh = 10 * time.Second // of silence, after which it is opened anew: hardware changes; doubles
	nearMax     = time.Minute
	nearHeaders = 20 + 8 // of IPv4 and UDP around a probe
)

// nearby is the way to a peer over the LAN while it is open.
type nearby struct {
	at    netip.Addr // the peer's address there
	paths set        // of one
	c     *candidate // that one
	mtu   int        // with which the host uses it; 0: it does not
	fell  time.Time  // when it was found not to work any more; zero: it works, or never has
}

// nearPath is peer.Path for the probes alone.
type nearPath struct {
	lan  LAN
	node peer.Node
	at   netip.Addr
}

var _ peer.Path = nearPath{}

// Send implements peer.Path.
func (p nearPath) Send(pkts [][]byte) error {
	for _, b := range pkts {
		p.lan.Probe(p.node, b)
	}
	return nil
}

// Info implements peer.Path.
func (p nearPath) Info() peer.PathInfo {
	return peer.PathInfo{Kind: peer.KindNative, Remote: netip.AddrPortFrom(p.at, 0)}
}

// Close implements peer.Path.
func (p nearPath) Close() error { return nil }

// nearSizes lists the MTUs worth trying on a LAN, and the overlay's.
func nearSizes(lan, overlay int) []int {
	sizes := []int{lan}
	for _, s := range []int{1500, overlay} {
		if s < sizes[len(sizes)-1] {
			sizes = append(sizes, s)
		}
	}
	return sizes
}

// lookNear opens the LAN to a peer of this site that a direct path shows to be there,
// and closes it where the site no longer wants it.
func (m *Mesh) lookNear(now time.Time, r *remote) {
	lan := m.cfg.LAN
	wanted := lan != nil && r.node.Site == m.cfg.Self.Site && lan.Allowed()
	switch n := r.near; {
	case !wanted:
		m.dropNear(r)
		r.nearTries, r.nextNear = 0, time.Time{}
		return
	case now.Before(r.nextNear), n != nil && n.c.state == up:
		return
	}
	pause := nearFirst
	if r.near != nil {
		pause = nearRefresh
	}
	r.nextNear = now.Add(min(pause<<min(r.nearTries, 6), nearMax))
	r.nearTries++
	for _, c := range r.paths.cands {
		if c.state != up || c.via.relay != "" || !c.via.addr.Addr().Is4() {
			continue
		}
		mtu, err := lan.Open(r.node, c.via.addr.Addr())
		if err != nil {
			m.log.Debug("not by the LAN", "node", r.node.Name, "addr", c.via.addr.Addr(), "err", err)
			continue
		}
		m.opened(now, r, c.via.addr.Addr(), mtu)
		return
	}
}

// opened begins to probe a LAN that has just been opened, or goes on.
func (m *Mesh) opened(now time.Time, r *remote, at netip.Addr, mtu int) {
	n := r.near
	if n != nil && n.mtu != 0 { // opening anew has led the host through the TUN
		n.mtu = 0
		m.tellPath(r)
	}
	if n == nil || n.at != at || n.paths.sizes[0] != mtu {
		n = &nearby{at: at, paths: set{txid: r.paths.txid, sizes: nearSizes(mtu, m.sizes[0]), busy: true, every: nearEvery}}
		n.c = n.paths.add(now, via{addr: netip.AddrPortFrom(at, 0)}, kept, func() peer.Path { return nearPath{m.cfg.LAN, r.node, at} })
		n.c.keep = true
		r.near = n
	}
	n.c.next, n.c.tries = now, 0
}

// dropNear closes the LAN to a peer.
func (m *Mesh) dropNear(r *remote) {
	n := r.near
	if n == nil {
		return
	}
	r.near = nil
	if err := m.cfg.LAN.Close(r.node); err != nil {
		m.log.Warn("cannot close the native path", "node", r.node.Name, "err", err)
	}
	if n.mtu != 0 {
		m.tellPath(r)
	}
}

// serveNear probes an open LAN, and has the host use it or not. It is left only when
// another path has answered since it fell silent: a daemon that is away answers nothing,
// and the kernels go on without it.
func (m *Mesh) serveNear(now time.Time, r *remote) {
	n := r.near
	if n == nil {
		return
	}
	for _, o := range n.paths.tick(now) {
		m.sendProbe(r, o, o.size-nearHeaders)
	}
	n.paths.choose(now)
	switch works := n.c.state == up; {
	case works:
		n.fell, r.nearTries = time.Time{}, 0
		if n.c.mtu.found != 0 && n.c.mtu.found != n.mtu {
			m.useNear(r, n.c.mtu.found)
		}
	case n.mtu == 0:
	case n.fell.IsZero():
		n.fell = now
		if c := r.paths.current; c != nil {
			c.next = now
			m.wakeAt(now)
		}
	case r.paths.current != nil && r.paths.current.state == up && r.paths.current.answered.After(n.fell):
		m.useNear(r, 0)
		r.nextNear = now.Add(nearRefresh)
	}
	m.wakeAt(n.paths.deadline())
}

// useNear has the host use the LAN, or not with an MTU of 0.
func (m *Mesh) useNear(r *remote, mtu int) {
	before := r.near.mtu
	r.near.mtu = mtu
	if err := m.cfg.LAN.Use(r.node, mtu); err != nil {
		m.log.Warn("cannot change the native path", "node", r.node.Name, "mtu", mtu, "err", err)
		r.near.mtu = before
		return
	}
	if (mtu == 0) != (before == 0) {
		m.tellPath(r)
	}
}

// Near takes a datagram that came over the LAN. It does not keep it.
func (m *Mesh) Near(pkt []byte) {
	m.admit(append([]byte(nil), pkt...), func(now time.Time, r *remote, p probe) {
		if p.ping() && r.near == nil {
			r.nextNear = time.Time{} // it is open there
			m.lookNear(now, r)
		}
		n := r.near
		switch {
		case n == nil:
			return
		case !p.ping():
			if n.paths.pong(now, p.txid, p.ask != 0) != nil && p.ask != 0 {
				m.sendPong(r, n.c, p.ask, 0)
			}
		case !r.seq.fresh(p):
			m.replayed.Add(1)
			return
		default:
			m.sendPong(r, n.c, p.txid, n.paths.pinged(now, n.c))
		}
		m.serve(now, r)
	})
}
