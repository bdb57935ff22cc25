package tun

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// hostNet is a network that this host knows already.
type hostNet struct {
	prefix netip.Prefix
	index  int    // of the interface; 0 for none
	kind   string // "address" or "route", or the special kind of route
	table  int
	refuse bool // a route that leads nowhere
	ours   bool // an unreachable route of ours, this node's or another's
}

func (n hostNet) String() string {
	s := n.kind + " " + n.prefix.String()
	if n.index != 0 {
		if l, err := netlink.LinkByIndex(n.index); err == nil {
			s += " of " + l.Attrs().Name
		}
	}
	if n.kind != "address" && n.table != unix.RT_TABLE_MAIN {
		s += fmt.Sprintf(" (table %d)", n.table)
	}
	return s
}

// CheckOverlap reports, in one line that names the route or address, whether
// the networks overlap what this host has addresses in or routes for, in any
// table. Routes as wide as a default route do not count, nor do wider ones that
// lead nowhere. It is for joining; Open makes the same check, but knows what is
// left of this node's own network.
func CheckOverlap(cidrs ...netip.Prefix) error { return checkOverlap(0, cidrs...) }

// checkOverlap leaves out what hangs on the interface own.
func checkOverlap(own int, cidrs ...netip.Prefix) error {
	nets, err := hostNets()
	if err != nil {
		return err
	}
	for _, c := range cidrs {
		if n := overlap(nets, c, own, false); n != nil {
			return fmt.Errorf("tun: the network %v overlaps the %v on this host; remove that, or make the network with another --cidr", c, n)
		}
	}
	return nil
}

// overlap returns the first network that cidr may not be used beside. Strict
// counts routes that lead nowhere as well.
func overlap(nets []hostNet, cidr netip.Prefix, own int, strict bool) *hostNet {
	for i, n := range nets {
		switch {
		case !cidr.IsValid() || !n.prefix.Overlaps(cidr) || own != 0 && n.index == own:
		case !strict && n.refuse && (n.ours || n.prefix.Bits() < cidr.Bits()):
		default:
			return &nets[i]
		}
	}
	return nil
}

// hostNets lists the host's addresses, then its routes, without default routes.
func hostNets() ([]hostNet, error) {
	addrs, err := dump(func() ([]netlink.Addr, error) { return netlink.AddrList(nil, netlink.FAMILY_ALL) })
	if err != nil {
		return nil, fmt.Errorf("tun: listing this host's addresses: %w", err)
	}
	var nets []hostNet
	for _, a := range addrs {
		if p := prefixOf(a.IPNet); p.IsValid() {
			nets = append(nets, hostNet{prefix: p.Masked(), index: a.LinkIndex, kind: "address"})
		}
	}
	routes, err := dump(allRoutes)
	if err != nil {
		return nil, fmt.Errorf("tun: listing this host's routes: %w", err)
	}
	return append(nets, routes...), nil
}

// allRoutes lists the routes of every table. It keeps little of each, since a
// router may have a million.
func allRoutes() (nets []hostNet, err error) {
	for _, family := range []int{netlink.FAMILY_V4, netlink.FAMILY_V6} {
		err := netlink.RouteListFilteredIter(family, &netlink.Route{}, netlink.RT_FILTER_TABLE, func(r netlink.Route) bool {
			if n, ok := routeNet(&r); ok {
				nets = append(nets, n)
			}
			return true
		})
		if err != nil && !(family == netlink.FAMILY_V6 && errors.Is(err, unix.EAFNOSUPPORT)) {
			return nil, err
		}
	}
	return nets, nil
}

// routeNet reports what a route says of the host's networks, unless it says
// nothing: default routes (and the halves that VPNs make of them, and IPv6's
// global or local block as a whole), broadcast and multicast.
func routeNet(r *netlink.Route) (hostNet, bool) {
	p := prefixOf(r.Dst)
	if !p.IsValid() || p.Addr().Is4() && p.Bits() <= 1 || p.Addr().Is6() && p.Bits() <= 8 {
		return hostNet{}, false
	}
	n := hostNet{prefix: p.Masked(), index: r.LinkIndex, kind: "route", table: r.Table}
	switch r.Type {
	case unix.RTN_BROADCAST, unix.RTN_MULTICAST, unix.RTN_ANYCAST:
		return hostNet{}, false
	case unix.RTN_UNREACHABLE, unix.RTN_BLACKHOLE, unix.RTN_PROHIBIT, unix.RTN_THROW:
		n.kind, n.refuse, n.ours = "unreachable route", true, isUnreachable(r)
		n.index = 0 // IPv6 books them on lo
	}
	if len(r.MultiPath) > 0 {
		n.index = r.MultiPath[0].LinkIndex
	}
	return n, true
}

// ChooseCIDR returns the first candidate that overlaps no route or address of
// this host and that Tailscale's firewall, if it is here, would not drop.
func ChooseCIDR(candidates ...netip.Prefix) (netip.Prefix, error) {
	nets, err := hostNets()
	if err != nil {
		return netip.Prefix{}, err
	}
	tailscale := tailscaleFirewall()
	for _, c := range candidates {
		if overlap(nets, c, 0, true) == nil && !(tailscale && sharedSpace.Overlaps(c)) {
			return c, nil
		}
	}
	return netip.Prefix{}, fmt.Errorf("tun: each of %d candidate networks overlaps a route or address of this host; choose one with --cidr", len(candidates))
}

// PickCIDR4 chooses the IPv4 network of a new overlay: the first /16 that is
// free on this host of 100.80 to 100.127, then of 10.80 to 10.255, 10.0 to 10.79.
func PickCIDR4() (netip.Prefix, error) { return ChooseCIDR(candidates4()...) }

func candidates4() []netip.Prefix {
	var all []netip.Prefix
	add := func(a, b byte) { all = append(all, netip.PrefixFrom(netip.AddrFrom4([4]byte{a, b}), 16)) }
	for b := 80; b < 128; b++ {
		add(100, byte(b))
	}
	for i := range 256 {
		add(10, byte(i+80)) // low numbers are the ones that LANs use
	}
	return all
}
