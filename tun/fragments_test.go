package tun

import (
	"bytes"
	"encoding/binary"
	"net/netip"
	"testing"

	"gvisor.dev/gvisor/pkg/tcpip/header"
)

// piece is what a fragment says of itself.
type piece struct {
	at   int
	more bool
	id   uint32
	data []byte
}

// readPiece checks a fragment's headers.
func readPiece(t *testing.T, pkt []byte) piece {
	t.Helper()
	if pkt[0]>>4 == 6 {
		if n := int(header.IPv6(pkt).PayloadLength()); n != len(pkt)-40 || pkt[6] != 44 {
			t.Fatalf("%x says %d bytes, has %d", pkt[:48], n, len(pkt)-40)
		}
		at := binary.BigEndian.Uint16(pkt[42:])
		return piece{int(at &^ 7), at&1 != 0, binary.BigEndian.Uint32(pkt[44:]), pkt[48:]}
	}
	h := header.IPv4(pkt)
	if !h.IsValid(len(pkt)) || int(h.TotalLength()) != len(pkt) || sumOf(pkt[:h.HeaderLength()]) != 0 || h.Flags()&header.IPv4FlagDontFragment != 0 {
		t.Fatalf("%x: broken headers, of %d bytes", pkt[:h.HeaderLength()], len(pkt))
	}
	return piece{int(h.FragmentOffset()), h.More(), uint32(h.ID()), pkt[h.HeaderLength():]}
}

// cut returns a packet's fragments, filling three buffers at a time.
func cut(f *fragments, pkt []byte, mtu int) (pkts [][]byte) {
	if !f.set(pkt, mtu) {
		return nil
	}
	for n := 3; n == 3; {
		bufs, sizes := [][]byte{make([]byte, 1+mtu), make([]byte, 1+mtu), make([]byte, 1+mtu)}, make([]int, 3)
		n = f.fill(bufs, sizes, 1, 0)
		for i := range n {
			pkts = append(pkts, bufs[i][1:][:sizes[i]])
		}
	}
	return pkts
}

// wantJoined checks that fragments follow on each other within an MTU, each but the last
// in units of 8 bytes, and returns their payload and the last.
func wantJoined(t *testing.T, pkts [][]byte, mtu int) (all []byte, last piece) {
	t.Helper()
	for i, pkt := range pkts {
		p := readPiece(t, pkt)
		if i > 0 && (p.at != last.at+len(last.data) || p.id != last.id || !last.more) || len(pkt) > mtu {
			t.Fatalf("after %d to %d of %d (more %v) come %d bytes for %d, of %d", last.at, last.at+len(last.data), last.id, last.more, len(pkt), p.at, p.id)
		}
		if i < len(pkts)-1 && (!p.more || len(p.data)%8 != 0 || len(p.data) == 0) {
			t.Fatalf("fragment %d of %d has %d bytes, more %v", i, len(pkts), len(p.data), p.more)
		}
		all, last = append(all, p.data...), p
	}
	return all, last
}

// TestFragments: a packet's fragments, and theirs, are what it was.
func TestFragments(t *testing.T) {
	var f fragments
	for _, ends := range [][2]netip.Addr{{own4, peer4}, {own6, peer6}} {
		pkt := udp(ends[0], ends[1], 9, string(random(5000)))
		head := len(pkt) - 5008
		if ends[0].Is4() {
			header.IPv4(pkt).SetFlagsFragmentOffset(header.IPv4FlagDontFragment, 0)
		}
		seen := map[uint32]bool{}
		for range 3 {
			var all [][]byte
			coarse := cut(&f, pkt, 1399)
			for _, c := range coarse {
				all = append(all, cut(&f, c, 333)...)
			}
			got, last := wantJoined(t, all, 333)
			if len(coarse) != 4 || !bytes.Equal(got, pkt[head:]) || last.more {
				t.Errorf("%v: %d bytes of %d, or others, in %d and %d; more %v", ends, len(got), len(pkt)-head, len(coarse), len(all), last.more)
			}
			if seen[last.id] {
				t.Errorf("%v: another packet is number %d", ends, last.id)
			}
			seen[last.id] = true
		}
	}
	for name, change := range map[string]func(pkt []byte) []byte{
		"nothing":           func([]byte) []byte { return nil },
		"half a header":     func(pkt []byte) []byte { return pkt[:30] },
		"half a packet":     func(pkt []byte) []byte { return pkt[:100] },
		"hop by hop":        func(pkt []byte) []byte { pkt[6] = 0; return pkt },
		"a routing header":  func(pkt []byte) []byte { pkt[6] = 43; return pkt },
		"half a fragment's": func(pkt []byte) []byte { pkt[5], pkt[6] = 7, 44; return pkt[:47] },
		"beyond the end":    func(pkt []byte) []byte { pkt[6], pkt[42], pkt[43] = 44, 0xff, 0xf8; return pkt },
	} {
		pkt := udp(own6, peer6, 9, string(make([]byte, 200)))
		if pkts := cut(&f, change(pkt), 100); pkts != nil {
			t.Errorf("%s is cut into %d", name, len(pkts))
		}
	}
}

// FuzzFragments cuts packets of any bytes: the fragments have the payload between them.
func FuzzFragments(f *testing.F) {
	f.Add(udp(own4, peer4, 9, string(make([]byte, 300))), 100)
	f.Add(udp(own6, peer6, 9, string(make([]byte, 300))), 100)
	f.Add([]byte{0x4f, 19: 0, 100: 1}, leastMTU)
	f.Fuzz(func(t *testing.T, pkt []byte, mtu int) {
		if mtu < leastMTU || mtu > 65535 || len(pkt) > 65535 {
			t.Skip()
		}
		var s fragments
		if !s.set(pkt, mtu) {
			return
		}
		want, at, more := bytes.Clone(s.rest), s.offset, s.more
		pkts := cut(&s, pkt, mtu)
		if len(pkts) == 0 {
			if len(want) > 0 {
				t.Errorf("of %d bytes none are left", len(want))
			}
			return
		}
		got, last := wantJoined(t, pkts, mtu)
		if !bytes.Equal(got, want) || last.more != more || readPiece(t, pkts[0]).at != at {
			t.Errorf("%d bytes of %d, or others; more %v, not %v", len(got), len(want), last.more, more)
		}
	})
}
