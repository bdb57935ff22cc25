package udp

import (
	"encoding/binary"
	"net"
	"net/netip"
	"strconv"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// longCall is in bytes. Sends of more are told to Go's scheduler, so that somebody else
// may have the processor meanwhile. Shorter ones are not: the scheduler would notice a
// call of 20 µs, take the processor away and wake a thread for it, only to be asked for
// it again at once. Nor are reads, whatever they bring, which is not known before: they
// never wait, and most bring little.
const longCall = 64 << 10

// mmsghdr is struct mmsghdr of recvmmsg(2); x/sys has no name for it.
type mmsghdr struct {
	hdr unix.Msghdr
	len uint32
}

// message is a datagram, or several that the kernel is to cut apart or has joined.
type message struct {
	data    []byte
	control []byte         // of its capacity when it is received
	from    netip.AddrPort // when it is received
}

// mover receives and sends messages; a test puts something else in its place.
type mover interface {
	// receive waits for messages, at most ms, and cuts the data and control of
	// those that have come to what is in them.
	receive(c *call, ms []message) (int, error)
	// send sends messages to one address and returns how many the kernel took.
	send(c *call, ms []message, to netip.AddrPort) (int, error)
}

// call is the memory of one system call at a time.
type call struct {
	hdrs  []mmsghdr
	iovs  []unix.Iovec
	names []unix.RawSockaddrInet6 // or RawSockaddrInet4, which is shorter
	once  func(fd uintptr) bool   // do, made once
	try   func(fd uintptr)        // do, whatever comes of it

	trap  uintptr
	n     int
	long  bool
	got   int
	errno syscall.Errno
}

func newCall(most int) *call {
	c := &call{hdrs: make([]mmsghdr, most), iovs: make([]unix.Iovec, most), names: make([]unix.RawSockaddrInet6, most)}
	c.once, c.try = c.do, func(fd uintptr) { c.do(fd) }
	return c
}

// do makes the call and reports whether it need not be repeated when the socket
// is ready.
func (c *call) do(fd uintptr) bool {
	f := syscall.RawSyscall6
	if c.long {
		f = syscall.Syscall6
	}
	for {
		n, _, errno := f(c.trap, fd, uintptr(unsafe.Pointer(&c.hdrs[0])), uintptr(c.n), unix.MSG_DONTWAIT, 0, 0)
		c.got, c.errno = int(n), errno
		if errno != unix.EINTR {
			return errno != unix.EAGAIN
		}
	}
}

// set lays out message i.
func (c *call) set(i int, m message) {
	c.iovs[i] = unix.Iovec{}
	if len(m.data) > 0 {
		c.iovs[i].Base = &m.data[0]
	}
	c.iovs[i].SetLen(len(m.data))
	h := &c.hdrs[i].hdr
	*h = unix.Msghdr{Iov: &c.iovs[i]}
	h.SetIovlen(1)
	if len(m.control) > 0 {
		h.Control = &m.control[0]
	}
	h.SetControllen(len(m.control))
}

// clear lets go of what was moved.
func (c *call) clear() {
	for i := range c.n {
		c.iovs[i], c.hdrs[i].hdr = unix.Iovec{}, unix.Msghdr{}
	}
}

// kernel is a mover for a socket of the runtime's poller.
type kernel struct {
	conn syscall.RawConn
	is6  bool
}

func newKernel(conn *net.UDPConn, is6 bool) (*kernel, error) {
	rc, err := conn.SyscallConn()
	if err != nil {
		return nil, err
	}
	return &kernel{conn: rc, is6: is6}, nil
}

// receive implements mover.
func (k *kernel) receive(c *call, ms []message) (int, error) {
	for i := range ms {
		ms[i].control = ms[i].control[:cap(ms[i].control)]
		c.set(i, ms[i])
		h := &c.hdrs[i].hdr
		h.Name, h.Namelen = (*byte)(unsafe.Pointer(&c.names[i])), uint32(unsafe.Sizeof(c.names[i]))
	}
	c.trap, c.n, c.long = unix.SYS_RECVMMSG, len(ms), false
	defer c.clear()
	if err := k.conn.Read(c.once); err != nil {
		return 0, err
	}
	if c.errno != 0 {
		return 0, c.errno
	}
	for i := range c.got {
		h := &c.hdrs[i]
		ms[i].data, ms[i].control = ms[i].data[:h.len], ms[i].control[:h.hdr.Controllen]
		ms[i].from = k.address(&c.names[i])
	}
	return c.got, nil
}

// send implements mover.
func (k *kernel) send(c *call, ms []message, to netip.AddrPort) (int, error) {
	size := k.setAddress(&c.names[0], to)
	bytes := 0
	for i := range ms {
		c.set(i, ms[i])
		bytes += len(ms[i].data)
		h := &c.hdrs[i].hdr
		h.Name, h.Namelen = (*byte)(unsafe.Pointer(&c.names[0])), size
	}
	c.trap, c.n, c.long = unix.SYS_SENDMMSG, len(ms), bytes > longCall
	defer c.clear()
	// Control, not Write: a full buffer is the caller's to bear, not to be waited for.
	if err := k.conn.Control(c.try); err != nil {
		return 0, err
	}
	if c.errno != 0 {
		return 0, c.errno
	}
	return c.got, nil
}

// setAddress fills in an address of the socket's family and returns its size.
func (k *kernel) setAddress(name *unix.RawSockaddrInet6, to netip.AddrPort) uint32 {
	port := (*[2]byte)(unsafe.Pointer(&name.Port)) // in both structures at one place
	binary.BigEndian.PutUint16(port[:], to.Port())
	if !k.is6 {
		v4 := (*unix.RawSockaddrInet4)(unsafe.Pointer(name))
		v4.Family, v4.Addr = unix.AF_INET, to.Addr().Unmap().As4()
		return uint32(unsafe.Sizeof(*v4))
	}
	name.Family, name.Addr = unix.AF_INET6, to.Addr().As16()
	name.Flowinfo, name.Scope_id = 0, zone(to.Addr().Zone())
	return uint32(unsafe.Sizeof(*name))
}

// address reads one.
func (k *kernel) address(name *unix.RawSockaddrInet6) netip.AddrPort {
	port := binary.BigEndian.Uint16((*[2]byte)(unsafe.Pointer(&name.Port))[:])
	switch name.Family {
	case unix.AF_INET:
		v4 := (*unix.RawSockaddrInet4)(unsafe.Pointer(name))
		return netip.AddrPortFrom(netip.AddrFrom4(v4.Addr), port)
	case unix.AF_INET6:
		a := netip.AddrFrom16(name.Addr).Unmap()
		if name.Scope_id != 0 && a.Is6() {
			a = a.WithZone(strconv.FormatUint(uint64(name.Scope_id), 10))
		}
		return netip.AddrPortFrom(a, port)
	}
	return netip.AddrPort{}
}

// zone is the index of the interface that a link-local address names. address writes
// it as a number, which needs no look-up and holds when the interface is renamed;
// addresses from elsewhere may have the name. 0: none, or there is no such one.
func zone(name string) uint32 {
	if name == "" {
		return 0
	}
	if i, err := strconv.ParseUint(name, 10, 32); err == nil {
		return uint32(i)
	}
	ifc, err := net.InterfaceByName(name)
	if err != nil {
		return 0
	}
	return uint32(ifc.Index)
}
