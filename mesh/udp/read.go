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

// joinedBatch is how many messages one call reads where each may hold maxSegments
// datagrams. Were it as few as surely fit the caller's buffers, two, datagrams that come
// apart, as through interfaces that do not join them, would be read two by two.
const joinedBatch = 32

// Reader reads one family's socket. It belongs to one goroutine.
type Reader struct {
	s    *socket
	call *call
	msgs []message
	room [][]byte // for messages that may hold several datagrams; nil where none does
	rest []part   // of what they brought, what has still to be handed out, from next on
	next int
}

// part is what is left of a message: datagrams of a length, the last of any.
type part struct {
	data    []byte
	segment int
	from    netip.AddrPort
}

func newReader(s *socket) *Reader {
	r := &Reader{s: s}
	n := BatchSize
	if s.gro {
		n = joinedBatch
		for range n {
			r.room = append(r.room, make([]byte, 64<<10))
		}
	}
	r.call, r.msgs = newCall(n), make([]message, n)
	for i := range r.msgs {
		r.msgs[i].control = make([]byte, controlSize)
	}
	return r
}

// Read waits for at least one datagram and fills bufs, sizes and from with what
// is there. All three have BatchSize elements; each buffer has room for 64 KiB.
// After Close it returns net.ErrClosed.
func (r *Reader) Read(bufs [][]byte, sizes []int, from []netip.AddrPort) (int, error) {
	if r.room == nil {
		return r.takeApart(bufs, sizes, from)
	}
	if r.next == len(r.rest) {
		got, err := r.receive(r.room)
		if err != nil {
			return 0, err
		}
		r.rest, r.next = r.rest[:0], 0
		for _, m := range got {
			if p := r.look(m); len(p.data) > 0 {
				r.rest = append(r.rest, p)
			}
		}
	}
	n := 0
	for ; n < len(bufs) && r.next < len(r.rest); n++ {
		p := &r.rest[r.next]
		sizes[n], from[n] = copy(bufs[n], p.data[:min(p.segment, len(p.data))]), p.from
		if p.data = p.data[sizes[n]:]; len(p.data) == 0 {
			r.next++
		}
	}
	return n, nil
}

// takeApart is Read where a message is a datagram.
func (r *Reader) takeApart(bufs [][]byte, sizes []int, from []netip.AddrPort) (int, error) {
	got, err := r.receive(bufs[:min(len(bufs), len(r.msgs))])
	if err != nil {
		return 0, err
	}
	for i, m := range got {
		p := r.look(m)
		sizes[i], from[i] = len(p.data), p.from
	}
	return len(got), nil
}

// receive waits for messages and reads them into memory.
func (r *Reader) receive(into [][]byte) ([]message, error) {
	msgs := r.msgs[:len(into)]
	for i := range msgs {
		msgs[i].data = into[i]
	}
	got, err := r.s.mover.receive(r.call, msgs)
	return msgs[:got], err
}

// look takes in what the kernel says of a message. There is nothing in one that cannot be
// answered.
func (r *Reader) look(m message) part {
	segment, overflow, ok := parseControl(m.control)
	if ok {
		r.s.overflow.Store(overflow)
	}
	if len(m.data) == 0 || !m.from.IsValid() {
		return part{}
	}
	if r.s.homes != nil {
		r.s.homes.note(m.from, m.control)
	}
	if segment <= 0 || segment > len(m.data) {
		segment = len(m.data)
	}
	return part{m.data, segment, m.from}
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
