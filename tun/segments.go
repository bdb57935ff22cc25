package tun

import (
	"encoding/binary"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/tcpip/checksum"
)

// virtioLen is the length of struct virtio_net_hdr, which precedes each packet:
//
//	flags, type of segments (8 bits each), length of the headers, bytes of payload in a
//	segment, where the checksum begins, where it is, from there (16 bits each)
const virtioLen = 10

var errHeaders = errors.New("tun: read: a packet whose headers make no sense")

// segments are what a packet from the kernel is to leave as: itself, or for TCP and
// UDP with much to send a train of packets with the same headers, which the kernel
// leaves to devices to cut.
type segments struct {
	pkt       []byte // headers and payload; nil: none is left
	transport int    // where TCP or UDP begins
	sum       int    // where its checksum is
	payload   int    // where what is cut begins
	size      int    // of a segment's payload; 0: the packet is to leave as it is
	udp       bool
	at        int // what of the payload has left
	count     int // of segments that have
}

func (s *segments) empty() bool { return s.pkt == nil }

// set takes in a packet behind its virtio header. It may write to it until the last
// segment has left.
func (s *segments) set(b []byte) error {
	if len(b) <= virtioLen {
		return errHeaders
	}
	field := func(at int) int { return int(binary.NativeEndian.Uint16(b[at:])) }
	flags, kind, pkt := b[0], b[1], b[virtioLen:]
	t := segments{transport: field(6), size: field(4)}
	t.sum = t.transport + field(8)
	header := 20 // bytes that address may write to, RFC 9293 §3.1
	switch kind {
	case unix.VIRTIO_NET_HDR_GSO_NONE:
		if flags&unix.VIRTIO_NET_HDR_F_NEEDS_CSUM != 0 {
			if t.sum+2 > len(pkt) {
				return errHeaders
			}
			finish(pkt[t.transport:], t.sum-t.transport)
		}
		*s = segments{pkt: pkt}
		return nil
	case unix.VIRTIO_NET_HDR_GSO_TCPV4, unix.VIRTIO_NET_HDR_GSO_TCPV6:
		if t.transport+header > len(pkt) {
			return errHeaders
		}
		t.payload = t.transport + int(pkt[t.transport+12]>>4)*4 // the header's own length may be the kernel's first packet's
	case unix.VIRTIO_NET_HDR_GSO_UDP_L4:
		header = 8 // RFC 768
		t.payload, t.udp = t.transport+header, true
	default:
		return fmt.Errorf("tun: read: segments of an unknown type, %d", kind)
	}
	least := 40
	if pkt[0]>>4 == 4 {
		least = 20
	}
	if t.transport < least || t.size == 0 || t.payload < t.transport+header || t.sum+2 > t.payload || t.payload >= len(pkt) {
		return errHeaders
	}
	t.pkt = pkt
	*s = t
	return nil
}

// next copies the next packet and returns its size.
func (s *segments) next(out []byte) (int, error) {
	if s.size == 0 {
		pkt := s.pkt
		s.pkt = nil
		if len(pkt) > len(out) {
			return 0, fmt.Errorf("tun: read: a packet of %d bytes for a buffer of %d", len(pkt), len(out))
		}
		return copy(out, pkt), nil
	}
	from := s.payload + s.at
	to := min(from+s.size, len(s.pkt))
	n := s.payload + to - from
	if n > len(out) {
		s.pkt = nil
		return 0, fmt.Errorf("tun: read: a segment of %d bytes for a buffer of %d", n, len(out))
	}
	out = out[:n]
	copy(out, s.pkt[:s.payload])
	copy(out[s.payload:], s.pkt[from:to])
	s.address(out)
	s.at += to - from
	s.count++
	if to == len(s.pkt) {
		s.pkt = nil
	}
	return n, nil
}

// address makes the headers those of the segment that follows the last.
func (s *segments) address(out []byte) {
	t := out[s.transport:]
	var addrs []byte
	if out[0]>>4 == 4 {
		addrs = out[12:20]
		binary.BigEndian.PutUint16(out[2:], uint16(len(out)))
		binary.BigEndian.PutUint16(out[4:], binary.BigEndian.Uint16(out[4:])+uint16(s.count))
		out[10], out[11] = 0, 0
		binary.BigEndian.PutUint16(out[10:], ^checksum.Checksum(out[:s.transport], 0))
	} else {
		addrs = out[8:40]
		binary.BigEndian.PutUint16(out[4:], uint16(len(out)-40))
	}
	protocol := byte(unix.IPPROTO_TCP)
	if s.udp {
		protocol = unix.IPPROTO_UDP
		binary.BigEndian.PutUint16(t[4:], uint16(len(t)))
	} else {
		binary.BigEndian.PutUint32(t[4:], binary.BigEndian.Uint32(t[4:])+uint32(s.at))
		if s.payload+s.at+s.size < len(s.pkt) {
			t[13] &^= finPsh // they belong to the last
		}
	}
	pseudo := checksum.Checksum(addrs, checksum.Combine(uint16(protocol), uint16(len(t))))
	binary.BigEndian.PutUint16(out[s.sum:], pseudo)
	finish(t, s.sum-s.transport)
}

// finPsh are TCP's flags FIN and PSH.
const finPsh = 1 | 8

// finish makes of the pseudo header's sum, which is where the checksum is to be, the
// checksum of all of b (RFC 1071).
func finish(b []byte, at int) {
	sum := ^checksum.Checksum(b, 0)
	if sum == 0 {
		sum = 0xffff // the same number; in UDP 0 says that there is none
	}
	binary.BigEndian.PutUint16(b[at:], sum)
}
