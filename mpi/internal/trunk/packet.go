package trunk

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// packet begins every packet on a hop. Numbers are little-endian.
//
//	 0 kind   uint8
//	 1 lane   uint8
//	 2 flags  uint8   1: the channel was opened by dst, not by src
//	 3 zero   uint8
//	 4 n      uint32  data: bytes that follow · window: bytes that may be sent besides
//	 8 src    uint32
//	12 dst    uint32
//	16 number uint32  of the channel, among those its opener opened
type packet struct {
	kind   kind
	lane   uint8
	theirs bool
	n      uint32
	src    uint32
	dst    uint32
	number uint32
}

// kind is what a packet is.
type kind uint8

const (
	kindOpen   kind = iota + 1 // a channel begins; answered by a window or a reset
	kindData                   // bytes
	kindWindow                 // more may be sent
	kindEnd                    // src sends nothing more and takes nothing more
	kindReset                  // there is no such channel, or no way to it any more
	kindLimit                  // the first that is none
)

const (
	headerSize = 20
	mostData   = 32 << 10 // bytes of a packet, so that channels take turns
	mostLanes  = 16
)

// errViolation is how a hop ends whose neighbour sends what nobody sends.
var errViolation = errors.New("trunk: neighbour violated the protocol")

// encode appends the header to b.
func (p *packet) encode(b []byte) []byte {
	flags := byte(0)
	if p.theirs {
		flags = 1
	}
	b = append(b, byte(p.kind), p.lane, flags, 0)
	b = binary.LittleEndian.AppendUint32(b, p.n)
	b = binary.LittleEndian.AppendUint32(b, p.src)
	b = binary.LittleEndian.AppendUint32(b, p.dst)
	return binary.LittleEndian.AppendUint32(b, p.number)
}

// decode reads a header, which is b as a whole, of a job of so many processes.
func (p *packet) decode(b []byte, size int) error {
	if len(b) != headerSize {
		return fmt.Errorf("%w: header of %d bytes", errViolation, len(b))
	}
	p.kind, p.lane, p.theirs = kind(b[0]), b[1], b[2] == 1
	p.n = binary.LittleEndian.Uint32(b[4:])
	p.src = binary.LittleEndian.Uint32(b[8:])
	p.dst = binary.LittleEndian.Uint32(b[12:])
	p.number = binary.LittleEndian.Uint32(b[16:])
	switch {
	case p.kind == 0 || p.kind >= kindLimit || b[2] > 1 || b[3] != 0:
		return fmt.Errorf("%w: packet %d, flags %d", errViolation, b[0], b[2])
	case p.lane >= mostLanes:
		return fmt.Errorf("%w: lane %d", errViolation, p.lane)
	case p.src >= uint32(size) || p.dst >= uint32(size) || p.src == p.dst:
		return fmt.Errorf("%w: from %d to %d", errViolation, p.src, p.dst)
	case p.kind == kindData && (p.n == 0 || p.n > mostData):
		return fmt.Errorf("%w: %d bytes", errViolation, p.n)
	case p.kind == kindWindow && (p.n == 0 || p.n > mostWindow):
		return fmt.Errorf("%w: window of %d bytes", errViolation, p.n)
	case p.kind != kindData && p.kind != kindWindow && p.n != 0:
		return fmt.Errorf("%w: packet %d with %d", errViolation, p.kind, p.n)
	}
	return nil
}

// payload is how many bytes follow the header.
func (p *packet) payload() int {
	if p.kind == kindData {
		return int(p.n)
	}
	return 0
}

// flow names a channel everywhere: who opened it, to whom, and its number.
type flow struct{ opener, other, number uint32 }

func (p *packet) flow() flow {
	if p.theirs {
		return flow{p.dst, p.src, p.number}
	}
	return flow{p.src, p.dst, p.number}
}
