package lab

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Daemon is a program that runs in a host, its output going to a file.
type Daemon struct {
	cmd  *Cmd
	log  string
	done chan struct{}
}

// Start starts a program that runs until it ends by itself, is stopped or
// killed, or its host goes. Its output, both streams, goes to a file in the
// lab's directory.
func (h *Host) Start(name string, args ...string) (*Daemon, error) {
	return h.StartCommand(h.Command(context.Background(), name, args...))
}

// StartCommand is Start for a command that was prepared further, with an
// environment for example. Its Stdout and Stderr must be nil.
func (h *Host) StartCommand(c *Cmd) (*Daemon, error) {
	h.mu.Lock()
	h.daemons++
	n := h.daemons
	h.mu.Unlock()
	log := filepath.Join(h.dir, fmt.Sprintf("%s-%d.log", filepath.Base(c.Args[0]), n))
	f, err := os.OpenFile(log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return nil, fmt.Errorf("lab: log of %s on %s: %w", c.Args[0], h.Name, err)
	}
	defer f.Close()
	c.Stdout, c.Stderr = f, f
	if err := c.Start(); err != nil {
		return nil, err
	}
	d := &Daemon{cmd: c, log: log, done: make(chan struct{})}
	go func() { // ends with the program
		defer close(d.done)
		_ = c.Wait()
	}()
	return d, nil
}

// Log returns everything the program has written so far.
func (d *Daemon) Log() string {
	text, err := os.ReadFile(d.log)
	if err != nil {
		return err.Error()
	}
	return string(text)
}

// LogPath returns the file it writes to.
func (d *Daemon) LogPath() string { return d.log }

// Await returns when the program has written text, or with an error when it has
// ended without, or ctx has.
func (d *Daemon) Await(ctx context.Context, text string) error {
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-d.done:
			if strings.Contains(d.Log(), text) {
				return nil
			}
			return fmt.Errorf("lab: %s ended (%v) without %q: %s", d.name(), d.cmd.ProcessState, text, lastLine(strings.TrimSpace(d.Log())))
		case <-ctx.Done():
			return fmt.Errorf("lab: %s has not written %q: %w; its log is %s", d.name(), text, ctx.Err(), d.log)
		case <-tick.C:
			if strings.Contains(d.Log(), text) {
				return nil
			}
		}
	}
}

func (d *Daemon) name() string { return d.cmd.Args[0] + " on " + d.cmd.host.Name }

// Done is closed when the program has ended.
func (d *Daemon) Done() <-chan struct{} { return d.done }

// Wait returns when the program has ended, with exec.Cmd's error.
func (d *Daemon) Wait() error {
	<-d.done
	return d.cmd.Wait()
}

// Signal sends a signal to the program alone.
func (d *Daemon) Signal(s syscall.Signal) error {
	if err := d.cmd.Process.Signal(s); err != nil {
		return fmt.Errorf("lab: signal %s: %w", d.name(), err)
	}
	return nil
}

// Kill kills the program and its process group (SIGKILL) and returns when it
// is gone.
func (d *Daemon) Kill() {
	select {
	case <-d.done:
	default:
		_ = unix.Kill(-d.cmd.Process.Pid, unix.SIGKILL)
		<-d.done
	}
}

// Stop asks the program to end (SIGTERM) and waits for it; when ctx ends first
// it is killed and the error says so. A program that ends with an exit code
// other than 0 is an error too.
func (d *Daemon) Stop(ctx context.Context) error {
	select {
	case <-d.done:
		return d.Wait()
	default:
	}
	_ = d.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-d.done:
		return d.Wait()
	case <-ctx.Done():
		d.Kill()
		return fmt.Errorf("lab: %s ignored SIGTERM and was killed: %w; its log is %s", d.name(), ctx.Err(), d.log)
	}
}
