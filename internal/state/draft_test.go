package state

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// listing returns the names in a directory.
func listing(t *testing.T, dir string) []string {
	t.Helper()
	var names []string
	for _, e := range must(os.ReadDir(dir)) {
		names = append(names, e.Name())
	}
	return names
}

func TestCommitMakesTheNode(t *testing.T) {
	m := newMade()
	for name, prepare := range map[string]func(path string) error{
		"absent":         func(string) error { return nil },
		"absent parents": func(path string) error { return os.Remove(filepath.Dir(path)) },
		"empty":          func(path string) error { return os.Mkdir(path, 0o755) },
		"link to empty": func(path string) error {
			return errors.Join(os.Mkdir(path+"-real", 0o755), os.Symlink(path+"-real", path))
		},
		"left by ext4":  func(path string) error { return os.MkdirAll(filepath.Join(path, lostFound), 0o700) },
		"left by crash": leaveUnfinished,
	} {
		t.Run(name, func(t *testing.T) {
			parent := filepath.Join(t.TempDir(), "lib")
			path := filepath.Join(parent, "node")
			if err := errors.Join(os.Mkdir(parent, 0o755), prepare(path)); err != nil {
				t.Fatal(err)
			}
			m.commit(t, path)
			d := must(Open(path))
			if name == "left by ext4" {
				os.Remove(d.Path(lostFound))
			}
			d = &Dir{files{must(filepath.EvalSymlinks(path))}}
			m.wantWhole(t, d)
			if got := listing(t, parent); slices.ContainsFunc(got, func(s string) bool { return s[0] == '.' }) {
				t.Errorf("a draft is left: %q", got)
			}
		})
	}
}

// leaveUnfinished leaves what an install into a mount point leaves if it is
// killed before node.json.
func leaveUnfinished(path string) error {
	return errors.Join(
		os.MkdirAll(filepath.Join(path, hubDir, "old"), 0o700),
		os.WriteFile(filepath.Join(path, unfinished), nil, 0o600),
		os.WriteFile(filepath.Join(path, keysFile), []byte("old"), 0o600),
		os.WriteFile(filepath.Join(path, "peers.json"), []byte("old"), 0o600),
	)
}

func TestCreateRefuses(t *testing.T) {
	m := newMade()
	dir := t.TempDir()
	taken, full, file, link := filepath.Join(dir, "taken"), filepath.Join(dir, "full"), filepath.Join(dir, "file"), filepath.Join(dir, "link")
	m.commit(t, taken)
	err := errors.Join(os.Mkdir(full, 0o700), os.WriteFile(filepath.Join(full, keysFile), []byte("precious"), 0o600),
		os.WriteFile(file, nil, 0o600), os.Symlink("nowhere", link))
	if err != nil {
		t.Fatal(err)
	}
	before := listing(t, dir)
	for path, want := range map[string]string{
		taken: "already holds node b1 of network lab; choose another --state, or stop its meshd and remove " + taken,
		full:  `is not empty (there is "keys.pem") and holds no node`,
		file:  "not a directory",
		link:  "link to nowhere",
	} {
		_, err := Create(path)
		wantLine(t, err, path, want)
	}
	if got := listing(t, dir); !slices.Equal(got, before) {
		t.Errorf("refusals left %q", got)
	}
	// Damaged or not, a node is never overwritten; nor when an install died after node.json.
	spoil(t, filepath.Join(taken, nodeFile), []byte("x"))
	spoil(t, filepath.Join(full, keysFile), []byte("x"))
	if err := os.WriteFile(filepath.Join(taken, unfinished), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	_, err = Create(taken)
	wantLine(t, err, "already holds a node")
}

func TestAbortLeavesNothing(t *testing.T) {
	m := newMade()
	dir := t.TempDir()
	path := filepath.Join(dir, "node")
	d := must(Create(path))
	if err := m.saveTo(d); err != nil {
		t.Fatal(err)
	}
	d.Abort()
	d.Abort()
	if got := listing(t, dir); len(got) != 0 {
		t.Errorf("left: %q", got)
	}
	wantLine(t, d.Commit(), "draft has ended")
}

func TestCommitRefusesHalfANode(t *testing.T) {
	m := newMade()
	steps := []func(*Draft) error{
		func(d *Draft) error { return d.SaveNode(m.node) },
		func(d *Draft) error { return d.SaveKeys(m.keys) },
		func(d *Draft) error { return d.SaveIssuer(m.issuer) },
		func(d *Draft) error { return d.SaveChain(m.chain) },
	}
	for missing := range steps {
		dir := t.TempDir()
		d := must(Create(filepath.Join(dir, "node")))
		for i, save := range steps {
			if i == missing {
				continue
			}
			if err := save(d); err != nil {
				t.Fatal(err)
			}
		}
		if d.Commit() == nil {
			t.Errorf("without step %d a node was made", missing)
		}
		d.Abort()
		if got := listing(t, dir); len(got) != 0 {
			t.Errorf("left: %q", got)
		}
	}
}

func TestCreateRemovesDeadDrafts(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "node")
	alive := must(Create(path))
	defer alive.Abort()
	dead := must(Create(path))
	dead.held.Close() // as the kernel does when a process is killed
	third := must(Create(path))
	defer third.Abort()
	want := []string{filepath.Base(alive.path), filepath.Base(third.path)}
	slices.Sort(want)
	if got := listing(t, dir); !slices.Equal(got, want) {
		t.Errorf("drafts are %q, want %q", got, want)
	}
}

func TestOneOfTwoDraftsWins(t *testing.T) {
	path := filepath.Join(t.TempDir(), "node")
	first, second := newMade(), newMade()
	a, b := must(Create(path)), must(Create(path))
	defer a.Abort()
	defer b.Abort()
	if err := errors.Join(first.saveTo(a), second.saveTo(b)); err != nil {
		t.Fatal(err)
	}
	if err := a.Commit(); err != nil {
		t.Fatal(err)
	}
	wantLine(t, b.Commit(), "already holds node b1")
	first.wantWhole(t, must(Open(path)))
}

// ownMounts gives the test a mount namespace of its own, which ends with its
// thread, and mounts a file system of the given size at path.
func ownMounts(t *testing.T, path, size string) {
	t.Helper()
	runtime.LockOSThread() // never unlocked: the thread ends with the test
	if err := unix.Unshare(unix.CLONE_FS | unix.CLONE_NEWNS); err != nil {
		t.Skipf("no mount namespace of our own: %v", err)
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(path, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("tmpfs", path, "tmpfs", 0, "mode=0755,size="+size); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(path, 0); err != nil {
			t.Error(err)
		}
	})
}

func TestCommitIntoMountPoint(t *testing.T) {
	m := newMade()
	parent := t.TempDir()
	path := filepath.Join(parent, "node")
	ownMounts(t, path, "1m")
	if err := leaveUnfinished(path); err != nil {
		t.Fatal(err)
	}
	d := m.commit(t, path)
	m.wantWhole(t, d)
	if got := listing(t, parent); len(got) != 1 {
		t.Errorf("beside the mount point: %q", got)
	}
	_, err := Create(path)
	wantLine(t, err, "already holds node b1")
}

func TestCommitBesideReadOnlyParent(t *testing.T) {
	m := newMade()
	parent := t.TempDir()
	path := filepath.Join(parent, "node")
	if err := os.Mkdir(path, 0o755); err != nil {
		t.Fatal(err)
	}
	ownMounts(t, path, "1m")
	for _, step := range []struct{ flags uintptr }{{unix.MS_BIND | unix.MS_REC}, {unix.MS_BIND | unix.MS_REMOUNT | unix.MS_RDONLY}} {
		if err := unix.Mount(parent, parent, "", step.flags, ""); err != nil {
			t.Fatal(err)
		}
	}
	defer func() {
		if err := unix.Unmount(parent, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	}()
	d, err := Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Abort()
	if err := m.saveTo(d); err != nil {
		t.Fatal(err)
	}
	if err := d.Commit(); err != nil {
		t.Fatal(err)
	}
	m.wantWhole(t, must(Open(path)))
}

// TestFullDisk lets the disk be full, then full after a page more, and so on
// until a node fits.
func TestFullDisk(t *testing.T) {
	m := newMade()
	path := filepath.Join(t.TempDir(), "node")
	ownMounts(t, path, "64k")
	refused := 0
	for free := 0; ; free += os.Getpagesize() {
		ballast := filepath.Join(path, lostFound)
		if err := os.WriteFile(ballast, make([]byte, 64<<10-free), 0o600); err != nil {
			t.Fatal(err)
		}
		d := must(Create(path))
		if err := m.saveTo(d); err != nil {
			t.Fatal(err)
		}
		err := d.Commit()
		d.Abort()
		if err == nil {
			if _, err := must(Open(path)).LoadNode(); err != nil {
				t.Error(err)
			}
			break
		}
		refused++
		wantLine(t, err, path, "no space left on device; free some space and try again")
		if _, err := Open(path); err == nil {
			t.Fatal("half a node counts as one")
		}
		if got := listing(t, path); len(got) > 2 { // lock and lost+found
			t.Fatalf("left: %q", got)
		}
		if err := os.Remove(ballast); err != nil {
			t.Fatal(err)
		}
	}
	if refused < 3 {
		t.Errorf("the disk was full %d times only", refused)
	}
}

// childEnv makes the test binary a process that makes a node at its value's path
// and is killed on the way; see TestKilledAtAnyInstant.
const childEnv = "STATE_TEST_MAKE_NODE_AT"

func child(path string) {
	m := newMade()
	fmt.Println("ready")
	d := must(Create(path))
	if err := m.saveTo(d); err != nil {
		panic(err)
	}
	if err := d.Commit(); err != nil {
		panic(err)
	}
}

// TestKilledAtAnyInstant kills a process that makes a node a little later every
// time. Whenever that is, there is a whole node afterwards or one can be made.
func TestKilledAtAnyInstant(t *testing.T) {
	m := newMade()
	for name, prepare := range map[string]func(string) error{
		"rename":  func(string) error { return nil },
		"install": func(path string) error { return os.MkdirAll(filepath.Join(path, lostFound), 0o700) },
	} {
		whole := 0
		for delay := time.Duration(0); delay < 100*time.Millisecond && whole < 2; delay = delay*3/2 + 200*time.Microsecond {
			parent := t.TempDir()
			path := filepath.Join(parent, "node")
			if err := prepare(path); err != nil {
				t.Fatal(err)
			}
			killChild(t, path, delay)
			d, err := Open(path)
			if err != nil {
				d = m.commit(t, path)
				if got := listing(t, parent); len(got) != 1 {
					t.Errorf("%s killed after %v: left %q", name, delay, got)
				}
			} else {
				whole++
			}
			if _, err := d.LoadNode(); err != nil {
				t.Errorf("%s killed after %v: %v", name, delay, err)
			}
			if _, err := d.LoadRoot(); err != nil {
				t.Errorf("%s killed after %v: %v", name, delay, err)
			}
		}
	}
}

// killChild starts child and kills it the given time after it is ready.
func killChild(t *testing.T, path string, after time.Duration) {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childEnv+"="+path)
	out := must(cmd.StdoutPipe())
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := out.Read(make([]byte, 1)); err != nil {
		t.Error(err)
	}
	time.Sleep(after) // an instant as good as any other
	cmd.Process.Kill()
	cmd.Wait()
}
