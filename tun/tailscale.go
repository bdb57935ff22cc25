package tun

import (
	"bytes"
	"net/netip"
	"os"
	"strings"
	"unsafe"

	"github.com/google/nftables"
	"golang.org/x/sys/unix"
)

// sharedSpace is RFC 6598's, which Tailscale takes for its own.
var sharedSpace = netip.PrefixFrom(netip.AddrFrom4([4]byte{100, 64}), 10)

// tailscaleChains are made by tailscaled by iptables or by nftables, with rules
// that drop sharedSpace from every interface but its own.
var tailscaleChains = [...]string{"ts-input", "ts-forward"}

// TailscaleDrops reports whether a Tailscale on this host would drop packets of
// the network: its firewall drops 100.64.0.0/10 from every interface but its
// own. Our table cannot help that, since a drop is final. The remedies are
// another CIDR, or tailscaled with --netfilter-mode=off.
func TailscaleDrops(cidr netip.Prefix) bool {
	return sharedSpace.Overlaps(cidr) && tailscaleFirewall()
}

// tailscaleFirewall reports whether Tailscale's chains are there.
func tailscaleFirewall() bool { return nftTailscale() || legacyTailscale() }

// nftTailscale looks where nft and iptables-nft both put chains.
func nftTailscale() bool {
	c, err := nftables.New()
	if err != nil {
		return false
	}
	chains, err := c.ListChainsOfTableFamily(nftables.TableFamilyIPv4)
	if err != nil {
		return false
	}
	for _, ch := range chains {
		for _, name := range tailscaleChains {
			if ch.Name == name {
				return true
			}
		}
	}
	return false
}

// legacyTailscale looks where iptables-legacy puts them. It asks only about a
// table that exists: asking for another would load it.
func legacyTailscale() bool {
	names, err := os.ReadFile("/proc/thread-self/net/ip_tables_names")
	if err != nil {
		return false
	}
	for _, table := range strings.Fields(string(names)) {
		if table != "filter" {
			continue
		}
		blob, err := legacyEntries(table)
		return err == nil && legacyHasChain(blob)
	}
	return false
}

// maxLegacy bounds an iptables table, in bytes.
const maxLegacy = 64 << 20

// legacyEntries reads an iptables table as the kernel keeps it
// (linux/netfilter_ipv4/ip_tables.h: struct ipt_getinfo, struct ipt_get_entries).
func legacyEntries(table string) ([]byte, error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_RAW)
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	const (
		getInfo, getEntries = 64, 65 // IPT_SO_GET_INFO, IPT_SO_GET_ENTRIES
		header              = 40     // of struct ipt_get_entries: name, size, alignment
	)
	var info struct {
		name              [32]byte
		_                 [11]uint32 // valid_hooks, hook_entry, underflow
		numEntries, bytes uint32
	}
	copy(info.name[:31], table)
	if err := getsockopt(fd, getInfo, unsafe.Pointer(&info), uint32(unsafe.Sizeof(info))); err != nil {
		return nil, err
	}
	if info.bytes > maxLegacy {
		return nil, unix.E2BIG
	}
	b := make([]byte, header+int(info.bytes))
	copy(b[:31], table)
	*(*uint32)(unsafe.Pointer(&b[32])) = info.bytes
	if err := getsockopt(fd, getEntries, unsafe.Pointer(&b[0]), uint32(len(b))); err != nil {
		return nil, err
	}
	return b[header:], nil
}

func getsockopt(fd int, name uintptr, value unsafe.Pointer, size uint32) error {
	_, _, errno := unix.Syscall6(unix.SYS_GETSOCKOPT, uintptr(fd), unix.SOL_IP, name, uintptr(value), uintptr(unsafe.Pointer(&size)), 0)
	if errno != 0 {
		return errno
	}
	return nil
}

// legacyHasChain looks for the entry that opens a chain of one's own: a target
// "ERROR" (30 bytes with its revision) whose data is the chain's name.
func legacyHasChain(blob []byte) bool {
	for _, name := range tailscaleChains {
		var target [30]byte
		copy(target[:], "ERROR")
		if bytes.Contains(blob, append(target[:], name+"\x00"...)) {
			return true
		}
	}
	return false
}
