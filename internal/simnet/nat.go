package simnet

import (
	"net/netip"
	"time"
)

// Kind is how a router treats the datagrams between its two networks, in the
// terms of RFC 4787 §4 and §5.
type Kind uint8

// The kinds of routers. All but Symmetric keep the inside port where it is free.
const (
	Plain             Kind = iota // no translation: the inside is routed
	Cone                          // endpoint-independent mapping and filtering
	AddressRestricted             // endpoint-independent mapping, address-dependent filtering
	PortRestricted                // endpoint-independent mapping, address- and port-dependent filtering
	Symmetric                     // address- and port-dependent mapping and filtering, random ports
)

var kindNames = [...]string{"plain", "cone", "address-restricted", "port-restricted", "symmetric"}

// String returns the kind's name.
func (k Kind) String() string {
	if int(k) < len(kindNames) {
		return kindNames[k]
	}
	return "unknown"
}

// defaultIdle is RFC 4787 REQ-5's least lifetime of a mapping.
const defaultIdle = 2 * time.Minute

// maxMappings bounds a NAT's table.
const maxMappings = 16 << 10

// NATConfig describes a router.
type NATConfig struct {
	Kind    Kind
	Hairpin bool          // whether the inside reaches itself through outside addresses
	Idle    time.Duration // how long a mapping lives without outbound traffic; 0 means 2 minutes
}

// NAT is a router between two networks.
type NAT struct {
	sim             *Sim
	cfg             NATConfig
	inside, outside *Network
	public          netip.Addr

	// guarded by sim.mu
	out map[flow]*mapping
	in  map[uint16]*mapping
}

// flow is what gets a mapping of its own. remote is zero unless mapping depends
// on the destination.
type flow struct{ local, remote netip.AddrPort }

type mapping struct {
	flow   flow
	port   uint16 // on the public address
	used   time.Time
	allows map[netip.AddrPort]time.Time // port 0 where the filter ignores ports
}

// NAT puts a router between two networks and makes it the gateway of the
// inside one. It takes an address on both.
func (s *Sim) NAT(inside, outside *Network, cfg NATConfig) *NAT {
	if cfg.Idle == 0 {
		cfg.Idle = defaultIdle
	}
	t := &NAT{sim: s, cfg: cfg, inside: inside, outside: outside, out: make(map[flow]*mapping), in: make(map[uint16]*mapping)}
	s.mu.Lock()
	defer s.mu.Unlock()
	inside.attach(t)
	inside.gateway = t
	t.public = outside.attach(t)
	if cfg.Kind == Plain {
		outside.routes = append(outside.routes, route{inside.prefix, t})
	}
	return t
}

// Public returns the router's address on the outside network.
func (t *NAT) Public() netip.Addr { return t.public }

// arrive implements station.
func (t *NAT) arrive(n *Network, p packet) func() {
	ok := true
	next := t.outside
	switch {
	case t.cfg.Kind == Plain:
		if n == t.outside {
			next = t.inside
		}
	case n == t.outside:
		next = t.inside
		p, ok = t.inbound(p)
	case p.dst.Addr() == t.public:
		next = t.inside
		if p, ok = t.outbound(p); ok && t.cfg.Hairpin {
			p, ok = t.inbound(p)
		} else {
			ok = false
		}
	default:
		p, ok = t.outbound(p)
	}
	if !ok {
		t.sim.stats.Filtered++
		return nil
	}
	next.carry(t, p)
	return nil
}

func (t *NAT) outbound(p packet) (packet, bool) {
	now := time.Now()
	f := flow{local: p.src}
	if t.cfg.Kind == Symmetric {
		f.remote = p.dst
	}
	m := t.out[f]
	if m != nil && t.stale(m, now) {
		m = nil
	}
	if m == nil {
		if m = t.open(f, now); m == nil {
			return p, false
		}
	}
	m.used = now
	m.allows[t.filter(p.dst)] = now
	p.src = netip.AddrPortFrom(t.public, m.port)
	return p, true
}

func (t *NAT) inbound(p packet) (packet, bool) {
	now := time.Now()
	m := t.in[p.dst.Port()]
	if m == nil || t.stale(m, now) {
		return p, false
	}
	if t.cfg.Kind != Cone {
		since, ok := m.allows[t.filter(p.src)]
		if !ok || now.Sub(since) > t.cfg.Idle {
			return p, false
		}
	}
	p.dst = m.flow.local
	return p, true
}

// filter is what the NAT remembers of a remote address.
func (t *NAT) filter(remote netip.AddrPort) netip.AddrPort {
	if t.cfg.Kind == AddressRestricted {
		return netip.AddrPortFrom(remote.Addr(), 0)
	}
	return remote
}

// stale reports whether a mapping has expired, and then removes it.
func (t *NAT) stale(m *mapping, now time.Time) bool {
	if now.Sub(m.used) <= t.cfg.Idle {
		return false
	}
	delete(t.out, m.flow)
	delete(t.in, m.port)
	return true
}

func (t *NAT) open(f flow, now time.Time) *mapping {
	if len(t.in) >= maxMappings {
		return nil
	}
	port := f.local.Port()
	if t.cfg.Kind == Symmetric || t.in[port] != nil && !t.stale(t.in[port], now) {
		for port = t.random(); t.in[port] != nil; port = t.random() {
		}
	}
	m := &mapping{flow: f, port: port, used: now, allows: make(map[netip.AddrPort]time.Time)}
	t.out[f], t.in[port] = m, m
	return m
}

// random returns a port above the well-known ones.
func (t *NAT) random() uint16 { return uint16(1024 + t.sim.rng.IntN(1<<16-1024)) }
