package mpishim

import (
	"bytes"
	"os"
	osexec "os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/meshmpi/meshmpi/internal/eventually"
)

// build compiles testdata/hello.c with an MPI's own compiler.
func build(t *testing.T, compiler string) string {
	t.Helper()
	if _, err := osexec.LookPath(compiler); err != nil {
		t.Skipf("%s is not installed", compiler)
	}
	prog := filepath.Join(t.TempDir(), "hello")
	if out, err := osexec.Command(compiler, "-o", prog, "testdata/hello.c").CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", compiler, err, out)
	}
	return prog
}

// installed are the launchers that tests try where they are installed.
func installed() map[Kind]string {
	return map[Kind]string{OpenMPI: "mpicc.openmpi", MPICH: "mpicc.mpich"}
}

func exitCode(cmd *osexec.Cmd) int { return cmd.ProcessState.ExitCode() }

// gone fails unless no process with the program's path is left.
func gone(t *testing.T, prog string) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		files, _ := filepath.Glob("/proc/[0-9]*/cmdline")
		left := slices.DeleteFunc(files, func(f string) bool {
			raw, _ := os.ReadFile(f)
			return !bytes.Contains(raw, []byte(prog))
		})
		if len(left) == 0 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d processes of %s are left: %v", len(left), prog, left)
		}
	}
}

// finish runs a job to its end. MPICH 4.0.2 over UCX's tcp can deadlock in
// MPI_Finalize on a busy machine, without meshrun as well: one rank waits in a
// PMI barrier and no longer answers the other. Such a run is ended, which must
// leave nothing, and repeated.
func finish(t *testing.T, p Plan) (cmd *osexec.Cmd, out, errs *strings.Builder) {
	t.Helper()
	for range 5 {
		cmd, out, errs = job(t, p)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		stuck := time.AfterFunc(20*time.Second, func() { cmd.Process.Signal(syscall.SIGTERM) })
		cmd.Wait()
		if stuck.Stop() || p.Launcher.Kind != MPICH {
			break
		}
		t.Log("stuck in MPI_Finalize, as MPICH over UCX sometimes is")
		gone(t, p.Apps[0].Prog)
	}
	return cmd, out, errs
}

func TestJobs(t *testing.T) {
	for kind, compiler := range installed() {
		t.Run(string(kind), func(t *testing.T) {
			prog := build(t, compiler)
			for _, tt := range []struct {
				mode string
				code int
				line string // the only one on standard error
			}{
				{"exit", 3, "meshrun: rank 1 on n3 exited with code 3\n"},
				{"kill", 137, "meshrun: rank 1 on n3 was killed by signal 9 (SIGKILL)\n"},
				{"abort", 7, ""}, // worded by the MPI
				{"hello", 0, ""},
			} {
				t.Run(tt.mode, func(t *testing.T) {
					cmd, out, errs := finish(t, testPlan(t, kind, prog, tt.mode))
					if got := exitCode(cmd); got != tt.code {
						t.Errorf("got exit code %d, want %d; out %q, err %q", got, tt.code, out, errs)
					}
					if tt.line != "" && errs.String() != tt.line {
						t.Errorf("got %q, want %q", errs, tt.line)
					}
					if tt.mode == "hello" {
						lines := strings.Split(strings.TrimSpace(strings.ReplaceAll(out.String(), "\r", "")), "\n")
						slices.Sort(lines)
						if want := []string{"rank 0 of 2 on n2 s2", "rank 1 of 2 on n3 s3"}; !slices.Equal(lines, want) {
							t.Errorf("got %q, want %q; err %q", lines, want, errs)
						}
					}
					gone(t, prog)
				})
			}
		})
	}
}

func TestLinesStayWhole(t *testing.T) {
	whole := regexp.MustCompile(`^<([01]) \d+ a*b*>$`)
	for kind, compiler := range installed() {
		t.Run(string(kind), func(t *testing.T) {
			cmd, out, errs := finish(t, testPlan(t, kind, build(t, compiler), "spam"))
			n := 0
			for line := range strings.Lines(out.String()) {
				n++
				if line = strings.TrimRight(line, "\r\n"); !whole.MatchString(line) {
					t.Fatalf("line %d is mixed: %q", n, line)
				}
			}
			if n != 4000 || exitCode(cmd) != 0 {
				t.Errorf("got %d lines, code %d, %q", n, exitCode(cmd), errs)
			}
		})
	}
}

func TestSignalEndsTheJob(t *testing.T) {
	for kind, compiler := range installed() {
		t.Run(string(kind), func(t *testing.T) {
			prog := build(t, compiler)
			cmd, _, errs := job(t, testPlan(t, kind, prog, "wait"))
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
			if _, err := r.Read(make([]byte, 64)); err != nil {
				t.Fatal(err)
			}
			cmd.Process.Signal(syscall.SIGTERM)
			cmd.Wait()
			if got := exitCode(cmd); got != 128+15 {
				t.Errorf("got %d, want 143; %q", got, errs)
			}
			gone(t, prog)
		})
	}
}

func TestMissingProgramAndFailedLauncher(t *testing.T) {
	for kind := range installed() {
		t.Run(string(kind), func(t *testing.T) {
			cmd, _, errs := job(t, testPlan(t, kind, "/no/such/program"))
			cmd.Run()
			if got := exitCode(cmd); got != CodeNotFound || !strings.Contains(errs.String(), "found no program: /no/such/program") || strings.Count(errs.String(), "\n") != 1 {
				t.Errorf("missing: got %d, %q", got, errs)
			}
			p := testPlan(t, kind, "/bin/true")
			os.Remove(filepath.Join(p.Overlay.BinDir, "meshrsh"))
			cmd, _, errs = job(t, p)
			cmd.Run()
			if got := exitCode(cmd); got != CodeFailed {
				t.Errorf("no agent: got %d, want %d; %q", got, CodeFailed, errs)
			}
		})
	}
}

func TestMixedPrograms(t *testing.T) {
	for kind := range installed() {
		t.Run(string(kind), func(t *testing.T) {
			p := testPlan(t, kind, "/bin/sh", "-c", `echo "one $FOO $0|$PWD"`, "a 'b\"")
			p.Apps[0].N = 1
			p.Apps = append(p.Apps, App{1, "/bin/echo", []string{"two"}})
			p.Export = []string{"FOO=x y"}
			p.Wdir = "/usr"
			cmd, out, errs := job(t, p)
			cmd.Run()
			lines := strings.Split(strings.TrimSpace(strings.ReplaceAll(out.String(), "\r", "")), "\n")
			slices.Sort(lines)
			if want := []string{`one x y a 'b"|/usr`, "two"}; !slices.Equal(lines, want) || exitCode(cmd) != 0 {
				t.Errorf("got %q, want %q; code %d, %q", lines, want, exitCode(cmd), errs)
			}
		})
	}
}

// TestManyRanksLive: ranks that mpirun starts by threads of its own live on when these
// have ended, and end with mpirun.
func TestManyRanksLive(t *testing.T) {
	prog := filepath.Join(t.TempDir(), "sleeper")
	if err := os.Symlink("/bin/sleep", prog); err != nil {
		t.Fatal(err)
	}
	p := testPlan(t, OpenMPI, prog, "2")
	p.Places, p.Apps[0].N = []Place{{Host{Name: "n1", Site: "s1", Addr: p.Overlay.Addr, Self: true}, 40}}, 40
	if cmd, out, errs := finish(t, p); exitCode(cmd) != 0 || errs.String() != "" {
		t.Errorf("code %d; out %q, err %q", exitCode(cmd), out, errs)
	}
	p.Places[0].Ranks, p.Apps[0].N, p.Apps[0].Args = 2, 2, []string{"600"}
	cmd, _, _ := job(t, p)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	eventually.Holds(t, "two ranks", func() bool { return startedAs(prog) == 2 })
	cmd.Process.Kill()
	_ = cmd.Wait()
	gone(t, prog)
}

// startedAs counts the processes whose command line begins with a path.
func startedAs(path string) (n int) {
	files, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, f := range files {
		if raw, _ := os.ReadFile(f); bytes.HasPrefix(raw, []byte(path)) {
			n++
		}
	}
	return n
}

// TestSpawnByOpenMPI: ranks can spawn others, whose output is shown.
func TestSpawnByOpenMPI(t *testing.T) {
	p := testPlan(t, OpenMPI, build(t, installed()[OpenMPI]), "spawn")
	cmd, out, errs := finish(t, p)
	if got := strings.TrimRight(out.String(), "\r\n"); got != "spawned" || errs.String() != "" || exitCode(cmd) != 0 {
		t.Errorf("code %d; out %q, err %q", exitCode(cmd), out, errs)
	}
}

// TestLauncherSaysNothing: a job that its launcher ends without a word has one of ours.
func TestLauncherSaysNothing(t *testing.T) {
	p := testPlan(t, OpenMPI, build(t, installed()[OpenMPI]), "leave")
	cmd, out, errs := finish(t, p)
	if want := "meshrun: mpishim: the launcher ended the job with code 1, and does not say why; has a rank ended before MPI_Finalize? run again with -v\n"; errs.String() != want || exitCode(cmd) != 1 {
		t.Errorf("code %d; out %q, err %q", exitCode(cmd), out, errs)
	}
}

// TestRanksSayNotHowTheyEnd: a rank that prints what meshrun prints when ranks end has
// not ended, on either stream.
func TestRanksSayNotHowTheyEnd(t *testing.T) {
	for kind := range installed() {
		t.Run(string(kind), func(t *testing.T) {
			const words = "meshrun: rank 3 on b1 exited with code 7"
			p := testPlan(t, kind, "/bin/sh", "-c", "echo '"+words+"'; echo '"+words+"' >&2; env | grep -c ^MESHRUN_SECRET=; true")
			cmd, out, errs := finish(t, p)
			if n := strings.Count(out.String(), words+"\n") + strings.Count(out.String(), words+"\r\n"); n != 2 || exitCode(cmd) != 0 || strings.Count(out.String(), "0") < 2 {
				t.Errorf("code %d; out %q, err %q", exitCode(cmd), out, errs)
			}
			if n := strings.Count(errs.String(), words); n != 2 {
				t.Errorf("err %q", errs)
			}
		})
	}
}

// TestShortLines: what ranks print arrives, however short its lines are: mpirun, asked
// for marks, loses those that are shorter than these.
func TestShortLines(t *testing.T) {
	for kind := range installed() {
		t.Run(string(kind), func(t *testing.T) {
			const n = 30_000
			cmd, out, errs := finish(t, testPlan(t, kind, "/usr/bin/seq", strconv.Itoa(n)))
			seen := map[string]int{}
			for line := range strings.Lines(out.String()) {
				seen[strings.TrimRight(line, "\r\n")]++
			}
			for i := 1; i <= n; i++ {
				if seen[strconv.Itoa(i)] != 2 {
					t.Fatalf("%d arrived %d times, want 2; code %d, %d bytes, err %q", i, seen[strconv.Itoa(i)], exitCode(cmd), out.Len(), errs)
				}
			}
		})
	}
}

// TestLinesComeAtOnce: a rank's line is shown when it is printed, where the MPI gives
// ranks a terminal.
func TestLinesComeAtOnce(t *testing.T) {
	p := testPlan(t, OpenMPI, "/bin/sh", "-c", "test -t 1 && grep -m1 -o MemTotal /proc/meminfo; sleep 30")
	cmd, _, _ := job(t, p)
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
	buf := make([]byte, 64)
	if n, err := r.Read(buf); err != nil || !strings.HasPrefix(string(buf[:n]), "MemTotal") {
		t.Errorf("%q, %v", buf[:n], err)
	}
	cmd.Process.Signal(syscall.SIGTERM)
	_ = cmd.Wait()
}
