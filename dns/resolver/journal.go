package resolver

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"

	"github.com/google/renameio/v2"
	"golang.org/x/sys/unix"
)

// The journal says what was changed and how it was before. It is written and
// synced before each change and removed after the last one is undone.
const (
	journalName    = "resolver.journal"
	journalVersion = 1
	maxJournal     = 1 << 20 // two files of maxConf in base64, and some
	maxMade        = 16
)

// journal is its content, in JSON.
type journal struct {
	Version int        `json:"version"`
	File    *fileEntry `json:"file,omitempty"`
	Link    string     `json:"link,omitempty"` // whose settings in systemd-resolved are ours
}

// A fileEntry is one edited file.
type fileEntry struct {
	Root     string     `json:"root"`           // what stands for / in Path and absolute links
	Path     string     `json:"path"`           // as programs open it
	Target   string     `json:"target"`         // the file behind its symbolic links
	Server   netip.Addr `json:"server"`         // ours, which the edit is marked with; before there were such marks: invalid
	Existed  bool       `json:"existed"`        // whether Target was there
	Original []byte     `json:"original"`       // Target's content, without any edit of ours
	Written  []byte     `json:"written"`        // what we put there, or found with our edit in it
	Made     []string   `json:"made,omitempty"` // directories made for Target, outermost first
}

// check reports contents longer than a journal may hold.
func (e *fileEntry) check() error {
	if len(e.Original) > maxConf || len(e.Written) > 2*maxConf {
		return fmt.Errorf("resolver: %s is longer than any resolv.conf (%d bytes, and %d with our edit); shorten it", e.Target, maxConf, 2*maxConf)
	}
	return nil
}

// decodeJournal reads a journal. A journal is root's own file, but it may come
// from another version or a damaged disk: nothing in it is taken on trust.
func decodeJournal(raw []byte) (journal, error) {
	var j journal
	if len(raw) > maxJournal {
		return journal{}, fmt.Errorf("it is longer than %d bytes", maxJournal)
	}
	if err := json.Unmarshal(raw, &j); err != nil {
		return journal{}, err
	}
	if j.Version != journalVersion {
		return journal{}, fmt.Errorf("it is of version %d, this meshd knows %d", j.Version, journalVersion)
	}
	if len(j.Link) > 15 || j.Link != "" && j.Link != filepath.Base(j.Link) {
		return journal{}, fmt.Errorf("%q is no network link", j.Link)
	}
	if j.File == nil {
		return j, nil
	}
	if j.File.check() != nil || len(j.File.Made) > maxMade {
		return journal{}, errors.New("it holds more than we write")
	}
	for _, p := range append([]string{j.File.Root, j.File.Path, j.File.Target}, j.File.Made...) {
		if !filepath.IsAbs(p) || filepath.Clean(p) != p {
			return journal{}, fmt.Errorf("%q is no absolute path", p)
		}
	}
	return j, nil
}

// loadJournal returns the journal in stateDir; ok is false if there is none.
func loadJournal(stateDir string) (j journal, ok bool, err error) {
	path := filepath.Join(stateDir, journalName)
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return journal{}, false, nil
	}
	if err != nil {
		return journal{}, false, fmt.Errorf("resolver: journal: %w", err)
	}
	defer f.Close()
	raw, err := io.ReadAll(io.LimitReader(f, maxJournal+1))
	if err == nil {
		j, err = decodeJournal(raw)
	}
	if err != nil {
		return journal{}, false, fmt.Errorf("resolver: %s cannot be read, so put /etc/resolv.conf in order by hand and delete it: %w", path, err)
	}
	return j, true, nil
}

// saveJournal writes j and returns when it is on disk.
func saveJournal(stateDir string, j journal) error {
	j.Version = journalVersion
	raw, err := json.Marshal(j)
	if err == nil {
		// Temporary files stand beside it; those of writers that were killed go here.
		stale, _ := filepath.Glob(filepath.Join(stateDir, "."+journalName+"*"))
		for _, f := range stale {
			_ = os.Remove(f) // in nobody's way
		}
		path := filepath.Join(stateDir, journalName)
		if err = renameio.WriteFile(path, raw, 0o600, renameio.WithTempDir(stateDir), renameio.IgnoreUmask()); err == nil {
			err = syncDir(stateDir)
		}
	}
	var cause unix.Errno
	if errors.As(err, &cause) {
		err = cause // without the temporary file's name, which is another each time
	}
	if err != nil {
		return fmt.Errorf("resolver: write the journal in %s, without which the host's resolver stays as it is: %w", stateDir, err)
	}
	return nil
}

// dropJournal removes the journal.
func dropJournal(stateDir string) error {
	err := os.Remove(filepath.Join(stateDir, journalName))
	if err == nil {
		err = syncDir(stateDir)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("resolver: journal: %w", err)
	}
	return nil
}
