package bench

import (
	_ "embed"
	"errors"
	"math"
	"strings"
	"testing"
	"time"
)

// TestParseCounters: names and values stand on lines of their own; kernels print some
// protocols twice.
func TestParseCounters(t *testing.T) {
	got := parseCounters("Ip: Forwarding DefaultTTL\nIp: 1 64\nTcp: RtoMin MaxConn RetransSegs\nTcp: 200 -1 35\n" +
		"TcpExt: SyncookiesSent TCPTimeouts\nTcpExt: 0 7\nIcmpMsg: InType3\nIcmpMsg: 2\n")
	for name, want := range map[string]float64{"Tcp.RetransSegs": 35, "Tcp.MaxConn": -1, "TcpExt.TCPTimeouts": 7, "Ip.DefaultTTL": 64, "IcmpMsg.InType3": 2} {
		if got[name] != want {
			t.Errorf("%s is %v, want %v", name, got[name], want)
		}
	}
	if len(parseCounters("")) != 0 || len(parseCounters("Tcp: a b\nUdp: 1 2\n")) != 0 {
		t.Error("lines that belong to nothing are counted")
	}
}

func TestParseDrops(t *testing.T) {
	const report = `[{"kind":"htb","handle":"1:","root":true,"bytes":9,"drops":4},{"kind":"tbf","handle":"20:","parent":"1:20","drops":4}]`
	if got, err := parseDrops(report); err != nil || got != 4 {
		t.Errorf("htb has dropped %v (%v), want 4", got, err)
	}
	if _, err := parseDrops("qdisc htb 1:"); err == nil {
		t.Error("a report that is not JSON is taken")
	}
	const devices = "Inter-|   Receive                                                |  Transmit\n" +
		" face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls carrier compressed\n" +
		"  eth0:  1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16\nbucket0: 0 0 0 1 0 0 0 0 500 5 0 17 0 0 0 0\n"
	if got, err := parseTxDrops(devices, "bucket0"); err != nil || got != 17 {
		t.Errorf("the bucket has dropped %v (%v), want 17", got, err)
	}
	if _, err := parseTxDrops(devices, "bucket1"); err == nil {
		t.Error("a link that is not there has dropped something")
	}
}

// TestMarkReader: lines come in pieces; a mark is a moment.
func TestMarkReader(t *testing.T) {
	n := uint64(0)
	m := &markReader{open: map[what]snapshot{}, between: map[what][2]snapshot{}, take: func() (snapshot, error) {
		n++
		return snapshot{at: time.Unix(int64(n), 0), bytes: n * 1000}, nil
	}}
	begun := 0
	m.begun = func() error { begun++; return nil }
	text := "hello\nmark begin cg 64 1.5\nmark end cg 64 9999999999.25\ncg 64 12.5 20.0 3.0\n"
	for _, b := range []byte(text) {
		if _, err := m.Write([]byte{b}); err != nil {
			t.Fatal(err)
		}
	}
	w := what{"cg", 64}
	if m.err != nil || begun != 1 || n != 2 || m.between[w][1].bytes != 2000 || !m.between[w][0].late || m.between[w][1].late || m.text.String() != text {
		t.Errorf("begun %d, snapshots %d, %+v, %v", begun, n, m.between, m.err)
	}
	got, err := readings(parseFigures(text), m.between, []what{w}, matbGate, 0, text)
	if err != nil || got[w].us != 12.5 || got[w].pain.bytes != 1000 || got[w].pain.late != 1 {
		t.Errorf("readings: %+v, %v", got, err)
	}
	if _, err := readings(parseFigures(text), nil, []what{w}, matbGate, 0, text); err == nil {
		t.Error("a figure that nothing was counted for is taken")
	}
	if _, _ = m.Write([]byte("mark end cg many 1.5\n")); m.err == nil {
		t.Error("a mark without a number is taken")
	}
	bad := errors.New("no counters")
	m = &markReader{take: func() (snapshot, error) { return snapshot{}, bad }, open: map[what]snapshot{}}
	if _, _ = m.Write([]byte("mark begin lu 1 1.5\n")); !errors.Is(m.err, bad) {
		t.Errorf("the error is %v, want %v", m.err, bad)
	}
}

// hpccText is what hpcc wrote of the parts that are measured; PTRANS' speeds are
// changed, so that they differ by size.
//
//go:embed testdata/hpccoutf.txt
var hpccText string

func TestParseHPCC(t *testing.T) {
	got, err := parseHPCC(hpccText)
	if err != nil {
		t.Fatal(err)
	}
	for w, want := range map[what]float64{{hpccPTRANS, 0}: 1024 * 1024 * 8 / 0.050 / 1e3, {hpccFFT, 0}: 2000, {hpccRandom, 0}: 941772} {
		if math.Abs(got[w].mean/want-1) > 1e-9 {
			t.Errorf("%s takes %v µs, want %v", w.name, got[w].mean, want)
		}
	}
	slow, err := parseHPCC(strings.ReplaceAll(hpccText, "0.00 PASSED    0.050", "0.43 PASSED    0.018"))
	if ptrans := (what{hpccPTRANS, 0}); err != nil || math.Abs(slow[ptrans].mean/430_000-1) > 1e-9 {
		t.Errorf("a slow PTRANS takes %v µs, %v, want 430000", slow[ptrans].mean, err)
	}
	if _, err := parseHPCC(strings.Replace(hpccText, "Found 0 errors in 262144 locations (passed)", "Found 740 errors in 262144 locations (failed)", 1)); err != nil {
		t.Errorf("what RandomAccess drops by itself: %v", err)
	}
	for _, x := range []struct{ name, old, new string }{
		{"PTRANS is wrong", "0.00 PASSED    0.050", "0.00 FAILED    0.050"},
		{"FFT is wrong", "max(|x-x0|): 1.2", "max(|x-x0|): 1.2e+20"},
		{"RandomAccess is wrong", "Found 0 errors in 262144 locations (passed)", "Found 3073 errors in 262144 locations (failed)"},
		{"RandomAccess is not checked", "locations (passed)", "places"},
		{"a part is missing", "Begin of MPIFFT", "Beginning of MPIFFT"},
	} {
		text := strings.Replace(hpccText, x.old, x.new, 1)
		if text == hpccText {
			t.Fatalf("%s: the report has no %q", x.name, x.old)
		}
		if _, err := parseHPCC(text); err == nil {
			t.Errorf("%s: no error", x.name)
		}
	}
}

// TestHPCCReport: snapshots are of the sections, whatever the pieces that are seen.
func TestHPCCReport(t *testing.T) {
	n := uint64(0)
	r := &hpccReport{open: map[what]snapshot{}, between: map[what][2]snapshot{}, take: func() (snapshot, error) { n++; return snapshot{bytes: n}, nil }}
	for i := range hpccText {
		if err := r.grown(hpccText[:i+1]); err != nil {
			t.Fatal(err)
		}
	}
	for _, w := range hpccFigures() {
		if ends := r.between[w]; ends[0].bytes == 0 || ends[1].bytes <= ends[0].bytes {
			t.Errorf("%s lies between %d and %d", w.name, ends[0].bytes, ends[1].bytes)
		}
	}
	if !strings.Contains(r.text, hpccLast) {
		t.Error("the end is not seen")
	}
}
