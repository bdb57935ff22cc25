package mesh

import (
	"net/netip"
	"time"

	"github.com/meshmpi/meshmpi/mesh/peer"
	"golang.org/x/crypto/blake2s"
)

// LAN is how the host's kernel reaches nodes of this site on a network that both are
// attached to, past the TUN and in clear: the best rung of the ladder, if the site has
// chosen it. The mesh finds out whether it works, by probes, and says when the host is to
// use it. WireGuard and its paths stay as they are beside it, for when it does not.
//
// The loop calls these methods; they may take some milliseconds, and must not block.
type LAN interface {
	// Allowed reports whether the site's nodes may use it, now.
	Allowed() bool
	// Open has probes to and from a node pass, whose daemon has an address on the LAN.
	// Opening anew looks anew where the node is.
	Open(n peer.Node, at netip.Addr) (Segment, error)
	// Admit lets in all that a node sends over the LAN, which it has proved to be on.
	Admit(n peer.Node) error
	// Use has the host send all that goes to a node for which it is open over it, in
	// packets of at most mtu bytes; 0: through the TUN again.
	Use(n peer.Node, mtu int) error
	// Still reports whether the node's address is still that of the same hardware.
	Still(n peer.Node) bool
	// Close ends all of it.
	Close(n peer.Node) error
	// Probe sends a datagram to a node for which it is open over it, or not at all.
	Probe(n peer.Node, pkt []byte)
}

// Segment is a LAN that two nodes are on.
type Segment struct {
	MTU int
	// Ends says how both ends are addressed there; it is the same at both, unless
	// somebody stands between. Probes are bound to it.
	Ends string
}

const (
	nearEvery   = 2 * time.Second  // between probes of a LAN that is open, whatever goes over it: the mesh does not see that
	nearFirst   = time.Second      // after the first failure to open it; doubles
	nearRefresh = 10 * time.Second // of silence, after which it is opened anew: hardware changes; doubles
	nearMax     = time.Minute
	nearSilence = time.Minute // for so long kernels may go on without a daemon
	nearHeaders = 20 + 8      // of IPv4 and UDP around a probe
)

// nearby is the way to a peer over the LAN while it is open.
type nearby struct {
	at       netip.Addr // the peer's address there
	key      pairKey    // of probes there
	paths    set        // of one
	c        *candidate // that one
	mtu      int        // with which the host uses it; 0: it does not
	admitted bool
	doubted  time.Time // since when probes stay unanswered; zero: they are not
}

// nearKey is a pair's key for probes over a LAN. Such probes are no others', and
// whoever has both ends see another in the middle has them see two keys.
func nearKey(pair *pairKey, ends string) pairKey {
	h, err := blake2s.New256(pair[:])
	if err != nil {
		panic("mesh: a 32-byte BLAKE2s key was refused") // it takes up to 32
	}
	h.Write([]byte("meshmpi native v1" + ends))
	return pairKey(h.Sum(nil))
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

// nearSizes lists the MTUs worth trying on a LAN: its own, and what common links leave.
func nearSizes(lan, overlay int) []int {
	sizes := []int{lan}
	for _, s := range []int{1500, overlay, 1280} {
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
		if m.dropNear(r) {
			m.tellPath(r)
		}
		r.nearTries, r.nextNear = 0, time.Time{}
		return
	case n != nil && n.mtu != 0 && !n.doubted.IsZero() && (now.Sub(n.doubted) > nearSilence || !lan.Still(r.node)):
		m.useNear(now, r, 0) // whoever has that address now must not get what is for the peer
		return
	case now.Before(r.nextNear), n != nil && (n.mtu != 0 || n.c.state == up):
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
		at := c.via.addr.Addr()
		segment, err := lan.Open(r.node, at)
		if err != nil {
			m.log.Debug("not by the LAN", "node", r.node.Name, "addr", at, "err", err)
			continue
		}
		m.openedNear(now, r, at, segment)
		return
	}
}

// openedNear begins to probe a LAN that has just been opened, or opened anew.
func (m *Mesh) openedNear(now time.Time, r *remote, at netip.Addr, segment Segment) {
	n := &nearby{at: at, key: nearKey(&r.probeKey, segment.Ends),
		paths: set{txid: r.paths.txid, sizes: nearSizes(segment.MTU, m.sizes[0]), busy: true, every: nearEvery}}
	n.c = n.paths.add(now, via{addr: netip.AddrPortFrom(at, 0)}, told, func() peer.Path { return nearPath{m.cfg.LAN, r.node, at} })
	n.c.keep = true
	r.near = n
	m.nearKeys.Store(r.short, &n.key)
}

// dropNear closes the LAN to a peer and reports whether the host used it.
func (m *Mesh) dropNear(r *remote) (used bool) {
	n := r.near
	if n == nil {
		return false
	}
	r.near = nil
	m.nearKeys.Delete(r.short)
	if err := m.cfg.LAN.Close(r.node); err != nil {
		m.log.Warn("cannot close the native path", "node", r.node.Name, "err", err)
	}
	return n.mtu != 0
}

// serveNear probes an open LAN, and has the host use it or not. It is left only when
// another path has answered since it fell silent: a daemon that is away answers nothing,
// and the kernels go on without it for a while.
func (m *Mesh) serveNear(now time.Time, r *remote) {
	n := r.near
	if n == nil {
		return
	}
	for _, o := range n.paths.tick(now) {
		m.sendProbe(r, o, o.size-nearHeaders)
	}
	n.paths.choose(now)
	m.wakeAt(n.paths.deadline())
	c := r.paths.current
	works := c != nil && c.state == up
	switch {
	case n.c.state == up && n.c.misses == 0:
		n.doubted, r.nearTries = time.Time{}, 0
		if n.c.mtu.proved && n.c.mtu.found != n.mtu {
			m.useNear(now, r, n.c.mtu.found)
		} else if !n.c.mtu.proved && n.mtu != 0 && works {
			m.useNear(now, r, 0) // until it is known what passes
		}
	case n.mtu == 0:
	case n.doubted.IsZero():
		n.doubted = now
		r.lastUsed = now // of which the mesh sees nothing else
		r.paths.use(now, true)
		if c != nil {
			c.next = now
			m.wakeAt(now)
		}
	case n.c.state != up && works && c.answered.After(n.doubted):
		m.useNear(now, r, 0)
	}
}

// useNear has the host use the LAN, or not with an MTU of 0.
func (m *Mesh) useNear(now time.Time, r *remote, mtu int) {
	before := r.near.mtu
	r.near.mtu = mtu
	if err := m.cfg.LAN.Use(r.node, mtu); err != nil {
		m.log.Warn("cannot change the native path", "node", r.node.Name, "mtu", mtu, "err", err)
		m.dropNear(r)
		mtu = 0
	}
	if mtu == 0 {
		r.nextNear = now.Add(nearRefresh)
	}
	if (mtu == 0) != (before == 0) {
		m.tellPath(r)
	}
}

// Near takes a datagram that came over the LAN from a virtual address. It does not keep it.
func (m *Mesh) Near(pkt []byte, from netip.Addr) {
	p, err := parseProbe(pkt)
	if err != nil {
		return
	}
	rec, ok := m.cfg.Directory.ByShort(p.from)
	if !ok || rec.Node.Addr4 != from {
		return
	}
	key, open := m.nearKeys.Load(p.from)
	if !open || !p.authentic(key.(*pairKey)) {
		return
	}
	if len(m.events) >= probesWaiting {
		m.dropped.Add(1)
		return
	}
	p.raw = append([]byte(nil), pkt...)
	m.post(func(now time.Time) {
		r := m.loop.remotes[rec.Node.ID]
		if r == nil || r.near == nil || !p.authentic(&r.near.key) {
			return // it was closed meanwhile, or opened anew
		}
		m.tookNear(now, r, p)
		m.serve(now, r)
	})
}

// tookNear takes an authentic probe that came over the LAN.
func (m *Mesh) tookNear(now time.Time, r *remote, p probe) {
	n := r.near
	if p.ping() && !r.seq.fresh(p) {
		m.replayed.Add(1)
		return
	}
	if !p.ping() && n.paths.pong(now, p.txid, p.ask != 0) == nil {
		return
	}
	if !n.admitted {
		if err := m.cfg.LAN.Admit(r.node); err != nil {
			m.log.Warn("cannot open the native path", "node", r.node.Name, "err", err)
			return
		}
		n.admitted = true
	}
	switch {
	case p.ping():
		m.sendPong(r, n.c, p.txid, n.paths.pinged(now, n.c))
	case p.ask != 0:
		m.sendPong(r, n.c, p.ask, 0)
	}
}
