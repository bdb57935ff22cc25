package tun

import (
	"encoding/binary"
	"fmt"
	"net/netip"

	gsum "gvisor.dev/gvisor/pkg/tcpip/checksum"
	"gvisor.dev/gvisor/pkg/tcpip/header"
)

// leastMTU is the smallest MTU that a peer may have, in bytes (RFC 791 §3.2). IPv6 asks
// for 1280 of a link, or for fragments beneath it (RFC 8200 §5); paths may carry less,
// and fragments they have.
const leastMTU = header.IPv4MinimumMTU

// SetPeerMTU says that packets to these addresses may be at most mtu bytes; 0, or
// not less than the stack's own, takes that back. Longer ones leave in fragments, and
// TCP learns of it as it would in any network, by an ICMP message (RFC 1191, RFC 8201).
// The error is the first of any of the addresses; the others are set.
func (s *Stack) SetPeerMTU(addrs []netip.Addr, mtu int) error {
	if mtu != 0 && mtu < leastMTU {
		return fmt.Errorf("tun: an MTU of %d bytes is less than IP's least, %d", mtu, leastMTU)
	}
	var first error
	for _, a := range addrs {
		switch {
		case !a.IsValid():
			if first == nil {
				first = fmt.Errorf("tun: an MTU of %d bytes: %v is no address", mtu, a)
			}
		case mtu == 0 || mtu >= s.mtu:
			s.small.Delete(a)
		default:
			s.small.Store(a, mtu)
			s.anyLow.Store(true)
		}
	}
	return first
}

// tooBig reports whether a packet of ours is longer than its way carries, and then
// has left fragments of it in s.cut.
//
// TCP is told so besides, and sends smaller segments from then on. What is too long
// goes in fragments nevertheless, even if it says that it must not: gVisor, when told,
// counts one segment as lost, and where all that were under way are it waits for its
// timer, again and again, for seconds. In IPv6 it heeds nothing less than 1280 bytes
// and goes on with fragments. A smaller MSS in the handshakes would spare it those, but
// connections that are there when a path shrinks need them anyhow. The peer does the
// same with what it sends, or is a kernel, whose TCP heeds any MTU of a route.
func (s *Stack) tooBig(pkt []byte) bool {
	if !s.anyLow.Load() || len(pkt) <= leastMTU {
		return false
	}
	v6 := pkt[0]>>4 == 6
	dst, protocol := netip.AddrFrom4([4]byte(pkt[16:20])), header.IPv4(pkt).Protocol()
	if v6 {
		dst, protocol = netip.AddrFrom16([16]byte(pkt[24:40])), header.IPv6(pkt).NextHeader()
	}
	v, ok := s.small.Load(dst)
	if !ok || len(pkt) <= v.(int) || !s.cut.set(pkt, v.(int)) {
		return false
	}
	if mtu := v.(int); protocol == uint8(header.TCPProtocolNumber) && (!v6 || mtu >= header.IPv6MinimumMTU) {
		reply := fragmentationNeeded
		if v6 {
			reply = packetTooBig
		}
		_, _ = s.Write([][]byte{reply(pkt, mtu)}, 0) // fails only when the stack is closed
	}
	return true
}

// fragmentationNeeded is the answer of RFC 792 and RFC 1191 §4 to a packet.
func fragmentationNeeded(pkt []byte, mtu int) []byte {
	const ip, icmp = header.IPv4MinimumSize, header.ICMPv4MinimumSize
	quoted := pkt[:ip+8]
	b := make([]byte, ip+icmp+len(quoted))
	h := header.IPv4(b)
	h.Encode(&header.IPv4Fields{
		TotalLength: uint16(len(b)), TTL: 64, Protocol: uint8(header.ICMPv4ProtocolNumber),
		SrcAddr: header.IPv4(pkt).DestinationAddress(), DstAddr: header.IPv4(pkt).SourceAddress(),
	})
	h.SetChecksum(^h.CalculateChecksum())
	m := header.ICMPv4(b[ip:])
	m.SetType(header.ICMPv4DstUnreachable)
	m.SetCode(header.ICMPv4FragmentationNeeded)
	m.SetMTU(uint16(mtu))
	copy(b[ip+icmp:], quoted)
	m.SetChecksum(^gsum.Checksum(b[ip:], 0))
	return b
}

// packetTooBig is the answer of RFC 4443 §3.2 to a packet.
func packetTooBig(pkt []byte, mtu int) []byte {
	const ip, icmp = header.IPv6MinimumSize, header.ICMPv6PacketTooBigMinimumSize
	quoted := pkt[:min(len(pkt), header.IPv6MinimumMTU-ip-icmp)]
	b := make([]byte, ip+icmp+len(quoted))
	src, dst := header.IPv6(pkt).DestinationAddress(), header.IPv6(pkt).SourceAddress()
	header.IPv6(b).Encode(&header.IPv6Fields{
		PayloadLength: uint16(icmp + len(quoted)), TransportProtocol: header.ICMPv6ProtocolNumber, HopLimit: 64, SrcAddr: src, DstAddr: dst,
	})
	m := header.ICMPv6(b[ip:])
	m.SetType(header.ICMPv6PacketTooBig)
	binary.BigEndian.PutUint32(m[4:], uint32(mtu))
	copy(b[ip+icmp:], quoted)
	m.SetChecksum(header.ICMPv6Checksum(header.ICMPv6ChecksumParams{Header: m, Src: src, Dst: dst}))
	return b
}
