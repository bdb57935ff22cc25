package tun

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/meshmpi/meshmpi/internal/oneline"
)

// undoNative takes out every way over a LAN, whoever of our predecessors made it.
func undoNative(j *journal, note func(removed bool, err error, what string)) {
	if !j.CIDR4.IsValid() {
		return
	}
	table := j.probeTable()
	rules, err := dump(func() ([]netlink.Rule, error) { return netlink.RuleList(netlink.FAMILY_V4) })
	if errors.Is(err, unix.EAFNOSUPPORT) || errors.Is(err, unix.EOPNOTSUPP) {
		err = nil // a kernel without rules has none of ours
	}
	ours := slices.ContainsFunc(rules, func(r netlink.Rule) bool { return r.Table == table && r.Priority == probePriority })
	if err == nil && ours {
		err = netlink.RuleDel(probeRule(j.Addr4, table))
	}
	note(ours, err, "rule for native probes")
	routes, err := nativeRoutes(j)
	note(false, err, "native routes")
	for _, r := range routes {
		err := netlink.RouteDel(&r)
		if errors.Is(err, unix.ESRCH) {
			err = nil
		}
		note(r.Table == unix.RT_TABLE_MAIN, err, fmt.Sprintf("native route to %v", prefixOf(r.Dst).Addr()))
	}
}

// forgetNative takes out a predecessor's ways over LANs: whether they still work is learnt
// afresh. Its other changes may stay.
func forgetNative(j *journal) error {
	var errs []error
	undoNative(j, func(_ bool, err error, what string) {
		if err != nil {
			errs = append(errs, fmt.Errorf("tun: removing the %s: %w", what, err))
		}
	})
	return oneline.Join(errs...)
}

// nativeRoutes lists the routes over LANs, and all of the probes' table.
func nativeRoutes(j *journal) ([]netlink.Route, error) {
	filter := &netlink.Route{Protocol: routeProtocol} // of all tables
	list, err := dump(func() ([]netlink.Route, error) {
		return netlink.RouteListFiltered(netlink.FAMILY_V4, filter, netlink.RT_FILTER_PROTOCOL|netlink.RT_FILTER_TABLE)
	})
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(list, func(r netlink.Route) bool {
		p := prefixOf(r.Dst)
		over := r.Table == unix.RT_TABLE_MAIN && r.Gw != nil && p.IsValid() && p.IsSingleIP() && j.CIDR4.Contains(p.Addr())
		return r.Protocol != routeProtocol || !over && r.Table != j.probeTable()
	}), nil
}

// undoFilters puts back what interfaces had, unless somebody has changed it since.
func undoFilters(j *journal, note func(removed bool, err error, what string)) {
	for name, was := range j.RPFilter {
		now, err := os.ReadFile(rpFilter(name))
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		changed := err == nil && strings.TrimSpace(string(now)) == loose
		if changed {
			err = os.WriteFile(rpFilter(name), []byte(was), 0)
		}
		note(changed, err, "rp_filter=2 of "+name)
	}
}
