package e2e

import (
	"strings"
	"testing"
	"time"

	"github.com/meshmpi/meshmpi/integration/deploy"
	"github.com/meshmpi/meshmpi/integration/lab"
)

// TestAddressesAndNames: both families, forward, reverse and site names, foreign
// names passed on, all through the host's own resolver.
func TestAddressesAndNames(t *testing.T) {
	t.Parallel()
	lab.Need(t, "dig", "ping")
	ctx, n := up(t, lab.TwoSites(lab.PortPreserving), deploy.Options{})
	a1 := n.Lab.Host("a1")
	s, err := n.Status(ctx, "b1")
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct{ question, want string }{
		{"getent ahostsv4 b1 | head -n1 | cut -d' ' -f1", s.Self.Addr4},
		{"getent ahostsv4 b1.mesh.internal | head -n1 | cut -d' ' -f1", s.Self.Addr4},
		{"getent ahostsv6 b1.beta.mesh.internal | head -n1 | cut -d' ' -f1", s.Self.Addr6},
		{"getent hosts " + s.Self.Addr4 + " | tr -s ' ' | cut -d' ' -f2", "b1.mesh.internal"},
		{"dig +short -x " + s.Self.Addr6, "b1.mesh.internal."},
		{"dig +short AAAA b1.mesh.internal", s.Self.Addr6},
		{"getent hosts nobody.mesh.internal || echo none", "none"},
	} {
		out, err := a1.Run(ctx, "sh", "-c", tc.question)
		if err != nil || strings.TrimSpace(out) != tc.want {
			t.Errorf("%s = %q, %v; want %q", tc.question, out, err, tc.want)
		}
	}
	for _, family := range []string{"-4", "-6"} {
		if out, err := a1.Run(ctx, "ping", family, "-c2", "-i0.2", "-W5", "b1"); err != nil {
			t.Errorf("ping %s b1: %v\n%s", family, err, out)
		}
	}
}

// TestMovesUpWhenItCan: a relayed pair becomes direct once its NATs let it, and
// falls back to the relay, without losing its session, when they no longer do.
func TestMovesUpWhenItCan(t *testing.T) {
	t.Parallel()
	ctx, n := up(t, lab.TwoSites(lab.Symmetric), deploy.Options{})
	if _, err := n.AwaitPath(ctx, "a1", "b1", "relay-udp", 10*time.Second); err != nil {
		t.Fatal(err)
	}
	for _, site := range []string{"alpha", "beta"} {
		if err := n.Lab.SetNAT(site, lab.PortPreserving); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := n.AwaitPath(ctx, "a1", "b1", "udp", 45*time.Second); err != nil {
		t.Fatal(err)
	}
	for _, site := range []string{"alpha", "beta"} {
		if err := n.Lab.SetNAT(site, lab.Symmetric); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := n.AwaitPath(ctx, "a1", "b1", "relay-udp", 45*time.Second); err != nil {
		t.Error(err)
	}
}

// TestDoubleNAT: with a carrier's NAT in front of each site's, pairs still become
// direct, across the sites and within one.
func TestDoubleNAT(t *testing.T) {
	t.Parallel()
	ctx, n := up(t, lab.TwoSites(lab.Double), deploy.Options{})
	for _, pair := range [][2]string{{"a1", "b1"}, {"a1", "a2"}} {
		if _, err := n.AwaitPath(ctx, pair[0], pair[1], "udp", 15*time.Second); err != nil {
			t.Error(err)
		}
	}
}
