package e2e

import (
	"regexp"
	"strconv"
	"testing"
	"time"

	"github.com/meshmpi/meshmpi/integration/deploy"
	"github.com/meshmpi/meshmpi/integration/lab"
	"github.com/meshmpi/meshmpi/integration/wan"
	"github.com/meshmpi/meshmpi/internal/eventually"
)

// TestFirstWindow: a new connection to another site begins with what its node's share of
// a declared link carries in a round trip, and with the kernel's ten segments where
// nothing is declared.
func TestFirstWindow(t *testing.T) {
	t.Parallel()
	lab.Need(t, "iperf3", "ss")
	cfg := lab.TwoSites(lab.PortPreserving).WithWAN(wan.Symmetric(wan.Pipe{Delay: 5 * time.Millisecond}), "alpha", "beta")
	ctx, n := up(t, cfg, deploy.Options{})
	serve(ctx, t, n.Lab.Host("b1"), "iperf3", "-s", "--forceflush")
	windowRE := regexp.MustCompile(`\bcwnd:(\d+)`)
	begins := func(holds func(segments int) bool) func() bool {
		return func() bool {
			out := must(ctx, t, n, "a1", `bash -c 'exec 3<>/dev/tcp/b1/5201; ss -tinHO dport = 5201'`)
			m := windowRE.FindStringSubmatch(out)
			if m == nil {
				t.Fatalf("ss shows no window:\n%s", out)
			}
			segments, err := strconv.Atoi(m[1])
			return err == nil && holds(segments)
		}
	}
	eventually.Holds(t, "a window of ten segments where nothing is declared", begins(func(n int) bool { return n == 10 }))
	must(ctx, t, n, "hub", "meshctl site set alpha --up 100Mb/s")
	// 30 ms of 50 Mb/s, half of it, are 187 kB, and a quarter more; round trips beside busy
	// tests are longer.
	eventually.Holds(t, "a window of 150 segments or more over 100 Mb/s", begins(func(n int) bool { return n >= 150 }))
	must(ctx, t, n, "hub", "meshctl site set alpha --clear")
	eventually.Holds(t, "a window of ten segments again", begins(func(n int) bool { return n == 10 }))
}
