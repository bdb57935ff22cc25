package node

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync/atomic"
	"syscall"

	"github.com/meshmpi/meshmpi/mesh"
	"github.com/meshmpi/meshmpi/mesh/peer"
	"github.com/meshmpi/meshmpi/tun"
	"golang.org/x/sys/unix"
)

// NativePort is the UDP port on a node's virtual IPv4 address where it is probed over
// the LAN. IANA has it unassigned.
const NativePort = 7726

// maxNearProbe is the longest probe, that of the largest jumbo frame's packet.
const maxNearProbe = 9216

// nativeLAN is the LAN of a node as the mesh sees it: the kernel's routes and firewall,
// and a socket whose packets go over the LAN or nowhere.
type nativeLAN struct {
	host    *tun.Host
	conn    *net.UDPConn
	allowed func() bool
	alien   atomic.Uint64 // datagrams from elsewhere than the port
}

var _ mesh.LAN = (*nativeLAN)(nil)

// openNative prepares the way over the LAN for a site that chooses it; see mesh.LAN.
// Without it, which is warned of, all goes through the TUN.
func (d *daemon) openNative() *nativeLAN {
	host, ok := d.host.(*tun.Host)
	if !ok {
		return nil
	}
	l := &nativeLAN{host: host, allowed: func() bool { return d.limits.all().Native(d.id.self.Site) }}
	at := netip.AddrPortFrom(d.id.self.Addr4, NativePort)
	config := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) error { return probeSocket(c, host.ProbeMark()) }}
	conn, err := config.ListenPacket(context.Background(), "udp4", at.String())
	if err != nil {
		d.log.Warn("no native paths over the LAN", "err", err)
		d.notes.set("native", fmt.Sprintf("no native paths over the LAN: %v", err))
		return nil
	}
	l.conn = conn.(*net.UDPConn)
	return l
}

// probeSocket marks a socket's packets and has none of them cut in pieces, whatever the
// kernel believes of the way.
func probeSocket(c syscall.RawConn, mark uint32) (err error) {
	cerr := c.Control(func(fd uintptr) {
		err = errors.Join(unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_MARK, int(mark)),
			unix.SetsockoptInt(int(fd), unix.IPPROTO_IP, unix.IP_MTU_DISCOVER, unix.IP_PMTUDISC_PROBE))
	})
	return errors.Join(err, cerr)
}

// run hands to the mesh what arrives until ctx ends.
func (l *nativeLAN) run(ctx context.Context, take func(pkt []byte)) error {
	stop := context.AfterFunc(ctx, func() { l.conn.Close() })
	defer stop()
	buf := make([]byte, maxNearProbe)
	for {
		n, from, err := l.conn.ReadFromUDPAddrPort(buf)
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, net.ErrClosed):
			return fmt.Errorf("node: native probes: %w", err)
		case err != nil: // what became of an earlier one
		case from.Port() != NativePort:
			l.alien.Add(1)
		default:
			take(buf[:n])
		}
	}
}

// Allowed implements mesh.LAN.
func (l *nativeLAN) Allowed() bool { return l.allowed() }

// Open implements mesh.LAN.
func (l *nativeLAN) Open(n peer.Node, at netip.Addr) (mtu int, err error) {
	hop, err := l.host.Near(at)
	if err != nil {
		return 0, err
	}
	return hop.MTU, l.host.OpenNative(n.Addr4, hop)
}

// Use implements mesh.LAN.
func (l *nativeLAN) Use(n peer.Node, mtu int) error { return l.host.UseNative(n.Addr4, mtu) }

// Close implements mesh.LAN.
func (l *nativeLAN) Close(n peer.Node) error { return l.host.CloseNative(n.Addr4) }

// Probe implements mesh.LAN. What cannot be sent stays unanswered.
func (l *nativeLAN) Probe(n peer.Node, pkt []byte) {
	_, _ = l.conn.WriteToUDPAddrPort(pkt, netip.AddrPortFrom(n.Addr4, NativePort))
}
