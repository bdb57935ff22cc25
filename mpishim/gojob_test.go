package mpishim

import (
	"context"
	"fmt"
	"io"
	"net/netip"
	"os"
	osexec "os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/meshmpi/meshmpi/internal/eventually"
	"github.com/meshmpi/meshmpi/mpishim/exec"
)

// nodeHere is the Remote of nodes that are this machine's, as sessions are. Node
// "n9" has no meshrun.
func nodeHere(ctx context.Context, host string, opt exec.RunOptions) (int, error) {
	bin := os.Getenv("TEST_BIN")
	if host == "n9" {
		bin = "/no/such/dir"
	}
	cmd := osexec.CommandContext(ctx, "/bin/sh", "-c", opt.Command)
	cmd.Dir = "/"
	cmd.Env = []string{"PATH=/usr/bin:/bin", "HOME=/", "MESH_BIN=" + bin, "GORACE=" + os.Getenv("GORACE")}
	cmd.Stdout, cmd.Stderr = opt.Stdout, opt.Stderr
	cmd.WaitDelay = time.Second
	stdin, err := cmd.StdinPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		return CodeFailed, err
	}
	go func() {
		io.Copy(stdin, opt.Stdin)
		stdin.Close()
	}()
	cmd.Wait()
	if ctx.Err() != nil {
		return CodeFailed, fmt.Errorf("exec: node %s: %w", host, ctx.Err())
	}
	return cmd.ProcessState.ExitCode(), nil
}

// pmihello builds the program that is a rank of these jobs.
func pmihello(t *testing.T) string {
	t.Helper()
	prog := filepath.Join(t.TempDir(), "pmihello")
	if out, err := osexec.Command("go", "build", "-ldflags=-s -w", "-o", prog, "../integration/programs/go/pmihello").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return prog
}

// goPlan puts a rank on this node, n1, and two on n2.
func goPlan(t *testing.T, prog string, args ...string) Plan {
	t.Helper()
	p := testPlan(t, Go, prog, args...)
	p.Overlay.Addr = netip.MustParseAddr("127.0.0.1")
	p.Places = []Place{
		{Host{Name: "n1", Site: "s1", Addr: p.Overlay.Addr, Self: true}, 1},
		{Host{Name: "n2", Site: "s2", Addr: netip.MustParseAddr("127.0.0.2")}, 2},
	}
	p.Apps[0].N = 3
	return p
}

// ranPlan runs a job that must end soon. It returns its sorted lines.
func ranPlan(t *testing.T, p Plan, input io.Reader) (out, errs string, code int) {
	t.Helper()
	cmd, o, e := job(t, p)
	cmd.Stdin = input
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	stuck := time.AfterFunc(30*time.Second, func() { cmd.Process.Signal(syscall.SIGQUIT) })
	defer stuck.Stop()
	cmd.Wait()
	gone(t, p.Apps[0].Prog)
	lines := slices.Sorted(strings.Lines(o.String()))
	return strings.Join(lines, ""), e.String(), exitCode(cmd)
}

func TestGoJobs(t *testing.T) {
	prog := pmihello(t)
	pid := regexp.MustCompile(`\(pid \d+\)`)
	either := regexp.MustCompile(`rank \d of spawned job 5 on n\d`) // ends first
	for _, tt := range []struct {
		mode      []string
		ft        bool
		out, errs string
		code      int
	}{
		{[]string{"hello", "a b", "c\""}, false, `rank 0 of 3 app 0 on n1 site s1 at 127.0.0.1 in DIR FOO=x y ["a b" "c\""]
rank 1 of 3 app 0 on n2 site s2 at 127.0.0.2 in DIR FOO=x y ["a b" "c\""]
rank 2 of 3 app 0 on n2 site s2 at 127.0.0.2 in DIR FOO=x y ["a b" "c\""]
`, "", 0},
		{[]string{"exit"}, false, "", "meshrun: rank 2 on n2 (pid N) exited with code 3\n", 3},
		{[]string{"kill"}, false, "", "meshrun: rank 2 on n2 (pid N) was killed by signal 9 (SIGKILL)\n", 137},
		{[]string{"abort"}, false, "", "meshrun: rank 2 on n2 aborted the job with code 7\n", 7},
		{[]string{"leave"}, false, "", "meshrun: rank 2 on n2 (pid N) ended without finalizing MPI\n", 1},
		{[]string{"survive"}, true, "rank 0 goes on: died 2\nrank 1 goes on: died 2\n", "meshrun: rank 2 on n2 (pid N) was killed by signal 9 (SIGKILL); the job goes on\n", 0},
		{[]string{"spawn", "n2"}, false, `rank 0 of 2 app 0 on n2 site s2 at 127.0.0.2 in DIR FOO=x y ["of mine"]
rank 1 of 2 app 0 on n2 site s2 at 127.0.0.2 in DIR FOO=x y ["of mine"]
`, "", 0},
		{[]string{"barren"}, false, `/bin/false: pmi: spawn: the launcher says: rank 0 of spawned job 2 on n1 exited with code 1; MPI had not begun there
/bin/true: pmi: spawn: the launcher says: rank 0 of spawned job 1 on n1 ended; MPI had not begun there
/no/such: pmi: spawn: the launcher says: rank 0 of spawned job 3 on n1 found no program: /no/such; MPI had not begun there
`, "", 0},
		{[]string{"barren"}, true, `/bin/false: pmi: spawn: the launcher says: rank 0 of spawned job 2 on n1 exited with code 1; MPI had not begun there
/bin/true: pmi: spawn: the launcher says: rank 0 of spawned job 1 on n1 ended; MPI had not begun there
/no/such: pmi: spawn: the launcher says: rank 0 of spawned job 3 on n1 found no program: /no/such; MPI had not begun there
`, "", 0},
		{[]string{"joins", "never", "refuses", "dies", "aborts", "forgets"}, false, `aborts: pmi: spawn: the launcher says: rank 0 of spawned job 4 on n1 aborted with code 3; its job had not met the one that spawned it
dies: pmi: spawn: the launcher says: rank 0 of spawned job 3 on n1 was killed by signal 9 (SIGKILL); its job had not met the one that spawned it
forgets: pmi: spawn: the launcher says: rank R of spawned job 5 on N ended; its job had not met the one that spawned it
never: pmi: the launcher does not answer: context canceled
refuses: pmi: spawn: the launcher says: nobody answers
`, "", 0},
		{[]string{"joins", "then fails"}, false, "then fails: <nil>\n", "meshrun: rank 0 of spawned job 1 on n1 (pid N) exited with code 5\n", 5},
	} {
		t.Run(strings.Join(tt.mode, " "), func(t *testing.T) {
			p := goPlan(t, prog, tt.mode...)
			p.FT, p.Export = tt.ft, []string{"FOO=x y"}
			out, errs, code := ranPlan(t, p, nil)
			out = strings.ReplaceAll(out, p.Wdir, "DIR")
			out = either.ReplaceAllString(out, "rank R of spawned job 5 on N")
			if errs = pid.ReplaceAllString(errs, "(pid N)"); out != tt.out || errs != tt.errs || code != tt.code {
				t.Errorf("got %q, %q, code %d, want %q, %q, code %d", out, errs, code, tt.out, tt.errs, tt.code)
			}
		})
	}
}

// TestGoJobsBlameTheFirst: the ranks that a dead one is missing to fail too, and
// the one beside meshrun is heard of first.
func TestGoJobsBlameTheFirst(t *testing.T) {
	p := goPlan(t, pmihello(t), "miss")
	_, errs, code := ranPlan(t, p, nil)
	ours := slices.DeleteFunc(strings.Split(errs, "\n"), func(l string) bool { return !strings.HasPrefix(l, "meshrun") })
	if len(ours) != 1 || !strings.HasPrefix(ours[0], "meshrun: rank 2 on n2 ") || code != 3 {
		t.Errorf("got %q, code %d", errs, code)
	}
}

// TestGoJobsTakeInput gives rank 0 more than any buffer holds.
func TestGoJobsTakeInput(t *testing.T) {
	p := goPlan(t, pmihello(t), "cat")
	want := strings.Repeat("a line of input\n", 1<<17)
	if out, errs, code := ranPlan(t, p, strings.NewReader(want)); out != want || errs != "" || code != 0 {
		t.Errorf("got %d bytes of %d, %q, code %d", len(out), len(want), errs, code)
	}
}

func TestGoJobsLinesStayWhole(t *testing.T) {
	p := goPlan(t, pmihello(t), "spam")
	p.Tag = true
	out, errs, code := ranPlan(t, p, nil)
	whole := regexp.MustCompile(`^\[([0-2])\] <([0-2]) \d+ (ab)*>$`)
	lines := strings.Split(strings.TrimSuffix(out, "\n"), "\n")
	for _, line := range lines {
		if m := whole.FindStringSubmatch(line); m == nil || m[1] != m[2] {
			t.Fatalf("mixed: %q", line)
		}
	}
	if len(lines) != 6000 || errs != "" || code != 0 {
		t.Errorf("got %d lines, %q, code %d", len(lines), errs, code)
	}
}

// TestGoJobsNobodyReads: where standard output stands still, a death is told and ends the
// job all the same, also of a rank that shares its node with one who waits to write.
func TestGoJobsNobodyReads(t *testing.T) {
	loud := filepath.Join(t.TempDir(), "loud")
	if err := os.Symlink("/usr/bin/yes", loud); err != nil {
		t.Fatal(err)
	}
	runs := func() bool { return startedAs(loud) > 0 }
	p := goPlan(t, "/bin/sh", "-c", "case $PMI_RANK in 1) exec "+loud+";; 2) sleep 1; exit 3;; esac")
	cmd, _, errs := job(t, p)
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	cmd.Stdout = w
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	w.Close()
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	eventually.Holds(t, "the rank that writes", runs)
	eventually.Holds(t, "its end, by the other's", func() bool { return !runs() })
	cmd.Process.Signal(syscall.SIGTERM) // what was said before is still to be read
	select {
	case <-ended:
	case <-time.After(20 * time.Second):
		t.Error("it does not end")
		cmd.Process.Kill()
		<-ended
	}
	if !regexp.MustCompile(`^meshrun: rank 2 on n2 \(pid \d+\) exited with code 3\n$`).MatchString(errs.String()) {
		t.Errorf("%q", errs)
	}
}

func TestGoJobsOfTwoPrograms(t *testing.T) {
	prog := pmihello(t)
	p := goPlan(t, prog, "hello", "one")
	p.Apps[0].N = 1
	p.Apps = append(p.Apps, App{2, prog, []string{"hello", "two"}})
	p.Wdir = "/usr"
	out, errs, code := ranPlan(t, p, nil)
	want := `rank 0 of 3 app 0 on n1 site s1 at 127.0.0.1 in /usr FOO= ["one"]
rank 1 of 3 app 1 on n2 site s2 at 127.0.0.2 in /usr FOO= ["two"]
rank 2 of 3 app 1 on n2 site s2 at 127.0.0.2 in /usr FOO= ["two"]
`
	if out != want || errs != "" || code != 0 {
		t.Errorf("got %q, %q, code %d, want %q", out, errs, code, want)
	}
}

func TestGoJobsThatCannotStart(t *testing.T) {
	prog := pmihello(t)
	for _, tt := range []struct {
		name   string
		change func(*Plan)
		errs   string
		code   int
	}{
		{"program", func(p *Plan) { p.Apps[0].Prog = "/no/such/program" }, "found no program: /no/such/program", CodeNotFound},
		{"executable", func(p *Plan) { p.Apps[0].Prog = "/etc/passwd" }, "cannot execute: /etc/passwd", CodeCannotRun},
		{"directory", func(p *Plan) { p.Wdir, p.MustWdir = "/no/such/dir", true }, "cannot change to the working directory /no/such/dir", CodeFailed},
		{"agent", func(p *Plan) { p.Places[1].Host.Name = "n9" }, "node n9: the agent ended with code 127", CodeFailed},
		{"own agent", func(p *Plan) { p.Overlay.BinDir = "/no/such/bin" }, "no meshrun in /no/such/bin; install it", CodeFailed},
		{"address", func(p *Plan) { p.Overlay.Addr = netip.MustParseAddr("192.0.2.1") }, "serve ranks on 192.0.2.1", CodeFailed},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := goPlan(t, prog, "wait")
			bin := p.Overlay.BinDir
			tt.change(&p)
			cmd, out, errs := job(t, p)
			cmd.Path = filepath.Join(bin, "meshrun")
			cmd.Run()
			if code := exitCode(cmd); code != tt.code || !strings.Contains(errs.String(), tt.errs) || strings.Count(errs.String(), "\n") != 1 {
				t.Errorf("got %q, %q, code %d, want one line with %q, code %d", out, errs, code, tt.errs, tt.code)
			}
			gone(t, prog)
		})
	}
}

// TestGoJobsEndWithASignal, and when meshrun is killed outright.
func TestGoJobsEndWithASignal(t *testing.T) {
	prog := pmihello(t)
	for _, tt := range []struct {
		sig  syscall.Signal
		code int
	}{{syscall.SIGINT, 130}, {syscall.SIGTERM, 143}, {syscall.SIGKILL, -1}} {
		t.Run(tt.sig.String(), func(t *testing.T) {
			cmd, _, errs := job(t, goPlan(t, prog, "wait"))
			r, w, err := os.Pipe()
			if err != nil {
				t.Fatal(err)
			}
			defer r.Close()
			cmd.Stdout = w
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			w.Close()
			if _, err := io.ReadFull(r, make([]byte, len("up\nup\nup\n"))); err != nil {
				t.Fatal(err)
			}
			cmd.Process.Signal(tt.sig)
			cmd.Wait()
			if got := exitCode(cmd); got != tt.code || errs.Len() > 0 {
				t.Errorf("got code %d, %q, want %d", got, errs, tt.code)
			}
			gone(t, prog)
		})
	}
}
