package mesh

import (
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"time"

	"github.com/meshmpi/meshmpi/mesh/peer"
	"golang.org/x/time/rate"
	"golang.zx2c4.com/wireguard/device"
)

const (
	busyFor      = 30 * time.Second // after the last packet a peer counts as talked to
	evictAfter   = 15 * time.Minute
	evictBusy    = 1024 // below so many peers none is evicted
	sealOverhead = device.MessageTransportSize
)

// remote is the loop's state of one configured peer.
type remote struct {
	node      peer.Node
	ep        *Endpoint
	probeKey  pairKey
	signalKey pairKey
	short     peer.Short
	paths     set
	sources   map[via]*source

	hello     hello     // the handshake under way
	asked     *asked    // our initiation, under way or answered; nil: none
	held      *injected // the peer's initiation that crossed ours
	queued    *injected // the peer's initiation that came too soon after another for WireGuard
	handed    time.Time // when WireGuard last got an initiation of the peer
	seq       sequence
	greeted   stamp // of the peer's latest initiation
	advertise advertise

	near      *nearby   // the way over the LAN; nil while it is not open
	nextNear  time.Time // when to try to open it, or anew; zero: at once
	nearTries int       // since it last worked

	silent     bool          // the path in use was, for longer than a loss or two explain
	search     *flow         // under way; nil: none
	offers     *rate.Limiter // of the peer, that begin a search
	searches   int           // without success since the last change
	nextSearch time.Time
	moved      bool // this host's network has changed since the peer began a search

	tx       uint64 // counter at the last sample
	lastUsed time.Time
	mtu      int           // told to PathMTU; 0: the TUN's
	rtt      time.Duration // told to PathRTT; 0: not measured
}

// configure returns the peer's remote, making WireGuard know it if it is new.
// It returns nil when the peer must not be talked to: by the directory as it is
// now, for what is asked of the loop may have waited there while a peer was cut off.
func (m *Mesh) configure(now time.Time, id peer.ID) *remote {
	if r := m.loop.remotes[id]; r != nil {
		return r
	}
	rec, ok := m.cfg.Directory.ByID(id)
	if !ok || !m.trusted(now, rec) {
		return nil
	}
	r, err := m.newRemote(now, rec.Node)
	if err != nil {
		m.log.Warn("cannot configure peer", "node", rec.Node.Name, "err", err)
		return nil
	}
	m.loop.remotes[id] = r
	m.tun.know(rec.Node.Addrs(), r.ep)
	for _, l := range m.loop.relays {
		m.addRelayed(now, r, l.relay)
	}
	m.resolveAdvertised(now, r, rec)
	m.log.Debug("peer configured", "node", rec.Node.Name)
	m.serve(now, r)
	return r
}

func (m *Mesh) newRemote(now time.Time, n peer.Node) (*remote, error) {
	probeKey, signalKey, err := pairKeys(m.cfg.WGKey, m.cfg.Network.Root, m.cfg.Self, n)
	if err != nil {
		return nil, err
	}
	r := &remote{
		node: n, ep: m.bind.endpoint(n), probeKey: probeKey, signalKey: signalKey, short: n.ID.Short(),
		sources: map[via]*source{}, seq: newSequence(now),
		lastUsed: now, nextSearch: now, offers: rate.NewLimiter(offersRate, offersBurst),
	}
	r.paths = set{txid: rand.Uint64, sizes: m.sizes, busy: true}
	key := hex.EncodeToString(n.ID[:])
	err = m.dev.IpcSet(fmt.Sprintf("public_key=%s\nendpoint=%s\nreplace_allowed_ips=true\nallowed_ip=%s/32\nallowed_ip=%s/128\n",
		key, key, n.Addr4, n.Addr6))
	if err != nil {
		m.bind.dropEndpoint(n.ID)
		return nil, err
	}
	m.bind.probeKeys.Store(r.short, &nodeKey{r.probeKey, n.SignKey})
	return r, nil
}

// forget makes WireGuard drop the peer and everything known of its paths.
func (m *Mesh) forget(r *remote) {
	delete(m.loop.remotes, r.node.ID)
	m.says(r, hello{})
	if r.search != nil {
		r.search.cancel()
	}
	m.dropNear(r)
	m.tun.unknow(r.node.Addrs())
	m.dev.RemovePeer(device.NoisePublicKey(r.node.ID))
	m.unregisterPaths(r, func(via) bool { return true })
	m.bind.dropEndpoint(r.node.ID)
	m.bind.probeKeys.Delete(r.short)
	m.tellMTU(r, 0)
	m.tellRTT(r, 0)
	m.loop.changed = true
}

// sample notes whether the peer is being talked to. It reports whether the peer
// was dropped: because its certificate has ended and no newer one is known, or,
// once there are many peers, because it has long been idle.
func (m *Mesh) sample(now time.Time, r *remote) bool {
	if tx := r.ep.txPackets.Load(); tx != r.tx {
		r.tx, r.lastUsed = tx, now
	}
	if !now.Before(r.node.NotAfter) {
		m.log.Info("peer cut off: its certificate has expired", "node", r.node.Name, "expired", r.node.NotAfter)
		m.forget(r)
		return true
	}
	r.paths.use(now, now.Sub(r.lastUsed) < busyFor)
	if rec, ok := m.cfg.Directory.ByID(r.node.ID); ok {
		m.resolveAdvertised(now, r, rec) // once more, if it failed
	}
	m.lookNear(now, r)
	if now.Sub(r.lastUsed) > evictAfter && r.near == nil && len(m.loop.remotes) > evictBusy {
		m.forget(r)
		return true
	}
	return false
}

// addDirect adds the path straight to an address.
func (m *Mesh) addDirect(now time.Time, r *remote, a netip.AddrPort, o origin) *candidate {
	a = netip.AddrPortFrom(a.Addr().Unmap(), a.Port())
	if !a.IsValid() || a.Port() == 0 || m.cfg.Network.CIDR4.Contains(a.Addr()) || m.cfg.Network.CIDR6.Contains(a.Addr()) {
		return nil // never through the overlay itself
	}
	return r.paths.add(now, via{addr: a}, o, func() peer.Path { return &direct{m.bind.pair, a} })
}

// addRelayed adds the path through a relay.
func (m *Mesh) addRelayed(now time.Time, r *remote, relay Relay) *candidate {
	v := via{relay: relay.Name()}
	fresh := r.paths.find(v) == nil
	c := r.paths.add(now, v, kept, func() peer.Path { return relay.Path(r.node.ID) })
	if c == nil {
		return nil
	}
	m.watch(r, c, relaySource{relay.Addr(), r.short}, &source{via: v, short: r.short, back: c.path})
	if !fresh && relay.Bound() && c.state != up {
		c.next, c.tries = now, 0
	}
	return c
}

// watchDirect counts as this path's what arrives from its address, now that the
// peer has proved to be there. Whoever else was there before is no longer.
func (m *Mesh) watchDirect(r *remote, c *candidate) {
	if c.via.relay == "" {
		m.watch(r, c, c.via.addr, &source{via: c.via})
	}
}

// watch registers a candidate's source with the sockets.
func (m *Mesh) watch(r *remote, c *candidate, key any, s *source) {
	if old := r.sources[c.via]; old != nil && !old.stale.Load() {
		if c.rx != nil {
			return
		}
		m.bind.unregister(old) // a path that was dropped is back
	}
	m.bind.register(key, s)
	r.sources[c.via] = s
	c.rx = s.rx.Load
}

// unregisterPaths drops the paths that match selects.
func (m *Mesh) unregisterPaths(r *remote, match func(via) bool) {
	r.paths.remove(match)
	m.dropSources(r)
	if r.paths.current == nil {
		r.ep.use(time.Time{}, nil)
	}
}

// dropSources unregisters sources whose path is gone.
func (m *Mesh) dropSources(r *remote) {
	for v, s := range r.sources {
		if r.paths.find(v) != nil {
			continue
		}
		m.bind.unregister(s)
		delete(r.sources, v)
	}
}

// choose lets the path set choose and makes the Endpoint follow.
func (m *Mesh) choose(now time.Time, r *remote) {
	changed := r.paths.choose(now)
	if len(r.sources) > len(r.paths.cands) {
		m.dropSources(r)
	}
	c := r.paths.current
	m.judge(r, c, changed)
	if c == nil {
		r.ep.use(now, nil)
		return
	}
	if changed || r.ep.path.Load() == nil {
		r.ep.use(now, &c.path)
		if r.inUse() == c {
			m.tellPath(r)
		}
		m.loop.changed = true
		m.wakeAt(now.Add(rememberEvery))
	}
	m.tellMTU(r, c.mtu.found)
	m.tellRTT(r, c.rtt.smoothed)
}

// tellPath says by which path the host's packets to a peer go from now on.
func (m *Mesh) tellPath(r *remote) {
	info, works := r.way()
	m.log.Info("path", "node", r.node.Name, "kind", info.Kind, "via", info.Via, "addr", info.Where(), "works", works)
	if m.cfg.PathChanged != nil {
		m.cfg.PathChanged(r.node, info)
	}
}

// inUse returns the path that the host's packets to a peer take; nil for none.
func (r *remote) inUse() *candidate {
	if r.near != nil && r.near.mtu != 0 {
		return r.near.c
	}
	return r.paths.current
}

// keyOf is the key of probes on a path.
func (r *remote) keyOf(c *candidate) *pairKey {
	if r.near != nil && r.near.c == c {
		return &r.near.key
	}
	return &r.probeKey
}

// way says what is known of the path in use.
func (r *remote) way() (i peer.PathInfo, works bool) {
	if c := r.inUse(); c != nil {
		return c.info(), c.state == up
	}
	return peer.PathInfo{}, false
}

// tellMTU passes on a path's MTU where it is less than the TUN's.
func (m *Mesh) tellMTU(r *remote, found int) {
	if found >= m.sizes[0] {
		found = 0
	}
	if found == r.mtu || m.cfg.PathMTU == nil {
		return
	}
	r.mtu = found
	m.cfg.PathMTU(r.node, found)
}

// tellRTT passes on a path's round trip where it is another by more than a quarter.
func (m *Mesh) tellRTT(r *remote, rtt time.Duration) {
	same := (rtt == 0) == (r.rtt == 0) && (rtt-r.rtt).Abs() <= r.rtt/4
	if same || m.cfg.PathRTT == nil {
		return
	}
	r.rtt = rtt
	m.cfg.PathRTT(r.node, rtt)
}
