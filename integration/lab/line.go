package lab

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/meshmpi/meshmpi/integration/wan"
)

// mostLines is what the address plan has room for.
const mostLines = 50

// Line joins two hosts by a wire of their own, besides what their sites give them:
// a second uplink, as it were. The n-th line of a lab, from 0, has the addresses
// 198.18.(200+n).1 and .2, and is the next of each host's interfaces (eth1, …). It
// lasts until one of the hosts is powered off, whose next life has it no more.
func (l *Lab) Line(a, b *Host, link wan.Link) (at, other netip.Addr, err error) {
	if err := link.Validate(); err != nil {
		return at, other, err
	}
	l.mu.Lock()
	n := l.lines
	l.lines++
	l.mu.Unlock()
	if n >= mostLines {
		return at, other, fmt.Errorf("lab: there is no room for more than %d lines", mostLines)
	}
	name := fmt.Sprintf("line%d", n)
	at, other = netip.AddrFrom4([4]byte{198, 18, byte(200 + n), 1}), netip.AddrFrom4([4]byte{198, 18, byte(200 + n), 2})
	if err := l.wires.bridge(name, wan.DefaultMTU); err != nil {
		return at, other, err
	}
	for _, end := range []struct {
		host *Host
		wire string
		addr netip.Addr
	}{{a, name + ".near", at}, {b, name + ".far", other}} {
		if err := l.lineEnd(end.host, name, end.wire, end.addr, link.IsPlain()); err != nil {
			return at, other, fmt.Errorf("lab: %s of %s: %w", name, end.host.Name, err)
		}
	}
	if !link.IsPlain() {
		err = l.wan.set(wanRequest{Site: name, Near: name + ".near", Far: name + ".far", MTU: wan.DefaultMTU, Link: link})
	}
	return at, other, err
}

// lineEnd brings one end of a line to a host.
func (l *Lab) lineEnd(h *Host, name, wire string, addr netip.Addr, plain bool) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.net == nil {
		return errors.New("it is powered off")
	}
	h.lines++
	eth := fmt.Sprintf("eth%d", h.lines)
	bridge := ""
	if plain {
		bridge = name
	}
	return firstError(
		func() error { return cable(l.wires, wire, h.net, eth, wan.DefaultMTU) },
		func() error { return l.wires.plug(wire, bridge) },
		func() error { return l.wires.up(wire) },
		func() error { return h.net.address(eth, netip.PrefixFrom(addr, 24)) },
		func() error { return h.net.offload(eth, plain) },
	)
}
