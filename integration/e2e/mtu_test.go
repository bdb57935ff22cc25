package e2e

import (
	"testing"
	"time"

	"github.com/meshmpi/meshmpi/integration/deploy"
	"github.com/meshmpi/meshmpi/integration/lab"
	"github.com/meshmpi/meshmpi/integration/wan"
)

// TestBlackHole: between the sites packets of more than 1360 bytes vanish
// without a word. The path's MTU is found by probes, the kernel is told, and
// bulk data, whose size nobody announced, arrives.
func TestBlackHole(t *testing.T) {
	t.Parallel()
	hole := wan.Symmetric(wan.Pipe{BlackHole: 1360, Delay: time.Millisecond})
	ctx, n := up(t, lab.TwoSites(lab.PortPreserving).WithWAN(hole, "alpha", "beta"), deploy.Options{InitArgs: []string{"--allow-root-exec"}})
	if _, err := n.AwaitPath(ctx, "a1", "b1", "udp", 10*time.Second); err != nil {
		t.Fatal(err)
	}
	err := deploy.Until(ctx, 10*time.Second, "the path's MTU is found", func() (bool, error) {
		p, err := n.Path(ctx, "a1", "b1")
		return p.MTU == 1280, err
	})
	if err != nil {
		t.Error(err)
	}
	wantStall(t, stream(ctx, t, n, 3).end(t), 2*time.Second)
}
