package profile

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// Prepare makes the folder that a profile is to be written to, or takes one that is
// empty; made says which. The error is one line that says what to do.
func Prepare(dir string) (made bool, err error) {
	_, missing := os.Stat(dir)
	err = os.MkdirAll(dir, 0o755)
	var entries []os.DirEntry
	if err == nil {
		entries, err = os.ReadDir(dir)
	}
	switch {
	case errors.Is(err, syscall.ENOTDIR) || errors.Is(err, fs.ErrExist):
		return false, fmt.Errorf("profile: %s is no folder; name one that is empty, or is to be made", dir)
	case err != nil:
		return false, fmt.Errorf("profile: cannot make %s: %w; name a folder that is yours", dir, cause(err))
	case len(entries) > 0:
		return false, fmt.Errorf("profile: %s is not empty; name another folder, or empty it", dir)
	}
	probe, err := os.CreateTemp(dir, ".probe")
	if err != nil {
		return false, fmt.Errorf("profile: cannot write to %s: %w; name a folder that is yours", dir, cause(err))
	}
	_ = probe.Close()
	return errors.Is(missing, fs.ErrNotExist), os.Remove(probe.Name())
}

// cause is an error without the name of a file.
func cause(err error) error {
	var path *fs.PathError
	if errors.As(err, &path) {
		return path.Err
	}
	return err
}

// Write writes all files of a profile to a folder.
func (p *Profile) Write(dir string) error {
	doc, err := json.MarshalIndent(p, "", " ")
	if err != nil {
		return fmt.Errorf("profile: %w", err)
	}
	files := []struct {
		name string
		data []byte
	}{
		{"report.txt", []byte(p.Report())}, {"profile.json", append(doc, '\n')}, {"matrix.svg", []byte(p.Matrix())},
		{"timeline.svg", []byte(p.TimelineSVG())}, {"rankfile", []byte(p.Rankfile())},
	}
	for _, f := range files {
		if len(f.data) == 0 {
			continue
		}
		if err := os.WriteFile(filepath.Join(dir, f.name), f.data, 0o644); err != nil {
			return fmt.Errorf("profile: write %s: %w", filepath.Join(dir, f.name), cause(err))
		}
	}
	return nil
}
