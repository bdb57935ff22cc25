package lab

import (
	"fmt"
	"os"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// ethtoolSetTxChecksum is ETHTOOL_STXCSUM of linux/ethtool.h.
const ethtoolSetTxChecksum = 0x17

// offload switches a link's transmit offloads. Checksums are enough: a link
// that cannot compute them gets no packets to segment either.
func (n *netspace) offload(link string, on bool) error {
	// struct ethtool_value and struct ifreq
	value := &struct{ cmd, data uint32 }{cmd: ethtoolSetTxChecksum}
	if on {
		value.data = 1
	}
	var req struct {
		name [unix.IFNAMSIZ]byte
		data unsafe.Pointer
		_    [16]byte
	}
	copy(req.name[:unix.IFNAMSIZ-1], link)
	req.data = unsafe.Pointer(value)
	err := n.do(func() error {
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return os.NewSyscallError("socket", err)
		}
		defer unix.Close(fd)
		_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.SIOCETHTOOL, uintptr(unsafe.Pointer(&req)))
		runtime.KeepAlive(value)
		if errno != 0 {
			return os.NewSyscallError("ethtool", errno)
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("lab: offloads of %s of %s: %w", link, n.name, err)
	}
	return nil
}
