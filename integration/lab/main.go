package lab

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// The names under which this program starts itself again.
const (
	roleHost = "meshmpi-lab-host"
	roleWAN  = "meshmpi-lab-wan"
)

// envRootless marks a process that Main has moved into a user namespace.
const envRootless = "MESHMPI_LAB_ROOTLESS"

// envRole marks a process that plays a role, so that one whose program forgot
// to call Main cannot build labs without end.
const envRole = "MESHMPI_LAB_ROLE"

// Main must be called first thing in main or TestMain of every program that
// builds a lab: the lab starts the program again for its hosts and emulators
// (see [PlayRole]).
//
// Without the privilege to make namespaces, Main starts the program again
// inside a user namespace of its own, passes its input, output, signals and
// exit code on, and does not return. Where the system forbids that, Main
// returns and New says so.
func Main() {
	PlayRole()
	if !privileged() && os.Getenv(envRootless) == "" {
		rootless()
	}
}

// PlayRole does not return if the lab has started this process to be a host's
// first process or to run emulators. A program that builds labs in some of its
// commands only calls it first thing, and Main when it knows.
func PlayRole() {
	switch os.Args[0] {
	case roleHost:
		exit(playHost())
	case roleWAN:
		exit(playWAN())
	}
}

func exit(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// role returns the command that starts this program in a role. It ends when its
// standard input does, hence with this process.
func role(name string) *exec.Cmd {
	cmd := exec.Command("/proc/self/exe")
	// A test binary that forgot Main runs no tests, and so ends.
	cmd.Args = []string{name, "-test.run=^$"}
	// Built with the race detector it would linger for a second at its end.
	cmd.Env = append(os.Environ(), envRole+"="+name, "GORACE=atexit_sleep_ms=0 "+os.Getenv("GORACE"))
	return cmd
}

// privileged reports whether this thread may make namespaces (CAP_SYS_ADMIN).
func privileged() bool {
	hdr := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	return unix.Capget(&hdr, &data[0]) == nil && data[0].Effective&(1<<unix.CAP_SYS_ADMIN) != 0
}

// rootless runs the program again as root of a new user namespace. It returns
// only if that is not possible.
func rootless() {
	runtime.LockOSThread() // Pdeathsig is about the thread
	defer runtime.UnlockOSThread()
	cmd := exec.Command("/proc/self/exe", os.Args[1:]...)
	cmd.Args[0] = os.Args[0]
	cmd.Env = append(os.Environ(), envRootless+"=1")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}},
		Pdeathsig:   syscall.SIGKILL,
	}
	// A terminal's interrupt reaches the child twice, which does no harm.
	signals := make(chan os.Signal, 8) // as many as may come in a burst
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT)
	if cmd.Start() != nil {
		signal.Stop(signals)
		return
	}
	go func() { // ends with the process, right after Wait
		for s := range signals {
			_ = cmd.Process.Signal(s)
		}
	}()
	_ = cmd.Wait()
	if st, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); ok && st.Signaled() {
		os.Exit(128 + int(st.Signal()))
	}
	os.Exit(cmd.ProcessState.ExitCode())
}

// explainPermission turns a refusal to make namespaces into one that says what to do.
func explainPermission(err error) error {
	if !errors.Is(err, unix.EPERM) && !errors.Is(err, unix.ENOSPC) || privileged() {
		return err
	}
	remedy := "run as root (CAP_SYS_ADMIN), or call lab.Main first where user namespaces are allowed"
	for _, knob := range [...]struct{ path, bad string }{
		{"/proc/sys/user/max_user_namespaces", "0"},
		{"/proc/sys/kernel/unprivileged_userns_clone", "0"},
		{"/proc/sys/kernel/apparmor_restrict_unprivileged_userns", "1"},
	} {
		if v, rerr := os.ReadFile(knob.path); rerr == nil && strings.TrimSpace(string(v)) == knob.bad {
			remedy = fmt.Sprintf("run as root (CAP_SYS_ADMIN): %s = %s forbids user namespaces", knob.path, knob.bad)
		}
	}
	return fmt.Errorf("%w: %s", err, remedy)
}
