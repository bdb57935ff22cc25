package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// workshop is the demo's one place on the machine's disk: the programs that are
// run and, while an act lasts, its daemons' files. It is locked while the demo
// lives, so that the next one can remove what kill -9 left.
type workshop struct {
	dir  string
	lock *os.File
	acts int
}

// workshopPrefix begins the names of workshops in the temporary directory, and
// of nothing else.
const workshopPrefix = "meshmpi-demo-run-"

// newWorkshop makes one, and removes those whose demos were killed.
func newWorkshop() (*workshop, error) {
	sweep(os.TempDir())
	dir, err := os.MkdirTemp("", workshopPrefix)
	if err != nil {
		return nil, fmt.Errorf("no place to work in: %w", err)
	}
	w := &workshop{dir: dir}
	err = os.Chmod(dir, 0o755)
	if err == nil {
		w.lock, err = os.Open(dir)
	}
	if err == nil {
		err = unix.Flock(int(w.lock.Fd()), unix.LOCK_EX)
	}
	if err == nil {
		err = os.Mkdir(w.home(), 0o755)
	}
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	return w, nil
}

// sweep removes workshops of our own in tmp that nobody holds any more.
func sweep(tmp string) {
	dirs, _ := filepath.Glob(filepath.Join(tmp, workshopPrefix+"*"))
	for _, dir := range dirs {
		info, err := os.Lstat(dir)
		if err != nil || !info.IsDir() {
			continue
		}
		if st, ok := info.Sys().(*syscall.Stat_t); !ok || int(st.Uid) != os.Geteuid() {
			continue
		}
		f, err := os.Open(dir)
		if err != nil {
			continue
		}
		if unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) == nil {
			_ = os.RemoveAll(dir) // what cannot be removed now may be next time
		}
		f.Close()
	}
}

// home is the working directory of everything that is run; all hosts see it.
func (w *workshop) home() string { return filepath.Join(w.dir, "home") }

// logs makes a directory for the next act's logs and the daemons' state, which
// is nobody else's to read.
func (w *workshop) logs() (string, error) {
	w.acts++
	dir := filepath.Join(w.dir, fmt.Sprintf("act-%d", w.acts))
	return dir, os.Mkdir(dir, 0o700)
}

// keep moves an act's logs to where they stay, and returns where.
func (w *workshop) keep(logs string) (string, error) {
	id := strings.TrimPrefix(filepath.Base(w.dir), workshopPrefix)
	kept := filepath.Join(filepath.Dir(w.dir), "meshmpi-demo-failed-"+id+"-"+filepath.Base(logs))
	return kept, os.Rename(logs, kept)
}

// close removes the workshop.
func (w *workshop) close() {
	_ = os.RemoveAll(w.dir)
	w.lock.Close()
}
