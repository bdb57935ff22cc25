package bench

import (
	"context"
	"maps"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/meshmpi/meshmpi/integration/deploy"
	"github.com/meshmpi/meshmpi/integration/lab"
)

func TestParseFigures(t *testing.T) {
	const out = `hello from a launcher of five
pp 1 0.250 1.500 32.0
pp 1048576 100.000 300.000 83886.1
barrier 0 10000.000 12000.000 0.0
pp 64 x 1 2
allocs-expected 1 0.0000 1
`
	got := parseFigures(out)
	want := map[what]figure{
		{"pp", 1}:       {0.25, 1.5, 32},
		{"pp", 1 << 20}: {100, 300, 83886.1},
		{"barrier", 0}:  {10000, 12000, 0},
	}
	if !maps.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestParseAllocs(t *testing.T) {
	const out = "allocs-expected 1 0.0001 0\nallocs-wildcard 1 0.0000 1\npp 1 2 3 4\nallocs-expected 1 0.0200 1\nallocs-wildcard 1 1.0000 0\n"
	got, err := parseAllocs(out)
	if want := map[what]float64{{"expected", 1}: 0.02, {"wildcard", 1}: 1}; err != nil || !maps.Equal(got, want) {
		t.Errorf("got %v, %v, want %v", got, err, want)
	}
	for _, bad := range []string{"", "pp 1 2 3 4\n", "allocs-expected 1 0.0001 0\n", "allocs-expected 1 x 0\n"} {
		if got, err := parseAllocs(bad); err == nil {
			t.Errorf("%q gave %v and no error", bad, got)
		}
	}
}

func TestParseIdle(t *testing.T) {
	if s, share, err := parseIdle("a line\nidle 5.001 0.0123\n"); s != 5.001 || share != 0.0123 || err != nil {
		t.Errorf("got %v s, %v, %v", s, share, err)
	}
	for _, bad := range []string{"", "idle 5.0\n", "idle x 0.1\n"} {
		if _, _, err := parseIdle(bad); err == nil {
			t.Errorf("%q gave no error", bad)
		}
	}
}

// TestPlayer: what a job prints becomes samples, and what is missing an error.
func TestPlayer(t *testing.T) {
	out := "pp 1 2.0 9.0 4.0\n"
	p := newPlayer("P", []what{{"pp", 1}}, func() (string, error) { return out, nil })
	for _, out = range []string{"pp 1 2.0 9.0 4.0\n", "pp 1 4.0 7.0 2.0\n"} {
		if _, err := p.run(); err != nil {
			t.Fatal(err)
		}
	}
	s := p.got[what{"pp", 1}]
	if !slices.Equal(s.mean, sample{2, 4}) || !slices.Equal(s.worst, sample{9, 7}) || !slices.Equal(s.mbps, sample{4, 2}) {
		t.Errorf("got %+v", s)
	}
	out = "pp 2 2.0 9.0 4.0\n"
	if _, err := p.run(); err == nil || !strings.Contains(err.Error(), "pp of 1 bytes is missing") {
		t.Errorf("got %v", err)
	}
}

// made is a player with the same figures, µs, in every round.
func made(us map[what]float64) *player {
	p := &player{got: map[what]*series{}}
	for w, v := range us {
		mbps := float64(w.bytes) * 8 / v
		p.got[w] = &series{mean: sample{v, v}, worst: sample{v, v}, mbps: sample{mbps, mbps}}
	}
	return p
}

func goods(all []Verdict) (good []bool) {
	for _, v := range all {
		good = append(good, v.Good)
	}
	return good
}

func TestJudgeTrios(t *testing.T) {
	small, large, many := what{"pp", 1}, what{"pp", 1 << 20}, what{crowdFigure, 1}
	trioOf := func(own, openMPI, mpich [2]float64) *trio {
		of := func(v [2]float64) *player { return made(map[what]float64{small: v[0], large: v[1], many: v[0]}) }
		return &trio{place: "here", figures: []what{many}, players: [3]*player{of(openMPI), of(mpich), of(own)}}
	}
	even := trioOf([2]float64{1, 100}, [2]float64{1, 120}, [2]float64{2, 100})
	slow := trioOf([2]float64{1.2, 106}, [2]float64{1, 120}, [2]float64{2, 100})
	slower := trioOf([2]float64{1.3, 120}, [2]float64{1, 120}, [2]float64{2, 100})
	// Verdicts: TCP latency, TCP bandwidth, shared memory's two, the crowd.
	for _, tc := range []struct {
		name string
		t    *trio
		want []bool
	}{
		{"as good as the better one", even, []bool{true, true, true, true, true}},
		{"a little slower", slow, []bool{false, false, false, true, true}},
		{"slower", slower, []bool{false, false, false, false, false}},
	} {
		if got := goods(judgeTrios(tc.t, tc.t, tc.t)); !slices.Equal(got, tc.want) {
			t.Errorf("%s: %v, want %v", tc.name, got, tc.want)
		}
		if row := tc.t.rows()[0]; len(row) != 9 || row[1] != "1 B" {
			t.Errorf("%s: row %q", tc.name, row)
		}
	}
	c := costs{place: "here", allocs: map[what]float64{{"expected", 1}: 0.009, {"wildcard", 1}: 0.001}, idle: 0.05}
	if got := goods(judgeCosts([]costs{c})); !slices.Equal(got, []bool{true, true}) {
		t.Errorf("costs: %v", got)
	}
	c.allocs[what{"wildcard", 256}], c.idle = 0.01, 0.051
	if got := goods(judgeCosts([]costs{c})); !slices.Equal(got, []bool{false, false}) {
		t.Errorf("greater costs: %v", got)
	}
}

// TestBounds are figures worked out by hand: 10 ms, and bytes at 12.5 MB/s.
func TestBounds(t *testing.T) {
	ps := placements([]string{"a1", "a2", "a3", "a4"}, []string{"b1", "b2", "b3", "b4"})
	if got := strings.Join(ps[1].hosts, " "); got != "a1 b1 a2 b2 a3 b3 a4 b4" {
		t.Errorf("interleaved: %s", got)
	}
	for _, p := range ps {
		for w, want := range map[what]float64{
			{"barrier", 0}:             10_000,
			{"bcast", 1_250_000}:       110_000,
			{"reduce", 1_250_000}:      110_000,
			{"allreduce", 1_250_000}:   110_000,
			{"allgather", 1_250_000}:   410_000,
			{"alltoall", 1_250_000}:    1_610_000,
			{"alltoall", 512 << 10}:    681_088.64,
			{"allreduce", 65536}:       15_242.88,
			wideLine().figures()[1]:    10_000.08,
			{"allgather", 4 << 20 / 8}: 177_772.16,
		} {
			if got, _ := p.bound(wideLine(), w); got < want-1 || got > want+1 {
				t.Errorf("%s %v: bound %v µs, want %v", p.name, w, got, want)
			}
		}
	}
	if got := wideLine().figures(); len(got) != 16 || got[14] != (what{"allgather", 512 << 10}) || got[5] != (what{"alltoall", 1}) || got[6] != (what{"bcast", 64 << 10}) {
		t.Errorf("figures %v", got)
	}
	if got := wideLine().short().figures(); !slices.Equal(got, wideLine().figures()[:11]) {
		t.Errorf("what is short: %v", got)
	}
	if got := wireShare(1400); got < 1.0934 || got > 1.0936 { // 1474 ÷ 1348
		t.Errorf("the line carries %v bytes for each", got)
	}
}

func TestJudgeDuels(t *testing.T) {
	p := placements([]string{"a1"}, []string{"b1"})[0]
	own, rival := map[what]float64{}, map[what]float64{}
	for _, w := range wideLine().figures() {
		b, _ := p.bound(wideLine(), w)
		own[w], rival[w] = 1.2*b, 1.2*b
	}
	d := &duel{placement: p, line: wideLine(), own: made(own), rival: made(rival)}
	if got := goods(judgeDuels([]*duel{d})); !slices.Equal(got, []bool{true, true}) {
		t.Errorf("within the bounds: %v", got)
	}
	b, _ := p.bound(wideLine(), what{"barrier", 0})
	d.own = made(own)
	d.own.got[what{"barrier", 0}].mean = sample{1.3 * b}
	got := judgeDuels([]*duel{d})
	if !slices.Equal(goods(got), []bool{false, false}) || !strings.Contains(got[0].Text, "15 of 16") || !strings.Contains(got[0].Text, "contiguous barrier of 0 B 1.30") {
		t.Errorf("a slow barrier: %v", got)
	}
	// Slower in more rounds than not, but not so often that chance does not explain it.
	d.own, d.rival = made(own), made(rival)
	tie, late := what{"barrier", 0}, wideLine().figures()[1]
	for w, slower := range map[what]int{tie: 6, late: 9} {
		times := make(sample, 10)
		for i := range times {
			if times[i] = 0.98 * b; i < slower {
				times[i] = 1.02 * b
			}
		}
		d.own.got[w].mean, d.rival.got[w].mean = times, slices.Repeat(sample{b}, len(times))
	}
	got = judgeDuels([]*duel{d})
	if !slices.Equal(goods(got), []bool{true, false}) || !strings.Contains(got[1].Text, "15 of 16") ||
		!strings.Contains(got[1].Text, "explains contiguous barrier of 0 B 1.02 (0.98–1.02); not so: contiguous bcast of 1 B 1.02 (1.02–1.02)") {
		t.Errorf("a tie and a slow bcast: %v", got)
	}
	if rows := d.rows(); len(rows) != 16 || len(rows[0]) != 10 {
		t.Errorf("rows %q", rows)
	}
}

// TestPrinting: a job is through when it has printed its lines; one that does not
// end then is ended, ranks that are left are killed, and failing is an error.
func TestPrinting(t *testing.T) {
	if _, err := exec.LookPath("sleep"); err != nil {
		t.Skip("sleep is not installed")
	}
	l := lab.Start(t, lab.OneLAN())
	a := l.Host("a1")
	job := printing{from: a, hosts: l.Hosts(), program: "/usr/bin/sleep", lines: 2, within: time.Minute}
	job.line = "echo one; echo two"
	if out, err := job.run(t.Context()); out != "one\ntwo\n" || err != nil {
		t.Errorf("got %q, %v", out, err)
	}
	job.line = "echo one; echo two; setsid sleep 600 >/dev/null 2>&1 & wait"
	if out, err := job.run(t.Context()); out != "one\ntwo\n" || err != nil {
		t.Errorf("a job that hangs: %q, %v", out, err)
	}
	if err := deploy.Until(t.Context(), 10*time.Second, "what was killed is gone", func() (bool, error) {
		procs, err := a.Procs()
		return !slices.ContainsFunc(procs, func(p lab.Proc) bool { return strings.HasSuffix(p.Args[0], "sleep") }), err
	}); err != nil {
		t.Error(err)
	}
	job.line = "echo one; echo why >&2; exit 3"
	if out, err := job.run(context.Background()); err == nil || !strings.Contains(err.Error(), "why") {
		t.Errorf("a job that fails: %q, %v", out, err)
	}
}
