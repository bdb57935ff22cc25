package mpishim

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/netip"
	"os"
	osexec "os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/meshmpi/meshmpi/internal/eventually"
	"github.com/meshmpi/meshmpi/shaper/hint"
)

// hinting is a plan of four ranks on four nodes of two sites, whose binaries' folder
// is the state directory too and has the libraries.
func hinting(t *testing.T, k Kind, prog string, args ...string) Plan {
	t.Helper()
	t.Setenv("OMPI_MCA_mpi_yield_when_idle", "1") // four ranks spin on however few cores
	p := testPlan(t, k, prog, args...)
	p.Places = nil
	for i, site := range []string{"alpha", "alpha", "beta", "beta"} {
		h := Host{Name: fmt.Sprintf("n%d", i+2), Site: site, Addr: netip.AddrFrom4([4]byte{127, 0, 0, byte(i + 2)})}
		p.Places = append(p.Places, Place{h, 1})
	}
	p.Apps[0].N = 4
	if out, err := osexec.Command("../scripts/preload", p.Overlay.BinDir).CombinedOutput(); err != nil || len(out) > 0 {
		t.Fatalf("preload: %v\n%s", err, out)
	}
	return p
}

// compileIn compiles a program of testdata with an MPI's compiler.
func compileIn(t *testing.T, compiler string, files ...string) string {
	t.Helper()
	if _, err := osexec.LookPath(compiler); err != nil {
		t.Skipf("%s is not installed", compiler)
	}
	prog := filepath.Join(t.TempDir(), "prog")
	args := append([]string{"-I../contrib", "-w", "-o", prog}, files...)
	if out, err := osexec.Command(compiler, args...).CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", compiler, err, out)
	}
	return prog
}

// listenHints is meshd's side; it ends with the test or by stop.
func listenHints(t *testing.T, p Plan) (s *hint.Server, stop func()) {
	t.Helper()
	s, err := hint.Listen(hint.Config{Path: filepath.Join(p.Overlay.StateDir, "hints.sock"), Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	s.SetMaxRate(1e8)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Serve(ctx) }()
	ended := false
	stop = func() {
		if ended {
			return
		}
		ended = true
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	t.Cleanup(stop)
	return s, stop
}

// steps runs a job that stops where it prints "at WHERE", calls see there, and has it
// go on. It returns all that the job printed. Jobs that hang in MPI_Finalize are
// ended; they have done what is tested by then.
func steps(t *testing.T, p Plan, see func(where string)) string {
	t.Helper()
	cmd, _, errs := job(t, p)
	cmd.Stdout = nil
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	stuck := time.AfterFunc(90*time.Second, func() { cmd.Process.Signal(syscall.SIGTERM) })
	defer stuck.Stop()
	var all strings.Builder
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		line := strings.TrimSpace(lines.Text())
		fmt.Fprintln(&all, line)
		if where, ok := strings.CutPrefix(line, "at "); ok {
			see(where)
			fmt.Fprintln(in, "go on")
		}
		if line == "good" && p.Launcher.Kind == MPICH { // the rest is MPI_Finalize
			stuck.Reset(20 * time.Second)
		}
	}
	_, _ = io.Copy(io.Discard, out)
	if err := cmd.Wait(); err != nil && !strings.Contains(all.String(), "good\n") {
		t.Errorf("%v\n%s%s", err, all.String(), errs)
	}
	return all.String()
}

// wantPages checks what every one of four pages says of the operations that have
// begun, and that those under way are what a request says.
func wantPages(t *testing.T, s *hint.Server, where string, begun [3]uint64, request hint.Request) {
	t.Helper()
	pages := s.Pages()
	if len(pages) != 4 {
		t.Errorf("at %s: %d pages", where, len(pages))
	}
	for _, p := range pages {
		var got [3]uint64
		var under uint64
		for i := range got {
			op := hint.Alltoall + hint.Op(i)
			got[i] = p.Entered[op]
			under += p.Entered[op] - p.Left[op]
		}
		if got != begun || p.Dropped != 0 || under > 1 || (under == 1) != (request.Hosts > 0) {
			t.Errorf("at %s: %+v; want %v begun and %+v under way", where, p, begun, request)
		}
	}
	if got := s.Strictest(); got != request {
		t.Errorf("at %s: asks for %+v, want %+v", where, got, request)
	}
}

// TestPatternInC runs every all-to-all of C under both MPIs, each rank of which is
// on a node of its own, two nodes a site.
func TestPatternInC(t *testing.T) {
	for kind, compiler := range installed() {
		t.Run(string(kind), func(t *testing.T) {
			for _, how := range []string{"-pie", "-no-pie"} {
				t.Run(how, func(t *testing.T) {
					p := hinting(t, kind, compileIn(t, compiler, how, "testdata/pattern.c"))
					s, _ := listenHints(t, p)
					large := [3]uint64{11, 6, 6}
					if kind == MPICH { // has the large counts of MPI 4
						large = [3]uint64{12, 7, 7}
					}
					failed := large
					failed[0]++
					want := map[string]struct {
						begun   [3]uint64
						request hint.Request
					}{
						"start":       {},
						"matb 1250":   {request: hint.Request{MATB: 10e6}},
						"matb 2500":   {request: hint.Request{MATB: 20e6}},
						"matb gone":   {},
						"blocking":    {begun: [3]uint64{1, 1, 1}},
						"pending":     {[3]uint64{3, 2, 2}, hint.Request{Op: hint.Alltoall, Hosts: 2}},
						"nonblocking": {begun: [3]uint64{8, 3, 3}},
						"persistent":  {begun: large},
						"half":        {begun: large}, // does not leave its site
						"errors":      {begun: failed},
					}
					out := steps(t, p, func(where string) {
						w, ok := want[where]
						if !ok {
							t.Errorf("stops at %q", where)
						}
						delete(want, where)
						if where == "start" {
							eventually.Holds(t, "four pages", func() bool { return len(s.Pages()) == 4 })
						}
						wantPages(t, s, where, w.begun, w.request)
					})
					if len(want) > 0 || !strings.Contains(out, "good\n") || strings.Count(out, "maxrate 1 12500") != 4 {
						t.Errorf("left: %v; output\n%s", want, out)
					}
				})
			}
		})
	}
}

// TestPatternInFortran does so with mpif.h and mpi_f08.
func TestPatternInFortran(t *testing.T) {
	for kind, compiler := range installed() {
		for _, binding := range []string{"mpif", "f08"} {
			t.Run(string(kind)+"/"+binding, func(t *testing.T) {
				if _, err := osexec.LookPath("gfortran"); err != nil {
					t.Skip("gfortran is not installed")
				}
				f90 := strings.Replace(compiler, "mpicc", "mpif90", 1)
				p := hinting(t, kind, compileIn(t, f90, "testdata/pattern_"+binding+".f90", "../contrib/meshmpi.f90"))
				p.Pattern = "cg"
				s, _ := listenHints(t, p)
				out := steps(t, p, func(where string) {
					wantPages(t, s, where, [3]uint64{4, 2, 2}, hint.Request{MATB: 10e6, Parts: hint.Whole})
				})
				if !strings.Contains(out, "at done\ngood\n") {
					t.Errorf("output\n%s", out)
				}
			})
		}
	}
}

// TestPatternAlone: without a daemon, with one that ends and comes back, and without
// hints, a program runs alike.
func TestPatternAlone(t *testing.T) {
	for kind, compiler := range installed() {
		t.Run(string(kind), func(t *testing.T) {
			over := filepath.Join(t.TempDir(), "over")
			p := hinting(t, kind, compileIn(t, compiler, "testdata/pattern.c"), over)
			p.MATB = 30e6
			done := make(chan string, 1)
			go func() { done <- steps(t, p, func(string) {}) }()
			for range 2 {
				s, stop := listenHints(t, p)
				eventually.Holds(t, "four pages", func() bool { return len(s.Pages()) == 4 })
				eventually.Holds(t, "an operation", func() bool { return s.Strictest() == hint.Request{Op: hint.Alltoall, Hosts: 2, MATB: 30e6} })
				stop()
			}
			if err := os.WriteFile(over, nil, 0o600); err != nil {
				t.Fatal(err)
			}
			if out := <-done; out != "good\n" {
				t.Errorf("output %q", out)
			}
			p.NoHints = true
			s, _ := listenHints(t, p)
			if out := steps(t, p, func(string) {}); out != "good\n" || s.Refused() != 0 {
				t.Errorf("without hints: output %q", out)
			}
		})
	}
}

// TestHidden: an MPI that comes with an extension, in nobody's scope, as with
// interpreters.
func TestHidden(t *testing.T) {
	for kind, compiler := range installed() {
		t.Run(string(kind), func(t *testing.T) {
			plugin := compileIn(t, compiler, "-shared", "-fPIC", "testdata/hidden.c")
			p := hinting(t, kind, compileIn(t, "cc", "-DHOST", "testdata/hidden.c", "-ldl"), plugin)
			s, _ := listenHints(t, p)
			out := steps(t, p, func(where string) { wantPages(t, s, where, [3]uint64{2, 0, 0}, hint.Request{}) })
			if !strings.Contains(out, "good\n") {
				t.Errorf("output %q", out)
			}
		})
	}
}

// TestShares: a job's pattern divides B as GridMPI's table says, never by more than N;
// and the table of ranks is read, or refused as a whole.
func TestShares(t *testing.T) {
	cc := "cc"
	if _, err := osexec.LookPath(cc); err != nil {
		t.Skip("no C compiler")
	}
	prog := filepath.Join(t.TempDir(), "shares")
	if out, err := osexec.Command(cc, "-O2", "-ffunction-sections", "-Wl,--gc-sections", "-o", prog, "testdata/shares.c").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	table := rankTable([]Place{{Host{Name: "a", Site: "x"}, 2}, {Host{Name: "b", Site: "x"}, 1}, {Host{Name: "c", Site: "y"}, 1}, {Host{Name: "d", Site: "x"}, 1}})
	if want := "x/a:2,/b:1,y/c:1,x/d:1"; table != want {
		t.Errorf("table %q, want %q", table, want)
	}
	if s := rankTable([]Place{{Host{Name: strings.Repeat("a", maxTable)}, 1}}); s != "" {
		t.Errorf("a table of %d bytes", len(s))
	}
	for _, tt := range []struct{ args, env, want string }{
		{args: "32 alltoall", want: "32768"}, {args: "5 lu", want: "5120"}, {args: "7 mg", want: "7168"}, {args: "4 ft", want: "4096"}, {args: "4 is", want: "4096"},
		{args: "32 cg", want: "16384"}, {args: "5 cg", want: "2560"}, {args: "1 cg", want: "1024"},
		{args: "32 bt", want: "16384"}, {args: "128 sp", want: "32768"}, {args: "50 bt", want: "20480"}, {args: "33 bt", want: "16638"}, {args: "4 bt", want: "4096"},
		{args: "4 none", want: "0"},
		{args: "table 0 5 " + table, want: "001-2"}, {args: "table 3 5 " + table, want: "---0-"}, {args: "table 4 5 " + table, want: "001-2"},
		{args: "table 2 5 " + table, env: "MESH_NODE=b", want: "001-2"},
		{args: "table 2 5 " + table, env: "MESH_NODE=a"},           // placed otherwise
		{args: "table 0 4 " + table}, {args: "table 0 6 " + table}, // another world
		{args: "table 0 1 /a:1"}, {args: "table 0 1 x/a"}, {args: "table 0 1 x/a:"}, {args: "table 0 1 x/a:0"}, {args: "table 0 1 x/a:1z"},
		{args: "table 0 1 x/a:-1"}, {args: "table 0 1 x/a:99999999999999999999"}, {args: "table 0 1 xa:1"}, {args: "table 0 1 :"},
	} {
		cmd := osexec.Command(prog, strings.Fields(tt.args)...)
		cmd.Env = append(unsetenv(os.Environ(), varNode), tt.env)
		out, err := cmd.Output()
		if got := strings.TrimSpace(string(out)); err != nil || got != tt.want {
			t.Errorf("shares %s (%s): %q, %v; want %q", tt.args, tt.env, got, err, tt.want)
		}
	}
}

// TestAddLibrary: it is chained behind what is there, and where it is absent one rank
// of a node says so, if somebody wants to know.
func TestAddLibrary(t *testing.T) {
	dir := t.TempDir()
	lib := filepath.Join(dir, patternLibrary)
	t.Setenv("MESH_BIN", dir)
	t.Setenv(varNode, "n7")
	for _, tt := range []struct {
		how, before, local string
		there              bool
		after, note        string
	}{
		{how: "", before: "/x.so", there: true, after: "/x.so"},
		{how: "1", there: true, after: lib},
		{how: "say", before: "/x.so:/y.so", there: true, after: "/x.so:/y.so:" + lib},
		{how: "1", before: "/x.so", after: "/x.so"},
		{how: "say", before: "/x.so", after: "/x.so", note: "meshrun: node n7 has no " + lib + "; its ranks run, and tell the pacer nothing"},
		{how: "say", local: "0", note: "meshrun: node n7 has no " + lib + "; its ranks run, and tell the pacer nothing"},
		{how: "say", local: "1"},
	} {
		os.Remove(lib)
		if tt.there {
			if err := os.WriteFile(lib, nil, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		t.Setenv(varLibrary, tt.how)
		t.Setenv("LD_PRELOAD", tt.before)
		t.Setenv("MPI_LOCALRANKID", tt.local)
		if note := strings.Join(addLibraries(), ""); note != tt.note || os.Getenv("LD_PRELOAD") != tt.after {
			t.Errorf("%+v: note %q, preload %q", tt, note, os.Getenv("LD_PRELOAD"))
		}
	}
}
