package estimate

import (
	"math/rand/v2"
	"time"
)

const (
	ms   = time.Millisecond
	mbit = 1_000_000
)

// line is a bottleneck with a drop-tail queue, as a fluid in steps of a
// millisecond. Source 0 is traffic of others.
type line struct {
	rate  float64 // bits per second
	limit float64 // of the queue, bytes
	loss  float64 // of what has passed the queue
	rng   *rand.Rand

	queue   []float64 // bytes, by source
	part    []float64 // of a packet
	owed    []float64 // lost, still to be taken off
	dropped float64   // by the queue, bytes
	offered float64
}

func newLine(rate, limit, loss float64, sources int) *line {
	return &line{rate: rate, limit: limit, loss: loss, rng: rand.New(rand.NewPCG(1, 2)), queue: make([]float64, sources+1), part: make([]float64, sources+1), owed: make([]float64, sources+1)}
}

func (l *line) backlog() (sum float64) {
	for _, q := range l.queue {
		sum += q
	}
	return sum
}

// step takes in what each source sends in a millisecond, bytes, and returns what
// arrives of each.
func (l *line) step(in []float64) []float64 {
	sum := 0.0
	for _, b := range in {
		sum += b
		l.offered += b
	}
	served := l.rate / 8 / 1000
	was := l.backlog()
	// What finds no room, after a millisecond's service, is dropped, of all alike.
	over := max(was+sum-served-l.limit, 0)
	for i, b := range in {
		cut := 0.0
		if sum > 0 {
			cut = over * b / sum
		}
		l.dropped += cut
		l.queue[i] += b - cut
	}
	total := l.backlog()
	part := 1.0
	if total > served {
		part = served / total
	}
	out := make([]float64, len(in))
	for i := range out {
		b := l.queue[i] * part
		l.queue[i] -= b
		out[i] = b
		for l.part[i] += b; l.part[i] >= 1500; l.part[i] -= 1500 { // packet by packet
			if l.rng.Float64() < l.loss {
				l.owed[i] += 1500
			}
		}
		cut := min(l.owed[i], b)
		l.owed[i] -= cut
		out[i] -= cut
	}
	return out
}
