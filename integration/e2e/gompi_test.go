package e2e

import (
	"strings"
	"testing"
	"time"

	"github.com/meshmpi/meshmpi/integration/deploy"
	"github.com/meshmpi/meshmpi/integration/lab"
)

// TestGoMPI runs the example programs of package mpi over two sites behind NATs,
// by every launcher, and lets a worker of the farm die.
func TestGoMPI(t *testing.T) {
	t.Parallel()
	lab.Need(t, "mpirun.openmpi", "mpiexec.hydra")
	ctx, n := up(t, lab.TwoSites(lab.PortPreserving), deploy.Options{InitArgs: []string{"--allow-root-exec"}})
	if _, err := n.AwaitPath(ctx, "a1", "b1", "udp", 10*time.Second); err != nil {
		t.Fatal(err)
	}
	example := func(name string) string { return goProgram(t, "../../mpi/examples/"+name) }
	hello, heat, farm, sort := example("hello"), example("heat"), example("farm"), example("sort")
	soak, orders := goProgram(t, "../programs/go/soak"), goProgram(t, "../programs/go/orders")
	four := "meshrun -n 4 -H a1:1,a2:1,b1:1,b2:1 "
	for _, tc := range []struct{ what, line, says string }{
		{"meshrun", four + hello, "rank 3 of 4 on b2 at site beta"},
		{"own mpiexec", `eval "$(meshctl env)"; mpiexec.hydra -n 4 -hosts a1,a2,b1,b2 ` + hello, "rank 3 of 4 on b2 at site beta"},
		{"own mpirun", `eval "$(meshctl env)"; mpirun.openmpi --allow-run-as-root -n 4 --host a1,a2,b1,b2 ` + hello, "rank 0 of 4 on a1 at site alpha"},
		{"own mpirun, ranks elsewhere", `eval "$(meshctl env)"; mpirun.openmpi --allow-run-as-root -n 4 --host b1:2,a2:2 ` + hello, "rank 3 of 4 on a2 at site alpha"},
		{"own mpirun, one host", "mpirun.openmpi --allow-run-as-root -n 2 --host a1:2 " + hello, "rank 1 of 2 on a1"},
		{"own mpiexec, with messages", `eval "$(meshctl env)"; mpiexec.hydra -n 4 -hosts a1,b1,a2,b2 ` + orders, "orders: 4 ranks agree"},
		{"own mpirun, with messages", `eval "$(meshctl env)"; mpirun.openmpi --allow-run-as-root -n 4 --host a1,b1,a2,b2 ` + orders, "orders: 4 ranks agree"},
		{"alone", hello, "rank 0 of 1"},
		{"two programs", "meshrun -n 1 -H a1:1,b1:1 " + hello + " : -n 1 " + hello, "rank 1 of 2 on b1 at site beta"},
		{"heat, alone", heat + " -n 60 -steps 100", "mean 7.866773"},
		{"heat", four + heat + " -n 60 -steps 100", "2 × 2 ranks, 100 steps in"},
		{"sort", four + sort + " -n 100000", "sort: 400000 numbers on 4 ranks"},
		{"soak", four + soak + " -messages 10000", "soaked 10000 "},
		{"farm", four + farm + " -last 300000 -tasks 60", "farm: 25997 primes up to 300000, 60 tasks, 3 workers of which 0 died"},
		{"farm with a death", four + "--ft " + farm + " -last 300000 -tasks 60 -kill 3", "farm: 25997 primes up to 300000, 60 tasks, 3 workers of which 1 died"},
	} {
		t.Run(tc.what, func(t *testing.T) {
			began := time.Now()
			code, out, errs := try(ctx, t, n, "a1", tc.line)
			if code != 0 || !strings.Contains(out, tc.says) {
				t.Errorf("code %d, want a line with %q:\n%s%s", code, tc.says, out, errs)
			}
			t.Logf("%v\n%s%s", time.Since(began).Round(time.Millisecond), out, errs)
		})
	}
}
