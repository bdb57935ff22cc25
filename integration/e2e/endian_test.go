package e2e

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/meshmpi/meshmpi/integration/lab"
)

// TestEndian runs jobs whose later ranks are programs for s390x, which has the big
// end first, under user-mode emulation. Both kinds of ranks must agree.
func TestEndian(t *testing.T) {
	t.Parallel()
	lab.Need(t, "mpiexec.hydra", "qemu-s390x-static")
	if runtime.GOARCH == "s390x" {
		t.Skip("this machine has the big end first itself")
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	far := t.TempDir()
	for _, tc := range []struct{ program, args, says string }{
		{"../programs/go/orders", "", "orders: 4 ranks agree"},
		{"../../mpi/examples/heat", "-n 60 -steps 100", "mean 7.866773"},
		{"../../mpi/examples/sort", "-n 20000", "sort: 80000 numbers on 4 ranks"},
		{"../../mpi/examples/farm", "-last 100000", "farm: 9592 primes up to 100000"},
	} {
		near := goProgram(t, tc.program)
		build := exec.CommandContext(ctx, "go", "build", "-o", far, tc.program)
		build.Env = append(os.Environ(), "GOARCH=s390x")
		if out, err := build.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		line := "mpiexec.hydra -n 2 " + near + " " + tc.args + " : -n 2 qemu-s390x-static " + filepath.Join(far, filepath.Base(tc.program)) + " " + tc.args
		out, err := exec.CommandContext(ctx, "sh", "-c", line).CombinedOutput()
		if err != nil || !strings.Contains(string(out), tc.says) {
			t.Errorf("%s: %v, want a line with %q:\n%s", line, err, tc.says, out)
		}
	}
}
