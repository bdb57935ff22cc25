package sites

import (
	"encoding/json"
	"reflect"
	"testing"
)

// TestMeasured: what is to be measured is kept, told and taken back, and what is
// found takes its place for the site that has found it.
func TestMeasured(t *testing.T) {
	l := declared(t) // alpha 100 up, 200 down; beta 50 down; alpha–beta 80
	for _, step := range []func() (Limits, error){
		func() (Limits, error) { return l.WithSite("alpha", Measured, 0) },
		func() (Limits, error) { return l.WithSite("beta", 0, Measured) },
		func() (Limits, error) { return l.WithPair("alpha", "gamma", Measured) },
	} {
		var err error
		if l, err = step(); err != nil {
			t.Fatal(err)
		}
	}
	b, err := json.Marshal(l)
	if err != nil {
		t.Fatal(err)
	}
	if back, err := Parse(b); err != nil || !reflect.DeepEqual(back, l) {
		t.Errorf("%s is read as %+v, %v", b, back, err)
	}
	if up, down := l.Of("alpha"); up != 0 || down != 200e6 {
		t.Errorf("declared of alpha are %d, %d", up, down)
	}
	for _, tc := range []struct {
		from string
		want []string
	}{{"alpha", []string{"", "beta", "gamma"}}, {"beta", nil}, {"gamma", []string{"alpha", "beta"}}} {
		if got := l.ToMeasure(tc.from); !reflect.DeepEqual(got, tc.want) {
			t.Errorf("%s measures %q, want %q", tc.from, got, tc.want)
		}
	}
	for _, tc := range []struct {
		from, to string
		want     bool
	}{
		{"alpha", "beta", true}, {"alpha", "delta", true}, {"beta", "alpha", false}, {"delta", "beta", true},
		{"gamma", "alpha", true}, {"delta", "epsilon", false}, {"alpha", "alpha", false},
	} {
		if got := l.Measures(tc.from, tc.to); got != tc.want {
			t.Errorf("from %s to %s is measured: %v", tc.from, tc.to, got)
		}
	}
	found := map[string]int64{"": 40e6, "beta": 30e6, "gamma": 20e6}
	f := l.Filled("alpha", func(to string) int64 { return found[to] })
	for to, want := range map[string]int64{"beta": 30e6, "gamma": 20e6, "delta": 40e6} {
		if got := f.Between("alpha", to); got != want {
			t.Errorf("from alpha to %s is %d, want %d", to, got, want)
		}
	}
	if got := l.Filled("alpha", func(string) int64 { return 0 }).Between("alpha", "beta"); got != 80e6 {
		t.Errorf("before anything is found it is %d", got)
	}
	if l.Between("alpha", "delta") != 0 {
		t.Error("what is found has been declared")
	}
	if n, err := l.WithNative("alpha", true); err != nil || !n.Filled("alpha", func(to string) int64 { return found[to] }).Native("alpha") {
		t.Errorf("with what is found alpha no longer uses its LAN: %v", err)
	}
	if l, err = l.WithSite("alpha", 5e6, 0); err != nil || l.Sites[0].MeasureUp || l.Sites[0].Up != 5e6 {
		t.Errorf("declared again: %+v, %v", l, err)
	}
	none, err := l.WithoutPair("gamma", "alpha")
	if c := Changes(l, none); err != nil || len(c) != 1 || c[0].String() != "the link between sites alpha and gamma is no longer measured and limited" {
		t.Errorf("taken back: %v, %v", c, err)
	}
}
