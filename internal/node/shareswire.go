package node

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"syscall"

	"github.com/meshmpi/meshmpi/internal/oneline"
	"github.com/meshmpi/meshmpi/mesh/peer"
	"github.com/meshmpi/meshmpi/mesh/udp"
	"github.com/meshmpi/meshmpi/shaper/estimate"
	"github.com/meshmpi/meshmpi/shaper/share"
)

// SharesPort is the UDP port of the virtual IPv4 address where nodes tell each
// other what they send (package shaper/share).
const SharesPort = 7724

// listenShares opens the socket of the live shares, in the kernel or in the
// node's own stack.
func (d *daemon) listenShares() (net.PacketConn, error) {
	at := netip.AddrPortFrom(d.id.self.Addr4, SharesPort)
	if d.stack != nil {
		return d.stack.ListenUDP(at)
	}
	c, err := net.ListenUDP("udp4", net.UDPAddrFromAddrPort(at))
	if errors.Is(err, syscall.EADDRINUSE) {
		return nil, fmt.Errorf("node: live shares: UDP port %d of %s is in use; stop what listens there on every address (ss -lnup)", SharesPort, at.Addr())
	}
	if err != nil {
		return nil, fmt.Errorf("node: live shares on %s: %w", at, err)
	}
	q, err := udp.NewQuiet(c) // each look at the links ends in a read, mostly of nothing
	if err != nil {
		return nil, oneline.Join(fmt.Errorf("node: live shares on %s: %w", at, err), c.Close())
	}
	return q, nil
}

// holdShares keeps the live shares' port from others where this node shares nothing
// live: the other nodes believe what comes from it. What comes to it is not read.
func (d *daemon) holdShares() error {
	if d.shares != nil || d.cfg.Userspace {
		return nil
	}
	conn, err := d.listenShares()
	if err != nil {
		return err
	}
	d.onClose("the live shares' port", conn)
	if c, ok := conn.(*udp.Quiet); ok {
		return c.SetReadBuffer(1) // the kernel makes it its least
	}
	return nil
}

// send hands a notice to the socket. One of the machine's that is lost is repeated by it.
func (s *liveShares) send(id peer.ID, data []byte) {
	rec, ok := s.cfg.dir.ByID(id)
	if !ok || rec.Revoked {
		return
	}
	to := net.UDPAddrFromAddrPort(netip.AddrPortFrom(rec.Node.Addr4, s.cfg.port))
	if _, err := s.cfg.conn.WriteTo(data, to); err != nil {
		s.unsent.Add(1)
	}
}

// take hands a datagram to who it is for, and reports whether that may have something to do
// thereafter: a gift leaves nothing. WireGuard vouches for the node behind the address, and the port, which its
// daemon holds, for the daemon.
func (s *liveShares) take(data []byte, from net.Addr) (news bool) {
	var at netip.AddrPort
	if u, ok := from.(*net.UDPAddr); ok {
		at = u.AddrPort()
	}
	rec, ok := s.cfg.dir.ByAddr(at.Addr().Unmap())
	if !ok || rec.Revoked || at.Port() != s.cfg.port {
		s.strangers.Add(1)
		return false
	}
	var err error
	own := rec.Node.Site == s.cfg.self.Site
	gift := own && share.IsGift(data)
	switch {
	case estimate.Ours(data):
		err = s.gauge.receive(rec.Node, data)
	case gift:
		err = s.takeGift(rec.Node.ID, data)
	case own:
		err = s.m.Receive(s.now(), rec.Node.ID, data)
		s.noteHunger(rec.Node.ID)
	default:
		err = s.m.Capped(s.now(), rec.Node.ID, rec.Node.Site, data)
	}
	if err != nil {
		s.cfg.log.Debug("a notice of shares is refused", "from", rec.Node.Name, "err", err)
	}
	return !gift
}
