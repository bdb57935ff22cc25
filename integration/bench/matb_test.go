package bench

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/meshmpi/meshmpi/integration/wan"
)

func TestPlanMATB(t *testing.T) {
	const ms = time.Millisecond
	for _, x := range []struct {
		with     Choices
		settings int
		loads    []string
		ways     int
		pairs    int
		again    int
		plots    bool
		wrong    string
	}{
		{with: nil, settings: 4, loads: loadNames(), ways: 7, pairs: 20, again: 4, plots: true},
		{with: Choices{"delays": "2ms,10ms", "rates": "100,400", "tcp": "cubic,bbr"}, settings: 8, loads: loadNames(), ways: 7, pairs: 20, again: 4, plots: true},
		{with: Choices{"programs": "cg, go", "ways": "unpaced,oracle", "parts": "cells"}, settings: 4, loads: []string{loadCG, loadGo}, ways: 2},
		{with: Choices{"delays": "2"}, wrong: "--with delays=2"},
		{with: Choices{"programs": "ft"}, wrong: `"ft" is none of alltoall, cg, lu, hpcc, go`},
		{with: Choices{"tcp": "vegas"}, wrong: "vegas"},
		{with: Choices{"rates": "1.5"}, wrong: "--with rates=1.5"},
		{with: Choices{"rates": "0"}, wrong: "at least 1 Mb/s"},
	} {
		p, err := planMATB(false).choose(x.with)
		if x.wrong != "" {
			if err == nil || !strings.Contains(err.Error(), x.wrong) {
				t.Errorf("%v: the error is %v, want one with %s", x.with, err, x.wrong)
			}
			continue
		}
		if err != nil {
			t.Errorf("%v: %v", x.with, err)
			continue
		}
		s := p.sweeps[0]
		if len(s.settings) != x.settings || !slices.Equal(s.loads, x.loads) || len(s.ways) != x.ways || p.pairs != x.pairs || p.again != x.again || p.plots != x.plots {
			t.Errorf("%v: %d settings of %v, %d ways, %d again, %d pairs, plots %v; want %+v", x.with, len(s.settings), s.loads, len(s.ways), p.again, p.pairs, p.plots, x)
		}
	}
	slow, err := planSlow(false).choose(Choices{"delays": "5ms"})
	if err != nil || len(slow.sweeps) != 1 || slow.sweeps[0].settings[0] != (setting{matbSlow, 5 * ms, "cubic"}) || slow.pairAt != slow.sweeps[0].settings[0] {
		t.Errorf("the slow link with another delay: %+v, %v", slow, err)
	}
	p, err := planMATB(true).choose(Choices{"delays": "5ms", "parts": "pairs"})
	if err != nil || len(p.sweeps) != 0 || p.pairAt.delay != 5*ms || p.pairs != 3 {
		t.Errorf("pairs alone: %+v, %v", p, err)
	}
}

func TestSuffering(t *testing.T) {
	at := time.Unix(100, 0)
	before := snapshot{at: at, frames: 3, bytes: 1000, tcp: map[string]float64{"Tcp.RetransSegs": 10, "TcpExt.TCPTimeouts": 1}}
	after := snapshot{at: at.Add(1060 * time.Millisecond), frames: 8, bytes: 12_501_000, tcp: map[string]float64{"Tcp.RetransSegs": 25,
		"TcpExt.TCPTimeouts": 3, "TcpExt.TCPLossFailures": 1, "TcpExt.TCPSackRecoveryFail": 1, "TcpExt.TCPLossUndo": 2, "TcpExt.TCPLossProbes": 7, "TcpExt.TCPDSACKRecvSegs": 5}}
	got := after.since(before, matbGate, markPause)
	want := suffering{retransmitted: 15, needless: 5, timeouts: 4, spurious: 2, probes: 7, dropped: 5, bytes: 12_500_000, capacity: 25_000_000}
	if got != want || got.used() != 0.5 {
		t.Errorf("got %+v, %.2f used; want %+v, 0.50", got, got.used(), want)
	}
	if twice := want.plus(want); twice.timeouts != 8 || twice.used() != 0.5 || twice.needless != 10 {
		t.Errorf("twice that is %+v", twice)
	}
}

func TestPairedInterval(t *testing.T) {
	mean, low, high := pairedInterval(sample{2, 0.5, 2, 0.5})
	if math.Abs(mean-1) > 1e-12 || low > 0.6 || high < 1.6 || low < 0.5-1e-12 || high > 2+1e-12 {
		t.Errorf("a half and twice: %.3f (%.3f–%.3f), want 1 within about 0.5 to 2", mean, low, high)
	}
	mean, low, high = pairedInterval(sample{1.1, 1.1, 1.1})
	for _, v := range []float64{mean, low, high} {
		if math.Abs(v-1.1) > 1e-12 {
			t.Errorf("always 1.1: %v (%v–%v)", mean, low, high)
			break
		}
	}
	if mean, _, _ := pairedInterval(nil); !math.IsNaN(mean) {
		t.Errorf("the mean of nothing is %v", mean)
	}
}

// crossed is a crossing in which all-to-alls of 16 KiB take as long as given, by way.
func crossed(times map[string]float64, pains map[string]suffering) *crossing {
	c := &crossing{setting: setting{matbGate, 2 * time.Millisecond, "cubic"}, cells: map[string]map[topic]cell{}, pains: pains}
	all, inGo := topic{loadAlltoall, what{"alltoall", 16 << 10}}, topic{loadGo, what{"alltoall", 16 << 10}}
	c.topics = []topic{all, inGo}
	for way, us := range times {
		c.cells[way] = map[topic]cell{all: {{us, suffering{timeouts: pains[way].timeouts, spurious: pains[way].spurious, bytes: 97, capacity: 100}}}, inGo: {{25_000, suffering{}}}}
	}
	return c
}

func TestJudgeCrossing(t *testing.T) {
	verdicts := func(c *crossing) (all []string) {
		for _, v := range c.judge() {
			all = append(all, fmt.Sprintf("%v %s", v.Good, v.Text))
		}
		return all
	}
	good := crossed(map[string]float64{unpaced: 99_000, htb: 34_000, lived: 33_000, oracle: 31_000},
		map[string]suffering{unpaced: {retransmitted: 400, timeouts: 3}, lived: {retransmitted: 20, needless: 20, timeouts: 1, spurious: 1}})
	got := verdicts(good)
	if len(got) != 7 || strings.Contains(strings.Join(got, "\n"), "false") {
		t.Errorf("a good one is judged\n%s", strings.Join(got, "\n"))
	}
	bad := crossed(map[string]float64{unpaced: 90_000, htb: 34_000, lived: 36_000, oracle: 31_000},
		map[string]suffering{unpaced: {retransmitted: 400, timeouts: 3}, lived: {retransmitted: 15, own: 6, timeouts: 1}})
	bad.failed = []string{"unpaced: lu: killed"}
	got = verdicts(bad)
	if n := strings.Count(strings.Join(got, "\n"), "false"); len(got) != 8 || n != 6 { // used and Go's bound hold
		t.Errorf("a bad one is judged\n%s", strings.Join(got, "\n"))
	}
	once := good.cells[lived][good.topics[0]]
	good.cells[lived][good.topics[0]] = append(once, reading{60_000, suffering{timeouts: 2, bytes: 40, capacity: 100}}, reading{33_000, suffering{bytes: 97, capacity: 100}})
	got = verdicts(good)
	if n := strings.Count(strings.Join(got, "\n"), "false"); n != 1 || !strings.Contains(strings.Join(got, "\n"), "false 100 Mb/s, cubic, 2ms: live shares leave 3 time-outs, 1 of them spurious") {
		t.Errorf("of three jobs one is slow and times out: judged\n%s", strings.Join(got, "\n"))
	}
	other := crossed(nil, nil)
	other.tcp = "bbr"
	if got := verdicts(other); len(got) != 0 {
		t.Errorf("promises are judged where none are made: %q", got)
	}
}

// TestParts: a job that did not end leaves its cell empty and the rest as it is.
func TestParts(t *testing.T) {
	c := crossed(map[string]float64{unpaced: 62_000, oracle: 31_000}, map[string]suffering{unpaced: {retransmitted: 4, timeouts: 3, own: 2}})
	part := timesPart([]*crossing{c}, waysNamed(unpaced, lived, oracle))
	if got, want := strings.Join(part.Rows[0], "|"), "2ms|alltoall, 16 KiB|62.0 (2.00)|–|31.0"; got != want {
		t.Errorf("times: %s, want %s", got, want)
	}
	part = countersPart([]*crossing{c}, waysNamed(unpaced, lived, oracle))
	if len(part.Rows) != 1 {
		t.Fatalf("counters: %v, want those of unpaced alone", part.Rows)
	}
	if got, want := strings.Join(part.Rows[0], "|"), "100 Mb/s, cubic, 2ms|unpaced|4|0|3|0|0|0|2|0.97"; got != want {
		t.Errorf("counters: %s, want %s", got, want)
	}
	c.cells[static], c.cells[lived] = c.cells[oracle], c.cells[oracle]
	part, all := c.pairsPart()
	if got, want := strings.Join(part.Rows[0][4:], "|"), "1.000 (1.000–1.000)|62.0 (62.0–62.0)|0.500 (0.500–0.500)"; got != want || !all[0].Good {
		t.Errorf("pairs: %s (%v), want %s", got, all, want)
	}
	table := Table{Name: "matb", Title: "T", Method: "M.", Parts: []Part{{Title: "P", Text: "X.", Head: []string{"a"}, Rows: [][]string{{"1"}}}, {Title: "Q", Head: []string{"b"}}}, Verdicts: []Verdict{{true, "v"}}}
	if got, want := table.Markdown(Place{}), "M.\n\n### P\n\nX.\n\n| a |\n|---|\n| 1 |\n\n### Q\n\n| b |\n|---|\n\n- holds: v\n"; !strings.HasSuffix(got, want) {
		t.Errorf("the document has\n%s, want at its end\n%s", got, want)
	}
}

func TestTrafficPlot(t *testing.T) {
	r := &wan.Record{Arrived: make([]uint32, 20), Dropped: make([]uint32, 20), Queue: make([]uint32, 20)}
	for i := range 10 {
		r.Arrived[i] = 1250 // 12,500 bytes in the first millisecond
	}
	r.Queue[11], r.Queue[12] = 5000, 4000
	c := crossed(nil, nil)
	if got := c.drawing(map[string]*wan.Record{unpaced: r}); got != nil {
		t.Errorf("one way alone is drawn: %v", got)
	}
	d := c.drawing(map[string]*wan.Record{unpaced: r, lived: r})
	if len(d) != 1 || d[0].File != "matb-100-cubic-2ms.svg" {
		t.Fatalf("drawings: %+v", d)
	}
	p := d[0].plot.panels
	if got := p[0].lines[0].y; !slices.Equal(got, []float64{100, 0}) {
		t.Errorf("traffic is %v Mb/s, want 100 and 0", got)
	}
	if got := p[2].lines[0].y; !slices.Equal(got, []float64{0, 5}) {
		t.Errorf("the queue is %v kB, want 0 and 5", got)
	}
}
