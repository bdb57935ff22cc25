package wan

import (
	"fmt"
	"net"
	"os"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// batch is how many frames one system call moves at most.
const batch = 32

// mmsghdr is struct mmsghdr of recvmmsg(2); x/sys has no name for it.
type mmsghdr struct {
	hdr unix.Msghdr
	len uint32
	_   [4]byte
}

// socket is a packet socket (packet(7)) on one interface with the arrays that
// recvmmsg and sendmmsg need. One thread uses it.
type socket struct {
	fd      int
	name    string
	muted   bool // guarded by Emulator.setting
	msgs    [batch]mmsghdr
	iovs    [batch]unix.Iovec
	control [batch][64]byte
}

// openSocket binds to the interface in the calling thread's network namespace.
func openSocket(name string) (*socket, error) {
	ifc, err := net.InterfaceByName(name)
	if err != nil {
		return nil, fmt.Errorf("wan: interface %s: %w", name, err)
	}
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("wan: packet socket on %s: %w", name, err)
	}
	s := &socket{fd: fd, name: name}
	for _, opt := range [...]struct{ level, name, value int }{
		{unix.SOL_PACKET, unix.PACKET_IGNORE_OUTGOING, 1},
		{unix.SOL_PACKET, unix.PACKET_QDISC_BYPASS, 1},
		{unix.SOL_SOCKET, unix.SO_TIMESTAMPNS, 1},
	} {
		if err := unix.SetsockoptInt(fd, opt.level, opt.name, opt.value); err != nil {
			s.close()
			return nil, fmt.Errorf("wan: packet socket on %s: option %d: %w", name, opt.name, err)
		}
	}
	// Without privilege over the machine the usual limit must do.
	if unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 16<<20) != nil {
		_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF, 16<<20)
	}
	all := uint16(unix.ETH_P_ALL)<<8 | uint16(unix.ETH_P_ALL)>>8
	if err := unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: all, Ifindex: ifc.Index}); err != nil {
		s.close()
		return nil, fmt.Errorf("wan: bind to %s: %w", name, err)
	}
	return s, nil
}

func (s *socket) close() { _ = unix.Close(s.fd) }

// mute has the socket receive nothing, or everything again.
func (s *socket) mute(yes bool) error {
	if yes == s.muted {
		return nil
	}
	nothing := [...]unix.SockFilter{{Code: unix.BPF_RET | unix.BPF_K}} // of each frame 0 bytes
	var err error
	if yes {
		err = unix.SetsockoptSockFprog(s.fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &unix.SockFprog{Len: 1, Filter: &nothing[0]})
	} else {
		err = unix.SetsockoptInt(s.fd, unix.SOL_SOCKET, unix.SO_DETACH_FILTER, 0)
	}
	if err != nil {
		return fmt.Errorf("wan: filter of %s: %w", s.name, err)
	}
	s.muted = yes
	return nil
}

// overruns returns how many frames the kernel dropped for want of room since
// the last call.
func (s *socket) overruns() uint64 {
	st, err := unix.GetsockoptTpacketStats(s.fd, unix.SOL_PACKET, unix.PACKET_STATISTICS)
	if err != nil {
		return 0
	}
	return uint64(st.Drops)
}

// receive fills frames (at most batch) and returns how many it filled; sizes
// and ages tell of each its length on the wire, which exceeds the buffer if the
// frame was cut, and how long ago the kernel saw it.
func (s *socket) receive(frames [][]byte, sizes []int, ages []time.Duration) int {
	for i, f := range frames {
		s.iovs[i] = unix.Iovec{Base: &f[0]}
		s.iovs[i].SetLen(len(f))
		h := &s.msgs[i].hdr
		*h = unix.Msghdr{Iov: &s.iovs[i], Control: &s.control[i][0]}
		h.SetIovlen(1)
		h.SetControllen(len(s.control[i]))
	}
	n, _, errno := unix.RawSyscall6(unix.SYS_RECVMMSG, uintptr(s.fd), uintptr(unsafe.Pointer(&s.msgs)),
		uintptr(len(frames)), unix.MSG_DONTWAIT|unix.MSG_TRUNC, 0, 0)
	if errno != 0 {
		return 0 // nothing there, or an interface that is down for now
	}
	now := time.Now()
	for i := range int(n) {
		sizes[i] = int(s.msgs[i].len)
		ages[i] = age(now, s.control[i][:s.msgs[i].hdr.Controllen])
	}
	return int(n)
}

// age reads the kernel's time stamp out of control messages.
func age(now time.Time, control []byte) time.Duration {
	for len(control) >= unix.SizeofCmsghdr {
		hdr, data, rest, err := unix.ParseOneSocketControlMessage(control)
		if err != nil {
			return 0
		}
		if hdr.Level == unix.SOL_SOCKET && hdr.Type == unix.SO_TIMESTAMPNS && len(data) >= int(unsafe.Sizeof(unix.Timespec{})) {
			ts := *(*unix.Timespec)(unsafe.Pointer(&data[0]))
			// Beyond these bounds the wall clock was set in between.
			return min(max(0, now.Sub(time.Unix(ts.Unix()))), 50*time.Millisecond)
		}
		control = rest
	}
	return 0
}

// send sends the frames (at most batch) and returns how many the interface took.
func (s *socket) send(frames [][]byte) int {
	for i, f := range frames {
		s.iovs[i] = unix.Iovec{Base: &f[0]}
		s.iovs[i].SetLen(len(f))
		h := &s.msgs[i].hdr
		*h = unix.Msghdr{Iov: &s.iovs[i]}
		h.SetIovlen(1)
	}
	n, _, errno := unix.RawSyscall6(unix.SYS_SENDMMSG, uintptr(s.fd), uintptr(unsafe.Pointer(&s.msgs)),
		uintptr(len(frames)), unix.MSG_DONTWAIT, 0, 0)
	if errno != 0 {
		return 0
	}
	return int(n)
}

// Priority is that of the emulators' threads among real-time ones (SCHED_FIFO).
const Priority = 10

// sharpen makes the calling thread wake as precisely as it may: one nanosecond
// of timer slack, and real-time priority where the system allows it.
func sharpen() error {
	if err := unix.Prctl(unix.PR_SET_TIMERSLACK, 1, 0, 0, 0); err != nil {
		return os.NewSyscallError("prctl", err)
	}
	attr := unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_FIFO, Priority: Priority}
	return os.NewSyscallError("sched_setattr", unix.SchedSetAttr(0, &attr, 0))
}
