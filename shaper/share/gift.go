package share

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/meshmpi/meshmpi/mesh/peer"
)

// Timing of gifts.
const (
	GiftLife  = 4 * time.Millisecond // from the request until what is given has to be sent
	AskEvery  = 2 * time.Millisecond // between requests of a node for a link at least, and twice as long …
	AskSeldom = 8 * time.Millisecond // … after each that brought nothing, up to this
	AskBarren = 4 * AskSeldom        // between those of a node that is known to have little to give
)

// The kinds of notices about gifts; see notice.go for the others'.
const (
	kindAsk  byte = 0x13
	kindGift byte = 0x14

	giftLen = 17
)

// Gift is a notice by which a node asks others of its site for bytes, or gives them.
//
//	0      kind: 0x13 asks, 0x14 gives
//	1–4    name of the pool
//	5–8    bytes
//	9–16   when it was asked, microseconds by the asker's clock; an answer repeats it
type Gift struct {
	Gives bool
	Pool  uint32 // PoolName of the site to which they are sent
	Bytes int
	Asked time.Duration // since any moment of the asker's, in whole microseconds
}

var errGift = errors.New("share: not a notice of a gift")

// IsGift reports whether a notice is about gifts.
func IsGift(data []byte) bool { return len(data) > 0 && (data[0] == kindAsk || data[0] == kindGift) }

// Append appends the notice to b.
func (g Gift) Append(b []byte) []byte {
	kind := kindAsk
	if g.Gives {
		kind = kindGift
	}
	b = append(b, kind)
	b = binary.BigEndian.AppendUint32(b, g.Pool)
	b = binary.BigEndian.AppendUint32(b, uint32(min(max(g.Bytes, 0), 1<<31-1)))
	return binary.BigEndian.AppendUint64(b, uint64(g.Asked/time.Microsecond))
}

// Barren returns until when a node of this site is known to have little to give in a pool:
// it is hungry itself, so that it gives only what it has between two messages, or lends to
// this node, so that what it has given grows back slowly. Zero: it is not known to.
func (m *Machine) Barren(id peer.ID, pool uint32) (until time.Duration) {
	m.current()
	p, t := m.byName[pool], m.byID[id]
	if p == nil || t == nil {
		return 0
	}
	switch d := t.sides[m.borrowed(p)]; {
	case d == nil:
		return 0
	case d.hungry:
		return t.fresh
	case d.lease > 0:
		return d.leaseEnd
	}
	return 0
}

// ParseGift reads a notice about gifts.
func ParseGift(b []byte) (Gift, error) {
	if len(b) != giftLen || !IsGift(b) {
		return Gift{}, fmt.Errorf("%w: %d bytes", errGift, len(b))
	}
	bytes, asked := binary.BigEndian.Uint32(b[5:]), binary.BigEndian.Uint64(b[9:])
	if bytes == 0 || bytes > 1<<31-1 || asked > uint64(1<<63-1)/uint64(time.Microsecond) {
		return Gift{}, fmt.Errorf("%w: %d bytes asked for at %d", errGift, bytes, asked)
	}
	return Gift{b[0] == kindGift, binary.BigEndian.Uint32(b[1:]), int(bytes), time.Duration(asked) * time.Microsecond}, nil
}
