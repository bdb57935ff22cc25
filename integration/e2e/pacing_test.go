package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/meshmpi/meshmpi/integration/deploy"
	"github.com/meshmpi/meshmpi/integration/lab"
	"github.com/meshmpi/meshmpi/integration/wan"
	"github.com/meshmpi/meshmpi/internal/node/api"
	"github.com/meshmpi/meshmpi/shaper/share"
)

// pacedUp is what site alpha may send in TestPaced, b/s: so little that a machine
// that is busy with other tests manages it too.
const pacedUp = 8e6

// sight is what is seen of alpha's senders at one moment.
type sight struct {
	at     time.Time
	line   uint64        // bytes that have left the site, counted by the line
	a1, a2 api.ShapeLink // to beta, as the nodes say
}

func look(ctx context.Context, n *deploy.Network) (s sight, err error) {
	st, err := n.Lab.WANStats("alpha")
	s.at, s.line = time.Now(), st.Up.Bytes
	for host, l := range map[string]*api.ShapeLink{"a1": &s.a1, "a2": &s.a2} {
		if err != nil {
			break
		}
		var r api.ShapeReply
		r, err = n.Shape(ctx, host)
		for _, link := range r.Links {
			if link.Site == "beta" {
				*l = link
			}
		}
	}
	return s, err
}

// window is what was sent between two sights, in b/s on the wire.
type window struct{ line, a1, a2 float64 }

func (w window) String() string {
	return fmt.Sprintf("%.2f Mb/s on the line, a1 %.2f, a2 %.2f", w.line/1e6, w.a1/1e6, w.a2/1e6)
}

// windowHolds looks at windows of two seconds until one shows what is to be. A busy
// machine spoils a window; a pacer that does not work spoils all.
func windowHolds(ctx context.Context, t *testing.T, n *deploy.Network, what string, holds func(window) bool) {
	t.Helper()
	var w window
	err := deploy.Until(ctx, 40*time.Second, what, func() (bool, error) {
		was, err := look(ctx, n)
		if err != nil {
			return false, err
		}
		select {
		case <-time.After(2 * time.Second): // the window
		case <-ctx.Done():
		}
		now, err := look(ctx, n)
		rate := func(was, now uint64) float64 { return float64(now-was) * 8 }
		span := now.at.Sub(was.at).Seconds()
		w = window{rate(was.line, now.line) / span, rate(was.a1.Sent, now.a1.Sent) / span, rate(was.a2.Sent, now.a2.Sent) / span}
		return err == nil && holds(w), err
	})
	t.Logf("%s: %v", what, w)
	if err != nil {
		t.Error(err)
	}
}

// flood sends from one host to another until it is killed. Its window is smaller
// than the pacer's queue, so that nothing need be dropped.
func flood(t *testing.T, n *deploy.Network, from, to string) *lab.Daemon {
	t.Helper()
	d, err := n.Lab.Host(from).Start("iperf3", "-c", to, "-t", "600", "-w", "64K", "--connect-timeout", "20000")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.Kill)
	return d
}

// TestPaced: with a limit declared, a node that sends alone to another site has much
// more than its equal share, two have theirs, and together never more than the
// limit; what stays within the site is not paced; and the node says so. Rates are
// measured, so no other lab runs meanwhile.
func TestPaced(t *testing.T) {
	lab.Need(t, "iperf3")
	cfg := lab.TwoSites(lab.PortPreserving).WithWAN(wan.Symmetric(wan.Pipe{Delay: 2 * time.Millisecond}), "alpha", "beta")
	ctx, n := up(t, cfg, deploy.Options{})
	for _, h := range []string{"a2", "b1", "b2"} {
		serve(ctx, t, n.Lab.Host(h), "iperf3", "-s", "--forceflush")
	}
	must(ctx, t, n, "hub", "meshctl site set alpha --up 8Mb/s")
	for _, h := range []string{"a1", "a2"} {
		err := deploy.Until(ctx, 20*time.Second, h+" knows the limit and both nodes of its site", func() (bool, error) {
			r, err := n.Shape(ctx, h)
			return r.Nodes == 2 && r.Uplink == share.Safe(pacedUp, 2) && r.Mode == "live", err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	const half = pacedUp / 2
	const atMost = pacedUp*1.03 + 50e3 // and what is not paced: to the hub, probes
	windowHolds(ctx, t, n, "nobody sends", func(w window) bool { return w.line < half/4 })
	alone := flood(t, n, "a1", "b1")
	windowHolds(ctx, t, n, "a1 alone has much more than its share", func(w window) bool { return w.a1 > half*1.5 && w.line < atMost })
	other := flood(t, n, "a2", "b2")
	windowHolds(ctx, t, n, "two have their shares", func(w window) bool {
		return w.a1 > half*0.75 && w.a2 > half*0.75 && w.a1 < half*1.25 && w.a2 < half*1.25 && w.line < atMost
	})
	alone.Kill()
	windowHolds(ctx, t, n, "a2 alone has what a1 had", func(w window) bool { return w.a2 > half*1.5 && w.line < atMost })
	other.Kill()
	wantShape(ctx, t, n, "a1", "b1")
	wantShape(ctx, t, n, "a2", "b2")
	wantUnpaced(ctx, t, n, "a1", "a2")
}

// TestWeight: of what an idle node leaves, the heavier of two senders has more, the
// lighter still its share of the site. No other lab runs meanwhile.
func TestWeight(t *testing.T) {
	lab.Need(t, "iperf3")
	cfg := lab.TwoSites(lab.PortPreserving).With(func(s *lab.Site) { s.Hosts = append(s.Hosts, "a3") }, "alpha")
	ctx, n := up(t, cfg.WithWAN(wan.Symmetric(wan.Pipe{Delay: 2 * time.Millisecond}), "alpha", "beta"), deploy.Options{})
	for _, h := range []string{"b1", "b2"} {
		serve(ctx, t, n.Lab.Host(h), "iperf3", "-s", "--forceflush")
	}
	must(ctx, t, n, "hub", "meshctl site set alpha --up 8Mb/s")
	err := deploy.Until(ctx, 20*time.Second, "a1 knows the limit and all nodes of its site", func() (bool, error) {
		r, err := n.Shape(ctx, "a1")
		return r.Nodes == 3 && r.Uplink == share.Safe(pacedUp, 3) && r.Weight == 1, err
	})
	if err != nil {
		t.Fatal(err)
	}
	defer flood(t, n, "a1", "b1").Kill()
	defer flood(t, n, "a2", "b2").Kill()
	const atMost = pacedUp*1.03 + 50e3
	windowHolds(ctx, t, n, "two have the same of what the third leaves", func(w window) bool {
		return w.a1 > 3.3e6 && w.a2 > 3.3e6 && w.a1 < 4.6e6 && w.a2 < 4.6e6 && w.line < atMost
	})
	if out := must(ctx, t, n, "a1", "meshctl shape weight 9"); !strings.Contains(out, "this node counts as 9") {
		t.Errorf("meshctl shape weight says\n%s", out)
	}
	windowHolds(ctx, t, n, "the heavier one has it all, the lighter one its share", func(w window) bool {
		return w.a1 > 4.8e6 && w.a2 > 2.2e6 && w.a2 < 3.1e6 && w.line < atMost
	})
	must(ctx, t, n, "a1", "meshctl shape weight 1")
	windowHolds(ctx, t, n, "both have the same again", func(w window) bool { return w.a1 > 3.3e6 && w.a2 > 3.3e6 })
}

// TestGifts: what nodes that rest could send at once they leave to one that sends messages
// too short to borrow for.
func TestGifts(t *testing.T) {
	lab.Need(t, "iperf3")
	cfg := lab.TwoSites(lab.PortPreserving).With(func(s *lab.Site) { s.Hosts = append(s.Hosts, "a3") }, "alpha")
	ctx, n := up(t, cfg.WithWAN(wan.Symmetric(wan.Pipe{Delay: 2 * time.Millisecond}), "alpha", "beta"), deploy.Options{})
	serve(ctx, t, n.Lab.Host("b1"), "iperf3", "-s", "--forceflush")
	must(ctx, t, n, "hub", "meshctl site set alpha --up 100Mb/s")
	var given, taken uint64
	err := deploy.Until(ctx, 40*time.Second, "a1 takes what a2 and a3 give", func() (bool, error) {
		must(ctx, t, n, "a1", "iperf3 -c b1 -n 200K --connect-timeout 20000")
		given, taken = 0, 0
		for _, h := range []string{"a1", "a2", "a3"} {
			r, err := n.Shape(ctx, h)
			if err != nil {
				return false, err
			}
			for _, l := range r.Links {
				given, taken = given+l.Given, taken+l.Taken
			}
		}
		return taken > 50e3, nil
	})
	t.Logf("given %d bytes, taken %d", given, taken)
	if err != nil {
		t.Error(err)
	}
	if taken > given {
		t.Errorf("%d bytes were taken, and %d given", taken, given)
	}
}

// wantShape checks what a node says of what it has sent.
func wantShape(ctx context.Context, t *testing.T, n *deploy.Network, host, to string) {
	t.Helper()
	r, err := n.Shape(ctx, host)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%s$ meshctl shape\n%s", host, must(ctx, t, n, host, "meshctl shape"))
	found := false
	for _, l := range r.Links {
		if l.Site == "alpha" {
			t.Errorf("%s paces what stays within its site: %+v", host, l)
		}
		if l.Dropped != 0 {
			t.Errorf("%s has dropped %d packets to %s", host, l.Dropped, l.Site)
		}
		for _, p := range l.Peers {
			found = found || p.Node == to && p.Sent > 1e6 && l.Sent >= p.Sent && l.Whole == pacedUp && l.Share == share.Safe(pacedUp, 2)
		}
	}
	if !found {
		t.Errorf("%s says nothing of what it sent to %s: %+v", host, to, r)
	}
}

// wantUnpaced checks that two nodes have much more than the limit to each other. One
// of several tries is enough, on a busy machine.
func wantUnpaced(ctx context.Context, t *testing.T, n *deploy.Network, from, to string) {
	t.Helper()
	err := deploy.Until(ctx, 40*time.Second, "the site's own traffic is not paced", func() (bool, error) {
		out, err := n.Lab.Host(from).Run(ctx, "iperf3", "-J", "-c", to, "-n", "4M", "--connect-timeout", "20000")
		if err != nil {
			return false, err
		}
		var got struct {
			End struct {
				Received struct {
					Rate float64 `json:"bits_per_second"`
				} `json:"sum_received"`
			}
		}
		err = json.Unmarshal([]byte(out), &got)
		t.Logf("from %s to %s: %.1f Mb/s", from, to, got.End.Received.Rate/1e6)
		return got.End.Received.Rate > 2*pacedUp, err
	})
	if err != nil {
		t.Error(err)
	}
}
