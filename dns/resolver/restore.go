package resolver

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"os"
	"slices"
)

// Restore undoes what a process that ended without Close left changed,
// according to the journal in stateDir, and returns what it changed. It does
// nothing where there is no journal, so it may run at any time and twice; it
// must not run while a Resolver of the same stateDir is in use. A file that
// somebody else has written since keeps their content.
func Restore(stateDir string, log *slog.Logger) (changed []string, err error) {
	return restore(stateDir, log, env{ctl: resolvectl, runs: func() bool { return resolvedRuns(context.Background(), "/", resolvectl) }})
}

func restore(stateDir string, log *slog.Logger, e env) (changed []string, err error) {
	j, ok, err := loadJournal(stateDir)
	if err != nil || !ok {
		return nil, err
	}
	changed, err = j.undo(e)
	if log != nil {
		for _, what := range changed {
			log.Info("resolver restored", "what", what)
		}
	}
	if err != nil {
		return changed, err
	}
	return changed, dropJournal(stateDir)
}

// undo takes back everything the journal lists. What systemd-resolved was told is
// gone with it where it does not run any more.
func (j journal) undo(e env) (changed []string, err error) {
	if j.File != nil {
		changed, err = j.File.heal()
	}
	if j.Link != "" && linkExists(j.Link) {
		reverted := e.ctl(context.Background(), "revert", j.Link)
		switch {
		case reverted == nil:
			changed = append(changed, "systemd-resolved's settings of "+j.Link)
		case err == nil && e.runs():
			err = fmt.Errorf("resolver: take back settings of %s; run resolvectl revert %s: %w", j.Link, j.Link, reverted)
		}
	}
	return changed, err
}

// heal takes our edit out of the file it was made in and, should Path lead
// elsewhere by now, out of that file too: whoever replaced a link may have
// copied the content, and whoever put a link in the file's place too. It leaves
// files without our edit alone.
func (e *fileEntry) heal() (changed []string, err error) {
	target, err := follow(e.Root, e.Target)
	if err != nil {
		return nil, err
	}
	paths := []string{target}
	if now, err := follow(e.Root, e.Path); err == nil && now != target {
		paths = append(paths, now)
	}
	sweep(e.Target, e.Server)
	for _, path := range paths {
		sweep(path, e.Server)
		data, ok, err := read(path)
		if err != nil {
			return changed, err
		}
		if !ok {
			continue
		}
		orig, edited := strip(data, e.Server)
		if path == e.Target && e.torn(data) {
			orig, edited = e.Original, true
		}
		switch {
		case !edited:
			continue
		case path == e.Target && !e.Existed && len(orig) == 0:
			err = remove(path)
			for _, dir := range slices.Backward(e.Made) {
				os.Remove(dir) // unless somebody uses it by now
			}
		default:
			err = write(path, orig, e.Server)
		}
		if err != nil {
			return changed, err
		}
		changed = append(changed, path)
	}
	return changed, nil
}

// torn reports whether data is the original over the tail of our edit: a
// restore in place that was cut short.
func (e *fileEntry) torn(data []byte) bool {
	n := len(e.Original)
	return n > 0 && n < len(e.Written) && len(data) == len(e.Written) &&
		bytes.Equal(data[:n], e.Original) && bytes.Equal(data[n:], e.Written[n:])
}
