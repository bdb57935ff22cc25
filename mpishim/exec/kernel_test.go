package exec

import (
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/meshmpi/meshmpi/internal/eventually"
	"golang.org/x/sys/unix"
)

// isolate gives the test's thread, and the processes it starts, a network and a
// mount table of their own. The thread is never given back.
func isolate(t *testing.T) {
	t.Helper()
	runtime.LockOSThread()
	if err := unix.Unshare(unix.CLONE_NEWNET | unix.CLONE_NEWNS); err != nil {
		t.Skipf("own namespaces need root: %v", err)
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		t.Fatal(err)
	}
}

// setLoopback takes the loopback interface of the thread's namespace up or down.
func setLoopback(t *testing.T, fd int, up bool) {
	t.Helper()
	req, err := unix.NewIfreq("lo")
	if err != nil {
		t.Fatal(err)
	}
	if up {
		req.SetUint16(unix.IFF_UP)
	}
	if err := unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, req); err != nil {
		t.Fatal(err)
	}
}

// TestSilenceEndsBothSides cuts the wire without a word, on an idle connection
// and on one with data in flight.
func TestSilenceEndsBothSides(t *testing.T) {
	for name, command := range map[string]string{
		"idle": `echo $$; trap "" TERM; while :; do sleep 1; done`,
		"busy": `echo $$; trap "" TERM; while :; do echo .; sleep 0.01; done`,
	} {
		t.Run(name, func(t *testing.T) {
			isolate(t)
			sock, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
			if err != nil {
				t.Fatal(err)
			}
			defer unix.Close(sock)
			setLoopback(t, sock, true)
			w := newWorld(t, func(c *Config) { c.Silence = 4 * time.Second })
			w.daemon()
			line, done := w.beganIn(command, 4*time.Second)
			pid, err := strconv.Atoi(line)
			if err != nil {
				t.Fatalf("got %q", line)
			}
			setLoopback(t, sock, false)
			start := time.Now()
			eventually.Holds(t, "the session's command is gone", func() bool { return !exists(pid) })
			if got := time.Since(start); got < 2*time.Second || got > 15*time.Second {
				t.Errorf("the command ended after %v, want about 4 s and 2 s of grace", got)
			}
			if got := <-done; got.code != CodeFailed || got.err == nil {
				t.Errorf("client: got %+v", got)
			}
		})
	}
}

func TestUserSwitch(t *testing.T) {
	isolate(t)
	passwd, err := os.ReadFile("/etc/passwd")
	if err != nil {
		t.Fatal(err)
	}
	file, home := t.TempDir()+"/passwd", t.TempDir()
	if err := os.WriteFile(file, []byte(string(passwd)+"mpitest:x:4242:4243::"+home+":/bin/sh\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount(file, "/etc/passwd", "", unix.MS_BIND, ""); err != nil {
		t.Fatal(err)
	}
	w := newWorld(t, nil)
	cfg := sessionConfig{Caller: Caller{Node: "a", Site: "alpha", User: "root"}, Node: "b", StateDir: w.dir}
	s := &session{cfg: cfg, caller: cfg.Caller, login: "root"}
	s.cfg.Policy = Policy{Map: []Rule{{Site: "alpha", User: "root", To: "mpitest"}}}
	if s.account, err = admit(t.Context(), s.cfg.Policy, s.caller, s.login); err != nil {
		t.Fatal(err)
	}
	c := &command{s: s}
	files, err := c.run(s.account, "id -u; id -g; id -G; echo $HOME; umask >/dev/null; cat /etc/shadow", nil)
	if err != nil {
		t.Fatal(err)
	}
	files[0].Close()
	out := make([]byte, 4096)
	n, _ := files[1].Read(out)
	for n < len(out) {
		m, err := files[1].Read(out[n:])
		if n += m; err != nil {
			break
		}
	}
	if err := c.cmd.Wait(); err == nil {
		t.Error("the user read /etc/shadow")
	}
	if got, want := string(out[:n]), "4242\n4243\n4243\n"+home+"\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	files[1].Close()
	files[2].Close()
}

func TestParseStat(t *testing.T) {
	line := "12 (a) b (c) S 3 4 5 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 98765 1 2"
	got, ok := parseStat([]byte(line))
	if want := (proc{pid: 12, ppid: 3, sid: 5, start: 98765}); !ok || got != want {
		t.Errorf("got %+v, %v, want %+v", got, ok, want)
	}
	me, ok := procOf(os.Getpid())
	if !ok || me.ppid != os.Getppid() {
		t.Errorf("own process: got %+v, %v", me, ok)
	}
}

func TestCgroup2Root(t *testing.T) {
	text := "29 1 0:26 / /sys/fs/cgroup rw - tmpfs tmpfs rw\n30 29 0:27 / /sys/fs/cgroup/unified rw,relatime shared:9 - cgroup2 cgroup2 rw\n"
	if got, want := cgroup2Root(text), "/sys/fs/cgroup/unified"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if got := cgroup2Root(strings.ReplaceAll(text, "cgroup2", "cgroup")); got != "" {
		t.Errorf("without version 2: got %q", got)
	}
}

// TestCgroupsOfTheKilledGo: what was left empty long ago goes when the next group is made,
// what is new or in use stays.
func TestCgroupsOfTheKilledGo(t *testing.T) {
	own := ownCgroup()
	if own == "" {
		t.Skip("there is no version 2 hierarchy here")
	}
	group := func() string {
		dir, err := os.MkdirTemp(own, cgroupName)
		if err != nil {
			t.Skipf("groups cannot be made here: %v", err)
		}
		t.Cleanup(func() { os.Remove(dir) })
		return dir
	}
	left, fresh, used := group(), group(), group()
	long := time.Now().Add(-time.Hour)
	for _, dir := range []string{left, used} {
		if err := os.Chtimes(dir, long, long); err != nil {
			t.Fatal(err)
		}
	}
	sleep := exec.Command("sleep", "60")
	fd, err := os.Open(used)
	if err != nil {
		t.Fatal(err)
	}
	defer fd.Close()
	sleep.SysProcAttr = &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: int(fd.Fd())}
	if err := sleep.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { sleep.Process.Kill(); sleep.Wait() })

	made := makeCgroup()
	if made == "" {
		t.Fatal("no group was made")
	}
	t.Cleanup(func() { os.Remove(made) })
	for dir, want := range map[string]bool{left: false, fresh: true, used: true, made: true} {
		if _, err := os.Stat(dir); (err == nil) != want {
			t.Errorf("%s: is there: %v, want %v", dir, err == nil, want)
		}
	}
}
