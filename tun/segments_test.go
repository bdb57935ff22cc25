package tun

import (
	"bytes"
	"encoding/binary"
	"errors"
	"net/netip"
	"testing"

	"golang.org/x/sys/unix"
)

// super is a superpacket as the kernel hands it over: the checksum's place holds the
// pseudo header's sum, and lengths are those of the whole.
func super(v6, isUDP bool, payload []byte, size int) []byte {
	src, dst := netip.MustParseAddr("10.1.2.3"), netip.MustParseAddr("10.1.2.4")
	ip := make([]byte, 20)
	ip[0], ip[8], ip[9] = 4<<4|5, 64, unix.IPPROTO_TCP
	binary.BigEndian.PutUint16(ip[4:], 0xfffe) // its identification wraps
	kind := byte(unix.VIRTIO_NET_HDR_GSO_TCPV4)
	if v6 {
		src, dst = netip.MustParseAddr("fd00::3"), netip.MustParseAddr("fd00::4")
		ip = make([]byte, 40)
		ip[0], ip[6], ip[7] = 6<<4, unix.IPPROTO_TCP, 64
		kind = unix.VIRTIO_NET_HDR_GSO_TCPV6
	}
	transport, sum := make([]byte, 32), 16 // TCP with twelve bytes of options
	binary.BigEndian.PutUint32(transport[4:], 0xffffff00)
	transport[12], transport[13] = 8<<4, 0x10|finPsh // ACK, PSH, FIN
	if isUDP {
		transport, sum, kind = make([]byte, 8), 6, unix.VIRTIO_NET_HDR_GSO_UDP_L4
		ip[9-v6At(v6)] = unix.IPPROTO_UDP
	}
	copy(ip[len(ip)-2*len(src.AsSlice()):], src.AsSlice())
	copy(ip[len(ip)-len(dst.AsSlice()):], dst.AsSlice())
	h := make([]byte, virtioLen)
	h[0], h[1] = unix.VIRTIO_NET_HDR_F_NEEDS_CSUM, kind
	binary.NativeEndian.PutUint16(h[2:], uint16(len(ip)+len(transport)))
	binary.NativeEndian.PutUint16(h[4:], uint16(size))
	binary.NativeEndian.PutUint16(h[6:], uint16(len(ip)))
	binary.NativeEndian.PutUint16(h[8:], uint16(sum))
	return bytes.Join([][]byte{h, ip, transport, payload}, nil)
}

// v6At is how far before IPv4's the protocol's place is.
func v6At(v6 bool) int {
	if v6 {
		return 3
	}
	return 0
}

// TestSegments cuts superpackets: each packet has its own lengths, numbers and
// checksums, the last may be shorter, and payloads come back whole.
func TestSegments(t *testing.T) {
	payload := make([]byte, 3*1000+7)
	for i := range payload {
		payload[i] = byte(i * 7)
	}
	for _, tc := range []struct {
		name      string
		v6, isUDP bool
	}{{"TCP4", false, false}, {"TCP6", true, false}, {"UDP4", false, true}, {"UDP6", true, true}} {
		t.Run(tc.name, func(t *testing.T) {
			var s segments
			if err := s.set(super(tc.v6, tc.isUDP, payload, 1000)); err != nil {
				t.Fatal(err)
			}
			var got []byte
			for i := 0; !s.empty(); i++ {
				buf := make([]byte, 2000)
				n, err := s.next(buf)
				if err != nil {
					t.Fatal(err)
				}
				got = append(got, wantSegment(t, buf[:n], i, tc.isUDP)...)
			}
			if !bytes.Equal(got, payload) {
				t.Errorf("%d bytes came back of %d, or others", len(got), len(payload))
			}
		})
	}
}

// wantSegment checks segment i of super's and returns its payload.
func wantSegment(t *testing.T, pkt []byte, i int, isUDP bool) []byte {
	t.Helper()
	head, protocol := 20, pkt[9]
	if pkt[0]>>4 == 6 {
		head, protocol = 40, pkt[6]
		if n := int(binary.BigEndian.Uint16(pkt[4:])); n != len(pkt)-40 {
			t.Errorf("segment %d says %d bytes, has %d", i, n, len(pkt)-40)
		}
	} else {
		if n := int(binary.BigEndian.Uint16(pkt[2:])); n != len(pkt) {
			t.Errorf("segment %d says %d bytes, has %d", i, n, len(pkt))
		}
		if id := binary.BigEndian.Uint16(pkt[4:]); id != 0xfffe+uint16(i) {
			t.Errorf("segment %d is number %#x", i, id)
		}
		if sumOf(pkt[:20]) != 0 {
			t.Errorf("segment %d has a wrong checksum of its header", i)
		}
	}
	t4, addrs := pkt[head:], pkt[12:20]
	if head == 40 {
		addrs = pkt[8:40]
	}
	pseudo := append(bytes.Clone(addrs), 0, protocol, byte(len(t4)>>8), byte(len(t4)))
	if sumOf(pseudo, t4) != 0 {
		t.Errorf("segment %d has a wrong checksum", i)
	}
	if isUDP {
		if n := int(binary.BigEndian.Uint16(t4[4:])); n != len(t4) {
			t.Errorf("segment %d says %d bytes, has %d", i, n, len(t4))
		}
		return t4[8:]
	}
	if seq := binary.BigEndian.Uint32(t4[4:]); seq != 0xffffff00+uint32(1000*i) {
		t.Errorf("segment %d has number %#x", i, seq)
	}
	if last := len(t4) < 1032; (t4[13]&finPsh != 0) != last {
		t.Errorf("segment %d has flags %#x", i, t4[13])
	}
	return t4[32:]
}

// TestSegmentsOfOne: what is not to be cut leaves as it came, with the checksum that
// the kernel left to us.
func TestSegmentsOfOne(t *testing.T) {
	src, dst := netip.MustParseAddr("10.1.2.3"), netip.MustParseAddr("10.1.2.4")
	want := udp(src, dst, 9, "hello")
	pkt := bytes.Clone(want)
	pseudo := ^sumOf(src.AsSlice(), dst.AsSlice(), []byte{0, unix.IPPROTO_UDP}, pkt[24:26])
	binary.BigEndian.PutUint16(pkt[26:], pseudo)
	h := make([]byte, virtioLen)
	h[0] = unix.VIRTIO_NET_HDR_F_NEEDS_CSUM
	binary.NativeEndian.PutUint16(h[6:], 20)
	binary.NativeEndian.PutUint16(h[8:], 6)
	for _, tc := range []struct{ in []byte }{{append(h, pkt...)}, {append(make([]byte, virtioLen), want...)}} {
		var s segments
		if err := s.set(tc.in); err != nil {
			t.Fatal(err)
		}
		buf := make([]byte, 100)
		if n, err := s.next(buf); err != nil || !bytes.Equal(buf[:n], want) || !s.empty() {
			t.Errorf("%x came out, %v, want %x", buf[:n], err, want)
		}
	}
	s := segments{pkt: want}
	if _, err := s.next(make([]byte, 5)); err == nil || !s.empty() {
		t.Errorf("it was cut off for a buffer of 5 bytes: %v", err)
	}
}

// stunted is a superpacket of TCP whose header says that it is of 8 bytes.
func stunted() []byte {
	b := super(false, false, make([]byte, 100), 4)
	b[virtioLen+20+12] = 2 << 4
	binary.NativeEndian.PutUint16(b[8:], 4) // the checksum is within them
	return b
}

// nameless is a superpacket of UDP, of neither IPv4 nor IPv6, that ends before IPv6's
// addresses would.
func nameless() []byte {
	b := super(false, true, make([]byte, 2), 1)
	b[virtioLen] = 5 << 4
	return b
}

// TestSegmentsRefused: headers that end too early for what is written to them are refused.
func TestSegmentsRefused(t *testing.T) {
	for name, b := range map[string][]byte{"a TCP header of 8 bytes": stunted(), "version 5": nameless()} {
		var s segments
		if err := s.set(b); !errors.Is(err, errHeaders) {
			t.Errorf("%s: %v, want %v", name, err, errHeaders)
		}
	}
}

// FuzzSegments cuts packets of any bytes: in the end none is left, each is within its
// buffer, and all have the payload between them.
func FuzzSegments(f *testing.F) {
	f.Add(super(false, false, make([]byte, 100), 30), 1500)
	f.Add(super(true, true, make([]byte, 100), 30), 1500)
	f.Add(append(make([]byte, virtioLen), 0x45, 0), 1)
	f.Add(super(false, true, make([]byte, 2), 1), 29)
	f.Add(stunted(), 1500)
	f.Add(nameless(), 29)
	f.Fuzz(func(t *testing.T, b []byte, room int) {
		if len(b) > virtioLen+65535 || room < 0 || room > 65535 {
			t.Skip()
		}
		var s segments
		if s.set(b) != nil {
			return
		}
		whole, payload, cut := len(s.pkt), len(s.pkt)-s.payload, s.size > 0
		got, buf := 0, make([]byte, room)
		for !s.empty() {
			n, err := s.next(buf)
			if err != nil {
				return
			}
			if got += n; cut {
				got -= s.payload
			}
		}
		if cut && got != payload || !cut && got != whole {
			t.Errorf("%d bytes came of %d, of which %d are payload", got, whole, payload)
		}
	})
}
