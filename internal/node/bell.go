package node

import (
	"encoding/binary"
	"fmt"
	"os"
	"sync/atomic"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// bell has a function called by a goroutine of its own, soon after it was rung. The
// pacing thread rings it: what that thread readied itself would be queued for the
// processor that it keeps, until another thread wakes and steals it. What comes
// through the kernel is found by whoever polls the network.
type bell struct {
	fd    int
	file  *os.File // of fd, read by run
	one   [8]byte
	down  atomic.Bool
	ended chan struct{}
}

// newBell has f called until Close.
func newBell(f func()) (*bell, error) {
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("node: eventfd: %w", err)
	}
	b := &bell{fd: fd, file: os.NewFile(uintptr(fd), "bell"), ended: make(chan struct{})}
	binary.NativeEndian.PutUint64(b.one[:], 1)
	go b.run(f)
	return b, nil
}

// ring neither blocks nor tells Go's scheduler. After Close it does nothing; Close
// is not to be called while others may ring.
func (b *bell) ring() {
	if !b.down.Load() {
		_, _, _ = syscall.RawSyscall(unix.SYS_WRITE, uintptr(b.fd), uintptr(unsafe.Pointer(&b.one)), uintptr(len(b.one)))
	}
}

func (b *bell) run(f func()) {
	defer close(b.ended)
	var n [8]byte
	for {
		if _, err := b.file.Read(n[:]); err != nil {
			return
		}
		f()
	}
}

// Close returns when f is not called any more.
func (b *bell) Close() error {
	b.down.Store(true)
	err := b.file.Close()
	<-b.ended
	return err
}
