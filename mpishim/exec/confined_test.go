package exec

import (
	"os"
	osexec "os/exec"
	"strings"
	"syscall"
	"testing"
)

// TestInUserNamespace: where meshd runs without root inside a user namespace of
// its own, commands run as that user and as nobody else. The test runs itself
// again in there.
func TestInUserNamespace(t *testing.T) {
	if os.Getenv("MESH_TEST_CONFINED") != "" {
		if !setgroupsDenied() {
			t.Fatal("this namespace allows setgroups")
		}
		w := newWorld(t, func(c *Config) { c.Policy = func() Policy { return Policy{} } }).serve()
		out, errs, code, err := w.run("id -u", RunOptions{})
		if out != "0\n" || code != 0 || err != nil {
			t.Errorf("got (%q, %q, %d, %v), want user 0", out, errs, code, err)
		}
		if err := (account{name: "bob", uid: 1000, shell: "/bin/sh"}).allowed(Policy{}, true); err == nil || !strings.Contains(err.Error(), "user namespace") {
			t.Errorf("another user: got %v, want a refusal that names the user namespace", err)
		}
		return
	}
	cmd := osexec.Command(os.Args[0], "-test.run=^TestInUserNamespace$", "-test.v")
	cmd.Env = append(os.Environ(), "MESH_TEST_CONFINED=1")
	me := []syscall.SysProcIDMap{{HostID: os.Getuid(), Size: 1}}
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWUSER, UidMappings: me, GidMappings: []syscall.SysProcIDMap{{HostID: os.Getgid(), Size: 1}}}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
