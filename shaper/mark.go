package shaper

import "encoding/binary"

// The two bits of ECN, RFC 3168 §5.
const (
	ecnMask = 3
	notECT  = 0
	ce      = 3
)

// mark sets "congestion experienced" in an IP packet whose sender understands
// it, and reports whether it did. The checksum of IPv4's header follows by RFC
// 1624, equation 3; checksums of what is inside do not cover these bits.
func mark(pkt []byte) bool {
	if len(pkt) < 20 {
		return false
	}
	switch pkt[0] >> 4 {
	case 4:
		if int(pkt[0]&15) < 5 || pkt[1]&ecnMask == notECT || pkt[1]&ecnMask == ce {
			return false
		}
		was := binary.BigEndian.Uint16(pkt)
		pkt[1] |= ce
		sum := uint32(^binary.BigEndian.Uint16(pkt[10:])) + uint32(^was) + uint32(binary.BigEndian.Uint16(pkt))
		sum = sum>>16 + sum&0xffff
		sum += sum >> 16
		binary.BigEndian.PutUint16(pkt[10:], ^uint16(sum))
		return true
	case 6: // the traffic class lies across the first two bytes, RFC 8200 §3
		if ecn := pkt[1] >> 4 & ecnMask; len(pkt) < 40 || ecn == notECT || ecn == ce {
			return false
		}
		pkt[1] |= ce << 4
		return true
	}
	return false
}
