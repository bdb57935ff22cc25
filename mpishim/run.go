package mpishim

import (
	"context"
	"errors"
	"io"
	"os"
	osexec "os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/meshmpi/meshmpi/mpishim/exec"
)

// Streams is what a job is connected to.
type Streams struct {
	Stdin    *os.File
	Out, Err io.Writer
	Signals  <-chan os.Signal // passed on to the launcher; INT and TERM end the job
}

// How long a launcher may take to end a job, by asking and by force.
const (
	afterDeath  = 3 * time.Second
	afterSignal = 8 * time.Second
)

// Run starts the planned job and returns its exit code once nothing of it is
// left on this node; other nodes end theirs with their connections. The code is
// the program's own: the first rank's that died, 128+n where signal n ended the
// rank or the job. err says that the launcher itself failed. Run adopts orphans,
// so it must be the only thing that the process does.
func Run(ctx context.Context, p Plan, s Streams) (code int, err error) {
	if _, err := osexec.LookPath(filepath.Join(p.Overlay.BinDir, agent)); err != nil { // Hydra would wait for ever
		return CodeFailed, failf(CodeFailed, "no %s in %s; install it beside meshrun", agent, p.Overlay.BinDir)
	}
	endAll, err := exec.Adopt()
	if err != nil {
		return CodeFailed, failf(CodeFailed, "adopt orphans: %w", err)
	}
	defer endAll()
	runtime.LockOSThread() // the launcher's death signal is tied to the thread that starts it
	defer runtime.UnlockOSThread()
	p.secret = newSecret()
	scr := newScreen(s.Out, s.Err, p.Verbose)
	scr.secret = p.secret
	var sig syscall.Signal
	defer func() { code, err = scr.result(code, err, s.Signals, sig != 0) }()
	if p.Tag {
		scr.label = func(rank int) string { return "[" + strconv.Itoa(rank) + "] " }
	}
	var ranks *outputs
	if p.Command().tag == nil {
		if ranks, err = listenOutputs(p.Overlay.Addr, scr); err != nil {
			return CodeFailed, err
		}
		defer ranks.end()
		p.output = ranks.ln.Addr().String()
	}
	c := p.Command()
	cmd := &osexec.Cmd{Path: c.Path, Args: append([]string{c.Path}, c.Args...), Env: c.Env, Stdin: s.Stdin,
		SysProcAttr: &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}} // with it every connection ends, and so every node's part
	var pipes [2]*os.File
	for i := range pipes {
		r, w, err := os.Pipe()
		if err != nil {
			return CodeFailed, failf(CodeFailed, "pipe: %w", err)
		}
		defer r.Close()
		defer w.Close()
		pipes[i] = r
		if i == 0 {
			cmd.Stdout = w
		} else {
			cmd.Stderr = w
		}
	}
	if err := cmd.Start(); err != nil {
		return CodeFailed, failf(CodeFailed, "start %s: %w", c.Path, err)
	}
	cmd.Stdout.(*os.File).Close()
	cmd.Stderr.(*os.File).Close()
	var readers sync.WaitGroup
	for i, r := range pipes {
		readers.Go(func() { pump(r, i+1, c.tag, scr) })
	}
	done := make(chan struct{})
	go func() { // ends with them, and the launcher's end
		readers.Wait()
		if ranks != nil {
			ranks.end()
		}
		close(done)
	}()
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }() // ends with the launcher, which follow kills at last
	var status error
	sig, status = follow(ctx, cmd.Process, ended, scr, s.Signals)
	endAll() // whoever still holds the pipes
	scr.outlast(done, s.Signals, sig != 0)
	scr.showOwn()
	return outcome(status, sig, scr)
}

// pump takes one stream apart until it ends, and shows half lines that rest.
func pump(r io.Reader, stream int, tag tagger, scr *screen) {
	show := func(rank int, line []byte) { scr.line(stream, rank, line) }
	unmarked := tag == nil
	if unmarked {
		if tag = untagged; stream == 1 { // of jobs that ranks have spawned
			show = func(_ int, line []byte) { scr.plain(line) }
		}
	}
	d := newDemux(tag, show)
	chunks := make(chan []byte)
	go func() { // ends with the stream
		defer close(chunks)
		for {
			buf := make([]byte, 32<<10)
			n, err := r.Read(buf)
			if n > 0 {
				chunks <- buf[:n]
			}
			if err != nil {
				return
			}
		}
	}()
	quiet := time.NewTimer(quietTime)
	defer quiet.Stop()
	for {
		select {
		case b, ok := <-chunks:
			if !ok {
				d.flush(true)
				return
			}
			d.Write(b)
			quiet.Reset(quietTime)
		case <-quiet.C:
			d.flush(stream == 1 && unmarked)
			scr.showOwn()
		}
	}
}

// follow waits for the launcher, passing signals on. When a rank has died, or
// the job is to end, and the launcher does not end it, it is killed: that cuts
// the connections, and every node ends what it runs.
func follow(ctx context.Context, p *os.Process, ended <-chan error, scr *screen, signals <-chan os.Signal) (sig syscall.Signal, status error) {
	died, done := scr.death.at, ctx.Done()
	var force <-chan time.Time
	gentle := true
	end := func(s syscall.Signal, wait time.Duration) {
		p.Signal(s)
		force = time.After(wait)
	}
	for {
		select {
		case status = <-ended:
			return sig, status
		case <-died:
			died, force = nil, time.After(afterDeath)
		case <-done:
			done, sig = nil, syscall.SIGTERM
			end(syscall.SIGTERM, afterSignal)
		case s := <-signals:
			got, ok := s.(syscall.Signal)
			if !ok {
				continue
			}
			if !ends(got) {
				p.Signal(got)
				continue
			}
			scr.hush()
			sig, force = got, time.After(afterSignal)
			if got != syscall.SIGINT || !foreground() { // else the terminal has told the launcher
				p.Signal(got)
			}
		case <-force:
			if gentle {
				gentle = false
				end(syscall.SIGTERM, afterDeath)
			} else {
				p.Kill()
			}
		}
	}
}

// foreground reports whether a terminal sends its signals to our process group.
func foreground() bool {
	tty, err := os.Open("/dev/tty")
	if err != nil {
		return false
	}
	defer tty.Close()
	group, err := unix.IoctlGetInt(int(tty.Fd()), unix.TIOCGPGRP)
	return err == nil && group == unix.Getpgrp()
}

// outcome is the job's exit code: a dead rank's own, then the signal that ended
// the job. Launchers are not believed: Hydra says 9 for any killed rank.
func outcome(status error, sig syscall.Signal, scr *screen) (int, error) {
	if code, seen := scr.firstDeath(); seen && sig == 0 {
		return code, nil
	}
	if sig != 0 {
		return 128 + int(sig), nil
	}
	if status == nil {
		return 0, nil
	}
	var exit *osexec.ExitError
	if !errors.As(status, &exit) {
		return CodeFailed, failf(CodeFailed, "the launcher: %w", status)
	}
	code := exit.ExitCode()
	switch ranks, spoke := scr.heard(); {
	case !ranks:
		return CodeFailed, failf(CodeFailed, "the launcher failed (%s) before any rank did; run again with -v, and see meshctl status", exit)
	case !spoke:
		return code, failf(code, "the launcher ended the job with code %d, and does not say why; has a rank ended before MPI_Finalize? run again with -v", code)
	}
	return code, nil // MPI_Abort: launchers kill without a word of ours
}
