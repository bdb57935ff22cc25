package engine

import (
	"os"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// sleeper is an epoll at which a goroutine sleeps as it does for a socket: Go's
// scheduler has the processor for others meanwhile, and its own epoll wakes it. A system
// call that blocks would wake the scheduler's monitor as well, which then looks every
// 20 µs for a millisecond, takes the processor away and gives it back: a few switches
// between threads for each message of a LAN.
//
// Its descriptors are armed only while somebody sleeps: else each message that the driver
// polls would wake one of Go's threads, too.
type sleeper struct {
	fd    int
	file  *os.File // owns fd
	conn  syscall.RawConn
	ready func(fd uintptr) bool // kept, since making it anew allocates
	event unix.EpollEvent
	parts []int // what it waits for
}

func (s *sleeper) open(parts ...int) (err error) {
	if s.fd, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC); err != nil {
		return err
	}
	_ = unix.SetNonblock(s.fd, true) // or there is no deadline below
	s.file = os.NewFile(uintptr(s.fd), "epoll")
	if err := s.file.SetReadDeadline(time.Time{}); err != nil {
		return err
	}
	s.ready, s.parts = s.has, parts
	for _, part := range parts {
		if err := unix.EpollCtl(s.fd, unix.EPOLL_CTL_ADD, part, &unix.EpollEvent{}); err != nil {
			return err
		}
	}
	s.conn, err = s.file.SyscallConn()
	return err
}

func (s *sleeper) close() {
	if s.file != nil {
		_ = s.file.Close()
	}
}

// sleep returns when something has happened to one of the descriptors, or was there.
// One goroutine sleeps at a time.
func (s *sleeper) sleep() {
	s.arm(unix.EPOLLIN)
	_ = s.conn.Read(s.ready) // it fails when s is closed
	s.arm(0)
}

// arm says which events count. What is there already counts as well.
func (s *sleeper) arm(events uint32) {
	s.event.Events = events
	for _, part := range s.parts {
		_, _, _ = syscall.RawSyscall6(unix.SYS_EPOLL_CTL, uintptr(s.fd), unix.EPOLL_CTL_MOD, uintptr(part), uintptr(unsafe.Pointer(&s.event)), 0, 0)
	}
}

// has reports whether epoll has something. That it was interrupted is as good.
func (s *sleeper) has(fd uintptr) bool {
	n, _, errno := syscall.RawSyscall6(unix.SYS_EPOLL_PWAIT, fd, uintptr(unsafe.Pointer(&s.event)), 1, 0, 0, 0)
	return n > 0 || errno != 0
}
