package main

import (
	"regexp"
	"slices"
	"testing"
)

func TestExamplesAreRead(t *testing.T) {
	for _, tc := range []struct {
		re   *regexp.Regexp
		line string
		want []string
	}{
		{heatRE, "heat: 240 × 240 points on 2 × 2 ranks, 500 steps in 2.847s: mean 4.797031, last change 4.84e-02", []string{"2 × 2", "mean 4.797031, last change 4.84e-02"}},
		{sortRE, "sort: 4000000 numbers on 4 ranks in 639ms, in order; the fullest rank has 1.00 of its share", []string{"4000000"}},
		{farmRE, "farm: 283146 primes up to 4000000, 200 tasks, 3 workers of which 1 died, 1.01s", []string{"283146", "1"}},
		{deathRE, "meshrun: rank 3 on b2 (pid 225) was killed by signal 9 (SIGKILL); the job goes on", []string{}},
		{sortRE, "sort: 4000000 numbers on 2 ranks in 639ms, in order; the fullest rank has 1.00 of its share", nil},
		{deathRE, "meshrun: rank 3 on b2 (pid 225) was killed by signal 9 (SIGKILL)", nil},
	} {
		m := tc.re.FindStringSubmatch("a line before\n" + tc.line + "\n")
		if (m == nil) != (tc.want == nil) || m != nil && !slices.Equal(m[1:], tc.want) {
			t.Errorf("%s: got %q, want %q", tc.line, m, tc.want)
		}
	}
}
