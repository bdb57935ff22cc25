package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// told returns a story that writes into the returned builder.
func told() (*story, *strings.Builder) {
	var b strings.Builder
	return &story{w: &b, began: time.Now()}, &b
}

func TestStoryIsPlainInAPipe(t *testing.T) {
	s, b := told()
	s.begin(1, "direct", "Pairs meet")
	s.command("a1", "meshctl status")
	s.working()()
	s.text("\n  NODE\n\nb1  \n\n")
	s.text("\n")
	s.check(true, "it took %d ms", 7)
	s.check(false, "b1 is there")
	const want = `
== 1. Pairs meet

  a1$ meshctl status
        NODE

      b1
  ✓ it took 7 ms
  ✗ b1 is there
`
	if got := b.String(); got != want {
		t.Errorf("got:\n%s\nwant:\n%s", got, want)
	}
}

func TestSummary(t *testing.T) {
	s, b := told()
	s.begin(1, "direct", "")
	s.check(true, "")
	s.check(true, "")
	s.figure(figLatency, "%d µs", 93)
	s.figure(figPath, "udp")
	s.begin(2, "relayed", "")
	s.figure(figPath, "relay-udp by hub")
	s.check(true, "")
	s.acts[0].took, s.acts[1].took = 61*time.Second, 9*time.Second
	const want = `                  1. direct   2. relayed
path a1 to b1     udp         relay-udp by hub
NetPIPE: 1 byte   93 µs       -
checks            2 of 2      1 of 1
time              61 s        9 s
`
	if got := s.summary(); got != want {
		t.Errorf("got:\n%s\nwant:\n%s", got, want)
	}
	if !s.end() {
		t.Error("a story whose checks held ends badly")
	}
	s.check(false, "b1 is there")
	if s.end() || !strings.Contains(b.String(), "✗ act 2: b1 is there") {
		t.Errorf("a story with a failed check ends well:\n%s", b.String())
	}
	if s, _ := told(); s.end() {
		t.Error("a story without checks ends well")
	}
}

func TestSweep(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	held, err := newWorkshop()
	if err != nil {
		t.Fatal(err)
	}
	defer held.close()
	killed, err := newWorkshop()
	if err != nil {
		t.Fatal(err)
	}
	killed.lock.Close() // as the kernel does for who is killed
	bystander := filepath.Join(os.TempDir(), "meshmpi-demo-failed-1-act-1")
	if err := os.Mkdir(bystander, 0o700); err != nil {
		t.Fatal(err)
	}
	sweep(os.TempDir())
	for _, dir := range []string{held.dir, bystander} {
		if _, err := os.Stat(dir); err != nil {
			t.Errorf("swept away: %v", err)
		}
	}
	if _, err := os.Stat(killed.dir); err == nil {
		t.Errorf("%s, which nobody holds, is still there", killed.dir)
	}
}
