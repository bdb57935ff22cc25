package mesh

import (
	"encoding/binary"
	"sync"

	"golang.zx2c4.com/wireguard/device"
)

// A TCP connection whose segments get lost waits twice as long before each further
// try, so that after an outage it may stand still for as long again. While no path to
// a peer answers, the mesh therefore tells the host's TCP what any router would: the
// peer is unreachable. TCP takes that for a reason to take one doubling back (RFC 6069,
// which Linux implements) and goes on trying every few hundred milliseconds. It is told
// the same of what it sent since a path lost pings, once one works: then it tries at once.

// reverts is how often TCP is told of one segment: by the time that a path is found to
// be dead, TCP has doubled its time-out three or four times.
const reverts = 4

// room is for what the device puts before a message.
const room = device.MessageTransportHeaderSize

// fate is how packets to a peer fare now.
type fate uint32

const (
	fine    fate = iota
	unclear      // the path in use has lost pings
	lost         // no path answers
)

// outage tells the host's TCP about packets to a peer that no path leads to, and
// remembers segments whose fate is not clear.
func (f *firstUse) outage(ep *Endpoint, how fate, bufs [][]byte, sizes []int, offset int) {
	for i, b := range bufs {
		f.reply = unreachable(append(f.reply[:0], make([]byte, room)...), b[offset:offset+sizes[i]])
		if len(f.reply) == room {
			continue
		}
		if i == 0 { // the first of a connection's, which come together
			ep.stuck.add(connection(b[offset:]), f.reply)
		}
		if how == unclear {
			return
		}
		f.tell(f.reply)
	}
}

// judge says what becomes of what is sent to a peer by c, and has the host's TCP go on
// when that has become fine: not after a loss or two, which may be for congestion.
func (m *Mesh) judge(r *remote, c *candidate, changed bool) {
	how := fine
	switch {
	case c == nil || c.state != up:
		how = lost
	case c.misses > 0:
		how = unclear
	}
	r.silent = r.silent || changed || how == lost || c.misses >= doubtMisses
	r.ep.fate.Store(uint32(how))
	if how != fine {
		return
	}
	if msgs := r.ep.stuck.take(); r.silent {
		for _, msg := range msgs {
			m.tun.tell(msg)
		}
	}
	r.silent = false
}

// tell passes on a message about a segment.
func (f *firstUse) tell(msg []byte) {
	for range reverts {
		if _, err := f.Device.Write([][]byte{msg}, room); err != nil {
			return // it closes, or has no memory: TCP waits
		}
	}
}

// stuck are messages about segments that may have been lost, the latest of each
// connection.
type stuck struct {
	mu   sync.Mutex
	msgs map[string][]byte // by addresses and ports
}

// maxStuck bounds the connections that a peer's outage is remembered for.
const maxStuck = 256

func (s *stuck) add(connection string, msg []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.msgs == nil {
		s.msgs = map[string][]byte{}
	}
	if old, known := s.msgs[connection]; known || len(s.msgs) < maxStuck {
		s.msgs[connection] = append(old[:0], msg...)
	}
}

// connection names the TCP connection of a packet that unreachable answers.
func connection(pkt []byte) string {
	if pkt[0]>>4 == 4 {
		ip := int(pkt[0]&0xf) * 4
		return string(pkt[12:20]) + string(pkt[ip:ip+4])
	}
	return string(pkt[8:44])
}

// take returns the messages, and forgets them.
func (s *stuck) take() map[string][]byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	msgs := s.msgs
	s.msgs = nil
	return msgs
}

// unreachable appends the ICMP message, as from the packet's destination, that says
// that this cannot be reached (RFC 792, RFC 4443 §3.1). It appends nothing for packets
// other than TCP's with data, and for those that begin a connection: that would fail.
func unreachable(b, pkt []byte) []byte {
	const tcp, quoted, syn = 6, 8, 0x02
	if len(pkt) == 0 {
		return b
	}
	start := len(b)
	switch pkt[0] >> 4 {
	case 4:
		const host = 1 // unreachable, of type 3
		if len(pkt) < 20 || pkt[9] != tcp || binary.BigEndian.Uint16(pkt[6:])&0x1fff != 0 {
			return b
		}
		ip := int(pkt[0]&0xf) * 4
		if !hasData(pkt, ip, syn) {
			return b
		}
		b = append(b, 0x45, 0, 0, 0, 0, 0, 0, 0, 64, 1, 0, 0)
		b = append(append(b, pkt[16:20]...), pkt[12:16]...)
		b = append(b, 3, host, 0, 0, 0, 0, 0, 0)
		b = append(b, pkt[:ip+quoted]...)
		h := b[start:]
		binary.BigEndian.PutUint16(h[2:], uint16(len(h)))
		binary.BigEndian.PutUint16(h[10:], internetSum(0, h[:20]))
		binary.BigEndian.PutUint16(h[22:], internetSum(0, h[20:]))
	case 6:
		const ip, icmp, noRoute = 40, 58, 0 // of type 1
		if len(pkt) < ip || pkt[6] != tcp || !hasData(pkt, ip, syn) {
			return b
		}
		b = append(b, 0x60, 0, 0, 0, 0, 0, icmp, 64)
		b = append(append(b, pkt[24:40]...), pkt[8:24]...)
		b = append(b, 1, noRoute, 0, 0, 0, 0, 0, 0)
		b = append(b, pkt[:ip+quoted]...)
		h := b[start:]
		size := len(h) - ip
		binary.BigEndian.PutUint16(h[4:], uint16(size))
		binary.BigEndian.PutUint16(h[ip+2:], internetSum(uint32(size)+icmp, h[8:])) // addresses, then the message
	}
	return b
}

// hasData reports whether a TCP segment behind an IP header carries data and does not
// begin a connection.
func hasData(pkt []byte, ip int, syn byte) bool {
	if ip < 20 || len(pkt) < ip+20 {
		return false
	}
	header := int(pkt[ip+12]>>4) * 4
	return pkt[ip+13]&syn == 0 && len(pkt) > ip+header
}

// internetSum is the checksum of RFC 1071 over b, whose own field is zero, and more.
func internetSum(more uint32, b []byte) uint16 {
	sum := uint64(more)
	for ; len(b) >= 2; b = b[2:] {
		sum += uint64(binary.BigEndian.Uint16(b))
	}
	if len(b) == 1 {
		sum += uint64(b[0]) << 8
	}
	for sum > 0xffff {
		sum = sum&0xffff + sum>>16
	}
	return ^uint16(sum)
}
