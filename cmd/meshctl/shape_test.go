package main

import (
	"strings"
	"testing"
	"text/tabwriter"

	"github.com/alecthomas/kong"
	"github.com/meshmpi/meshmpi/internal/node/api"
)

// shaped is what printShape makes of an answer, without trailing blanks.
func shaped(t *testing.T, r api.ShapeReply) string {
	t.Helper()
	var b strings.Builder
	p := &printer{tabwriter.NewWriter(&b, 0, 8, 2, ' ', 0)}
	printShape(p, r)
	if err := p.w.Flush(); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestPrintShape(t *testing.T) {
	busy := api.ShapeReply{
		Mode: "live", Nodes: 4, Uplink: 97_274_343,
		Links: []api.ShapeLink{
			{Site: "beta", Whole: 100e6, Share: 24_902_343, Rate: 97_274_343, Why: "lent by others", Waiting: 60_000, Queued: 5_400, Sent: 1_234_567_890, Marked: 17, Dropped: 2,
				Peers: []api.ShapePeer{
					{Node: "b1", Waiting: 40, Queued: 3, Sent: 1_234_000_000, Marked: 17, Dropped: 2, WorstWait: 11_500, WorstQueue: 250},
					{Node: "b2", Sent: 999}}},
			{Site: "gamma", Why: "no limit"},
		},
		Programs: []api.ShapeProgram{{PID: 4711, UID: 1000, Op: "alltoall", Hosts: 4, Entered: 12}, {PID: 4712, Op: "none", MATB: 25e6, Entered: 1}},
	}
	for _, tc := range []struct {
		name string
		r    api.ShapeReply
		want string
	}{
		{"off", api.ShapeReply{Mode: "off"}, "nothing is paced: meshd runs with --pace off\n"},
		{"nobody was talked to", api.ShapeReply{Mode: "static", Nodes: 1}, `
shares are static; 1 node here

SITE  ALL NODES  SHARE  RATE  BECAUSE  WAITING  SENT  MARKED  DROPPED

NODE  SITE  PACKETS WAITING  SENT  MARKED  DROPPED  LONGEST WAIT
`[1:]},
		{"busy", busy, `
shares are live; 4 nodes here
to all sites together this node may send 97.27Mb/s

SITE   ALL NODES  SHARE     RATE       BECAUSE         WAITING  SENT     MARKED  DROPPED
beta   100Mb/s    24.9Mb/s  97.27Mb/s  lent by others  65.4 kB  1.23 GB  17      2
gamma  -          -         -          no limit        0 B      0 B      0       0

NODE  SITE  PACKETS WAITING  SENT     MARKED  DROPPED  LONGEST WAIT
b1    beta  43               1.23 GB  17      2        11.75ms
b2    beta  0                999 B    0       0        0s

PROGRAM  USER  DOES      HOSTS HERE  MATB    TOLD OF
4711     1000  alltoall  4           -       12 operations
4712     0     none      0           25Mb/s  1 operation
`[1:]},
	} {
		if got := shaped(t, tc.r); got != tc.want {
			t.Errorf("%s:\n%s\nwant:\n%s", tc.name, got, tc.want)
		}
	}
}

func TestBytesCell(t *testing.T) {
	for n, want := range map[uint64]string{
		0: "0 B", 999: "999 B", 1000: "1 kB", 12_345: "12.3 kB", 999_400: "999 kB", 999_600: "1 MB", 1_000_000: "1 MB", 5_600_000_000: "5.6 GB", 1 << 63: "9.22 EB",
	} {
		if got := bytesCell(n); got != want {
			t.Errorf("bytesCell(%d) = %q, want %q", n, got, want)
		}
	}
}

func TestShapeArgs(t *testing.T) {
	for _, tc := range []struct {
		args, cmd string
		site      string
		rate      bits
		says      string // "": it is good
	}{
		{"", "show", "", 0, ""},
		{"show", "show", "", 0, ""},
		{"set beta 12.5MB/s", "set <site> <rate>", "beta", 100e6, ""},
		{"clear beta", "clear <site>", "", 0, ""},
		{"set beta", "", "", 0, "<rate>"},
		{"set beta fast", "", "", 0, `"fast" is no rate`},
		{"set beta 0", "", "", 0, `"0" is no link's rate`},
		{"clear", "", "", 0, "<site>"},
		{"clear beta 1G", "", "", 0, "1G"},
		{"weight 255", "weight <weight>", "", 0, ""},
		{"weight", "", "", 0, "<weight>"},
		{"weight heavy", "", "", 0, `"heavy" is no weight`},
		{"weight 0", "", "", 0, `"0" is no weight`},
		{"weight 256", "", "", 0, `"256" is no weight`},
	} {
		var c struct{ shapeCmd }
		parser, err := kong.New(&c)
		if err != nil {
			t.Fatal(err)
		}
		got, err := parser.Parse(strings.Fields(tc.args))
		if (err == nil) != (tc.says == "") || err != nil && (!strings.Contains(err.Error(), tc.says) || strings.Contains(err.Error(), "\n")) {
			t.Errorf("%q: %v, want %q", tc.args, err, tc.says)
		}
		if err == nil && (got.Command() != tc.cmd || c.Set.Site != tc.site || c.Set.Rate != tc.rate) {
			t.Errorf("%q: it is %q with %+v; want %q, %q, %d", tc.args, got.Command(), c.Set, tc.cmd, tc.site, tc.rate)
		}
	}
}
