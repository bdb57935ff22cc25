package lab

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// hostNamespaces are the ones a command enters.
const hostNamespaces = unix.CLONE_NEWNS | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC |
	unix.CLONE_NEWPID | unix.CLONE_NEWNET | unix.CLONE_NEWCGROUP

// errOutside keeps the embedded exec.Cmd from being started by itself.
var errOutside = errors.New("lab: start it by the methods of lab.Cmd: exec.Cmd's own would run it outside the host")

// Cmd is an exec.Cmd that runs inside a host: directly in all its namespaces,
// with no process in between, so that signals, exit codes and pipes are those
// of the program. Its fields are exec.Cmd's. It starts in the caller's working
// directory, which hosts share, in a session of its own, since the scheduler gives
// sessions their shares of the machine (autogroup in sched(7)) and hosts have little
// to do with each other; its process group is killed when the context ends or the
// host goes.
type Cmd struct {
	*exec.Cmd
	host   *Host
	lookup error // exec.Command's verdict on the name
	once   sync.Once
	result error
}

// Command returns a command that will run in the host. The name is looked up in
// the caller's PATH.
func (h *Host) Command(ctx context.Context, name string, args ...string) *Cmd {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir, _ = os.Getwd()
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	cmd.WaitDelay = time.Second // for descendants that keep a pipe open
	cmd.Cancel = func() error { return unix.Kill(-cmd.Process.Pid, unix.SIGKILL) }
	c := &Cmd{Cmd: cmd, host: h, lookup: cmd.Err}
	cmd.Err = errOutside
	return c
}

// Start starts the command. Wait must follow.
func (c *Cmd) Start() error {
	c.Err = c.lookup
	err := c.host.start(c)
	c.Err = errOutside
	if err != nil {
		return fmt.Errorf("lab: start %s on %s: %w", c.Args[0], c.host.Name, err)
	}
	return nil
}

// Wait is exec.Cmd's, and may be called more than once and from many goroutines.
func (c *Cmd) Wait() error {
	c.once.Do(func() {
		c.result = c.Cmd.Wait()
		c.host.forget(c)
	})
	return c.result
}

// Run is Start and Wait.
func (c *Cmd) Run() error {
	if err := c.Start(); err != nil {
		return err
	}
	return c.Wait()
}

// Output runs the command and returns its standard output; that on standard
// error is in the *exec.ExitError, if nobody else takes it.
func (c *Cmd) Output() ([]byte, error) {
	if c.Stdout != nil {
		return nil, errors.New("lab: Stdout already set")
	}
	var stdout, stderr bytes.Buffer
	c.Stdout = &stdout
	if c.Stderr == nil {
		c.Stderr = &stderr
	}
	err := c.Run()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		exit.Stderr = stderr.Bytes()
	}
	return stdout.Bytes(), err
}

// CombinedOutput runs the command and returns what it wrote on both outputs.
func (c *Cmd) CombinedOutput() ([]byte, error) {
	if c.Stdout != nil || c.Stderr != nil {
		return nil, errors.New("lab: Stdout or Stderr already set")
	}
	var out bytes.Buffer
	c.Stdout, c.Stderr = &out, &out
	err := c.Run()
	return out.Bytes(), err
}

// enter moves the calling thread into the namespaces of the process that fd
// (a pidfd) names; its children are born there.
func enter(fd int) error {
	if err := unix.Unshare(unix.CLONE_FS); err != nil {
		return os.NewSyscallError("unshare", err)
	}
	if err := unix.Setns(fd, hostNamespaces); err != nil {
		return os.NewSyscallError("setns", err)
	}
	return nil
}

// start runs c in the host and remembers it until it has been waited for.
func (h *Host) start(c *Cmd) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.pidfd == nil {
		return errors.New("the host is powered off")
	}
	err := onThread(func() error { return enter(int(h.pidfd.Fd())) }, c.Cmd.Start)
	if err == nil {
		h.running = append(h.running, c)
	}
	return err
}

func (h *Host) forget(c *Cmd) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.running = slices.DeleteFunc(h.running, func(x *Cmd) bool { return x == c })
}

// Run runs a program in the host and returns its output, both streams, without
// surrounding white space. An error names the host, the command and the last
// line it wrote.
func (h *Host) Run(ctx context.Context, name string, args ...string) (string, error) {
	out, err := h.Command(ctx, name, args...).CombinedOutput()
	text := strings.TrimSpace(string(out))
	if err != nil {
		err = fmt.Errorf("lab: %s: %s: %w: %s", h.Name, strings.Join(append([]string{name}, args...), " "), err, lastLine(text))
	}
	return text, err
}

// lastLine is the last line of a program's output, where it says why it failed.
func lastLine(text string) string {
	return text[strings.LastIndexByte(text, '\n')+1:]
}
