package node

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync/atomic"
	"syscall"

	"github.com/meshmpi/meshmpi/internal/oneline"
	"github.com/meshmpi/meshmpi/mesh"
	"github.com/meshmpi/meshmpi/mesh/peer"
	"github.com/meshmpi/meshmpi/tun"
	"golang.org/x/net/ipv4"
	"golang.org/x/sys/unix"
)

// maxNearProbe is the longest probe, that of the largest jumbo frame's packet.
const maxNearProbe = 9216

// nativeLAN is the LAN of a node as the mesh sees it: the kernel's routes and firewall,
// and a socket whose packets go over the LAN or nowhere.
type nativeLAN struct {
	host    *tun.Host
	conn    *net.UDPConn
	packets *ipv4.PacketConn // conn, and by which link datagrams came
	allowed func() bool
	alien   atomic.Uint64 // datagrams from elsewhere than the port
}

var _ mesh.LAN = (*nativeLAN)(nil)

// openNative prepares the way over the LAN for a site that chooses it; see mesh.LAN.
// Without it, which is warned of, all goes through the TUN.
func (d *daemon) openNative() *nativeLAN {
	host, ok := d.host.(*tun.Host)
	if !ok || d.cfg.Sealed {
		return nil
	}
	l := &nativeLAN{host: host, allowed: func() bool { return d.limits.all().Native(d.id.self.Site) }}
	at := netip.AddrPortFrom(d.id.self.Addr4, tun.NativePort)
	config := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) error { return probeSocket(c) }}
	conn, err := config.ListenPacket(context.Background(), "udp4", at.String())
	if err != nil {
		d.log.Warn("no native paths over the LAN", "err", err)
		d.notes.set("native", fmt.Sprintf("no native paths over the LAN: %v", err))
		return nil
	}
	l.conn, l.packets = conn.(*net.UDPConn), ipv4.NewPacketConn(conn)
	if err := l.packets.SetControlMessage(ipv4.FlagInterface, true); err != nil {
		d.log.Warn("native probes may come through the TUN unseen", "err", err)
	}
	return l
}

// probeSocket has none of a socket's packets cut in pieces, whatever the kernel believes
// of the way.
func probeSocket(c syscall.RawConn) (err error) {
	cerr := c.Control(func(fd uintptr) {
		err = unix.SetsockoptInt(int(fd), unix.IPPROTO_IP, unix.IP_MTU_DISCOVER, unix.IP_PMTUDISC_PROBE)
	})
	return oneline.Join(err, cerr)
}

// run hands to the mesh what arrives until ctx ends.
func (l *nativeLAN) run(ctx context.Context, take func(pkt []byte, from netip.Addr)) error {
	stop := context.AfterFunc(ctx, func() { l.conn.Close() })
	defer stop()
	buf := make([]byte, maxNearProbe)
	for {
		n, how, addr, err := l.packets.ReadFrom(buf)
		switch from, ok := addr.(*net.UDPAddr); {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, net.ErrClosed):
			return fmt.Errorf("node: native probes: %w", err)
		case err != nil: // what became of an earlier one
		case !ok || from.Port != tun.NativePort || how != nil && l.host.IsTUN(how.IfIndex):
			l.alien.Add(1)
		default:
			take(buf[:n], from.AddrPort().Addr().Unmap())
		}
	}
}

// Allowed implements mesh.LAN.
func (l *nativeLAN) Allowed() bool { return l.allowed() }

// Open implements mesh.LAN.
func (l *nativeLAN) Open(n peer.Node, at netip.Addr) (mesh.Segment, error) {
	hop, err := l.host.Near(at)
	if err != nil {
		return mesh.Segment{}, err
	}
	return mesh.Segment{MTU: hop.MTU, Ends: hop.Ends()}, l.host.OpenNative(n.Addr4, hop)
}

// Admit implements mesh.LAN.
func (l *nativeLAN) Admit(n peer.Node) error { return l.host.AdmitNative(n.Addr4) }

// Use implements mesh.LAN.
func (l *nativeLAN) Use(n peer.Node, mtu int) error { return l.host.UseNative(n.Addr4, mtu) }

// Still implements mesh.LAN.
func (l *nativeLAN) Still(n peer.Node) bool { return l.host.StillNear(n.Addr4) }

// Close implements mesh.LAN.
func (l *nativeLAN) Close(n peer.Node) error { return l.host.CloseNative(n.Addr4) }

// Probe implements mesh.LAN. What cannot be sent at once stays unanswered.
func (l *nativeLAN) Probe(n peer.Node, pkt []byte) {
	raw, err := l.conn.SyscallConn()
	if err != nil {
		return
	}
	to := &unix.SockaddrInet4{Port: tun.NativePort, Addr: n.Addr4.As4()}
	_ = raw.Write(func(fd uintptr) bool {
		_ = unix.Sendto(int(fd), pkt, unix.MSG_DONTWAIT, to)
		return true
	})
}
