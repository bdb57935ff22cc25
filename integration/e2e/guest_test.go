package e2e

import (
	"context"
	"fmt"
	"regexp"
	"testing"
	"time"

	"github.com/meshmpi/meshmpi/integration/deploy"
	"github.com/meshmpi/meshmpi/integration/lab"
)

// TestRanksAreNodes runs ranks at two sites behind NATs that are nodes by themselves,
// without daemons, TUNs and privileges there. A launcher on a public host starts them:
// its proxies call back, as those of a login node would be.
func TestRanksAreNodes(t *testing.T) {
	t.Parallel()
	lab.Need(t, "mpiexec.hydra", "setpriv")
	ctx, n := up(t, lab.TwoSites(lab.PortPreserving), deploy.Options{})
	guest := goProgram(t, "../programs/go/guest")
	tokens := map[string]string{}
	for host, site := range map[string]string{"a2": "alpha", "b2": "beta"} {
		if err := n.Stop(ctx, host); err != nil {
			t.Fatal(err)
		}
		var err error
		if tokens[host], err = n.Token(ctx, site, 2); err != nil {
			t.Fatal(err)
		}
	}
	before := snapshots(ctx, t, n, "a2", "b2")
	// The launcher has a login on each host, without privileges, with that site's token.
	agent, err := n.Hub.StartAgent(ctx, t.TempDir(), func(ctx context.Context, host, line string) *lab.Cmd {
		if tokens[host] == "" {
			return nil
		}
		return n.Lab.Host(host).Command(ctx, "setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--no-new-privs", "--inh-caps=-all",
			"env", "HOME=/", "MESH_TOKEN="+tokens[host], "/bin/sh", "-c", line)
	})
	if err != nil {
		t.Fatal(err)
	}
	defer agent.Close()
	run, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	stacks := time.AfterFunc(90*time.Second, func() { // of ranks that hang; their launcher passes them on
		for host := range tokens {
			_, _ = n.Lab.Host(host).Run(ctx, "pkill", "-QUIT", "-x", "guest")
		}
	})
	defer stacks.Stop()
	out, err := n.Hub.Run(run, "mpiexec.hydra", "-launcher", "rsh", "-launcher-exec", agent.Script, "-iface", "eth0",
		"-n", "4", "-ppn", "2", "-hosts", "a2,b2", guest)
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	virtual := map[string]bool{}
	for rank, site := range []string{"alpha", "alpha", "beta", "beta"} {
		m := regexp.MustCompile(fmt.Sprintf(`(?m)^rank %d of 4 at (100\.\S+), 2 at site %s: sum 10$`, rank, site)).FindStringSubmatch(out)
		if m == nil {
			t.Fatalf("rank %d is not at %s in:\n%s", rank, site, out)
		}
		virtual[m[1]] = true
	}
	if len(virtual) != 4 {
		t.Errorf("ranks share addresses:\n%s", out)
	}
	wantSnapshots(ctx, t, n, "ranks that are nodes", before)
}
