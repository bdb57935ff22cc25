package e2e

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/meshmpi/meshmpi/integration/deploy"
	"github.com/meshmpi/meshmpi/integration/lab"
	"github.com/meshmpi/meshmpi/integration/programs"
)

// built holds the programs that were compiled; tests run side by side.
var built struct {
	mu   sync.Mutex
	path map[string]string
}

// compiled returns a program built for one MPI.
func compiled(t *testing.T, name, mpi string) string {
	t.Helper()
	lab.Need(t, "mpicc."+mpi)
	built.mu.Lock()
	defer built.mu.Unlock()
	key := name + " " + mpi
	if path := built.path[key]; path != "" {
		return path
	}
	path, err := programs.Compile(bin, name, "mpicc."+mpi)
	if err != nil {
		t.Fatal(err)
	}
	if built.path == nil {
		built.path = map[string]string{}
	}
	built.path[key] = path
	return path
}

// wantRanks checks hello's output: four ranks, one on each node, of both sites.
func wantRanks(t *testing.T, out string) {
	t.Helper()
	for rank, place := range []string{"a1 site alpha", "a2 site alpha", "b1 site beta", "b2 site beta"} {
		if want := fmt.Sprintf("rank %d of 4 on %s sum 10", rank, place); !strings.Contains(out, want) {
			t.Errorf("no line %q in:\n%s", want, out)
		}
	}
}

// TestMPI runs an unmodified program of each MPI over two sites behind NATs, by
// meshrun with no other setting and by the user's own launcher.
func TestMPI(t *testing.T) {
	lab.Need(t, "mpirun.openmpi", "mpiexec.hydra")
	ctx, n := up(t, lab.TwoSites(lab.PortPreserving), deploy.Options{InitArgs: []string{"--allow-root-exec"}})
	a1 := n.Lab.Host("a1")
	for _, mpi := range []string{"openmpi", "mpich"} {
		hello := compiled(t, "hello", mpi)
		t.Run("meshrun/"+mpi, func(t *testing.T) {
			wantRanks(t, ended(ctx, t, func(ctx context.Context) (string, error) {
				return a1.Run(ctx, n.Tool("meshrun"), "-n", "4", "-H", "a1:1,a2:1,b1:1,b2:1", "--", hello)
			}))
		})
	}
	t.Run("own mpirun", func(t *testing.T) {
		out := shell(ctx, t, n, `mpirun.openmpi --allow-run-as-root -n 4 --host a1,a2,b1,b2 `+compiled(t, "hello", "openmpi"))
		if strings.Count(out, "sum 10") != 4 {
			t.Errorf("not four ranks in:\n%s", out)
		}
	})
	t.Run("own mpiexec", func(t *testing.T) {
		out := shell(ctx, t, n, `mpiexec.hydra -n 4 -hosts a1,a2,b1,b2 `+compiled(t, "hello", "mpich"))
		if strings.Count(out, "sum 10") != 4 {
			t.Errorf("not four ranks in:\n%s", out)
		}
	})
}

// shell runs a command line on a1 as a user does after eval "$(meshctl env)".
func shell(ctx context.Context, t *testing.T, n *deploy.Network, line string) string {
	t.Helper()
	script := fmt.Sprintf("eval \"$(%s env)\" && %s", n.Tool("meshctl"), line)
	return ended(ctx, t, func(ctx context.Context) (string, error) {
		return n.Lab.Host("a1").Run(ctx, "sh", "-c", script)
	})
}

// ended runs a job that must end well, and soon: with Debian's MPICH one in two
// hung in MPI_Finalize before the preload library (mpishim/preload).
func ended(ctx context.Context, t *testing.T, run func(context.Context) (string, error)) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(ctx, 40*time.Second)
	defer cancel()
	out, err := run(ctx)
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return out
}
