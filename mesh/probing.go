package mesh

import (
	"crypto/ed25519"
	"time"

	"github.com/meshmpi/meshmpi/mesh/peer"
	"golang.zx2c4.com/wireguard/device"
)

// nodeKey authenticates the probes of a node in the directory, configured or not.
type nodeKey struct {
	key pairKey
	of  ed25519.PublicKey // the node's signing key, which the key is bound to
}

func (m *Mesh) sendPing(r *remote, o order) {
	size := 0
	if o.size > 0 {
		size = min((o.size+device.PaddingMultiple-1)&^(device.PaddingMultiple-1), m.sizes[0]) + sealOverhead // as WireGuard pads
	}
	m.sendProbe(r, o, size)
}

// sendProbe sends a ping of a length, or the shortest there is.
func (m *Mesh) sendProbe(r *remote, o order, size int) {
	_ = o.c.path.Send([][]byte{appendPing(nil, r.keyOf(o.c), m.short, o.txid, r.seq.next(), r.seq.seen, size)}) // silence is the answer to a loss
}

// probe implements sink.
func (m *Mesh) probe(pkt []byte, from *source) {
	p, err := parseProbe(pkt)
	if err != nil {
		return
	}
	rec, ok := m.cfg.Directory.ByShort(p.from)
	if !ok || !m.trusted(time.Now(), rec) {
		return
	}
	// Forgeries are dropped here, in the reader, so that they do not crowd the loop.
	if k, ok := m.bind.probeKeys.Load(p.from); ok && k.(*nodeKey).of.Equal(rec.Node.SignKey) {
		if !p.authentic(&k.(*nodeKey).key) {
			return
		}
	} else if !m.door.pings.Allow() {
		return
	}
	if len(m.events) >= probesWaiting { // captured ones, sent again and again, must not keep out what is rarer
		m.dropped.Add(1)
		return
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
		if p.ping() {
			m.pinged(now, r, p, from)
		} else {
			m.ponged(now, r, p)
		}
	})
}

// firstContact configures a peer that pings before we have talked to it, once
// the ping proves to be the peer's.
func (m *Mesh) firstContact(now time.Time, rec peer.Record, p probe) *remote {
	key, _, err := pairKeys(m.cfg.WGKey, m.cfg.Network.Root, m.cfg.Self, rec.Node)
	if err != nil {
		return nil
	}
	m.bind.probeKeys.Store(p.from, &nodeKey{key, rec.Node.SignKey}) // the next forgery costs a hash
	if !p.authentic(&key) {
		return nil
	}
	return m.configure(now, rec.Node.ID)
}

func (m *Mesh) pinged(now time.Time, r *remote, p probe, from *source) {
	if !r.seq.fresh(p) {
		m.replayed.Add(1)
		return
	}
	c := m.candidateOf(now, r, from)
	if c == nil {
		return
	}
	m.sendPong(r, c, p.txid, r.paths.pinged(now, c))
	m.serve(now, r)
}

func (m *Mesh) sendPong(r *remote, c *candidate, txid, ask uint64) {
	_ = c.path.Send([][]byte{appendPong(nil, r.keyOf(c), m.short, txid, ask)}) // the peer asks again
}

func (m *Mesh) ponged(now time.Time, r *remote, p probe) {
	c := r.paths.pong(now, p.txid, p.ask != 0)
	if c == nil {
		return
	}
	if p.ask != 0 {
		m.sendPong(r, c, p.ask, 0)
	}
	if c.rose {
		c.rose = false
		delete(r.hello.sent, c.via) // what went that way before may have got lost
		r.nextNear = now
		m.lookNear(now, r)
		m.hurryRelays()
	}
	if c == r.paths.current {
		r.ep.rtt.Store(int64(c.rtt.smoothed))
	}
	m.watchDirect(r, c)
	m.serve(now, r)
}

// candidateOf returns the path by which something came from a peer, making it
// if it is new: a NAT may show the peer at an address nobody announced.
func (m *Mesh) candidateOf(now time.Time, r *remote, from *source) *candidate {
	if from.via.relay == "" {
		return m.addDirect(now, r, from.via.addr, heard)
	}
	if c := r.paths.find(from.via); c != nil {
		return c
	}
	if l, ok := m.loop.relays[from.via.relay]; ok {
		return m.addRelayed(now, r, l.relay)
	}
	return nil
}
