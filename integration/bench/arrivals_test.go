package bench

import (
	"math"
	"slices"
	"testing"
	"time"

	"github.com/meshmpi/meshmpi/integration/lab"
)

// evenly is n frames of a size at the rate, b/s, from a time on.
func evenly(n, size int, rate float64, from int64) (a arrivals) {
	for i := range n {
		a.at, a.size = append(a.at, from+int64(float64(i)*float64(size)*8e9/rate)), append(a.size, size)
	}
	return a
}

func TestArrivalsEvenly(t *testing.T) {
	a := evenly(1001, 1250, 10e6, 5e9) // one a millisecond
	if got := a.rate(); math.Abs(got/10e6-1) > 1e-9 {
		t.Errorf("rate %v", got)
	}
	if share, worst := a.exceeding(10e6, time.Millisecond, 0); share != 0 || worst != 0 {
		t.Errorf("%v of the windows exceed, by %v", share, worst)
	}
	if got := a.gapErrors(10e6); len(got) != 1000 || got.quantile(1) > 1e-6 {
		t.Errorf("gap errors of %v µs", got.quantile(1))
	}
	if got := a.backlog(10e6); got != 1250 {
		t.Errorf("%v bytes wait", got)
	}
	if got := a.bins(5e9, 5e9+2e6, time.Millisecond); !slices.Equal(got, []float64{10e6, 10e6}) {
		t.Errorf("bins %v", got)
	}
	if got := a.between(5e9+1, 5e9+3e6); got.bytes() != 2*1250 {
		t.Errorf("between: %+v", got)
	}
	if got := a.between(9, 3); len(got.at) != 0 {
		t.Errorf("between nothing: %+v", got)
	}
}

func TestArrivalsBurst(t *testing.T) {
	a := arrivals{at: []int64{0, 0, 0, 3e6, 6e6}, size: []int{1250, 1250, 1250, 1250, 1250}}
	if got := a.rate(); got != 4*1250*8/6e-3 {
		t.Errorf("rate %v", got)
	}
	// 1250 bytes a millisecond: the window at 0 holds three times that.
	if share, worst := a.exceeding(10e6, time.Millisecond, 1250); share != 0.25 || worst != 1250 {
		t.Errorf("%v of the windows exceed, by %v", share, worst)
	}
	if share, _ := a.exceeding(10e6, time.Millisecond, 2500); share != 0 {
		t.Errorf("%v of the windows exceed", share)
	}
	if got := a.backlog(10e6); got != 3750 {
		t.Errorf("%v bytes wait", got)
	}
	if got := a.gapErrors(10e6); !slices.Equal(got, sample{1000, 1000, 2000, 2000}) {
		t.Errorf("gap errors %v", got)
	}
	if share, _ := (arrivals{}).exceeding(1, time.Millisecond, 0); !math.IsNaN(share) || !math.IsNaN((arrivals{}).rate()) {
		t.Error("nothing has a rate")
	}
}

func TestStream(t *testing.T) {
	a := evenly(101, 1250, 10e6, 5e9)
	a.at, a.size = append([]int64{1e9}, a.at...), append([]int{1250}, a.size...) // by itself
	a.at, a.size = append(a.at, 5.101e9, 9e9), append(a.size, 60, 1250)
	if b, e := a.begins(1000, 8, 20*time.Millisecond), a.ends(1000, 8, 20*time.Millisecond); b != 5e9 || e != 5.1e9 {
		t.Errorf("from %d to %d", b, e)
	}
	if b, e := a.begins(1251, 1, time.Second), a.ends(1251, 1, time.Second); b != 0 || e != 0 {
		t.Errorf("frames that are not there: from %d to %d", b, e)
	}
	if b, e := a.begins(1000, 8, time.Millisecond), a.ends(1000, 8, time.Millisecond); b != 0 || e != 0 {
		t.Errorf("too sparse: from %d to %d", b, e)
	}
}

func TestChoose(t *testing.T) {
	all := []lab.Arrival{{At: 1, Size: 10}, {At: 2, Size: 20}, {At: 3, Size: 30}}
	if got := choose(all, func(a lab.Arrival) bool { return a.Size != 20 }); !slices.Equal(got.at, []int64{1, 3}) || got.bytes() != 40 {
		t.Errorf("%+v", got)
	}
}

func TestSettled(t *testing.T) {
	for _, tt := range []struct {
		values []float64
		hold   int
		want   int
	}{
		{[]float64{0, 5, 10, 10, 10}, 2, 2},
		{[]float64{10, 10, 5, 10.9, 9.1, 10}, 3, 3},
		{[]float64{10, 10, 5, 10}, 3, -1}, // nobody knows
		{[]float64{10, 5}, 1, 0},
		{[]float64{0, 5, 11.1}, 1, -1},
		{nil, 1, -1},
	} {
		if got := settled(tt.values, 10, 0.1, tt.hold); got != tt.want {
			t.Errorf("%v for %d: %d, want %d", tt.values, tt.hold, got, tt.want)
		}
	}
	if got := trailing([]float64{1, 3, 5, 7}, 2); !slices.Equal(got, []float64{1, 2, 4, 6}) {
		t.Errorf("trailing %v", got)
	}
}
