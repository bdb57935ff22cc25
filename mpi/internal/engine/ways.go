package engine

import (
	"math/bits"
	"time"
)

// way is how the data of a message come whose sender's memory can be read.
type way uint8

const (
	unknownWay way = iota
	bySending      // both ends copy at once, through a ring
	byReading      // this end copies alone, and once
)

// ways knows which way is the faster one, which depends on the processor's caches and
// on its memory: now one takes four fifths of the other's time, now the other of the
// one's. So both are tried, for each size by itself, and later now and then the slower.
type ways [8]struct {
	took  [3]float64 // by way: nanoseconds of a byte, of late
	tries [3]int
	asked uint
}

const (
	tryWays   = 8  // times that each is tried before one is preferred
	retryWays = 64 // of so many messages one goes the slower way
	newWeight = 0.125
	mostTimes = 1.5 // what took longer than that by what is usual was held up by something else
)

func classOf(bytes int) int { return min(bits.Len(uint(bytes)>>15), 7) }

// prefer returns the way that a message is to come.
func (w *ways) prefer(bytes int) way {
	c := &w[classOf(bytes)]
	c.asked++
	switch {
	case c.tries[bySending] < tryWays && c.tries[bySending] <= c.tries[byReading]:
		return bySending
	case c.tries[byReading] < tryWays:
		return byReading
	case c.took[bySending] <= c.took[byReading] == (c.asked%retryWays != 0):
		return bySending
	}
	return byReading
}

// note tells how long one took.
func (w *ways) note(by way, bytes int, took time.Duration) {
	if by == unknownWay || bytes == 0 {
		return
	}
	c := &w[classOf(bytes)]
	each := float64(took) / float64(bytes)
	if c.tries[by]++; c.tries[by] == 1 {
		c.took[by] = each
		return
	}
	c.took[by] += newWeight * (min(each, mostTimes*c.took[by]) - c.took[by])
}
