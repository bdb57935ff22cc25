package main

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/meshmpi/meshmpi/integration/lab"
)

func TestMain(m *testing.M) {
	lab.Main()
	os.Exit(m.Run())
}

// TestFailureIsToldAndKept plays an act with a daemon that does not start: the
// story ends badly, shows what the daemon said last, and its log stays.
func TestFailureIsToldAndKept(t *testing.T) {
	lab.Need(t, "nft")
	t.Setenv("TMPDIR", t.TempDir())
	bin := t.TempDir()
	const meshd = "#!/bin/sh\nif [ $1 = run ]; then echo level=DEBUG msg=chatter; echo something is rotten; exit 1; fi\n"
	if err := os.WriteFile(filepath.Join(bin, "meshd"), []byte(meshd), 0o755); err != nil {
		t.Fatal(err)
	}
	ws, err := newWorkshop()
	if err != nil {
		t.Fatal(err)
	}
	s, b := told()
	s.begin(1, "direct", "")
	err = perform(t.Context(), s, bin, ws, lab.PortPreserving, func(context.Context, *stage) error {
		t.Error("the act was played without a daemon")
		return nil
	})
	ws.close()
	if err == nil || !strings.Contains(err.Error(), "meshd on hub") {
		t.Errorf("got %v, want an error that names the daemon", err)
	}
	for _, want := range []string{"the last lines of meshd-1.log on hub:\n      something is rotten", "b1       192.168.13.10"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("the story lacks %q:\n%s", want, b.String())
		}
	}
	kept, err := filepath.Glob(filepath.Join(os.TempDir(), "*", "*", "*.log"))
	if err != nil || len(kept) != 1 || !strings.Contains(b.String(), filepath.Dir(filepath.Dir(kept[0]))) {
		t.Errorf("kept %q, %v:\n%s", kept, err, b.String())
	}
}
