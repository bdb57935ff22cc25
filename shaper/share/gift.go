package share

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"
)

// Timing of gifts.
const (
	GiftLife   = 4 * time.Millisecond  // from the request until what is given has to be sent
	AskEvery   = 2 * time.Millisecond  // between requests of a node for a link at least
	AskOffered = 1 * time.Millisecond  // from an offer to the request at least: who has sent all has nothing else yet
	AskSilent  = 32 * time.Millisecond // between those of a node that answered with nothing: offers get lost
)

// The kinds of notices about gifts; see notice.go for the others'.
const (
	kindAsk   byte = 0x13
	kindGift  byte = 0x14
	kindOffer byte = 0x15

	giftLen = 17
)

// Gift is a notice by which a node asks others of its site for bytes, gives them, or offers
// them to who has asked in vain and is to ask again.
//
//	0      kind: 0x13 asks, 0x14 gives, 0x15 offers
//	1–4    name of the pool
//	5–8    bytes; 0 of an offer
//	9–16   when it was asked, microseconds by the asker's clock; a gift repeats it, 0 of an offer
type Gift struct {
	Does  Giving
	Pool  uint32 // PoolName of the site to which they are sent
	Bytes int
	Asked time.Duration // since any moment of the asker's, in whole microseconds
}

// Giving is what a Gift does.
type Giving int

// What gifts are about.
const (
	Asks Giving = iota
	Gives
	Offers
)

var errGift = errors.New("share: not a notice of a gift")

// IsGift reports whether a notice is about gifts.
func IsGift(data []byte) bool {
	return len(data) > 0 && data[0] >= kindAsk && data[0] <= kindOffer
}

// Append appends the notice to b.
func (g Gift) Append(b []byte) []byte {
	b = append(b, kindAsk+byte(g.Does))
	b = binary.BigEndian.AppendUint32(b, g.Pool)
	b = binary.BigEndian.AppendUint32(b, uint32(min(max(g.Bytes, 0), 1<<31-1)))
	return binary.BigEndian.AppendUint64(b, uint64(g.Asked/time.Microsecond))
}

// ParseGift reads a notice about gifts.
func ParseGift(b []byte) (Gift, error) {
	if len(b) != giftLen || !IsGift(b) {
		return Gift{}, fmt.Errorf("%w: %d bytes", errGift, len(b))
	}
	does := Giving(b[0] - kindAsk)
	bytes, asked := binary.BigEndian.Uint32(b[5:]), binary.BigEndian.Uint64(b[9:])
	if (does == Offers) != (bytes == 0) || does == Offers && asked != 0 || bytes > 1<<31-1 || asked > uint64(1<<63-1)/uint64(time.Microsecond) {
		return Gift{}, fmt.Errorf("%w: %d bytes asked for at %d", errGift, bytes, asked)
	}
	return Gift{does, binary.BigEndian.Uint32(b[1:]), int(bytes), time.Duration(asked) * time.Microsecond}, nil
}
