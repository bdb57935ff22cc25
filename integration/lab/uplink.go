package lab

import (
	"context"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/meshmpi/meshmpi/integration/wan"
)

// site is a Site that runs.
type site struct {
	Site    // NAT and WAN are guarded by mu, the rest does not change
	mu      sync.Mutex
	lab     *Lab
	plan    plan
	router  *netspace // interfaces: lan, a switch with the hosts' ports; wan
	carrier *netspace // interfaces: up, down; nil for public sites
	hosts   []*Host

	emulated bool   // an emulator has the wire; guarded by mu
	bypassed bypass // guarded by mu
}

func (s *site) lanMTU() int {
	if s.LANMTU > 0 {
		return s.LANMTU
	}
	return wan.DefaultMTU
}

func (s *site) wanMTU() int {
	if s.WANMTU > 0 {
		return s.WANMTU
	}
	return wan.DefaultMTU
}

// The ends of the site's wire, in the namespace of the wires.
func (s *site) nearEnd() string { return s.Name + ".near" }
func (s *site) farEnd() string  { return s.Name + ".far" }

// edge is the router at the near end of the wire, and its interface there.
func (s *site) edge() (n *netspace, link string) {
	if s.carrier != nil {
		return s.carrier, "up"
	}
	return s.router, "wan"
}

// build makes the site's routers and links and boots its hosts.
func (s *site) build(ctx context.Context) error {
	for _, step := range [...]func() error{s.buildRouter, s.buildWire, s.buildUplink, s.settle, s.loadRules} {
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("lab: build site %s: %w", s.Name, err)
		}
		if err := step(); err != nil {
			return err
		}
	}
	var g errgroup.Group
	for _, h := range s.hosts {
		g.Go(h.Boot)
	}
	return g.Wait()
}

func (s *site) close() {
	s.router.close()
	s.carrier.close()
}

// settle returns when the way from the site's router to the core carries packets.
func (s *site) settle() error {
	if s.carrier != nil {
		if err := s.carrier.settle("up", "down"); err != nil {
			return err
		}
	}
	return firstError(
		func() error { return s.router.settle("wan") },
		func() error { return s.lab.wires.settle(s.nearEnd(), s.farEnd()) },
		func() error { return s.lab.core.settle(s.Name) },
	)
}

// buildRouter makes the site's router with its LAN, and the carrier's router.
func (s *site) buildRouter() (err error) {
	if s.router, err = newNetspace("router of " + s.Name); err != nil {
		return err
	}
	if err := s.router.forward(); err != nil {
		return err
	}
	if err := s.router.bridge("lan", s.lanMTU()); err != nil {
		return err
	}
	lan := []netip.Prefix{netip.PrefixFrom(s.plan.lanAddr(1), s.plan.lan.Bits())}
	if s.IPv6 {
		lan = append(lan, netip.PrefixFrom(s.plan.lanAddr6(1), 64))
	}
	if err := s.router.address("lan", lan...); err != nil {
		return err
	}
	if secs := int(s.UDPTimeout / time.Second); secs > 0 {
		v := strconv.Itoa(secs)
		if err := s.router.sysctl(map[string]string{
			"netfilter.nf_conntrack_udp_timeout": v, "netfilter.nf_conntrack_udp_timeout_stream": v,
		}); err != nil {
			return err
		}
	}
	if !s.NAT.translates() {
		return nil
	}
	if s.carrier, err = newNetspace("carrier of " + s.Name); err != nil {
		return err
	}
	return s.carrier.forward()
}

// buildWire joins the site's edge to the core through the namespace of the
// wires, where a switch forwards until an emulator takes its place.
func (s *site) buildWire() error {
	edge, link := s.edge()
	wires, mtu := s.lab.wires, s.wanMTU()
	if err := cable(wires, s.nearEnd(), edge, link, mtu); err != nil {
		return err
	}
	if err := cable(wires, s.farEnd(), s.lab.core, s.Name, mtu); err != nil {
		return err
	}
	if err := wires.bridge(s.Name, mtu); err != nil {
		return err
	}
	for _, end := range [...]string{s.nearEnd(), s.farEnd()} {
		if err := wires.plug(end, s.Name); err != nil {
			return err
		}
		if err := wires.up(end); err != nil {
			return err
		}
	}
	return nil
}

// buildUplink gives both sides of the wire addresses and routes.
func (s *site) buildUplink() error {
	p, core := s.plan, s.lab.core
	slash := func(a netip.Addr, bits int) netip.Prefix {
		if !a.IsValid() {
			return netip.Prefix{}
		}
		return netip.PrefixFrom(a, bits)
	}
	if err := core.address(s.Name, slash(p.core, 24), slash(p.core6, 64)); err != nil {
		return err
	}
	if s.carrier == nil {
		return firstError(
			func() error { return s.router.address("wan", slash(p.public, 24), slash(p.uplink6, 64)) },
			func() error { return s.router.route(netip.Prefix{}, p.core) },
			func() error { return s.router.route(netip.Prefix{}, p.core6) },
			func() error { return core.route(p.lan, p.public) },
			func() error { return core.route(p.lan6, p.uplink6) },
		)
	}
	if err := cable(s.carrier, "down", s.router, "wan", s.wanMTU()); err != nil {
		return err
	}
	public := netip.PrefixFrom(p.public, 32)
	return firstError(
		func() error { return s.carrier.address("up", slash(p.carrier, 24), slash(p.uplink6, 64)) },
		func() error { return s.carrier.address("down", slash(p.carrierLAN, 24), slash(p.carrierLAN6, 64)) },
		func() error { return s.router.address("wan", slash(p.router, 24), public, slash(p.router6, 64)) },
		func() error { return s.carrier.route(netip.Prefix{}, p.core) },
		func() error { return s.carrier.route(netip.Prefix{}, p.core6) },
		func() error { return s.carrier.route(public, p.router) },
		func() error { return s.carrier.route(p.lan6, p.router6) },
		func() error { return s.router.route(netip.Prefix{}, p.carrierLAN) },
		func() error { return s.router.route(netip.Prefix{}, p.carrierLAN6) },
		func() error { return core.route(public, p.carrier) },
		func() error { return core.route(p.lan6, p.uplink6) },
	)
}

func firstError(steps ...func() error) error {
	for _, step := range steps {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

// hostAddr returns the LAN address of one of the site's hosts.
func (s *site) hostAddr(name string) netip.Addr {
	for _, h := range s.hosts {
		if h.Name == name {
			return h.Addr4
		}
	}
	return netip.Addr{}
}

// loadRules gives the routers the rules of the site's NAT. Once the site is
// built it is called with mu held.
func (s *site) loadRules() error {
	if err := s.router.load(routerRules(s.plan, s.NAT, s.Forwards, s.hostAddr)); err != nil {
		return err
	}
	if s.carrier == nil {
		return nil
	}
	return s.carrier.load(carrierRules(s.plan, s.NAT))
}

func (s *site) setNAT(nat NAT) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if int(nat) >= len(natNames) || nat.translates() != s.NAT.translates() {
		return fmt.Errorf("lab: site %s cannot change from %v to %v: its hosts' addresses would change", s.Name, s.NAT, nat)
	}
	s.NAT = nat
	return s.loadRules()
}

// setWAN replaces the link between the site and the core.
func (s *site) setWAN(link wan.Link) error {
	if err := link.Validate(); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if link.IsPlain() {
		if err := s.lab.wan.plain(s.Name); err != nil {
			return err
		}
	}
	if link.IsPlain() || !s.emulated { // an emulator changes while it runs
		if err := s.wire(link.IsPlain()); err != nil {
			return err
		}
	}
	var now bypass
	bypassed := !link.IsPlain() && s.lab.Bypasses()
	if bypassed {
		now = bypassOf(link)
	}
	// Between the two frames may come twice, and none is lost.
	if err := s.pass(bypass{s.bypassed.up || now.up, s.bypassed.down || now.down}); err != nil {
		return err
	}
	if !link.IsPlain() {
		if err := s.lab.wan.set(wanRequest{
			Site: s.Name, Near: s.nearEnd(), Far: s.farEnd(), MTU: s.wanMTU(), Link: link, Bypassed: bypassed,
		}); err != nil {
			return err
		}
	}
	if err := s.pass(now); err != nil {
		return err
	}
	s.WAN, s.emulated = link, !link.IsPlain()
	return nil
}

// bypass says in which directions of an emulated wire the kernel carries frames past the
// emulator. On the processors that it shares with all the lab's hosts a frame costs the
// emulator some 10 µs, and one that it does nothing to need not.
type bypass struct{ up, down bool }

func bypassOf(l wan.Link) bypass {
	return bypass{l.Up.IsPlain() && !l.IsPlain(), l.Down.IsPlain() && !l.IsPlain()}
}

// Bypasses reports whether the kernel carries frames past emulators in a direction that is
// plain: not each has what nft needs for that (NFT_FWD_NETDEV). Without, emulators carry
// them, too.
func (l *Lab) Bypasses() bool {
	l.probed.Do(func() {
		err := l.wires.load(wireRules("probe_", "lo", "lo", bypass{up: true}) + "delete table netdev wire_probe_\n") // no site's name
		if l.bypasses = err == nil; !l.bypasses {
			l.log.Debug("emulators carry all frames", "err", err)
		}
	})
	return l.bypasses
}

// pass sets up the bypass, which must be off where the wire is a switch.
func (s *site) pass(b bypass) error {
	if b == s.bypassed {
		return nil
	}
	if err := s.lab.wires.load(wireRules(s.Name, s.nearEnd(), s.farEnd(), b)); err != nil {
		return err
	}
	s.bypassed = b
	return nil
}

// wireRules are the firewall's for a wire, in place of those it has.
func wireRules(name, near, far string, b bypass) string {
	var r strings.Builder
	table := "netdev wire_" + strings.ReplaceAll(name, "-", "_")
	fmt.Fprintf(&r, "table %[1]s\ndelete table %[1]s\ntable %[1]s {\n", table)
	forward := func(chain, from, to string) {
		fmt.Fprintf(&r, "\tchain %s { type filter hook ingress device %q priority 0; fwd to %q; }\n", chain, from, to)
	}
	if b.up {
		forward("up", near, far)
	}
	if b.down {
		forward("down", far, near)
	}
	r.WriteString("}\n")
	return r.String()
}

// wire makes the wire one of the kernel (a switch, offloads on) or of an
// emulator, which must see frames as they are on a wire.
func (s *site) wire(plain bool) error {
	if err := s.offload(plain); err != nil {
		return err
	}
	bridge := ""
	if plain {
		bridge = s.Name
	}
	if err := s.lab.wires.plug(s.nearEnd(), bridge); err != nil {
		return err
	}
	return s.lab.wires.plug(s.farEnd(), bridge)
}

// offload switches the offloads of both routers at the ends of the wire.
func (s *site) offload(on bool) error {
	edge, link := s.edge()
	if err := edge.offload(link, on); err != nil {
		return err
	}
	return s.lab.core.offload(s.Name, on)
}
