// Package udp is the one UDP port of a node: a socket for IPv4 and one for
// IPv6, read and written in batches with the kernel's segmentation offloads
// (UDP GSO and GRO), which is where a user-space tunnel's speed comes from.
//
// wireguard-go's StdNetBind does the same for itself. This package exists
// because the port is shared: STUN, probes, relayed and WireGuard's datagrams
// all pass here, path-MTU probes need the don't-fragment bit, and the buffers
// and overflow counters of the sockets must be within reach. It knows nothing
// of what the datagrams mean.
package udp

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"

	"golang.org/x/sys/unix"
)

// BatchSize is the most datagrams one Read or Send moves.
const BatchSize = 128

// bufferSize is asked for in both directions, beyond the system's limit where
// we may: a second of bursts must fit while both cores are busy with ranks.
const bufferSize = 7 << 20

// Pair is a UDP port on IPv4 and IPv6. Its methods are safe for concurrent use,
// but each Reader belongs to one goroutine.
type Pair struct {
	v4, v6  *socket // either may be nil where the kernel lacks the family
	port    uint16
	dropped atomic.Uint64
}

// Ports is an inclusive range of UDP ports to choose from. The zero value lets
// the kernel choose.
type Ports struct{ First, Last uint16 }

// Listen opens the first free port of the range on both families.
func Listen(ports Ports) (*Pair, error) {
	if ports.Last < ports.First {
		return nil, fmt.Errorf("udp: port range %d-%d is empty", ports.First, ports.Last)
	}
	var err error
	for port := int(ports.First); port <= int(ports.Last); port++ {
		var p *Pair
		if p, err = listen(uint16(port)); err == nil {
			return p, nil
		}
		if !errors.Is(err, unix.EADDRINUSE) {
			return nil, err
		}
	}
	if ports.First == ports.Last {
		return nil, fmt.Errorf("udp: port %d is in use; stop what holds it (ss -lunp) or choose another with --listen", ports.First)
	}
	return nil, fmt.Errorf("udp: ports %d-%d are all in use; widen --port-range", ports.First, ports.Last)
}

func listen(port uint16) (*Pair, error) {
	// With port 0 the kernel's choice for IPv4 may be taken on IPv6.
	for try := 0; ; try++ {
		p := &Pair{}
		v4, err := open("udp4", port)
		if err != nil && !errors.Is(err, unix.EAFNOSUPPORT) {
			return nil, fmt.Errorf("udp: listen on IPv4 port %d: %w", port, err)
		}
		p.v4, p.port = v4, port
		if v4 != nil {
			p.port = v4.port
		}
		v6, err := open("udp6", p.port)
		if err != nil && !errors.Is(err, unix.EAFNOSUPPORT) && !errors.Is(err, unix.EADDRNOTAVAIL) {
			_ = p.Close()
			if port == 0 && errors.Is(err, unix.EADDRINUSE) && try < 100 {
				continue
			}
			return nil, fmt.Errorf("udp: listen on IPv6 port %d: %w", p.port, err)
		}
		p.v6 = v6
		if v6 != nil {
			p.port = v6.port
		}
		if p.v4 == nil && p.v6 == nil {
			return nil, fmt.Errorf("udp: this kernel offers neither IPv4 nor IPv6: %w", unix.EAFNOSUPPORT)
		}
		return p, nil
	}
}

// Port returns the local port.
func (p *Pair) Port() uint16 { return p.port }

// Dropped counts datagrams that could not be sent (too long for the interface,
// no route, no buffer).
func (p *Pair) Dropped() uint64 { return p.dropped.Load() }

// Overflowed counts datagrams the kernel dropped because our receive buffers
// were full (SO_RXQ_OVFL).
func (p *Pair) Overflowed() uint64 {
	var n uint64
	for _, s := range []*socket{p.v4, p.v6} {
		if s != nil {
			n += uint64(s.overflow.Load())
		}
	}
	return n
}

// Readers returns one Reader a family.
func (p *Pair) Readers() []*Reader {
	var rs []*Reader
	for _, s := range []*socket{p.v4, p.v6} {
		if s != nil {
			rs = append(rs, newReader(s))
		}
	}
	return rs
}

// Close closes both sockets; blocked Reads return net.ErrClosed.
func (p *Pair) Close() error {
	var errs []error
	for _, s := range []*socket{p.v4, p.v6} {
		if s != nil {
			errs = append(errs, s.conn.Close())
		}
	}
	return errors.Join(errs...)
}

type socket struct {
	conn     *net.UDPConn
	mover    mover
	is6      bool
	port     uint16
	gso      bool // the kernel knows segmentation on send
	plain    plain
	gro      bool
	overflow atomic.Uint32
	writers  sync.Pool // of *writer
	homes    *homes    // nil: the kernel chooses where to send from
}

func open(network string, port uint16) (*socket, error) {
	lc := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) error {
		var err error
		if cerr := c.Control(func(fd uintptr) { err = configure(int(fd), network == "udp6") }); cerr != nil {
			return cerr
		}
		return err
	}}
	pc, err := lc.ListenPacket(context.Background(), network, ":"+strconv.Itoa(int(port)))
	if err != nil {
		return nil, err
	}
	conn := pc.(*net.UDPConn)
	s := &socket{conn: conn, is6: network == "udp6", port: conn.LocalAddr().(*net.UDPAddr).AddrPort().Port()}
	if s.mover, err = newKernel(conn, s.is6); err != nil {
		conn.Close()
		return nil, err
	}
	s.writers.New = func() any { return newWriter() }
	tx, rx := offloads(conn)
	s.gso, s.gro = tx, rx
	return s, nil
}

// configure sets what a shared tunnel port needs. Only what correctness hangs
// on is an error; the rest costs speed and no more.
func configure(fd int, is6 bool) error {
	for _, o := range [...]struct{ soft, hard int }{
		{unix.SO_RCVBUF, unix.SO_RCVBUFFORCE}, {unix.SO_SNDBUF, unix.SO_SNDBUFFORCE},
	} {
		_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, o.soft, bufferSize)
		_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, o.hard, bufferSize)
	}
	_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RXQ_OVFL, 1)
	_ = unix.SetsockoptInt(fd, unix.IPPROTO_UDP, unix.UDP_GRO, 1)
	// Don't fragment, and don't believe ICMP: the mesh probes each path's MTU
	// end to end, and a forged "fragmentation needed" must not shrink it.
	if is6 {
		if err := unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_V6ONLY, 1); err != nil {
			return err
		}
		return unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_MTU_DISCOVER, unix.IPV6_PMTUDISC_PROBE)
	}
	return unix.SetsockoptInt(fd, unix.IPPROTO_IP, unix.IP_MTU_DISCOVER, unix.IP_PMTUDISC_PROBE)
}

func offloads(conn *net.UDPConn) (tx, rx bool) {
	rc, err := conn.SyscallConn()
	if err != nil {
		return false, false
	}
	if err := rc.Control(func(fd uintptr) {
		_, err := unix.GetsockoptInt(int(fd), unix.IPPROTO_UDP, unix.UDP_SEGMENT)
		tx = err == nil
		v, err := unix.GetsockoptInt(int(fd), unix.IPPROTO_UDP, unix.UDP_GRO)
		rx = err == nil && v == 1
	}); err != nil {
		return false, false
	}
	return tx, rx
}
