package programs

import (
	"context"
	"fmt"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"
)

// TestRivals compiles the programs that package mpi is compared with by both MPIs,
// and looks whether they and their twins in Go print what their readers expect. They
// are run by Open MPI alone: MPICH's of Debian at times hangs in MPI_Finalize on a
// busy machine.
func TestRivals(t *testing.T) {
	for _, program := range []string{"mpicc.openmpi", "mpicc.mpich", "mpirun.openmpi", "mpiexec.hydra"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skipf("%s is not installed", program)
		}
	}
	dir := t.TempDir()
	for _, x := range []struct {
		program string
		args    []string
		want    []string // names and bytes
	}{
		{"pp", []string{"-seconds", "0.001", "1", "65536"}, []string{"pp 1", "pp 65536"}},
		{"colls", []string{"-loops", "2", "-seconds", "0.001", "1", "4096"}, collLines(1, 4096)},
		{"colls", []string{"-loops", "2", "-seconds", "0.001", "-global", "1", "4096"}, collLines(1, 4096)},
		{"colls", []string{"-loops", "2", "-seconds", "0.001", "-only", "reduce", "1", "4096"}, []string{"reduce 1", "reduce 4096"}},
	} {
		if _, err := Compile(dir, x.program, "mpicc.mpich"); err != nil {
			t.Fatal(err)
		}
		inC, err := Compile(dir, x.program, "mpicc.openmpi")
		if err != nil {
			t.Fatal(err)
		}
		inGo, err := Build(t.Context(), dir, x.program)
		if err != nil {
			t.Fatal(err)
		}
		for _, launch := range [][]string{
			{"mpirun.openmpi", "--allow-run-as-root", "--oversubscribe", "--bind-to", "none", "--mca", "mpi_yield_when_idle", "1", "-n", "2", inC},
			{"mpiexec.hydra", "-n", "2", inGo},
		} {
			wantFigures(t, job(t, append(launch, x.args...)), x.want)
		}
	}
}

// TestKernels runs the programs that only Open MPI is measured by. They exit with an
// error if what they compute is wrong.
func TestKernels(t *testing.T) {
	for _, program := range []string{"mpicc.openmpi", "mpirun.openmpi"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skipf("%s is not installed", program)
		}
	}
	dir := t.TempDir()
	for _, x := range []struct {
		program string
		ranks   string
		args    []string
		want    []string
	}{
		{"cg", "1", []string{"4096"}, []string{"cg 4096"}},
		{"cg", "4", []string{"4096"}, []string{"cg 4096"}},
		{"cg", "8", []string{"65536"}, []string{"cg 65536"}},
		{"lu", "1", []string{"-depth", "4", "64"}, []string{"lu 64"}},
		{"lu", "3", []string{"-depth", "4", "64"}, []string{"lu 64"}},
		{"lu", "8", []string{"-depth", "8", "-sweeps", "1", "1280"}, []string{"lu 1280"}},
	} {
		inC, err := Compile(dir, x.program, "mpicc.openmpi")
		if err != nil {
			t.Fatal(err)
		}
		launch := []string{"mpirun.openmpi", "--allow-run-as-root", "--oversubscribe", "--bind-to", "none", "--mca", "mpi_yield_when_idle", "1", "-n", x.ranks, inC}
		wantFigures(t, job(t, append(launch, x.args...)), x.want)
		marked := job(t, append(launch, append([]string{"-mark"}, x.args...)...))
		var name string
		var size int
		if _, err := fmt.Sscan(x.want[0], &name, &size); err != nil {
			t.Fatal(err)
		}
		want := regexp.MustCompile(fmt.Sprintf(`^mark begin %s %d \d+\.\d{6}\nmark end %[1]s %[2]d \d+\.\d{6}\n%[1]s %[2]d `, name, size))
		if !want.MatchString(marked) {
			t.Errorf("with -mark it prints\n%s, want %v", marked, want)
		}
	}
}

// wantFigures looks for one good line for each name and number of bytes.
func wantFigures(t *testing.T, out string, want []string) {
	t.Helper()
	var got []string
	for line := range strings.Lines(out) {
		var name string
		var size int
		var mean, worst, mbps float64
		if _, err := fmt.Sscan(line, &name, &size, &mean, &worst, &mbps); err != nil || mean <= 0 || worst <= 0 || mbps < 0 {
			t.Errorf("a line is %q (%v)", line, err)
		}
		got = append(got, fmt.Sprintf("%s %d", name, size))
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("measures %q, want %q", got, want)
	}
}

// TestCosts runs what the twin in Go prints besides.
func TestCosts(t *testing.T) {
	if _, err := exec.LookPath("mpiexec.hydra"); err != nil {
		t.Skip("mpiexec.hydra is not installed")
	}
	pp, err := Build(t.Context(), t.TempDir(), "pp")
	if err != nil {
		t.Fatal(err)
	}
	out := job(t, []string{"mpiexec.hydra", "-n", "2", pp, "-allocs", "1", "1024"})
	for _, kind := range []string{"expected", "unexpected", "wildcard"} {
		for _, size := range []string{"1", "1024"} {
			if n := strings.Count(out, "allocs-"+kind+" "+size+" "); n != 2 {
				t.Errorf("%d ranks count allocations of %s messages of %s bytes:\n%s", n, kind, size, out)
			}
		}
	}
	var seconds, share float64
	out = job(t, []string{"mpiexec.hydra", "-n", "2", pp, "-idle", "50ms"})
	if _, err := fmt.Sscanf(out, "idle %f %f\n", &seconds, &share); err != nil || seconds < 0.04 || share < 0 {
		t.Errorf("waiting prints %q (%v)", out, err)
	}
}

// collLines are the names and bytes that colls measures with two ranks.
func collLines(sizes ...int) []string {
	lines := []string{"barrier 0"}
	for _, n := range sizes {
		for _, name := range []string{"bcast", "reduce", "allreduce"} {
			lines = append(lines, fmt.Sprintf("%s %d", name, n))
		}
		for _, name := range []string{"allgather", "alltoall"} {
			lines = append(lines, fmt.Sprintf("%s %d", name, max(n/2, 1)))
		}
	}
	return lines
}

// job runs a command line and returns what it prints.
func job(t *testing.T, line []string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, line[0], line[1:]...)
	var errs strings.Builder
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%q: %v\n%s%s", line, err, out, errs.String())
	}
	return string(out)
}
