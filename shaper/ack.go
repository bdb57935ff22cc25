package shaper

import "encoding/binary"

// Of TCP's header, RFC 9293 §3.1.
const (
	protocolTCP = 6
	tcpLeast    = 20 // bytes of a header without options
	flagsAt     = 13
	onlyAck     = 1 << 4 // FIN, SYN, RST, ACK: these flags, and ACK of them
	ofThese     = onlyAck | 1 | 2 | 4
)

// bareAck reports whether an IP packet is an acknowledgement of TCP's and no more.
// Behind a queue of data that goes the same way it would make the round trip of what
// comes the other way as long as that queue, in which a window that has still to grow
// grows by as little. It may overtake data of its own connection: the receiver takes
// the acknowledgement out of any segment in its window (RFC 9293 §3.10.7.4), and the
// time stamp only out of one in its turn (RFC 7323 §4.3).
func bareAck(pkt []byte) bool {
	var tcp []byte
	switch {
	case len(pkt) < 20:
		return false
	case pkt[0]>>4 == 4:
		head, total := int(pkt[0]&15)*4, int(binary.BigEndian.Uint16(pkt[2:]))
		fragment := binary.BigEndian.Uint16(pkt[6:]) & 0x3fff // more to come, or not the first
		if pkt[9] != protocolTCP || fragment != 0 || total != len(pkt) || head < 20 || head > len(pkt) {
			return false
		}
		tcp = pkt[head:]
	case pkt[0]>>4 == 6:
		if len(pkt) < 40 || pkt[6] != protocolTCP || int(binary.BigEndian.Uint16(pkt[4:])) != len(pkt)-40 {
			return false
		}
		tcp = pkt[40:]
	}
	return len(tcp) >= tcpLeast && int(tcp[12]>>4)*4 == len(tcp) && tcp[flagsAt]&ofThese == onlyAck
}
