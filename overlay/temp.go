package overlay

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// tempMark begins the name of a directory of a node that keeps nothing.
const tempMark = "meshmpi-node-"

// temp is the directory of a node that keeps nothing, locked while its process lives.
type temp struct {
	path string
	held *os.File
}

// newTemp makes one, and removes those of processes that have been killed: they hold keys.
func newTemp() (*temp, error) {
	removeDead(os.TempDir())
	for {
		path, err := os.MkdirTemp("", tempMark)
		if err != nil {
			return nil, err
		}
		held, err := lock(path)
		if err == nil {
			return &temp{path, held}, nil
		}
		if !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, unix.EWOULDBLOCK) { // another's removeDead came between
			return nil, errors.Join(err, os.Remove(path))
		}
	}
}

// lock opens and locks a directory.
func lock(path string) (*os.File, error) {
	held, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_DIRECTORY, 0)
	if err != nil {
		return nil, err
	}
	if err = unix.Flock(int(held.Fd()), unix.LOCK_EX|unix.LOCK_NB); err == nil {
		_, err = os.Lstat(path)
	}
	if err != nil {
		held.Close()
		return nil, err
	}
	return held, nil
}

// removeDead removes what the caller's user has left in a directory; what cannot be
// removed stays for the next time.
func removeDead(dir string) {
	left, _ := filepath.Glob(filepath.Join(dir, tempMark+"*")) // the pattern is right
	for _, path := range left {
		var st unix.Stat_t
		if unix.Lstat(path, &st) != nil || int(st.Uid) != os.Geteuid() {
			continue
		}
		if held, err := lock(path); err == nil {
			_ = os.RemoveAll(path)
			held.Close()
		}
	}
}

// remove removes the directory; a nil one is none.
func (t *temp) remove() {
	if t != nil {
		_ = os.RemoveAll(t.path) // ours, and worth nothing any more
		t.held.Close()
	}
}
