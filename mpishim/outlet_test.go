package mpishim

import (
	"errors"
	"io"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/meshmpi/meshmpi/internal/eventually"
)

// TestOutletStandsStill: a stream that nobody reads holds up who writes much to it, not
// what must be said on the other, and gives way when the user ends the job.
func TestOutletStandsStill(t *testing.T) {
	r, w := io.Pipe()
	defer r.Close()
	var errs strings.Builder
	s := newScreen(w, &errs, false)
	line := []byte(strings.Repeat("x", 1000) + "\n")
	said, through := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(through)
		for range 2 * outletMost / len(line) {
			s.text(1, 0, line)
		}
		close(said)
	}()
	eventually.Holds(t, "a full outlet", func() bool {
		s.outlet[0].mu.Lock()
		defer s.outlet[0].mu.Unlock()
		return s.outlet[0].bytes >= outletMost
	})
	if _, err := io.WriteString(s.errors(), "a death\n"); err != nil {
		t.Fatal(err)
	}
	if err := s.outlet[1].close(); err != nil || errs.String() != "a death\n" {
		t.Fatalf("%q is said, %v", errs.String(), err)
	}
	select {
	case <-said:
		t.Fatal("nobody reads, and all is said")
	default:
	}
	signals := make(chan os.Signal, 1)
	signals <- syscall.SIGINT
	s.outlast(through, signals, false)
	if err := s.close(nil, true); err != nil {
		t.Error(err)
	}
}

// TestOutletOrder: what is written to one file by both streams keeps its order.
func TestOutletOrder(t *testing.T) {
	f, err := os.CreateTemp(t.TempDir(), "")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	s := newScreen(f, f, false)
	want := ""
	for i := range 100 {
		line := strings.Repeat("x", i) + "\n"
		want += line
		s.text(1+i%2, 0, []byte(line))
	}
	if err := s.close(nil, false); err != nil {
		t.Error(err)
	}
	if got, err := os.ReadFile(f.Name()); string(got) != want {
		t.Errorf("%q, %v", got, err)
	}
}

// TestOutletFull: what cannot be written is told.
func TestOutletFull(t *testing.T) {
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Skip(err)
	}
	defer full.Close()
	s := newScreen(full, io.Discard, false)
	s.text(1, 0, []byte("hello\n"))
	code, err := s.result(0, nil, nil, false)
	if code != CodeFailed || !errors.Is(err, syscall.ENOSPC) || !strings.Contains(err.Error(), "standard output") {
		t.Errorf("code %d, %v", code, err)
	}
	s.text(1, 0, []byte("more\n")) // does not wait
}
