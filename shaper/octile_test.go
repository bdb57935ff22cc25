package shaper

import (
	"math/rand/v2"
	"testing"
)

// TestOctile: one in eight of the times is less, soon, and soon again when they change.
func TestOctile(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	var o octile
	for _, usual := range []int64{46 * us, 3 * us, 90 * us, 0} {
		less := 0
		for i := range 4000 {
			took := usual + r.Int64N(10*us)
			if r.IntN(50) == 0 {
				took += r.Int64N(ms)
			}
			if i >= 2000 && took < int64(o) {
				less++
			}
			o.note(took)
		}
		if less < 2000/12 || less > 2000/6 {
			t.Errorf("%d ns: %d of 2000 times are less than %d, want one in eight", usual, less, o)
		}
	}
	for range 4000 {
		o.note(ms)
	}
	if int64(o) != octileMost {
		t.Errorf("of times that are all too long it makes %d, want %d", o, octileMost)
	}
}
