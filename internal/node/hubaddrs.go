package node

import (
	"context"
	"net"
	"net/netip"
	"slices"
	"time"
)

// hubLookUp is how long the addresses of a hub's name are waited for.
const hubLookUp = 10 * time.Second

// lookElsewhere notes the addresses of both families of a hub that is known by a name.
// The control session has taken one, most often IPv6's, and it is IPv4's NAT that a STUN
// server is for. A relay that does not answer there is looked for in the other family.
func (l *links) lookElsewhere(hubAddr, relayName string, addr netip.AddrPort) {
	host, _, err := net.SplitHostPort(hubAddr)
	if _, isName := netip.ParseAddr(host); err != nil || isName == nil {
		return
	}
	ctx, cancel := context.WithTimeout(l.ctx, hubLookUp)
	defer cancel()
	ips, err := l.lookUp(ctx, "ip", host)
	if err != nil {
		l.d.log.Debug("a hub's other addresses", "hub", hubAddr, "err", err)
		return
	}
	var other netip.AddrPort
	l.mu.Lock()
	for _, ip := range ips {
		a := netip.AddrPortFrom(ip.Unmap(), addr.Port())
		l.hubs[hubAddr] = append(l.hubs[hubAddr], a)
		if !other.IsValid() && a.Addr().Is4() != addr.Addr().Is4() {
			other = a
		}
	}
	l.mu.Unlock()
	select {
	case <-time.After(relayTrial):
	case <-l.ctx.Done():
		return
	}
	l.mu.Lock()
	r := l.relays[relayName]
	silent := r != nil && r.addr == addr && !r.Bound() && !r.other.IsValid()
	if silent {
		r.other = other
	}
	l.mu.Unlock()
	if silent {
		l.lost(r)
	}
}

// stunServers lists the hubs' addresses.
func (l *links) stunServers() []netip.AddrPort {
	l.mu.Lock()
	defer l.mu.Unlock()
	var list []netip.AddrPort
	for _, at := range l.hubs {
		for _, a := range at {
			if !a.Addr().IsLoopback() {
				list = append(list, a)
			}
		}
	}
	slices.SortFunc(list, netip.AddrPort.Compare)
	return slices.Compact(list)
}
