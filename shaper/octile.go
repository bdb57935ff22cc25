package shaper

import "time"

const (
	octileStep = int64(2 * time.Microsecond)   // by how much a time counts that is less
	octileMost = int64(100 * time.Microsecond) // what is more is no habit
)

// octile follows what seven in eight of a series of times are at least, ns: timers come
// late, on virtual machines by 40 µs and more, and sends take long, but mostly by as much
// each time. That much can be reckoned with beforehand.
type octile int64

// note takes in the next of the series.
func (o *octile) note(t int64) {
	step := octileStep / 8
	if t < int64(*o) {
		step -= octileStep
	}
	*o = octile(min(max(int64(*o)+step, 0), octileMost))
}
