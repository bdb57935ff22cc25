package hub

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/meshmpi/meshmpi/internal/rate"
	"github.com/meshmpi/meshmpi/mesh/sites"
)

// uplink sets a site's uplink.
func uplink(site string, r int64) func(sites.Limits) (sites.Limits, error) {
	return func(l sites.Limits) (sites.Limits, error) { return l.WithSite(site, r, 0) }
}

// testLimits is part of the engines' conformance suite: changes add up, count
// on, are there for the next reader, and one that fails leaves nothing.
func testLimits(t *testing.T, s Store) {
	l := &ledger{store: s}
	if got, err := l.limits(); err != nil || got.Version != 0 {
		t.Errorf("an empty store holds %+v, %v", got, err)
	}
	now := time.UnixMilli(1000)
	first, err := l.changeLimits(uplink("alpha", 1e6), now)
	if err != nil || first.Version != 1000 {
		t.Fatalf("the first change: %+v, %v", first, err)
	}
	second, err := l.changeLimits(func(l sites.Limits) (sites.Limits, error) { return l.WithPair("b", "a", 2e6) }, now)
	if up, _ := second.Of("alpha"); err != nil || second.Version != 1001 || up != 1e6 || second.Pair("a", "b") != 2e6 {
		t.Errorf("the second change: %+v, %v", second, err)
	}
	if again, err := l.changeLimits(uplink("alpha", 1e6), now); err != nil || again.Version != 1001 {
		t.Errorf("a change of nothing: %+v, %v", again, err)
	}
	fail := errors.New("fail")
	for name, change := range map[string]func(l sites.Limits) (sites.Limits, error){
		"an error": func(l sites.Limits) (sites.Limits, error) { return l, fail },
		"a bad value": func(l sites.Limits) (sites.Limits, error) {
			return sites.Limits{Sites: []sites.Site{{Name: "A", Up: 1}}}, nil
		},
	} {
		if _, err := l.changeLimits(change, now); err == nil {
			t.Errorf("%s: changed", name)
		}
	}
	if got, err := l.limits(); err != nil || !reflect.DeepEqual(got, second) {
		t.Errorf("the store holds %+v, %v; want %+v", got, err, second)
	}
	if third, err := l.changeLimits(uplink("alpha", 3e6), time.UnixMilli(5)); err != nil || third.Version != 1002 {
		t.Errorf("with a clock that was set back: %+v, %v", third, err)
	}
}

// TestLimits: a node hears of limits when it connects and when they change, also
// from a hub that has been away; the newest reach a slow reader.
func TestLimits(t *testing.T) {
	w := newWorld(t)
	a, b := w.member("a"), w.member("b")
	va := w.connect(a)
	set, err := w.hub.ChangeLimits(uplink("alpha", 1e6))
	check(t, err)
	va.until("the limits", func() bool { return len(va.limits) == 1 && reflect.DeepEqual(va.limits[0], set) })
	_, err = w.hub.ChangeLimits(uplink("A b", 1e6))
	if err == nil || !strings.Contains(err.Error(), `"A b"`) {
		t.Errorf("a bad name: %v", err)
	}
	oneLine(t, err)
	if _, err := w.hub.ChangeLimits(uplink("alpha", 1e6)); err != nil {
		t.Errorf("the same again: %v", err)
	}
	if got := w.hub.Limits(); !reflect.DeepEqual(got, set) {
		t.Errorf("the hub holds %+v, want %+v", got, set)
	}
	vb := w.connect(b)
	vb.until("the limits at the start", func() bool { return len(vb.limits) == 1 && reflect.DeepEqual(vb.limits[0], set) })
	for i := range 20 {
		set, err = w.hub.ChangeLimits(uplink("alpha", 2e6+int64(i)))
		check(t, err)
	}
	va.until("the newest", func() bool { return reflect.DeepEqual(va.limits[len(va.limits)-1], set) })
	set, err = w.hub.ChangeLimits(func(l sites.Limits) (sites.Limits, error) { return l.WithNative("alpha", true) })
	check(t, err)
	va.until("that a site uses its LAN", func() bool {
		last := va.limits[len(va.limits)-1]
		return last.Native("alpha") && reflect.DeepEqual(last, set)
	})
	vb.leave()
	w.stop()
	w.start(w.addr) // which knows from its store
	vb = w.connect(b)
	vb.until("the limits of a hub that has restarted", func() bool { return len(vb.limits) == 1 && reflect.DeepEqual(vb.limits[0], set) })
	if n := vb.Client.Disbelieved(); n != 0 {
		t.Errorf("%d things are not believed", n)
	}
}

// TestNoLimits: where nothing was ever declared nothing is said.
func TestNoLimits(t *testing.T) {
	w := newWorld(t)
	a := w.member("a")
	s := newSession(w.hub.board, a.node, nil)
	if _, ok := w.hub.board.attach(time.Now(), s, a.chain, "", 1); !ok {
		t.Fatal("turned away")
	}
	for _, m := range s.take() {
		if m.Type == typeLimits {
			t.Errorf("it is told %s", m.Limits)
		}
	}
	w.hub.board.detach(s)
}

// TestBadLimits: what no hub should say is counted, and the session goes on.
func TestBadLimits(t *testing.T) {
	w := newWorld(t)
	v := w.connect(w.member("a"))
	e := &ear{l: v.Client.links[0]}
	for _, raw := range []string{"", "null", "[]", `{"version":-1}`, `{"sites":[{"site":"\n","up":1000000}]}`, `{"version":3}`} {
		check(t, e.take(message{Type: typeLimits, Limits: json.RawMessage(raw)}))
	}
	if n := v.Client.Disbelieved(); n != 4 {
		t.Errorf("%d were not believed, want 4", n)
	}
	v.until("those that are good", func() bool { return len(v.limits) == 2 && v.limits[1].Version == 3 })
}

// TestLongestLimits has the fullest set fit into a frame.
func TestLongestLimits(t *testing.T) {
	l := sites.Limits{Version: 1 << 53}
	name := func(i int) string { return fmt.Sprintf("%063d", i) }
	for i := range sites.MaxSites {
		l.Sites = append(l.Sites, sites.Site{Name: name(i), Up: rate.Max, Down: rate.Max, Native: true})
	}
	for i := range sites.MaxPairs {
		l.Pairs = append(l.Pairs, sites.Pair{A: name(i), B: name(i + 1), Rate: rate.Max})
	}
	check(t, l.Check())
	m, err := (&board{limits: l}).limitsMessage()
	check(t, err)
	check(t, writeMessage(io.Discard, m))
	t.Logf("the fullest set takes %d of %d bytes", len(m.Limits), maxControlFrame)
}

// TestPatience: the nodes of a small network try soon whether their hub is back,
// and those of a large one not more often together.
func TestPatience(t *testing.T) {
	for nodes, want := range map[int]time.Duration{0: time.Second, 100: time.Second, 3000: 3 * time.Second, maxRecords: RedialMax} {
		if got := (&link{nodes: nodes}).patience(); got != want {
			t.Errorf("of %d nodes each waits %v, want %v", nodes, got, want)
		}
	}
}
