package udp

import (
	"encoding/binary"
	"net/netip"
	"sync"

	"golang.org/x/sys/unix"
)

// maxHomes bounds the others that are remembered; then all are forgotten, until they
// send again.
const maxHomes = 32 << 10

// homes remembers at which of this host's addresses others send to it. Answers have to
// come from there, or NATs, firewalls and those who asked do not take them for answers;
// the kernel would choose by its routes. It is safe for concurrent use.
type homes struct {
	mu sync.RWMutex // guards at
	at map[netip.AddrPort]netip.Addr
}

// AnswerWhereAsked has Send send from the address at which the other end has sent to
// last, if that is still one of ours. Call it before Readers.
func (p *Pair) AnswerWhereAsked() error {
	h := &homes{at: map[netip.AddrPort]netip.Addr{}}
	for _, s := range []*socket{p.v4, p.v6} {
		if s == nil {
			continue
		}
		rc, err := s.conn.SyscallConn()
		if err != nil {
			return err
		}
		level, option := unix.IPPROTO_IP, unix.IP_PKTINFO
		if s.is6 {
			level, option = unix.IPPROTO_IPV6, unix.IPV6_RECVPKTINFO
		}
		var set error
		if err := rc.Control(func(fd uintptr) { set = unix.SetsockoptInt(int(fd), level, option, 1) }); err != nil {
			return err
		}
		if set != nil {
			return set
		}
		s.homes = h
	}
	return nil
}

// note takes note of what came with a message.
func (h *homes) note(from netip.AddrPort, oob []byte) {
	local := homeIn(oob)
	if !local.IsValid() || h.of(from) == local {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.at) >= maxHomes {
		clear(h.at)
	}
	h.at[from] = local
}

// of returns where to answer from; the zero Addr where the kernel is to choose.
func (h *homes) of(to netip.AddrPort) netip.Addr {
	if h == nil {
		return netip.Addr{}
	}
	h.mu.RLock()
	defer h.mu.RUnlock()
	return h.at[to]
}

func (h *homes) forget(to netip.AddrPort) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.at, to)
}

// homeIn finds the address that a message was sent to. It comes as (ip(7), ipv6(7))
//
//	struct in_pktinfo:   interface 4, local address 4, destination 4
//	struct in6_pktinfo:  destination 16, interface 4
func homeIn(oob []byte) netip.Addr {
	for len(oob) > unix.SizeofCmsghdr {
		hdr, data, rest, err := unix.ParseOneSocketControlMessage(oob)
		if err != nil {
			break
		}
		switch {
		case hdr.Level == unix.IPPROTO_IP && hdr.Type == unix.IP_PKTINFO && len(data) >= unix.SizeofInet4Pktinfo:
			return netip.AddrFrom4([4]byte(data[4:8]))
		case hdr.Level == unix.IPPROTO_IPV6 && hdr.Type == unix.IPV6_PKTINFO && len(data) >= unix.SizeofInet6Pktinfo:
			return netip.AddrFrom16([16]byte(data[:16]))
		}
		oob = rest
	}
	return netip.Addr{}
}

// appendHome adds the address that a message is to be sent from; see homeIn.
func appendHome(oob []byte, local netip.Addr) []byte {
	if local.Is4() {
		info, a := [unix.SizeofInet4Pktinfo]byte{}, local.As4()
		copy(info[4:], a[:])
		return appendControl(oob, unix.IPPROTO_IP, unix.IP_PKTINFO, info[:])
	}
	info, a := [unix.SizeofInet6Pktinfo]byte{}, local.As16()
	copy(info[:], a[:])
	return appendControl(oob, unix.IPPROTO_IPV6, unix.IPV6_PKTINFO, info[:])
}

// appendControl adds one control message.
func appendControl(oob []byte, level, kind uint32, data []byte) []byte {
	at := len(oob)
	oob = append(oob, make([]byte, unix.CmsgSpace(len(data)))...)
	b := oob[at:]
	// struct cmsghdr: length, level, type in native order; see cmsg(3).
	size := unix.SizeofCmsghdr - 8
	if length := uint64(unix.CmsgLen(len(data))); size == 8 {
		binary.NativeEndian.PutUint64(b, length)
	} else {
		binary.NativeEndian.PutUint32(b, uint32(length))
	}
	binary.NativeEndian.PutUint32(b[size:], level)
	binary.NativeEndian.PutUint32(b[size+4:], kind)
	copy(b[unix.CmsgLen(0):], data)
	return oob
}
