package bench

import (
	"math"
	"slices"
	"time"

	"github.com/meshmpi/meshmpi/integration/lab"
)

// arrivals are frames in the order they came off a line.
type arrivals struct {
	at   []int64 // ns of the machine's clock
	size []int   // bytes on the wire
}

// choose returns those that keep says.
func choose(all []lab.Arrival, keep func(lab.Arrival) bool) (a arrivals) {
	for _, f := range all {
		if keep(f) {
			a.at, a.size = append(a.at, f.At), append(a.size, f.Size)
		}
	}
	return a
}

// between returns those from one time until before another.
func (a arrivals) between(from, to int64) arrivals {
	i, _ := slices.BinarySearch(a.at, from)
	j, _ := slices.BinarySearch(a.at, to)
	j = max(i, j)
	return arrivals{a.at[i:j], a.size[i:j]}
}

// bytes is the sum of their sizes.
func (a arrivals) bytes() (sum int) {
	for _, n := range a.size {
		sum += n
	}
	return sum
}

// rate is what has come after the first, by the time from it to the last, b/s; NaN
// of fewer than two.
func (a arrivals) rate() float64 {
	n := len(a.at)
	if n < 2 || a.at[n-1] <= a.at[0] {
		return math.NaN()
	}
	return float64(a.bytes()-a.size[0]) * 8e9 / float64(a.at[n-1]-a.at[0])
}

// exceeding returns the share of the windows of a length, one beginning with each
// frame, in which more bytes came than the rate (b/s) allows with a burst, and by how
// many bytes the fullest exceeds that, if it does. Windows that begin with a frame
// hold the most, so it is the worst that sliding can find. Those that the record's
// end cuts do not count.
func (a arrivals) exceeding(rate float64, window time.Duration, burst float64) (share, worst float64) {
	allowed := rate/8*window.Seconds() + burst
	n, over, end, sum := 0, 0, 0, 0
	for i, at := range a.at {
		if at+int64(window) > a.at[len(a.at)-1] {
			break
		}
		for a.at[end] < at+int64(window) {
			sum += a.size[end]
			end++
		}
		n++
		if excess := float64(sum) - allowed; excess > 0 {
			over++
			worst = max(worst, excess)
		}
		sum -= a.size[i]
	}
	if n == 0 {
		return math.NaN(), 0
	}
	return float64(over) / float64(n), worst
}

// gapErrors are, in µs, how far the gap between two frames is from the time that the
// first of them takes at the rate, one way or the other.
func (a arrivals) gapErrors(rate float64) (s sample) {
	for i := 1; i < len(a.at); i++ {
		gap, ideal := float64(a.at[i]-a.at[i-1]), float64(a.size[i-1])*8e9/rate
		s = append(s, math.Abs(gap-ideal)/1e3)
	}
	return s
}

// backlog is how many bytes would wait at most before a line of the rate, the frame
// on the line included.
func (a arrivals) backlog(rate float64) float64 {
	most, waiting, last := 0.0, 0.0, int64(0)
	for i, at := range a.at {
		waiting = max(waiting-float64(at-last)*rate/8e9, 0) + float64(a.size[i])
		most, last = max(most, waiting), at
	}
	return most
}

// bins returns what came in each interval of a length from one time to another, b/s.
func (a arrivals) bins(from, to int64, width time.Duration) []float64 {
	all := make([]float64, max(0, (to-from)/int64(width)))
	for i, at := range a.at {
		if k := (at - from) / int64(width); at >= from && k < int64(len(all)) {
			all[k] += float64(a.size[i]) * 8 / width.Seconds()
		}
	}
	return all
}

// trailing returns the mean of each value and those before it, n in all; of fewer at
// the beginning.
func trailing(values []float64, n int) []float64 {
	all, sum := make([]float64, len(values)), 0.0
	for i, v := range values {
		sum += v
		if i >= n {
			sum -= values[i-n]
		}
		all[i] = sum / float64(min(i+1, n))
	}
	return all
}

// within reports whether a value is close enough to what it ought to be.
func within(got, want, tolerance float64) bool { return math.Abs(got-want) <= tolerance*want }

// settled returns the first index of a value from which on all are within the
// tolerance for hold values; -1 if there is none.
func settled(values []float64, want, tolerance float64, hold int) int {
	good := 0
	for i, v := range values {
		if !within(v, want, tolerance) {
			good = 0
			continue
		}
		if good++; good == hold {
			return i + 1 - hold
		}
	}
	return -1
}

// begins and ends return the times of the first and the last frame of a stream: of
// those of at least so many bytes that have n others of that kind after or before them
// within a time. 0: there is none. A single large frame, as a probe of the MTU is, is
// no stream.
func (a arrivals) begins(size, n int, within time.Duration) int64 {
	at := a.large(size)
	for i := range max(len(at)-n, 0) {
		if at[i+n]-at[i] <= int64(within) {
			return at[i]
		}
	}
	return 0
}

func (a arrivals) ends(size, n int, within time.Duration) int64 {
	at := a.large(size)
	for i := len(at) - 1; i >= n; i-- {
		if at[i]-at[i-n] <= int64(within) {
			return at[i]
		}
	}
	return 0
}

// large are the times of frames of at least so many bytes.
func (a arrivals) large(size int) (at []int64) {
	for i, n := range a.size {
		if n >= size {
			at = append(at, a.at[i])
		}
	}
	return at
}
