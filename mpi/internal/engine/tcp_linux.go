package engine

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

const (
	readBuffer = 32 << 10 // of each socket
	pollReads  = 16       // reads of a socket before others get their turn

	// mostCall is how many bytes a system call moves of which Go's scheduler is not told: for
	// as long, some 50 µs, it cannot stop the world. With a quarter of it messages of 1 MiB
	// take two fifths more time by TCP.
	mostCall = 256 << 10

	// smallWrite is how many bytes are put together rather than handed over as vectors: those
	// cost the system a quarter of a microsecond, for reading as well as for writing.
	smallWrite = 512
)

// tcpWire is a link over a nonblocking TCP socket that the Go runtime does not
// know.
type tcpWire struct {
	system *epoll
	c      *conn
	fd     int
	within bool // a frame has begun; see Engine.incoming
	full   bool // the system takes nothing more; epoll will say when it does
	end    int  // of what is in buf
	buf    []byte
	iov    [2]unix.Iovec
	ahead  *ahead // nil: nothing goes ahead of the stream
	small  [aheadHeader + aheadMost]byte
}

// wireOf makes a wire of a connection: with the socket itself if it is plain TCP
// and the engine has a poller.
func (e *Engine) wireOf(nc net.Conn) (wire, error) {
	t, ok := nc.(*net.TCPConn)
	if !ok || e.poll == nil {
		_ = nc.SetDeadline(time.Time{})
		return newNetWire(e, nc), nil
	}
	_ = t.SetNoDelay(true)
	fd, err := takeDescriptor(t)
	if err != nil {
		return nil, err
	}
	nc.Close()
	return &tcpWire{system: e.poll, fd: fd, buf: make([]byte, readBuffer)}, nil
}

// takeDescriptor returns a descriptor of a connection's nonblocking socket that
// stays open when the connection is closed.
func takeDescriptor(c syscall.Conn) (int, error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return -1, err
	}
	fd := -1
	var dup error
	if err := raw.Control(func(old uintptr) { fd, dup = unix.FcntlInt(old, unix.F_DUPFD_CLOEXEC, 3) }); err != nil {
		return -1, err
	}
	return fd, dup
}

// roundTrip is how long the system thinks that an answer takes; zero if it does
// not say.
func roundTrip(nc net.Conn) time.Duration {
	t, ok := nc.(*net.TCPConn)
	if !ok {
		return 0
	}
	raw, err := t.SyscallConn()
	if err != nil {
		return 0
	}
	var rtt time.Duration
	_ = raw.Control(func(fd uintptr) { rtt = systemRoundTrip(int(fd)) })
	return rtt
}

func systemRoundTrip(fd int) time.Duration {
	info, err := unix.GetsockoptTCPInfo(fd, unix.IPPROTO_TCP, unix.TCP_INFO)
	if err != nil {
		return 0
	}
	return time.Duration(min(info.Rtt, info.Min_rtt)) * time.Microsecond
}

const inputEvents = unix.EPOLLIN | unix.EPOLLRDHUP

func (w *tcpWire) plug(c *conn) error {
	w.c = c
	events := uint32(inputEvents)
	if w.full {
		events |= unix.EPOLLOUT
	}
	if err := w.system.add(w.fd, events, w); err != nil {
		return err
	}
	if w.ahead != nil {
		if err := w.ahead.plug(); err != nil {
			return err
		}
	}
	w.system.sockets = append(w.system.sockets, w)
	c.e.spins = min(c.e.spins, socketSpins)
	return nil
}

func (w *tcpWire) write(hdr, payload []byte, off int) (int, error) {
	a, total := w.ahead, len(hdr)+len(payload)
	if a == nil {
		return w.writeStream(hdr, payload, off)
	}
	if off == 0 && total <= aheadMost && !w.full && a.throw(w.c.e, hdr, payload) {
		if len(a.kept) < keptMost {
			return total, nil
		}
		_, err := a.write()
		return total, err
	}
	a.turn = false
	if all, err := a.write(); !all {
		return 0, err
	}
	n, err := w.writeStream(hdr, payload, off)
	a.sent += uint64(n)
	return n, err
}

func (w *tcpWire) writeStream(hdr, payload []byte, off int) (int, error) {
	done, total := 0, len(hdr)+len(payload)
	for off+done < total && !w.full {
		n, errno := w.writeSome(hdr, payload, off+done)
		if errno == 0 {
			done += n
		} else if err := w.refused(errno); err != nil {
			return done, err
		}
	}
	return done, nil
}

// refused is what follows when the system does not take what is written.
func (w *tcpWire) refused(errno syscall.Errno) error {
	switch errno {
	case unix.EINTR:
	case unix.EAGAIN:
		w.full = true
		if w.c != nil {
			w.system.change(w.fd, inputEvents|unix.EPOLLOUT)
		}
	default:
		return fmt.Errorf("write: %w", errno)
	}
	return nil
}

// writeSome is one system call.
func (w *tcpWire) writeSome(hdr, payload []byte, off int) (int, syscall.Errno) {
	if total := len(hdr) + len(payload); total <= smallWrite {
		copy(w.small[copy(w.small[:], hdr):], payload)
		n, _, errno := syscall.RawSyscall6(unix.SYS_SENDTO, uintptr(w.fd), uintptr(unsafe.Pointer(&w.small[off])), uintptr(total-off), unix.MSG_NOSIGNAL, 0, 0)
		return int(n), errno
	}
	k, room := 0, mostCall
	if off < len(hdr) {
		k = w.set(k, hdr[off:])
		room -= len(hdr) - off
		off = len(hdr)
	}
	if rest := payload[off-len(hdr):]; len(rest) > 0 {
		k = w.set(k, rest[:min(len(rest), room)])
	}
	n, _, errno := syscall.RawSyscall(unix.SYS_WRITEV, uintptr(w.fd), uintptr(unsafe.Pointer(&w.iov[0])), uintptr(k))
	w.iov = [2]unix.Iovec{}
	return int(n), errno
}

// set makes the k-th vector that of p.
func (w *tcpWire) set(k int, p []byte) int {
	w.iov[k].Base = unsafe.SliceData(p)
	w.iov[k].SetLen(len(p))
	return k + 1
}

// event is called when epoll has found something about the socket.
func (w *tcpWire) event(e *Engine, what uint32) bool {
	if w.c.broken {
		return false
	}
	if what&unix.EPOLLOUT != 0 && w.full {
		w.full = false
		w.system.change(w.fd, inputEvents)
		if w.ahead != nil {
			if _, err := w.ahead.write(); err != nil {
				e.breakLink(w.c, err)
				return false
			}
		}
	}
	if what&^unix.EPOLLOUT == 0 {
		return true
	}
	did, err := w.poll(w.c)
	if err != nil {
		e.breakLink(w.c, err)
	}
	return did
}

// poll reads what has come. Links that epoll watches are not polled otherwise.
func (w *tcpWire) poll(c *conn) (bool, error) {
	did := false
	for range pollReads {
		n, all, err := w.read(c.e)
		did = did || n > 0
		switch {
		case err == unix.EAGAIN:
			return did, nil
		case err == unix.EINTR:
			continue
		case err != nil:
			return did, err
		case n < all || w.c.broken || w.c.peer.state != up:
			return did, nil
		}
	}
	return did, nil
}

// errStreamEnd is how a socket ends that the peer has closed.
var errStreamEnd = errors.New("end of stream")

// read makes one system call and gives the engine what came, out of all that could
// have.
func (w *tcpWire) read(e *Engine) (n, all int, err error) {
	a := w.ahead
	if a == nil {
		return w.readStream(e)
	}
	passed, err := a.pass()
	if !passed {
		n, all, err = w.readStream(e)
	}
	switch {
	case err == nil && n > 0:
		err = a.streamed(e, n)
	case err != nil && err != unix.EAGAIN && err != unix.EINTR:
		a.rest(e)
	}
	return n, all, err
}

// readStream is read. The rest of a payload goes where it belongs, without a copy; what
// follows it, into the buffer.
func (w *tcpWire) readStream(e *Engine) (n, all int, err error) {
	in := &w.c.in
	var direct []byte
	k := 0
	if w.within && w.end == 0 {
		if s := in.space(); len(s) > 0 {
			direct = s[:min(len(s), in.left(), mostCall)]
			k = w.set(0, direct)
		}
	}
	if len(direct) == in.left() || len(direct) == 0 { // only the end of a payload is followed by something else
		k = w.set(k, w.buf[w.end:])
		all = len(w.buf) - w.end
	}
	all += len(direct)
	got, errno := w.receive(k)
	w.iov = [2]unix.Iovec{}
	if err := streamError(got, errno); err != nil {
		return 0, all, err
	}
	n = int(got)
	if w.ahead != nil {
		w.ahead.turn = true
	}
	inPlace := min(n, len(direct))
	in.got += inPlace
	w.end += n - inPlace
	if w.within && in.left() > 0 && w.end == 0 {
		return n, all, nil
	}
	took, within, err := e.incoming(w.c, w.buf[:w.end], w.within)
	if err != nil {
		return n, all, err
	}
	w.within = within
	w.end = copy(w.buf, w.buf[took:w.end])
	return n, all, nil
}

// streamError is what the result of a system call that reads says is amiss.
func streamError(n uintptr, errno syscall.Errno) error {
	switch {
	case errno == unix.EAGAIN || errno == unix.EINTR:
		return errno
	case errno != 0:
		return fmt.Errorf("read: %w", errno)
	case n == 0:
		return fmt.Errorf("%w: %w", errPeerClosed, errStreamEnd)
	}
	return nil
}

// receive reads into the first k vectors.
func (w *tcpWire) receive(k int) (n uintptr, errno syscall.Errno) {
	if k == 1 {
		n, _, errno = syscall.RawSyscall6(unix.SYS_RECVFROM, uintptr(w.fd), uintptr(unsafe.Pointer(w.iov[0].Base)), uintptr(w.iov[0].Len), 0, 0, 0)
	} else {
		n, _, errno = syscall.RawSyscall(unix.SYS_READV, uintptr(w.fd), uintptr(unsafe.Pointer(&w.iov[0])), uintptr(k))
	}
	return n, errno
}

func (w *tcpWire) close() {
	if w.fd < 0 {
		return
	}
	if w.c != nil {
		w.system.remove(w.fd)
		// A copy: the list may be being read.
		w.system.sockets = slices.DeleteFunc(slices.Clone(w.system.sockets), func(o *tcpWire) bool { return o == w })
	}
	if w.ahead != nil {
		_, _ = w.ahead.write() // as the system has what went by the stream
		w.ahead.close()
	}
	unix.Close(w.fd)
	w.fd = -1
}
