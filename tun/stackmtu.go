package tun

import (
	"encoding/binary"
	"fmt"
	"net/netip"

	gsum "gvisor.dev/gvisor/pkg/tcpip/checksum"
	"gvisor.dev/gvisor/pkg/tcpip/header"
)

// SetPeerMTU says that packets to these addresses may be at most mtu bytes; 0, or
// not less than the stack's own, takes that back. TCP learns of it as it would in
// any network: the first packet that is too long is answered by an ICMP message
// (RFC 1191, RFC 8201).
func (s *Stack) SetPeerMTU(addrs []netip.Addr, mtu int) error {
	for _, a := range addrs {
		least := header.IPv4MinimumMTU
		if a.Is6() {
			least = header.IPv6MinimumMTU
		}
		switch {
		case mtu == 0 || mtu >= s.mtu:
			s.small.Delete(a)
		case mtu < least:
			return fmt.Errorf("tun: an MTU of %d bytes to %v; at least %d is allowed", mtu, a, least)
		default:
			s.small.Store(a, mtu)
			s.anyLow.Store(true)
		}
	}
	return nil
}

// tooBig reports whether a packet of ours is longer than its way carries, and
// then has told the stack so.
func (s *Stack) tooBig(pkt []byte) bool {
	if !s.anyLow.Load() || len(pkt) <= header.IPv4MinimumMTU {
		return false
	}
	v6 := pkt[0]>>4 == 6
	dst := netip.AddrFrom4([4]byte(pkt[16:20]))
	if v6 {
		dst = netip.AddrFrom16([16]byte(pkt[24:40]))
	}
	v, ok := s.small.Load(dst)
	if !ok || len(pkt) <= v.(int) {
		return false
	}
	reply := fragmentationNeeded
	if v6 {
		reply = packetTooBig
	}
	_, _ = s.Write([][]byte{reply(pkt, v.(int))}, 0) // fails only when the stack is closed
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
