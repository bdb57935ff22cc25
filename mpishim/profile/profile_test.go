package profile

import (
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/meshmpi/meshmpi/mpishim/profile/record"
)

// places puts ranks on nodes of two sites, named in turn or together.
func placed(per int, nodes ...string) (list []Place) {
	for _, n := range nodes {
		site := "alpha"
		if n[0] == 'b' {
			site = "beta"
		}
		list = append(list, Place{n, site, per})
	}
	return list
}

// numbered are n nodes, a site's after the other's.
func numbered(n int) (list []Place) {
	for i := range n {
		list = append(list, placed(1, fmt.Sprintf("%c%03d", 'a'+2*i/n, i))...)
	}
	return list
}

// ran is the profile of a job in which rank i gives rank j bytes(i, j) by an operation
// in each of so many buckets.
func ran(t testing.TB, job Job, op record.Op, buckets int, bytes func(i, j int) uint64) *Profile {
	t.Helper()
	b, err := NewBuilder(job)
	if err != nil {
		t.Fatal(err)
	}
	n := len(b.ranks)
	for i := range n {
		r := &record.Record{Rank: i, Ended: true, Began: time.Unix(1e9, int64(i)), Elapsed: time.Duration(buckets) * 4 * time.Millisecond,
			Width: 4 * time.Millisecond, Peers: make([]record.Peer, n)}
		for k := range buckets {
			row := make([]uint64, n)
			for j := range n {
				if v := bytes(i, j) * uint64(1+k%3); j != i && v > 0 {
					row[j] = v
					if op <= record.Start {
						r.Peers[j].Messages += v
						r.Peers[j].Count++
					} else {
						r.Peers[j].Collective += v
					}
					r.Ops[op].Bytes += v
				}
			}
			r.Ops[op].Calls++
			r.Cells = append(r.Cells, row)
		}
		if err := b.Add(job.Places[b.at.node[i]].Node, r); err != nil {
			t.Fatal(err)
		}
	}
	return b.Profile()
}

func ringOf(n int) func(i, j int) uint64 {
	return func(i, j int) uint64 {
		if j == (i+1)%n {
			return 1 << 20
		}
		return 0
	}
}

// declared are the links of the two sites.
func declared(up int64) []Link {
	return []Link{{A: "alpha", Up: up}, {A: "beta", Up: up, Down: 2 * up}}
}

// TestAdvice follows jobs to what their users are told.
func TestAdvice(t *testing.T) {
	all := func(int, int) uint64 { return 1000 }
	for name, tt := range map[string]struct {
		job   Job
		op    record.Op
		bytes func(i, j int) uint64
		want  []string // lines of the summary, from their beginnings
	}{
		"all-to-all": {Job{Places: placed(2, "a1", "a2", "b1", "b2"), Sites: declared(100e6)}, record.Alltoall, all, []string{
			"8 ranks on 4 nodes of 2 sites, 24 ms: 672 kB sent, 384 kB of it between sites", "pattern: all-to-all (56 of 56 pairs are heavy, 100 % of the bytes by Alltoall",
			"pacing: --pattern alltoall, or --matb 50Mb/s for every node"}},
		"not declared": {Job{Places: placed(1, "a1", "a2", "b1", "b2")}, record.Alltoall, all, []string{
			"4 ranks", "pattern: all-to-all", "pacing: --pattern alltoall; that is B/2 for each node of alpha; say what the link carries by meshctl site set alpha --up RATE"}},
		"ring in turn": {Job{Places: placed(1, "a1", "b1", "a2", "b2"), Sites: declared(100e6)}, record.Send, ringOf(4), []string{
			"4 ranks", "pattern: ring (every rank sends to the next, the last to the first, one way)", "pacing: --matb 50Mb/s, as 2 of 2 nodes of alpha send to others",
			"placement: -H a1:1,a2:1,b1:1,b2:1 would send 25.2 MB between sites instead of 50.3 MB (50 % less)"}},
		"ring in order": {Job{Places: placed(2, "a1", "a2", "b1", "b2"), Sites: declared(100e6)}, record.Send, ringOf(8), []string{
			"8 ranks", "pattern: ring", "pacing: none is needed, one node of a site sends to others"}},
		"one site": {Job{Places: placed(2, "a1", "a2")}, record.Send, ringOf(4), []string{"4 ranks on 2 nodes of 1 site, 24 ms: 50.3 MB sent", "pattern: ring"}},
		"pairs that -H cannot say": {Job{Places: placed(2, "a1", "b1")}, record.Isend, func(i, j int) uint64 {
			if i^j == 2 {
				return 500
			}
			return 0
		}, []string{"4 ranks", "pattern: neighbours", "pacing: none is needed, one node of a site sends to others",
			"placement: ranks placed one by one, as in the file rankfile, would send 0 B between sites instead of 24 kB (100 % less)"}},
	} {
		t.Run(name, func(t *testing.T) {
			tt.job.Program, tt.job.MPI = "prog 1", "openmpi"
			p := ran(t, tt.job, tt.op, 6, tt.bytes)
			got := p.Summary()
			ok := len(got) == len(tt.want)
			for i := range min(len(got), len(tt.want)) {
				ok = ok && strings.HasPrefix(got[i], tt.want[i])
			}
			if !ok {
				t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(tt.want, "\n"))
			}
			wantXML(t, p.Matrix())
			wantXML(t, p.TimelineSVG())
		})
	}
}

// TestParts is GridMPI's table.
func TestParts(t *testing.T) {
	for _, tt := range []struct {
		pattern        string
		nodes, senders int
		want           float64
	}{{"alltoall", 32, 32, 32}, {"cg", 32, 32, 16}, {"cg", 1, 1, 1}, {"bt", 32, 32, 16}, {"sp", 128, 128, 32}, {"bt", 4, 4, 4}, {"lu", 7, 2, 7}, {"", 7, 2, 2}} {
		if got := parts(tt.pattern, tt.nodes, tt.senders); got != tt.want {
			t.Errorf("%+v: got %v", tt, got)
		}
	}
}

// TestBuilder: what is no record of the job is left out, and what is missing is said.
func TestBuilder(t *testing.T) {
	b, err := NewBuilder(Job{Program: "p", MPI: "go", Places: placed(1, "a1", "b1", "b2")})
	if err != nil {
		t.Fatal(err)
	}
	r := &record.Record{Rank: 0, Peers: make([]record.Peer, 3), Width: 4 * time.Millisecond, Elapsed: time.Millisecond}
	r.Peers[1] = record.Peer{Messages: 7, Count: 1}
	wide := &record.Record{Rank: 2, Ended: true, Peers: make([]record.Peer, 3), Width: 16 * time.Millisecond, Missed: 1, Cells: [][]uint64{{0, 0, 0}, {0, 40, 0}}}
	r.Cells = [][]uint64{{0, 1, 0}, {0, 2, 0}, {0, 0, 0}, {0, 0, 0}, {0, 4, 0}}
	for _, tt := range []struct {
		node string
		r    *record.Record
		err  string
	}{
		{"c1", r, "has no ranks"}, {"a1", &record.Record{Peers: make([]record.Peer, 4)}, "of 4 ranks"},
		{"a1", r, ""}, {"b1", r, "two records of rank 0"}, {"b2", wide, ""},
	} {
		if err := b.Add(tt.node, tt.r); (err == nil) != (tt.err == "") || err != nil && !strings.Contains(err.Error(), tt.err) {
			t.Errorf("%s: %v, want %q", tt.node, err, tt.err)
		}
	}
	p := b.Profile()
	if want := "incomplete: no record of 1 rank (1 on b1); 1 rank ended before MPI_Finalize; 1 operation could not be told apart"; b.Recorded() != 2 || p.Summary()[1] != want {
		t.Errorf("%d recorded; %q", b.Recorded(), p.Summary()[1])
	}
	byName := map[string][]uint64{}
	for _, s := range p.Timeline.Ways {
		byName[s.Name] = s.Bytes
	}
	if got := fmt.Sprint(byName["alpha → beta"], byName["within beta"]); got != "[3 4] [0 40]" || p.Timeline.Width != 0.016 {
		t.Errorf("timeline %s, %v s a bucket", got, p.Timeline.Width)
	}
	for _, places := range [][]Place{nil, placed(record.MaxRanks+1, "a1")} {
		if _, err := NewBuilder(Job{Places: places}); err == nil {
			t.Errorf("%v: a builder", places)
		}
	}
}

// TestSilence: hours in which nothing is sent, which widen no bucket of a record, are
// drawn in as few steps as what came before.
func TestSilence(t *testing.T) {
	b, err := NewBuilder(Job{Places: placed(1, "a1", "b1")})
	if err != nil {
		t.Fatal(err)
	}
	r := &record.Record{Peers: make([]record.Peer, 2), Width: 4 * time.Millisecond, Elapsed: 10 * time.Hour, Cells: [][]uint64{{0, 1}, {0, 2}, {0, 4}}}
	if err := b.Add("a1", r); err != nil {
		t.Fatal(err)
	}
	line := b.Profile().Timeline
	for _, s := range line.Ways {
		if len(s.Bytes) > mostSteps || float64(len(s.Bytes))*line.Width < (10*time.Hour).Seconds() {
			t.Errorf("%s: %d steps of %v s", s.Name, len(s.Bytes), line.Width)
		}
		if s.Name == "alpha → beta" && s.Bytes[0] != 7 {
			t.Errorf("%d bytes in the first", s.Bytes[0])
		}
	}
}

// wantXML checks that a drawing is whole, and says nothing that is no number.
func wantXML(t *testing.T, doc string) {
	t.Helper()
	d := xml.NewDecoder(strings.NewReader(doc))
	for {
		_, err := d.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatalf("%v in\n%.2000s", err, doc)
		}
	}
	if strings.Contains(doc, "NaN") || strings.Contains(doc, "Inf") {
		t.Errorf("no numbers in\n%.2000s", doc)
	}
}

// texts are the labels of a drawing.
func texts(doc string) string {
	var b strings.Builder
	d := xml.NewDecoder(strings.NewReader(doc))
	for {
		tok, err := d.Token()
		if err != nil {
			return b.String()
		}
		if c, ok := tok.(xml.CharData); ok && strings.TrimSpace(string(c)) != "" {
			b.WriteString(string(c) + "\n")
		}
	}
}

// TestFiles writes all files and reads them as their readers do.
func TestFiles(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "x", "y")
	if made, err := Prepare(dir); err != nil || !made {
		t.Fatal(made, err)
	}
	if made, err := Prepare(dir); err != nil || made {
		t.Error(made, err)
	}
	job := Job{Program: "<prog> & \x01", MPI: "openmpi", Places: placed(2, "a1", "b1"), Sites: declared(1e9)}
	p := ran(t, job, record.Isend, 5, func(i, j int) uint64 {
		if i^j == 2 {
			return 500
		}
		return 0
	})
	if err := p.Write(dir); err != nil {
		t.Fatal(err)
	}
	read := func(name string) string {
		b, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	var doc Profile
	if err := json.Unmarshal([]byte(read("profile.json")), &doc); err != nil || doc.Version != Version || len(doc.Pairs) != 4 || doc.Pairs[0].Bytes() != 4500 || doc.Moves == nil {
		t.Errorf("%v: %+v", err, doc)
	}
	for name, parts := range map[string][]string{
		"report.txt":   {"From node to node", "a1 (alpha)", "By operation", "Isend", "From rank to rank", "0 on a1 → 2 on b1", "What each node may send", "1Gb/s"},
		"matrix.svg":   {"Bytes from rank to rank", "alpha", "b1", "4.5 kB", "bytes, log scale", "none"},
		"timeline.svg": {"What ranks sent over time", "alpha → beta", "Mb/s", "since MPI_Init", "site beta"},
		"rankfile":     {"rank 0=", "slot=*\n", "rank 3="},
	} {
		text := read(name)
		if strings.HasSuffix(name, ".svg") {
			wantXML(t, text)
			text = texts(text)
		}
		for _, s := range parts {
			if !strings.Contains(text, s) {
				t.Errorf("%s lacks %q:\n%s", name, s, text)
			}
		}
	}
	if _, err := Prepare(dir); err == nil || !strings.Contains(err.Error(), "is not empty") {
		t.Errorf("a folder that is full: %v", err)
	}
	if _, err := Prepare(filepath.Join(dir, "report.txt")); err == nil || !strings.Contains(err.Error(), "is no folder") {
		t.Errorf("a file: %v", err)
	}
	if err := p.Write(filepath.Join(dir, "none")); !errors.Is(err, syscall.ENOENT) {
		t.Errorf("no folder: %v", err)
	}
}

// TestDrawings draws jobs of many shapes.
func TestDrawings(t *testing.T) {
	show := os.Getenv("PROFILE_DRAWINGS") // a folder for a person to look at them
	for name, p := range map[string]*Profile{
		"ring8": ran(t, Job{Program: "ring", MPI: "go", Places: placed(1, "a1", "b1", "a2", "b2", "a3", "b3", "a4", "b4"), Sites: declared(1e8)}, record.Send, 60, ringOf(8)),
		"all16": ran(t, Job{Program: "all", MPI: "openmpi", Places: placed(4, "a1", "a2", "b1", "b2")}, record.Alltoall, 200, func(i, j int) uint64 { return uint64(1+i) * uint64(1+j) * uint64(1+j) * 1000 }),
		"halo64": ran(t, Job{Program: "halo", MPI: "mpich", Places: placed(8, "a1", "a2", "a3", "b1", "b2", "b3", "b4", "a4")}, record.Isend, 30, func(i, j int) uint64 {
			return when(i-j == 8 || j-i == 8, 1<<20) + when(i/8 == j/8 && (i-j == 1 || j-i == 1), 1<<13)
		}),
		"nodes":    ran(t, Job{Program: "many", MPI: "mpich", Places: placed(20, "a1", "a2", "a3", "a4", "a5", "b1", "b2", "b3", "b4", "b5")}, record.Isend, 3, ringOf(200)),
		"nodes400": ran(t, Job{Program: "most", MPI: "mpich", Places: numbered(400)}, record.Alltoall, 1, func(i, j int) uint64 { return uint64(1 + (i*31+j*17)%997*i*j) }),
		"nothing":  ran(t, Job{Program: "quiet", MPI: "go", Places: placed(1, "a1", "b1")}, record.Barrier, 1, func(int, int) uint64 { return 0 }),
	} {
		wantXML(t, p.Matrix())
		wantXML(t, p.TimelineSVG())
		if size := max(len(p.Matrix()), len(p.TimelineSVG())); size > 1<<20 {
			t.Errorf("%s: a drawing of %d bytes", name, size)
		}
		if show != "" {
			for _, d := range []struct{ kind, doc string }{{"matrix", p.Matrix()}, {"timeline", p.TimelineSVG()}, {"report", p.Report()}} {
				if err := os.WriteFile(filepath.Join(show, name+"-"+d.kind+".svg"), []byte(d.doc), 0o644); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
}

// TestManyNodes: each is in one row, with others of its site, and nothing is left out.
func TestManyNodes(t *testing.T) {
	p := ran(t, Job{Program: "most", MPI: "mpich", Places: numbered(400)}, record.Send, 1, func(i, j int) uint64 { return uint64(1 + i + j) })
	g, sum := p.grid(), uint64(0)
	for i := range g.m.N {
		for j := range g.m.N {
			sum += g.at(i, j)
		}
	}
	if len(g.order) != 134 || sum != p.Bytes {
		t.Errorf("%d rows of %d bytes, want 134 of %d", len(g.order), sum, p.Bytes)
	}
	row, first := p.rows(g.each)
	for n, r := range row {
		if p.Nodes[n].Site != p.Nodes[first[r]].Site {
			t.Errorf("%s is in a row with %s", p.Nodes[n].Name, p.Nodes[first[r]].Name)
		}
	}
}

func when(b bool, n uint64) uint64 {
	if b {
		return n
	}
	return 0
}

func TestUnits(t *testing.T) {
	for n, want := range map[uint64]string{0: "0 B", 999: "999 B", 1000: "1 kB", 1500: "1.5 kB", 12345: "12.3 kB", 999_400: "999 kB", 999_600: "1 MB", 1 << 40: "1.1 TB", 1 << 63: "9.22 EB"} {
		if got := size(n); got != want {
			t.Errorf("%d: %q, want %q", n, got, want)
		}
	}
	for s, want := range map[float64]string{2e-5: "20 µs", 0.0042: "4.2 ms", 0.5: "500 ms", 2.5: "2.5 s", 12345: "12345 s"} {
		if got := seconds(s); got != want {
			t.Errorf("%v: %q, want %q", s, got, want)
		}
	}
	for most, want := range map[float64]float64{10: 2, 7: 2, 100: 20, 0: 1, 33: 10} {
		if got := ticks(most, 6); got != want {
			t.Errorf("steps to %v: %v, want %v", most, got, want)
		}
	}
	if s := newLogScale(100, 100); s.at(100) != 0 || newLogScale(0, 0).high != 1 || newLogScale(1, 1e6).at(1000) != 0.5 {
		t.Errorf("scale %+v", s)
	}
}
