package share

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// The wire format. A notice states all there is between its sender and its
// receiver; what it does not name is zero.
//
//	0      version and kind: 0x11 between nodes of a site, 0x12 a cap from another site
//	1      flags: 1 an answer is wanted, 2 a grant was lowered: acknowledge
//	2–3    nodes of the site, as the sender counts them
//	4–5    lease of the grants in this notice, in units of 100 µs
//	6–7    entries that follow
//	8–15   sequence: microseconds, strictly increasing
//	16–23  sequence of the last notice heard from the receiver; 0 none
//	24–    entries of 14 bytes:
//	       0–3 name of the pool, 4 kind, 5 weight or count, 6–9 and 10–13 rates in kbit/s
//
// All numbers are big-endian. Entry kinds: hungry (want, ask), lender (spare,
// grant), arriving (rate, 0; the weight counts sending nodes), cap (rate, 0).
const (
	kindSite byte = 0x11
	kindCap  byte = 0x12

	flagAnswer = 1
	flagAck    = 2

	headerLen  = 24
	entryLen   = 14
	maxEntries = 64
	maxNotice  = headerLen + maxEntries*entryLen

	unit = 1000 // bits per second in a rate's step on the wire
)

// MaxNotice is the length of the longest notice, in bytes: it fits any path.
const MaxNotice = maxNotice

type entryKind byte

const (
	entryHungry entryKind = 1 + iota
	entryLender
	entryArriving
	entryCap
)

// entry is what a notice says of a pool.
type entry struct {
	pool   uint32
	kind   entryKind
	weight uint8
	a, b   int64 // bits per second, multiples of unit
}

// notice is a datagram's content.
type notice struct {
	kind    byte
	answer  bool
	ack     bool
	members int
	lease   uint16 // of 100 µs
	seq     uint64
	echo    uint64
	entries []entry
}

// errNotice says that bytes are no notice.
var errNotice = errors.New("share: not a notice")

func (n *notice) append(b []byte) []byte {
	var flags byte
	if n.answer {
		flags |= flagAnswer
	}
	if n.ack {
		flags |= flagAck
	}
	b = append(b, n.kind, flags)
	b = binary.BigEndian.AppendUint16(b, uint16(n.members))
	b = binary.BigEndian.AppendUint16(b, n.lease)
	b = binary.BigEndian.AppendUint16(b, uint16(len(n.entries)))
	b = binary.BigEndian.AppendUint64(b, n.seq)
	b = binary.BigEndian.AppendUint64(b, n.echo)
	for _, e := range n.entries {
		b = binary.BigEndian.AppendUint32(b, e.pool)
		b = append(b, byte(e.kind), e.weight)
		b = binary.BigEndian.AppendUint32(b, steps(e.a))
		b = binary.BigEndian.AppendUint32(b, steps(e.b))
	}
	return b
}

// parseNotice reads a notice. It allocates no more than the bytes hold.
func parseNotice(b []byte) (notice, error) {
	if len(b) < headerLen || len(b) > maxNotice {
		return notice{}, fmt.Errorf("%w: %d bytes", errNotice, len(b))
	}
	n := notice{
		kind: b[0], answer: b[1]&flagAnswer != 0, ack: b[1]&flagAck != 0,
		members: int(binary.BigEndian.Uint16(b[2:])),
		lease:   binary.BigEndian.Uint16(b[4:]),
		seq:     binary.BigEndian.Uint64(b[8:]),
		echo:    binary.BigEndian.Uint64(b[16:]),
	}
	if n.kind != kindSite && n.kind != kindCap {
		return notice{}, fmt.Errorf("%w: kind %#x", errNotice, n.kind)
	}
	count := int(binary.BigEndian.Uint16(b[6:]))
	if headerLen+count*entryLen != len(b) {
		return notice{}, fmt.Errorf("%w: %d entries in %d bytes", errNotice, count, len(b))
	}
	n.entries = make([]entry, count)
	for i := range n.entries {
		e := b[headerLen+i*entryLen:]
		n.entries[i] = entry{
			pool: binary.BigEndian.Uint32(e), kind: entryKind(e[4]), weight: e[5],
			a: int64(binary.BigEndian.Uint32(e[6:])) * unit, b: int64(binary.BigEndian.Uint32(e[10:])) * unit,
		}
	}
	return n, nil
}

// steps turns a rate into steps of the wire, downwards.
func steps(rate int64) uint32 { return uint32(min(max(rate, 0)/unit, 1<<32-1)) }

// floor is the rate that the wire can say, downwards.
func floor(rate int64) int64 { return int64(steps(rate)) * unit }

// PoolName is a site's name in notices: FNV-1a of its letters. Of two sites of one name a
// node that knows both shares nothing: it has its own share of each.
func PoolName(s Site) uint32 {
	h := uint32(2166136261)
	for i := range len(s) {
		h = (h ^ uint32(s[i])) * 16777619
	}
	return h
}
