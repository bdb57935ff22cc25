package engine

import (
	"encoding/binary"
	"fmt"
)

// kind is what a frame is; see the package comment.
type kind uint8

const (
	kindEager kind = iota + 1
	kindSync
	kindRTS
	kindCTS
	kindData
	kindFin
	kindRefuse
	kindCredit
	kindPost
	kindBye
	kindGot
	kindLost
	kindEnd // the first that is none
)

// header begins every frame. Numbers are little-endian on the wire, whatever
// the machines are.
//
//	 0 kind   uint8
//	 1 flags  uint8
//	 2 link   uint8   which of the links between the two the frame belongs to; see lost.go
//	 3 zero   uint8
//	 4 n      uint32  bytes of payload that follow the header
//	 8 ctx    uint32  context; credit: bytes given back; got: bytes of data that came; lost: which link
//	12 tag    int32   tag; credit: messages given back; post: which handler
//	16 seq    uint32  number of the message among those from this process in this context; got, lost: frames that came by the link
//	20 x      uint64  ┐ sync, rts: the sender's request · cts: the same · data: the receiver's request
//	28 y      uint64  │ rts: bytes of the message · cts: the receiver's request · data: where in the message
//	36 z      uint64  ┘ rts: address of the data, 0: none · cts: bytes wanted
//
// The last three are absent in eager, credit, bye, got and lost. In a post they are the
// caller's.
type header struct {
	kind    kind
	flags   uint8
	link    uint8
	n       uint32
	ctx     Context
	tag     int32
	seq     uint32
	x, y, z uint64
}

const (
	shortHeader = 20
	longHeader  = 44

	// maxPayload bounds a frame's payload on every link; links may have less.
	maxPayload = 1 << 20
)

// flagOurs in refuse: x names the receiver's request, not the sender's.
const flagOurs = 1

// flagVoid in eager: there is no such message, but its number was given away.
const flagVoid = 2

// flagRevoked in refuse: the context there is revoked.
const flagRevoked = 4

// long reports whether a frame of this kind has the long header.
func (k kind) long() bool {
	return k != kindEager && k != kindCredit && k != kindBye && k != kindGot && k != kindLost
}

// size is the bytes of the header of a frame of this kind.
func (k kind) size() int {
	if k.long() {
		return longHeader
	}
	return shortHeader
}

// encode puts the header into b, which has room for it, and returns its size.
func (h *header) encode(b *[longHeader]byte) int {
	b[0], b[1], b[2], b[3] = byte(h.kind), h.flags, h.link, 0
	binary.LittleEndian.PutUint32(b[4:], h.n)
	binary.LittleEndian.PutUint32(b[8:], uint32(h.ctx))
	binary.LittleEndian.PutUint32(b[12:], uint32(h.tag))
	binary.LittleEndian.PutUint32(b[16:], h.seq)
	if !h.kind.long() {
		return shortHeader
	}
	binary.LittleEndian.PutUint64(b[20:], h.x)
	binary.LittleEndian.PutUint64(b[28:], h.y)
	binary.LittleEndian.PutUint64(b[36:], h.z)
	return longHeader
}

// decode reads a header from the beginning of b. It returns its size, or zero
// if b is too short to tell; an error if it can be none.
func (h *header) decode(b []byte) (int, error) {
	if len(b) < shortHeader {
		return 0, nil
	}
	h.kind = kind(b[0])
	if h.kind == 0 || h.kind >= kindEnd {
		return 0, fmt.Errorf("%w: frame of kind %d", errViolation, b[0])
	}
	size := h.kind.size()
	if len(b) < size {
		return 0, nil
	}
	h.flags, h.link = b[1], b[2]
	h.n = binary.LittleEndian.Uint32(b[4:])
	h.ctx = Context(binary.LittleEndian.Uint32(b[8:]))
	h.tag = int32(binary.LittleEndian.Uint32(b[12:]))
	h.seq = binary.LittleEndian.Uint32(b[16:])
	h.x, h.y, h.z = 0, 0, 0
	if size == longHeader {
		h.x = binary.LittleEndian.Uint64(b[20:])
		h.y = binary.LittleEndian.Uint64(b[28:])
		h.z = binary.LittleEndian.Uint64(b[36:])
	}
	return size, h.check()
}

// check refuses what no sender of ours sends.
func (h *header) check() error {
	switch {
	case h.n > maxPayload:
		return fmt.Errorf("%w: frame of %d bytes", errViolation, h.n)
	case h.n > 0 && h.kind != kindEager && h.kind != kindSync && h.kind != kindData && h.kind != kindPost:
		return fmt.Errorf("%w: frame of kind %d with %d bytes", errViolation, h.kind, h.n)
	case h.ctx >= MaxContexts && h.message():
		return fmt.Errorf("%w: context %d", errViolation, h.ctx)
	case h.flags&flagVoid != 0 && (h.kind != kindEager || h.n > 0):
		return fmt.Errorf("%w: no message of %d bytes", errViolation, h.n)
	case h.tag < 0 && h.kind != kindData:
		return fmt.Errorf("%w: tag %d", errViolation, h.tag)
	}
	return nil
}

// message reports whether the frame is, or announces, a message to match.
func (h *header) message() bool {
	return h.kind == kindEager || h.kind == kindSync || h.kind == kindRTS
}
