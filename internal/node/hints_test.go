package node

import (
	"context"
	"fmt"
	"path/filepath"
	"testing"

	"github.com/meshmpi/meshmpi/internal/eventually"
	"github.com/meshmpi/meshmpi/mesh/sites"
	"github.com/meshmpi/meshmpi/shaper/hint"
	"golang.org/x/sync/errgroup"
)

// TestBandwidth: what programs are told of a site's link.
func TestBandwidth(t *testing.T) {
	for _, tc := range []struct {
		name string
		all  sites.Limits
		want int64
	}{
		{"nothing", sites.Limits{}, 0},
		{"the uplink, whatever the others", said(1, 100e6, 80e6, 90e6), 100e6},
		{"another's downlink", said(1, 0, 80e6, 90e6), 80e6},
		{"the pair", said(1, 0, 95e6, 90e6), 90e6},
		{"the pair, named the other way round", sites.Limits{Version: 1, Pairs: []sites.Pair{{A: "aachen", B: "alpha", Rate: 7e6}, {A: "alpha", B: "beta", Rate: 8e6}}}, 7e6},
		{"others' pair", sites.Limits{Version: 1, Pairs: []sites.Pair{{A: "beta", B: "gamma", Rate: 7e6}}}, 0},
		{"its own downlink", sites.Limits{Version: 1, Sites: []sites.Site{{Name: "alpha", Down: 7e6}}}, 0},
	} {
		var l limits
		l.take(tc.all)
		if got := l.bandwidth("alpha"); got != tc.want {
			t.Errorf("%s: %d, want %d", tc.name, got, tc.want)
		}
	}
}

// TestHintsTold: programs hear of the link's bandwidth when they come and when it
// changes, paced or not, and count no more nodes than there are.
func TestHintsTold(t *testing.T) {
	state := filepath.Join(t.TempDir(), "state")
	found(t, state)
	d := remembering(t, state)
	d.cfg.Pace, d.group = PaceOff, new(errgroup.Group)
	if err := d.startPacing(); err != nil {
		t.Fatal(err)
	}
	d.takeLimits(said(1, 100e6, 80e6, 90e6))
	if r := d.asked(2); r != (hint.Request{}) {
		t.Errorf("without programs %+v is asked for", r)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer func() {
		cancel()
		if err := d.group.Wait(); err != nil {
			t.Error(err)
		}
	}()
	if err := d.startHints(ctx); err != nil {
		t.Fatal(err)
	}
	page := must(hint.Dial(d.id.dir.Path(hintSocket)))(t)
	defer page.Close()
	is := func(bits int64) {
		t.Helper()
		eventually.Holds(t, fmt.Sprintf("the program is told %d b/s", bits), func() bool { return page.MaxRate() == bits })
	}
	is(100e6)
	d.takeLimits(said(2, 50e6, 80e6, 90e6))
	is(50e6)
	d.takeLimits(sites.Limits{Version: 3})
	is(0)
	page.Enter(hint.Alltoallv, 1000)
	for nodes, want := range map[int]int{0: 1, 1: 1, 8: 8, 5000: 1000} {
		if r := d.asked(nodes); r.Hosts != want || r.Op != hint.Alltoallv {
			t.Errorf("with %d nodes %+v is asked for, want %d hosts", nodes, r, want)
		}
	}
}
