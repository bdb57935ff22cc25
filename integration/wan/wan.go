// Package wan emulates a wide-area link: a one-way delay, a rate with a
// drop-tail queue in front of it, random loss, and paths that swallow large
// packets, each direction by itself.
//
// It exists because many kernels, those of small virtual machines above all,
// are built without netem, and because a test wants the same losses twice. An
// [Emulator] stands between two network interfaces and copies frames from one
// to the other when they are due, on one operating-system thread that sleeps
// with a timer slack of one nanosecond.
//
// It counts what becomes of frames, and can record for a while what comes and what
// waits, 100 µs by 100 µs.
//
// It does not create interfaces, does not reorder or corrupt packets, and does
// not look inside them. It must see frames as they are on a wire: whoever owns
// the interfaces switches segmentation and checksum offload off at their other
// ends.
package wan

import (
	"fmt"
	"time"
)

// Pipe describes one direction of a link. Its zero value passes everything at
// once.
type Pipe struct {
	Delay     time.Duration // propagation, one way, without the time in the queue
	Rate      int64         // bits per second of Ethernet frames without preamble and FCS; 0: unlimited
	Queue     int           // bytes that may wait for Rate; 0: 50 ms at Rate, at least 32 KiB
	Loss      float64       // share of frames lost after the queue, 0 to 1
	BlackHole int           // IP packets longer than this many bytes vanish without an ICMP error; 0: none
	Seed      uint64        // of the random losses: the same seed loses the same frames
}

// Link describes both directions. Up is from the near interface to the far one.
type Link struct {
	Up, Down Pipe
}

// Symmetric returns the link that treats both directions as p says; the losses
// of the two directions are independent.
func Symmetric(p Pipe) Link {
	down := p
	down.Seed ^= 0x9e3779b97f4a7c15
	return Link{Up: p, Down: down}
}

// IsPlain reports whether the link changes nothing, so that no emulator is needed.
func (l Link) IsPlain() bool { return l.Up.IsPlain() && l.Down.IsPlain() }

// IsPlain reports whether the pipe passes everything at once.
func (p Pipe) IsPlain() bool {
	return p.Delay == 0 && p.Rate == 0 && p.Loss == 0 && p.BlackHole == 0
}

// Validate says what is wrong with the link, if anything.
func (l Link) Validate() error {
	if err := l.Up.validate("up"); err != nil {
		return err
	}
	return l.Down.validate("down")
}

func (p Pipe) validate(direction string) error {
	switch {
	case p.Delay < 0 || p.Delay > 10*time.Second:
		return fmt.Errorf("wan: %s: delay %v is not between 0 and 10s", direction, p.Delay)
	case p.Rate < 0 || p.Rate > 0 && p.Rate < 1000:
		return fmt.Errorf("wan: %s: rate %d bit/s is neither 0 (unlimited) nor at least 1000", direction, p.Rate)
	case p.Queue < 0:
		return fmt.Errorf("wan: %s: queue of %d bytes is negative", direction, p.Queue)
	case !(p.Loss >= 0 && p.Loss <= 1):
		return fmt.Errorf("wan: %s: loss %v is not between 0 and 1", direction, p.Loss)
	case p.BlackHole < 0:
		return fmt.Errorf("wan: %s: black hole above %d bytes is negative", direction, p.BlackHole)
	}
	return nil
}

// queueLimit returns the bytes that may wait for the rate.
func (p Pipe) queueLimit() int64 {
	if p.Queue > 0 {
		return int64(p.Queue)
	}
	return max(32<<10, p.Rate/8/20)
}

// LateBy is from when a frame that leaves after its time counts as late. The link was
// then not the one that was asked for, and what it limits is slower than it ought to be.
const LateBy = 2 * time.Millisecond

// Counters says what became of the frames of one direction.
type Counters struct {
	Frames    uint64 // delivered
	Bytes     uint64 // delivered
	Late      uint64 // delivered, but late by LateBy or more
	QueueFull uint64 // dropped: the queue in front of Rate was full
	Lost      uint64 // dropped: random loss
	Swallowed uint64 // dropped: longer than BlackHole
	Overrun   uint64 // dropped by the emulator itself: too many or too large for its memory, or it was too slow
	Refused   uint64 // dropped: the outgoing interface did not take them
}

// Plus returns the sums.
func (c Counters) Plus(o Counters) Counters {
	return Counters{
		Frames: c.Frames + o.Frames, Bytes: c.Bytes + o.Bytes, Late: c.Late + o.Late, QueueFull: c.QueueFull + o.QueueFull, Lost: c.Lost + o.Lost,
		Swallowed: c.Swallowed + o.Swallowed, Overrun: c.Overrun + o.Overrun, Refused: c.Refused + o.Refused,
	}
}

// Stats holds the counters of both directions.
type Stats struct {
	Up, Down Counters
}
