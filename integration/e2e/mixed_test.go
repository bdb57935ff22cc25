package e2e

import (
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/meshmpi/meshmpi/integration/deploy"
	"github.com/meshmpi/meshmpi/integration/lab"
)

// TestGoBesideC runs jobs of Go and of C on the same nodes at the same time, and
// refuses one job of both, which could not talk to each other.
func TestGoBesideC(t *testing.T) {
	t.Parallel()
	lab.Need(t, "mpirun.openmpi", "mpiexec.hydra")
	ctx, n := up(t, lab.TwoSites(lab.PortPreserving), deploy.Options{InitArgs: []string{"--allow-root-exec"}})
	sort := goProgram(t, "../../mpi/examples/sort")
	openmpi, mpich := compiled(t, "hello", "openmpi"), compiled(t, "hello", "mpich")
	stream := compiled(t, "stream", "openmpi")

	t.Run("side by side", func(t *testing.T) {
		// The C ranks spin while they wait, on the cores of all: these give way.
		lines := map[string]string{
			"OMPI_MCA_mpi_yield_when_idle=1 meshrun -n 2 -H a1:1,b1:1 " + stream + " 3": "exchanged ",
			"meshrun -n 2 -H a1:1,b1:1 " + sort + " -n 20000":                           "sort: 40000 numbers on 2 ranks",
		}
		began := time.Now()
		var all sync.WaitGroup
		for line, says := range lines {
			all.Go(func() {
				code, out, errs := try(ctx, t, n, "a1", line)
				if code != 0 || !strings.Contains(out, says) {
					t.Errorf("$ %s\ncode %d, want 0 and %q:\n%s%s", line, code, says, out, errs)
				}
			})
		}
		all.Wait()
		t.Logf("both took %v", time.Since(began).Round(time.Millisecond))
	})
	t.Run("in one job", func(t *testing.T) {
		cases(ctx, t, n, []bad{
			{"Go and C", "a1", "meshrun -n 2 -H a1:2,b1:2 " + sort + " : -n 2 " + openmpi, 125, sort + " is for go…" + openmpi + " for openmpi…two jobs"},
			{"C and Go", "a1", "meshrun -n 2 -H a1:2,b1:2 " + mpich + " : -n 2 " + sort, 125, mpich + " is for mpich…" + sort + " for go…--mpi"},
			{"two of C", "a1", "meshrun -n 2 -H a1:2,b1:2 " + openmpi + " : -n 2 " + mpich, 125, openmpi + " is for openmpi…" + mpich + " for mpich"},
		})
	})
}
