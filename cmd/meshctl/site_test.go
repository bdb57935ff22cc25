package main

import (
	"errors"
	"strings"
	"testing"

	"github.com/alecthomas/kong"
	"github.com/meshmpi/meshmpi/internal/node/api"
)

func TestSiteRates(t *testing.T) {
	for _, tc := range []struct {
		args     string
		up, down int64
		says     string // "": it is good
	}{
		{"set alpha --up 100Mb/s", 100e6, 0, ""},
		{"set alpha --up=2.5gbit --down 12.5MB/s", 2.5e9, 100e6, ""},
		{"set alpha --up measured", 0, 0, ""},
		{"set alpha --up measured --down 1G", 0, 1e9, ""},
		{"link alpha beta --bandwidth measured", 0, 0, ""},
		{"set alpha --up Measured", 0, 0, `"Measured" is no rate; write a number and a unit, such as 100Mb/s, 2.5G or 12.5MB/s, or measured`},
		{"set alpha --up fast", 0, 0, `--up: "fast" is no rate; write`},
		{"set alpha --up=-5M", 0, 0, `"-5M" is no rate`},
		{"set alpha --down 0", 0, 0, `"0" is no link's rate`},
		{"set alpha --native on", 0, 0, ""},
		{"set alpha --native=off --up 1M", 1e6, 0, ""},
		{"set alpha --native maybe", 0, 0, `"maybe" is neither on nor off`},
		{"set", 0, 0, "<site>"},
		{"set alpha beta --up 1G", 0, 0, "beta"},
		{"link alpha --bandwidth 1G", 0, 0, "<b>"},
		{"link alpha beta --bandwidth 1Q", 0, 0, "unit is unknown"},
	} {
		var c struct{ siteCmd }
		parser, err := kong.New(&c)
		if err != nil {
			t.Fatal(err)
		}
		_, err = parser.Parse(strings.Fields(tc.args))
		if (err == nil) != (tc.says == "") || err != nil && (!strings.Contains(err.Error(), tc.says) || strings.Contains(err.Error(), "\n")) {
			t.Errorf("%s: %v, want %q", tc.args, err, tc.says)
		}
		if err == nil && (int64(c.Set.Up.bits) != tc.up || int64(c.Set.Down.bits) != tc.down || c.Set.Up.measured != strings.Contains(tc.args, "--up measured")) {
			t.Errorf("%s: up %v, down %v", tc.args, c.Set.Up, c.Set.Down)
		}
	}
}

// TestSiteUsage: what does not make sense together is refused before a daemon is
// asked.
func TestSiteUsage(t *testing.T) {
	for _, tc := range []struct {
		cmd  interface{ Run(*deps) error }
		says string
	}{
		{&siteSetCmd{Site: "a"}, "--up RATE"},
		{&siteSetCmd{Site: "a", Up: limit{bits: 1e6}, Clear: true}, "without --up, --down and --native"},
		{&siteSetCmd{Site: "a", Native: toggle{new(bool)}, Clear: true}, "without --up, --down and --native"},
		{&siteLinkCmd{A: "a", B: "b"}, "--bandwidth RATE"},
		{&siteLinkCmd{A: "a", B: "b", Bandwidth: limit{measured: true}, Clear: true}, "without --bandwidth"},
		{&siteLinkCmd{A: "a", B: "a", Bandwidth: limit{bits: 1e6}}, "two sites"},
	} {
		err := tc.cmd.Run(nil)
		if err == nil || !strings.Contains(err.Error(), tc.says) || errors.Unwrap(err) != nil {
			t.Errorf("%+v: %v, want %q", tc.cmd, err, tc.says)
		}
	}
}

func TestSiteCells(t *testing.T) {
	links := []api.LinkStatus{{A: "alpha", B: "beta", Bandwidth: 50e6}, {A: "alpha", B: "gamma", Bandwidth: 1e9}}
	for site, want := range map[string]string{"alpha": "beta 50Mb/s, gamma 1Gb/s", "gamma": "alpha 1Gb/s", "delta": "-"} {
		if got := linksCell(links, site); got != want {
			t.Errorf("linksCell(%q) = %q, want %q", site, got, want)
		}
	}
	for _, tc := range []struct {
		measured bool
		found    *api.Found
		want     string
	}{
		{false, nil, "1Mb/s"}, {true, nil, "measured"}, {true, &api.Found{Rate: 94_123_456, Age: 2900}, "94.1Mb/s measured 3s ago"},
		{true, &api.Found{Rate: 1_999_600_000, Age: -1}, "2Gb/s measured earlier"},
	} {
		if got := limitCell(1e6, tc.measured, tc.found); got != tc.want {
			t.Errorf("%+v is told as %q, want %q", tc, got, tc.want)
		}
	}
	for on, want := range map[bool]string{false: "-", true: "yes"} {
		if got := nativeCell(on); got != want {
			t.Errorf("nativeCell(%v) = %q, want %q", on, got, want)
		}
	}
	for bits, want := range map[int64]string{0: "-", 2.5e9: "2.5Gb/s"} {
		if got := rateCell(bits); got != want {
			t.Errorf("rateCell(%d) = %q, want %q", bits, got, want)
		}
	}
}
