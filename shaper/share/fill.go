package share

import (
	"cmp"
	"slices"
)

// claim is a part in a division.
type claim struct {
	want   int64 // no more than this is given
	floor  int64 // no less than this, or want if that is less
	weight int64 // above 0
	got    int64 // the result
}

// divide gives total to the claims by weighted max–min with floors: there is a
// level θ such that each gets min(want, max(floor, weight·θ)), and either total
// is used or every want is met. Floors are given even where total is less.
func divide(total int64, claims []claim) {
	left := total
	for i := range claims {
		c := &claims[i]
		c.got = min(c.want, c.floor)
		left -= c.got
	}
	if left <= 0 {
		return
	}
	// Each claim rises with the level between two points: from where the level
	// passes what it has to where it is satisfied. Sweep them in order.
	type point struct {
		level  float64
		weight int64 // joins (+) or leaves (−)
	}
	points := make([]point, 0, 2*len(claims))
	for _, c := range claims {
		if c.want > c.got {
			points = append(points, point{float64(c.got) / float64(c.weight), c.weight}, point{float64(c.want) / float64(c.weight), -c.weight})
		}
	}
	slices.SortFunc(points, func(a, b point) int { return cmp.Compare(a.level, b.level) })
	level, rising := 0.0, int64(0)
	rest := float64(left)
	for _, p := range points {
		if need := (p.level - level) * float64(rising); need >= rest {
			break
		} else {
			rest -= need
		}
		level, rising = p.level, rising+p.weight
	}
	if rising > 0 {
		level += rest / float64(rising)
	}
	for i := range claims {
		c := &claims[i]
		c.got = max(c.got, min(c.want, int64(level*float64(c.weight))))
	}
}
