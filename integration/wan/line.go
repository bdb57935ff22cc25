package wan

import (
	"math/rand/v2"
	"time"
)

// fate is what happens to a frame that is offered to a line.
type fate uint8

const (
	pass fate = iota
	dropQueue
	dropLoss
	dropBlackHole
)

// ethHeader is the length of an Ethernet header without tags.
const ethHeader = 14

// line is the arithmetic of one direction: it decides when a frame leaves, and
// holds no frames. Times are on any clock that does not go backwards.
type line struct {
	pipe Pipe
	free time.Duration // when the transmitter has sent everything accepted so far
	last time.Duration // when the latest frame is due: a shorter delay must not reorder
	rng  *rand.Rand
}

func newLine(p Pipe) *line {
	l := new(line)
	l.set(p)
	return l
}

// set changes the pipe. What has been accepted keeps its due time.
func (l *line) set(p Pipe) {
	if l.rng == nil || l.pipe.Seed != p.Seed {
		l.rng = rand.New(rand.NewPCG(p.Seed, p.Seed))
	}
	l.pipe = p
}

// waiting returns the bytes that have been accepted and not sent.
func (l *line) waiting(now time.Duration) int64 {
	return int64(float64(max(l.free-now, 0)) * float64(l.pipe.Rate) / 8e9)
}

// offer accepts or drops a frame of size bytes that arrived now, and says when
// an accepted one is due at the far end. A frame that is lost at random has
// passed the queue and used the rate, as on a lossy line.
func (l *line) offer(now time.Duration, size int) (due time.Duration, f fate) {
	if b := l.pipe.BlackHole; b > 0 && size > b+ethHeader {
		return 0, dropBlackHole
	}
	sent := now
	if rate := l.pipe.Rate; rate > 0 {
		if l.waiting(now)+int64(size) > l.pipe.queueLimit() {
			return 0, dropQueue
		}
		start := max(now, l.free)
		sent = start + time.Duration(int64(size)*8*int64(time.Second)/rate)
		l.free = sent
	}
	if l.pipe.Loss > 0 && l.rng.Float64() < l.pipe.Loss {
		return 0, dropLoss
	}
	l.last = max(l.last, sent+l.pipe.Delay)
	return l.last, pass
}
