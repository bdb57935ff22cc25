package bench

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"time"
)

// sample is a set of measurements of one thing, in the order they were taken.
type sample []float64

func (s sample) sorted() sample {
	t := slices.Clone(s)
	slices.Sort(t)
	return t
}

// quantile returns the least value that at least the share q of all do not
// exceed (nearest rank); NaN of nothing.
func (s sample) quantile(q float64) float64 {
	if len(s) == 0 {
		return math.NaN()
	}
	rank := int(math.Ceil(q * float64(len(s))))
	return s.sorted()[min(max(rank, 1), len(s))-1]
}

// median returns the middle value, or the mean of the two middle ones.
func (s sample) median() float64 {
	if len(s) == 0 {
		return math.NaN()
	}
	t := s.sorted()
	return (t[(len(t)-1)/2] + t[len(t)/2]) / 2
}

// spread is the median with the least and the greatest value, in a format for
// numbers such as "%.2f".
func (s sample) spread(format string) string {
	if len(s) == 0 {
		return "–"
	}
	return fmt.Sprintf(format+" ("+format+"–"+format+")", s.median(), slices.Min(s), slices.Max(s))
}

// tail is the median, the 95th percentile and the greatest value.
func (s sample) tail(format string) string {
	if len(s) == 0 {
		return "–"
	}
	return fmt.Sprintf(format+" / "+format+" / "+format, s.median(), s.quantile(0.95), slices.Max(s))
}

// over divides measurements taken in the same rounds.
func (s sample) over(base sample) sample {
	ratios := make(sample, min(len(s), len(base)))
	for i := range ratios {
		ratios[i] = s[i] / base[i]
	}
	return ratios
}

// rounding is by how much a ratio that is told in two decimals may be off.
const rounding = 0.005

// by is how much greater the measurements are than others of the same rounds: the
// median of the quotients. For seconds at a time all that a virtual machine does may take
// twice as long; that is in both of a round, but not in as many of both samples.
func (s sample) by(base sample) float64 { return s.over(base).median() }

// ratio is by, with the least and the greatest quotient.
func ratio(s, base sample) string { return s.over(base).spread("%.2f") }

// milliseconds is how tables give durations.
func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// resamplings are how often an interval draws anew.
const resamplings = 4000

// interval is the 95 % interval of the median by the bootstrap: as many measurements are
// drawn with replacement, again and again. The same ones have the same interval.
func (s sample) interval() (low, high float64) {
	rng := rand.New(rand.NewPCG(9, 5))
	medians, drawn := make(sample, resamplings), make(sample, len(s))
	for i := range medians {
		for k := range drawn {
			drawn[k] = s[rng.IntN(len(s))]
		}
		medians[i] = drawn.median()
	}
	return medians.quantile(0.025), medians.quantile(0.975)
}

// likely is the median with that interval.
func (s sample) likely(format string) string {
	if len(s) == 0 {
		return "–"
	}
	low, high := s.interval()
	return fmt.Sprintf(format+" ("+format+"–"+format+")", s.median(), low, high)
}

// contender is one of several things that are compared.
type contender struct {
	name string
	run  func() (float64, error)
	got  sample
}

// interleave measures the contenders in turns, each round beginning with the
// next one, so that a slow minute of the machine falls on all alike.
func interleave(rounds int, all []*contender, done func(round int, c *contender)) error {
	for round := range rounds {
		for i := range all {
			c := all[(round+i)%len(all)]
			v, err := c.run()
			if err != nil {
				return fmt.Errorf("%s, round %d: %w", c.name, round+1, err)
			}
			c.got = append(c.got, v)
			done(round, c)
		}
	}
	return nil
}
