package tun

import (
	"fmt"
	"net"
	"net/netip"
	"slices"

	"github.com/google/nftables"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// repair puts back what is missing of what Open and SetPeer… have made, and says
// what that was. It takes nothing away and leaves alone what is there, nor does it
// set the link up. Without the link it does nothing: the device has failed then,
// which is for its reader to find out.
func (h *Host) repair() (mended []string, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return nil, nil
	}
	note := func(what string, err error) error {
		if err != nil {
			return fmt.Errorf("tun: putting back the %s of %s: %w", what, h.cfg.Name, err)
		}
		mended = append(mended, what)
		return nil
	}
	if h.firewalled {
		whole, err := hasRules(h.journal, h.index)
		if err == nil && !whole {
			err = note("firewall table", replaceTable(h.journal, h.index, h.natives))
		}
		if err != nil {
			return mended, err
		}
	}
	have, err := h.routes()
	if err != nil {
		return mended, err
	}
	for _, n := range h.nets() {
		if have[routeKey{n.cidr, unix.RTN_UNREACHABLE}] {
			continue
		}
		if err := note("unreachable route", netlink.RouteReplace(unreachable(n.cidr))); err != nil {
			return mended, err
		}
	}
	link, err := netlink.LinkByIndex(h.index)
	if err != nil || link.Attrs().Flags&net.FlagUp == 0 {
		return mended, nil
	}
	if added, err := h.addAddrs(link); err != nil {
		return mended, err
	} else if added {
		mended = append(mended, "addresses")
		if err := h.awaitAddrs(); err != nil {
			return mended, err
		}
	}
	for _, n := range h.nets() { // last, since they need the addresses
		if have[routeKey{n.cidr, unix.RTN_UNICAST}] {
			continue
		}
		if err := note("route", netlink.RouteReplace(h.through(n.cidr, n.addr, way{}))); err != nil {
			return mended, err
		}
	}
	if len(h.natives) > 0 {
		if err := h.setProbeRule(); err != nil {
			return mended, fmt.Errorf("tun: putting back the rule for native probes: %w", err)
		}
	}
	for a, n := range h.natives {
		_ = netlink.RouteReplace(h.over(a, native{hop: n.hop}, h.journal.probeTable())) // the LAN may be down: who probes it finds out
	}
	for a, w := range h.ways {
		n, ok := h.netOf(a)
		p := netip.PrefixFrom(a, a.BitLen())
		if !ok || have[routeKey{p, unix.RTN_UNICAST}] {
			continue
		}
		if w.native != (native{}) {
			_ = netlink.RouteReplace(h.route(a, n, w)) // likewise
			continue
		}
		if err := note("route to a peer", netlink.RouteReplace(h.through(p, n.addr, w))); err != nil {
			return mended, err
		}
	}
	return slices.Compact(mended), nil
}

// routeKey tells our routes apart.
type routeKey struct {
	dst netip.Prefix
	typ int
}

// routes lists those of ours that are there.
func (h *Host) routes() (map[routeKey]bool, error) {
	filter := &netlink.Route{Protocol: routeProtocol}
	list, err := dump(func() ([]netlink.Route, error) {
		return netlink.RouteListFiltered(netlink.FAMILY_ALL, filter, netlink.RT_FILTER_PROTOCOL)
	})
	if err != nil {
		return nil, fmt.Errorf("tun: listing routes: %w", err)
	}
	have := make(map[routeKey]bool, len(list))
	for _, r := range list {
		if r.LinkIndex == h.index || isUnreachable(&r) {
			have[routeKey{prefixOf(r.Dst), r.Type}] = true
		}
	}
	return have, nil
}

// hasTable reports whether the firewall's table is there and bears the journal's mark.
func hasTable(j *journal) (bool, error) {
	c, err := nftables.New()
	if err != nil {
		return false, err
	}
	chains, err := c.ListChainsOfTableFamily(nftables.TableFamilyINet)
	if err != nil {
		return false, fmt.Errorf("tun: listing firewall chains: %w", err)
	}
	return slices.ContainsFunc(chains, func(ch *nftables.Chain) bool {
		return ch.Name == ownerChain(j) && ch.Table != nil && ch.Table.Name == j.table()
	}), nil
}

// hasRules reports whether the table is there with as many rules as it was made with:
// a chain that was flushed has none. Somebody's own among them are left alone.
func hasRules(j *journal, link int) (bool, error) {
	if there, err := hasTable(j); err != nil || !there {
		return false, err
	}
	c, err := nftables.New()
	if err != nil {
		return false, err
	}
	for _, g := range guards(j, link) {
		rules, err := c.GetRules(firewallTable(j), &nftables.Chain{Name: g.chain})
		if err != nil {
			return false, fmt.Errorf("tun: listing firewall rules: %w", err)
		}
		if len(rules) < len(g.rules) {
			return false, nil
		}
	}
	return true, nil
}
