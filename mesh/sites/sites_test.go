package sites

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"unicode"

	"github.com/meshmpi/meshmpi/internal/rate"
)

// declared is a set that tests begin with: alpha 100 up, 200 down; beta 50 down;
// alpha–beta 80; all in Mb/s.
func declared(t testing.TB) Limits {
	t.Helper()
	var l Limits
	for _, step := range []func() (Limits, error){
		func() (Limits, error) { return l.WithSite("beta", 0, 50e6) },
		func() (Limits, error) { return l.WithSite("alpha", 100e6, 0) },
		func() (Limits, error) { return l.WithSite("alpha", 0, 200e6) },
		func() (Limits, error) { return l.WithPair("beta", "alpha", 80e6) },
	} {
		var err error
		if l, err = step(); err != nil {
			t.Fatal(err)
		}
	}
	l.Version = 7
	return l
}

func TestLookUps(t *testing.T) {
	l := declared(t)
	for _, tc := range []struct {
		site     string
		up, down int64
	}{{"alpha", 100e6, 200e6}, {"beta", 0, 50e6}, {"gamma", 0, 0}, {"", 0, 0}} {
		if up, down := l.Of(tc.site); up != tc.up || down != tc.down {
			t.Errorf("Of(%q) = %d, %d; want %d, %d", tc.site, up, down, tc.up, tc.down)
		}
	}
	for _, tc := range []struct {
		from, to      string
		pair, between int64
	}{
		{"alpha", "beta", 80e6, 50e6}, // beta's downlink
		{"beta", "alpha", 80e6, 80e6}, // the pair
		{"alpha", "gamma", 0, 100e6},  // alpha's uplink
		{"gamma", "alpha", 0, 200e6},  // alpha's downlink
		{"gamma", "delta", 0, 0},      // nothing
		{"alpha", "alpha", 0, 0},      // within a site
	} {
		if p, b := l.Pair(tc.from, tc.to), l.Between(tc.from, tc.to); p != tc.pair || b != tc.between {
			t.Errorf("%s → %s: pair %d, between %d; want %d, %d", tc.from, tc.to, p, b, tc.pair, tc.between)
		}
	}
}

func TestWith(t *testing.T) {
	before := declared(t)
	want := declared(t)
	for _, tc := range []struct {
		name string
		do   func(Limits) (Limits, error)
		says string // "": it is done
		want []string
	}{
		{"same again", func(l Limits) (Limits, error) { return l.WithSite("alpha", 100e6, 200e6) }, "", nil},
		{"downlink alone", func(l Limits) (Limits, error) { return l.WithSite("alpha", 0, 1e9) }, "",
			[]string{"site alpha's downlink is limited to 1Gb/s, before to 200Mb/s"}},
		{"new site", func(l Limits) (Limits, error) { return l.WithSite("aa", 1e9, 2e9) }, "",
			[]string{"site aa's uplink is limited to 1Gb/s", "site aa's downlink is limited to 2Gb/s"}},
		{"no site", func(l Limits) (Limits, error) { return l.WithoutSite("alpha") }, "",
			[]string{"site alpha's uplink is no longer limited; it was to 100Mb/s", "site alpha's downlink is no longer limited; it was to 200Mb/s"}},
		{"pair", func(l Limits) (Limits, error) { return l.WithPair("alpha", "beta", 1e9) }, "",
			[]string{"the link between sites alpha and beta is limited to 1Gb/s, before to 80Mb/s"}},
		{"no pair", func(l Limits) (Limits, error) { return l.WithoutPair("beta", "alpha") }, "",
			[]string{"the link between sites alpha and beta is no longer limited; it was to 80Mb/s"}},
		{"measured", func(l Limits) (Limits, error) { return l.WithSite("alpha", Measured, 0) }, "",
			[]string{"site alpha's uplink is limited to what is measured, before to 100Mb/s"}},
		{"measured, both ways", func(l Limits) (Limits, error) { return l.WithSite("new", Measured, Measured) }, "",
			[]string{"site new's uplink is limited to what is measured", "site new's downlink is limited to what is measured"}},
		{"a measured pair", func(l Limits) (Limits, error) { return l.WithPair("c", "b", Measured) }, "",
			[]string{"the link between sites b and c is limited to what is measured"}},
		{"nothing", func(l Limits) (Limits, error) { return l.WithSite("alpha", 0, 0) }, "nothing of site", nil},
		{"no rate", func(l Limits) (Limits, error) { return l.WithPair("a", "b", 0) }, "no bandwidth", nil},
		{"bad name", func(l Limits) (Limits, error) { return l.WithSite("A b", 1e6, 0) }, `"A b"`, nil},
		{"bad pair", func(l Limits) (Limits, error) { return l.WithPair("a", "B\n", 1e6) }, `"B\n"`, nil},
		{"itself", func(l Limits) (Limits, error) { return l.WithPair("a", "a", 1e6) }, "two sites", nil},
		{"negative", func(l Limits) (Limits, error) { return l.WithSite("alpha", -1, 0) }, "no link's rate", nil},
		{"too slow", func(l Limits) (Limits, error) { return l.WithPair("a", "b", 1) }, "no link's rate", nil},
		{"too fast", func(l Limits) (Limits, error) { return l.WithPair("a", "b", 1<<62) }, "no link's rate", nil},
		{"unknown site", func(l Limits) (Limits, error) { return l.WithoutSite("gamma") }, "site list", nil},
		{"unknown pair", func(l Limits) (Limits, error) { return l.WithoutPair("alpha", "gamma") }, "site list", nil},
	} {
		got, err := tc.do(before)
		if (err == nil) != (tc.says == "") || err != nil && (!strings.Contains(err.Error(), tc.says) || strings.Contains(err.Error(), "\n")) {
			t.Errorf("%s: error %v, want %q", tc.name, err, tc.says)
		}
		if !reflect.DeepEqual(before, want) {
			t.Fatalf("%s changes what it was given to %+v", tc.name, before)
		}
		var said []string
		for _, c := range Changes(before, got) {
			said = append(said, c.String())
		}
		if !reflect.DeepEqual(said, tc.want) {
			t.Errorf("%s: changes %q, want %q", tc.name, said, tc.want)
		}
	}
}

// TestWithNative: what a site's LAN may is declared beside rates, and told in words.
func TestWithNative(t *testing.T) {
	var none Limits
	on, err := none.WithNative("alpha", true)
	if err != nil || !on.Native("alpha") || on.Native("beta") {
		t.Fatalf("declared is %+v, %v", on, err)
	}
	for _, way := range []bool{true, false} {
		if _, err := none.WithNative("Alpha!", way); err == nil {
			t.Errorf("a name that no site can have was taken for %v", way)
		}
	}
	both, err := on.WithSite("alpha", 5_000_000, 0)
	if up, _ := both.Of("alpha"); err != nil || up != 5_000_000 || !both.Native("alpha") {
		t.Errorf("with a rate declared is %+v, %v", both, err)
	}
	text, err := json.Marshal(both)
	if err != nil {
		t.Fatal(err)
	}
	if back, err := Parse(text); err != nil || !back.Native("alpha") {
		t.Errorf("%s comes back as %+v, %v", text, back, err)
	}
	off, err := both.WithNative("alpha", false)
	if up, _ := off.Of("alpha"); err != nil || up != 5_000_000 || off.Native("alpha") {
		t.Errorf("without it declared is %+v, %v", off, err)
	}
	if empty, err := on.WithNative("alpha", false); err != nil || len(empty.Sites) != 0 {
		t.Errorf("taken back leaves %+v, %v", empty, err)
	}
	if cleared, err := both.WithoutSite("alpha"); err != nil || cleared.Native("alpha") {
		t.Errorf("cleared leaves %+v, %v", cleared, err)
	}
	for _, tc := range []struct {
		before, after Limits
		want          string
	}{
		{none, on, "packets within site alpha go over their LAN, in clear"},
		{on, none, "packets within site alpha go through the overlay, sealed"},
	} {
		if got := Changes(tc.before, tc.after); len(got) != 1 || got[0].String() != tc.want {
			t.Errorf("changes are %v, want %q", got, tc.want)
		}
	}
}

func TestParse(t *testing.T) {
	good := declared(t)
	b, err := json.Marshal(good)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := Parse(b); err != nil || !reflect.DeepEqual(got, good) {
		t.Errorf("%s is read as %+v, %v", b, got, err)
	}
	newer := `{"version":9,"color":1,"sites":[{"site":"a","lan":"open"},{"site":"b","up":1000000,"mtu":1400}],"pairs":[{"a":"a","b":"b","delay":3}]}`
	if got, err := Parse([]byte(newer)); err != nil || got.Version != 9 || len(got.Sites) != 1 || len(got.Pairs) != 0 || got.Sites[0].Up != 1e6 {
		t.Errorf("what a newer hub says is read as %+v, %v", got, err)
	}
	for _, bad := range []string{
		"", "[]", `{"version":-1}`, `{"version":9007199254740993}`, `{"sites":[{"site":"b","up":1000000},{"site":"a","up":1000000}]}`,
		`{"sites":[{"site":"a","up":1000000},{"site":"a","up":2000000}]}`, `{"sites":[{"site":"A","up":1000000}]}`, `{"sites":[{"site":"a","up":1}]}`,
		`{"sites":[{"site":"a","up":1000000,"measure_up":true}]}`, `{"sites":[{"measure_down":true}]}`, `{"pairs":[{"a":"a","b":"b","rate":1000000,"measure":true}]}`,
		`{"sites":[{"up":1000000}]}`, `{"sites":[{"site":"a","up":-1}]}`, `{"sites":[{"site":"a","up":1.5}]}`, `{"pairs":[{"a":"b","b":"a","rate":1000000}]}`,
		`{"pairs":[{"a":"a","b":"a","rate":1000000}]}`, `{"pairs":[{"a":"a","b":"b","rate":1000000},{"a":"a","b":"b","rate":2000000}]}`,
		`{"pairs":[{"a":"a","b":"\n","rate":1000000}]}`, `{"version":1` + strings.Repeat(" ", MaxText) + `}`, `{"version":` + strings.Repeat("9", 5000) + `}`,
	} {
		got, err := Parse([]byte(bad))
		if err == nil || len(err.Error()) > 400 || strings.ContainsFunc(err.Error(), unicode.IsControl) || got.Version != 0 || got.Sites != nil {
			t.Errorf("%.60s is read as %+v, %v", bad, got, err)
		}
	}
}

// full is the fullest set, of the longest names.
func full() Limits {
	l := Limits{Version: maxVersion}
	name := func(i int) string { return fmt.Sprintf("%063d", i) }
	for i := range MaxSites {
		l.Sites = append(l.Sites, Site{Name: name(i), Up: rate.Max, Down: rate.Max, Native: true})
	}
	for i := range MaxPairs {
		l.Pairs = append(l.Pairs, Pair{A: name(i), B: name(i + 1), Rate: rate.Max})
	}
	return l
}

func TestFullest(t *testing.T) {
	l := full()
	b, err := json.Marshal(l)
	if err != nil || len(b) > MaxText/2 {
		t.Errorf("the fullest set takes %d bytes, %v", len(b), err)
	}
	indented, err := json.MarshalIndent(l, "", "  ")
	if err != nil || len(indented) > MaxText {
		t.Errorf("in a file it takes %d bytes, %v", len(indented), err)
	}
	if got, err := Parse(indented); err != nil || !reflect.DeepEqual(got, l) {
		t.Errorf("it is not read back: %v", err)
	}
	if _, err := l.WithSite("one-more", 1e6, 0); err == nil || !strings.Contains(err.Error(), "clear some") {
		t.Errorf("one site more: %v", err)
	}
	if _, err := l.WithPair("one", "more", 1e6); err == nil || !strings.Contains(err.Error(), "clear some") {
		t.Errorf("one pair more: %v", err)
	}
	if _, err := l.WithSite(l.Sites[5].Name, 1e6, 0); err != nil {
		t.Errorf("changing one when full: %v", err)
	}
}

// FuzzParse: what is believed keeps within its bounds and survives being written
// and read, and look-ups and changes of it work.
func FuzzParse(f *testing.F) {
	b, err := json.Marshal(declared(f))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	f.Add([]byte(`{"version":1,"sites":[{"site":"a","lan":1}],"pairs":[{}]}`))
	f.Add([]byte(`{"version":1,"sites":[{"site":"a","measure_up":true}],"pairs":[{"a":"a","b":"b","measure":true}]}`))
	f.Add([]byte(`{"sites":[{"site":"b","up":1e9}]}`))
	f.Add([]byte(`{"version":1,"sites":[{"site":"a","native":true},{"site":"b","native":false}]}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		l, err := Parse(b)
		if err != nil {
			if strings.ContainsFunc(err.Error(), unicode.IsControl) {
				t.Fatalf("%q is not one line", err)
			}
			return
		}
		out, err := json.Marshal(l)
		if err != nil {
			t.Fatal(err)
		}
		again, err := Parse(out)
		if err != nil || len(Changes(l, again)) != 0 || again.Version != l.Version {
			t.Fatalf("%s is read as %+v, %v", out, again, err)
		}
		for _, s := range l.Sites {
			if up, down := l.Of(s.Name); up != s.Up || down != s.Down {
				t.Fatalf("Of(%q) = %d, %d", s.Name, up, down)
			}
			if l, err = l.WithoutSite(s.Name); err != nil {
				t.Fatal(err)
			}
		}
		for _, p := range l.Pairs {
			if r := l.Between(p.B, p.A); r != p.Rate {
				t.Fatalf("Between(%q, %q) = %d", p.B, p.A, r)
			}
		}
	})
}
