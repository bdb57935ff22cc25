package tun

import (
	"errors"
	"fmt"
	"log/slog"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/meshmpi/meshmpi/internal/boot"
	"github.com/meshmpi/meshmpi/internal/oneline"
)

// Restore takes out what a meshd that died left on the host, by the journal in
// stateDir, and returns a line for each thing it removed. It removes only what
// bears the journal's mark. It may be called again and when there is nothing to
// do. It refuses while a meshd runs on that state directory, and touches nothing
// when the journal is damaged.
func Restore(stateDir string, log *slog.Logger) (changed []string, err error) {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	if j, err := readJournal(stateDir); err != nil || j == nil {
		return nil, err
	}
	lock, err := lockState(stateDir)
	if err != nil {
		return nil, err
	}
	defer lock.Close()
	j, err := readJournal(stateDir) // again: now nobody else writes it
	if err != nil || j == nil {
		return nil, err
	}
	id, err := boot.ID()
	if err != nil {
		return nil, fmt.Errorf("tun: %w", err)
	}
	if j.BootID != id {
		log.Info("the host was rebooted since: nothing to restore", "link", j.Tun)
		return nil, removeJournal(stateDir)
	}
	changed, err = undo(j, stateDir)
	for _, c := range changed {
		log.Info("host network restored", "changed", c)
	}
	return changed, err
}

// undo removes what the journal names and, if all of it is gone, the journal.
// The order is Open's in reverse: nothing is unguarded meanwhile.
func undo(j *journal, dir string) (changed []string, err error) {
	var errs []error
	note := func(removed bool, err error, what string) {
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", what, err))
		} else if removed {
			changed = append(changed, what+" removed")
		}
	}
	undoNative(j, note)
	removed, err := removeLink(j)
	note(removed, err, "link "+j.Tun)
	undoFilters(j, note)
	for _, n := range j.nets() {
		removed, err := removeRoute(unreachable(n.cidr))
		note(removed, err, "route unreachable "+n.cidr.String())
	}
	removed, err = removeTable(j)
	note(removed, err, "firewall table inet "+j.table())
	if len(errs) > 0 {
		return changed, fmt.Errorf("tun: restoring the host's network (run meshd restore --state %s again as root): %w", dir, oneline.Join(errs...))
	}
	return changed, removeJournal(dir)
}

func removeLink(j *journal) (bool, error) {
	link, err := findLink(j)
	if err != nil || link == nil {
		return false, err
	}
	err = netlink.LinkDel(link)
	if errors.Is(err, unix.ENODEV) {
		return false, nil
	}
	return err == nil, err
}

func removeRoute(r *netlink.Route) (bool, error) {
	err := netlink.RouteDel(r)
	if errors.Is(err, unix.ESRCH) || r.Dst.IP.To4() == nil && noIPv6(err) {
		return false, nil
	}
	return err == nil, err
}
