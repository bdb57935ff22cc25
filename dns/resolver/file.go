package resolver

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

const maxLinks = 40 // symbolic links followed, as the kernel

// follow returns the file behind path's symbolic links, whether it exists or
// not. Absolute links are taken to start at root.
func follow(root, path string) (string, error) {
	for range maxLinks {
		if dir, err := filepath.EvalSymlinks(filepath.Dir(path)); err == nil {
			path = filepath.Join(dir, filepath.Base(path))
		}
		link, err := os.Readlink(path)
		switch {
		case errors.Is(err, unix.EINVAL), errors.Is(err, fs.ErrNotExist), errors.Is(err, unix.ENOTDIR):
			return path, nil
		case err != nil:
			return "", fmt.Errorf("resolver: %w", err)
		case filepath.IsAbs(link):
			path = filepath.Join(root, link)
		default:
			path = filepath.Join(filepath.Dir(path), link)
		}
	}
	return "", fmt.Errorf("resolver: %s: %w", path, unix.ELOOP)
}

// read returns a regular file's content; ok is false if there is no file.
func read(path string) (data []byte, ok bool, err error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, fmt.Errorf("resolver: %w", err)
	}
	defer f.Close()
	st, err := f.Stat()
	switch {
	case err != nil:
		return nil, false, fmt.Errorf("resolver: %w", err)
	case !st.Mode().IsRegular():
		return nil, false, fmt.Errorf("resolver: %s is not a regular file, so names of the overlay cannot be put there", path)
	}
	data, err = io.ReadAll(io.LimitReader(f, 2*maxConf+1))
	switch {
	case err != nil:
		return nil, false, fmt.Errorf("resolver: read %s: %w", path, err)
	case len(data) > 2*maxConf:
		return nil, false, fmt.Errorf("resolver: %s is longer than any resolv.conf (%d bytes)", path, 2*maxConf)
	}
	return data, true, nil
}

// write gives path a new content and leaves the rest as it is: mode, owner,
// extended attributes (SELinux looks at them), and what kind of file it is.
// Readers see the old or the new content, if the file can be replaced. It
// cannot if it is a mount point (containers mount /etc/resolv.conf), has other
// names, or lies in a directory closed to us; then it is written in place.
func write(path string, data []byte, server netip.Addr) error {
	st, err := os.Lstat(path)
	if err == nil && st.Mode().IsRegular() && st.Sys().(*syscall.Stat_t).Nlink > 1 {
		return writeInPlace(path, data)
	}
	if err := replace(path, st, data, server); err == nil {
		return nil
	}
	return writeInPlace(path, data)
}

// replace renames a draft with the server's name over path. old is nil where there
// is none.
func replace(path string, old fs.FileInfo, data []byte, server netip.Addr) error {
	mode := fs.FileMode(0o644)
	if old != nil {
		if mode = old.Mode(); !mode.IsRegular() {
			return fmt.Errorf("resolver: %s is not a regular file", path) // a link has come since it was followed
		}
	}
	f, err := draft(path, server)
	if err != nil {
		return err
	}
	defer os.Remove(f.Name()) // unless it has been renamed
	defer f.Close()
	if _, err := f.Write(data); err != nil {
		return err
	}
	if old != nil {
		st := old.Sys().(*syscall.Stat_t)
		if err := f.Chown(int(st.Uid), int(st.Gid)); err != nil {
			return err
		}
	}
	if err := f.Chmod(mode); err != nil { // chown clears bits
		return err
	}
	if old != nil {
		if err := copyXattrs(path, f); err != nil {
			return err
		}
	}
	if err := f.Sync(); err != nil {
		return err
	}
	if err := os.Rename(f.Name(), path); err != nil {
		return err
	}
	return syncDir(filepath.Dir(path))
}

// draftName is what the names of files begin with that are to replace path. It
// tells them from other programs' and from those of other networks' daemons.
func draftName(path string, server netip.Addr) string {
	return "." + filepath.Base(path) + ".meshmpi-" + server.String() + "-"
}

// draft makes an empty file beside path, to be renamed over it.
func draft(path string, server netip.Addr) (*os.File, error) {
	return os.CreateTemp(filepath.Dir(path), draftName(path, server)+"*")
}

// sweep removes the drafts beside path, which writers that were killed left.
func sweep(path string, server netip.Addr) {
	dir := filepath.Dir(path)
	files, _ := os.ReadDir(dir)
	for _, f := range files {
		if f.Type().IsRegular() && strings.HasPrefix(f.Name(), draftName(path, server)) {
			_ = os.Remove(filepath.Join(dir, f.Name())) // in nobody's way
		}
	}
}

// copyXattrs copies path's extended attributes to f.
func copyXattrs(path string, f *os.File) error {
	names := make([]byte, 4096)
	n, err := unix.Llistxattr(path, names)
	if errors.Is(err, unix.ENOTSUP) || n == 0 && err == nil {
		return nil
	}
	if err != nil {
		return err
	}
	value := make([]byte, 64<<10)
	for name := range strings.SplitSeq(strings.TrimRight(string(names[:n]), "\x00"), "\x00") {
		n, err := unix.Lgetxattr(path, name, value)
		if err != nil {
			return err
		}
		if err := unix.Fsetxattr(int(f.Fd()), name, value[:n], 0); err != nil {
			return err
		}
	}
	return nil
}

// writeInPlace overwrites path without ever leaving it empty: a crash between
// the two steps leaves data with the old content's tail, which heal knows.
func writeInPlace(path string, data []byte) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|unix.O_NOFOLLOW, 0o644)
	if err != nil {
		return fmt.Errorf("resolver: change %s (as root, and not immutable or on a read-only mount): %w", path, err)
	}
	defer f.Close()
	_, err = f.WriteAt(data, 0)
	if err == nil {
		err = f.Truncate(int64(len(data)))
	}
	if err == nil {
		err = f.Sync()
	}
	if err == nil {
		err = f.Close()
	}
	if err != nil {
		return fmt.Errorf("resolver: change %s: %w", path, err)
	}
	return nil
}

// remove deletes path; what cannot be deleted because it is mounted is emptied.
func remove(path string) error {
	err := os.Remove(path)
	switch {
	case err == nil:
		return syncDir(filepath.Dir(path))
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case errors.Is(err, unix.EBUSY):
		return writeInPlace(path, nil)
	}
	return fmt.Errorf("resolver: %w", err)
}

// missingDirs lists the directories above path that do not exist, outermost first.
func missingDirs(path string) []string {
	var dirs []string
	for dir := filepath.Dir(path); len(dirs) < maxMade; dir = filepath.Dir(dir) {
		if _, err := os.Lstat(dir); !errors.Is(err, fs.ErrNotExist) {
			break
		}
		dirs = append([]string{dir}, dirs...)
	}
	return dirs
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}
