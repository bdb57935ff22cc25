package node

import (
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"github.com/meshmpi/meshmpi/mpishim/exec"
)

// TestBrokenPolicy: a policy that cannot be read lets nobody in, whoever it denied.
func TestBrokenPolicy(t *testing.T) {
	d := &daemon{log: slog.New(slog.DiscardHandler)}
	d.cfg.State = t.TempDir()
	for _, text := range []string{`{"map":[{"user":"eve","deny":true},]}`, `{"map":[{"user":"eve","deni":true}]}`, ``} {
		if err := os.WriteFile(filepath.Join(d.cfg.State, "policy.json"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		for _, user := range []string{"eve", "alice", "root"} {
			if name, _, err := d.policyNow().Local(exec.Caller{Node: "a1", Site: "alpha", User: user}, ""); err == nil {
				t.Errorf("with %q %s becomes %s", text, user, name)
			}
		}
	}
}
