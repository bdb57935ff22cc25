package bench

import (
	"math"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestMaxmin(t *testing.T) {
	for _, tt := range []struct {
		least  float64
		claims []claim
		want   []float64
	}{
		{25, []claim{{0, 1}}, []float64{100}},
		{25, []claim{{0, 1}, {0, 1}, {0, 1}, {0, 1}}, []float64{25, 25, 25, 25}},
		{25, []claim{{0, 1}, {0, 1}, {15, 1}, {0, 1}}, []float64{85.0 / 3, 85.0 / 3, 15, 85.0 / 3}},
		{25, []claim{{15, 1}}, []float64{15}},
		{0, []claim{{60, 1}, {10, 1}, {0, 1}}, []float64{45, 10, 45}},
		{0, []claim{{0, 1}, {0, 1}, {0, 3}}, []float64{20, 20, 60}},
		{25, []claim{{0, 1}, {0, 1}, {0, 3}}, []float64{25, 25, 50}},
		{25, []claim{{0, 1}, {0, 1}, {40, 3}}, []float64{30, 30, 40}},
		{25, nil, []float64{}},
	} {
		got := maxmin(100, tt.least, tt.claims)
		if !slices.EqualFunc(got, tt.want, func(a, b float64) bool { return math.Abs(a-b) < 1e-9 }) {
			t.Errorf("%v: %v, want %v", tt.claims, got, tt.want)
		}
	}
}

// playShares makes a record in which every sender has its share from late after a phase's
// beginning on, and what it had before until then.
func playShares(late time.Duration) *sharing {
	r := &sharing{phase: time.Second, begin: time.Unix(1000, 0), second: seconds()[0]}
	type frame struct {
		at   int64
		node int
	}
	var all []frame
	r.nodes = make([]arrivals, len(sharesSenders(r.second)))
	had := make([]float64, len(r.nodes))
	for p := range sharesPhases {
		who, ought := r.sending(p)
		from, till := r.at(p).UnixNano(), r.at(p+1).UnixNano()
		for k, i := range who {
			before := had[i]
			if before == 0 {
				before = ought[k]
			}
			for at, rate := from, before; at < till; at += int64(1500 * 8e9 / rate) {
				if at >= from+int64(late) {
					rate = ought[k]
				}
				all = append(all, frame{at, i})
			}
			had[i] = ought[k]
		}
	}
	slices.SortFunc(all, func(a, b frame) int { return int(a.at - b.at) })
	for _, f := range all {
		a := &r.nodes[f.node]
		a.at, a.size = append(a.at, f.at), append(a.size, 1500)
		r.all.at, r.all.size = append(r.all.at, f.at), append(r.all.size, 1500)
	}
	return r
}

func TestSharing(t *testing.T) {
	for _, tt := range []struct {
		late    time.Duration
		settles bool
	}{{0, true}, {20 * time.Millisecond, true}, {120 * time.Millisecond, false}} {
		r := playShares(tt.late)
		if err := r.findChanges(); err != nil {
			t.Fatal(err)
		}
		v := rounds{r}.verdicts()
		if !v[0].Good || v[1].Good != tt.settles || v[2].Good != tt.settles {
			t.Errorf("late by %v: %+v", tt.late, v)
		}
		if tt.late == 0 && !v[3].Good {
			t.Errorf("%+v", v[3])
		}
		if rows := (rounds{r}).rows(); len(rows) != sharesPhases || rows[2][2] != "25.0, 25.0, 25.0, 25.0" || rows[4][2] != "–, –, 100.0, –" || rows[4][3] != rows[4][2] {
			t.Errorf("rows %v", rows)
		}
		if d := r.draw(); len(d.panels) != 3 || len(d.svg()) < 1000 {
			t.Errorf("a drawing of %d panels", len(d.panels))
		}
	}
	two, one := rounds{playShares(0), playShares(120 * time.Millisecond), playShares(0)}, rounds{playShares(120 * time.Millisecond), playShares(0), playShares(120 * time.Millisecond)}
	for _, r := range append(slices.Clone(two), one...) {
		if err := r.findChanges(); err != nil {
			t.Fatal(err)
		}
	}
	if v := two.verdicts(); v[1].Good || !v[2].Good || !strings.Contains(v[1].Text, "8 of 12 were as fast") {
		t.Errorf("one round of three is late: %+v", v[1:3])
	}
	if v := one.verdicts(); v[1].Good || v[2].Good {
		t.Errorf("two rounds of three are late: %+v", v[1:3])
	}
	r := playShares(0)
	r.nodes[3] = arrivals{}
	if err := r.findChanges(); err == nil {
		t.Error("nobody misses a sender that is not there")
	}
	r = playShares(0)
	r.lost = 1
	if err := r.findChanges(); err != nil || (rounds{r}).verdicts()[3].Good {
		t.Errorf("a lost packet is good, or %v", err)
	}
}

func TestParseBegan(t *testing.T) {
	if at, err := parseBegan("noise\nbegan 1795279380.357593\ncrowd 7\n"); err != nil || at.UnixMilli() != 1795279380357 {
		t.Errorf("%v, %v", at, err)
	}
	for _, out := range []string{"", "began", "began soon\n"} {
		if _, err := parseBegan(out); err == nil {
			t.Errorf("%q: no error", out)
		}
	}
}

func TestDifference(t *testing.T) {
	p := pairing{name: "it"}
	for i := range 20 {
		p.without = append(p.without, 100+float64(i%5))
		p.with = append(p.with, 103+float64(i%5))
	}
	d, low, high := p.difference()
	if math.Abs(d-3.0/102) > 1e-9 || low <= 0 || low > d || high < d || p.verdict().Good {
		t.Errorf("3 %% more: %v, %v to %v", d, low, high)
	}
	p.with = p.without
	if d, low, high := p.difference(); d != 0 || low != 0 || high != 0 || !p.verdict().Good {
		t.Errorf("the same: %v, %v to %v", d, low, high)
	}
	for i := range p.with {
		p.with = slices.Clone(p.with)
		p.with[i] = p.without[(i+1)%5] * 1.001
	}
	if !p.verdict().Good {
		t.Errorf("by chance: %+v", p.verdict())
	}
}

func TestPacerRuns(t *testing.T) {
	p := pacerRuns{set: 100e6}
	if err := p.add(evenly(30_000, 1250, 100e6, 1e9), 1500*time.Millisecond); err != nil {
		t.Fatal(err)
	}
	if v := p.verdict("it"); !v.Good || p.burst() != 2500 || p.frames != 15_000 {
		t.Errorf("%+v, burst %v, %d frames", v, p.burst(), p.frames)
	}
	if err := p.add(evenly(30_000, 1250, 102e6, 1e9), 1500*time.Millisecond); err != nil {
		t.Fatal(err)
	}
	if v := p.verdict("it"); v.Good {
		t.Errorf("2 %% too fast once: %+v", v)
	}
	burst := pacerRuns{set: 100e6}
	a := evenly(30_000, 1250, 100e6, 1e9)
	for i := 15_000; i < 15_200; i++ {
		a.at[i] = a.at[15_000]
	}
	if err := burst.add(a, 1500*time.Millisecond); err != nil || burst.verdict("it").Good {
		t.Errorf("%v: a burst of 200: %+v", err, burst.verdict("it"))
	}
	if err := p.add(arrivals{}, time.Second); err == nil {
		t.Error("nothing has arrived, and no error")
	}
}
