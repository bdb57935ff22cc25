package exec

import (
	"fmt"
	"os"
	osexec "os/exec"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// tellNice prints the nice value of who runs it.
const tellNice = `cut -d ' ' -f 19 /proc/self/stat`

// hurried runs f on a thread with the nice value of a daemon.
func hurried(t *testing.T, f func()) {
	t.Helper()
	runtime.LockOSThread()
	own, err := unix.Getpriority(unix.PRIO_PROCESS, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Setpriority(unix.PRIO_PROCESS, 0, -20); err != nil {
		t.Skipf("precedence needs root: %v", err)
	}
	defer func() {
		if err := unix.Setpriority(unix.PRIO_PROCESS, 0, 20-own); err != nil {
			t.Error(err) // the thread ends with the test
			return
		}
		runtime.UnlockOSThread()
	}()
	f()
}

// TestStartNice: a command has the nice value that is said, and the thread that
// starts it keeps its own.
func TestStartNice(t *testing.T) {
	for _, nice := range []int{-20, 0, 7} {
		var out strings.Builder
		cmd := osexec.Command("sh", "-c", tellNice)
		cmd.Stdout = &out
		hurried(t, func() {
			if err := startNice(cmd, nice); err != nil {
				t.Fatal(err)
			}
			if own, err := unix.Getpriority(unix.PRIO_PROCESS, 0); own != 40 || err != nil {
				t.Errorf("after starting with nice %d the thread has nice %d, %v; want -20", nice, 20-own, err)
			}
		})
		if err := cmd.Wait(); err != nil || strings.TrimSpace(out.String()) != fmt.Sprint(nice) {
			t.Errorf("nice %d: the command has %q, %v", nice, out.String(), err)
		}
	}
}

// TestSessionsAreOrdinary: what a session runs has no precedence although the daemon
// has.
func TestSessionsAreOrdinary(t *testing.T) {
	w := newWorld(t, nil)
	var daemon *osexec.Cmd
	hurried(t, func() { daemon = w.daemon() })
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", daemon.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	if f := strings.Fields(string(stat)); f[18] != "-20" { // its name has no spaces
		t.Fatalf("the daemon has nice %s, want -20", f[18])
	}
	for what, command := range map[string]string{
		"the command":                tellNice,
		"what it starts":             `sh -c "` + tellNice + `; true"`,
		"the process of the session": `cut -d ' ' -f 19 /proc/$PPID/stat`,
	} {
		if out, _, code, err := w.run(command, RunOptions{}); out != "0\n" || code != 0 || err != nil {
			t.Errorf("%s has nice %q (code %d, %v), want 0", what, out, code, err)
		}
	}
}
