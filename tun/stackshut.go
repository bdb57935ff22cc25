package tun

import (
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"

	"gvisor.dev/gvisor/pkg/tcpip"
	gsum "gvisor.dev/gvisor/pkg/tcpip/checksum"
	"gvisor.dev/gvisor/pkg/tcpip/header"
)

// maxShut bounds the connections whose window is known to be zero. Of more some are
// forgotten, at random, and are as gVisor leaves them.
const maxShut = 1024

// shut lets acknowledgements in to connections of the stack whose receive window is
// zero. RFC 9293 §3.10.7.4 has them heeded whatever the segment's place; gVisor drops
// them with every segment that does not begin at the next byte awaited, as none does of
// a peer that has sent beyond that, up to an edge it was told in larger units than
// gVisor then keeps to. Where both ends write before they read, they would wait for
// each other for ever. So a bare acknowledgement, which begins there, goes before each
// such segment, which itself is left as it is. What a window is shows in what the stack
// sends; if that is missed, an acknowledgement too many does no harm.
type shut struct {
	any   atomic.Bool // edges has any
	mu    sync.Mutex  // guards edges
	edges map[ends]edge
}

// ends are those of a connection.
type ends struct{ own, peer netip.AddrPort }

// edge is where a window of zero is.
type edge struct {
	next   uint32 // the byte that is awaited
	told   bool   // something has been let in, last these:
	ack    uint32
	window uint16
}

// segment is a TCP segment in an IP packet.
type segment struct {
	from, to netip.AddrPort
	ip       int        // bytes of the IP header
	tcp      header.TCP // with its payload
}

// parseSegment reads a packet; false: it is no TCP segment, not a whole one, or behind
// IPv6 extension headers, which TCP has none of.
func parseSegment(pkt []byte) (s segment, ok bool) {
	var src, dst netip.Addr
	switch {
	case len(pkt) == 0:
		return s, false
	case pkt[0]>>4 == 4:
		h := header.IPv4(pkt)
		if !h.IsValid(len(pkt)) || h.TransportProtocol() != header.TCPProtocolNumber || h.More() || h.FragmentOffset() != 0 {
			return s, false
		}
		s.ip, pkt = int(h.HeaderLength()), pkt[:h.TotalLength()]
		src, dst = netip.AddrFrom4([4]byte(pkt[12:])), netip.AddrFrom4([4]byte(pkt[16:]))
	default:
		h := header.IPv6(pkt)
		if !h.IsValid(len(pkt)) || h.NextHeader() != uint8(header.TCPProtocolNumber) {
			return s, false
		}
		s.ip, pkt = header.IPv6MinimumSize, pkt[:header.IPv6MinimumSize+int(h.PayloadLength())]
		src, dst = netip.AddrFrom16([16]byte(pkt[8:])), netip.AddrFrom16([16]byte(pkt[24:]))
	}
	s.tcp = pkt[s.ip:]
	if len(s.tcp) < header.TCPMinimumSize || int(s.tcp.DataOffset()) < header.TCPMinimumSize || int(s.tcp.DataOffset()) > len(s.tcp) {
		return s, false
	}
	s.from, s.to = netip.AddrPortFrom(src, s.tcp.SourcePort()), netip.AddrPortFrom(dst, s.tcp.DestinationPort())
	return s, true
}

// sent takes note of what the stack sends.
func (w *shut) sent(pkt []byte) {
	s, ok := parseSegment(pkt)
	if !ok {
		return
	}
	zero := s.tcp.WindowSize() == 0 && s.tcp.Flags()&(header.TCPFlagAck|header.TCPFlagSyn|header.TCPFlagRst) == header.TCPFlagAck
	if !zero && !w.any.Load() {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	at := ends{s.from, s.to}
	e, known := w.edges[at]
	switch {
	case !zero:
		delete(w.edges, at)
	case known && e.next == s.tcp.AckNumber():
	default:
		if w.edges == nil {
			w.edges = map[ends]edge{}
		}
		for other := range w.edges {
			if len(w.edges) < maxShut {
				break
			}
			delete(w.edges, other)
		}
		e.next = s.tcp.AckNumber()
		w.edges[at] = e
	}
	w.any.Store(len(w.edges) > 0)
}

// bare returns the acknowledgement that is to go before a packet that comes, nil for
// none.
func (w *shut) bare(pkt []byte) []byte {
	if !w.any.Load() {
		return nil
	}
	s, ok := parseSegment(pkt)
	if !ok || s.tcp.Flags()&(header.TCPFlagAck|header.TCPFlagSyn|header.TCPFlagRst) != header.TCPFlagAck {
		return nil
	}
	data, ack, window := len(s.tcp.Payload()), s.tcp.AckNumber(), s.tcp.WindowSize()
	w.mu.Lock()
	defer w.mu.Unlock()
	e, known := w.edges[ends{s.to, s.from}]
	ahead := int32(s.tcp.SequenceNumber() - e.next)
	switch {
	case !known, ahead < -1, ahead == 0 && data == 0: // old, but for probes, or heeded anyway
		return nil
	case e.told && (int32(ack-e.ack) < 0 || data > 0 && ack == e.ack && window == e.window): // or it would count as a duplicate
		return nil
	}
	src, dst := tcpip.AddrFromSlice(s.from.Addr().AsSlice()), tcpip.AddrFromSlice(s.to.Addr().AsSlice())
	if !s.tcp.IsChecksumValid(src, dst, gsum.Checksum(s.tcp.Payload(), 0), uint16(data)) {
		return nil
	}
	e.told, e.ack, e.window = true, ack, window
	w.edges[ends{s.to, s.from}] = e
	return s.bare(pkt, src, dst, e.next)
}

// bare returns the headers of a segment in a packet as an acknowledgement alone, that
// begins at another byte.
func (s segment) bare(pkt []byte, src, dst tcpip.Address, seq uint32) []byte {
	size := uint16(s.tcp.DataOffset())
	b := slices.Clone(pkt[:s.ip+int(size)])
	if s.from.Addr().Is4() {
		h := header.IPv4(b)
		h.SetTotalLength(uint16(len(b)))
		h.SetChecksum(0)
		h.SetChecksum(^h.CalculateChecksum())
	} else {
		header.IPv6(b).SetPayloadLength(size)
	}
	t := header.TCP(b[s.ip:])
	t.SetSequenceNumber(seq)
	t.SetFlags(uint8(header.TCPFlagAck))
	t.SetUrgentPointer(0)
	t.SetChecksum(0)
	t.SetChecksum(^t.CalculateChecksum(header.PseudoHeaderChecksum(header.TCPProtocolNumber, src, dst, size)))
	return b
}
