package mpishim

import (
	"os"
	osexec "os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestLoginShells: what we have the login shell of another node's user run means the same
// to all shells.
func TestLoginShells(t *testing.T) {
	home := t.TempDir()
	prog := filepath.Join(home, "it's a prog")
	if err := os.WriteFile(prog, []byte("#!/bin/sh\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, shell := range []string{"sh", "bash", "tcsh"} {
		path, err := osexec.LookPath(shell)
		if err != nil {
			t.Skipf("no %s; try: apt install %s", shell, shell)
		}
		for name, tt := range map[string]struct{ command, input, want string }{
			"checks":  {strings.Join(append([]string{"exec /bin/sh -c", Quote(checks), "sh"}, quoteAll([]string{"", prog, home, "/no/prog", "ls"})...), " "), "", "ok\nfolder\nmissing\nok\nmeshrun-checked\n"},
			"receive": {"exec /bin/sh -c " + Quote(receive) + " sh HASH" + shell + " " + Quote("a'b"), "text", ""},
			"agent":   {AgentCommand(`echo "` + hydraProxy + `" 'a b' "$MESH_BIN"`), "", hydraProxy + " a b /nowhere\n"},
			"ranks":   {ranksCommand, "", "ranks of " + home + "\n"},
		} {
			cmd := osexec.Command(path, "-c", tt.command)
			cmd.Env = []string{"HOME=" + home, "PATH=" + home + ":/usr/bin:/bin", "MESH_BIN=/nowhere"}
			cmd.Stdin = strings.NewReader(tt.input)
			if err := os.WriteFile(filepath.Join(home, "meshrun"), []byte("#!/bin/sh\necho ranks of $HOME\n"), 0o700); err != nil {
				t.Fatal(err)
			}
			if out, err := cmd.CombinedOutput(); err != nil || string(out) != tt.want {
				t.Errorf("%s, %s: %v, %q, want %q", shell, name, err, out, tt.want)
			}
		}
		if got, err := os.ReadFile(filepath.Join(home, ".cache/meshmpi/stage/HASH"+shell, "a'b")); string(got) != "text" {
			t.Errorf("%s: %q is stored, %v", shell, got, err)
		}
	}
}
