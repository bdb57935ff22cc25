package main

import (
	_ "embed"
	"strings"
	"testing"
	"time"
)

// hpccText is what hpcc wrote, without most of what the demo does not look at.
//
//go:embed testdata/hpccoutf.txt
var hpccText string

func TestHPCC(t *testing.T) {
	for _, tc := range []struct{ name, from, to, want string }{
		{"all is well", "", "", ""},
		{"no success", "Success=1", "Success=0", "its summary says Success=0"},
		{"too few ranks", "CommWorldProcs=4", "CommWorldProcs=1", "it ran on 1 ranks, not 4"},
		{"HPL is wrong", "0.0067619 ...... PASSED", "99.0 ...... FAILED", "a residual is too large"},
		{"updates got lost", "Found 0 errors in 65536 locations (passed)", "Found 9000 errors in 65536 locations (failed)", "a residual is too large"},
		{"PTRANS did not run", "    5 tests completed and passed", "    0 tests completed and passed", "5 of 6 tests that check their result passed"},
		{"a figure is missing", "MPIFFT_Gflops=0.0336623\n", "", "MPIFFT_Gflops="},
		{"a part did not run", "PTRANS_GBs=0.0155505", "PTRANS_GBs=-1", "PTRANS_GBs=-1"},
		{"hpcc died early", hpccText[strings.Index(hpccText, "Begin of Summary"):], "", "its summary says Success="},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := parseHPCC(strings.Replace(hpccText, tc.from, tc.to, 1)).verdict(); got != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
	r := parseHPCC(hpccText)
	if got := r.value("HPL_Tflops"); got != 0.000671723 {
		t.Errorf("HPL_Tflops is %v", got)
	}
	if got, want := len(r.lines), 6+len(hpccKeys); got != want {
		t.Errorf("%d lines matter, want %d: %q", got, want, r.lines)
	}
}

func TestNetPIPE(t *testing.T) {
	got := parseNetPIPE(`Using no perturbations

0: a1
Now starting the main loop
  0:       1 bytes     10 times -->      0.08 Mbps in      93.31 usec
 39: 1048576 bytes     10 times -->   2186.21 Mbps in    3659.30 usec
`)
	want := []netPIPE{
		{"  0:       1 bytes     10 times -->      0.08 Mbps in      93.31 usec", 1, 0.08, 93.31},
		{" 39: 1048576 bytes     10 times -->   2186.21 Mbps in    3659.30 usec", 1 << 20, 2186.21, 3659.3},
	}
	if len(got) != len(want) || got[0] != want[0] || got[1] != want[1] {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

func TestHello(t *testing.T) {
	const all = "rank 3 of 4 on b2 site beta sum 10\nrank 0 of 4 on a1 site alpha sum 10\nrank 2 of 4 on b1 site beta sum 10\nrank 1 of 4 on a2 site alpha sum 10\n"
	for _, tc := range []struct{ name, from, to string }{
		{"a rank is missing", "rank 3 of 4 on b2 site beta sum 10\n", ""},
		{"two ranks on one host", "on b2", "on b1"},
		{"ranks on each other's hosts", "3 of 4 on b2 site beta sum 10\nrank 0 of 4 on a1", "0 of 4 on b2 site beta sum 10\nrank 3 of 4 on a1"},
		{"a wrong sum", "alpha sum 10", "alpha sum 11"},
		{"four jobs of one rank", "of 4", "of 1"},
		{"a wrong site", "b1 site beta", "b1 site alpha"},
		{"no site", "a1 site alpha", "a1 site -"},
	} {
		if _, why := parseHello(strings.ReplaceAll(all, tc.from, tc.to)); why == "" {
			t.Errorf("%s: nothing wrong was seen", tc.name)
		}
	}
	lines, why := parseHello("a launcher's warning\n" + all)
	if why != "" || len(lines) != 4 || !strings.HasPrefix(lines[0], "rank 0 of 4 on a1") {
		t.Errorf("got %q, %q", lines, why)
	}
}

func TestStream(t *testing.T) {
	n, worst, err := parseStream("a launcher's warning\nexchanged 9166 worst_ms 63\n")
	if n != 9166 || worst != 63*time.Millisecond || err != nil {
		t.Errorf("got %d, %v, %v", n, worst, err)
	}
	if _, _, err := parseStream("meshrun: rank 1 on b1 exited with 3"); err == nil || !strings.Contains(err.Error(), "exited with 3") {
		t.Errorf("a job without a result: %v", err)
	}
}
