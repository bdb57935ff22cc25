package exec

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/google/renameio/v2"

	"github.com/meshmpi/meshmpi/internal/boot"
)

// sessionsDir is the folder of records within the state directory.
const sessionsDir = "sessions"

// Record is what a session writes of itself into StateDir/sessions/PID, so that
// others can end it. The boot and start times guard against process ids that were reused.
type Record struct {
	Boot         string    `json:"boot"`          // another boot: nothing of it is left; "": made by a version that did not say
	PID          int       `json:"pid"`           // of the session's own process
	Start        uint64    `json:"start"`         // its start time, clock ticks after boot
	Command      int       `json:"command"`       // the command's process id, group and kernel session
	CommandStart uint64    `json:"command_start"` // its start time
	Cgroup       string    `json:"cgroup,omitempty"`
	From         string    `json:"from"` // user@node
	User         string    `json:"user"` // local
	Began        time.Time `json:"began"`
}

func (r Record) write(stateDir string) error {
	raw, err := json.Marshal(r)
	if err != nil {
		return err
	}
	return renameio.WriteFile(recordPath(stateDir, r.PID), raw, 0o600)
}

func recordPath(stateDir string, pid int) string {
	return filepath.Join(stateDir, sessionsDir, strconv.Itoa(pid))
}

// Sessions returns the records of sessions that are still alive, in whole or in part.
func Sessions(stateDir string) ([]Record, error) {
	entries, err := os.ReadDir(filepath.Join(stateDir, sessionsDir))
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("exec: sessions: %w", err)
	}
	var found []Record
	for _, e := range entries {
		if r, ok := readRecord(stateDir, e.Name()); ok && r.alive() {
			found = append(found, r)
		}
	}
	return found, nil
}

func readRecord(stateDir, name string) (r Record, ok bool) {
	pid, err := strconv.Atoi(name)
	if err != nil || pid <= 1 {
		return r, false
	}
	raw, err := os.ReadFile(recordPath(stateDir, pid))
	if err != nil || json.Unmarshal(raw, &r) != nil || r.PID != pid {
		return r, false
	}
	return r, true
}

func running(pid int, start uint64) bool {
	p, ok := procOf(pid)
	return ok && pid > 1 && p.start == start && !p.zombie
}

func (r Record) alive() bool {
	id, err := boot.ID()
	return err == nil && (r.Boot == id || r.Boot == "") && (running(r.PID, r.Start) || len(r.tree().members()) > 0)
}

// tree is what is left to end. A kernel session id stays taken while the session
// has members, so it may be used as long as the leader is the recorded one or,
// the leader gone, no new process has its id.
func (r Record) tree() tree {
	t := tree{cgroup: r.Cgroup}
	if running(r.PID, r.Start) {
		t.ancestor = r.PID
	}
	leader, exists := procOf(r.Command)
	if r.Command > 1 && (!exists || leader.start == r.CommandStart) {
		t.sid = r.Command
	}
	return t
}

// end asks the session to end its command; where it does not, ends both.
func (r Record) end() {
	if running(r.PID, r.Start) {
		syscall.Kill(r.PID, syscall.SIGTERM)
		for deadline := time.Now().Add(3 * grace); time.Now().Before(deadline) && running(r.PID, r.Start); {
			time.Sleep(5 * time.Millisecond)
		}
	}
	r.tree().end()
	if running(r.PID, r.Start) {
		syscall.Kill(r.PID, syscall.SIGKILL)
	}
}

// EndSessions ends every session recorded in the state directory, with all that
// their commands started, and returns how many were alive. It needs the rights
// of the daemon that started them, and takes at most about ten seconds.
func EndSessions(stateDir string) (n int, err error) {
	found, err := Sessions(stateDir)
	if err != nil {
		return 0, err
	}
	var all sync.WaitGroup
	for _, r := range found {
		all.Go(r.end)
	}
	all.Wait()
	sweepRecords(stateDir)
	left, err := Sessions(stateDir)
	if err == nil && len(left) > 0 {
		err = fmt.Errorf("exec: session %d (%s as %s) does not end; end it with kill -9 %d", left[0].PID, left[0].From, left[0].User, left[0].PID)
	}
	return len(found), err
}

// sweepRecords forgets what is no longer alive.
func sweepRecords(stateDir string) {
	entries, _ := os.ReadDir(filepath.Join(stateDir, sessionsDir))
	for _, e := range entries {
		if r, ok := readRecord(stateDir, e.Name()); ok && !r.alive() {
			os.Remove(recordPath(stateDir, r.PID))
			if r.Cgroup != "" {
				os.Remove(r.Cgroup)
			}
		}
	}
}
