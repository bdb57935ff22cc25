package node

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/meshmpi/meshmpi/internal/eventually"
	"github.com/meshmpi/meshmpi/internal/node/api"
	"github.com/meshmpi/meshmpi/mesh/cert"
	"github.com/meshmpi/meshmpi/mesh/peer"
	"github.com/meshmpi/meshmpi/shaper"
	"github.com/meshmpi/meshmpi/shaper/hint"
	"github.com/meshmpi/meshmpi/shaper/share"
)

// TestStakeRate: what decides over a link's rate, and in which order.
func TestStakeRate(t *testing.T) {
	alltoall := hint.Request{Op: hint.Alltoall, Hosts: 5}
	pattern := hint.Request{Parts: 3 * hint.Whole / 2} // two thirds
	matb := hint.Request{Op: hint.Alltoall, Hosts: 5, MATB: 7 * mbit}
	third := share.Safe(90*mbit, 3)
	for _, tc := range []struct {
		name  string
		stake stake
		want  int64
		why   string
	}{
		{"nothing is known", stake{nodes: 4}, 0, "no limit"},
		{"an equal share", stake{whole: 90 * mbit, nodes: 3}, third, "equal share"},
		{"a share of next to nothing", stake{whole: 2, nodes: 3}, 1, "equal share"},
		{"nobody is counted", stake{whole: 90 * mbit}, 90 * mbit, "equal share"},
		{"the others are idle", stake{whole: 90 * mbit, nodes: 3, live: 90 * mbit}, 90 * mbit, "lent by others"},
		{"the others send too", stake{whole: 90 * mbit, nodes: 3, live: third}, third, "equal share"},
		{"the receiving site is sent too much", stake{whole: 90 * mbit, nodes: 3, live: 20 * mbit}, 20 * mbit, "lowered by others"},
		{"shares without a limit", stake{nodes: 3, live: 20 * mbit}, 0, "no limit"},
		{"an all-to-all", stake{whole: 90 * mbit, nodes: 3, asked: alltoall}, 18 * mbit, "alltoall"},
		{"an all-to-all without a limit", stake{nodes: 3, asked: alltoall}, 0, "no limit"},
		{"an all-to-all with live shares", stake{whole: 90 * mbit, nodes: 3, live: 45 * mbit, asked: alltoall}, 45 * mbit, "lent by others"},
		{"a pattern", stake{whole: 90 * mbit, nodes: 3, asked: pattern}, 60 * mbit, "pattern"},
		{"a pattern with live shares", stake{whole: 90 * mbit, nodes: 3, live: third, asked: pattern}, third, "equal share"},
		{"a program's MATB", stake{whole: 90 * mbit, nodes: 3, live: 90 * mbit, asked: matb}, 7 * mbit, "program's MATB"},
		{"a program's MATB without a limit", stake{nodes: 3, asked: matb}, 7 * mbit, "program's MATB"},
		{"a program's MATB beyond the link", stake{whole: 5 * mbit, nodes: 3, asked: matb}, 5 * mbit, "program's MATB"},
		{"a program's MATB that is B/N", stake{whole: 21 * mbit, nodes: 3, asked: matb}, share.Safe(21*mbit, 3), "program's MATB"},
		{"an all-to-all of all nodes", stake{whole: 90 * mbit, nodes: 5, asked: alltoall}, share.Safe(90*mbit, 5), "alltoall"},
		{"set", stake{whole: 90 * mbit, nodes: 3, live: 90 * mbit, asked: matb, set: 200 * mbit}, 200 * mbit, "set"},
		{"set without a limit", stake{nodes: 3, set: mbit}, mbit, "set"},
	} {
		if got, why := tc.stake.rate(); got != tc.want || why != tc.why {
			t.Errorf("%s: %d, %q; want %d, %q", tc.name, got, why, tc.want, tc.why)
		}
	}
}

// pacer is a daemon, a1 of site alpha, in which nothing runs but the pacer.
func pacer(t *testing.T, mode Pace, others ...peer.Record) *daemon {
	t.Helper()
	d := knowing(others...)
	d.log = slog.New(slog.DiscardHandler)
	d.cfg = Config{Pace: mode, Userspace: true} // without precedence
	if err := d.startPacing(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.close(); err != nil {
			t.Error(err)
		}
	})
	return d
}

// wantRate checks what the pacer keeps to on the way to a site.
func wantRate(t *testing.T, d *daemon, what, site string, want int64, why string) {
	t.Helper()
	var rep api.ShapeReply
	d.pacing.describe(&rep)
	for _, s := range d.pacing.shaper.Stats() {
		if s.Site == site && int64(s.Rate) != want {
			t.Errorf("%s: the shaper has %d for %s, want %d", what, s.Rate, site, want)
		}
	}
	for _, l := range rep.Links {
		if l.Site == site {
			if l.Rate != want || l.Why != why {
				t.Errorf("%s: to %s it sends %d, %q; want %d, %q", what, site, l.Rate, l.Why, want, why)
			}
			return
		}
	}
	t.Errorf("%s: there is no link to %s", what, site)
}

// rateTo is what the pacer keeps to on the way to a site.
func rateTo(d *daemon, site string) int64 {
	d.pacing.mu.Lock()
	defer d.pacing.mu.Unlock()
	return d.pacing.links[site].now
}

// TestPacing: a link has its share of what is declared, anew whenever limits, nodes,
// live shares or an administrator say something else.
func TestPacing(t *testing.T) {
	b1, c1 := other("b1", "beta", 6), other("c1", "gamma", 7)
	down := func(r *peer.Record) { r.Up = false }
	gone := func(r *peer.Record) { r.Revoked = true }
	d := pacer(t, PaceStatic, other("a2", "alpha", 2), other("a3", "alpha", 3, down), b1, c1)
	p := d.pacing
	for _, r := range []peer.Record{b1, c1} {
		f := p.Flow(r.Node, func([][]byte) {})
		defer f.Close()
	}
	if f := p.Flow(other("a2", "alpha", 2).Node, func([][]byte) {}); f != nil {
		t.Error("a node of the same site is paced")
	}
	wantRate(t, d, "nothing declared", "beta", 0, "no limit")
	d.limits.take(said(1, 90*mbit, 60*mbit, 0)) // alpha's uplink, beta's downlink
	third := share.Safe(90*mbit, 3)
	wantRate(t, d, "without a hub all nodes count, the downlink", "beta", share.Safe(60*mbit, 3), "equal share")
	wantRate(t, d, "the uplink", "gamma", third, "equal share")
	if p.uplink != third {
		t.Errorf("to all sites together it sends %d, want %d", p.uplink, third)
	}
	d.dir.Apply(false, []peer.Record{other("a4", "alpha", 4, down)})
	p.membersChanged()
	wantRate(t, d, "a node more", "beta", share.Safe(60*mbit, 4), "equal share")
	d.dir.Apply(false, []peer.Record{other("a4", "alpha", 4, gone)})
	p.membersChanged()
	wantRate(t, d, "a node less", "beta", share.Safe(60*mbit, 3), "equal share")

	p.sharesChanged("beta", lentRate{bits: 60 * mbit})
	p.sharesChanged("", lentRate{bits: 90 * mbit})
	wantRate(t, d, "lent", "beta", 60*mbit, "lent by others")
	wantRate(t, d, "lent to another site", "gamma", third, "equal share")
	if p.uplink != 90*mbit {
		t.Errorf("with what is lent of the uplink it sends %d, want %d", p.uplink, 90*mbit)
	}
	p.sharesChanged("beta", lentRate{bits: 10 * mbit})
	wantRate(t, d, "incast", "beta", 10*mbit, "lowered by others")
	p.sharesChanged("beta", lentRate{bits: share.Safe(60*mbit, 3)})
	wantRate(t, d, "taken back", "beta", share.Safe(60*mbit, 3), "equal share")

	if err := p.setRate("beta", 70*mbit); err != nil {
		t.Error(err)
	}
	wantRate(t, d, "set", "beta", 70*mbit, "set")
	wantRate(t, d, "set for another site", "gamma", third, "equal share")
	d.limits.take(said(2, 0, 50*mbit, 0))
	wantRate(t, d, "set, whatever is declared", "beta", 70*mbit, "set")
	if err := p.setRate("beta", 0); err != nil {
		t.Error(err)
	}
	wantRate(t, d, "cleared", "beta", share.Safe(60*mbit, 3), "lent by others") // a third of 50 is less
	wantRate(t, d, "the uplink is taken back", "gamma", 0, "no limit")
	wantLine(t, p.setRate("alpha", mbit), "within a site", "another site")
	wantLine(t, p.setRate("delta", mbit), `"delta"`, "meshctl site list")
	d.limits.take(said(3, 0, 0, 0))
	wantRate(t, d, "all taken back", "beta", 0, "no limit")
	if p.uplink != 0 {
		t.Errorf("without limits it sends %d to all", p.uplink)
	}

	must(0, p.setRate("beta", 70*mbit))(t)
	d.dir.Apply(false, []peer.Record{other("b1", "beta", 6, gone)})
	must(0, p.setRate("beta", 0))(t) // for a site whose last node has gone, too
	wantRate(t, d, "cleared", "beta", 0, "no limit")
	wantLine(t, p.setRate("beta", 0), `"beta"`, "meshctl site list")
}

// TestHeadroom: what may leave at once is a part of what fits the queue, under live
// shares, and nothing where the receiving site is sent too much.
func TestHeadroom(t *testing.T) {
	b1 := other("b1", "beta", 6)
	d := pacer(t, PaceStatic, other("a2", "alpha", 2), other("a3", "alpha", 3), b1)
	p := d.pacing
	p.mode = PaceLive // the shares themselves would need the node's address
	f := p.Flow(b1.Node, func([][]byte) {})
	defer f.Close()
	d.limits.take(said(1, 90*mbit, 0, 0))
	want := func(what string, extra int) {
		t.Helper()
		if w := (headroom{90 * mbit, extra}); p.head != w || p.links["beta"].head != w {
			t.Errorf("%s: %+v of the uplink, %+v of the link, want %+v", what, p.head, p.links["beta"].head, w)
		}
	}
	want("three nodes", headBytes(3))
	gives := func(what string, want int, wantSoon bool) {
		t.Helper()
		if got, soon := p.give("beta", 4000, time.Second); got != want || soon != wantSoon {
			t.Errorf("%s: it gives %d bytes of 4000, more soon: %v, want %d, %v", what, got, soon, want, wantSoon)
		}
	}
	gives("with nothing to send", 4000, false)
	p.sharesChanged("beta", lentRate{bits: 1 * mbit, lent: 29 * mbit})
	want("while it lends", headBytes(3))
	gives("while it lends", 0, false) // else it would have nothing when it wakes
	wantRate(t, d, "while it lends", "beta", 1*mbit, "lent to others")
	p.sharesChanged("beta", lentRate{bits: 20 * mbit})
	wantRate(t, d, "while the receiver says so", "beta", 20*mbit, "lowered by others")
	if h := p.links["beta"].head; h != (headroom{}) {
		t.Errorf("while the receiver says so: %+v", h)
	}
	p.sharesChanged("beta", lentRate{})
	p.sharesChanged("", lentRate{bits: 30 * mbit})
	want("afterwards", headBytes(3))
	patience := func(what string, want time.Duration) {
		t.Helper()
		if got := p.demand("beta").patience().Round(time.Millisecond); got != want {
			t.Errorf("%s: a backlog has to last %v, want %v", what, got, want)
		}
	}
	patience("30 Mb/s", 48*time.Millisecond) // 180 kB
	p.sharesChanged("", lentRate{bits: 30 * mbit, contended: true})
	patience("30 Mb/s, others borrow of the uplink", hungryAfter) // 30 kB take less
	p.sharesChanged("", lentRate{bits: 3 * mbit, contended: true})
	d.limits.take(said(2, 9*mbit, 0, 0))
	patience("3 Mb/s, others borrow", 80*time.Millisecond)
	p.sharesChanged("", lentRate{bits: 3 * mbit})
	patience("3 Mb/s", hungryLast)
	d.limits.take(said(3, 900*mbit, 0, 0))
	patience("300 Mb/s, of which gifts are little", hungryAfter)
}

// TestHeadBytes: however many nodes there are, what they leave in the queue fits it.
func TestHeadBytes(t *testing.T) {
	for n := 1; n <= 100; n++ {
		if left := headBytes(n)*(n-1) + n*shaper.Pair; headBytes(n) < 0 || headBytes(n) > 0 && left > 64_000 {
			t.Errorf("%d nodes send %d bytes ahead, which leaves %d in the queue", n, headBytes(n), left)
		}
	}
	if headBytes(4) < 10*1542 {
		t.Errorf("four nodes send %d bytes ahead, want ten packets", headBytes(4))
	}
}

// TestPacingSessions: who counts depends on whether a hub tells who is up, so a
// session that comes or ends has the rates worked out anew.
func TestPacingSessions(t *testing.T) {
	b1 := other("b1", "beta", 6)
	d := pacer(t, PaceStatic, other("a2", "alpha", 2), b1)
	l := newLinks(d, nil)
	f := d.pacing.Flow(b1.Node, func([][]byte) {})
	defer f.Close()
	d.limits.take(said(1, 90*mbit, 0, 0))
	wantRate(t, d, "two nodes", "beta", share.Safe(90*mbit, 2), "equal share")
	d.dir.Apply(false, []peer.Record{other("a3", "alpha", 3)}) // in the place of what a session changes
	l.session("hub:51820", false, errors.New("gone"))
	wantRate(t, d, "a session has ended", "beta", share.Safe(90*mbit, 3), "equal share")
}

// TestWeightOfStatic: where shares are equal by definition there is no weight to set.
func TestWeightOfStatic(t *testing.T) {
	d := pacer(t, PaceStatic, other("b1", "beta", 6))
	wantLine(t, d.pacing.setWeight(2), d.id.self.Name, "--pace static", "--pace live")
	if d.pacing.weight != 0 {
		t.Errorf("and yet it is %d", d.pacing.weight)
	}
}

// TestPacingOff: then nothing is asked and nothing is paced.
func TestPacingOff(t *testing.T) {
	d := pacer(t, PaceOff)
	if d.pacing != nil || d.shares != nil {
		t.Error("something paces")
	}
	rep := must(d.getShape(nil))(t).(api.ShapeReply)
	if rep.Mode != "off" || rep.Links == nil || rep.Programs == nil {
		t.Errorf("it says %+v", rep)
	}
}

// TestSharesPortHeld: whatever the way of pacing, no other program can speak for the
// daemon from the port of the live shares while it runs.
func TestSharesPortHeld(t *testing.T) {
	if !ownHost(t) {
		return
	}
	dir := filepath.Join(t.TempDir(), "state")
	found(t, dir)
	for _, mode := range []Pace{PaceLive, PaceStatic, PaceOff} {
		var at netip.AddrPort
		r := begin(t, Config{State: dir, Pace: mode, Ready: func(n *Node) { at = netip.AddrPortFrom(n.Self().Addr4, SharesPort) }})
		c, err := net.ListenUDP("udp4", net.UDPAddrFromAddrPort(at))
		if !errors.Is(err, syscall.EADDRINUSE) {
			t.Errorf("--pace %s: another program listens at %v: %v", mode, at, err)
		}
		if err == nil {
			c.Close()
		}
		r.end(t)
	}
	must(net.ListenUDP("udp4", &net.UDPAddr{Port: SharesPort}))(t).Close()
}

// TestPacingHints: what programs ask for comes into force while packets pass, and
// what they are is told.
func TestPacingHints(t *testing.T) {
	d := pacer(t, PaceStatic, other("a2", "alpha", 2), other("b1", "beta", 6))
	d.limits.take(said(1, 90*mbit, 0, 0))
	path := filepath.Join(t.TempDir(), hintSocket)
	d.hints = must(hint.Listen(hint.Config{Path: path, Log: d.log}))(t)
	ctx, cancel := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- d.hints.Serve(ctx) }()
	defer func() {
		cancel()
		if err := <-served; err != nil {
			t.Error(err)
		}
	}()
	page := must(hint.Dial(path))(t)
	eventually.Holds(t, "the daemon has the page", func() bool { return len(d.hints.Pages()) == 1 })
	f := d.pacing.Flow(other("b1", "beta", 6).Node, func([][]byte) {})
	defer f.Close()
	pkt := make([]byte, 100)
	paced := func(want int64) func() bool {
		return func() bool {
			f.Admit([][]byte{pkt}, []int{len(pkt)}, 0)
			return rateTo(d, "beta") == want
		}
	}
	eventually.Holds(t, "it sends at its share", paced(share.Safe(90*mbit, 2)))
	page.SetMATB(8 * mbit)
	eventually.Holds(t, "it sends at the program's rate", paced(8*mbit))
	if d := d.pacing.demand("beta"); d.most != 8*mbit {
		t.Errorf("it is said to want %d at most", d.most)
	}
	page.SetMATB(0)
	page.Enter(hint.Alltoallv, 1)
	eventually.Holds(t, "it sends at the all-to-all's share", paced(90*mbit))
	if up := d.pacing.uplink; up != 90*mbit {
		t.Errorf("to all sites it sends %d", up)
	}
	if d := d.pacing.demand("beta"); d.most != 0 {
		t.Errorf("in an all-to-all it is said to want %d at most", d.most)
	}
	rep := must(d.getShape(nil))(t).(api.ShapeReply)
	if len(rep.Programs) != 1 || rep.Programs[0].Op != "alltoallv" || rep.Programs[0].Hosts != 1 || rep.Programs[0].Entered != 1 {
		t.Errorf("it tells of %+v", rep.Programs)
	}
	page.Leave(hint.Alltoallv, 1)
	eventually.Holds(t, "it sends at its share again", paced(share.Safe(90*mbit, 2)))
	page.SetMATB(8 * mbit)
	eventually.Holds(t, "it sends at the program's rate once more", paced(8*mbit))
	page.Close() // as when the program dies
	eventually.Holds(t, "what a dead program has set is forgotten", paced(share.Safe(90*mbit, 2)))
}

// TestPacingDaemon: in a running node, whose hub says who is up, those that are
// share; what is set by the local socket counts instead and can be taken back.
func TestPacingDaemon(t *testing.T) {
	if !ownHost(t) {
		return
	}
	dir := filepath.Join(t.TempDir(), "state")
	found(t, dir)
	var d *daemon
	r := begin(t, Config{State: dir, Ready: func(n *Node) { d = n.d }})
	defer r.end(t)
	awaitHub(t, dir)
	client, ctx := api.Dial(dir), t.Context()
	if rep := must(client.Shape(ctx))(t); rep.Mode != "live" || len(rep.Links) != 0 {
		t.Errorf("before anybody is talked to it says %+v", rep)
	}
	down := func(r *peer.Record) { r.Up = false }
	b1 := other("b1", "beta", 6)
	d.dir.Apply(false, []peer.Record{other("c2", "core", 2), other("c3", "core", 3, down), b1})
	must(client.SetSite(ctx, api.SiteRequest{Site: "core", Up: 90 * mbit}))(t)
	f := d.pacing.Flow(b1.Node, func([][]byte) {})
	defer f.Close()
	eventually.Holds(t, "two of three nodes share", func() bool { return rateTo(d, "beta") == share.Safe(90*mbit, 2) })
	d.dir.Apply(false, []peer.Record{other("c3", "core", 3)})
	d.pacing.membersChanged()
	eventually.Holds(t, "three nodes share", func() bool { return rateTo(d, "beta") == share.Safe(90*mbit, 3) })
	rep := must(client.SetShape(ctx, api.ShapeRequest{Site: "beta", Rate: 5 * mbit}))(t)
	if len(rep.Links) != 1 || rep.Links[0].Rate != 5*mbit || rep.Links[0].Why != "set" || rep.Nodes != 3 || rep.Uplink != share.Safe(90*mbit, 3) {
		t.Errorf("after setting it says %+v", rep)
	}
	for _, tc := range []struct {
		req  api.ShapeRequest
		says string
	}{{api.ShapeRequest{Site: "core", Rate: mbit}, "another site"}, {api.ShapeRequest{Site: "gamma"}, `"gamma"`}, {api.ShapeRequest{Site: "beta", Rate: 5}, "10kb/s"}, {api.ShapeRequest{Weight: new(256)}, "weight of 256"}, {api.ShapeRequest{Weight: new(0)}, "weight of 0"}, {api.ShapeRequest{Site: "beta", Weight: new(2)}, "all sites"}} {
		_, err := client.SetShape(ctx, tc.req)
		wantLine(t, err, tc.says)
	}
	if rep = must(client.SetShape(ctx, api.ShapeRequest{Weight: new(7)}))(t); rep.Weight != 7 || d.pacing.demand("beta").weight != 7 {
		t.Errorf("after setting a weight it says %+v", rep)
	}
	rep = must(client.SetShape(ctx, api.ShapeRequest{Site: "beta"}))(t)
	if len(rep.Links) != 1 || rep.Links[0].Rate != share.Safe(90*mbit, 3) || rep.Links[0].Why != "equal share" || rep.Links[0].Set != 0 {
		t.Errorf("after clearing it says %+v", rep)
	}
	d.links.revoked(cert.Revocation{ID: other("c3", "core", 3).Node.ID, Name: "c3"})
	eventually.Holds(t, "a revoked node does not share", func() bool { return rateTo(d, "beta") == share.Safe(90*mbit, 2) })
}
