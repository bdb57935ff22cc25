package bench

import (
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/meshmpi/meshmpi/integration/lab"
	"github.com/meshmpi/meshmpi/integration/wan"
)

func TestMain(m *testing.M) {
	lab.Main()
	goleak.VerifyTestMain(m)
}

func TestSample(t *testing.T) {
	hundred := make(sample, 100)
	for i := range hundred {
		hundred[i] = float64(100 - i)
	}
	for _, tc := range []struct {
		s                    sample
		median, q95, q0, max float64
	}{
		{sample{3}, 3, 3, 3, 3},
		{sample{4, 1}, 2.5, 4, 1, 4},
		{sample{9, 1, 5}, 5, 9, 1, 9},
		{hundred, 50.5, 95, 1, 100},
	} {
		if got := tc.s.median(); got != tc.median {
			t.Errorf("median of %v = %v, want %v", tc.s, got, tc.median)
		}
		for q, want := range map[float64]float64{0.95: tc.q95, 0: tc.q0, 1: tc.max} {
			if got := tc.s.quantile(q); got != want {
				t.Errorf("quantile %v of %v = %v, want %v", q, tc.s, got, want)
			}
		}
	}
	if got := (sample)(nil).median(); !math.IsNaN(got) {
		t.Errorf("median of nothing = %v", got)
	}
	for what, pair := range map[string][2]string{
		"spread": {sample{2, 1, 4}.spread("%.1f"), "2.0 (1.0–4.0)"},
		"tail":   {hundred.tail("%.0f"), "50 / 95 / 100"},
		"ratio":  {ratio(sample{1, 3, 4}, sample{2, 2, 4}), "1.00 (0.50–1.50)"},
		"none":   {sample(nil).spread("%.1f") + sample(nil).tail("%.1f") + ratio(nil, nil), "–––"},
	} {
		if pair[0] != pair[1] {
			t.Errorf("%s = %q, want %q", what, pair[0], pair[1])
		}
	}
}

// TestInterleave: each round begins with the next contender, all get as many
// turns, and a failure says whose it was.
func TestInterleave(t *testing.T) {
	var order strings.Builder
	var all []*contender
	for _, name := range []string{"A", "B", "C"} {
		all = append(all, &contender{name: name, run: func() (float64, error) {
			order.WriteString(name)
			return float64(order.Len()), nil
		}})
	}
	if err := interleave(3, all, func(int, *contender) {}); err != nil {
		t.Fatal(err)
	}
	if got, want := order.String(), "ABCBCACAB"; got != want {
		t.Errorf("order %s, want %s", got, want)
	}
	if got, want := all[0].got.spread("%.0f"), "6 (1–8)"; got != want {
		t.Errorf("A measured %s, want %s", got, want)
	}
	broken := errors.New("broken")
	all[1].run = func() (float64, error) { return 0, broken }
	if err := interleave(1, all, func(int, *contender) {}); !errors.Is(err, broken) || !strings.Contains(err.Error(), "B, round 1") {
		t.Errorf("got %v", err)
	}
}

func TestParseEchoes(t *testing.T) {
	const out = `PING 100.80.0.2 (100.80.0.2) 56(84) bytes of data.
[1700000000.250000] 64 bytes from 100.80.0.2: icmp_seq=1 ttl=64 time=50.5 ms
[1700000001.000100] From 10.0.0.1 icmp_seq=2 Destination Host Unreachable
[1700000002.000001] 64 bytes from 100.80.0.2: icmp_seq=3 ttl=64 time=0.042 ms

--- 100.80.0.2 ping statistics ---
3 packets transmitted, 2 received
`
	got, err := parseEchoes([]byte(out))
	if err != nil || len(got) != 2 {
		t.Fatalf("%v, %v", got, err)
	}
	if want := time.Unix(1700000000, 199500000); !got[0].sent.Equal(want) || got[0].rtt != 50500*time.Microsecond {
		t.Errorf("got %+v, want one sent at %v", got[0], want)
	}
	if got[1].rtt != 42*time.Microsecond {
		t.Errorf("got %+v", got[1])
	}
}

func TestParseIperf(t *testing.T) {
	if got, err := parseIperf([]byte(`{"end":{"sum_sent":{"bits_per_second":3e9},"sum_received":{"bits_per_second":2.5e9}}}`)); got != 2.5e9 || err != nil {
		t.Errorf("got %v, %v", got, err)
	}
	for _, bad := range []string{``, `{}`, `{"error":"unable to connect"}`} {
		if got, err := parseIperf([]byte(bad)); err == nil {
			t.Errorf("%q gave %v and no error", bad, got)
		}
	}
}

func TestParseNetPIPE(t *testing.T) {
	const out = "       1 1.525879   0.00000500\n 1048576 8000.000000   0.00100000\n"
	if s, mbits, err := parseNetPIPE(out, 1<<20); s != 0.001 || mbits != 8000 || err != nil {
		t.Errorf("got %v s, %v Mb/s, %v", s, mbits, err)
	}
	if s, _, err := parseNetPIPE(out, 1); s != 5e-6 || err != nil {
		t.Errorf("got %v s, %v", s, err)
	}
	if _, _, err := parseNetPIPE(out, 2); err == nil {
		t.Error("a size that is not there gave no error")
	}
}

func TestParseTicks(t *testing.T) {
	if got, err := parseTicks("42 (a (b) c) S 1 42 42 0 -1 4194560 1 2 3 4 150 50 0 0 20 0"); got != 200 || err != nil {
		t.Errorf("got %v, %v", got, err)
	}
	if _, err := parseTicks("42 (x) S 1"); err == nil {
		t.Error("a short line gave no error")
	}
}

func TestParseBusy(t *testing.T) {
	busy, total, err := parseBusy("cpu  10 20 30 400 50 6 7 8 9 9\ncpu0 1 1 1 1\n")
	if busy != 81 || total != 531 || err != nil {
		t.Errorf("got %d of %d, %v", busy, total, err)
	}
	if _, _, err := parseBusy("intr 1 2 3"); err == nil {
		t.Error("another line gave no error")
	}
}

// TestMerge: new tables replace the old ones of the same name, others stay, and
// the order is always the same.
func TestMerge(t *testing.T) {
	table := func(name, cell string) Table {
		return Table{Name: name, Title: "T " + name, Head: []string{"", "x"}, Rows: [][]string{{"row", cell}}, Verdicts: []Verdict{{false, "less than 2"}}}
	}
	p := Place{Commit: "abc", Date: time.Date(2026, 1, 2, 0, 0, 0, 0, time.UTC)}
	doc := merge("", p, []Table{table("start", "one"), table("lan", "two")})
	if lan, start := strings.Index(doc, "| row | two |"), strings.Index(doc, "| row | one |"); lan < 0 || start < lan {
		t.Errorf("not in order:\n%s", doc)
	}
	if again := merge(doc, p, nil); again != doc {
		t.Errorf("nothing new has changed the document:\n%s\nto\n%s", doc, again)
	}
	doc = merge(doc, p, []Table{table("lan", "three")})
	for text, want := range map[string]int{"| row | two |": 0, "| row | three |": 1, "| row | one |": 1, "Commit abc, 2026-01-02": 2, "**does not hold**: less than 2": 2, "# Benchmarks": 1} {
		if got := strings.Count(doc, text); got != want {
			t.Errorf("%q is there %d times, want %d:\n%s", text, got, want, doc)
		}
	}
}

func TestJudge(t *testing.T) {
	good := coldPair{answered: true, reply: 90 * time.Millisecond, direct: 200 * time.Millisecond, kind: "udp", trip: 20 * time.Millisecond}
	pairs := func(n int, last coldPair) []coldPair {
		all := make([]coldPair, n)
		for i := range all {
			all[i] = good
		}
		all[n-1] = last
		return all
	}
	slow, late, mute, relayed := good, good, good, good
	slow.reply, late.direct, mute.answered = time.Second, 3*time.Second, false
	relayed.kind, relayed.direct = "relay-udp", 0
	keeps, random := coldCase{nat: lab.PortPreserving, direct: true}, coldCase{nat: lab.Symmetric}
	for _, tc := range []struct {
		name  string
		c     coldCase
		pairs []coldPair
		want  []bool // of each verdict
	}{
		{"all well", keeps, pairs(100, good), []bool{true, true}},
		{"one of a hundred is slow", keeps, pairs(100, slow), []bool{true, true}},
		{"one of ten is slow", keeps, pairs(10, slow), []bool{false, true}},
		{"one never answers", keeps, pairs(100, mute), []bool{false, true}},
		{"one is direct late", keeps, pairs(100, late), []bool{true, false}},
		{"one stays relayed", keeps, pairs(100, relayed), []bool{true, false}},
		{"all relayed", random, pairs(1, relayed), []bool{true}},
		{"one is not relayed", random, pairs(1, good), []bool{false}},
	} {
		_, verdicts := tc.c.judge(tc.pairs)
		for i, want := range tc.want {
			if verdicts[i].Good != want {
				t.Errorf("%s: %v: %s", tc.name, verdicts[i].Good, verdicts[i].Text)
			}
		}
	}
}

// TestUnknownChoice: a benchmark refuses what it would not heed.
func TestUnknownChoice(t *testing.T) {
	for _, b := range All() {
		_, err := b.Run(t.Context(), &Env{With: Choices{"delay": "2ms"}})
		if err == nil || !strings.Contains(err.Error(), b.Name+": --with delay: ") {
			t.Errorf("%s with a choice that it does not have: %v", b.Name, err)
		}
	}
}

// TestPunctual: a table says how late the lab's lines were, and that it does not hold where
// that is too late.
func TestPunctual(t *testing.T) {
	for _, tt := range []struct {
		frames, late uint64
		method       string
		bad          int
	}{
		{0, 0, "M.", 0},
		{10_000, 100, "M. 1.00 % of the frames on the lab's lines left 2ms late or later.", 0},
		{10_000, 101, "M.", 1},
	} {
		table := Table{Method: "M."}
		table.punctual(wan.Counters{Frames: tt.frames, Late: tt.late})
		if table.Method != tt.method || len(table.Verdicts) != tt.bad {
			t.Errorf("%d of %d late: method %q, %d verdicts; want %q, %d", tt.late, tt.frames, table.Method, len(table.Verdicts), tt.method, tt.bad)
		}
	}
}
