package lab

import (
	"fmt"
	"os"
	"runtime"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/meshmpi/meshmpi/integration/wan"
)

// TestEmulatorsPrecede: no thread of the emulators' process waits for ordinary programs, nor
// does one that began since.
func TestEmulatorsPrecede(t *testing.T) {
	attr := unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_FIFO, Priority: wan.Priority, Flags: unix.SCHED_FLAG_RESET_ON_FORK}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	was, err := unix.SchedGetAttr(0, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.SchedSetAttr(0, &attr, 0); err != nil {
		t.Skipf("SKIP: this host allows no real-time priority (%v): the emulators may stand still beside busy programs", err)
	}
	if err := unix.SchedSetAttr(0, was, 0); err != nil {
		t.Fatal(err)
	}
	l := Start(t, Config{Sites: []Site{{Name: "near", Hosts: []string{"h1"}}, {Name: "far", Hosts: []string{"h2"}}}})
	for _, site := range []string{"near", "far"} { // each emulator begins a thread
		if err := l.SetWAN(site, wan.Symmetric(wan.Pipe{Delay: time.Millisecond})); err != nil {
			t.Fatal(err)
		}
	}
	threads, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", l.wan.cmd.Process.Pid))
	if err != nil || len(threads) < 3 {
		t.Fatalf("%d threads, %v", len(threads), err)
	}
	for _, thread := range threads {
		id, err := strconv.Atoi(thread.Name())
		if err != nil {
			t.Fatal(err)
		}
		got, err := unix.SchedGetAttr(id, 0)
		if err == unix.ESRCH {
			continue
		}
		if err != nil || got.Policy != unix.SCHED_FIFO || got.Priority != wan.Priority {
			t.Errorf("thread %d: %+v, %v", id, got, err)
		}
	}
}
