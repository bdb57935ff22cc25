// Package dns answers for the overlay's names and addresses, and passes every
// other question to the servers the host used before.
//
// It exists because unmodified programs find each other by name: a node is
// `n.<domain>` and `n.<site>.<domain>`, its virtual addresses point back to
// `n.<domain>`, and the host's resolver asks here first (package
// dns/resolver sees to that).
//
// It is authoritative for the domain and for the reverse zones of both virtual
// prefixes (zone.go, reverse.go); names in them come from a Directory at the
// moment of the question, so there is nothing to reload. Everything else is
// forwarded, byte for byte, for the host's own programs alone (forward.go).
//
// It does not cache, recurse from the root, validate DNSSEC, take updates or
// transfer zones, and it is nobody's open resolver: overlay peers may ask for
// overlay names only, others get REFUSED.
package dns

import (
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"strings"
	"sync"
	"time"

	miekgdns "github.com/miekg/dns"
)

// Port is where DNS is served, on the loopback and on the virtual addresses.
const Port = 53

// Loopback is the address on which the host's own programs find the server. It
// is in 127/8, so nothing outside can reach it, and out of the way of the
// addresses that others use there (127.0.0.1 by most servers, 127.0.0.53 and
// .54 by systemd-resolved, 127.0.1.1 by Debian's hosts file and NetworkManager).
// Where it is taken, Listen tries the LoopbackTries-1 addresses after it.
func Loopback() netip.AddrPort {
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 77, 0, 53}), Port)
}

// LoopbackTries is how many consecutive addresses Listen tries for an entry in 127/8.
const LoopbackTries = 4

// Host is what the zones say of a node. Names are DNS labels in lower case; an
// invalid address means that the node has none of that family.
type Host struct {
	Name, Site   string
	Addr4, Addr6 netip.Addr
}

// Directory knows the network's nodes. It is asked on every question, by
// several goroutines, with labels in lower case; it must answer from memory.
type Directory interface {
	ByName(name string) (Host, bool)
	InSite(site, name string) (Host, bool)
	ByAddr(a netip.Addr) (Host, bool)
	HasSite(site string) bool
}

// Config says what to serve. Domain and Directory are required.
type Config struct {
	Domain    string                  // the overlay's domain, with or without a final dot
	CIDR4     netip.Prefix            // virtual IPv4 addresses, /8 or longer; zero: no IPv4 reverse zone
	CIDR6     netip.Prefix            // virtual IPv6 addresses, /16 or longer; zero: no IPv6 reverse zone
	Self      string                  // this node's name, the zones' name server
	Directory Directory               // the nodes
	Upstreams func() []netip.AddrPort // where other names go, best first, asked on every question; nil: nowhere (SERVFAIL)
	Listen    []netip.AddrPort        // UDP and TCP each; an entry in 127/8 that is taken moves on (Loopback); nil: Loopback alone
	Now       func() time.Time        // nil: time.Now
	Log       *slog.Logger            // nil: silent
}

// Server answers questions. New, Listen, Serve, in this order.
type Server struct {
	domain string // canonical: lower case, final dot
	zones  []reverseZone
	self   string
	dir    Directory
	listen []netip.AddrPort
	now    func() time.Time
	log    *slog.Logger
	fwd    *forwarder
	count  counters

	mu    sync.Mutex
	doors []*door // bound sockets, in the order of listen
}

// New validates cfg and starts nothing. Errors are one line for the user.
func New(cfg Config) (*Server, error) {
	domain := miekgdns.CanonicalName(cfg.Domain)
	if _, ok := miekgdns.IsDomainName(domain); !ok || domain == "." || strings.ContainsAny(domain, "\\ ") {
		return nil, fmt.Errorf("dns: %q cannot be the overlay's domain; use a name such as mesh.internal", cfg.Domain)
	}
	if cfg.Directory == nil {
		return nil, errors.New("dns: a Directory is required")
	}
	zones, err := reverseZones(cfg.CIDR4, cfg.CIDR6)
	if err != nil {
		return nil, err
	}
	s := &Server{
		domain: domain,
		zones:  zones,
		self:   strings.ToLower(cfg.Self),
		dir:    cfg.Directory,
		listen: cfg.Listen,
		now:    cfg.Now,
		log:    cfg.Log,
	}
	if len(s.listen) == 0 {
		s.listen = []netip.AddrPort{Loopback()}
	}
	for _, ap := range s.listen {
		if !ap.IsValid() || ap.Addr().IsUnspecified() {
			return nil, fmt.Errorf("dns: cannot listen on %s; name single addresses, for a wildcard would answer the outside", ap)
		}
	}
	if s.now == nil {
		s.now = time.Now
	}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	upstreams := cfg.Upstreams
	if upstreams == nil {
		upstreams = func() []netip.AddrPort { return nil }
	}
	s.fwd = newForwarder(upstreams, s.ours, s.now, &s.count)
	return s, nil
}

// ReverseZones returns the names of the reverse zones of both prefixes, without
// a final dot: what a split resolver has to route here beside Domain. Their
// number is at most 128 for each family.
func (s *Server) ReverseZones() []string {
	var names []string
	for _, z := range s.zones {
		names = append(names, z.names()...)
	}
	return names
}

// ours reports whether a is one of the server's own addresses: forwarding
// there would ask ourselves.
func (s *Server) ours(a netip.AddrPort) bool {
	a = netip.AddrPortFrom(a.Addr().Unmap().WithZone(""), a.Port())
	for _, own := range s.Addrs() {
		if own == a {
			return true
		}
	}
	return a.Addr().IsUnspecified()
}

// local reports whether a question from a was asked on this host: only such
// questions are forwarded.
func (s *Server) local(a netip.Addr) bool {
	if a.IsLoopback() {
		return true
	}
	for _, own := range s.listen {
		if own.Addr() == a {
			return true
		}
	}
	self, ok := s.dir.ByName(s.self)
	return ok && (self.Addr4 == a || self.Addr6 == a)
}

// overlay reports whether a may ask for overlay names: it is a virtual address
// or this host's.
func (s *Server) overlay(a netip.Addr) bool {
	for _, z := range s.zones {
		if z.prefix.Contains(a) {
			return true
		}
	}
	return s.local(a)
}
