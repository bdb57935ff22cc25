package mpishim

import (
	"os"
	"syscall"
	"testing"

	"github.com/meshmpi/meshmpi/internal/eventually"
)

// TestGoJobsLastWords: a rank that is told to end, and takes two seconds to save its state,
// is heard to the end.
func TestGoJobsLastWords(t *testing.T) {
	begun := t.TempDir()
	p := goPlan(t, "/bin/sh", "-c", `trap 'sleep 2; echo saved $PMI_RANK; exit 0' TERM; : >"$0/$PMI_RANK"; sleep 4242 & wait`, begun)
	cmd, out, errs := job(t, p)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	eventually.Holds(t, "all ranks have begun", func() bool {
		files, err := os.ReadDir(begun)
		return err == nil && len(files) == 3
	})
	cmd.Process.Signal(syscall.SIGTERM)
	cmd.Wait()
	lines := out.String()
	if len(lines) != len("saved 0\nsaved 1\nsaved 2\n") || exitCode(cmd) != 143 {
		t.Errorf("got %q, %q, code %d", lines, errs, exitCode(cmd))
	}
}
