package mesh

import (
	"context"
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"time"

	"github.com/meshmpi/meshmpi/internal/wire"
	"github.com/meshmpi/meshmpi/mesh/peer"
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

	hello      hello     // the handshake under way
	held       *injected // the peer's initiation that crossed ours
	handed     time.Time // when WireGuard last got an initiation of the peer
	waiters    map[uint64]chan time.Duration
	advertised string

	searching  bool
	searches   int // without success since the last change
	nextSearch time.Time

	tx       uint64 // counter at the last sample
	lastUsed time.Time
	mtu      int // told to PathMTU; 0: the TUN's
}

// configure returns the peer's remote, making WireGuard know it if it is new.
// It returns nil when the peer must not be talked to.
func (m *Mesh) configure(now time.Time, rec peer.Record) *remote {
	if r := m.loop.remotes[rec.Node.ID]; r != nil {
		return r
	}
	if !m.trusted(now, rec) {
		return nil
	}
	r, err := m.newRemote(now, rec.Node)
	if err != nil {
		m.log.Warn("cannot configure peer", "node", rec.Node.Name, "err", err)
		return nil
	}
	m.loop.remotes[rec.Node.ID] = r
	m.tun.know(rec.Node.Addrs())
	for _, relay := range m.loop.relays {
		m.addRelayed(now, r, relay)
	}
	m.resolveAdvertised(r, rec)
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
		sources: map[via]*source{}, waiters: map[uint64]chan time.Duration{},
		lastUsed: now, nextSearch: now,
	}
	r.paths = set{txid: rand.Uint64, sizes: m.sizes, busy: true}
	key := hex.EncodeToString(n.ID[:])
	err = m.dev.IpcSet(fmt.Sprintf("public_key=%s\nendpoint=%s\nreplace_allowed_ips=true\nallowed_ip=%s/32\nallowed_ip=%s/128\n",
		key, key, n.Addr4, n.Addr6))
	if err != nil {
		m.bind.dropEndpoint(n.ID)
		return nil, err
	}
	m.bind.probeKeys.Store(r.short, &r.probeKey)
	return r, nil
}

// forget makes WireGuard drop the peer and everything known of its paths.
func (m *Mesh) forget(r *remote) {
	delete(m.loop.remotes, r.node.ID)
	m.tun.unknow(r.node.Addrs())
	m.dev.RemovePeer(device.NoisePublicKey(r.node.ID))
	m.unregisterPaths(r, func(via) bool { return true })
	m.bind.dropEndpoint(r.node.ID)
	m.bind.probeKeys.Delete(r.short)
	m.tellMTU(r, 0)
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
	if now.Sub(r.lastUsed) > evictAfter && len(m.loop.remotes) > evictBusy {
		m.forget(r)
		return true
	}
	return false
}

// addDirect adds the path straight to an address.
func (m *Mesh) addDirect(now time.Time, r *remote, a netip.AddrPort, keep bool) *candidate {
	a = netip.AddrPortFrom(a.Addr().Unmap(), a.Port())
	if !a.IsValid() || a.Port() == 0 || m.cfg.Network.CIDR4.Contains(a.Addr()) || m.cfg.Network.CIDR6.Contains(a.Addr()) {
		return nil // never through the overlay itself
	}
	v := via{addr: a}
	c := r.paths.add(now, v, func() peer.Path { return &direct{m.bind.pair, a} })
	if c == nil {
		return nil
	}
	c.keep = c.keep || keep
	m.watch(r, c, a, &source{via: v})
	return c
}

// addRelayed adds the path through a relay.
func (m *Mesh) addRelayed(now time.Time, r *remote, relay Relay) *candidate {
	v := via{relay: relay.Name()}
	fresh := r.paths.find(v) == nil
	c := r.paths.add(now, v, func() peer.Path { return relay.Path(r.node.ID) })
	if c == nil {
		return nil
	}
	c.keep = true
	m.watch(r, c, relaySource{relay.Addr(), r.short}, &source{via: v, short: r.short, back: c.path})
	if !fresh && relay.Bound() && c.state != up {
		c.next, c.tries = now, 0
	}
	return c
}

// watch registers a candidate's source with the sockets.
func (m *Mesh) watch(r *remote, c *candidate, key any, s *source) {
	if r.sources[c.via] != nil {
		return
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
		r.ep.path.Store(nil)
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
	if c == nil {
		r.ep.path.Store(nil)
		return
	}
	if changed || r.ep.path.Load() == nil {
		r.ep.path.Store(&c.path)
		info := c.path.Info()
		m.log.Info("path", "node", r.node.Name, "kind", info.Kind, "via", info.Via, "addr", info.Remote, "works", c.state == up)
		if m.cfg.PathChanged != nil {
			m.cfg.PathChanged(r.node, info)
		}
		m.loop.changed = true
		m.wakeAt(now.Add(rememberEvery))
	}
	m.tellMTU(r, c.mtu.found)
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

func (m *Mesh) sendPing(r *remote, o order) {
	size := 0
	if o.size > 0 {
		size = min((o.size+device.PaddingMultiple-1)&^(device.PaddingMultiple-1), m.sizes[0]) + sealOverhead // as WireGuard pads
	}
	_ = o.c.path.Send([][]byte{appendPing(nil, &r.probeKey, m.short, o.txid, size)}) // silence is the answer to a loss
}

// probe implements sink.
func (m *Mesh) probe(pkt []byte, from *source) {
	p, err := parseProbe(pkt)
	if err != nil {
		return
	}
	rec, ok := m.cfg.Directory.ByShort(p.from)
	if !ok || rec.Node.ID == m.cfg.Self.ID || rec.Revoked {
		return
	}
	if key, ok := m.bind.probeKeys.Load(p.from); ok && !p.authentic(key.(*pairKey)) {
		return // here, in the reader, so that forgeries do not crowd the loop
	}
	m.post(func(now time.Time) {
		r := m.loop.remotes[rec.Node.ID]
		if r == nil {
			if r = m.firstContact(now, rec, p); r == nil {
				return
			}
		}
		if !p.authentic(&r.probeKey) {
			return
		}
		if p.typ == wire.TypePong {
			m.ponged(now, r, p)
		} else {
			m.pinged(now, r, p, from)
		}
	})
}

// firstContact configures a peer that pings before we have talked to it, once
// the ping proves to be the peer's.
func (m *Mesh) firstContact(now time.Time, rec peer.Record, p probe) *remote {
	if !m.trusted(now, rec) || !m.strangePings.AllowN(now, 1) {
		return nil
	}
	key, _, err := pairKeys(m.cfg.WGKey, m.cfg.Network.Root, m.cfg.Self, rec.Node)
	if err != nil || !p.authentic(&key) {
		return nil
	}
	return m.configure(now, rec)
}

func (m *Mesh) pinged(now time.Time, r *remote, p probe, from *source) {
	c := m.candidateOf(now, r, from)
	if c == nil {
		return
	}
	_ = c.path.Send([][]byte{appendPong(nil, &r.probeKey, m.short, p.txid, from.via.addr)})
	r.paths.hear(now, c)
	m.serve(now, r)
}

func (m *Mesh) ponged(now time.Time, r *remote, p probe) {
	c, rtt := r.paths.pong(now, p.txid)
	if c == nil {
		return
	}
	if w := r.waiters[p.txid]; w != nil {
		w <- rtt // of size 1, and a transaction is answered once
		delete(r.waiters, p.txid)
	}
	m.serve(now, r)
}

// candidateOf returns the path by which something came from a peer, making it
// if it is new: a NAT may show the peer at an address nobody announced.
func (m *Mesh) candidateOf(now time.Time, r *remote, from *source) *candidate {
	if from.via.relay == "" {
		return m.addDirect(now, r, from.via.addr, false)
	}
	if relay := m.loop.relays[from.via.relay]; relay != nil {
		return m.addRelayed(now, r, relay)
	}
	return nil
}

// resolveAdvertised tries the address a peer says it is reachable at.
func (m *Mesh) resolveAdvertised(r *remote, rec peer.Record) {
	if rec.Advertise == "" || rec.Advertise == r.advertised {
		return
	}
	r.advertised = rec.Advertise
	m.workers.Add(1)
	go func() { // ends with the look-up, at the latest with the loop's context
		defer m.workers.Done()
		ctx, cancel := context.WithTimeout(m.loop.ctx, 10*time.Second)
		defer cancel()
		addrs, err := resolve(ctx, rec.Advertise)
		if err != nil {
			m.log.Debug("advertised address", "node", rec.Node.Name, "err", err)
		}
		m.post(func(now time.Time) {
			if m.loop.remotes[rec.Node.ID] != r {
				return
			}
			for _, a := range addrs {
				m.addDirect(now, r, a, true)
			}
			m.serve(now, r)
		})
	}()
}

// resolve turns HOST:PORT into addresses.
func resolve(ctx context.Context, hostport string) ([]netip.AddrPort, error) {
	if ap, err := netip.ParseAddrPort(hostport); err == nil {
		return []netip.AddrPort{ap}, nil
	}
	host, service, err := net.SplitHostPort(hostport)
	if err != nil {
		return nil, err
	}
	port, err := net.DefaultResolver.LookupPort(ctx, "udp", service)
	if err != nil {
		return nil, err
	}
	ips, err := net.DefaultResolver.LookupNetIP(ctx, "ip", host)
	if err != nil {
		return nil, err
	}
	var addrs []netip.AddrPort
	for _, ip := range ips {
		addrs = append(addrs, netip.AddrPortFrom(ip.Unmap(), uint16(port)))
	}
	return addrs, nil
}
