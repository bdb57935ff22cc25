package dns

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Limits of streams.
const (
	maxConns    = 64               // connections at a time, for each address
	idleTimeout = 10 * time.Second // between questions (RFC 7766 §6.2.3)
	ioTimeout   = 5 * time.Second  // to finish reading or writing a message
)

// A door is one address's pair of sockets. Each has limits of its own, so that
// peers on a virtual address cannot crowd out the host on the loopback.
type door struct {
	addr  netip.AddrPort
	udp   *net.UDPConn
	tcp   *net.TCPListener
	conns chan struct{} // a slot for each connection; size maxConns
}

func (d *door) close() {
	d.udp.Close()
	d.tcp.Close()
}

func closeAll(doors []*door) {
	for _, d := range doors {
		d.close()
	}
}

// Listen binds UDP and TCP on every address. An address in 127/8 that is taken
// gives way to the next ones; Addrs says which was bound. A virtual address
// need not exist yet. Listen fails if an address in 127/8 or all addresses
// cannot be bound; another one that cannot is logged and left out, for the
// host's own programs do not need it.
func (s *Server) Listen() error {
	var doors []*door
	var failed error
	for _, want := range s.listen {
		d, err := open(want)
		switch {
		case err == nil:
			doors = append(doors, d)
		case want.Addr().IsLoopback():
			closeAll(doors)
			return err
		default:
			failed = err
			s.log.Warn("dns does not answer on an address", "addr", want, "err", err)
		}
	}
	if len(doors) == 0 {
		return failed
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.doors != nil {
		closeAll(doors)
		return errors.New("dns: Listen was called before")
	}
	s.doors = doors
	return nil
}

// Addrs returns the addresses bound by Listen, in the order of Config.Listen.
func (s *Server) Addrs() []netip.AddrPort {
	s.mu.Lock()
	defer s.mu.Unlock()
	addrs := make([]netip.AddrPort, len(s.doors))
	for i, d := range s.doors {
		addrs[i] = d.addr
	}
	return addrs
}

// Close unbinds what Listen bound. It is for a server that will not be served:
// Serve closes by itself.
func (s *Server) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	closeAll(s.doors)
	s.doors = nil
	return nil
}

// open binds want, or for 127/8 the first free address from want on.
func open(want netip.AddrPort) (*door, error) {
	tries := 1
	if want.Addr().Is4() && want.Addr().IsLoopback() {
		tries = LoopbackTries
	}
	at := want.Addr()
	for i := 0; ; i++ {
		d, err := bind(netip.AddrPortFrom(at, want.Port()))
		if err == nil {
			return d, nil
		}
		if i+1 < tries && errors.Is(err, unix.EADDRINUSE) {
			at = at.Next()
			continue
		}
		return nil, explain(want, tries, err)
	}
}

// explain makes a bind error one line that says what to do.
func explain(want netip.AddrPort, tries int, err error) error {
	switch {
	case errors.Is(err, unix.EADDRINUSE) && tries > 1:
		return fmt.Errorf("dns: listen on %s and the %d addresses after it: another DNS server holds port %d; make it listen on its own addresses instead of all: %w",
			want, tries-1, want.Port(), err)
	case errors.Is(err, unix.EADDRINUSE):
		return fmt.Errorf("dns: listen on %s: another DNS server holds port %d there; make it listen on its own addresses: %w", want, want.Port(), err)
	case errors.Is(err, unix.EACCES), errors.Is(err, unix.EPERM):
		return fmt.Errorf("dns: listen on %s: port %d needs root or CAP_NET_BIND_SERVICE: %w", want, want.Port(), err)
	}
	return fmt.Errorf("dns: listen on %s: %w", want, err)
}

// bind opens the pair of sockets. Port 0 lets UDP choose and TCP follow.
func bind(at netip.AddrPort) (*door, error) {
	family := "6"
	if at.Addr().Is4() {
		family = "4"
	}
	lc := net.ListenConfig{Control: freebind}
	for try := 0; ; try++ {
		pc, err := lc.ListenPacket(context.Background(), "udp"+family, at.String())
		if err != nil {
			return nil, err
		}
		udp := pc.(*net.UDPConn)
		got := netip.AddrPortFrom(at.Addr(), udp.LocalAddr().(*net.UDPAddr).AddrPort().Port())
		l, err := lc.Listen(context.Background(), "tcp"+family, got.String())
		if err == nil {
			return &door{got, udp, l.(*net.TCPListener), make(chan struct{}, maxConns)}, nil
		}
		udp.Close()
		if at.Port() != 0 || try == 10 {
			return nil, err
		}
	}
}

// freebind lets a socket bind to an address that is not there yet: a virtual
// IPv6 address is tentative for a second after it was added.
func freebind(network, _ string, rc syscall.RawConn) error {
	var err error
	ctrl := rc.Control(func(fd uintptr) {
		if network[len(network)-1] == '6' {
			err = unix.SetsockoptInt(int(fd), unix.IPPROTO_IPV6, unix.IPV6_FREEBIND, 1)
		} else {
			err = unix.SetsockoptInt(int(fd), unix.IPPROTO_IP, unix.IP_FREEBIND, 1)
		}
	})
	if ctrl != nil {
		return ctrl
	}
	return err
}

// Serve answers until ctx ends, then closes the sockets and returns nil after
// the last of its goroutines. It wants Listen to have succeeded.
func (s *Server) Serve(ctx context.Context) error {
	s.mu.Lock()
	doors := s.doors
	s.mu.Unlock()
	if len(doors) == 0 {
		return errors.New("dns: Serve without Listen")
	}
	var wg sync.WaitGroup // owns every goroutine below
	stop := context.AfterFunc(ctx, func() { s.Close() })
	defer stop()
	for _, d := range doors {
		wg.Go(func() { s.serveUDP(ctx, d, &wg) })
		wg.Go(func() { s.serveTCP(ctx, d, &wg) })
	}
	wg.Wait()
	return nil
}

// again reports whether to go on after an error of a listening socket, having
// waited long enough that a lasting one costs nothing.
func (s *Server) again(ctx context.Context, d *door, err error) bool {
	if ctx.Err() != nil || errors.Is(err, net.ErrClosed) {
		return false
	}
	s.log.Warn("dns socket error", "addr", d.addr, "err", err)
	select {
	case <-ctx.Done():
		return false
	case <-time.After(100 * time.Millisecond):
		return true
	}
}

// serveUDP reads questions; the overlay's are answered on the spot, others in
// a goroutine each, of which the forwarder bounds the number.
func (s *Server) serveUDP(ctx context.Context, d *door, wg *sync.WaitGroup) {
	buf := make([]byte, maxQuery+1)
	for {
		n, from, err := d.udp.ReadFromUDPAddrPort(buf)
		if err != nil {
			if s.again(ctx, d, err) {
				continue
			}
			return
		}
		answer, q := s.decide(buf[:n], from.Addr(), false)
		if q != nil {
			if !s.fwd.enter() {
				answer = s.rcode(q, rcodeBusy)
			} else {
				q.raw = append([]byte(nil), q.raw...)
				wg.Go(func() {
					defer s.fwd.leave()
					s.sendUDP(d, s.forward(ctx, q), from)
				})
			}
		}
		s.sendUDP(d, answer, from)
	}
}

func (s *Server) sendUDP(d *door, answer []byte, to netip.AddrPort) {
	if answer == nil {
		return
	}
	if _, err := d.udp.WriteToUDPAddrPort(answer, to); err != nil && !errors.Is(err, net.ErrClosed) {
		s.log.Debug("dns answer not sent", "to", to, "err", err)
	}
}

// serveTCP accepts connections, a goroutine each, at most maxConns at a time.
func (s *Server) serveTCP(ctx context.Context, d *door, wg *sync.WaitGroup) {
	for {
		conn, err := d.tcp.AcceptTCP()
		if err != nil {
			if s.again(ctx, d, err) {
				continue
			}
			return
		}
		select {
		case d.conns <- struct{}{}:
		default:
			s.count.tcpClosed.Add(1)
			conn.Close()
			continue
		}
		wg.Go(func() {
			defer func() { <-d.conns }()
			defer conn.Close()
			stop := context.AfterFunc(ctx, func() { conn.Close() })
			defer stop()
			s.converse(ctx, conn)
		})
	}
}

// converse answers the questions of one connection, one after another (RFC
// 7766 allows to answer them out of order, and does not ask for it).
func (s *Server) converse(ctx context.Context, conn *net.TCPConn) {
	from := conn.RemoteAddr().(*net.TCPAddr).AddrPort().Addr()
	var size [2]byte
	for {
		conn.SetReadDeadline(time.Now().Add(idleTimeout))
		if _, err := io.ReadFull(conn, size[:]); err != nil {
			return
		}
		n := int(binary.BigEndian.Uint16(size[:]))
		if n < headerLen || n > maxQuery {
			s.count.malformed.Add(1)
			return
		}
		raw := make([]byte, n)
		conn.SetReadDeadline(time.Now().Add(ioTimeout))
		if _, err := io.ReadFull(conn, raw); err != nil {
			return
		}
		answer := s.converseOnce(ctx, raw, from)
		if answer == nil {
			return
		}
		conn.SetWriteDeadline(time.Now().Add(ioTimeout))
		if _, err := conn.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(answer))), answer...)); err != nil {
			return
		}
	}
}

func (s *Server) converseOnce(ctx context.Context, raw []byte, from netip.Addr) []byte {
	answer, q := s.decide(raw, from, true)
	if q == nil {
		return answer
	}
	if !s.fwd.enter() {
		return s.rcode(q, rcodeBusy)
	}
	defer s.fwd.leave()
	return s.forward(ctx, q)
}
