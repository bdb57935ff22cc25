package tun

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"unsafe"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

const (
	cloneDevice = "/dev/net/tun"
	txQueueLen  = 1000  // packets; a TUN's 500 overflow while the daemon waits for a core
	linkSpeed   = 10000 // Mb/s, told to whoever asks ethtool: MPI libraries weigh interfaces by it
)

// attach opens the TUN of that name. A new one is not persistent yet: the
// kernel takes it away if we die before the mark is on it.
func attach(name string, create bool) (fd int, err error) {
	fd, err = unix.Open(cloneDevice, unix.O_RDWR|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	switch {
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.ENODEV), errors.Is(err, unix.ENXIO):
		return -1, fmt.Errorf("tun: %s is missing; load the tun module (modprobe tun) or allow the device in this container", cloneDevice)
	case errors.Is(err, unix.EACCES), errors.Is(err, unix.EPERM):
		return -1, fmt.Errorf("tun: %s may not be opened; run meshd as root or allow the device in this container: %w", cloneDevice, err)
	case err != nil:
		return -1, fmt.Errorf("tun: opening %s: %w", cloneDevice, err)
	}
	defer func() {
		if err != nil {
			unix.Close(fd)
		}
	}()
	ifr, err := unix.NewIfreq(name)
	if err != nil {
		return -1, fmt.Errorf("tun: the name %q: %w", name, err)
	}
	flags := uint16(unix.IFF_TUN | unix.IFF_NO_PI | unix.IFF_VNET_HDR)
	if create {
		flags |= unix.IFF_TUN_EXCL // never take over another's
	}
	ifr.SetUint16(flags)
	err = unix.IoctlIfreq(fd, unix.TUNSETIFF, ifr)
	switch {
	case errors.Is(err, unix.EPERM):
		return -1, fmt.Errorf("tun: creating %s needs CAP_NET_ADMIN; run meshd as root or grant it (setcap cap_net_admin+ep $(command -v meshd))", name)
	case errors.Is(err, unix.EBUSY) && create:
		return -1, errForeign(name)
	case errors.Is(err, unix.EBUSY):
		return -1, fmt.Errorf("tun: another process is attached to %s; stop the other meshd first", name)
	case err != nil:
		return -1, fmt.Errorf("tun: attaching to %s: %w", name, err)
	}
	return fd, nil
}

func errForeign(name string) error {
	return fmt.Errorf("tun: a link %s is there already and not ours; choose another name with --tun or remove it (ip link del %s)", name, name)
}

// persist lets the link outlive us. Only we may attach again: an ownerless TUN
// is open to everybody who can open /dev/net/tun.
func persist(fd int) error {
	if err := unix.IoctlSetInt(fd, unix.TUNSETOWNER, os.Geteuid()); err != nil {
		return err
	}
	return unix.IoctlSetInt(fd, unix.TUNSETPERSIST, 1)
}

// findLink returns the link that bears the journal's mark, by whatever name, or nil.
func findLink(j *journal) (netlink.Link, error) {
	links, err := dump(netlink.LinkList)
	if err != nil {
		return nil, fmt.Errorf("tun: listing links: %w", err)
	}
	for _, l := range links {
		if l.Attrs().Alias == j.alias() && l.Type() == "tuntap" {
			return l, nil
		}
	}
	return nil, nil
}

// dump repeats a listing that a change on the host has interrupted.
func dump[T any](list func() ([]T, error)) (all []T, err error) {
	for range 5 {
		all, err = list()
		if !errors.Is(err, netlink.ErrDumpInterrupted) {
			break
		}
	}
	return all, err
}

// setLink sets what is the link's own. All of it may be set again.
func (h *Host) setLink() error {
	link, err := netlink.LinkByIndex(h.index)
	if err != nil {
		return err
	}
	if err := netlink.LinkSetAlias(link, h.journal.alias()); err != nil {
		return err
	}
	if err := persist(h.fd); err != nil {
		return err
	}
	if err := netlink.LinkSetMTU(link, h.cfg.MTU); err != nil {
		return fmt.Errorf("MTU %d: %w", h.cfg.MTU, err)
	}
	if err := netlink.LinkSetTxQLen(link, txQueueLen); err != nil {
		return fmt.Errorf("queue length: %w", err)
	}
	if err := setSpeed(h.cfg.Name, linkSpeed); err != nil {
		h.log.Debug("link speed not set", "link", h.cfg.Name, "err", err)
	}
	h.enableIPv6(link)
	return nil
}

// enableIPv6 finds out whether the link can have IPv6, and allows it there if
// the host's default forbids it: the setting is the link's and goes with it.
func (h *Host) enableIPv6(link netlink.Link) {
	h.ipv6 = false
	if !h.cfg.CIDR6.IsValid() {
		return
	}
	path := filepath.Join("/proc/sys/net/ipv6/conf", link.Attrs().Name, "disable_ipv6")
	b, err := os.ReadFile(path)
	if err == nil && strings.TrimSpace(string(b)) != "0" {
		err = os.WriteFile(path, []byte("0"), 0)
	}
	if err != nil {
		h.warn("IPv6 is off on this host: the overlay has IPv4 only", "link", link.Attrs().Name, "err", err)
		return
	}
	h.ipv6 = true
	const genModeNone = 1 // IN6_ADDR_GEN_MODE_NONE, linux/if_link.h
	if err := netlink.LinkSetIP6AddrGenMode(link, genModeNone); err != nil {
		h.log.Debug("link-local address not prevented", "link", link.Attrs().Name, "err", err)
	}
}

// linkSettings is struct ethtool_link_settings of linux/ethtool.h, with room
// behind it for three bitmaps of at most 127 words each.
type linkSettings struct {
	cmd, speed uint32 // speed in Mb/s
	duplex     uint8
	_          [6]uint8 // port … eth_tp_mdix_ctrl
	words      int8     // of each bitmap: link_mode_masks_nwords
	_          [4]uint8 // transceiver … rate_matching
	_          [7 + 3*127]uint32
}

// setSpeed declares the link's speed in Mb/s.
func setSpeed(name string, mbps uint32) error {
	s, err := getSettings(name)
	if err != nil {
		return err
	}
	s.cmd, s.speed, s.duplex = unix.ETHTOOL_SLINKSETTINGS, mbps, 1 // DUPLEX_FULL
	return ethtool(name, s)
}

// getSettings asks twice: the first answer says how long the bitmaps are.
func getSettings(name string) (*linkSettings, error) {
	s := &linkSettings{cmd: unix.ETHTOOL_GLINKSETTINGS}
	if err := ethtool(name, s); err != nil {
		return nil, err
	}
	s.cmd, s.words = unix.ETHTOOL_GLINKSETTINGS, -s.words
	return s, ethtool(name, s)
}

// ethtool makes the SIOCETHTOOL request in s.
func ethtool(name string, s *linkSettings) error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	// struct ifreq of linux/if.h: the name, then a pointer in a union of 24 bytes.
	var ifr struct {
		name [unix.IFNAMSIZ]byte
		data *linkSettings
		_    [16]byte
	}
	copy(ifr.name[:unix.IFNAMSIZ-1], name)
	ifr.data = s
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.SIOCETHTOOL, uintptr(unsafe.Pointer(&ifr))); errno != 0 {
		return errno
	}
	return nil
}
