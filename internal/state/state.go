// Package state is a node's state directory: its keys, its certificate, what it
// was told when it joined, and whatever else a node wants to find again. It
// exists so that files are whole at any instant (temporary file, fsync, rename,
// fsync of the directory), so that joining happens entirely or not at all, and so
// that a damaged file is told in one line that says what to do.
//
//	node.json     who the node is; the directory holds a node if it is there
//	keys.pem      the node's private keys
//	chain.pem     its certificate, its issuer's and the root's
//	hub/root.crt  root.key (absent when offline), ca.crt and ca.key: hubs only
//	lock          held by the running daemon, with its process ID
//	meshd.sock    where that daemon listens
//
// The directory is open to everybody's passage (0711) for the socket's sake; the
// files are their owner's (0600). The package does not cache, watch, or decide
// when anything is to be saved, and knows nothing of the host outside DIR but the
// draft that stands beside it while a node is made.
package state

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

const (
	nodeFile   = "node.json"
	keysFile   = "keys.pem"
	chainFile  = "chain.pem"
	lockFile   = "lock"
	socketFile = "meshd.sock"

	hubDir       = "hub"
	rootCert     = hubDir + "/root.crt"
	rootKey      = hubDir + "/root.key"
	issuerCert   = hubDir + "/ca.crt"
	issuerKey    = hubDir + "/ca.key"
	issuerNewKey = hubDir + "/ca.key.new" // while SaveIssuer is at work

	dirMode    fs.FileMode = 0o711
	secretMode fs.FileMode = 0o600
)

// Dir is the state directory of a node.
type Dir struct{ files }

// Open finds the node at path. It needs no right to read the files, so that an
// unprivileged user can ask for the socket's path.
func Open(path string) (*Dir, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, fmt.Errorf("state: open %s: %w", path, err)
	}
	_, err = os.Stat(filepath.Join(path, nodeFile))
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ENOTDIR):
		return nil, fmt.Errorf("state: %s holds no node; run meshd init or meshd join first", path)
	case err != nil:
		return nil, fmt.Errorf("state: open %s: %w", path, hint(err))
	}
	return &Dir{files{path}}, nil
}

// SocketPath returns where the node's daemon listens for local callers.
func (d *Dir) SocketPath() string { return d.Path(socketFile) }

// Lock makes the caller the one daemon of this directory until unlock, or until
// its process ends however it does. It sweeps away what a crash in the middle of
// a write left behind.
func (d *Dir) Lock() (unlock func(), err error) {
	if unlock, err = d.lock(); err != nil {
		return nil, err
	}
	d.sweep()
	return unlock, nil
}

func (d *Dir) lock() (unlock func(), err error) {
	f, err := os.OpenFile(d.Path(lockFile), os.O_RDWR|os.O_CREATE, secretMode)
	if err != nil {
		return nil, fmt.Errorf("state: lock %s: %w", d.path, hint(err))
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		defer f.Close()
		if errors.Is(err, unix.EWOULDBLOCK) {
			return nil, fmt.Errorf("state: %s is in use by meshd%s; stop it first", d.path, holder(f))
		}
		return nil, fmt.Errorf("state: lock %s: %w", d.path, err)
	}
	if err := writePID(f); err != nil {
		f.Close()
		return nil, fmt.Errorf("state: lock %s: %w", d.path, hint(err))
	}
	return func() {
		f.Truncate(0)
		f.Close()
	}, nil
}

func writePID(f *os.File) error {
	if err := f.Truncate(0); err != nil {
		return err
	}
	_, err := f.WriteAt(fmt.Appendf(nil, "%d\n", os.Getpid()), 0)
	return err
}

// holder says who holds a lock, as far as the lock file tells.
func holder(f *os.File) string {
	b := make([]byte, 32)
	n, _ := f.ReadAt(b, 0)
	pid, err := strconv.Atoi(strings.TrimSpace(string(b[:n])))
	if err != nil || pid <= 0 {
		return ""
	}
	return fmt.Sprintf(" (pid %d)", pid)
}

// sweep removes what crashes left: temporary files of writes (a dot, the name of
// the file to be, digits) and the marks of an install that got as far as node.json.
// Failing to is no harm.
func (d *Dir) sweep() {
	os.Remove(d.Path(unfinished))
	os.Remove(d.Path(joiningFile))
	for _, dir := range []string{d.path, d.Path(hubDir)} {
		entries, err := os.ReadDir(dir)
		if err != nil {
			continue
		}
		for _, e := range entries {
			if e.Type().IsRegular() && isTemporary(e.Name()) {
				os.Remove(filepath.Join(dir, e.Name()))
			}
		}
	}
}

func isTemporary(name string) bool {
	rest, ok := strings.CutPrefix(name, ".")
	stem := strings.TrimRight(rest, "0123456789")
	return ok && len(stem) < len(rest) && filepath.Ext(stem) != "" && filepath.Ext(stem) != "."
}

// hint adds the remedy to the errors of files whose remedy is known.
func hint(err error) error {
	switch {
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		return fmt.Errorf("%w; free some space and try again", err)
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("%w; run as root", err)
	case errors.Is(err, syscall.EROFS):
		return fmt.Errorf("%w; choose another --state", err)
	}
	return err
}
