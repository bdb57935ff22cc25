package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/meshmpi/meshmpi/mpi"
	"github.com/meshmpi/meshmpi/mpi/mpitest"
)

// TestSizes has the sizes that NetPIPE's documentation shows.
func TestSizes(t *testing.T) {
	for _, tc := range []struct {
		lower, upper, perturbation int
		want                       []int
	}{
		{1, 35, 3, []int{1, 2, 3, 4, 6, 8, 12, 13, 16, 19, 21, 24, 27, 29, 32, 35}},
		{1, 35, 0, []int{1, 2, 3, 4, 6, 8, 12, 16, 24, 32}},
		{1 << 20, 1 << 20, 0, []int{1 << 20}},
		{1, 1, 3, []int{1}},
	} {
		if got := sizes(tc.lower, tc.upper, tc.perturbation); !slices.Equal(got, tc.want) {
			t.Errorf("%d to %d by %d: %v, want %v", tc.lower, tc.upper, tc.perturbation, got, tc.want)
		}
	}
}

func TestRepeats(t *testing.T) {
	for _, tc := range []struct {
		n, bytes int
		took     float64
		want     int
	}{{1, 1, 1e-6, 250_000}, {2000, 1000, 1e-3, 125}, {8 << 20, 1 << 20, 0.5, trials}, {1, 1, 0, 1e9}} {
		if got := repeats(tc.n, tc.bytes, tc.took); got != tc.want {
			t.Errorf("%d bytes after %d in %v s: %d, want %d", tc.n, tc.bytes, tc.took, got, tc.want)
		}
	}
}

// TestRun looks for a line of each size.
func TestRun(t *testing.T) {
	out := filepath.Join(t.TempDir(), "np.out")
	mpitest.Run(t, 2, func(c *mpi.Comm) error {
		s := settings{lower: 1, upper: 24, perturbation: 3, trips: 5, out: out}
		if err := s.check(c.Size()); err != nil {
			return err
		}
		return s.run(c)
	})
	text, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	var got []int
	for line := range strings.Lines(string(text)) {
		var n int
		var mbps, seconds float64
		if _, err := fmt.Sscan(line, &n, &mbps, &seconds); err != nil || mbps <= 0 || seconds <= 0 {
			t.Errorf("line %q: %v", line, err)
		}
		got = append(got, n)
	}
	if want := sizes(1, 24, 3); !slices.Equal(got, want) {
		t.Errorf("sizes %v, want %v", got, want)
	}
}
