package node

import (
	"errors"
	"io"
	"io/fs"
	"log/slog"
	"os"

	"github.com/meshmpi/meshmpi/dns/resolver"
	"github.com/meshmpi/meshmpi/internal/oneline"
	"github.com/meshmpi/meshmpi/internal/state"
	"github.com/meshmpi/meshmpi/mpishim/exec"
	"github.com/meshmpi/meshmpi/tun"
)

// Restore puts back what a daemon that was killed left on the host: sessions,
// resolver, TUN, routes, firewall. It says what it changed. With nothing left
// behind it does nothing; with a daemon running it refuses.
func Restore(stateDir string) (changed []string, err error) {
	dir, err := state.Open(stateDir)
	if err != nil {
		return nil, err
	}
	unlock, err := dir.Lock()
	if err != nil {
		return nil, err
	}
	defer unlock()
	log := slog.New(slog.NewTextHandler(io.Discard, nil))
	var errs []error
	if n, err := exec.EndSessions(stateDir); err != nil {
		errs = append(errs, err)
	} else if n > 0 {
		changed = append(changed, plural(n, "running session")+" ended")
	}
	files, err := resolver.Restore(stateDir, log)
	for _, f := range files {
		changed = append(changed, f+" restored")
	}
	links, unlinked := tun.Restore(stateDir, log)
	changed = append(changed, links...)
	errs = append(errs, err, unlinked)
	if err := os.Remove(dir.SocketPath()); err != nil && !errors.Is(err, fs.ErrNotExist) {
		errs = append(errs, err)
	}
	return changed, oneline.Join(errs...)
}
