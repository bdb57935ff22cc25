package e2e

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/meshmpi/meshmpi/integration/deploy"
	"github.com/meshmpi/meshmpi/integration/lab"
	"github.com/meshmpi/meshmpi/integration/wan"
	"github.com/meshmpi/meshmpi/internal/node/api"
)

// incastDown is what site gamma may receive in TestIncast, b/s: so little that a
// busy machine manages it too.
const incastDown = 8e6

// incast is what went to gamma in a window: on its line, and what each sender says.
type incast struct {
	line   float64 // b/s, counted by the line
	sent   map[string]float64
	shapes map[string]shape // as the window ends
}

func (w incast) String() string {
	s := fmt.Sprintf("%.2f Mb/s on gamma's line", w.line/1e6)
	for _, h := range []string{"a1", "b1"} {
		s += fmt.Sprintf("; %s sent %.2f of %.2f, %s", h, w.sent[h]/1e6, float64(w.shapes[h].Rate)/1e6, w.shapes[h].Why)
	}
	return s
}

// shape is how a node paces what it sends to gamma, as it said at a time.
type shape struct {
	api.ShapeLink
	at time.Time
}

func shapes(ctx context.Context, n *deploy.Network) (map[string]shape, error) {
	m := map[string]shape{}
	for _, h := range []string{"a1", "b1"} {
		r, err := n.Shape(ctx, h)
		if err != nil {
			return nil, err
		}
		for _, l := range r.Links {
			if l.Site == "gamma" {
				m[h] = shape{l, time.Now()}
			}
		}
	}
	return m, nil
}

// incastWindow looks at two seconds.
func incastWindow(ctx context.Context, n *deploy.Network) (w incast, err error) {
	before, err := shapes(ctx, n)
	if err != nil {
		return w, err
	}
	was, err := n.Lab.WANStats("gamma")
	if err != nil {
		return w, err
	}
	start := time.Now()
	select {
	case <-time.After(2 * time.Second): // the window
	case <-ctx.Done():
		return w, ctx.Err()
	}
	now, err := n.Lab.WANStats("gamma")
	if err != nil {
		return w, err
	}
	w.line = float64(now.Down.Bytes-was.Down.Bytes) * 8 / time.Since(start).Seconds()
	w.shapes, err = shapes(ctx, n)
	w.sent = map[string]float64{}
	for h, l := range w.shapes {
		w.sent[h] = float64(l.Sent-before[h].Sent) * 8 / l.at.Sub(before[h].at).Seconds()
	}
	return w, err
}

// incastHolds looks at windows until one shows what is to be: a busy machine spoils
// some, what does not work spoils all.
func incastHolds(ctx context.Context, t *testing.T, n *deploy.Network, what string, holds func(incast) bool) {
	t.Helper()
	var w incast
	err := deploy.Until(ctx, 30*time.Second, what, func() (ok bool, err error) {
		w, err = incastWindow(ctx, n)
		return err == nil && holds(w), err
	})
	t.Logf("%s: %v", what, w)
	if err != nil {
		t.Error(err)
	}
}

// TestIncast: each of two sites may send as much as a third can receive. When both
// do, it lowers them, so that together they send no more, and each about half; when
// one ends, the other has all of it again. The senders' own lines have no limit.
func TestIncast(t *testing.T) {
	t.Parallel()
	lab.Need(t, "iperf3")
	cfg := lab.Config{Sites: []lab.Site{
		{Name: "hubs", Hosts: []string{"hub"}},
		{Name: "alpha", NAT: lab.PortPreserving, Hosts: []string{"a1"}},
		{Name: "beta", NAT: lab.PortPreserving, Hosts: []string{"b1"}},
		{Name: "gamma", NAT: lab.PortPreserving, Hosts: []string{"g1"}},
	}}
	ctx, n := up(t, cfg.WithWAN(wan.Symmetric(wan.Pipe{Delay: 5 * time.Millisecond}), "gamma"), deploy.Options{})
	serve(ctx, t, n.Lab.Host("g1"), "sh", "-c", "iperf3 -s -p 5202 & exec iperf3 -s --forceflush")
	must(ctx, t, n, "hub", "meshctl site set gamma --down 8Mb/s")
	for _, h := range []string{"a1", "b1"} {
		if _, err := n.AwaitPath(ctx, h, "g1", "udp", 20*time.Second); err != nil {
			t.Fatal(err)
		}
	}
	const half = incastDown / 2
	const within = incastDown*1.05 + 100e3 // and what is not paced: probes, the hub
	lowered := func(l shape) bool {
		return l.Why == "lowered by others" && l.Whole == incastDown && l.Rate < incastDown*3/4
	}
	whole := func(l shape) bool { return l.Why == "equal share" && l.Rate == incastDown }

	flood(t, n, "a1", "g1")
	incastHolds(ctx, t, n, "a1 alone has all of it", func(w incast) bool {
		return whole(w.shapes["a1"]) && w.sent["a1"] > half*1.5 && w.line < within
	})
	second, err := n.Lab.Host("b1").Start("iperf3", "-c", "g1", "-p", "5202", "-t", "600", "-w", "64K", "--connect-timeout", "20000")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(second.Kill)
	incastHolds(ctx, t, n, "both are lowered, and within the downlink together", func(w incast) bool {
		return lowered(w.shapes["a1"]) && lowered(w.shapes["b1"]) && w.line < within &&
			w.sent["a1"] > half*0.7 && w.sent["a1"] < half*1.3 && w.sent["b1"] > half*0.7 && w.sent["b1"] < half*1.3
	})
	second.Kill()
	incastHolds(ctx, t, n, "a1 has all of it again", func(w incast) bool {
		return whole(w.shapes["a1"]) && w.sent["a1"] > half*1.5 && w.line < within
	})
	after, err := shapes(ctx, n)
	if err != nil {
		t.Fatal(err)
	}
	for h, l := range after {
		if l.Dropped != 0 {
			t.Errorf("%s has dropped %d packets to gamma", h, l.Dropped)
		}
	}
}
