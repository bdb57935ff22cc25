package tun

import (
	"encoding/binary"

	"gvisor.dev/gvisor/pkg/tcpip/header"
)

// fragments are what a packet leaves as that is longer than its way carries (RFC 791
// §3.2, RFC 8200 §4.5). What is a fragment already, since a datagram was longer than
// the stack's own MTU, becomes several of the same datagram. IPv4 options are in each,
// as in those that gVisor makes. They are one reader's.
type fragments struct {
	head   []byte // headers, IPv6's with its fragment header
	rest   []byte // of the payload, what has not left
	offset int    // of rest in the datagram
	more   bool   // the datagram does not end with rest
	mtu    int
	id     uint32 // given last to a packet that had none
	data   []byte // where head and rest are kept
}

// set copies a packet that is to leave in packets of at most mtu bytes, at least
// leastMTU. It reports false for what cannot be: broken headers, and headers of IPv6
// that routers read, which would have to be in each fragment and which the stack sends
// to no peer.
func (f *fragments) set(pkt []byte, mtu int) bool {
	if len(pkt) == 0 {
		return false
	}
	split := f.split4
	if pkt[0]>>4 == 6 {
		split = f.split6
	}
	if !split(pkt) || f.offset+len(f.rest) > 0xffff {
		f.rest = nil
		return false
	}
	f.mtu = mtu
	return true
}

func (f *fragments) split4(pkt []byte) bool {
	h := header.IPv4(pkt)
	if !h.IsValid(len(pkt)) {
		return false
	}
	f.data = append(f.data[:0], pkt[:h.TotalLength()]...)
	f.head, f.rest = f.data[:h.HeaderLength()], f.data[h.HeaderLength():]
	f.offset, f.more = int(h.FragmentOffset()), h.More()
	if whole := f.offset == 0 && !f.more; whole && h.Flags()&header.IPv4FlagDontFragment != 0 {
		f.id++ // such packets have none that tells them apart (RFC 6864 §4.1)
		header.IPv4(f.head).SetID(uint16(f.id))
	}
	return true
}

// split6 adds or finds the fragment header:
//
//	next header, reserved (8 bits each), offset in units of 8 bytes (13 bits),
//	reserved (2), more follow (1), identification (32)
func (f *fragments) split6(pkt []byte) bool {
	const ip, all = header.IPv6MinimumSize, header.IPv6MinimumSize + header.IPv6FragmentHeaderSize
	h := header.IPv6(pkt)
	if !h.IsValid(len(pkt)) {
		return false
	}
	pkt = pkt[:ip+int(h.PayloadLength())]
	switch header.IPv6ExtensionHeaderIdentifier(h.NextHeader()) {
	case header.IPv6HopByHopOptionsExtHdrIdentifier, header.IPv6RoutingExtHdrIdentifier, header.IPv6DestinationOptionsExtHdrIdentifier:
		return false
	case header.IPv6FragmentExtHdrIdentifier:
		if len(pkt) < all {
			return false
		}
		f.data = append(f.data[:0], pkt...)
	default:
		f.id++
		f.data = append(f.data[:0], pkt[:ip]...)
		f.data[header.IPv6NextHeaderOffset] = uint8(header.IPv6FragmentExtHdrIdentifier)
		f.data = append(f.data, h.NextHeader(), 0, 0, 0)
		f.data = binary.BigEndian.AppendUint32(f.data, f.id)
		f.data = append(f.data, pkt[ip:]...)
	}
	f.head, f.rest = f.data[:all], f.data[all:]
	at := binary.BigEndian.Uint16(f.head[ip+2:])
	f.offset, f.more = int(at&^7), at&1 != 0
	return true
}

// fill writes fragments to the buffers from the nth on, until there are no more of
// either, and returns how many of the buffers are full then.
func (f *fragments) fill(bufs [][]byte, sizes []int, offset, n int) int {
	for ; n < len(bufs) && len(f.rest) > 0; n++ {
		sizes[n] = f.next(bufs[n][offset:])
	}
	return n
}

// next writes the next fragment and returns its size.
func (f *fragments) next(out []byte) int {
	size := min(len(f.rest), f.mtu-len(f.head))
	more := f.more
	if size < len(f.rest) {
		size, more = size&^7, true
	}
	out = out[:len(f.head)+size]
	copy(out, f.head)
	copy(out[len(f.head):], f.rest)
	if out[0]>>4 == 6 {
		at := uint16(f.offset)
		if more {
			at |= 1
		}
		header.IPv6(out).SetPayloadLength(uint16(len(out) - header.IPv6MinimumSize))
		binary.BigEndian.PutUint16(out[header.IPv6MinimumSize+2:], at)
	} else {
		h, flags := header.IPv4(out), uint8(0)
		if more {
			flags = header.IPv4FlagMoreFragments
		}
		h.SetTotalLength(uint16(len(out)))
		h.SetFlagsFragmentOffset(flags, uint16(f.offset))
		h.SetChecksum(0)
		h.SetChecksum(^h.CalculateChecksum())
	}
	f.rest, f.offset = f.rest[size:], f.offset+size
	return len(out)
}
