package state

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

const (
	draftMark  = ".draft-"
	unfinished = ".unfinished" // stands in a directory while install fills it
	lostFound  = "lost+found"
)

// Draft is a node being made: init and join save into it and Commit it when
// nothing can fail any more. Until then path is untouched, whatever happens; a
// draft whose process was killed is removed by the next Create, except that it
// takes over the keys of a joining whose end is not known (Begin).
//
// The draft is a directory beside path that Commit renames to it. Where path is
// a mount point, or its parent cannot be written, Commit copies the files into
// path instead, node.json last: path holds a node from that instant on, and what
// a killed copy left behind is known by a mark and removed by the next Create.
type Draft struct {
	files
	target string
	held   *os.File // the draft directory, locked: its process lives
	made   []string // parents of the target that were missing, the inmost first
}

// Create begins a node at path, which must not exist or be an empty directory;
// its parents are made where they are missing. Follow it with
//
//	defer draft.Abort()
//
// and end with Commit.
func Create(path string) (*Draft, error) {
	target, err := resolve(path)
	if err != nil {
		return nil, fmt.Errorf("state: create %s: %w", path, hint(err))
	}
	if err := vacant(target); err != nil {
		return nil, err
	}
	parent, name := filepath.Split(target)
	parent = filepath.Clean(parent)
	d := &Draft{target: target, made: missing(parent)}
	if err := os.MkdirAll(parent, 0o755); err != nil {
		d.unmake()
		return nil, fmt.Errorf("state: create %s: %w", target, hint(err))
	}
	d.path, d.held, err = makeDraft(parent, "."+name+draftMark)
	if errors.Is(err, fs.ErrPermission) || errors.Is(err, syscall.EROFS) {
		if _, missing := os.Stat(target); missing == nil {
			d.path, d.held, err = makeDraft(target, draftMark)
		}
	}
	if err != nil {
		d.unmake()
		return nil, fmt.Errorf("state: create %s: %w", target, hint(err))
	}
	return d, nil
}

// missing returns the directories on the way to dir, itself included, that are not there.
func missing(dir string) (list []string) {
	for ; ; dir = filepath.Dir(dir) {
		if _, err := os.Lstat(dir); !errors.Is(err, fs.ErrNotExist) {
			return list
		}
		list = append(list, dir)
	}
}

// unmake removes what Create has made for the draft to stand in, unless others use it.
func (d *Draft) unmake() {
	for _, dir := range d.made {
		os.Remove(dir)
	}
}

// resolve follows symbolic links, since a rename would replace the link.
func resolve(path string) (string, error) {
	abs, err := filepath.Abs(path)
	if err != nil {
		return "", err
	}
	if real, err := filepath.EvalSymlinks(abs); err == nil {
		return real, nil
	} else if !errors.Is(err, fs.ErrNotExist) {
		return "", err
	}
	if link, err := os.Readlink(abs); err == nil {
		return "", fmt.Errorf("it is a link to %s, which does not exist", link)
	}
	return abs, nil
}

// vacant reports in a line for the user why there can be no node at path.
func vacant(path string) error {
	if _, err := os.Lstat(filepath.Join(path, nodeFile)); err == nil {
		who := "a node"
		if n, err := (files{path}).readNode(); err == nil {
			who = fmt.Sprintf("node %s of network %s", n.Name, n.Network)
		}
		return fmt.Errorf("state: %s already holds %s; choose another --state, or stop its meshd and remove %s to give up that node", path, who, path)
	}
	entries, err := os.ReadDir(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return fmt.Errorf("state: create %s: %w", path, hint(err))
	}
	for _, e := range entries {
		if e.Name() == unfinished {
			return nil
		}
	}
	for _, e := range entries {
		if !ours(e.Name()) {
			return fmt.Errorf("state: %s is not empty (there is %q) and holds no node; choose another --state, or empty it", path, e.Name())
		}
	}
	return nil
}

// ours reports whether name may stand in a directory that counts as empty.
func ours(name string) bool {
	return name == lostFound || name == lockFile || name == unfinished || strings.HasPrefix(name, draftMark)
}

// makeDraft makes a locked directory in parent, or adopts a dead process's.
func makeDraft(parent, prefix string) (string, *os.File, error) {
	entries, err := os.ReadDir(parent)
	if err != nil {
		return "", nil, err
	}
	for _, e := range entries {
		if !e.IsDir() || !strings.HasPrefix(e.Name(), prefix) {
			continue
		}
		path := filepath.Join(parent, e.Name())
		if held := adopt(path); held != nil {
			return path, held, nil
		}
	}
	for {
		path, err := os.MkdirTemp(parent, prefix+"*")
		if err != nil {
			return "", nil, err
		}
		held, err := os.Open(path)
		if errors.Is(err, fs.ErrNotExist) {
			continue // another's adopt came between
		}
		if err != nil {
			os.Remove(path)
			return "", nil, err
		}
		if unix.Flock(int(held.Fd()), unix.LOCK_EX|unix.LOCK_NB) == nil {
			if _, err := os.Lstat(path); err == nil {
				return path, held, nil
			}
		}
		held.Close()
	}
}

// Abort removes the draft. After Commit has succeeded it does nothing.
func (d *Draft) Abort() {
	if d.held == nil {
		return
	}
	os.RemoveAll(d.path)
	d.unmake()
	d.held.Close()
	d.held = nil
}

// Commit makes the draft the node at path, if node, keys and certificate are
// there and agree; Open finds it then. After an error nothing has happened and
// Abort is still due. Files that others opened in the draft must be closed.
func (d *Draft) Commit() error {
	if d.held == nil {
		return fmt.Errorf("state: create %s: this draft has ended", d.target)
	}
	if err := d.complete(); err != nil {
		return err
	}
	if err := vacant(d.target); err != nil {
		return err
	}
	if err := d.publish(); err != nil {
		return err
	}
	os.Remove(filepath.Join(d.target, joiningFile)) // Lock does it else
	d.held.Close()
	d.held = nil
	return nil
}

// complete checks that a node can be made of the draft.
func (d *Draft) complete() error {
	n, err := d.LoadNode()
	if err == nil && n.Hub {
		_, err = d.LoadIssuer()
	}
	if err != nil {
		return fmt.Errorf("state: create %s: the draft is not whole: %w", d.target, err)
	}
	return nil
}

func (d *Draft) publish() error {
	fail := func(err error) error { return fmt.Errorf("state: create %s: %w", d.target, hint(err)) }
	if filepath.Dir(d.path) != d.target {
		if err := os.Chmod(d.path, dirMode); err != nil {
			return fail(err)
		}
		// os.Rename refuses an existing directory, rename(2) takes an empty one.
		err := unix.Rename(d.path, d.target)
		if err == nil {
			// The node is there; a failure only leaves in doubt whether it
			// would survive a power cut this second.
			_ = syncDir(filepath.Dir(d.target))
			return nil
		}
		if !slices.Contains([]error{unix.EBUSY, unix.EXDEV, unix.ENOTEMPTY, unix.EEXIST}, err) {
			return fail(err)
		}
	}
	return d.install()
}

// install copies the draft into an existing directory, node.json last.
func (d *Draft) install() error {
	dir := &Dir{files{d.target}}
	unlock, err := dir.lock()
	if err != nil {
		return err
	}
	defer unlock()
	if err := vacant(d.target); err != nil { // another's install came first
		return err
	}
	// No temporary file: it is its being there that counts, from the first.
	err = os.WriteFile(dir.Path(unfinished), nil, secretMode)
	if err == nil {
		err = syncDir(d.target)
	}
	if err != nil {
		return fmt.Errorf("state: create %s: %w", d.target, hint(err))
	}
	empty(d.target)
	if err := d.copyInto(dir); err != nil {
		empty(d.target)
		os.Remove(dir.Path(unfinished))
		return err
	}
	os.Remove(dir.Path(unfinished))
	os.RemoveAll(d.path)
	return nil
}

// copyInto writes the draft's files into dir, node.json last.
func (d *Draft) copyInto(dir *Dir) error {
	copyFile := func(name string) error {
		b, err := d.read(name, 64<<20)
		if err != nil {
			return err
		}
		info, err := os.Stat(d.Path(name))
		if err != nil {
			return fmt.Errorf("state: create %s: %w", d.target, err)
		}
		return dir.write(name, b, info.Mode().Perm())
	}
	if err := os.Chmod(dir.path, dirMode); err != nil {
		return fmt.Errorf("state: create %s: %w", d.target, hint(err))
	}
	err := fs.WalkDir(os.DirFS(d.path), ".", func(name string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() || name == nodeFile || name == joiningFile {
			return err
		}
		return copyFile(name)
	})
	if err != nil {
		return err
	}
	return copyFile(nodeFile)
}

// empty removes what an unfinished install has left in dir.
func empty(dir string) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return
	}
	for _, e := range entries {
		if !ours(e.Name()) {
			os.RemoveAll(filepath.Join(dir, e.Name()))
		}
	}
}
