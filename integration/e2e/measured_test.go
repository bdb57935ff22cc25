package e2e

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/meshmpi/meshmpi/integration/deploy"
	"github.com/meshmpi/meshmpi/integration/lab"
	"github.com/meshmpi/meshmpi/integration/wan"
)

// narrow is the line of site alpha in TestMeasured.
func narrow(rate int64) wan.Link {
	return wan.Link{Up: wan.Pipe{Rate: rate, Queue: 64 << 10, Delay: 5 * time.Millisecond}, Down: wan.Pipe{Delay: 5 * time.Millisecond}}
}

// wantFound waits until hosts of alpha say that their uplink carries a rate, to a
// tenth or so.
func wantFound(ctx context.Context, t *testing.T, n *deploy.Network, rate float64, hosts ...string) {
	t.Helper()
	began := time.Now()
	said := ""
	err := deploy.Until(ctx, time.Minute, fmt.Sprintf("%v find %.0f Mb/s", hosts, rate/1e6), func() (bool, error) {
		said = ""
		good := 0
		for _, h := range hosts {
			r, err := n.Shape(ctx, h)
			if err != nil {
				return false, err
			}
			if f := r.Measured; f != nil {
				said += fmt.Sprintf(" %s %.2f Mb/s, %d ms ago;", h, float64(f.Rate)/1e6, f.Age)
				if x := float64(f.Rate) / rate; x > 0.87 && x < 1.06 && f.Age >= 0 {
					good++
				}
			}
		}
		return good == len(hosts), nil
	})
	t.Logf("after %v:%s", time.Since(began).Round(100*time.Millisecond), said)
	if err != nil {
		t.Error(err)
	}
}

// wantSettled looks at windows of four seconds until the line of alpha is used and
// its queue drops next to nothing.
func wantSettled(ctx context.Context, t *testing.T, n *deploy.Network, rate float64) {
	t.Helper()
	said := ""
	err := deploy.Until(ctx, 40*time.Second, "the line is full and its queue not", func() (bool, error) {
		was, err := n.Lab.WANStats("alpha")
		if err != nil {
			return false, err
		}
		began := time.Now()
		select {
		case <-time.After(4 * time.Second): // the window
		case <-ctx.Done():
		}
		now, err := n.Lab.WANStats("alpha")
		used := float64(now.Up.Bytes-was.Up.Bytes) * 8 / time.Since(began).Seconds() / rate
		frames, lost := now.Up.Frames-was.Up.Frames, now.Up.QueueFull-was.Up.QueueFull
		said = fmt.Sprintf("%.3f of the line used, %d of %d frames lost at its queue", used, lost, frames+lost)
		return used > 0.8 && float64(lost) < 0.005*float64(frames), err
	})
	t.Log(said)
	if err != nil {
		t.Error(err)
	}
}

// TestMeasured: nobody says what alpha's line carries; two nodes that send find it,
// fill it without loss, follow it when it becomes slower and faster, and remember it.
func TestMeasured(t *testing.T) {
	t.Parallel()
	lab.Need(t, "iperf3")
	cfg := lab.TwoSites(lab.PortPreserving).WithWAN(narrow(20e6), "alpha")
	ctx, n := up(t, cfg, deploy.Options{})
	must(ctx, t, n, "hub", "meshctl site set alpha --up measured")
	if out := must(ctx, t, n, "hub", "meshctl site list"); !strings.Contains(out, "measured") {
		t.Errorf("before anything is found meshctl site list says\n%s", out)
	}
	for from, to := range map[string]string{"a1": "b1", "a2": "b2"} {
		serve(ctx, t, n.Lab.Host(to), "iperf3", "-s", "--forceflush")
		d, err := n.Lab.Host(from).Start("iperf3", "-c", to, "-t", "600", "-C", "cubic", "--connect-timeout", "20000")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(d.Kill)
	}
	wantFound(ctx, t, n, 20e6, "a1", "a2")
	wantSettled(ctx, t, n, 20e6)
	t.Logf("meshctl shape and site list\n%s\n%s", must(ctx, t, n, "a1", "meshctl shape"), must(ctx, t, n, "a1", "meshctl site list"))
	for _, rate := range []int64{8e6, 1e6, 20e6} {
		if err := n.Lab.SetWAN("alpha", narrow(rate)); err != nil {
			t.Fatal(err)
		}
		wantFound(ctx, t, n, float64(rate), "a1", "a2")
		wantSettled(ctx, t, n, float64(rate))
	}
	if err := n.Stop(ctx, "a2"); err != nil {
		t.Fatal(err)
	}
	if err := n.Run(ctx, "a2"); err != nil {
		t.Fatal(err)
	}
	r, err := n.Shape(ctx, "a2") // what it remembered, or what a1 has found meanwhile, with half the traffic gone
	if err != nil || r.Measured == nil || r.Measured.Rate == 0 || r.Measured.Rate > 22e6 {
		t.Errorf("after a restart a2 remembers %+v, %v", r.Measured, err)
	}
}
