package mpishim

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	osexec "os/exec"
	"os/signal"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/meshmpi/meshmpi/mpishim/exec"
)

// RanksArg makes meshrun the agent that starts the ranks of one node for a
// meshrun elsewhere: a hidden mode without arguments.
const RanksArg = "_ranks"

// How long ranks have between SIGTERM and SIGKILL, and descendants of a rank
// that hold its output open after its end.
const (
	ranksGrace = 2 * time.Second
	ranksDrain = time.Second
)

// RunRanks is the body of the hidden mode: it speaks frames on standard input and
// output, and ends with its input. It leaves none of the processes that it
// started, nor what these have.
func RunRanks() int {
	endAll, err := exec.Adopt()
	if err != nil {
		fmt.Fprintf(os.Stderr, "%sranks: adopt orphans: %v\n", agentMark, err)
		return CodeFailed
	}
	defer endAll()
	signals := make(chan os.Signal, 4) // as many kinds as are asked for
	signal.Notify(signals, exec.Heeded(syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGPIPE)...)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() { // ends with the process
		for sig := range signals {
			if sig != syscall.SIGPIPE { // a write says so too
				cancel()
			}
		}
	}()
	if err := agentRanks(ctx, os.Stdin, os.Stdout); err != nil {
		fmt.Fprintf(os.Stderr, "%sranks: %v\n", agentMark, err)
		return CodeFailed
	}
	return 0
}

// ranksAgent is what runs on a node.
type ranksAgent struct {
	starts chan func() // run by the one thread that starts processes
	all    sync.WaitGroup
	told   atomic.Bool // to end, by its node and not by meshrun

	up  sync.Mutex // guards out
	out io.Writer

	over chan struct{} // closed when output that meshrun takes no more is dropped

	mu     sync.Mutex // guards what follows
	procs  map[uint32]*rankProc
	credit map[uint32]chan struct{} // of size outputWindow: frames of output that are not shown yet
}

// rankProc is one process.
type rankProc struct {
	id    uint32
	cmd   *osexec.Cmd
	input chan []byte // nil: none is read; has room for the window and the input's end
}

// agentRanks serves frames until in ends or ctx does.
func agentRanks(ctx context.Context, in io.Reader, out io.Writer) error {
	a := &ranksAgent{starts: make(chan func()), out: out, over: make(chan struct{}), procs: map[uint32]*rankProc{}, credit: map[uint32]chan struct{}{}}
	var starter sync.WaitGroup
	starter.Go(func() { // the death signal of children is tied to the thread that starts them
		runtime.LockOSThread()
		children := make(chan os.Signal, 1)
		signal.Notify(children, syscall.SIGCHLD)
		defer signal.Stop(children)
		for {
			select {
			case f, ok := <-a.starts:
				if !ok {
					return
				}
				f()
			case <-children:
				exec.ReapOrphans(a.has)
			}
		}
	})
	if _, err := io.WriteString(out, agentHello+"\n"); err != nil {
		return err
	}
	frames, failed := readFrames(in, ctx.Done(), func() {})
	var err error
	var ended chan struct{} // closed when a frame's end has ended all; until then output is still shown
	for err == nil {
		select {
		case f := <-frames:
			switch {
			case f.kind == frameEnd && ended == nil:
				ended = make(chan struct{})
				go func() { // ends with the processes
					a.end()
					close(ended)
				}()
			case ended != nil && (f.kind == frameEnd || f.kind == frameStart):
			default:
				err = a.do(f)
			}
		case <-ended:
			err = io.EOF
		case err = <-failed:
		case <-ctx.Done():
			a.told.Store(true)
			err = io.EOF
		}
	}
	if ended == nil {
		a.end()
	} else {
		<-ended
	}
	close(a.starts)
	starter.Wait()
	if errors.Is(err, io.EOF) || errors.Is(err, os.ErrClosed) {
		return nil
	}
	return err
}

// do carries out one frame.
func (a *ranksAgent) do(f frame) error {
	switch f.kind {
	case frameStart:
		var spec startSpec
		if err := json.Unmarshal(f.data, &spec); err != nil {
			return fmt.Errorf("%w: %w", errFrame, err)
		}
		return a.start(spec)
	case frameInput:
		a.mu.Lock()
		defer a.mu.Unlock()
		p := a.procs[f.proc]
		if p == nil || p.input == nil {
			return nil // it has ended
		}
		select {
		case p.input <- f.data:
		default:
			return fmt.Errorf("more input than the window: %w", errFrame)
		}
	case frameSignal:
		if len(f.data) != 1 {
			return errFrame
		}
		a.mu.Lock()
		if p := a.procs[f.proc]; p != nil {
			syscall.Kill(-p.cmd.Process.Pid, syscall.Signal(f.data[0]))
		}
		a.mu.Unlock()
	case frameShown:
		a.mu.Lock()
		defer a.mu.Unlock()
		select {
		case <-a.credit[f.proc]: // nil: all of it has been sent
		default:
		}
	default:
		return fmt.Errorf("a frame of kind %c from meshrun: %w", f.kind, errFrame)
	}
	return nil
}

// start starts the processes of a spec; what cannot start is reported as ended.
func (a *ranksAgent) start(spec startSpec) error {
	dir, dirErr := workDir(spec.Wdir, spec.Must)
	for _, ps := range spec.Procs {
		if ps.App < 0 || ps.App >= len(spec.Apps) || len(spec.Apps[ps.App].Line) == 0 {
			return errFrame
		}
		line := spec.Apps[ps.App].Line
		if dirErr != nil {
			a.report(ps.Proc, exitReport{Code: CodeFailed, What: dirErr.Error()})
			continue
		}
		env := append(append(os.Environ(), spec.Env...), ps.Env...)
		env = append(env, recordsVariable(profileRoot(), env)...)
		if dir != "" {
			env = append(env, "PWD="+dir)
		}
		path, err := rankProgram(line[0], getenv(env, "PATH"))
		if err == nil {
			args := slices.Clone(line)
			if strings.HasPrefix(line[0], staged) {
				args[0] = path
			}
			cmd := &osexec.Cmd{
				Path: path, Args: args, Env: env, Dir: dir,
				SysProcAttr: &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL},
			}
			err = a.run(ps, cmd)
		}
		if err != nil {
			code, what := cannotRun(err)
			a.report(ps.Proc, exitReport{Code: code, What: what + ": " + line[0]})
		}
	}
	return nil
}

// workDir returns where processes start: dir, or where a node does without it
// the home directory.
func workDir(dir string, must bool) (string, error) {
	if dir == "" {
		return "", nil
	}
	info, err := os.Stat(dir)
	if err == nil && !info.IsDir() {
		err = syscall.ENOTDIR
	}
	if err == nil {
		err = unix.Access(dir, unix.X_OK)
	}
	switch {
	case err == nil:
		return dir, nil
	case must:
		return "", fmt.Errorf("cannot change to the working directory %s: %w", dir, err)
	}
	if home := os.Getenv("HOME"); home != "" && unix.Access(home, unix.X_OK) == nil {
		return home, nil
	}
	return "/", nil
}

// exitOf words the end of a process.
func exitOf(status error) exitReport {
	var exit *osexec.ExitError
	if !errors.As(status, &exit) {
		if status != nil {
			return exitReport{Code: CodeFailed, What: status.Error()}
		}
		return exitReport{}
	}
	code, what := wordStatus(exit.Sys().(syscall.WaitStatus))
	return exitReport{Code: code, What: what}
}

// feed writes a process's input, and says how much of it was taken.
func (a *ranksAgent) feed(p *rankProc, w *os.File) {
	for b := range p.input {
		if len(b) == 0 {
			w.Close()
			continue
		}
		w.Write(b) // a program that reads no more has it dropped
		a.send(frame{frameTaken, p.id, nil})
	}
}

func (a *ranksAgent) report(proc uint32, r exitReport) {
	b, err := json.Marshal(r)
	if err != nil {
		return // a struct of a number and a text
	}
	a.send(frame{frameExit, proc, b})
}

// send writes one frame. When meshrun is gone nobody misses it.
func (a *ranksAgent) send(f frame) error {
	a.up.Lock()
	defer a.up.Unlock()
	_, err := a.out.Write(appendFrame(nil, f))
	return err
}

// end ends every process, by force after a while.
func (a *ranksAgent) end() {
	a.killAll(syscall.SIGTERM)
	a.killAll(syscall.SIGCONT)
	force := time.AfterFunc(ranksGrace, func() {
		close(a.over)
		a.killAll(syscall.SIGKILL)
	})
	a.all.Wait()
	force.Stop()
}

func (a *ranksAgent) killAll(sig syscall.Signal) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, p := range a.procs {
		syscall.Kill(-p.cmd.Process.Pid, sig)
	}
}
