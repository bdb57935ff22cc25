package engine

import (
	"fmt"
	"sync/atomic"
	"unsafe"
)

// A ring carries frames from one producer to one consumer through memory that
// both see: of one process, or shared by two of a host. The other side of shared
// memory may be hostile or broken, so no number read there is used unchecked.
//
//	  0 head    uint64  where the consumer is, in slots; written by it now and then
//	 64 hungry  uint32  the producer waits for room; written by both
//	128 slots of 64 bytes
//
// A frame is in consecutive slots. It begins with a word that has the frame's
// bytes in the low half and the position, plus one, in the high half; a word with
// another position is of an earlier lap, and no frame has been put there yet. The
// producer writes the frame and then the word. So the consumer looks at one word
// only, which arrives in the cache line that has a small frame whole. Where the
// inside of a frame has been, what stands in the place of a word may be anything:
// the producer puts a zero there before the consumer gets to look at it, and only
// there, since it takes the line from the consumer, as long as a message itself.
// A frame that would not fit before the end of the slots begins at the first; a
// word of ringSkip bytes says so.
const (
	slotSize = 64
	ringHead = 0
	ringWant = 64
	ringMeta = 128
	ringSkip = 1<<32 - 1
	wordSize = 8
)

// ringBytes is the memory that a ring of so many slots takes.
func ringBytes(slots int) int { return ringMeta + slots*slotSize }

// ring is what both ends have of one. slots is a power of two.
type ring struct {
	head   *uint64
	hungry *uint32
	slots  []byte
	mask   uint64
}

// newRing uses memory, aligned to 8 bytes, of ringBytes(slots) bytes.
func newRing(mem []byte, slots int) ring {
	return ring{
		head:   (*uint64)(unsafe.Pointer(&mem[ringHead])),
		hungry: (*uint32)(unsafe.Pointer(&mem[ringWant])),
		slots:  mem[ringMeta : ringMeta+slots*slotSize],
		mask:   uint64(slots - 1),
	}
}

func (r *ring) word(pos uint64) *uint64 {
	return (*uint64)(unsafe.Pointer(&r.slots[pos&r.mask*slotSize]))
}

// mostFrame is the largest frame, header included, that a ring of so many slots
// carries: a quarter, so that one always fits into an empty ring though the head
// may be told a quarter late and the end of the slots be skipped.
func mostFrame(slots int) int { return slots/4*slotSize - wordSize }

// producer is the sending end of a ring.
type producer struct {
	ring
	tail   uint64   // where the next frame goes
	seen   uint64   // the head, as last looked at
	inside []uint64 // a bit for each slot that has the inside of a frame, not a word
}

func newProducer(r ring) producer {
	return producer{ring: r, inside: make([]uint64, (r.mask+64)/64)}
}

// push puts a frame made of two parts into the ring; false: there is no room,
// and the consumer will look at hungry when it has made some.
func (p *producer) push(hdr, payload []byte) (bool, error) {
	n := uint64(wordSize+len(hdr)+len(payload)+slotSize-1) / slotSize
	at := p.tail
	end := p.mask + 1 - at&p.mask // slots before the last
	if end < n {
		at += end
	}
	if ok, err := p.room(at + n + 1 - p.tail); !ok {
		return false, err
	}
	frame := p.slots[at&p.mask*slotSize:]
	copy(frame[wordSize:], hdr)
	copy(frame[wordSize+len(hdr):], payload)
	p.mark(at, n)
	atomic.StoreUint64(p.word(at), uint64(uint32(at+1))<<32|uint64(len(hdr)+len(payload)))
	if at != p.tail {
		atomic.StoreUint64(p.word(p.tail), uint64(uint32(p.tail+1))<<32|ringSkip)
	}
	p.tail = at + n
	return true, nil
}

// mark keeps track of where words are when a frame of n slots is put at a position,
// and sees to it that what stands behind the frame is one.
func (p *producer) mark(at, n uint64) {
	i := at & p.mask
	p.inside[i/64] &^= 1 << (i % 64)
	end := i + n
	for i++; i < end; i = i&^63 + 64 {
		bits := ^uint64(0) << (i % 64)
		if past := i&^63 + 64; past > end {
			bits &= 1<<(end%64) - 1
		}
		p.inside[i/64] |= bits
	}
	if i = end & p.mask; p.inside[i/64]&(1<<(i%64)) != 0 {
		p.inside[i/64] &^= 1 << (i % 64)
		*p.word(i) = 0
	}
}

// room makes sure of so many free slots.
func (p *producer) room(n uint64) (bool, error) {
	if p.mask+1-(p.tail-p.seen) >= n {
		return true, nil
	}
	for again := range 2 {
		h := atomic.LoadUint64(p.head)
		if h-p.seen > p.tail-p.seen {
			return false, fmt.Errorf("%w: head of a ring at %d, tail at %d", errViolation, h, p.tail)
		}
		if p.seen = h; p.mask+1-(p.tail-h) >= n {
			return true, nil
		}
		if again == 0 {
			atomic.StoreUint32(p.hungry, 1) // and look again: it may have missed it
		}
	}
	return false, nil
}

// consumer is the receiving end of a ring.
type consumer struct {
	ring
	pos  uint64 // of the next frame
	told uint64 // the head, as the producer knows it
}

// filled reports whether there is a frame.
func (c *consumer) filled() bool {
	return atomic.LoadUint64(c.word(c.pos))>>32 == uint64(uint32(c.pos+1))
}

// peek returns the next frame, which is in the ring and may change while it is
// looked at; nil: there is none.
func (c *consumer) peek() ([]byte, error) {
	for {
		w := atomic.LoadUint64(c.word(c.pos))
		if w>>32 != uint64(uint32(c.pos+1)) || w == 0 {
			return nil, nil
		}
		end := c.mask + 1 - c.pos&c.mask
		n := w & (1<<32 - 1)
		if n == ringSkip && c.pos&c.mask != 0 {
			c.pos += end
			continue
		}
		if n > end*slotSize-wordSize || n == 0 {
			return nil, fmt.Errorf("%w: frame of %d bytes in a ring at %d", errViolation, n, c.pos)
		}
		at := c.pos & c.mask * slotSize
		return c.slots[at+wordSize : at+wordSize+n], nil
	}
}

// advance frees the frame that peek returned. It reports whether the producer
// waits for that.
func (c *consumer) advance(frame []byte) (hungry bool) {
	c.pos += uint64(wordSize+len(frame)+slotSize-1) / slotSize
	hungry = atomic.LoadUint32(c.hungry) != 0
	if hungry || c.pos-c.told > (c.mask+1)/4 {
		c.told = c.pos
		atomic.StoreUint64(c.head, c.pos)
	}
	if hungry {
		atomic.StoreUint32(c.hungry, 0)
	}
	return hungry
}
