package node

import (
	"encoding/binary"
	"fmt"
	"os"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// bell has a function called by a goroutine of its own, soon after it was rung. The
// pacing thread rings it: what that thread readied itself would be queued for the
// processor that it keeps, until another thread wakes and steals it. What comes
// through the kernel is found by whoever polls the network.
type bell struct {
	file  *os.File // an eventfd, read by run
	conn  syscall.RawConn
	write func(fd uintptr) // what conn is to do with it, made once
	one   [8]byte
	ended chan struct{}
}

// newBell has f called until Close.
func newBell(f func()) (*bell, error) {
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("node: eventfd: %w", err)
	}
	b := &bell{file: os.NewFile(uintptr(fd), "bell"), ended: make(chan struct{})}
	if b.conn, err = b.file.SyscallConn(); err != nil {
		b.file.Close()
		return nil, fmt.Errorf("node: eventfd: %w", err)
	}
	binary.NativeEndian.PutUint64(b.one[:], 1)
	b.write = func(fd uintptr) {
		_, _, _ = syscall.RawSyscall(unix.SYS_WRITE, fd, uintptr(unsafe.Pointer(&b.one)), uintptr(len(b.one)))
	}
	go b.run(f)
	return b, nil
}

// ring neither blocks nor tells Go's scheduler: Control only counts who uses the
// file. After Close it does nothing.
func (b *bell) ring() { _ = b.conn.Control(b.write) }

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
	err := b.file.Close()
	<-b.ended
	return err
}
