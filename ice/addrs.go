package ice

import (
	"net"
	"net/netip"
)

const (
	maxHosts   = 8 // local addresses that are told, a family
	maxServers = 4 // STUN servers that are asked, a family
)

// usable reports whether an address can be a candidate at all. Link-local ones
// cannot: they mean something else on each link.
func usable(a netip.Addr) bool {
	return a.IsGlobalUnicast() && a.Zone() == "" && !a.Is4In6()
}

// systemAddrs lists the addresses of the interfaces that are up.
func systemAddrs() ([]netip.Addr, error) {
	ifaces, err := net.Interfaces()
	if err != nil {
		return nil, err
	}
	var as []netip.Addr
	for _, i := range ifaces {
		if i.Flags&net.FlagUp == 0 || i.Flags&net.FlagLoopback != 0 {
			continue
		}
		addrs, err := i.Addrs()
		if err != nil {
			continue // the interface has just gone
		}
		for _, a := range addrs {
			if p, err := netip.ParsePrefix(a.String()); err == nil {
				as = append(as, p.Addr())
			}
		}
	}
	return as, nil
}

// hosts returns our host candidates: usable, not excluded, IPv4 first as its
// headers are smaller, and at most maxHosts a family.
func (x *ICE) hosts() ([]netip.AddrPort, error) {
	addrs, err := x.cfg.LocalAddrs()
	if err != nil {
		return nil, err
	}
	port := x.cfg.Port()
	var all []netip.AddrPort
	for _, a := range addrs {
		all = append(all, netip.AddrPortFrom(a.Unmap(), port))
	}
	return x.choose(all, maxHosts), nil
}

// servers returns the STUN servers to ask.
func (x *ICE) servers() []netip.AddrPort { return x.choose(x.cfg.Servers(), maxServers) }

// choose keeps the first limit usable ones of each family, IPv4 first, each once.
func (x *ICE) choose(all []netip.AddrPort, limit int) []netip.AddrPort {
	var families [2][]netip.AddrPort
	seen := make(map[netip.AddrPort]bool)
	for _, a := range all {
		a = unmap(a)
		f := family(a.Addr())
		if seen[a] || !usable(a.Addr()) || a.Port() == 0 || x.cfg.Exclude(a.Addr()) || len(families[f]) == limit {
			continue
		}
		seen[a] = true
		families[f] = append(families[f], a)
	}
	return append(families[0], families[1]...)
}

// family is the index of an address's family: 0 for IPv4, 1 for IPv6.
func family(a netip.Addr) int {
	if a.Is4() {
		return 0
	}
	return 1
}
