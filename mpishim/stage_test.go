package mpishim

import (
	"os"
	osexec "os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestStageAgain: what was staged long ago is staged anew.
func TestStageAgain(t *testing.T) {
	home := t.TempDir()
	stage := func() {
		t.Helper()
		cmd := osexec.Command("/bin/sh", "-c", receive, "sh", "HASH", "prog")
		cmd.Env, cmd.Stdin = []string{"HOME=" + home, "PATH=/usr/bin:/bin"}, strings.NewReader("text")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%v: %s", err, out)
		}
		if b, _ := os.ReadFile(filepath.Join(home, ".cache/meshmpi/stage/HASH/prog")); string(b) != "text" {
			t.Errorf("staged %q", b)
		}
	}
	stage()
	old := time.Now().Add(-40 * 24 * time.Hour)
	if err := os.Chtimes(filepath.Join(home, ".cache/meshmpi/stage/HASH"), old, old); err != nil {
		t.Fatal(err)
	}
	stage()
	stage()
}
