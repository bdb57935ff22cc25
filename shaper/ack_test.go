package shaper

import (
	"bytes"
	"encoding/binary"
	"testing"
)

// tcpPacket is an IP packet with TCP's header and so many bytes behind it.
func tcpPacket(v6 bool, options int, flags byte, payload int) []byte {
	tcp := make([]byte, 20+options+payload)
	tcp[12], tcp[13] = byte((20+options)/4)<<4, flags
	ip := make([]byte, 20)
	if v6 {
		ip = make([]byte, 40)
		ip[0], ip[6] = 6<<4, protocolTCP
		binary.BigEndian.PutUint16(ip[4:], uint16(len(tcp)))
	} else {
		ip[0], ip[9] = 4<<4|5, protocolTCP
		binary.BigEndian.PutUint16(ip[2:], uint16(20+len(tcp)))
	}
	return append(ip, tcp...)
}

func TestBareAck(t *testing.T) {
	with := func(pkt []byte, at int, b byte) []byte {
		pkt = bytes.Clone(pkt)
		pkt[at] = b
		return pkt
	}
	ack := tcpPacket(false, 12, 0x10, 0)
	for _, tc := range []struct {
		name string
		pkt  []byte
		want bool
	}{
		{"IPv4", ack, true},
		{"IPv6", tcpPacket(true, 12, 0x10, 0), true},
		{"with ECE", tcpPacket(false, 0, 0x50, 0), true},
		{"SACK", tcpPacket(true, 40, 0x10, 0), true},
		{"with a byte", tcpPacket(false, 12, 0x18, 1), false},
		{"SYN", tcpPacket(false, 20, 0x02, 0), false},
		{"SYN and ACK", tcpPacket(true, 20, 0x12, 0), false},
		{"FIN", tcpPacket(false, 12, 0x11, 0), false},
		{"RST", tcpPacket(false, 12, 0x14, 0), false},
		{"UDP", with(ack, 9, 17), false},
		{"another header before TCP's", with(tcpPacket(true, 12, 0x10, 0), 6, 0), false},
		{"a fragment", with(ack, 7, 1), false},
		{"the first fragment", with(ack, 6, 0x20), false},
		{"not to be cut", with(ack, 6, 0x40), true},
		{"longer than it says", append(bytes.Clone(ack), 0), false},
		{"a header that is too short", with(ack, 0, 4<<4|4), false},
		{"a header beyond the end", with(ack, 0, 4<<4|15), false},
		{"cut short", ack[:30], false},
		{"nothing", nil, false},
	} {
		if got := bareAck(tc.pkt); got != tc.want {
			t.Errorf("%s: %v", tc.name, got)
		}
	}
}

// TestAckOvertakes: an acknowledgement does not wait for data of its own flow in stage
// 1, unless that is full of such.
func TestAckOvertakes(t *testing.T) {
	w := newWorld(t)
	l := w.link(20e6)
	f := w.flow(l)
	for !t.Failed() && f.wait.bytes < 50_000 {
		w.admits(f, tcpPacket(false, 12, 0x18, 1300))
	}
	waiting, n := f.wait.packets, 0
	for w.admits(f, tcpPacket(false, 12, 0x10, 0)) {
		n++
	}
	if most := 2 * w.m.windowBytes(l); n == 0 || l.released > most {
		t.Errorf("%d acknowledgements went, and there are %d bytes on their way, at most %d", n, l.released, most)
	}
	if f.wait.packets != waiting+1 {
		t.Errorf("%d packets wait, want the data and the last acknowledgement, %d", f.wait.packets, waiting+1)
	}
}

func FuzzBareAck(f *testing.F) {
	f.Add(tcpPacket(false, 12, 0x10, 0))
	f.Add(tcpPacket(true, 0, 0x10, 5))
	f.Fuzz(func(t *testing.T, pkt []byte) {
		if bareAck(pkt) && len(pkt) > 60+60 {
			t.Errorf("%d bytes are no bare acknowledgement", len(pkt))
		}
	})
}
