package state

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/meshmpi/meshmpi/mesh/cert"
	"github.com/meshmpi/meshmpi/mesh/peer"
	"golang.org/x/sys/unix"
)

// begin opens a draft and begins with the root. end ends it.
func begin(t *testing.T, path string, root byte, end func(*Draft)) (cert.Keys, bool) {
	t.Helper()
	d := must(Create(path))
	keys, again, err := d.Begin(peer.Fingerprint{root})
	if err != nil {
		t.Fatal(err)
	}
	end(d)
	return keys, again
}

// TestBegin: keys wait for the next draft where the last was suspended or died,
// and for nobody else.
func TestBegin(t *testing.T) {
	died := func(d *Draft) { d.held.Close() } // as the kernel does
	for _, tc := range []struct {
		name  string
		end   func(*Draft)
		root  byte // of the second
		again bool
	}{
		{"suspended", (*Draft).Suspend, 1, true},
		{"died", died, 1, true},
		{"died half-way", func(d *Draft) { os.WriteFile(d.Path(chainFile), nil, 0o600); died(d) }, 1, true},
		{"aborted", (*Draft).Abort, 1, false},
		{"another network", (*Draft).Suspend, 2, false},
		{"damaged mark", func(d *Draft) { os.WriteFile(d.Path(joiningFile), []byte("{"), 0o600); d.Suspend() }, 1, false},
		{"damaged keys", func(d *Draft) { os.WriteFile(d.Path(keysFile), nil, 0o600); d.Suspend() }, 1, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			parent := t.TempDir()
			path := filepath.Join(parent, "node")
			first, _ := begin(t, path, 1, tc.end)
			if _, err := os.Lstat(path); err == nil {
				t.Error("there is a state directory before Commit")
			}
			second, again := begin(t, path, tc.root, (*Draft).Abort)
			if again != tc.again || (second.ID() == first.ID()) != tc.again {
				t.Errorf("again is %v and the keys are the same: %v; want %v", again, second.ID() == first.ID(), tc.again)
			}
			if got := listing(t, parent); len(got) != 0 {
				t.Errorf("after Abort is left: %q", got)
			}
		})
	}
}

// TestSuspendKeepsKeysAlone: what is left holds nothing but keys and mark, for
// the owner's eyes.
func TestSuspendKeepsKeysAlone(t *testing.T) {
	path := filepath.Join(t.TempDir(), "node")
	var left string
	begin(t, path, 1, func(d *Draft) {
		if err := d.SaveJSON("hub/other.json", 1, secretMode); err != nil {
			t.Fatal(err)
		}
		left = d.path
		d.Suspend()
		d.Abort() // does nothing now
	})
	if got := listing(t, left); len(got) != 2 || got[0] != joiningFile || got[1] != keysFile {
		t.Errorf("left is %q", got)
	}
	if info := must(os.Stat(left)); info.Mode().Perm() != 0o700 {
		t.Errorf("the draft has mode %v", info.Mode())
	}
}

// TestBegunTwiceAtOnce: of two joinings at once only one takes the keys.
func TestBegunTwiceAtOnce(t *testing.T) {
	path := filepath.Join(t.TempDir(), "node")
	first, _ := begin(t, path, 1, (*Draft).Suspend)
	begin(t, path, 1, func(d *Draft) {
		defer d.Suspend()
		if k, again := begin(t, path, 1, (*Draft).Abort); again || k.ID() == first.ID() {
			t.Error("both have the same keys")
		}
	})
	if k, again := begin(t, path, 1, (*Draft).Abort); !again || k.ID() != first.ID() {
		t.Error("the keys are lost")
	}
}

// TestCommitEndsJoining: the node's directory has no mark of a joining.
func TestCommitEndsJoining(t *testing.T) {
	m := newMade()
	path := filepath.Join(t.TempDir(), "node")
	d := must(Create(path))
	if _, _, err := d.Begin(peer.Fingerprint{1}); err != nil {
		t.Fatal(err)
	}
	if err := m.saveTo(d); err != nil {
		t.Fatal(err)
	}
	if err := d.Commit(); err != nil {
		t.Fatal(err)
	}
	d.Suspend() // does nothing now
	m.wantWhole(t, must(Open(path)))
}

// TestBeginOnFullDisk: no space for the hub's answer shows before it is asked.
func TestBeginOnFullDisk(t *testing.T) {
	dir := t.TempDir()
	if err := unix.Mount("none", dir, "tmpfs", 0, "size=32k"); err != nil {
		t.Skipf("a small file system needs root: %v", err)
	}
	defer unix.Unmount(dir, 0)
	d := must(Create(filepath.Join(dir, "node")))
	_, _, err := d.Begin(peer.Fingerprint{1})
	wantLine(t, err, "no space left", "free some space")
	d.Abort()
	if got := listing(t, dir); len(got) != 0 {
		t.Errorf("left is %q", got)
	}
}

// TestForeignDraft: a draft that another user may have put there is not taken up, in a
// directory like /tmp, for he knows its keys.
func TestForeignDraft(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("giving files away needs root")
	}
	for what, spoil := range map[string]func(path string) error{
		"another's":      func(path string) error { return os.Chown(path, 65534, 65534) },
		"open to others": func(path string) error { return os.Chmod(path, 0o733) },
		"a link to another's": func(path string) error {
			other := filepath.Join(t.TempDir(), "other")
			return errors.Join(os.Rename(path, other), os.Symlink(other, path))
		},
	} {
		path := filepath.Join(t.TempDir(), "node")
		theirs := must(Create(path))
		known, _, err := theirs.Begin(peer.Fingerprint{1})
		if err != nil {
			t.Fatal(err)
		}
		theirs.Suspend()
		if err := spoil(theirs.path); err != nil {
			t.Fatal(err)
		}
		if k, again := begin(t, path, 1, (*Draft).Abort); again || k.ID() == known.ID() {
			t.Errorf("%s: taken up", what)
		}
	}
}

// TestAbortLeavesNoParents: the parents that Create made go too, unless they are in use.
func TestAbortLeavesNoParents(t *testing.T) {
	top := t.TempDir()
	path := filepath.Join(top, "a", "b", "node")
	must(Create(path)).Abort()
	if got := listing(t, top); len(got) != 0 {
		t.Errorf("left is %q", got)
	}
	d := must(Create(path))
	if err := os.WriteFile(filepath.Join(top, "a", "mine"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	d.Abort()
	if _, err := os.Stat(filepath.Join(top, "a", "mine")); err != nil {
		t.Error(err)
	}
}
