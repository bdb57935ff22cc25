package overlay

import (
	"os"
	"path/filepath"
	"testing"
)

// TestTemp: the keys of a node whose process was killed go when the next one comes; those
// of one that lives stay.
func TestTemp(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	alive, err := newTemp()
	if err != nil {
		t.Fatal(err)
	}
	dead, err := newTemp()
	if err != nil {
		t.Fatal(err)
	}
	keys := filepath.Join(dead.path, "keys.pem")
	if err := os.WriteFile(keys, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	dead.held.Close() // as the system does
	other := filepath.Join(os.TempDir(), tempMark+"file")
	if err := os.Symlink(alive.path, other); err != nil {
		t.Fatal(err)
	}
	next, err := newTemp()
	if err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]bool{alive.path: true, dead.path: false, next.path: true, other: true} {
		if _, err := os.Lstat(path); (err == nil) != want {
			t.Errorf("%s: %v, want it there %t", path, err, want)
		}
	}
	next.remove()
	alive.remove()
	if left, _ := filepath.Glob(filepath.Join(os.TempDir(), tempMark+"*")); len(left) != 1 {
		t.Errorf("%q are left, want the link", left)
	}
}
