package hint

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// sealed are the seals that a page's memory must have: without them its maker
// could shrink it, and whoever reads it would be killed.
const sealed = unix.F_SEAL_SHRINK | unix.F_SEAL_GROW

// newMemory makes a page and maps it.
func newMemory() (fd int, mem []byte, err error) {
	fd, err = unix.MemfdCreate("meshmpi-hint", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return -1, nil, os.NewSyscallError("memfd_create", err)
	}
	if err = unix.Fallocate(fd, 0, 0, Size); err == nil {
		_, err = unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, sealed|unix.F_SEAL_SEAL)
	}
	if err == nil {
		mem, err = unix.Mmap(fd, 0, Size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	}
	if err != nil {
		unix.Close(fd)
		return -1, nil, fmt.Errorf("hint: make a page: %w", err)
	}
	return fd, mem, nil
}

// mapMemory maps a page that a program has made. The size is compared, so that it
// lies in no huge page either, of which a host may run out at any access.
func mapMemory(fd int) ([]byte, error) {
	seals, err := unix.FcntlInt(uintptr(fd), unix.F_GET_SEALS, 0)
	if err != nil {
		return nil, fmt.Errorf("hint: what came is no memfd: %w", err)
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return nil, os.NewSyscallError("fstat", err)
	}
	if seals&sealed != sealed || st.Size != Size {
		return nil, fmt.Errorf("hint: a page of %d bytes with seals %#x", st.Size, seals)
	}
	mem, err := unix.Mmap(fd, 0, Size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, os.NewSyscallError("mmap", err)
	}
	return mem, nil
}

func unmapMemory(mem []byte) { _ = unix.Munmap(mem) }

func closeFile(fd int) {
	if fd >= 0 {
		_ = unix.Close(fd)
	}
}

// offer connects to a daemon's socket and hands it a page, without ever waiting.
func offer(path string, page int) (socket int, err error) {
	s, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return -1, os.NewSyscallError("socket", err)
	}
	if err = unix.Connect(s, &unix.SockaddrUnix{Name: path}); err == nil {
		err = unix.Sendmsg(s, appendHello(nil), unix.UnixRights(page), nil, unix.MSG_NOSIGNAL)
	}
	if err != nil {
		unix.Close(s)
		return -1, err
	}
	return s, nil
}

// ended reports whether the other end of a socket is gone.
func ended(socket int) bool {
	var b [1]byte
	n, _, err := unix.Recvfrom(socket, b[:], unix.MSG_DONTWAIT|unix.MSG_PEEK)
	return err == nil && n == 0 || err != nil && !errors.Is(err, unix.EAGAIN) && !errors.Is(err, unix.EINTR)
}

// pathFits says whether a socket may have that name.
func pathFits(path string) bool { return path != "" && len(path) < len(unix.RawSockaddrUnix{}.Path) }
