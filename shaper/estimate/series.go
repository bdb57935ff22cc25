package estimate

import "time"

// readings is how many points a series keeps.
const readings = 64

// leastFor is how long at least a clock's difference counts.
const leastFor = 10 * time.Second

// begunAnew is by how much a clock goes back only where it has begun anew; what is
// merely overtaken on the way is less late.
const begunAnew = time.Second

// step is what is assumed of a counter that has not been told of for long: that
// it grew in the last so much of the time.
const step = Slot

// series are counters that another node tells now and then, by its own clock, seen
// by ours. The way from there is taken to be as short as it has been at best, so
// that a message which is late says what one in time would have said.
type series struct {
	since  time.Duration // when the least of now was begun
	least  time.Duration // difference of the clocks, the way included
	before time.Duration // the same, of the time before since
	remote time.Duration // the other's time, as told last
	points [readings]point
	n      int // ever
	raw    counters
}

// counters go up only.
type counters struct{ sent, got, blind int64 }

func (c counters) minus(o counters) counters {
	return counters{c.sent - o.sent, c.got - o.got, c.blind - o.blind}
}

func (c counters) plus(o counters) counters {
	return counters{c.sent + o.sent, c.got + o.got, c.blind + o.blind}
}

// clipped makes what would be less than nothing, as after a restart of the other
// node, nothing.
func (c counters) clipped() counters {
	return counters{max(c.sent, 0), max(c.got, 0), max(c.blind, 0)}
}

type point struct {
	at time.Duration
	counters
}

// add takes in what the other told; remote is its time. Old news are ignored. After
// a restart of the other its clock and its counters begin anew.
func (s *series) add(now, remote time.Duration, c counters) {
	diff := now - remote
	switch {
	case s.n == 0, remote < s.remote-begunAnew:
		s.since, s.least, s.before, s.remote = now, diff, diff, remote
	case now-s.since > leastFor:
		s.since, s.before, s.least = now, s.least, diff
	default:
		s.least = min(s.least, diff)
	}
	s.remote = max(s.remote, remote)
	at := remote + min(s.least, s.before)
	if s.n == 0 {
		s.raw = c
		s.push(point{at: at})
		return
	}
	last := s.points[(s.n-1)%readings]
	if at <= last.at {
		return
	}
	if at-last.at > 3*step { // it was not worth telling
		last.at = at - step
		s.push(last)
	}
	s.push(point{at, last.plus(c.minus(s.raw).clipped())})
	s.raw = c
}

func (s *series) push(p point) {
	s.points[s.n%readings] = p
	s.n++
}

// until returns the time up to which the counters are known.
func (s *series) until() time.Duration {
	if s.n == 0 {
		return 0
	}
	return s.points[(s.n-1)%readings].at
}

// read returns the counters at a time: between two points in proportion, after the
// last one as it said.
func (s *series) read(t time.Duration) counters {
	if s.n == 0 {
		return counters{}
	}
	first := max(s.n-readings, 0)
	for i := s.n - 1; i >= first; i-- {
		p := s.points[i%readings]
		if p.at > t {
			continue
		}
		if i == s.n-1 {
			return p.counters
		}
		q := s.points[(i+1)%readings]
		d, part := q.minus(p.counters), float64(t-p.at)/float64(q.at-p.at)
		return p.plus(counters{int64(float64(d.sent) * part), int64(float64(d.got) * part), int64(float64(d.blind) * part)})
	}
	return s.points[first%readings].counters
}
