package mpishim

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/netip"
	"os"
	osexec "os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/meshmpi/meshmpi/mpishim/exec"
)

// RankArg makes meshrun the parent of one rank: a hidden mode. Its remaining
// arguments are the program and the program's own.
const RankArg = "_rank"

// staged begins a program that Stage has copied: the rest is HASH/NAME.
const staged = "meshrun-staged:"

// deathMark begins the one line that says how a rank ended.
const deathMark = "meshrun: rank "

// secretMark is deathMark on its way to meshrun, which makes it that: what a rank prints
// is not its end.
func secretMark(secret string) string { return "meshrun-" + secret + ": rank " }

// jobSecret is that of secretMark, which the program is not to know.
var jobSecret = sync.OnceValue(func() string {
	secret := os.Getenv(varSecret)
	os.Unsetenv(varSecret)
	return secret
})

// RunRank runs a program as a rank and returns the exit code, 128+n for signal
// n, after one line on standard error where that is not zero. Standard input,
// descriptors, terminal and process group are the program's as if the launcher
// had started it, and output too where the launcher carries it. A launcher signals
// process groups, so what this process gets the program has got too; only where
// it leads no group of its own does it pass signals on. It never outlives its parent.
func RunRank(args []string) int {
	if len(args) == 0 {
		fmt.Fprintln(os.Stderr, "meshrun: no program for a rank")
		return CodeFailed
	}
	runtime.LockOSThread() // the death signal is tied to the thread that starts the child
	defer runtime.UnlockOSThread()
	say := rankSay{rankLabel(), os.Stderr}
	jobSecret()
	out, err := dialOutput()
	if err != nil {
		return say.end(CodeFailed, err.Error())
	}
	if out != nil {
		defer out.close()
		say.to = out
	}
	if err := prepareRank(); err != nil {
		return say.end(CodeFailed, err.Error())
	}
	for _, note := range addLibraries() {
		fmt.Fprintln(say.to, note)
	}
	path, err := rankProgram(args[0], os.Getenv("PATH"))
	if err != nil {
		code, what := cannotRun(err)
		return say.end(code, fmt.Sprintf("%s: %s", what, args[0]))
	}
	if strings.HasPrefix(args[0], staged) {
		args[0] = path
	}
	cmd := osexec.Cmd{
		Path: path, Args: args, Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr,
		SysProcAttr: &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL},
	}
	if out != nil {
		if err := out.attach(&cmd); err != nil {
			return say.end(CodeFailed, err.Error())
		}
	}
	signals := make(chan os.Signal, 16) // signals come singly; a burst may be merged as the kernel does
	signal.Notify(signals, exec.Heeded(syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGUSR1, syscall.SIGUSR2)...)
	if err := cmd.Start(); err != nil {
		code, what := cannotRun(err)
		return say.end(code, fmt.Sprintf("%s: %s", what, args[0]))
	}
	watchParent(func() { cmd.Process.Kill(); os.Exit(CodeFailed) })
	told, tell := make(chan struct{}), sync.Once{}
	forward := unix.Getpgrp() != os.Getpid()
	go func() { // ends with the process
		for sig := range signals {
			if sig == syscall.SIGTERM || sig == syscall.SIGINT {
				tell.Do(func() { close(told) })
			}
			if forward {
				cmd.Process.Signal(sig)
			}
		}
	}()
	if out != nil {
		out.begin()
	}
	err = cmd.Wait()
	if out != nil {
		out.end()
	}
	return say.status(err, told)
}

// watchParent calls gone when the launcher's process that started us ends. What runs in
// its session ends with that; on the user's own node there is none. The kernel's death
// signal is no good for it: it is for the end of a thread, and mpirun starts many ranks
// by threads that it has done with.
func watchParent(gone func()) {
	parent := os.Getppid()
	fd, err := unix.PidfdOpen(parent, 0)
	if err != nil {
		return // of an older kernel: as without it
	}
	if os.Getppid() != parent {
		gone()
	}
	go func() { // ends with the process
		for {
			n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, -1)
			if n > 0 {
				gone()
			}
			if !errors.Is(err, unix.EINTR) {
				return
			}
		}
	}()
}

// rankSay says how a rank ended.
type rankSay struct {
	label string
	to    io.Writer
}

// end says it, and returns the code.
func (s rankSay) end(code int, what string) int {
	fmt.Fprintf(s.to, "%s%s %s\n", secretMark(jobSecret()), s.label, what) // one write: launchers keep it whole
	return code
}

// heedTime is how long a signal to the process group may take to reach this process
// when it has ended the program.
const heedTime = 200 * time.Millisecond

// status turns the program's end into our exit code. A rank that was told to
// end is not worth a line: another one is the reason.
func (s rankSay) status(err error, told <-chan struct{}) int {
	var exit *osexec.ExitError
	if !errors.As(err, &exit) {
		if err != nil {
			return s.end(CodeFailed, err.Error())
		}
		return 0
	}
	ws := exit.Sys().(syscall.WaitStatus)
	code, what := wordStatus(ws)
	if sig := ws.Signal(); sig == syscall.SIGTERM || sig == syscall.SIGINT { // else others may end us before we have said it
		select {
		case <-told:
		case <-time.After(heedTime):
		}
	}
	select {
	case <-told:
		return code
	default:
		return s.end(code, what)
	}
}

// wordStatus returns the exit code, 128+n for signal n, and how to say it.
func wordStatus(ws syscall.WaitStatus) (code int, what string) {
	if !ws.Signaled() {
		if ws.ExitStatus() == 0 {
			return 0, ""
		}
		return ws.ExitStatus(), fmt.Sprintf("exited with code %d", ws.ExitStatus())
	}
	what = fmt.Sprintf("was killed by signal %d (%s)", int(ws.Signal()), unix.SignalName(ws.Signal()))
	if ws.CoreDump() {
		what += ", core dumped"
	}
	return 128 + int(ws.Signal()), what
}

// rankNumber is the rank as the launcher says it, "" if it does not.
func rankNumber() string {
	for _, name := range []string{"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "SLURM_PROCID"} {
		if v := os.Getenv(name); v != "" {
			return v
		}
	}
	return ""
}

// rankLabel is "2 on b1".
func rankLabel() string {
	rank := rankNumber()
	if rank == "" {
		rank = "?"
	}
	node := os.Getenv(varNode)
	if node == "" {
		node, _, _ = strings.Cut(os.Getenv(varLocal), "/")
	}
	return rank + " on " + node
}

// prepareRank sets what differs from node to node.
func prepareRank() error {
	if os.Getenv(varNode) == "" { // started by the launcher itself, on the user's node
		node, site, _ := strings.Cut(os.Getenv(varLocal), "/")
		os.Setenv(varNode, node)
		os.Setenv(varSite, site)
	}
	if name := interfaceIn(os.Getenv(varCIDR)); name != "" {
		for _, v := range []string{"UCX_NET_DEVICES", "FI_TCP_IFACE"} {
			if os.Getenv(v) != "" {
				os.Setenv(v, name)
			}
		}
	}
	dir := os.Getenv(varWdir)
	if dir == "" {
		return nil
	}
	if err := os.Chdir(dir); err != nil {
		if os.Getenv(varMust) != "" {
			return fmt.Errorf("cannot change to the working directory %s: %w", dir, errors.Unwrap(err))
		}
		if dir = os.Getenv("HOME"); os.Chdir(dir) != nil {
			dir = "/"
		}
	}
	os.Setenv("PWD", dir)
	return nil
}

// interfaceIn returns the interface that has an address in cidr, or "".
func interfaceIn(cidr string) string {
	prefix, err := netip.ParsePrefix(cidr)
	if err != nil {
		return ""
	}
	all, _ := net.Interfaces()
	for _, i := range all {
		addrs, _ := i.Addrs()
		for _, a := range addrs {
			if p, err := netip.ParsePrefix(a.String()); err == nil && prefix.Contains(p.Addr().Unmap()) {
				return i.Name
			}
		}
	}
	return ""
}

// rankProgram finds the program here; a name alone in the directories of path.
func rankProgram(prog, path string) (string, error) {
	if rest, ok := strings.CutPrefix(prog, staged); ok {
		dir, err := stageDir()
		if err != nil {
			return "", err
		}
		return osexec.LookPath(filepath.Join(dir, rest))
	}
	return lookPath(prog, path)
}

// cannotRun tells programs that do not exist from those that cannot be executed.
func cannotRun(err error) (int, string) {
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, osexec.ErrNotFound) {
		return CodeNotFound, "found no program"
	}
	if errors.Is(err, syscall.ENOEXEC) {
		return CodeCannotRun, "cannot execute (wrong format, or no #! line)"
	}
	return CodeCannotRun, "cannot execute"
}
