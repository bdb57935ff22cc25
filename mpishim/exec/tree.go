package exec

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// grace is how long processes have between SIGTERM and SIGKILL.
const grace = 2 * time.Second

// proc is a line of the process table.
type proc struct {
	pid, ppid, sid int
	start          uint64 // clock ticks after boot; with pid it names a process for good
	zombie         bool
}

// parseStat reads /proc/PID/stat (proc_pid_stat(5)). The command's name, in
// parentheses, may hold anything, so the fields are counted after the last one.
func parseStat(raw []byte) (proc, bool) {
	open, end := bytes.IndexByte(raw, ' '), bytes.LastIndexByte(raw, ')')
	if open < 0 || end < open {
		return proc{}, false
	}
	f := strings.Fields(string(raw[end+1:]))
	if len(f) < 20 {
		return proc{}, false
	}
	var p proc
	var err [4]error
	p.pid, err[0] = strconv.Atoi(string(raw[:open]))
	p.ppid, err[1] = strconv.Atoi(f[1])
	p.sid, err[2] = strconv.Atoi(f[3])
	p.start, err[3] = strconv.ParseUint(f[19], 10, 64)
	p.zombie = f[0] == "Z" || f[0] == "X"
	return p, err == [4]error{}
}

func procOf(pid int) (proc, bool) {
	raw, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return proc{}, false
	}
	return parseStat(raw)
}

func processes() []proc {
	entries, _ := os.ReadDir("/proc")
	var all []proc
	for _, e := range entries {
		if pid, err := strconv.Atoi(e.Name()); err == nil {
			if p, ok := procOf(pid); ok && !p.zombie {
				all = append(all, p)
			}
		}
	}
	return all
}

// tree names the processes of one session in the ways that find them: as
// descendants of a subreaper, by their kernel session, by their cgroup.
type tree struct {
	ancestor int    // whose descendants belong to it, itself excluded; 0 for none
	sid      int    // kernel session; 0 for none
	cgroup   string // directory; empty for none
	others   []proc // that do not belong to it, nor what descends from them
}

// members returns the living processes of t.
func (t tree) members() []int {
	all := processes()
	in := map[int]bool{}
	for _, pid := range cgroupProcs(t.cgroup) {
		in[pid] = true
	}
	for _, p := range all {
		if t.sid != 0 && p.sid == t.sid {
			in[p.pid] = true
		}
	}
	for grown := true; grown; { // pids wrap around, so parents may come later in the list
		grown = false
		for _, p := range all {
			if !in[p.pid] && !t.spares(p) && (in[p.ppid] || t.ancestor != 0 && p.ppid == t.ancestor) {
				in[p.pid], grown = true, true
			}
		}
	}
	delete(in, t.ancestor)
	delete(in, os.Getpid())
	var pids []int
	for _, p := range all {
		if in[p.pid] {
			pids = append(pids, p.pid)
		}
	}
	return pids
}

func (t tree) spares(p proc) bool {
	return slices.ContainsFunc(t.others, func(o proc) bool { return o.pid == p.pid && o.start == p.start })
}

// end sends SIGTERM (and SIGCONT, for the stopped) to all of t, SIGKILL after the
// grace period, until nothing is left. It returns how many processes it found.
func (t tree) end() int {
	first := t.members()
	for _, pid := range first {
		syscall.Kill(pid, syscall.SIGTERM)
		syscall.Kill(pid, syscall.SIGCONT)
	}
	deadline := time.Now().Add(grace)
	pause := time.Millisecond
	for left := first; len(left) > 0; left = t.members() {
		if time.Now().After(deadline) {
			if t.cgroup != "" {
				os.WriteFile(filepath.Join(t.cgroup, "cgroup.kill"), []byte("1"), 0)
			}
			for _, pid := range left {
				syscall.Kill(pid, syscall.SIGKILL)
			}
			if time.Now().After(deadline.Add(10 * grace)) {
				break // in uninterruptible sleep: the kernel ends them when it can
			}
		}
		time.Sleep(pause)
		pause = min(2*pause, 50*time.Millisecond)
	}
	if t.cgroup != "" {
		os.Remove(t.cgroup)
	}
	return len(first)
}

func cgroupProcs(dir string) []int {
	if dir == "" {
		return nil
	}
	raw, err := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
	if err != nil {
		return nil
	}
	var pids []int
	for _, f := range strings.Fields(string(raw)) {
		if pid, err := strconv.Atoi(f); err == nil && pid > 0 {
			pids = append(pids, pid)
		}
	}
	return pids
}

// cgroupName begins the names of sessions' groups.
const cgroupName = "meshmpi-exec-"

// makeCgroup makes a group for a session's command beneath our own in the
// version 2 hierarchy, and returns "" where that is not there or not writable.
// What sessions that were killed have left there goes.
func makeCgroup() string {
	own := ownCgroup()
	if own == "" {
		return ""
	}
	sweepCgroups(own, time.Now().Add(-time.Minute))
	dir, err := os.MkdirTemp(own, cgroupName) // not by process: other PID namespaces have the same numbers
	if err != nil {
		return ""
	}
	return dir
}

// sweepCgroups removes sessions' groups that are empty and older. Those in which there are
// processes stay by themselves.
func sweepCgroups(own string, than time.Time) {
	entries, _ := os.ReadDir(own)
	for _, e := range entries {
		if !e.IsDir() || !strings.HasPrefix(e.Name(), cgroupName) {
			continue
		}
		if info, err := e.Info(); err == nil && info.ModTime().Before(than) {
			_ = syscall.Rmdir(filepath.Join(own, e.Name()))
		}
	}
}

// ownCgroup is the directory of this process's group, "" where there is none.
func ownCgroup() string {
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return ""
	}
	groups, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return ""
	}
	root, own := cgroup2Root(string(mounts)), ""
	for line := range strings.Lines(string(groups)) {
		if rest, ok := strings.CutPrefix(strings.TrimSpace(line), "0::"); ok {
			own = rest
		}
	}
	if root == "" || own == "" || slices.Contains(strings.Split(own, "/"), "..") {
		return ""
	}
	return filepath.Join(root, own)
}

// cgroup2Root finds the mount point of the version 2 hierarchy in the text of
// proc_pid_mountinfo(5): "… root mountpoint options - fstype …".
func cgroup2Root(mountinfo string) string {
	for line := range strings.Lines(mountinfo) {
		left, right, ok := strings.Cut(line, " - ")
		f := strings.Fields(left)
		if ok && strings.HasPrefix(right, "cgroup2 ") && len(f) > 4 && f[3] == "/" {
			return f[4]
		}
	}
	return ""
}

// ReapOrphans waits for every adopted child that has ended, but for those that keep
// reports, whose status belongs to another.
func ReapOrphans(keep func(pid int) bool) {
	for _, p := range zombiesOf(os.Getpid()) {
		if !keep(p) {
			var ws unix.WaitStatus
			unix.Wait4(p, &ws, unix.WNOHANG, nil)
		}
	}
}

func zombiesOf(parent int) []int {
	entries, _ := os.ReadDir("/proc")
	var pids []int
	for _, e := range entries {
		if pid, err := strconv.Atoi(e.Name()); err == nil {
			if p, ok := procOf(pid); ok && p.zombie && p.ppid == parent {
				pids = append(pids, pid)
			}
		}
	}
	return pids
}

// Adopt makes this process the parent of every descendant whose own parent dies. end
// ends every process that descends from it, with SIGTERM and after two seconds SIGKILL,
// and returns how many there were. What descends from it already is not touched, nor
// what descends from that as long as its parents live: a shell that has become this
// process may have had children, as bash -c 'command > >(tee log)' has.
func Adopt() (end func() int, err error) {
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return nil, err
	}
	t := tree{ancestor: os.Getpid()}
	all := processes()
	for _, pid := range t.members() {
		if i := slices.IndexFunc(all, func(p proc) bool { return p.pid == pid }); i >= 0 {
			t.others = append(t.others, all[i])
		}
	}
	return t.end, nil
}
