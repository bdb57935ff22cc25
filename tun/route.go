package tun

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

const (
	// routeProtocol marks our routes ("proto 77" in ip route), so that nobody
	// takes them for an administrator's. iproute2 and the kernel leave it unused.
	routeProtocol = 77
	// unreachableMetric puts the unreachable route behind every other.
	unreachableMetric = 1 << 30
)

func ipNet(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}

// prefixOf is ipNet's inverse; it is not valid where n is not.
func prefixOf(n *net.IPNet) netip.Prefix {
	if n == nil {
		return netip.Prefix{}
	}
	addr, ok := netip.AddrFromSlice(n.IP)
	ones, bits := n.Mask.Size()
	if !ok || bits != addr.BitLen() {
		return netip.Prefix{}
	}
	return netip.PrefixFrom(addr, ones)
}

// unreachable is the route behind the CIDR's.
func unreachable(cidr netip.Prefix) *netlink.Route {
	return &netlink.Route{
		Dst: ipNet(cidr), Type: unix.RTN_UNREACHABLE, Table: unix.RT_TABLE_MAIN,
		Protocol: routeProtocol, Priority: unreachableMetric,
	}
}

// isUnreachable recognises what unreachable made.
func isUnreachable(r *netlink.Route) bool {
	return r.Type == unix.RTN_UNREACHABLE && r.Protocol == routeProtocol && r.Priority == unreachableMetric
}

// through is a route into the TUN. It asks for ECN (tcp_ecn is 2 by default:
// only if the other side asks), since the shaper marks before it drops.
func (h *Host) through(dst netip.Prefix, src netip.Addr, w way) *netlink.Route {
	r := &netlink.Route{
		Dst: ipNet(dst), LinkIndex: h.index, Src: src.AsSlice(), Table: unix.RT_TABLE_MAIN,
		Protocol: routeProtocol, Features: unix.RTAX_FEATURE_ECN, MTU: w.mtu, InitCwnd: w.window,
	}
	if src.Is4() {
		r.Scope = netlink.SCOPE_LINK
	}
	return r
}

// nets lists what is configured and what the host can do.
func (h *Host) nets() []network {
	var nets []network
	for _, n := range h.journal.nets() {
		if n.addr.Is4() || h.ipv6 {
			nets = append(nets, n)
		}
	}
	return nets
}

// setBackstop adds the unreachable routes.
func (h *Host) setBackstop() error {
	for _, n := range h.journal.nets() {
		err := netlink.RouteReplace(unreachable(n.cidr))
		switch {
		case err != nil && n.addr.Is6() && noIPv6(err):
			h.log.Debug("no unreachable route", "cidr", n.cidr, "err", err)
		case err != nil:
			return fmt.Errorf("%v: %w", n.cidr, err)
		}
	}
	return nil
}

// noIPv6 tells the errors of a kernel without IPv6.
func noIPv6(err error) bool {
	return errors.Is(err, unix.EAFNOSUPPORT) || errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.EACCES)
}

// setAddrs puts our addresses, and no other, on the link. An address that is
// there is left alone, for the TCP connections that use it.
func (h *Host) setAddrs() error {
	link, err := netlink.LinkByIndex(h.index)
	if err != nil {
		return err
	}
	have, err := dump(func() ([]netlink.Addr, error) { return netlink.AddrList(link, netlink.FAMILY_ALL) })
	if err != nil {
		return err
	}
	own := h.ownAddrs()
	for _, a := range have {
		if p := prefixOf(a.IPNet); !slices.Contains(own, p) {
			if err := netlink.AddrDel(link, &a); err != nil {
				return fmt.Errorf("removing %v: %w", p, err)
			}
		}
	}
	if _, err := h.addAddrs(link); err != nil {
		return err
	}
	if err := netlink.LinkSetUp(link); err != nil {
		return err
	}
	return h.awaitAddrs()
}

// ownAddrs lists our addresses, with their networks.
func (h *Host) ownAddrs() []netip.Prefix {
	var own []netip.Prefix
	for _, n := range h.nets() {
		own = append(own, netip.PrefixFrom(n.addr, n.cidr.Bits()))
	}
	return own
}

// addAddrs gives the link those of our addresses that it lacks, and reports
// whether there were any.
func (h *Host) addAddrs(link netlink.Link) (added bool, err error) {
	have, err := dump(func() ([]netlink.Addr, error) { return netlink.AddrList(link, netlink.FAMILY_ALL) })
	if err != nil {
		return false, err
	}
	for _, p := range h.ownAddrs() {
		if slices.ContainsFunc(have, func(a netlink.Addr) bool { return prefixOf(a.IPNet) == p }) {
			continue
		}
		a := &netlink.Addr{IPNet: ipNet(p), Flags: unix.IFA_F_NOPREFIXROUTE}
		if p.Addr().Is6() {
			a.Flags |= unix.IFA_F_NODAD
		} else {
			a.Broadcast = net.IPv4zero // none, rather than the one that netlink would make up
		}
		if err := netlink.AddrAdd(link, a); err != nil {
			return added, fmt.Errorf("%v: %w", p, err)
		}
		added = true
	}
	return added, nil
}

// awaitAddrs returns once the addresses work: the kernel makes an IPv6 address
// usable later, in a work queue, and packets to it would enter the TUN until then.
func (h *Host) awaitAddrs() error {
	const patience, pause = 5 * time.Second, time.Millisecond
	for _, n := range h.nets() {
		for deadline := time.Now().Add(patience); ; time.Sleep(pause) {
			routes, err := netlink.RouteGet(n.addr.AsSlice())
			if err == nil && len(routes) > 0 && routes[0].Type == unix.RTN_LOCAL {
				break
			}
			if time.Now().After(deadline) {
				return fmt.Errorf("%v is not usable after %v (last answer: %v)", n.addr, patience, err)
			}
		}
	}
	return nil
}

// setRoutes leads the CIDRs into the link and takes out what a predecessor knew
// of peers' paths: that is learnt afresh.
func (h *Host) setRoutes() error {
	keep := map[netip.Prefix]bool{}
	for _, n := range h.nets() {
		keep[n.cidr] = true
		if err := netlink.RouteReplace(h.through(n.cidr, n.addr, way{})); err != nil {
			return fmt.Errorf("%v: %w", n.cidr, err)
		}
	}
	filter := &netlink.Route{LinkIndex: h.index, Protocol: routeProtocol}
	routes, err := dump(func() ([]netlink.Route, error) {
		return netlink.RouteListFiltered(netlink.FAMILY_ALL, filter, netlink.RT_FILTER_OIF|netlink.RT_FILTER_PROTOCOL|netlink.RT_FILTER_TABLE)
	})
	if err != nil {
		return err
	}
	for _, r := range routes {
		// netlink's filter is a switch that stops at the first field asked for.
		if p := prefixOf(r.Dst); r.LinkIndex == h.index && r.Protocol == routeProtocol && !keep[p] {
			if err := netlink.RouteDel(&r); err != nil && !errors.Is(err, unix.ESRCH) {
				return fmt.Errorf("removing %v: %w", p, err)
			}
		}
	}
	return nil
}

// way is what TCP is told of the way to a peer beyond what holds for all.
type way struct {
	mtu    int    // bytes of a packet; 0: the TUN's
	window int    // segments; 0: the kernel's own, ten
	native native // in use: past the TUN; nothing else counts then
}

// SetPeerMTU tells the kernel that packets to these virtual addresses may be at
// most mtu bytes, by a route of their own for each, so that TCP chooses its
// segments accordingly. An mtu of 0, or one not below the TUN's own, takes that
// back. The routes hang on the TUN and go with it: that is why they need no line
// in the journal, whose fsync would hold up the caller.
func (h *Host) SetPeerMTU(addrs []netip.Addr, mtu int) error {
	const least = 68 // RFC 791 §3.2
	if mtu != 0 && mtu < least {
		return fmt.Errorf("tun: an MTU of %d bytes is less than IP's least, %d", mtu, least)
	}
	if mtu >= h.cfg.MTU {
		mtu = 0
	}
	return h.setPeers(addrs, fmt.Sprintf("MTU %d", mtu), func(w *way) { w.mtu = mtu })
}

// SetPeerWindow tells the kernel how many segments to these virtual addresses a TCP
// connection may have under way at first, and again after a pause of more than a
// time-out (RFC 5681 §4.1, RFC 6928); 0: its own ten. A connection that there is goes by
// it after its next pause, if it had as much under way before, and a new one has no more
// than the other end's first 64 KiB. It uses the routes of SetPeerMTU.
func (h *Host) SetPeerWindow(addrs []netip.Addr, segments int) error {
	if segments < 0 {
		return fmt.Errorf("tun: a window of %d segments", segments)
	}
	return h.setPeers(addrs, fmt.Sprintf("a window of %d segments", segments), func(w *way) { w.window = segments })
}

// setPeers changes what TCP is told of the ways to some peers; the error is the first
// of any of them.
func (h *Host) setPeers(addrs []netip.Addr, what string, change func(*way)) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return fmt.Errorf("tun: %s: %w", h.cfg.Name, net.ErrClosed)
	}
	var first error
	for _, a := range addrs {
		w := h.ways[a]
		change(&w)
		if err := h.setPeer(a, w); err != nil && first == nil {
			first = fmt.Errorf("tun: %s towards %v: %w", what, a, err)
		}
	}
	return first
}

// setPeer gives one address its route, or none where there is nothing to tell.
func (h *Host) setPeer(a netip.Addr, w way) error {
	if a.Is6() && !h.ipv6 {
		return nil // nothing flows there
	}
	n, ok := h.netOf(a)
	switch {
	case !ok:
		return errors.New("this is no address of the overlay")
	case a == n.addr:
		return errors.New("this is the node's own address")
	case w == h.ways[a]:
		return nil
	}
	r := h.route(a, n, w)
	if w != (way{}) {
		if err := netlink.RouteReplace(r); err != nil && !errors.Is(err, unix.ENETDOWN) { // Watch adds it when the link is up again
			return err
		}
		h.ways[a] = w
		return nil
	}
	if r = h.route(a, n, h.ways[a]); r.Gw == nil {
		r.Features, r.MTU, r.InitCwnd = 0, 0, 0
	}
	if err := netlink.RouteDel(r); err != nil && !errors.Is(err, unix.ESRCH) && !errors.Is(err, unix.ENETDOWN) {
		return err
	}
	delete(h.ways, a)
	return nil
}

// route is a peer's own.
func (h *Host) route(a netip.Addr, n network, w way) *netlink.Route {
	if w.native != (native{}) {
		return h.over(a, w.native, unix.RT_TABLE_MAIN)
	}
	return h.through(netip.PrefixFrom(a, a.BitLen()), n.addr, w)
}

// netOf returns the network that an address belongs to.
func (h *Host) netOf(a netip.Addr) (network, bool) {
	for _, n := range h.nets() {
		if n.cidr.Contains(a) {
			return n, true
		}
	}
	return network{}, false
}
