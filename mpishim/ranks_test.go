package mpishim

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	osexec "os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// agentHere is an agent in this process, and meshrun's ends of its streams.
type agentHere struct {
	t     *testing.T
	down  *io.PipeWriter
	up    *bufio.Reader
	ended chan error
	out   map[uint32]string // standard output so far
}

func startAgent(ctx context.Context, t *testing.T) *agentHere {
	t.Helper()
	downR, downW := io.Pipe()
	upR, upW := io.Pipe()
	a := &agentHere{t: t, down: downW, up: bufio.NewReader(upR), ended: make(chan error, 1), out: map[uint32]string{}}
	go func() {
		err := agentRanks(ctx, downR, upW)
		downR.Close()
		upW.Close()
		a.ended <- err
	}()
	if _, err := readHello(a.up); err != nil {
		t.Fatal(err)
	}
	return a
}

func (a *agentHere) send(kind byte, proc uint32, data []byte) {
	a.t.Helper()
	if _, err := a.down.Write(appendFrame(nil, frame{kind, proc, data})); err != nil {
		a.t.Fatal(err)
	}
}

// start starts a shell script as process 7.
func (a *agentHere) start(script string, stdin bool) {
	a.t.Helper()
	b, err := json.Marshal(startSpec{Env: []string{"FOO=bar"}, Apps: []appSpec{{words{"/bin/sh", "-c", script}}}, Procs: []procSpec{{Proc: 7, Stdin: stdin}}})
	if err != nil {
		a.t.Fatal(err)
	}
	a.send(frameStart, 0, b)
}

// until reads frames up to one of a kind.
func (a *agentHere) until(kind byte) frame {
	a.t.Helper()
	for {
		f, err := readFrame(a.up)
		if err != nil {
			a.t.Fatal(err)
		}
		if f.kind == frameOut || f.kind == frameErr {
			go a.down.Write(appendFrame(nil, frame{frameShown, f.proc, nil})) // ends with the pipe, at the latest
		}
		if f.kind == frameOut {
			a.out[f.proc] += string(f.data)
		}
		if f.kind == kind {
			return f
		}
	}
}

// exit waits for the process's end.
func (a *agentHere) exit() exitReport {
	a.t.Helper()
	r, err := parseExit(a.until(frameExit).data)
	if err != nil {
		a.t.Fatal(err)
	}
	return r
}

// end hangs up and waits for the agent.
func (a *agentHere) end() error {
	a.down.Close()
	io.Copy(io.Discard, a.up)
	return <-a.ended
}

func TestAgentStartsAndReports(t *testing.T) {
	a := startAgent(t.Context(), t)
	a.start(`read line; echo "$FOO $line"; exit 3`, true)
	a.send(frameInput, 7, []byte("input\n"))
	a.until(frameTaken)
	if r := a.exit(); r.Code != 3 || r.PID == 0 || r.What != "exited with code 3" || a.out[7] != "bar input\n" {
		t.Errorf("got %+v, %q", r, a.out[7])
	}
	a.start(`echo up; while :; do read x; done`, true)
	a.until(frameOut)
	a.send(frameSignal, 7, []byte{byte(syscall.SIGUSR1)})
	if r := a.exit(); r.Code != 128+int(syscall.SIGUSR1) {
		t.Errorf("signalled: got %+v", r)
	}
	a.send(frameSignal, 7, []byte{byte(syscall.SIGTERM)}) // it has ended already
	a.send(frameInput, 7, nil)
	if err := a.end(); err != nil {
		t.Error(err)
	}
}

// TestAgentLeavesNothing: whoever holds a rank's output, and a rank that will not
// listen, are not waited for.
func TestAgentLeavesNothing(t *testing.T) {
	for _, tt := range []struct {
		name, script string
		end          func(*agentHere, context.CancelFunc)
	}{
		{"hang up", `echo up; exec sleep 600`, func(a *agentHere, _ context.CancelFunc) { a.down.Close() }},
		{"signal", `echo up; exec sleep 600`, func(_ *agentHere, cancel context.CancelFunc) { cancel() }},
		{"deaf", `trap '' TERM; echo up; sleep 600; sleep 600`, func(a *agentHere, _ context.CancelFunc) { a.down.Close() }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			a := startAgent(ctx, t)
			a.start(tt.script, false)
			a.until(frameOut)
			began := time.Now()
			tt.end(a, cancel)
			if r := a.exit(); r.Code < 128 {
				t.Errorf("got %+v", r)
			}
			if err := a.end(); err != nil {
				t.Error(err)
			}
			t.Logf("gone after %v", time.Since(began).Round(time.Millisecond))
		})
	}
}

func TestAgentRefusesFrames(t *testing.T) {
	bad, err := json.Marshal(startSpec{Procs: []procSpec{{Proc: 7, App: 1}}})
	if err != nil {
		t.Fatal(err)
	}
	for name, in := range map[string]frame{
		"no such program":  {frameStart, 0, bad},
		"no JSON":          {frameStart, 0, []byte("x")},
		"an agent's frame": {frameExit, 7, nil},
		"no signal":        {frameSignal, 7, nil},
	} {
		t.Run(name, func(t *testing.T) {
			a := startAgent(t.Context(), t)
			a.send(in.kind, in.proc, in.data)
			if err := a.end(); !errors.Is(err, errFrame) {
				t.Errorf("got %v, want %v", err, errFrame)
			}
		})
	}
	t.Run("more input than the window", func(t *testing.T) {
		a := startAgent(t.Context(), t)
		a.start("sleep 600", true) // it reads none
		go func() {                // ends with the agent's side
			for { // what fits into the pipe and the channel is taken
				if _, err := a.down.Write(appendFrame(nil, frame{frameInput, 7, []byte(strings.Repeat("x", maxFrame))})); err != nil {
					return
				}
			}
		}()
		io.Copy(io.Discard, a.up)
		if err := <-a.ended; !errors.Is(err, errFrame) {
			t.Errorf("got %v, want %v", err, errFrame)
		}
	})
}

// TestAgentSendsTheTail: what a process has written arrives, however long after its end
// meshrun takes it.
func TestAgentSendsTheTail(t *testing.T) {
	a := startAgent(t.Context(), t)
	const n = 64<<10 + maxFrame/4 // the agent has some of it, and a pipe the rest
	a.start("head -c "+strconv.Itoa(n)+" /dev/zero", false)
	time.Sleep(ranksDrain + ranksDrain/2)
	if r := a.exit(); r.Code != 0 || len(a.out[7]) != n {
		t.Errorf("%d bytes of %d arrived; %+v", len(a.out[7]), n, r)
	}
	if err := a.end(); err != nil {
		t.Error(err)
	}
}

// TestWorkDir: a file is no directory to start in, whoever may execute it.
func TestWorkDir(t *testing.T) {
	file := filepath.Join(t.TempDir(), "prog")
	if err := os.WriteFile(file, nil, 0o700); err != nil {
		t.Fatal(err)
	}
	home := t.TempDir()
	t.Setenv("HOME", home)
	for _, tt := range []struct {
		dir  string
		must bool
		want string
		bad  bool
	}{{"", true, "", false}, {home, true, home, false}, {file, false, home, false}, {"/no/such", false, home, false}, {file, true, "", true}, {"/no/such", true, "", true}} {
		got, err := workDir(tt.dir, tt.must)
		if got != tt.want || (err != nil) != tt.bad || tt.bad && !strings.Contains(err.Error(), tt.dir) {
			t.Errorf("workDir(%q, %v) = %q, %v, want %q", tt.dir, tt.must, got, err, tt.want)
		}
	}
}

// TestToldLate: a signal to the group ends the rank, and reaches its parent after that.
func TestToldLate(t *testing.T) {
	cmd := osexec.Command("/bin/sh", "-c", "kill -TERM $$")
	err := cmd.Run()
	for _, tt := range []struct {
		late bool
		want string
	}{
		{true, ""},
		{false, secretMark(jobSecret()) + "1 on b1 was killed by signal 15 (SIGTERM)\n"},
	} {
		told := make(chan struct{})
		if tt.late {
			time.AfterFunc(heedTime/10, func() { close(told) })
		}
		var out strings.Builder
		if code := (rankSay{"1 on b1", &out}).status(err, told); code != 143 || out.String() != tt.want {
			t.Errorf("late %v: got code %d and %q, want 143 and %q", tt.late, code, &out, tt.want)
		}
	}
}
