package e2e

import (
	"context"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/meshmpi/meshmpi/integration/deploy"
	"github.com/meshmpi/meshmpi/integration/lab"
)

// TestProgramIsANode: a Go program without privilege, TUN or daemon is a node
// by itself, across NATs: it talks to others like it and to ordinary nodes, both
// ways and by name, and leaves nothing on its host.
func TestProgramIsANode(t *testing.T) {
	t.Parallel()
	ctx, n := up(t, lab.TwoSites(lab.PortPreserving), deploy.Options{})
	echo := goProgram(t, "../programs/go/echo")
	for _, host := range []string{"a2", "b2"} { // no daemon there
		if err := n.Stop(ctx, host); err != nil {
			t.Fatal(err)
		}
	}
	before := snapshots(ctx, t, n, "a2", "b2")
	nobody := func(host, site string, args ...string) []string {
		token, err := n.Token(ctx, site, 1)
		if err != nil {
			t.Fatal(err)
		}
		args = append([]string{"setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--no-new-privs", "--inh-caps=-all",
			"env", "HOME=/", "MESH_TOKEN=" + token, echo, "-join"}, args...)
		return args
	}
	start := func(host string, args ...string) *lab.Daemon {
		d, err := n.Lab.Host(host).Start(args[0], args[1:]...)
		if err != nil {
			t.Fatal(err)
		}
		wait, cancel := context.WithTimeout(ctx, 20*time.Second)
		defer cancel()
		if err := d.Await(wait, "ready"); err != nil {
			t.Fatalf("%s: %v\n%s", host, err, d.Log())
		}
		return d
	}
	embedded := start("b2", nobody("b2", "beta", "-name", "go1", "serve", ":7000")...)
	ordinary := start("b1", echo, "serve", ":7000")
	for _, tc := range []struct {
		what, host string
		args       []string
	}{
		{"program to program", "a2", nobody("a2", "alpha", "dial", "go1:7000")},
		{"program to node", "a2", nobody("a2", "alpha", "dial", "b1.beta.mesh.internal:7000")},
		{"node to program", "a1", []string{echo, "dial", "go1.mesh.internal:7000"}},
	} {
		try, cancel := context.WithTimeout(ctx, 70*time.Second)
		out, err := n.Lab.Host(tc.host).Run(try, tc.args[0], tc.args[1:]...)
		cancel()
		if err != nil || !strings.Contains(out, "echoed 4194304 bytes") {
			t.Errorf("%s: %v\n%s", tc.what, err, out)
			_ = embedded.Signal(syscall.SIGQUIT) // where it is goes to its log
		}
		t.Logf("%s: %s", tc.what, out)
	}
	if out, err := n.Lab.Host("a2").Run(ctx, "env", "MESH_TOKEN=", echo, "-join", "dial", "go1:7000"); err == nil || !strings.Contains(err.Error(), "token") {
		t.Errorf("without a token: %v\n%s", err, out)
	}
	for _, d := range []*lab.Daemon{embedded, ordinary} {
		d.Kill()
	}
	wantSnapshots(ctx, t, n, "being a node", before)
}
