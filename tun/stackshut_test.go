package tun

import (
	"bytes"
	"context"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"gvisor.dev/gvisor/pkg/tcpip"
	gsum "gvisor.dev/gvisor/pkg/tcpip/checksum"
	"gvisor.dev/gvisor/pkg/tcpip/header"
	gtcp "gvisor.dev/gvisor/pkg/tcpip/transport/tcp"
)

// packet is a TCP segment, with a window of 60,000 in units as agreed, in an IP packet.
func packet(from, to netip.AddrPort, seq, ack uint32, flags header.TCPFlags, options, data []byte) []byte {
	src, dst := tcpip.AddrFromSlice(from.Addr().AsSlice()), tcpip.AddrFromSlice(to.Addr().AsSlice())
	size := header.TCPMinimumSize + len(options)
	tcp := header.TCP(make([]byte, size, size+len(data)))
	tcp.Encode(&header.TCPFields{
		SrcPort: from.Port(), DstPort: to.Port(), SeqNum: seq, AckNum: ack, DataOffset: uint8(size), Flags: flags, WindowSize: 60_000,
	})
	copy(tcp[header.TCPMinimumSize:], options)
	all := uint16(size + len(data))
	tcp.SetChecksum(^tcp.CalculateChecksum(gsum.Checksum(data, header.PseudoHeaderChecksum(header.TCPProtocolNumber, src, dst, all))))
	if from.Addr().Is6() {
		ip := make(header.IPv6, header.IPv6MinimumSize)
		ip.Encode(&header.IPv6Fields{PayloadLength: all, TransportProtocol: header.TCPProtocolNumber, HopLimit: 64, SrcAddr: src, DstAddr: dst})
		return append(append(ip, tcp...), data...)
	}
	ip := make(header.IPv4, header.IPv4MinimumSize)
	ip.Encode(&header.IPv4Fields{TotalLength: header.IPv4MinimumSize + all, TTL: 64, Protocol: uint8(header.TCPProtocolNumber), SrcAddr: src, DstAddr: dst})
	ip.SetChecksum(^ip.CalculateChecksum())
	return append(append(ip, tcp...), data...)
}

// hand is a peer of a stack's connection that a test plays.
type hand struct {
	t        *testing.T
	stack    *Stack
	own      netip.AddrPort
	to       netip.AddrPort
	seq, ack uint32 // sent and received up to here
}

func (h *hand) send(flags header.TCPFlags, options []byte, size int) {
	h.t.Helper()
	pkt := packet(h.own, h.to, h.seq, h.ack, flags, options, make([]byte, size))
	if _, err := h.stack.Write([][]byte{pkt}, 0); err != nil {
		h.t.Fatal(err)
	}
	h.seq += uint32(size)
}

// next returns the next segment that the stack sends.
func (h *hand) next() header.TCP {
	h.t.Helper()
	bufs, sizes := [][]byte{make([]byte, 2000)}, make([]int, 1)
	for {
		n, err := h.stack.Read(bufs, sizes, 0)
		if err != nil {
			h.t.Fatal(err)
		}
		if n == 0 {
			h.t.Fatal("the stack sends nothing")
		}
		if s, ok := parseSegment(bufs[0][:sizes[0]]); ok {
			return s.tcp
		}
	}
}

// TestStackZeroWindow: a connection whose window is zero, which the peer has sent
// beyond, for its edge was further when that was sent, still heeds what of its own data
// is acknowledged.
func TestStackZeroWindow(t *testing.T) {
	for family := range 2 {
		t.Run(fmt.Sprintf("IPv%d", 4+2*family), func(t *testing.T) { zeroWindow(t, family) })
	}
}

func zeroWindow(t *testing.T, family int) {
	const unit, kept, more = 1 << 14, 32 << 10, 128 << 10
	s, other := twoStacks(t)
	defer s.Close()
	other.Close()
	defer time.AfterFunc(20*time.Second, s.Interrupt).Stop() // as if it sent nothing more
	read := tcpip.TCPReceiveBufferSizeRangeOption{Min: gtcp.MinBufferSize, Default: stackIdle, Max: 65535 * unit}
	write := tcpip.TCPSendBufferSizeRangeOption{Min: gtcp.MinBufferSize, Default: kept, Max: kept}
	for _, o := range []tcpip.SettableTransportProtocolOption{&read, &write} {
		if err := s.stack.SetTransportProtocolOption(gtcp.ProtocolNumber, o); err != nil {
			t.Fatal(err)
		}
	}
	h := &hand{t: t, stack: s, own: netip.AddrPortFrom(other.Addrs()[family], 7), seq: 1_000_000}
	written := make(chan error, 1)
	shut := make(chan struct{})
	go func() { // ends with the write, or with the stack
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		c, err := s.DialTCP(ctx, h.own)
		if err != nil {
			written <- err
			return
		}
		defer c.Close()
		<-shut
		_ = c.SetDeadline(time.Now().Add(10 * time.Second))
		_, err = c.Write(make([]byte, more))
		written <- err
	}()
	syn := h.next()
	h.to, h.ack = netip.AddrPortFrom(s.Addrs()[family], syn.SourcePort()), syn.SequenceNumber()+1
	h.send(header.TCPFlagSyn|header.TCPFlagAck, []byte{header.TCPOptionMSS, 4, 4, 0, header.TCPOptionNOP, header.TCPOptionWS, 3, 0}, 0)
	h.seq++
	h.next()
	edge := h.seq // the furthest that it was told
	for size := -1; size != 0; edge = max(edge, h.seq+uint32(size)*unit) {
		h.send(header.TCPFlagAck, nil, 1000)
		size = int(h.next().WindowSize())
	}
	if edge-h.seq < 1000 {
		t.Fatalf("a window of zero at %d leaves %d bytes to the edge", h.seq, edge-h.seq)
	}
	for edge-h.seq >= 1000 {
		h.send(header.TCPFlagAck, nil, 1000)
		h.next()
	}
	close(shut)
	for first := h.ack; h.ack-first < more; {
		x := h.next()
		if len(x.Payload()) > 0 && x.SequenceNumber() == h.ack {
			h.ack += uint32(len(x.Payload()))
			h.send(header.TCPFlagAck, nil, 0)
		}
	}
	if err := <-written; err != nil {
		t.Error(err)
	}
}

// TestShut: which segments an acknowledgement goes before, and what it says.
func TestShut(t *testing.T) {
	const ack = header.TCPFlagAck
	own, peer := netip.MustParseAddrPort("[fd00::1]:1"), netip.MustParseAddrPort("[fd00::2]:2")
	window := func(size uint16, flags header.TCPFlags) []byte { // of own, 1000 is awaited
		pkt := packet(own, peer, 50, 1000, flags, nil, nil)
		header.TCP(pkt[header.IPv6MinimumSize:]).SetWindowSize(size)
		return pkt
	}
	w := &shut{}
	w.sent(window(5, ack))
	w.sent(window(0, ack|header.TCPFlagRst))
	beyond := packet(peer, own, 1200, 60, ack, nil, make([]byte, 10))
	if w.bare(beyond) != nil || w.any.Load() {
		t.Fatal("a window that is open counts as shut")
	}
	w.sent(window(0, ack))
	w.sent(window(0, ack))
	spoilt := bytes.Clone(beyond)
	spoilt[len(spoilt)-1]++
	for _, step := range []struct {
		name string
		pkt  []byte
		want bool
	}{
		{"a reset", packet(peer, own, 1200, 60, ack|header.TCPFlagRst, nil, nil), false},
		{"to another port", packet(peer, netip.MustParseAddrPort("[fd00::1]:3"), 1200, 60, ack, nil, nil), false},
		{"old data", packet(peer, own, 900, 60, ack, nil, make([]byte, 100)), false},
		{"what is heeded anyway", packet(peer, own, 1000, 60, ack, nil, nil), false},
		{"a wrong checksum", spoilt, false},
		{"data beyond", beyond, true},
		{"data that say the same", packet(peer, own, 1210, 60, ack, nil, make([]byte, 10)), false},
		{"an acknowledgement alone, the same again", packet(peer, own, 1220, 60, ack, nil, nil), true},
		{"a probe", packet(peer, own, 999, 70, ack|header.TCPFlagPsh, []byte{1, 1, 1, 1}, []byte{0}), true},
		{"one that was overtaken", packet(peer, own, 1220, 60, ack, nil, nil), false},
	} {
		got := w.bare(step.pkt)
		if (got != nil) != step.want {
			t.Errorf("%s: %x", step.name, got)
		}
		if got == nil {
			continue
		}
		s, _ := parseSegment(step.pkt)
		if want := packet(peer, own, 1000, s.tcp.AckNumber(), ack, s.tcp.Options(), nil); !bytes.Equal(got, want) {
			t.Errorf("%s:\n%x, want\n%x", step.name, got, want)
		}
	}
	w.sent(window(1, ack))
	if w.bare(beyond) != nil || w.any.Load() {
		t.Error("a window that has opened counts as shut")
	}
	for i := range 2 * maxShut {
		w.sent(packet(own, netip.AddrPortFrom(peer.Addr(), uint16(i)), 50, 1000, ack, nil, nil))
		pkt := packet(own, netip.AddrPortFrom(peer.Addr(), uint16(i)), 50, 1000, ack, nil, nil)
		header.TCP(pkt[header.IPv6MinimumSize:]).SetWindowSize(0)
		w.sent(pkt)
	}
	if len(w.edges) != maxShut {
		t.Errorf("%d windows are kept", len(w.edges))
	}
}

// FuzzShut: whatever packets go and come, what is let in is a whole acknowledgement.
func FuzzShut(f *testing.F) {
	own, peer := netip.MustParseAddrPort("100.80.0.1:1"), netip.MustParseAddrPort("100.80.0.2:2")
	closed := packet(own, peer, 50, 1000, header.TCPFlagAck, nil, nil)
	header.TCP(closed[header.IPv4MinimumSize:]).SetWindowSize(0)
	f.Add(closed, packet(peer, own, 1100, 60, header.TCPFlagAck, []byte{1, 1, 1, 1}, []byte("data")))
	f.Add([]byte{0x60}, []byte{0x45})
	f.Fuzz(func(t *testing.T, out, in []byte) {
		w := &shut{}
		w.sent(out)
		got := w.bare(in)
		if got == nil {
			return
		}
		s, ok := parseSegment(got)
		if !ok || len(got) > len(in) || len(s.tcp.Payload()) > 0 || s.tcp.Flags() != header.TCPFlagAck {
			t.Errorf("%x becomes %x", in, got)
		}
	})
}
