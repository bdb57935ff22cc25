package e2e

import (
	"context"
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
	awaitMTU(ctx, t, n, 1280)
	wantStall(t, stream(ctx, t, n, 3).end(t), 2*time.Second)
}

// TestMTUShrinks: what the path carries becomes smaller under a job, again
// without a word; the job goes on.
func TestMTUShrinks(t *testing.T) {
	t.Parallel()
	pipe := wan.Pipe{Delay: time.Millisecond}
	ctx, n := up(t, lab.TwoSites(lab.PortPreserving).WithWAN(wan.Symmetric(pipe), "alpha", "beta"), deploy.Options{InitArgs: []string{"--allow-root-exec"}})
	if _, err := n.AwaitPath(ctx, "a1", "b1", "udp", 10*time.Second); err != nil {
		t.Fatal(err)
	}
	awaitMTU(ctx, t, n, 1400)
	j := stream(ctx, t, n, 20)
	pause(ctx, 3*time.Second)
	pipe.BlackHole = 1360
	for _, site := range []string{"alpha", "beta"} {
		if err := n.Lab.SetWAN(site, wan.Symmetric(pipe)); err != nil {
			t.Fatal(err)
		}
	}
	awaitMTU(ctx, t, n, 1280)
	wantStall(t, j.end(t), 12*time.Second) // the retransmissions have backed off by then
}

// awaitMTU waits until a1 knows what its path to b1 carries.
func awaitMTU(ctx context.Context, t *testing.T, n *deploy.Network, want int) {
	t.Helper()
	var got int
	if err := deploy.Until(ctx, 15*time.Second, "the path's MTU is found", func() (bool, error) {
		p, err := n.Path(ctx, "a1", "b1")
		got = p.MTU
		return got == want, err
	}); err != nil {
		t.Errorf("the path carries %d bytes, want %d: %v", got, want, err)
	}
}
