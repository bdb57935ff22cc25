package dns

import (
	"strings"

	miekgdns "github.com/miekg/dns"
)

// ttl is how long answers may be kept, in seconds, negative ones too (RFC 2308
// §5): nodes come and go, and asking costs a loopback round trip.
const ttl = 5

// A finding is what the zones know of one name.
type finding struct {
	apex   string // of the zone the name lies in
	exists bool   // the name, or one below it (an empty non-terminal, RFC 8020)
	hosts  []Host // at most one; its addresses are the name's
	ptr    string // what the reverse name points to
}

// find looks name, canonical, up in the zones; ok is false for foreign names.
func (s *Server) find(name string) (f finding, ok bool) {
	if miekgdns.IsSubDomain(s.domain, name) {
		return s.findName(name), true
	}
	for _, z := range s.zones {
		addr, exact, apex, ok := z.match(name)
		if !ok {
			continue
		}
		f := finding{apex: apex}
		switch {
		case !addr.IsValid(): // never an address's name
		case !exact: // above addresses: NOERROR even if none is taken, since NXDOMAIN denies all below
			f.exists = true
		default:
			if h, ok := s.dir.ByAddr(addr); ok {
				f.exists, f.ptr = true, h.Name+"."+s.domain
			}
			f.exists = f.exists || name == apex
		}
		return f, true
	}
	return finding{}, false
}

// findName looks up a name of the forward zone.
func (s *Server) findName(name string) finding {
	f := finding{apex: s.domain}
	var h Host
	var ok bool
	switch labels := miekgdns.SplitDomainName(strings.TrimSuffix(name, s.domain)); len(labels) {
	case 0:
		f.exists = true
	case 1:
		h, ok = s.dir.ByName(labels[0])
		f.exists = ok || s.dir.HasSite(labels[0])
	case 2:
		h, ok = s.dir.InSite(labels[1], labels[0])
		f.exists = ok
	}
	if ok {
		f.hosts = []Host{h}
	}
	return f
}

// authoritative fills in m, a reply to a question of class IN in our zones.
func (s *Server) authoritative(m *miekgdns.Msg, f finding) {
	q := m.Question[0]
	m.Authoritative = true
	apex := miekgdns.CanonicalName(q.Name) == f.apex
	switch {
	case !f.exists:
		m.Rcode = miekgdns.RcodeNameError
	case apex && q.Qtype == miekgdns.TypeSOA:
		m.Answer = append(m.Answer, s.soa(q.Name))
	case apex && q.Qtype == miekgdns.TypeNS:
		m.Answer = append(m.Answer, &miekgdns.NS{Hdr: header(q.Name, miekgdns.TypeNS), Ns: s.server()})
		if h, ok := s.dir.ByName(s.self); ok {
			m.Extra = appendAddrs(m.Extra, s.server(), h, miekgdns.TypeANY)
		}
	case q.Qtype == miekgdns.TypePTR && f.ptr != "":
		m.Answer = append(m.Answer, &miekgdns.PTR{Hdr: header(q.Name, miekgdns.TypePTR), Ptr: f.ptr})
	default:
		for _, h := range f.hosts {
			m.Answer = appendAddrs(m.Answer, q.Name, h, q.Qtype)
		}
	}
	if len(m.Answer) == 0 {
		m.Ns = append(m.Ns, s.soa(f.apex))
	}
}

// appendAddrs appends h's addresses of the type asked for, TypeANY for both.
func appendAddrs(rrs []miekgdns.RR, owner string, h Host, qtype uint16) []miekgdns.RR {
	if (qtype == miekgdns.TypeA || qtype == miekgdns.TypeANY) && h.Addr4.Is4() {
		rrs = append(rrs, &miekgdns.A{Hdr: header(owner, miekgdns.TypeA), A: h.Addr4.AsSlice()})
	}
	if (qtype == miekgdns.TypeAAAA || qtype == miekgdns.TypeANY) && h.Addr6.Is6() {
		rrs = append(rrs, &miekgdns.AAAA{Hdr: header(owner, miekgdns.TypeAAAA), AAAA: h.Addr6.AsSlice()})
	}
	return rrs
}

// soa is the zone's start of authority. The serial is the time, since there
// are no transfers whose progress it would have to mark.
func (s *Server) soa(owner string) *miekgdns.SOA {
	return &miekgdns.SOA{
		Hdr:     header(owner, miekgdns.TypeSOA),
		Ns:      s.server(),
		Mbox:    "hostmaster." + s.domain,
		Serial:  uint32(s.now().Unix()),
		Refresh: ttl, Retry: ttl, Expire: ttl, Minttl: ttl,
	}
}

// server is the zones' name server: this node, for every node answers.
func (s *Server) server() string {
	if s.self == "" {
		return s.domain
	}
	return s.self + "." + s.domain
}

func header(owner string, rrtype uint16) miekgdns.RR_Header {
	return miekgdns.RR_Header{Name: owner, Rrtype: rrtype, Class: miekgdns.ClassINET, Ttl: ttl}
}
