package node

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/meshmpi/meshmpi/internal/node/api"
	"github.com/meshmpi/meshmpi/internal/state"
	"github.com/meshmpi/meshmpi/mesh/directory"
	"github.com/meshmpi/meshmpi/mesh/peer"
	"github.com/meshmpi/meshmpi/mesh/sites"
)

// said makes a set of limits: alpha's uplink, beta's downlink, and the pair.
func said(version uint64, up, down, pair int64) sites.Limits {
	return sites.Limits{Version: version, Sites: []sites.Site{{Name: "alpha", Up: up}, {Name: "beta", Down: down}},
		Pairs: []sites.Pair{{A: "alpha", B: "beta", Rate: pair}}}
}

// lanOf has a site of a set use its LAN.
func lanOf(site string, l sites.Limits) sites.Limits {
	for i, s := range l.Sites {
		l.Sites[i].Native = s.Native || s.Name == site
	}
	return l
}

// TestLimitsNewest: of what hubs say the newest holds, whatever comes when, and
// the hook is called where it makes a difference.
func TestLimitsNewest(t *testing.T) {
	var l limits
	called := 0
	l.changed = func() { called++ }
	if up, down := l.of("alpha"); up != 0 || down != 0 || l.pair("alpha", "beta") != 0 || l.between("alpha", "beta") != 0 {
		t.Error("something is said before anybody has spoken")
	}
	for _, tc := range []struct {
		name           string
		next           sites.Limits
		newer          bool
		changes, calls int
		between, back  int64
	}{
		{"nothing was ever declared", sites.Limits{}, false, 0, 0, 0, 0},
		{"first", said(5, 100e6, 80e6, 90e6), true, 3, 1, 80e6, 90e6},
		{"the same", said(5, 100e6, 80e6, 90e6), false, 0, 1, 80e6, 90e6},
		{"older", said(4, 1e6, 1e6, 1e6), false, 0, 1, 80e6, 90e6},
		{"newer in number alone", said(6, 100e6, 80e6, 90e6), true, 0, 1, 80e6, 90e6},
		{"newer", said(7, 50e6, 80e6, 90e6), true, 1, 2, 50e6, 90e6},
		{"a LAN", lanOf("alpha", said(8, 50e6, 80e6, 90e6)), true, 1, 3, 50e6, 90e6},
		{"taken back", sites.Limits{Version: 9}, true, 4, 4, 0, 0},
	} {
		changes, newer := l.take(tc.next)
		if newer != tc.newer || len(changes) != tc.changes || called != tc.calls {
			t.Errorf("%s: newer %v, changes %v, called %d times; want %v, %d, %d", tc.name, newer, changes, called, tc.newer, tc.changes, tc.calls)
		}
		if there, back := l.between("alpha", "beta"), l.between("beta", "alpha"); there != tc.between || back != tc.back {
			t.Errorf("%s: between alpha and beta %d, and back %d; want %d, %d", tc.name, there, back, tc.between, tc.back)
		}
	}
}

// remembering is a daemon with a state directory, where nothing runs.
func remembering(t *testing.T, dir string) *daemon {
	t.Helper()
	d := knowing()
	d.log = slog.New(slog.DiscardHandler)
	d.id.dir = must(state.Open(dir))(t)
	d.startSaver()
	return d
}

// TestLimitsRemembered: what a node was told it knows after a restart, with no
// event; what it cannot read it says and does without.
func TestLimitsRemembered(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state")
	found(t, dir)
	d := remembering(t, dir)
	d.loadLimits()
	if d.limits.all().Version != 0 || len(d.notes.all()) != 0 {
		t.Errorf("a new node remembers %+v and notes %q", d.limits.all(), d.notes.all())
	}
	want := lanOf("beta", said(5, 100e6, 80e6, 90e6))
	d.takeLimits(want)
	d.takeLimits(said(4, 1e6, 1e6, 1e6))
	if err := d.saved.Close(); err != nil {
		t.Fatal(err)
	}
	if info := must(os.Stat(filepath.Join(dir, limitsFile)))(t); info.Mode().Perm() != 0o600 {
		t.Errorf("the file has mode %v", info.Mode())
	}
	var texts []string
	for _, e := range d.events.last {
		texts = append(texts, e.Kind+": "+e.Text)
	}
	if len(texts) != 4 || texts[0] != "site: site alpha's uplink is limited to 100Mb/s" || texts[2] != "site: packets within site beta go over their LAN, in clear" {
		t.Errorf("events %q", texts)
	}

	again := remembering(t, dir)
	again.loadLimits()
	if got := again.limits.all(); !reflect.DeepEqual(got, want) || len(again.events.last) != 0 {
		t.Errorf("after a restart it knows %+v, want %+v; events %v", got, want, again.events.last)
	}
	for _, bad := range []string{"{", `{"version":3,"sites":[{"site":"A","up":1000000}],"pairs":[]}`} {
		if err := os.WriteFile(filepath.Join(dir, limitsFile), []byte(bad), 0o600); err != nil {
			t.Fatal(err)
		}
		broken := remembering(t, dir)
		broken.loadLimits()
		notes := strings.Join(broken.notes.all(), "; ")
		if broken.limits.all().Version != 0 || !strings.Contains(notes, limitsFile+" is damaged") || strings.Contains(notes, "\n") {
			t.Errorf("of %s it takes %+v and notes %q", bad, broken.limits.all(), notes)
		}
		broken.takeLimits(want)
		if err := broken.saved.Close(); err != nil || len(broken.notes.all()) != 0 {
			t.Errorf("told anew, it saves with %v and notes %q of a file that is whole", err, broken.notes.all())
		}
	}
}

// TestLimitsEvents: a set with much news makes a bounded number of events.
func TestLimitsEvents(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state")
	found(t, dir)
	d := remembering(t, dir)
	many := sites.Limits{Version: 1}
	for i := range 100 {
		many.Sites = append(many.Sites, sites.Site{Name: fmt.Sprintf("s%03d", i), Up: 1e6})
	}
	few := many
	few.Sites = many.Sites[:maxEvents]
	d.takeLimits(few)
	if n := len(d.events.last); n != maxEvents {
		t.Errorf("%d changes make %d events", maxEvents, n)
	}
	d.events = newJournal()
	d.takeLimits(sites.Limits{Version: 2, Sites: many.Sites[maxEvents:]})
	last := d.events.last[len(d.events.last)-1].Text
	if n := len(d.events.last); n != maxEvents || !strings.HasPrefix(last, "85 more limits") {
		t.Errorf("100 changes make %d events, the last is %q", n, last)
	}
}

func TestSiteNodes(t *testing.T) {
	down := func(r *peer.Record) { r.Up = false }
	gone := func(r *peer.Record) { r.Revoked = true }
	others := []peer.Record{other("a2", "alpha", 2), other("a3", "alpha", 3, down), other("a4", "alpha", 4, gone),
		other("hub", "beta", 5, func(r *peer.Record) { r.Node.Roles = peer.RoleHub }), other("b1", "beta", 6, down)}
	d := knowing(others...)
	check := func(what, site string, up, all int) {
		t.Helper()
		if u, a := d.siteNodes(site); u != up || a != all {
			t.Errorf("%s: %d of %d nodes of %s are up, want %d of %d", what, u, a, site, up, all)
		}
	}
	check("without a record of ourselves", "alpha", 2, 3)
	check("another site", "beta", 1, 2)
	check("no such site", "gamma", 0, 0)
	d.dir.Apply(false, []peer.Record{other("a1", "alpha", 1, down)})
	check("as one who is down", "alpha", 2, 3)
	d.dir.Apply(false, []peer.Record{other("a1", "alpha", 1)})
	check("as one who is up", "alpha", 2, 3)
	d.dir = &directory.Directory{}
	check("alone", "alpha", 1, 1)
}

func TestSiteList(t *testing.T) {
	nodes := []api.NodeStatus{
		{Name: "a1", Site: "alpha", Up: true}, {Name: "a2", Site: "alpha"}, {Name: "a3", Site: "alpha", Up: true, Revoked: true}, {Name: "c1", Site: "core", Up: true},
	}
	got := siteList(nodes, lanOf("beta", said(7, 100e6, 80e6, 90e6)))
	want := api.SitesReply{Version: api.Version, Change: 7,
		Sites: []api.SiteStatus{{Site: "alpha", Nodes: 2, NodesUp: 1, Up: 100e6}, {Site: "beta", Down: 80e6, Native: true}, {Site: "core", Nodes: 1, NodesUp: 1}},
		Links: []api.LinkStatus{{A: "alpha", B: "beta", Bandwidth: 90e6}}}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v\nwant %+v", got, want)
	}
	if got := siteList(nil, sites.Limits{}); got.Sites == nil || got.Links == nil {
		t.Errorf("an empty list is null in JSON: %+v", got)
	}
}

// TestSites: what is declared on a hub is there at once, also after a restart,
// and what is wrong is told in a line and changes nothing.
func TestSites(t *testing.T) {
	if !ownHost(t) {
		return
	}
	dir := filepath.Join(t.TempDir(), "state")
	found(t, dir)
	r := begin(t, Config{State: dir})
	client, ctx := api.Dial(dir), t.Context()
	rep := must(client.SetSite(ctx, api.SiteRequest{Site: "core", Up: 100e6}))(t)
	if len(rep.Sites) != 1 || rep.Sites[0] != (api.SiteStatus{Site: "core", Nodes: 1, NodesUp: 1, Up: 100e6}) {
		t.Errorf("after setting: %+v", rep)
	}
	on, off := true, false
	for _, tc := range []struct {
		req    api.SiteRequest
		native bool
		up     int64
	}{
		{api.SiteRequest{Site: "core", Native: &on}, true, 100e6},
		{api.SiteRequest{Site: "core", Native: &off, Up: 200e6}, false, 200e6},
		{api.SiteRequest{Site: "core", Native: &on, Up: 100e6}, true, 100e6},
		{api.SiteRequest{Site: "core", Down: 70e6}, true, 100e6},
	} {
		if s := must(client.SetSite(ctx, tc.req))(t).Sites[0]; s.Native != tc.native || s.Up != tc.up {
			t.Errorf("after %+v: %+v", tc.req, s)
		}
	}
	want := must(client.SetLink(ctx, api.LinkRequest{A: "core", B: "beta", Bandwidth: 50e6}))(t)
	for _, tc := range []struct {
		req  any
		says string
	}{
		{api.SiteRequest{Site: "A b", Up: 1e6}, `"A b"`}, {api.SiteRequest{Site: "core"}, "nothing of site"}, {api.SiteRequest{Site: "core", Up: -1}, "no link's rate"},
		{api.SiteRequest{Site: "core", Up: 1e6, Clear: true}, "either"}, {api.SiteRequest{Site: "beta", Clear: true}, "site list"},
		{api.SiteRequest{Site: "core", Native: &off, Clear: true}, "either"}, {api.SiteRequest{Site: "A b", Native: &off}, `"A b"`},
		{api.SiteRequest{Site: "core", Native: &off, Up: -1}, "no link's rate"},
		{api.LinkRequest{A: "core", B: "core", Bandwidth: 1e6}, "two sites"}, {api.LinkRequest{A: "core", B: "gamma", Clear: true}, "site list"},
		{api.LinkRequest{A: "core", B: "gamma", Bandwidth: 1e6, Clear: true}, "either"}, {api.LinkRequest{A: "core", B: "gamma"}, "no bandwidth"},
	} {
		var err error
		switch req := tc.req.(type) {
		case api.SiteRequest:
			_, err = client.SetSite(ctx, req)
		case api.LinkRequest:
			_, err = client.SetLink(ctx, req)
		}
		wantLine(t, err, tc.says)
	}
	if got := must(client.Sites(ctx))(t); !reflect.DeepEqual(got, want) {
		t.Errorf("after what is wrong: %+v, want %+v", got, want)
	}
	r.end(t)
	r = begin(t, Config{State: dir})
	if got := must(client.Sites(ctx))(t); !reflect.DeepEqual(got, want) {
		t.Errorf("after a restart: %+v, want %+v", got, want)
	}
	must(client.SetSite(ctx, api.SiteRequest{Site: "core", Clear: true}))(t)
	rep = must(client.SetLink(ctx, api.LinkRequest{A: "core", B: "beta", Clear: true}))(t)
	if len(rep.Links) != 0 || len(rep.Sites) != 1 || rep.Sites[0].Up != 0 || rep.Sites[0].Native || rep.Change <= want.Change {
		t.Errorf("after clearing: %+v", rep)
	}
	r.end(t)
}
