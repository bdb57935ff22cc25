package tun

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

const (
	// settle is how long addresses and routes must be quiet before a change counts
	// as over: a DHCP client makes several.
	settle = 300 * time.Millisecond
	// apart is the least between two changes that are told: what is told costs
	// every path a probe, and a host that runs containers changes all the time.
	apart = 2 * time.Second
	// repairEvery is how often the host is looked at for what no event tells of,
	// the firewall above all.
	repairEvery = 30 * time.Second
)

// Watch calls changed after addresses of this host's links that are up, or default
// routes, have changed, until ctx ends; its own link's do not count. It also keeps the host as
// Open made it: addresses and routes go when the link is set down and are put
// back when it is up again, and so is a firewall that was flushed. A link that is
// down stays down: somebody wants it so. Watch returns after its goroutines have
// ended.
func (h *Host) Watch(ctx context.Context, changed func()) error {
	mend := func() {
		mended, err := h.repair()
		if err != nil {
			h.log.Warn("the host is not as the overlay needs it", "link", h.cfg.Name, "err", err)
		}
		if len(mended) > 0 {
			h.log.Warn("put back what was removed from the host", "link", h.cfg.Name, "what", mended)
		}
	}
	mend()
	return watch(ctx, h.index, changed, mend)
}

// Watch calls changed after addresses of this host's links that are up, or default
// routes, have changed, until ctx ends. It needs no privilege.
func Watch(ctx context.Context, changed func()) error { return watch(ctx, 0, changed, func() {}) }

// watch tells changes of link own from those of all others.
func watch(ctx context.Context, own int, changed, mend func()) error {
	s, err := subscribe()
	if err != nil {
		return err
	}
	defer s.end()
	quietOthers, quietOwn := stoppedTimer(), stoppedTimer()
	defer quietOthers.Stop()
	defer quietOwn.Stop()
	look := time.NewTicker(repairEvery)
	defer look.Stop()
	known := outlook(own)
	var told, since time.Time // since the first event that has not been looked into
	others := func() {
		if since.IsZero() {
			since = time.Now()
		}
		quietOthers.Reset(max(min(settle, time.Until(since.Add(apart))), time.Until(told.Add(apart)), 0))
	}
	for {
		ok := true
		select {
		case <-ctx.Done():
			return ctx.Err()
		case a, open := <-s.addrs:
			switch ok = open; {
			case !ok:
			case a.LinkIndex == own:
				quietOwn.Reset(settle)
			case !a.LinkAddress.IP.IsLinkLocalUnicast():
				others()
			}
		case r, open := <-s.routes:
			switch ok = open; {
			case !ok:
			case r.LinkIndex == own && own != 0 || r.Protocol == routeProtocol:
				if r.Type == unix.RTM_DELROUTE {
					quietOwn.Reset(settle)
				}
			case isDefault(r.Route):
				others()
			}
		case l, open := <-s.links:
			switch ok = open; {
			case !ok:
			case own != 0 && int(l.Index) == own:
				quietOwn.Reset(settle)
			case l.Change&(unix.IFF_UP|unix.IFF_RUNNING) != 0 || l.Header.Type == unix.RTM_DELLINK:
				others()
			}
		case <-quietOthers.C:
			since = time.Time{}
			if now := outlook(own); now == nil || !slices.Equal(now, known) { // else a lifetime, say
				known, told = now, time.Now()
				changed()
			}
		case <-quietOwn.C:
			mend()
		case <-look.C:
			mend()
		}
		if !ok {
			return errors.New("tun: watch the host's network: the kernel ended the subscription")
		}
	}
}

// outlook lists, in order, what changes are told of: addresses of links that are up, and
// default routes, but for link own's; nil where that cannot be had. Kernels do not tell
// of the IPv4 routes that go with a link.
func outlook(own int) (all []string) {
	links, err1 := dump(netlink.LinkList)
	addrs, err2 := dump(func() ([]netlink.Addr, error) { return netlink.AddrList(nil, netlink.FAMILY_ALL) })
	routes, err3 := dump(func() ([]netlink.Route, error) {
		return netlink.RouteListFiltered(netlink.FAMILY_ALL, &netlink.Route{Table: unix.RT_TABLE_MAIN}, netlink.RT_FILTER_TABLE)
	})
	if errors.Join(err1, err2, err3) != nil {
		return nil
	}
	up := map[int]bool{}
	for _, l := range links {
		a := l.Attrs()
		up[a.Index] = a.Index != own && a.Flags&net.FlagUp != 0 && a.OperState != netlink.OperDown
	}
	for _, a := range addrs {
		if up[a.LinkIndex] && !a.IP.IsLinkLocalUnicast() {
			all = append(all, fmt.Sprint(a.LinkIndex, a.IPNet))
		}
	}
	for _, r := range routes {
		if r.LinkIndex != own && isDefault(r) {
			all = append(all, fmt.Sprint("default ", r.LinkIndex, r.Gw, r.Priority, r.MultiPath))
		}
	}
	slices.Sort(all)
	return all
}

func stoppedTimer() *time.Timer {
	t := time.NewTimer(time.Hour)
	t.Stop()
	return t
}

// subscription is what the kernel tells of the host's network.
type subscription struct {
	addrs  chan netlink.AddrUpdate
	routes chan netlink.RouteUpdate
	links  chan netlink.LinkUpdate
	done   chan struct{}
}

func subscribe() (s *subscription, err error) {
	const room = 64 // as many as one change brings
	s = &subscription{done: make(chan struct{})}
	defer func() {
		if err != nil {
			s.end()
		}
	}()
	addrs := make(chan netlink.AddrUpdate, room)
	if err := netlink.AddrSubscribe(addrs, s.done); err != nil {
		return nil, fmt.Errorf("tun: watch addresses: %w", err)
	}
	s.addrs = addrs
	routes := make(chan netlink.RouteUpdate, room)
	if err := netlink.RouteSubscribe(routes, s.done); err != nil {
		return nil, fmt.Errorf("tun: watch routes: %w", err)
	}
	s.routes = routes
	links := make(chan netlink.LinkUpdate, room)
	if err := netlink.LinkSubscribe(links, s.done); err != nil {
		return nil, fmt.Errorf("tun: watch links: %w", err)
	}
	s.links = links
	return s, nil
}

// end reads what the subscriptions still send until they have ended.
func (s *subscription) end() {
	close(s.done)
	drain(s.addrs)
	drain(s.routes)
	drain(s.links)
}

func drain[T any](c <-chan T) {
	if c == nil {
		return
	}
	for range c {
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
