package exec

import (
	"os"
	osexec "os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/meshmpi/meshmpi/internal/eventually"
)

// TestAdoptSparesOthers: at its end a process ends what it has started, and not what it
// had when it became what it is.
func TestAdoptSparesOthers(t *testing.T) {
	if os.Getenv("ADOPT_TEST") == "" {
		exe, err := os.Executable()
		if err != nil {
			t.Fatal(err)
		}
		cmd := osexec.Command("/bin/sh", "-c", `sleep 3210 & echo $!; exec "$0" -test.run='^TestAdoptSparesOthers$'`, exe)
		cmd.Env = append(os.Environ(), "ADOPT_TEST=1")
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		return
	}
	before := processes()
	end, err := Adopt()
	if err != nil {
		t.Fatal(err)
	}
	own := osexec.Command("/bin/sh", "-c", "sleep 3211 & sleep 3211")
	if err := own.Start(); err != nil {
		t.Fatal(err)
	}
	go own.Wait()
	eventually.Holds(t, "its children", func() bool { return len(sleepers("3211")) == 2 })
	end()
	if left := sleepers("3211"); len(left) > 0 {
		t.Errorf("%d of its own are left", len(left))
	}
	mine := 0
	for _, pid := range sleepers("3210") {
		for _, p := range before {
			if p.pid == pid && p.ppid == os.Getpid() {
				mine++
				syscall.Kill(pid, syscall.SIGKILL)
			}
		}
	}
	if mine != 1 {
		t.Errorf("%d of the shell's are left, want 1", mine)
	}
}

// sleepers are the processes that sleep for so long.
func sleepers(seconds string) (pids []int) {
	for _, p := range processes() {
		line, _ := os.ReadFile("/proc/" + strconv.Itoa(p.pid) + "/cmdline")
		if strings.TrimRight(string(line), "\x00") == "sleep\x00"+seconds {
			pids = append(pids, p.pid)
		}
	}
	return pids
}
