package e2e

import (
	"testing"
	"time"

	"github.com/meshmpi/meshmpi/integration/deploy"
	"github.com/meshmpi/meshmpi/integration/lab"
)

// TestPaths: pairs behind NATs that keep ports become direct; pairs behind
// symmetric ones stay relayed and work.
func TestPaths(t *testing.T) {
	for _, tc := range []struct {
		nat  lab.NAT
		kind string
	}{{lab.PortPreserving, "udp"}, {lab.Symmetric, "relay-udp"}} {
		t.Run(tc.nat.String(), func(t *testing.T) {
			t.Parallel()
			ctx, n := up(t, lab.TwoSites(tc.nat), deploy.Options{})
			for _, pair := range [][2]string{{"a1", "b1"}, {"b2", "a2"}} {
				p, err := n.AwaitPath(ctx, pair[0], pair[1], tc.kind, 10*time.Second)
				if err != nil {
					t.Fatal(err)
				}
				t.Logf("%s → %s: %+v", pair[0], pair[1], p)
			}
			// Two nodes behind one NAT talk privately.
			if _, err := n.AwaitPath(ctx, "a1", "a2", "udp", 10*time.Second); err != nil {
				t.Error(err)
			}
			for _, from := range n.Lab.Hosts() {
				for _, to := range n.Lab.Hosts() {
					if from == to {
						continue
					}
					if out, err := from.Run(ctx, "ping", "-c2", "-i0.2", "-W5", to.Name); err != nil {
						t.Errorf("ping %s from %s: %v\n%s", to.Name, from.Name, err, out)
					}
				}
			}
		})
	}
}
