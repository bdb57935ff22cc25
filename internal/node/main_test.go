package node

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// ownHostEnv is set in the process that ownHost starts.
const ownHostEnv = "MESHMPI_NODE_TEST_HOST"

// ownHost runs the test in a process with a network, mounts and a resolver of
// its own, since a daemon changes its host and has goroutines on every thread.
// It returns true there. In the process that go test started it returns false
// when that has ended; the test is over then.
func ownHost(t *testing.T) bool {
	t.Helper()
	if os.Getenv(ownHostEnv) == "" {
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v")
		cmd.Env = append(os.Environ(), ownHostEnv+"=1")
		cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET | syscall.CLONE_NEWNS, Pdeathsig: syscall.SIGKILL}
		out, err := cmd.CombinedOutput()
		if os.Geteuid() != 0 && cmd.ProcessState == nil {
			t.Skipf("a network namespace needs root: %v", err)
		}
		if err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		t.Logf("%s", out)
		return false
	}
	dir := t.TempDir()
	resolv := filepath.Join(dir, "resolv.conf")
	steps := []struct {
		what string
		do   func() error
	}{
		{"private mounts", func() error { return unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, "") }},
		{"an empty /run", func() error { return unix.Mount("none", "/run", "tmpfs", 0, "") }},
		{"a resolver", func() error { return os.WriteFile(resolv, []byte("nameserver 192.0.2.53\n"), 0o644) }},
		{"its file", func() error { return unix.Mount(resolv, "/etc/resolv.conf", "", unix.MS_BIND, "") }},
		{"loopback", func() error { return exec.Command("ip", "link", "set", "lo", "up").Run() }},
	}
	for _, s := range steps {
		if err := s.do(); err != nil {
			t.Fatalf("%s: %v", s.what, err)
		}
	}
	t.Cleanup(func() { _ = unix.Unmount("/etc/resolv.conf", 0) })
	return true
}

// snapshot is what of the host a daemon may touch.
func snapshot(t *testing.T) string {
	t.Helper()
	var b strings.Builder
	for _, c := range []string{
		"ip -o link", "ip -o addr", "ip -4 route show table all", "ip -6 route show table all", "ip -4 rule", "ip -6 rule",
		"nft list ruleset", "cat /etc/resolv.conf", "ss -Hlntu",
	} {
		out, err := exec.Command("sh", "-c", c).CombinedOutput()
		if err != nil {
			t.Fatalf("%s: %v\n%s", c, err, out)
		}
		fmt.Fprintf(&b, "# %s\n%s", c, out)
	}
	return b.String()
}

// must stops the test on an error.
func must[T any](v T, err error) func(testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// wantLine checks that an error is one line with these words.
func wantLine(t *testing.T, err error, want ...string) {
	t.Helper()
	if err == nil {
		t.Errorf("no error; want one with %q", want)
		return
	}
	for _, w := range want {
		if !strings.Contains(err.Error(), w) || strings.Contains(err.Error(), "\n") {
			t.Errorf("error %q; want one line with %q", err, w)
		}
	}
}
