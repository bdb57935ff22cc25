package tun

import (
	"context"
	"fmt"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// settle is how long addresses and routes must be quiet before a change counts
// as over: a DHCP client makes several.
const settle = 300 * time.Millisecond

// Watch calls changed after addresses or default routes of this host have
// changed, until ctx ends; its own link's do not count. It returns after its
// goroutines have ended.
func (h *Host) Watch(ctx context.Context, changed func()) error {
	done := make(chan struct{})
	addrs, routes := make(chan netlink.AddrUpdate, 64), make(chan netlink.RouteUpdate, 64) // as many as one change brings
	if err := netlink.AddrSubscribe(addrs, done); err != nil {
		close(done)
		return fmt.Errorf("tun: watch addresses: %w", err)
	}
	if err := netlink.RouteSubscribe(routes, done); err != nil {
		close(done)
		drain(addrs, nil)
		return fmt.Errorf("tun: watch routes: %w", err)
	}
	defer drain(addrs, routes)
	defer close(done)
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case a, ok := <-addrs:
			if !ok {
				return fmt.Errorf("tun: watch addresses: the kernel ended the subscription")
			}
			if a.LinkIndex != h.index && !a.LinkAddress.IP.IsLinkLocalUnicast() {
				timer.Reset(settle)
			}
		case r, ok := <-routes:
			if !ok {
				return fmt.Errorf("tun: watch routes: the kernel ended the subscription")
			}
			if isDefault(r.Route) && r.LinkIndex != h.index {
				timer.Reset(settle)
			}
		case <-timer.C:
			changed()
		}
	}
}

// isDefault reports whether a route is a default route of the main table.
func isDefault(r netlink.Route) bool {
	if r.Table != unix.RT_TABLE_MAIN {
		return false
	}
	if r.Dst == nil {
		return true
	}
	ones, _ := r.Dst.Mask.Size()
	return ones == 0 && r.Dst.IP.IsUnspecified()
}

// drain reads what the subscriptions still send until they have ended.
func drain(addrs <-chan netlink.AddrUpdate, routes <-chan netlink.RouteUpdate) {
	for addrs != nil || routes != nil {
		select {
		case _, ok := <-addrs:
			if !ok {
				addrs = nil
			}
		case _, ok := <-routes:
			if !ok {
				routes = nil
			}
		}
	}
}
