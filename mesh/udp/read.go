package udp

import (
	"encoding/binary"
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"
)

// maxSegments is the kernel's limit of datagrams in one coalesced message
// (UDP_MAX_SEGMENTS).
const maxSegments = 64

// controlSize is room for the GRO segment size, the overflow counter and the address
// that a message was sent to.
var controlSize = unix.CmsgSpace(4) + unix.CmsgSpace(4) + unix.CmsgSpace(unix.SizeofInet6Pktinfo)

// Reader reads one family's socket. It belongs to one goroutine.
type Reader struct {
	s    *socket
	call *call
	msgs []message
}

func newReader(s *socket) *Reader {
	r := &Reader{s: s, call: newCall(BatchSize), msgs: make([]message, BatchSize)}
	for i := range r.msgs {
		r.msgs[i].control = make([]byte, controlSize)
	}
	return r
}

// Read waits for at least one datagram and fills bufs, sizes and from with what
// is there. All three have BatchSize elements; each buffer has room for 64 KiB.
// After Close it returns net.ErrClosed.
func (r *Reader) Read(bufs [][]byte, sizes []int, from []netip.AddrPort) (int, error) {
	if len(bufs) > len(r.msgs) {
		bufs = bufs[:len(r.msgs)]
	}
	// With GRO a message may hold 64 datagrams: read few messages into the last
	// buffers, so that their parts can be dealt out from the front.
	first := 0
	if r.s.gro {
		first = len(bufs) - max(1, len(bufs)/maxSegments)
	}
	msgs := r.msgs[first:len(bufs)]
	for i := range msgs {
		msgs[i].data = bufs[first+i]
	}
	got, err := r.s.mover.receive(r.call, msgs)
	if err != nil {
		return 0, err
	}
	n := 0
	for i := range msgs[:got] {
		n = r.deal(&msgs[i], bufs, sizes, from, n, first+i)
	}
	return n, nil
}

// deal copies the datagrams of one message, which lies in bufs[at], to bufs[n:]
// and returns the new n. Parts never overtake the message they come from: at
// most 64 parts a message, and a 64th of the buffers hold messages.
func (r *Reader) deal(m *message, bufs [][]byte, sizes []int, from []netip.AddrPort, n, at int) int {
	segment, overflow, ok := parseControl(m.control)
	if ok {
		r.s.overflow.Store(overflow)
	}
	if len(m.data) == 0 || !m.from.IsValid() {
		return n
	}
	if r.s.homes != nil {
		r.s.homes.note(m.from, m.control)
	}
	if segment <= 0 || segment > len(m.data) {
		segment = len(m.data)
	}
	data := m.data
	for len(data) > 0 && n < len(bufs) && n <= at {
		part := data[:min(segment, len(data))]
		data = data[len(part):]
		sizes[n] = copy(bufs[n], part)
		from[n] = m.from
		n++
	}
	return n
}

// parseControl finds the GRO segment size and the socket's overflow counter.
func parseControl(oob []byte) (segment int, overflow uint32, hasOverflow bool) {
	for len(oob) > unix.SizeofCmsghdr {
		hdr, data, rest, err := unix.ParseOneSocketControlMessage(oob)
		if err != nil {
			return segment, overflow, hasOverflow
		}
		switch {
		case hdr.Level == unix.SOL_UDP && hdr.Type == unix.UDP_GRO && len(data) >= 2:
			segment = int(binary.NativeEndian.Uint16(data))
		case hdr.Level == unix.SOL_SOCKET && hdr.Type == unix.SO_RXQ_OVFL && len(data) >= 4:
			overflow, hasOverflow = binary.NativeEndian.Uint32(data), true
		}
		oob = rest
	}
	return segment, overflow, hasOverflow
}

// String names the reader's family, for logs.
func (r *Reader) String() string {
	family := 4
	if r.s.is6 {
		family = 6
	}
	return fmt.Sprintf("IPv%d port %d", family, r.s.port)
}
