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
	r := repairing{Host: h}
	err = r.locked(r.guards, r.addresses)
	if err == nil && r.added {
		err = h.awaitAddrs() // others may change routes meanwhile
	}
	if err == nil && r.up {
		err = r.locked(r.look, r.mainRoutes, r.nativeRoutes, r.peerRoutes) // last, since they need the addresses
	}
	return slices.Compact(r.mended), err
}

// repairing is a repair under way. Its steps need the Host's mutex.
type repairing struct {
	*Host
	have   map[routeKey]bool // our routes, as they were found
	up     bool              // the link is there and up
	added  bool              // addresses were missing
	mended []string
}

// locked takes steps while the Host is not closed, until one fails.
func (r *repairing) locked(steps ...func() error) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, step := range steps {
		if r.closed {
			return nil
		}
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

// note says what was put back, or could not be.
func (r *repairing) note(what string, err error) error {
	if err != nil {
		return fmt.Errorf("tun: putting back the %s of %s: %w", what, r.cfg.Name, err)
	}
	r.mended = append(r.mended, what)
	return nil
}

// guards are the firewall's table and the routes behind the TUN's.
func (r *repairing) guards() error {
	if r.firewalled {
		whole, err := hasRules(r.journal, r.index)
		if err == nil && !whole {
			err = r.note("firewall table", replaceTable(r.journal, r.index, r.natives))
		}
		if err != nil {
			return err
		}
	}
	if err := r.look(); err != nil {
		return err
	}
	for _, n := range r.nets() {
		if r.have[routeKey{n.cidr, unix.RTN_UNREACHABLE}] {
			continue
		}
		if err := r.note("unreachable route", netlink.RouteReplace(unreachable(n.cidr))); err != nil {
			return err
		}
	}
	return nil
}

// look lists the routes that are there.
func (r *repairing) look() (err error) {
	r.have, err = r.routes()
	return err
}

func (r *repairing) addresses() error {
	link, err := netlink.LinkByIndex(r.index)
	if err != nil || link.Attrs().Flags&net.FlagUp == 0 {
		return nil
	}
	r.up = true
	if r.added, err = r.addAddrs(link); err == nil && r.added {
		r.mended = append(r.mended, "addresses")
	}
	return err
}

func (r *repairing) mainRoutes() error {
	for _, n := range r.nets() {
		if r.have[routeKey{n.cidr, unix.RTN_UNICAST}] {
			continue
		}
		if err := r.note("route", netlink.RouteReplace(r.through(n.cidr, n.addr, way{}))); err != nil {
			return err
		}
	}
	return nil
}

// nativeRoutes are those by which probes of native paths go.
func (r *repairing) nativeRoutes() error {
	if len(r.natives) > 0 {
		if err := r.setProbeRule(); err != nil {
			return fmt.Errorf("tun: putting back the rule for native probes: %w", err)
		}
	}
	for a, n := range r.natives {
		_ = netlink.RouteReplace(r.over(a, native{hop: n.hop}, r.journal.probeTable())) // the LAN may be down: who probes it finds out
	}
	return nil
}

func (r *repairing) peerRoutes() error {
	for a, w := range r.ways {
		n, ok := r.netOf(a)
		p := netip.PrefixFrom(a, a.BitLen())
		if !ok || r.have[routeKey{p, unix.RTN_UNICAST}] {
			continue
		}
		if w.native != (native{}) {
			_ = netlink.RouteReplace(r.route(a, n, w)) // as for their probes
			continue
		}
		if err := r.note("route to a peer", netlink.RouteReplace(r.through(p, n.addr, w))); err != nil {
			return err
		}
	}
	return nil
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
