package udp

import (
	"encoding/binary"
	"errors"
	"net"
	"net/netip"

	"golang.org/x/sys/unix"
)

// Headers count towards what one coalesced IPv4 message may hold.
const maxCoalesced = 1<<16 - 1 - 20 - 8

// errNoFamily says that the kernel lacks the address family of a destination.
var errNoFamily = errors.New("udp: no socket of that address family")

type writer struct {
	call *call
	msgs []message
	runs []int // datagrams in each message
}

func newWriter() *writer {
	w := &writer{call: newCall(BatchSize), msgs: make([]message, BatchSize), runs: make([]int, BatchSize)}
	for i := range w.msgs {
		w.msgs[i].control = make([]byte, 0, unix.CmsgSpace(2)+unix.CmsgSpace(unix.SizeofInet6Pktinfo))
	}
	return w
}

// Send sends every datagram of pkts, at most BatchSize, to one address. Runs of
// equal length leave as one coalesced message where the kernel can: to join
// them Send may write behind pkts[i] up to its capacity, so the caller owns
// that memory until Send returns. Nothing is retained. What the kernel refuses
// is counted as dropped and the last such error returned.
func (p *Pair) Send(pkts [][]byte, to netip.AddrPort) error {
	s := p.v4
	if to.Addr().Is6() && !to.Addr().Is4In6() {
		s = p.v6
	}
	if s == nil {
		p.dropped.Add(uint64(len(pkts)))
		return errNoFamily
	}
	w := s.writers.Get().(*writer)
	defer s.writers.Put(w)

	home := s.homes.of(to)
	refused, err := s.send(w, pkts, to, home)
	for i := range w.msgs[:len(pkts)] {
		w.msgs[i].data = nil
	}
	if err != nil {
		p.dropped.Add(uint64(refused))
		if home.IsValid() && !errors.Is(err, unix.EAGAIN) && !errors.Is(err, unix.EMSGSIZE) {
			s.homes.forget(to) // it may be ours no longer
		}
	}
	return err
}

// send returns how many datagrams were refused, and the last such error. Joined datagrams
// still stand in their own buffers, so they can be laid out anew where they were refused
// for being joined, or one of them for its length.
func (s *socket) send(w *writer, pkts [][]byte, to netip.AddrPort, home netip.Addr) (refused int, last error) {
	alone := 0
	if !s.gso || s.plain.has(to.Addr()) {
		alone = len(pkts)
	}
	for at, n := 0, w.fill(pkts, alone, home); at < n; {
		sent, err := s.mover.send(w.call, w.msgs[at:n], to)
		switch run := w.runs[at]; {
		case err == nil:
			pkts, at = pkts[w.datagrams(at, at+sent):], at+sent
		case run > 1 && errors.Is(err, unix.EIO):
			// The interface cannot checksum segments (udp(7), UDP_SEGMENT).
			s.plain.add(to.Addr())
			at, n = 0, w.fill(pkts, len(pkts), home)
		case run > 1 && (errors.Is(err, unix.EINVAL) || errors.Is(err, unix.EMSGSIZE)):
			at, n = 0, w.fill(pkts, run, home) // EINVAL: a segment is too long
		case errors.Is(err, unix.EIO) || errors.Is(err, net.ErrClosed) || errors.Is(err, unix.EAGAIN):
			return refused + len(pkts), err // EAGAIN: the buffer is full; waiting would hold up every peer
		default:
			// One message was refused (too long, no route): skip it alone.
			refused, last = refused+run, err
			pkts, at = pkts[run:], at+1
		}
	}
	return refused, last
}

// fill lays pkts out in messages, the first so many alone, to be sent from home if that is
// valid, and returns how many messages it used.
func (w *writer) fill(pkts [][]byte, alone int, home netip.Addr) int {
	n := 0
	for i := 0; i < len(pkts); {
		m := &w.msgs[n]
		m.control, m.data = m.control[:0], pkts[i]
		size, run := len(pkts[i]), 1
		if i >= alone {
			m.data, run = join(pkts[i:])
		}
		if run > 1 {
			m.control = segmentControl(m.control, uint16(size))
		}
		if home.IsValid() {
			m.control = appendHome(m.control, home)
		}
		w.runs[n] = run
		i += run
		n++
	}
	return n
}

// datagrams returns how many datagrams messages from to to hold.
func (w *writer) datagrams(from, to int) (sum int) {
	for _, run := range w.runs[from:to] {
		sum += run
	}
	return sum
}

// join appends to pkts[0], within its capacity, as many of the following
// datagrams as one message may hold: equal lengths, the last one shorter.
func join(pkts [][]byte) (joined []byte, run int) {
	joined, run = pkts[0], 1
	size := len(joined)
	for _, next := range pkts[1:] {
		if len(next) > size || run == maxSegments || len(joined)+len(next) > min(cap(joined), maxCoalesced) {
			break
		}
		joined = append(joined, next...)
		run++
		if len(next) < size {
			break
		}
	}
	return joined, run
}

func segmentControl(oob []byte, size uint16) []byte {
	var data [2]byte
	binary.NativeEndian.PutUint16(data[:], size)
	return appendControl(oob, unix.SOL_UDP, unix.UDP_SEGMENT, data[:])
}
