package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/meshmpi/meshmpi/integration/lab"
)

type shCmd struct {
	Host string `arg:""`
}

func (s shCmd) Run(ctx context.Context, c *cli) error {
	shell := os.Getenv("SHELL")
	if shell == "" {
		shell = "/bin/sh"
	}
	return c.run(ctx, s.Host, []string{shell}, `PS1=\u@`+s.Host+`:\w\$ `)
}

type runCmd struct {
	Host    string   `arg:""`
	Command []string `arg:"" passthrough:"" help:"After --."`
}

func (r runCmd) Run(ctx context.Context, c *cli) error {
	args := r.Command
	if args[0] == "--" {
		args = args[1:]
	}
	if len(args) == 0 {
		return fmt.Errorf("lab: what shall %s run? lab run %s -- COMMAND", r.Host, r.Host)
	}
	return c.run(ctx, r.Host, args)
}

// run runs a command on a host as if it were run here: with this terminal,
// these streams, signals and exit code.
func (c *cli) run(ctx context.Context, host string, args []string, env ...string) error {
	reply, err := c.ask(ctx, lab.Request{Op: "show"}, false)
	if err != nil {
		return err
	}
	pid := reply.PIDs[host]
	if pid == 0 {
		return fmt.Errorf("lab: there is no host %q that is on:\n%s", host, reply.Picture)
	}
	if err := joinUser(pid); err != nil {
		return err
	}
	h, err := lab.Attach(host, pid)
	if err != nil {
		return err
	}
	// Signals are the program's to heed: ctx must not kill it.
	cmd := h.Command(context.WithoutCancel(ctx), args[0], args[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.Env = append(os.Environ(), env...)
	if front, err := unix.IoctlGetInt(0, unix.TIOCGPGRP); err == nil && front == unix.Getpgrp() {
		cmd.SysProcAttr.Setsid, cmd.SysProcAttr.Setpgid, cmd.SysProcAttr.Foreground = false, true, true // within the terminal's session
		defer takeTerminal()
	}
	signals := make(chan os.Signal, 8) // as many as may come in a burst
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGUSR1, syscall.SIGUSR2)
	defer signal.Stop(signals)
	if err := cmd.Start(); err != nil {
		return err
	}
	go func() { // ends with the process, right after Wait
		for s := range signals {
			_ = cmd.Process.Signal(s)
		}
	}()
	return cmd.Wait()
}

// takeTerminal makes this process's group the terminal's foreground again.
func takeTerminal() {
	signal.Ignore(syscall.SIGTTOU)
	_ = unix.IoctlSetPointerInt(0, unix.TIOCSPGRP, unix.Getpgrp())
}

// joinUser moves an ordinary user's process into the user namespace of a lab
// that runs without root, by starting the program again there.
func joinUser(pid int) error {
	theirs, err := os.Readlink("/proc/" + strconv.Itoa(pid) + "/ns/user")
	if err != nil {
		return fmt.Errorf("lab: another user's lab: %w", err)
	}
	if ours, err := os.Readlink("/proc/self/ns/user"); err != nil || ours == theirs || os.Geteuid() == 0 {
		return err
	}
	const nsenter = "/usr/bin/nsenter"
	args := []string{nsenter, "-t", strconv.Itoa(pid), "-U", "--preserve-credentials", "--", "/proc/self/exe"}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	args[len(args)-1] = self // nsenter's /proc/self/exe is nsenter
	return fmt.Errorf("lab: %s (of the package util-linux): %w", nsenter, syscall.Exec(nsenter, slices.Concat(args, os.Args[1:]), os.Environ()))
}
