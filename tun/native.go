package tun

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/meshmpi/meshmpi/internal/oneline"
)

// Native is how the kernel reaches a peer's virtual address over the LAN that both are
// on, past the TUN: at the LAN's speed, and in clear. It is there in three steps, so that
// the way is tried before anything depends on it: OpenNative lets probes pass and leads
// them there, AdmitNative lets all in that comes from a peer whose probes have proved it
// to be there, UseNative leads all that goes to it.
//
// Nothing on a LAN proves who sent a packet: what the firewall lets in is what comes
// from the peer's address on the LAN's interface with the peer's hardware address,
// which a neighbour can forge. A site has to have chosen that.

// NativePort is the UDP port of a node's virtual IPv4 address from which and to which
// neighbours probe a LAN. IANA has it unassigned.
const NativePort = 7726

const (
	// probeTable begins the number of the probes' routing table; the rest is of the
	// journal's mark, so that two daemons have two.
	probeTable = 0x4d000000
	// probePriority puts the probes' rule before the main table's, and before others'.
	probePriority = 1077
	maxLANMTU     = 9216 // bytes, of the largest jumbo frames' packets
)

// ErrNotOnLAN says that an address is not that of a neighbour on an Ethernet.
var ErrNotOnLAN = errors.New("not on a LAN of this host")

// Hop is a neighbour on a LAN.
type Hop struct {
	MTU  int // of the LAN, bytes
	link int
	name string
	addr netip.Addr // on the LAN
	mac  [6]byte

	ownAddr netip.Addr // this host's, likewise
	ownMAC  [6]byte
}

// Ends tells both ends' addresses on the LAN, as either of them sees it. Whoever stands
// between, as a router, a NAT or with forged ARP, has them see two.
func (p Hop) Ends() string {
	own, other := p.ownAddr.String()+string(p.ownMAC[:]), p.addr.String()+string(p.mac[:])
	return min(own, other) + max(own, other)
}

// native is the way over the LAN to one peer. The zero value is none.
type native struct {
	hop      Hop
	mtu      int  // bytes of a packet with which it is in use; 0: it is not
	admitted bool // for more than probes
}

// Near returns the neighbour that has an IPv4 address on a LAN of this host, if it is
// known there: something must have been sent to it lately.
func (h *Host) Near(at netip.Addr) (Hop, error) {
	at = at.Unmap()
	if !at.Is4() || !h.cfg.CIDR4.IsValid() {
		return Hop{}, fmt.Errorf("tun: %v: %w", at, ErrNotOnLAN)
	}
	routes, err := netlink.RouteGet(at.AsSlice())
	if err != nil || len(routes) != 1 || routes[0].Gw != nil || routes[0].Type != unix.RTN_UNICAST || routes[0].LinkIndex == h.index {
		return Hop{}, fmt.Errorf("tun: %v: %w", at, ErrNotOnLAN)
	}
	link, err := netlink.LinkByIndex(routes[0].LinkIndex)
	if err != nil {
		return Hop{}, fmt.Errorf("tun: %v: %w", at, err)
	}
	a := link.Attrs()
	own, ok := netip.AddrFromSlice(routes[0].Src)
	if a.EncapType != "ether" || a.Flags&net.FlagUp == 0 || a.Flags&net.FlagLoopback != 0 || len(a.HardwareAddr) != 6 || !ok || !validName(a.Name) {
		return Hop{}, fmt.Errorf("tun: %v: %w", at, ErrNotOnLAN)
	}
	neighbours, err := dump(func() ([]netlink.Neigh, error) { return netlink.NeighList(a.Index, netlink.FAMILY_V4) })
	if err != nil {
		return Hop{}, fmt.Errorf("tun: the neighbours on %s: %w", a.Name, err)
	}
	const known = unix.NUD_REACHABLE | unix.NUD_STALE | unix.NUD_DELAY | unix.NUD_PROBE | unix.NUD_PERMANENT
	for _, n := range neighbours {
		if is, ok := netip.AddrFromSlice(n.IP); ok && is.Unmap() == at && n.State&known != 0 && len(n.HardwareAddr) == 6 {
			return Hop{MTU: min(a.MTU, maxLANMTU), link: a.Index, name: a.Name, addr: at, mac: [6]byte(n.HardwareAddr),
				ownAddr: own.Unmap(), ownMAC: [6]byte(a.HardwareAddr)}, nil
		}
	}
	return Hop{}, fmt.Errorf("tun: %v: no such neighbour on %s: %w", at, a.Name, ErrNotOnLAN)
}

// probeTable follows from the owner's random mark, so that whoever undoes knows it.
func (j *journal) probeTable() int {
	n, _ := strconv.ParseUint(j.Owner[:6], 16, 24) // checked when it was read
	return probeTable | int(n)
}

// StillNear reports whether a peer to which the LAN is open is still the neighbour that
// it was: its address may be another's by now, or nobody's.
func (h *Host) StillNear(peer netip.Addr) bool {
	h.mu.Lock()
	n, ok := h.natives[peer]
	h.mu.Unlock()
	if !ok {
		return false
	}
	now, err := h.Near(n.hop.addr)
	now.MTU = n.hop.MTU
	return err == nil && now == n.hop
}

// IsTUN reports whether a link is the TUN.
func (h *Host) IsTUN(index int) bool { return index == h.index }

// OpenNative lets probes between this node's virtual address and a peer's pass over a
// LAN, and leads them there. Opening anew takes back what was open.
func (h *Host) OpenNative(peer netip.Addr, hop Hop) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if err := h.checkNative(peer); err != nil {
		return err
	}
	if err := h.closeNative(peer); err != nil {
		return fmt.Errorf("tun: native path to %v: %w", peer, err)
	}
	if err := h.openNative(peer, hop); err != nil {
		return fmt.Errorf("tun: native path to %v: %w", peer, oneline.Join(err, h.closeNative(peer)))
	}
	return nil
}

// AdmitNative lets in all that a peer sends over the LAN that is open, since it has
// proved to be there.
func (h *Host) AdmitNative(peer netip.Addr) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	n, ok := h.natives[peer]
	switch {
	case !ok || h.closed:
		return fmt.Errorf("tun: native path to %v: it is not open", peer)
	case n.admitted:
		return nil
	}
	if h.firewalled {
		if err := h.letThrough(peer, n.hop, true, "in"); err != nil {
			return fmt.Errorf("tun: native path to %v: firewall: %w", peer, err)
		}
	}
	n.admitted = true
	h.natives[peer] = n
	return nil
}

// UseNative leads all packets to a peer over the LAN that is open, each of at most mtu
// bytes; 0: through the TUN again. TCP connections live on through either change.
func (h *Host) UseNative(peer netip.Addr, mtu int) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if err := h.checkNative(peer); err != nil {
		return err
	}
	if err := h.useNative(peer, mtu); err != nil {
		return fmt.Errorf("tun: native path to %v: %w", peer, err)
	}
	return nil
}

// CloseNative takes back what OpenNative and UseNative did; it may not be open.
func (h *Host) CloseNative(peer netip.Addr) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return nil // all of it is gone
	}
	if err := h.closeNative(peer); err != nil {
		return fmt.Errorf("tun: native path to %v: %w", peer, err)
	}
	return nil
}

func (h *Host) checkNative(peer netip.Addr) error {
	switch n := h.journal.CIDR4; {
	case h.closed:
		return fmt.Errorf("tun: %s: %w", h.cfg.Name, net.ErrClosed)
	case !peer.Is4() || !n.Contains(peer):
		return fmt.Errorf("tun: %v is no IPv4 address of the overlay", peer)
	case peer == h.cfg.Addr4:
		return fmt.Errorf("tun: %v is the node's own address", peer)
	}
	return nil
}

func (h *Host) openNative(peer netip.Addr, hop Hop) error {
	if err := h.setProbeRule(); err != nil {
		return fmt.Errorf("the rule for probes: %w", err)
	}
	if err := h.loosen(hop.name); err != nil {
		return err
	}
	n := native{hop: hop}
	h.natives[peer] = n
	if h.firewalled {
		if err := h.letThrough(peer, hop, true, "probe", "out"); err != nil {
			return fmt.Errorf("firewall: %w", err)
		}
	}
	return netlink.RouteReplace(h.over(peer, n, h.journal.probeTable()))
}

func (h *Host) useNative(peer netip.Addr, mtu int) error {
	n, ok := h.natives[peer]
	if !ok {
		return errors.New("it is not open")
	}
	w := h.ways[peer]
	if w.native = n; mtu == 0 {
		w.native = native{}
	}
	w.native.mtu = mtu
	return h.setPeer(peer, w)
}

func (h *Host) closeNative(peer netip.Addr) error {
	n, ok := h.natives[peer]
	if !ok {
		return nil
	}
	if err := h.useNative(peer, 0); err != nil {
		return err // and the gap stays, or packets that still go there would be dropped
	}
	var errs []error
	if err := netlink.RouteDel(h.over(peer, native{hop: n.hop}, h.journal.probeTable())); err != nil && !errors.Is(err, unix.ESRCH) && !errors.Is(err, unix.ENETDOWN) {
		errs = append(errs, err)
	}
	if h.firewalled {
		open := []string{"probe", "out"}
		if n.admitted {
			open = append(open, "in")
		}
		if err := h.letThrough(peer, n.hop, false, open...); err != nil && !errors.Is(err, unix.ENOENT) {
			errs = append(errs, fmt.Errorf("firewall: %w", err))
		}
	}
	delete(h.natives, peer)
	return oneline.Join(errs...)
}

// over is the route to a peer over a LAN, in a table.
func (h *Host) over(peer netip.Addr, n native, table int) *netlink.Route {
	return &netlink.Route{
		Dst: ipNet(netip.PrefixFrom(peer, 32)), LinkIndex: n.hop.link, Gw: n.hop.addr.AsSlice(), Src: h.cfg.Addr4.AsSlice(),
		Table: table, Protocol: routeProtocol, MTU: n.mtu,
	}
}

// setProbeRule leads probes by a table of their own, in which they go over the LAN or
// nowhere. Somebody may have taken it away, as systemd-networkd does when it starts.
func (h *Host) setProbeRule() error {
	table := h.journal.probeTable()
	nowhere := &netlink.Route{
		Dst: ipNet(netip.PrefixFrom(netip.IPv4Unspecified(), 0)), Type: unix.RTN_UNREACHABLE, Table: table, Protocol: routeProtocol,
	}
	if err := netlink.RouteReplace(nowhere); err != nil {
		return err
	}
	if err := netlink.RuleAdd(probeRule(h.cfg.Addr4, table)); err != nil && !errors.Is(err, unix.EEXIST) {
		return err
	}
	return nil
}

// probeRule needs no mark, of which others have theirs.
func probeRule(own netip.Addr, table int) *netlink.Rule {
	r := netlink.NewRule()
	r.Family, r.Table, r.Priority = netlink.FAMILY_V4, table, probePriority
	r.Src, r.IPProto = ipNet(netip.PrefixFrom(own, 32)), unix.IPPROTO_UDP
	r.Sport, r.Dport = netlink.NewRulePortRange(NativePort, NativePort), netlink.NewRulePortRange(NativePort, NativePort)
	return r
}

// rpFilter is the file of an interface's setting, net.ipv4.conf.NAME.rp_filter.
func rpFilter(name string) string {
	return filepath.Join("/proc/sys/net/ipv4/conf", name, "rp_filter")
}

const (
	strict = "1" // only what answers would be sent to the same way is let in, RFC 3704 §2.2
	loose  = "2" // RFC 3704 §2.4
)

// loosen has the LAN's interface and the TUN let in what comes from a peer to which this
// node's own packets go the other way, as while one end alone uses the LAN. What the
// LAN's interface had is in the journal first; the TUN's setting goes with it.
func (h *Host) loosen(name string) error {
	all, err := os.ReadFile(rpFilter("all"))
	if err != nil {
		return nil // a kernel without it
	}
	tun, err := netlink.LinkByIndex(h.index) // which may have another name by now
	if err != nil {
		return err
	}
	for _, link := range []string{tun.Attrs().Name, name} {
		own, err := os.ReadFile(rpFilter(link))
		if err != nil {
			return err
		}
		was := strings.TrimSpace(string(own))
		if max(was, strings.TrimSpace(string(all))) != strict {
			continue
		}
		if _, noted := h.journal.RPFilter[link]; link == name && !noted {
			next := *h.journal
			next.RPFilter = map[string]string{link: was}
			for l, w := range h.journal.RPFilter {
				next.RPFilter[l] = w
			}
			if err := next.write(h.cfg.StateDir); err != nil {
				return err
			}
			h.journal = &next
		}
		if err := os.WriteFile(rpFilter(link), []byte(loose), 0); err != nil {
			return err
		}
	}
	return nil
}
