package tun

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"

	"golang.org/x/time/rate"
	wgtun "golang.zx2c4.com/wireguard/tun"
	"gvisor.dev/gvisor/pkg/buffer"
	glog "gvisor.dev/gvisor/pkg/log"
	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/adapters/gonet"
	"gvisor.dev/gvisor/pkg/tcpip/header"
	"gvisor.dev/gvisor/pkg/tcpip/link/channel"
	"gvisor.dev/gvisor/pkg/tcpip/network/ipv4"
	"gvisor.dev/gvisor/pkg/tcpip/network/ipv6"
	"gvisor.dev/gvisor/pkg/tcpip/stack"
	gicmp "gvisor.dev/gvisor/pkg/tcpip/transport/icmp"
	gtcp "gvisor.dev/gvisor/pkg/tcpip/transport/tcp"
	gudp "gvisor.dev/gvisor/pkg/tcpip/transport/udp"
	"gvisor.dev/gvisor/pkg/waiter"
)

const (
	stackNIC   = 1
	stackBatch = 128  // packets handed over at once
	stackQueue = 4096 // packets waiting for the overlay: what TCP's windows of a few peers hold
	// The largest window offered to a peer, in bytes: 100 ms at 330 Mb/s. More would
	// be told in larger units, and gVisor rounds what it accepts down to them: more data
	// under way would end beyond a window that has become zero. Over the overlay shut
	// makes up for what gVisor then does; connections of a program to itself do not
	// come by it.
	stackRead = 65535 << 6
	// Kept unacknowledged from the start: a program that answers while it is sent more
	// is rarely held up before it reads again.
	stackUnread = 4 << 20
	stackWrite  = 16 << 20 // and the largest kept unacknowledged
	stackIdle   = 212992   // the window at first, as Linux has it
	stackMTUv6  = header.IPv6MinimumMTU
)

// Stack is a network interface with TCP/IP inside the process: a program joins
// the overlay by it without a kernel TUN, without privilege and unseen by the
// rest of its host. It is the overlay's device on one side and a network to dial
// and to listen on at the other. (wireguard's netstack hands over one packet at a
// time and keeps TCP's windows small.)
type Stack struct {
	mtu      int
	addrs    []netip.Addr
	link     *channel.Endpoint
	stack    *stack.Stack
	events   chan wgtun.Event
	small    sync.Map        // netip.Addr → int: peers whose path carries less than mtu
	anyLow   atomic.Bool     // small was ever used
	cut      fragments       // that Read has still to hand over; its caller owns them
	shut     shut            // windows that are
	ctx      context.Context // ends at Close, and Read with it
	cancel   context.CancelFunc
	turn     atomic.Pointer[turn] // of the reader
	once     sync.Once
	conns    context.Context // ends with the TCP sockets, at Leave or at Close
	endConns context.CancelFunc
	begins   sync.RWMutex // held by those who begin to listen, and by who ends conns or ctx
}

// quiet silences gVisor, which would write to the standard error of a program that has
// not asked for it, of a connection request that came twice for example.
var quiet = sync.OnceFunc(func() { glog.SetTarget(&glog.Writer{Next: io.Discard}) })

// turn is how long one Read may wait: until it is interrupted.
type turn struct {
	ctx    context.Context
	cancel context.CancelFunc
}

var _ Device = (*Stack)(nil)

// NewStack returns a stack that has the given addresses and sends everything to
// the overlay. An mtu of 0 means DefaultMTU. Close frees it.
func NewStack(addrs []netip.Addr, mtu int) (*Stack, error) {
	if mtu == 0 {
		mtu = DefaultMTU
	}
	if mtu < stackMTUv6 || mtu > 65535 {
		return nil, fmt.Errorf("tun: an MTU of %d for a userspace stack; %d to 65535 are allowed", mtu, stackMTUv6)
	}
	s := &Stack{
		mtu: mtu, addrs: addrs, link: channel.New(stackQueue, uint32(mtu), ""),
		events: make(chan wgtun.Event, 1), cut: fragments{id: rand.Uint32()},
		stack: stack.New(stack.Options{
			NetworkProtocols:   []stack.NetworkProtocolFactory{ipv4.NewProtocol, ipv6.NewProtocol},
			TransportProtocols: []stack.TransportProtocolFactory{gtcp.NewProtocol, gudp.NewProtocol, gicmp.NewProtocol4, gicmp.NewProtocol6},
			HandleLocal:        true, // a program may talk to itself
		}),
	}
	quiet()
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.conns, s.endConns = context.WithCancel(s.ctx)
	s.nextTurn()
	s.stack.SetICMPLimit(rate.Inf) // the overlay's peers are known
	if err := s.setUp(); err != nil {
		s.Close()
		return nil, err
	}
	s.events <- wgtun.EventUp
	return s, nil
}

func (s *Stack) setUp() error {
	sack, autotune := tcpip.TCPSACKEnabled(true), tcpip.TCPModerateReceiveBufferOption(true)
	read := tcpip.TCPReceiveBufferSizeRangeOption{Min: gtcp.MinBufferSize, Default: stackIdle, Max: stackRead}
	write := tcpip.TCPSendBufferSizeRangeOption{Min: gtcp.MinBufferSize, Default: stackUnread, Max: stackWrite}
	cubic := tcpip.CongestionControlOption("cubic")
	for _, o := range []tcpip.SettableTransportProtocolOption{&sack, &autotune, &read, &write, &cubic} {
		if err := s.stack.SetTransportProtocolOption(gtcp.ProtocolNumber, o); err != nil {
			return fmt.Errorf("tun: userspace stack: set %T: %s", o, err)
		}
	}
	if err := s.stack.CreateNIC(stackNIC, s.link); err != nil {
		return fmt.Errorf("tun: userspace stack: %s", err)
	}
	for _, a := range s.addrs {
		at := tcpip.ProtocolAddress{Protocol: protocolOf(a), AddressWithPrefix: tcpip.AddrFromSlice(a.AsSlice()).WithPrefix()}
		if err := s.stack.AddProtocolAddress(stackNIC, at, stack.AddressProperties{}); err != nil {
			return fmt.Errorf("tun: userspace stack: address %v: %s", a, err)
		}
		all := header.IPv6EmptySubnet
		if a.Is4() {
			all = header.IPv4EmptySubnet
		}
		s.stack.AddRoute(tcpip.Route{Destination: all, NIC: stackNIC})
	}
	return nil
}

func protocolOf(a netip.Addr) tcpip.NetworkProtocolNumber {
	if a.Is4() {
		return ipv4.ProtocolNumber
	}
	return ipv6.ProtocolNumber
}

// Name implements tun.Device.
func (s *Stack) Name() (string, error) { return "userspace", nil }

// File implements tun.Device: there is none.
func (s *Stack) File() *os.File { return nil }

// Events implements tun.Device.
func (s *Stack) Events() <-chan wgtun.Event { return s.events }

// MTU implements tun.Device.
func (s *Stack) MTU() (int, error) { return s.mtu, nil }

// BatchSize implements tun.Device.
func (s *Stack) BatchSize() int { return stackBatch }

// Read implements tun.Device: what the stack sends, into the overlay. One goroutine
// calls it.
func (s *Stack) Read(bufs [][]byte, sizes []int, offset int) (int, error) {
	n := s.cut.fill(bufs, sizes, offset, 0)
	for n == 0 {
		pkt := s.link.ReadContext(s.turn.Load().ctx)
		if pkt == nil && s.ctx.Err() != nil {
			return 0, os.ErrClosed
		}
		if pkt == nil {
			s.nextTurn()
			return 0, nil
		}
		for ; pkt != nil; pkt = s.link.Read() { // more only if it is there
			size := 0
			for _, part := range pkt.AsSlices() {
				size += copy(bufs[n][offset+size:], part)
			}
			pkt.DecRef()
			out := bufs[n][offset:][:size]
			s.shut.sent(out)
			if s.tooBig(out) {
				n = s.cut.fill(bufs, sizes, offset, n)
			} else {
				sizes[n] = size
				n++
			}
			if n == len(bufs) {
				break
			}
		}
	}
	return n, nil
}

func (s *Stack) nextTurn() {
	t := &turn{}
	t.ctx, t.cancel = context.WithCancel(s.ctx)
	s.turn.Store(t)
}

// Interrupt implements Device.
func (s *Stack) Interrupt() { s.turn.Load().cancel() }

// Write implements tun.Device: what came from the overlay. It copies.
func (s *Stack) Write(bufs [][]byte, offset int) (int, error) {
	if s.ctx.Err() != nil {
		return 0, os.ErrClosed
	}
	for _, b := range bufs {
		ip := b[offset:]
		if len(ip) == 0 || ip[0]>>4 != 4 && ip[0]>>4 != 6 {
			continue // what is no IP is nobody's
		}
		if ack := s.shut.bare(ip); ack != nil {
			s.inject(ack)
		}
		s.inject(ip)
	}
	return len(bufs), nil
}

// inject gives an IP packet to the stack. It copies.
func (s *Stack) inject(ip []byte) {
	proto := header.IPv4ProtocolNumber
	if ip[0]>>4 == 6 {
		proto = header.IPv6ProtocolNumber
	}
	pkt := stack.NewPacketBuffer(stack.PacketBufferOptions{Payload: buffer.MakeWithData(ip)})
	s.link.InjectInbound(proto, pkt)
	pkt.DecRef()
}

// Close implements tun.Device: Read ends, and every connection, of which peers hear
// nothing unless Leave came before.
func (s *Stack) Close() error {
	s.once.Do(func() {
		s.begins.Lock()
		s.cancel()
		s.begins.Unlock()
		s.stack.Destroy()
		s.link.Close()
		close(s.events)
	})
	return nil
}

// Addrs returns the stack's addresses, in the order they were given.
func (s *Stack) Addrs() []netip.Addr { return s.addrs }

// DialTCP connects to an address of the overlay.
func (s *Stack) DialTCP(ctx context.Context, to netip.AddrPort) (net.Conn, error) {
	// gVisor's Destroy resets what is there, then waits for all: for what has begun
	// in between it would wait for ever.
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	defer context.AfterFunc(s.conns, stop)()
	c, err := gonet.DialContextTCP(ctx, s.stack, full(to), protocolOf(to.Addr()))
	if err != nil {
		switch {
		case s.conns.Err() != nil:
			err = net.ErrClosed
		case ctx.Err() == nil:
			err = errnoOf(err)
		}
		return nil, fmt.Errorf("tun: dial %v: %w", to, err)
	}
	return s.conn(c), nil
}

// Dial is DialTCP for those who have a net.Dialer's kind of address: tcp, tcp4 or
// tcp6, and a literal IP.
func (s *Stack) Dial(ctx context.Context, network, addr string) (net.Conn, error) {
	switch network {
	case "tcp", "tcp4", "tcp6":
	default:
		return nil, fmt.Errorf("tun: dial %s %s: %w", network, addr, errors.ErrUnsupported)
	}
	to, err := netip.ParseAddrPort(addr)
	if err != nil {
		return nil, fmt.Errorf("tun: dial %s: %w", addr, err)
	}
	to = netip.AddrPortFrom(to.Addr().Unmap(), to.Port())
	if network == "tcp4" && !to.Addr().Is4() || network == "tcp6" && to.Addr().Is4() {
		return nil, fmt.Errorf("tun: dial %s %s: it is of the other family", network, addr)
	}
	return s.DialTCP(ctx, to)
}

// own reports whether there is something to listen to at an address, in a life of the
// stack: gVisor takes any, even while it is closed, and then waits for it for ever. So
// callers hold begins.
func (s *Stack) own(life context.Context, a netip.Addr) error {
	if life.Err() != nil {
		return net.ErrClosed
	}
	if !a.IsUnspecified() && !slices.Contains(s.addrs, a) {
		return syscall.EADDRNOTAVAIL
	}
	return nil
}

// ListenTCP accepts connections to an address of the stack; port 0 takes a free
// one.
func (s *Stack) ListenTCP(at netip.AddrPort) (net.Listener, error) {
	s.begins.RLock()
	defer s.begins.RUnlock()
	if err := s.own(s.conns, at.Addr()); err != nil {
		return nil, fmt.Errorf("tun: listen on %v: %w", at, err)
	}
	l, err := gonet.ListenTCP(s.stack, full(at), protocolOf(at.Addr()))
	if err != nil {
		return nil, fmt.Errorf("tun: listen on %v: %w", at, errnoOf(err))
	}
	return s.listener(l, at), nil
}

// ListenUDP opens a UDP socket at an address of the stack. Its datagrams may be
// fragmented on their way, as with most sockets of a kernel.
func (s *Stack) ListenUDP(at netip.AddrPort) (net.PacketConn, error) {
	s.begins.RLock()
	defer s.begins.RUnlock()
	if err := s.own(s.ctx, at.Addr()); err != nil {
		return nil, fmt.Errorf("tun: listen on udp %v: %w", at, err)
	}
	var wq waiter.Queue
	ep, err := s.stack.NewEndpoint(gudp.ProtocolNumber, protocolOf(at.Addr()), &wq)
	if err != nil {
		return nil, fmt.Errorf("tun: listen on udp %v: %w", at, errnoOf(errors.New(err.String())))
	}
	// By default gVisor forbids it, and then gives all datagrams, and the fragments of
	// those that it cuts itself, the identification 0.
	err = ep.SetSockOptInt(tcpip.MTUDiscoverOption, int(tcpip.PMTUDiscoveryDont))
	if err == nil {
		err = ep.Bind(full(at))
	}
	if err != nil {
		ep.Close()
		return nil, fmt.Errorf("tun: listen on udp %v: %w", at, errnoOf(errors.New(err.String())))
	}
	return s.packetConn(gonet.NewUDPConn(&wq, ep), at), nil
}

func full(a netip.AddrPort) tcpip.FullAddress {
	return tcpip.FullAddress{NIC: stackNIC, Addr: tcpip.AddrFromSlice(a.Addr().AsSlice()), Port: a.Port()}
}
