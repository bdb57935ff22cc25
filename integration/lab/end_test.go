package lab_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/meshmpi/meshmpi/integration/lab"
	"github.com/meshmpi/meshmpi/integration/wan"
)

// envVictim makes this test binary a program that builds a lab, says what it
// has made, and waits to be killed.
const envVictim = "MESHMPI_LAB_TEST_VICTIM"

// made is what a victim says.
type made struct {
	Err    string
	Spaces []string // of its hosts, routers and wires: net:[4026532000] …
	Hosts  string   // the host names that hosts told
	Ping   string
}

func victim() {
	m, err := makeLab()
	if err != nil {
		m.Err = err.Error()
	}
	_ = json.NewEncoder(os.Stdout).Encode(m)
	_, _ = io.Copy(io.Discard, os.Stdin)
}

func makeLab() (m made, err error) {
	ctx := context.Background()
	cfg := lab.TwoSites(lab.PortPreserving).WithWAN(wan.Symmetric(wan.Pipe{Delay: time.Millisecond}), "alpha")
	cfg.Dir = os.Getenv(envVictim)
	l, err := lab.New(ctx, cfg)
	if err != nil {
		return m, err
	}
	spaces := map[string]bool{}
	for _, h := range l.Hosts() {
		name, err := h.Run(ctx, "hostname")
		if err != nil {
			return m, err
		}
		m.Hosts += name + " "
		if _, err := h.Start("sh", "-c", "setsid sleep 1000 & sleep 1000"); err != nil {
			return m, err
		}
		for _, kind := range []string{"net", "pid", "mnt", "uts", "ipc", "cgroup"} {
			s, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/%s", h.PID(), kind))
			if err != nil {
				return m, err
			}
			spaces[s] = true
		}
	}
	m.Ping, err = l.Host("a1").Run(ctx, "ping", "-c1", "-W2", l.Host("hub").Addr4.String())
	if err != nil {
		return m, err
	}
	fds, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return m, err
	}
	for _, fd := range fds {
		if s, _ := os.Readlink("/proc/self/fd/" + fd.Name()); strings.HasPrefix(s, "net:[") {
			spaces[s] = true
		}
	}
	m.Spaces = slices.Sorted(maps.Keys(spaces))
	return m, nil
}

// startVictim starts one, as the given user if attr says so.
func startVictim(t *testing.T, attr *syscall.SysProcAttr) (*exec.Cmd, made) {
	t.Helper()
	lab.Need(t, "nft", "ping")
	self, err := os.Open("/proc/self/exe") // whose path another user may not walk
	if err != nil {
		t.Fatal(err)
	}
	defer self.Close()
	dir, err := os.MkdirTemp("", "lab-victim-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if attr != nil && attr.Credential != nil {
		if err := os.Chown(dir, int(attr.Credential.Uid), int(attr.Credential.Gid)); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.Command("/proc/self/fd/3")
	cmd.ExtraFiles = []*os.File{self}
	cmd.Env = append(os.Environ(), envVictim+"="+dir, "GORACE=atexit_sleep_ms=0")
	cmd.SysProcAttr = attr
	cmd.Stderr = t.Output()
	cmd.WaitDelay = time.Second
	if _, err := cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	var m made
	line, err := bufio.NewReader(out).ReadBytes('\n')
	if err == nil {
		err = json.Unmarshal(line, &m)
	}
	if err != nil {
		t.Fatalf("the victim said %q: %v", line, err)
	}
	return cmd, m
}

// holders returns what keeps any of the namespaces alive: processes in them,
// open files, mounts.
func holders(spaces []string) (found []string) {
	procs, _ := os.ReadDir("/proc")
	for _, p := range procs {
		// What has ended and waits for the machine's process 1 to reap it keeps
		// its number, and nothing else.
		if _, err := os.Readlink(filepath.Join("/proc", p.Name(), "ns/net")); err != nil {
			continue
		}
		for _, kind := range []string{"ns", "fd"} {
			dir := filepath.Join("/proc", p.Name(), kind)
			files, _ := os.ReadDir(dir) // none if it is no process, or has ended
			for _, f := range files {
				if s, err := os.Readlink(filepath.Join(dir, f.Name())); err == nil && slices.Contains(spaces, s) {
					found = append(found, dir+" "+s)
				}
			}
		}
	}
	mounts, _ := os.ReadFile("/proc/self/mountinfo")
	for _, s := range spaces {
		if strings.Contains(string(mounts), s) {
			found = append(found, "a mount of "+s)
		}
	}
	return found
}

func linkNames(t *testing.T) (names []string) {
	t.Helper()
	links, err := net.Interfaces()
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range links {
		names = append(names, l.Name)
	}
	return names
}

// wantGone fails the test unless nothing holds the namespaces within some seconds.
func wantGone(t *testing.T, spaces []string) {
	t.Helper()
	var left []string
	for deadline := time.Now().Add(10 * time.Second); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		if left = holders(spaces); len(left) == 0 {
			return
		}
	}
	t.Errorf("left behind: %v", left)
}

func TestNothingIsLeftWhenTheCreatorIsKilled(t *testing.T) {
	before := linkNames(t)
	cmd, m := startVictim(t, nil)
	if m.Err != "" {
		t.Fatal(m.Err)
	}
	if n := len(holders(m.Spaces)); n < 5*3 {
		t.Fatalf("only %d holders of %d namespaces were found while the lab ran", n, len(m.Spaces))
	}
	if during := linkNames(t); !slices.Equal(before, during) {
		t.Errorf("the machine's links were %v and are %v", before, during)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	wantGone(t, m.Spaces)
	if after := linkNames(t); !slices.Equal(before, after) {
		t.Errorf("the machine's links were %v and are %v", before, after)
	}
}

func TestRootless(t *testing.T) {
	if n, err := os.ReadFile("/proc/self/uid_map"); err != nil || len(strings.Fields(string(n))) != 3 || strings.Fields(string(n))[2] == "1" {
		t.Skip("this test runs without root itself, as all others of the package then do")
	}
	const uid = 1000
	cmd, m := startVictim(t, &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}})
	if strings.Contains(m.Err, "forbids user namespaces") {
		t.Skip(m.Err)
	}
	if m.Err != "" {
		t.Fatal(m.Err)
	}
	if m.Hosts != "hub a1 a2 b1 b2 " || !strings.Contains(m.Ping, "1 received") {
		t.Errorf("hosts %q, ping: %s", m.Hosts, m.Ping)
	}
	status, err := os.ReadFile("/proc/" + strconv.Itoa(cmd.Process.Pid) + "/status")
	if err != nil || !strings.Contains(string(status), fmt.Sprintf("Uid:\t%d\t%d", uid, uid)) {
		t.Errorf("the lab does not run as user %d: %v", uid, err)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	wantGone(t, m.Spaces)
}

func TestControl(t *testing.T) {
	l := lab.Start(t, lab.OneLAN())
	ctx, cancel := context.WithCancel(soon(t))
	name := fmt.Sprintf("test-%d", os.Getpid())
	served := make(chan error, 1)
	go func() { served <- l.Serve(ctx, name) }() // ends at cancel
	defer func() {
		cancel()
		if err := <-served; err != nil {
			t.Error(err)
		}
	}()
	var reply lab.Reply
	var err error
	for range 200 { // until Serve listens
		if reply, err = lab.Ask(ctx, name, lab.Request{Op: "show"}); err == nil {
			break
		}
		time.Sleep(5 * time.Millisecond)
	}
	if err != nil || !strings.Contains(reply.Picture, "a2") || reply.PIDs["a1"] != l.Host("a1").PID() {
		t.Fatalf("show: %+v, %v", reply, err)
	}
	a1, err := lab.Attach("a1", reply.PIDs["a1"])
	if err != nil {
		t.Fatal(err)
	}
	if got := run(t, a1, "hostname"); got != "a1" {
		t.Errorf("the attached host is called %q", got)
	}
	if err := l.Serve(ctx, name); err == nil || !strings.Contains(err.Error(), name) {
		t.Errorf("a second lab of the same name: %v", err)
	}
	if _, err := lab.Ask(ctx, name, lab.Request{Op: "off", Host: "zz"}); err == nil {
		t.Error("there is no host zz, but it was switched off")
	}
}
