package tun

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
	wgtun "golang.zx2c4.com/wireguard/tun"

	"github.com/meshmpi/meshmpi/internal/oneline"
)

// Device is what the overlay moves packets to and from: WireGuard's name for it,
// and a way to have its reader look up.
type Device interface {
	wgtun.Device
	// Interrupt makes the Read that is under way, or else the next, return; it may
	// return no packets and no error. It does not block.
	Interrupt()
}

// kernelDevice is a TUN of the kernel. It does by itself what small messages need,
// by system calls that Go's scheduler is not told of: when it is, after a pause, it
// wakes its monitor, a thread that then looks every 20 µs for calls that last, takes
// their processor away and wakes a third thread for it. Under a program's small
// messages that was half of all a daemon's switches of threads.
type kernelDevice struct {
	wgtun.Device
	conn syscall.RawConn // of the TUN
	in   []byte          // a packet as it is read, behind its header
	left segments        // of the packet that was read last
	read transfer        // Read's; one goroutine calls it

	mu    sync.Mutex // guards write: several goroutines do
	write transfer
}

// few packets are written one by one; more are worth joining, which WireGuard's device
// does.
const few = 2

func newKernelDevice(dev wgtun.Device) (*kernelDevice, error) {
	conn, err := dev.File().SyscallConn()
	if err != nil {
		return nil, err
	}
	d := &kernelDevice{Device: dev, conn: conn, in: make([]byte, virtioLen+65535)}
	d.read.init(unix.SYS_READ)
	d.write.init(unix.SYS_WRITE)
	return d, nil
}

// Read implements tun.Device. A superpacket of more segments than there are bufs is
// read by several calls. A packet that makes no sense is dropped, with an error after
// which WireGuard reads on.
func (d *kernelDevice) Read(bufs [][]byte, sizes []int, offset int) (int, error) {
	if d.left.empty() {
		d.read.data = d.in
		if err := d.conn.Read(d.read.once); errors.Is(err, os.ErrDeadlineExceeded) {
			return 0, d.File().SetReadDeadline(time.Time{})
		} else if err != nil {
			return 0, os.ErrClosed
		}
		n, err := d.read.result("read")
		if err != nil {
			return 0, err
		}
		if err := d.left.set(d.in[:n]); err != nil {
			return 0, dropped(err)
		}
	}
	n := 0
	for ; n < len(bufs) && !d.left.empty(); n++ {
		size, err := d.left.next(bufs[n][offset:])
		if err != nil {
			return n, dropped(err)
		}
		sizes[n] = size
	}
	return n, nil
}

// dropped wraps why a packet was dropped in the one error that WireGuard does not take
// for the device's end. Somebody who may open a packet socket may send anything.
func dropped(why error) error { return fmt.Errorf("%w (%w)", why, wgtun.ErrTooManySegments) }

// Write implements tun.Device.
func (d *kernelDevice) Write(bufs [][]byte, offset int) (int, error) {
	if len(bufs) > few || offset < virtioLen {
		return d.Device.Write(bufs, offset)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	var all error
	total := 0
	for _, b := range bufs {
		clear(b[offset-virtioLen : offset]) // as it is: no segments, its checksum is there
		d.write.data = b[offset-virtioLen:]
		if err := d.conn.Write(d.write.once); err != nil {
			return total, os.ErrClosed
		}
		n, err := d.write.result("write")
		total += n
		all = oneline.Join(all, err)
	}
	return total, all
}

// Interrupt implements Device.
func (d *kernelDevice) Interrupt() { _ = d.File().SetReadDeadline(time.Unix(1, 0)) } // it fails when closed

// transfer is one system call at a time, read or write.
type transfer struct {
	once  func(fd uintptr) bool // do, made once
	trap  uintptr
	data  []byte
	n     int
	errno syscall.Errno
}

func (t *transfer) init(trap uintptr) { t.trap, t.once = trap, t.do }

// do makes the call and reports whether it need not be repeated when the TUN is ready.
func (t *transfer) do(fd uintptr) bool {
	for {
		n, _, errno := syscall.RawSyscall(t.trap, fd, uintptr(unsafe.Pointer(&t.data[0])), uintptr(len(t.data)))
		t.n, t.errno = int(n), errno
		if errno != unix.EINTR {
			return errno != unix.EAGAIN
		}
	}
}

// result returns what has come of it, and forgets the data.
func (t *transfer) result(what string) (int, error) {
	t.data = nil
	switch t.errno {
	case 0:
		return t.n, nil
	case unix.EBADFD: // the link is gone
		return 0, os.ErrClosed
	}
	return 0, fmt.Errorf("tun: %s: %w", what, t.errno)
}
