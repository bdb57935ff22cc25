package exec

import (
	"fmt"
	"io"
	"net"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// connFile returns the descriptor that a session gets for conn: the socket
// itself, and no proxy, where the kernel has one; else one end of a socket pair
// whose other end, proxy, must be copied to and from conn. The caller closes both.
func connFile(conn net.Conn) (file *os.File, proxy net.Conn, err error) {
	if c, ok := conn.(interface{ File() (*os.File, error) }); ok {
		file, err = c.File()
		return file, nil, err
	}
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("socketpair: %w", err)
	}
	near := os.NewFile(uintptr(fds[0]), "session")
	defer near.Close()
	file = os.NewFile(uintptr(fds[1]), "session")
	if proxy, err = net.FileConn(near); err != nil {
		file.Close()
		return nil, nil, err
	}
	return file, proxy, nil
}

// copyBoth moves bytes both ways until one side ends, then closes both.
func copyBoth(a, b net.Conn) {
	var both sync.WaitGroup
	oneWay := func(dst, src net.Conn) {
		io.Copy(dst, src)
		dst.Close()
		src.Close()
	}
	both.Go(func() { oneWay(a, b) })
	both.Go(func() { oneWay(b, a) })
	both.Wait()
}

func closeIf(c net.Conn) error {
	if c == nil {
		return nil
	}
	return c.Close()
}
