package e2e

import (
	"context"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/meshmpi/meshmpi/integration/deploy"
	"github.com/meshmpi/meshmpi/integration/lab"
	"github.com/meshmpi/meshmpi/internal/node/api"
)

// TestSiteLimits: what an administrator declares of the sites' links on the hub
// every node knows within two seconds, says among its events, and still knows
// when it is killed and restarted with the hub dead.
func TestSiteLimits(t *testing.T) {
	t.Parallel()
	ctx, n := up(t, lab.TwoSites(lab.PortPreserving), deploy.Options{})
	out := must(ctx, t, n, "hub", "meshctl site set alpha --up 100Mb/s --down 25MB/s")
	if !strings.Contains(out, "2/2") || !strings.Contains(out, "100Mb/s") || !strings.Contains(out, "200Mb/s") {
		t.Errorf("meshctl site set says:\n%s", out)
	}
	must(ctx, t, n, "hub", "meshctl site link beta alpha --bandwidth 2.5gbit")
	if out := must(ctx, t, n, "hub", "meshctl site set later --up 1G"); !strings.Contains(out, "site later has no node yet") {
		t.Errorf("of a site without a node meshctl site set says:\n%s", out)
	}
	want := api.SitesReply{
		Sites: []api.SiteStatus{
			{Site: "alpha", Nodes: 2, NodesUp: 2, Up: 100e6, Down: 200e6}, {Site: "beta", Nodes: 2, NodesUp: 2},
			{Site: "hubs", Nodes: 1, NodesUp: 1}, {Site: "later", Up: 1e9},
		},
		Links: []api.LinkStatus{{A: "alpha", B: "beta", Bandwidth: 2.5e9}},
	}
	await := func(host string, want api.SitesReply) {
		t.Helper()
		var got api.SitesReply
		err := deploy.Until(ctx, 2*time.Second, host+" knows the limits", func() (bool, error) {
			var err error
			got, err = n.Sites(ctx, host)
			return reflect.DeepEqual(got.Sites, want.Sites) && reflect.DeepEqual(got.Links, want.Links), err
		})
		if err != nil || got.Version != api.Version || got.Change == 0 {
			t.Fatalf("%v; it knows %+v, want %+v", err, got, want)
		}
	}
	for _, host := range []string{"hub", "a1", "b1"} {
		await(host, want)
	}
	awaitEvents(ctx, t, n, "b1", "site alpha's uplink is limited to 100Mb/s")

	must(ctx, t, n, "hub", "meshctl site set later --clear && meshctl site set alpha --down 300M")
	want.Sites = want.Sites[:3]
	want.Sites[0].Down = 300e6
	await("b1", want)
	err := deploy.Until(ctx, 5*time.Second, "b1 has saved the limits", func() (bool, error) { // at most one write a second
		code, _, _ := try(ctx, t, n, "b1", "grep -q 300000000 /var/lib/meshd/limits.json")
		return code == 0, nil
	})
	if err != nil {
		t.Error(err)
	}
	n.Kill("hub")
	n.Kill("b1")
	if err := n.Run(ctx, "b1"); err != nil {
		t.Fatal(err)
	}
	got, err := n.Sites(ctx, "b1")
	if err != nil || len(got.Sites) != 3 || got.Sites[0].Up != 100e6 || got.Sites[0].Down != 300e6 || !reflect.DeepEqual(got.Links, want.Links) {
		t.Errorf("restarted with no hub, b1 knows %+v, %v", got, err)
	}
	t.Logf("restarted with no hub, b1 lists:\n%s", must(ctx, t, n, "b1", "meshctl site list"))
	if err := n.Run(ctx, "hub"); err != nil {
		t.Fatal(err)
	}
	must(ctx, t, n, "hub", "meshctl site link alpha beta --clear")
	if err := n.Settled(ctx); err != nil {
		t.Fatal(err)
	}
	want.Links = []api.LinkStatus{}
	await("b1", want)
}

// awaitEvents waits until the events that a host lists tell of all that is wanted, however
// long meshctl takes to begin.
func awaitEvents(ctx context.Context, t *testing.T, n *deploy.Network, host string, want ...string) {
	t.Helper()
	list := ""
	err := deploy.Until(ctx, 20*time.Second, host+"'s events tell of it", func() (bool, error) {
		list = must(ctx, t, n, host, "timeout 2 meshctl events; true")
		return !slices.ContainsFunc(want, func(w string) bool { return !strings.Contains(list, w) }), nil
	})
	if err != nil {
		t.Errorf("%v: %q; they are:\n%s", err, want, list)
	}
}
