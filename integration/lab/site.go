package lab

import (
	"fmt"
	"net/netip"
	"regexp"
	"time"

	"github.com/meshmpi/meshmpi/integration/wan"
)

// NAT says what stands between a site's LAN and the Internet.
type NAT uint8

// What may stand there. The first two leave hosts their public addresses, the
// others translate; a site keeps to its half for life, since its addresses do.
const (
	None           NAT = iota // public addresses, nothing filtered
	Firewalled                // public addresses, only answers come in
	PortPreserving            // one public address; a flow keeps its port if it can, whoever it goes to
	Symmetric                 // one public address and a random port for every destination
	Double                    // PortPreserving behind a carrier's PortPreserving
	UDPBlocked                // PortPreserving without UDP
	HTTPSOnly                 // PortPreserving, and nothing but TCP to port 443 goes out
	SSHOnly                   // PortPreserving, and nothing but TCP to port 22 goes out
)

var natNames = [...]string{"none", "firewalled", "port-preserving", "symmetric", "double", "udp-blocked", "https-only", "ssh-only"}

// String returns the name that ParseNAT takes.
func (n NAT) String() string {
	if int(n) < len(natNames) {
		return natNames[n]
	}
	return fmt.Sprintf("NAT(%d)", uint8(n))
}

// ParseNAT is the inverse of String.
func ParseNAT(s string) (NAT, error) {
	for i, name := range natNames {
		if s == name {
			return NAT(i), nil
		}
	}
	return 0, fmt.Errorf("lab: there is no NAT called %q: take one of %v", s, natNames)
}

// translates reports whether hosts behind it have private addresses.
func (n NAT) translates() bool { return n >= PortPreserving }

// Site describes hosts that share a LAN, and their way to the Internet.
type Site struct {
	Name       string        // a DNS label of at most 10 characters
	NAT        NAT           // None gives hosts public addresses
	Hosts      []string      // DNS labels of at most 15 characters, unique in the lab
	LAN        netip.Prefix  // IPv4, /28 or larger; zero: 192.168.(10+i).0/24, or public
	LANMTU     int           // bytes; 0: 1500
	IPv6       bool          // global IPv6 addresses besides IPv4, never translated
	WAN        wan.Link      // from the site to the Internet's core; the zero Link is forwarded by the kernel at full speed
	WANMTU     int           // bytes; 0: 1500
	UDPTimeout time.Duration // life of an idle UDP mapping, whole seconds; 0: the kernel's (30 s, 120 s once answered)
	Forwards   []Forward     // ports opened by hand in a translating router
}

// Forward sends a range of a router's public ports to one host of the site.
type Forward struct {
	Proto       string // "udp" or "tcp"
	First, Last uint16
	Host        string
}

// labelRE is a DNS label as lab names are.
var labelRE = regexp.MustCompile(`^[a-z]([a-z0-9-]*[a-z0-9])?$`)

// maxSites is what the address plan has room for.
const maxSites = 90

// plan holds a site's addresses. The core of the Internet is at .1 of the
// uplink, a carrier that translates at .3, and the site's own public address at .2.
//
//	core 198.18.i.1 ── 198.18.i.3 carrier 100.64.i.1 ── 100.64.i.2 router LAN.1 ── hosts
//	core 198.18.i.1 ── 198.18.i.2 public router 198.18.100+i.1 ── hosts
type plan struct {
	core, carrier, public netip.Addr // on the uplink 198.18.i.0/24
	carrierLAN, router    netip.Addr // on 100.64.i.0/24, behind the carrier
	lan                   netip.Prefix
	core6, uplink6        netip.Addr   // on 2001:db8:i::/64
	carrierLAN6, router6  netip.Addr   // on 2001:db8:i:f::/64
	lan6                  netip.Prefix // 2001:db8:i:1::/64
}

func planSite(i int, s Site) plan {
	b := byte(i)
	v6 := func(subnet, host byte) netip.Addr {
		return netip.AddrFrom16([16]byte{0x20, 0x01, 0x0d, 0xb8, 0, b, 0, subnet, 15: host})
	}
	p := plan{
		core:       netip.AddrFrom4([4]byte{198, 18, b, 1}),
		carrier:    netip.AddrFrom4([4]byte{198, 18, b, 3}),
		public:     netip.AddrFrom4([4]byte{198, 18, b, 2}),
		carrierLAN: netip.AddrFrom4([4]byte{100, 64, b, 1}),
		router:     netip.AddrFrom4([4]byte{100, 64, b, 2}),
		lan:        s.LAN.Masked(),
	}
	if !s.LAN.IsValid() && s.NAT.translates() {
		p.lan = netip.PrefixFrom(netip.AddrFrom4([4]byte{192, 168, 10 + b, 0}), 24)
	} else if !s.LAN.IsValid() {
		p.lan = netip.PrefixFrom(netip.AddrFrom4([4]byte{198, 18, 100 + b, 0}), 24)
	}
	if s.IPv6 {
		p.core6, p.uplink6 = v6(0, 1), v6(0, 2)
		p.carrierLAN6, p.router6 = v6(0xf, 1), v6(0xf, 2)
		p.lan6 = netip.PrefixFrom(v6(1, 0), 64)
	}
	return p
}

// lanAddr returns the n-th address of the LAN; the router has the first.
func (p plan) lanAddr(n int) netip.Addr {
	a := p.lan.Addr().As4()
	low := int(a[2])<<8 | int(a[3]) + n
	a[2], a[3] = byte(low>>8), byte(low)
	return netip.AddrFrom4(a)
}

func (p plan) lanAddr6(n int) netip.Addr {
	if !p.lan6.IsValid() {
		return netip.Addr{}
	}
	a := p.lan6.Addr().As16()
	a[15] = byte(n)
	return netip.AddrFrom16(a)
}

// firstHost is the number in the LAN of a site's first host.
const firstHost = 10

func (s Site) validate() error {
	switch {
	case len(s.Name) > 10 || !labelRE.MatchString(s.Name):
		return fmt.Errorf("lab: site name %q is not a DNS label of at most 10 characters", s.Name)
	case int(s.NAT) >= len(natNames):
		return fmt.Errorf("lab: site %s: %v is no NAT", s.Name, s.NAT)
	case s.LAN.IsValid() && (!s.LAN.Addr().Is4() || s.LAN.Bits() > 28 || s.LAN.Bits() < 16):
		return fmt.Errorf("lab: site %s: LAN %v is not IPv4 between /16 and /28", s.Name, s.LAN)
	case s.LAN.IsValid() && !s.NAT.translates():
		return fmt.Errorf("lab: site %s: a public site's LAN %v cannot be chosen", s.Name, s.LAN)
	case len(s.Hosts) > 200 || s.LAN.IsValid() && firstHost+len(s.Hosts) >= 1<<(32-s.LAN.Bits())-1:
		return fmt.Errorf("lab: site %s: %d hosts have no room in its LAN", s.Name, len(s.Hosts))
	}
	for _, f := range s.Forwards {
		if err := f.validate(s); err != nil {
			return err
		}
	}
	return s.WAN.Validate()
}

func (f Forward) validate(s Site) error {
	if !s.NAT.translates() {
		return fmt.Errorf("lab: site %s translates no addresses, so it forwards no ports", s.Name)
	}
	if f.Proto != "udp" && f.Proto != "tcp" || f.First == 0 || f.Last < f.First {
		return fmt.Errorf("lab: site %s: forward %+v is no range of udp or tcp ports", s.Name, f)
	}
	for _, h := range s.Hosts {
		if h == f.Host {
			return nil
		}
	}
	return fmt.Errorf("lab: site %s: forward to %q, which is none of its hosts", s.Name, f.Host)
}
