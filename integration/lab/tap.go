package lab

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Tap notes what comes off a cable, each frame with the kernel's time of its arrival,
// in a namespace that is neither the sender's nor the receiver's. The kernel alone
// fills it, no process runs, so it is as exact beside spinning processes as it is on
// an idle machine. When it is full it notes no more.
type Tap struct {
	name    string
	restore func() error
	once    sync.Once
	fd      int
	ring    []byte
	drops   uint32 // frames without room
}

// Arrival is a frame as it came off a cable.
type Arrival struct {
	At       int64          // ns of the machine's clock (Unix)
	Size     int            // bytes, from Ethernet's header on, without preamble and FCS
	From, To netip.AddrPort // of IPv4 UDP and TCP; without port otherwise, zero if not IPv4
}

const (
	// Of linux/if_packet.h: struct tpacket2_hdr is status, len, snaplen (32 bits
	// each), mac, net (16), sec, nsec (32), …, in host order.
	tapSlot  = 128     // bytes of the ring for a frame: that header, an address, Ethernet, IPv4, ports
	tapBlock = 1 << 20 // bytes that the kernel allocates at once

	// MostArrivals is what a Tap can note: 512 MiB of the kernel's memory.
	MostArrivals = 1 << 22
)

// Tap begins to note what leaves a site, in the order it gets to the Internet, up to
// so many frames, 128 bytes of the kernel's memory each. While it lasts the line's
// offloads are off, as an emulated line's always are, so that frames are those of a
// wire; do not change the site's WAN meanwhile. Close ends it.
func (l *Lab) Tap(site string, frames int) (*Tap, error) {
	s, err := l.site(site)
	if err != nil {
		return nil, err
	}
	return openTap(site, l.wires, s.nearEnd(), frames, func(off bool) error {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.offload(!off && s.WAN.IsPlain())
	})
}

// Tap begins to note what the host sends, as Lab.Tap does, at the other end of the
// host's own cable: a frame's time is that of its sending. On a site's line it is
// later, for as long as the router had to wait for a processor.
func (h *Host) Tap(frames int) (*Tap, error) {
	return openTap(h.Name, h.site.router, h.port(), frames, func(off bool) error {
		h.mu.Lock()
		defer h.mu.Unlock()
		if h.net == nil {
			return nil // powered off, and its cable is gone
		}
		return h.net.offload("eth0", !off)
	})
}

// openTap taps a link of a namespace; bare switches the offloads of what sends to it.
func openTap(name string, space *netspace, link string, frames int, bare func(bool) error) (*Tap, error) {
	if frames < 1 || frames > MostArrivals {
		return nil, fmt.Errorf("lab: tap %s: %d frames are not between 1 and %d", name, frames, MostArrivals)
	}
	if err := bare(true); err != nil {
		return nil, err
	}
	t := &Tap{name: name, fd: -1, restore: func() error { return bare(false) }}
	if err := space.do(func() error { return t.open(link, frames) }); err != nil {
		return nil, errors.Join(fmt.Errorf("lab: tap %s: %w", name, err), t.Close())
	}
	return t, nil
}

// open is called on a thread in the namespace of the wires.
func (t *Tap) open(link string, frames int) error {
	ifc, err := net.InterfaceByName(link)
	if err != nil {
		return err
	}
	// No protocol yet: nothing comes in before all is set.
	if t.fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0); err != nil {
		return fmt.Errorf("packet socket: %w", err)
	}
	for _, opt := range [...]struct{ level, name, value int }{
		{unix.SOL_PACKET, unix.PACKET_VERSION, unix.TPACKET_V2},
		{unix.SOL_PACKET, unix.PACKET_IGNORE_OUTGOING, 1},
		{unix.SOL_SOCKET, unix.SO_TIMESTAMPNS, 1}, // has the kernel stamp frames when they arrive, not when they are noted
	} {
		if err := unix.SetsockoptInt(t.fd, opt.level, opt.name, opt.value); err != nil {
			return fmt.Errorf("option %d: %w", opt.name, err)
		}
	}
	blocks := (frames*tapSlot + tapBlock - 1) / tapBlock
	req := unix.TpacketReq{Block_size: tapBlock, Block_nr: uint32(blocks), Frame_size: tapSlot, Frame_nr: uint32(blocks * tapBlock / tapSlot)}
	if err := unix.SetsockoptTpacketReq(t.fd, unix.SOL_PACKET, unix.PACKET_RX_RING, &req); err != nil {
		return fmt.Errorf("a ring of %d MiB: %w", blocks, err)
	}
	if t.ring, err = unix.Mmap(t.fd, 0, blocks*tapBlock, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED); err != nil {
		return fmt.Errorf("map the ring: %w", err)
	}
	all := uint16(unix.ETH_P_ALL)<<8 | uint16(unix.ETH_P_ALL)>>8
	return unix.Bind(t.fd, &unix.SockaddrLinklayer{Protocol: all, Ifindex: ifc.Index})
}

// Arrivals returns what has come so far, in the order it came. An error says that
// there was no room for all.
func (t *Tap) Arrivals() ([]Arrival, error) {
	var all []Arrival
	for at := 0; at < len(t.ring); at += tapSlot {
		slot := t.ring[at : at+tapSlot]
		if atomic.LoadUint32((*uint32)(unsafe.Pointer(&slot[0])))&unix.TP_STATUS_USER == 0 {
			break
		}
		all = append(all, parseSlot(slot))
	}
	st, err := unix.GetsockoptTpacketStats(t.fd, unix.SOL_PACKET, unix.PACKET_STATISTICS)
	if err != nil {
		return all, fmt.Errorf("lab: tap %s: %w", t.name, err)
	}
	if t.drops += st.Drops; t.drops > 0 { // the kernel begins to count anew
		return all, fmt.Errorf("lab: tap %s: %d frames had no room after %d", t.name, t.drops, len(all))
	}
	return all, nil
}

// Close ends the tap and gives the cable its offloads back.
func (t *Tap) Close() (err error) {
	t.once.Do(func() {
		if t.ring != nil {
			_ = unix.Munmap(t.ring)
			t.ring = nil
		}
		if t.fd >= 0 {
			_ = unix.Close(t.fd)
			t.fd = -1
		}
		err = t.restore()
	})
	return err
}

// parseSlot reads a slot of the ring that the kernel has filled. Its offsets are
// checked all the same.
func parseSlot(slot []byte) (a Arrival) {
	const header = 32 // struct tpacket2_hdr
	if len(slot) < header {
		return a
	}
	order := binary.NativeEndian
	length, kept := order.Uint32(slot[4:]), int(order.Uint32(slot[8:]))
	mac, ip := int(order.Uint16(slot[12:])), int(order.Uint16(slot[14:]))
	a.At = int64(order.Uint32(slot[16:]))*1e9 + int64(order.Uint32(slot[20:]))
	a.Size = int(length)
	if end := min(mac+kept, len(slot)); mac >= header && ip >= mac && ip <= end {
		a.From, a.To = parseEnds(slot[ip:end])
	}
	return a
}

// parseEnds reads where an IP packet, which may be cut, comes from and goes to:
// version and header length in byte 0, fragment offset in 6 and 7, protocol in 9,
// addresses from 12 on (RFC 791 §3.1).
func parseEnds(p []byte) (from, to netip.AddrPort) {
	if len(p) < 20 || p[0]>>4 != 4 {
		return from, to
	}
	var ports [2]uint16
	head := int(p[0]&15) * 4
	whole := binary.BigEndian.Uint16(p[6:])&0x1fff == 0
	if (p[9] == unix.IPPROTO_UDP || p[9] == unix.IPPROTO_TCP) && whole && head >= 20 && len(p) >= head+4 {
		ports = [2]uint16{binary.BigEndian.Uint16(p[head:]), binary.BigEndian.Uint16(p[head+2:])}
	}
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte(p[12:])), ports[0]), netip.AddrPortFrom(netip.AddrFrom4([4]byte(p[16:])), ports[1])
}
