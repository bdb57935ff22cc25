package e2e

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/meshmpi/meshmpi/integration/deploy"
	"github.com/meshmpi/meshmpi/integration/lab"
	"github.com/meshmpi/meshmpi/integration/wan"
)

// TestPaced: with a limit declared, nodes send to another site at their share of it,
// while one alone gets all of it, and what stays within the site is not paced.
func TestPaced(t *testing.T) {
	t.Parallel()
	lab.Need(t, "iperf3")
	cfg := lab.TwoSites(lab.PortPreserving).WithWAN(wan.Symmetric(wan.Pipe{Delay: 2 * time.Millisecond}), "alpha", "beta")
	ctx, n := up(t, cfg, deploy.Options{})
	must(ctx, t, n, "hub", "meshctl site set alpha --up 40Mb/s")
	for _, h := range []string{"a2", "b1", "b2"} {
		server, err := n.Lab.Host(h).Start("iperf3", "-s")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(server.Kill)
	}
	limited := func() (bool, error) {
		s, err := n.Sites(ctx, "a1")
		return err == nil && len(s.Sites) > 0 && s.Sites[0].Up == 40e6, err
	}
	if err := deploy.Until(ctx, 5*time.Second, "a1 knows the limit", limited); err != nil {
		t.Fatal(err)
	}
	stream := func(from, to string) (mbps func() float64) {
		job := begin(ctx, t, n.Lab.Host(from), "iperf3", "-J", "-c", to, "-t", "3", "-O", "1", "--connect-timeout", "5000")
		return func() float64 {
			out := job.end(t)
			var got struct {
				End struct {
					Received struct {
						Rate float64 `json:"bits_per_second"`
					} `json:"sum_received"`
				}
			}
			if err := json.Unmarshal([]byte(out), &got); err != nil {
				t.Fatal(err)
			}
			return got.End.Received.Rate / 1e6
		}
	}
	const payload = 1380.0 / 1500 // about what of the wire's bytes is TCP's
	check := func(what string, got, share float64) {
		t.Helper()
		t.Logf("%s: %.1f Mb/s", what, got)
		if got > share*1.01 || got < share*payload*0.85 {
			t.Errorf("%s: %.1f Mb/s, want nearly %.1f", what, got, share*payload)
		}
	}
	check("alone", stream("a1", "b1")(), 40)
	one, other := stream("a1", "b1"), stream("a2", "b2")
	check("a1 of two", one(), 20)
	check("a2 of two", other(), 20)
	if got := stream("a1", "a2")(); got < 60 {
		t.Errorf("within the site: %.1f Mb/s", got)
	}
}
