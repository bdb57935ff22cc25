package e2e

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/meshmpi/meshmpi/integration/deploy"
	"github.com/meshmpi/meshmpi/integration/lab"
	"github.com/meshmpi/meshmpi/shaper/share"
)

// metricsOf has one node read the metrics of another, at its virtual address.
func metricsOf(ctx context.Context, n *deploy.Network, reader, addr string) (map[string]float64, error) {
	out, err := n.Lab.Host(reader).Run(ctx, "curl", "-sSf", "--max-time", "10", "http://"+addr+":7725/metrics")
	if err != nil {
		return nil, err
	}
	values := map[string]float64{}
	for line := range strings.Lines(out) {
		name, value, ok := strings.Cut(strings.TrimSpace(line), "} ")
		if name += "}"; !ok || strings.HasPrefix(line, "#") {
			if name, value, ok = strings.Cut(strings.TrimSpace(line), " "); !ok || name == "#" {
				continue
			}
		}
		if values[name], err = strconv.ParseFloat(value, 64); err != nil {
			return nil, fmt.Errorf("%s: %q is no number", name, value)
		}
	}
	return values, nil
}

// TestMetrics: a node at another site reads over the overlay what a node counts;
// traffic makes it grow, at both ends; and it ends with the daemon.
func TestMetrics(t *testing.T) {
	t.Parallel()
	lab.Need(t, "curl", "iperf3", "ss")
	ctx, n := up(t, lab.TwoSites(lab.PortPreserving), deploy.Options{RunArgs: []string{"--metrics", ":7725"}})
	must(ctx, t, n, "hub", "meshctl site set alpha --up 40Mb/s")
	addr := map[string]string{}
	for _, h := range []string{"hub", "a1", "b1"} {
		a, err := n.Addr(ctx, h)
		if err != nil {
			t.Fatal(err)
		}
		addr[h] = a
	}
	if _, err := n.AwaitPath(ctx, "a1", "b1", "udp", 20*time.Second); err != nil {
		t.Fatal(err)
	}
	const peer = `{peer="b1",site="beta"}`
	var before map[string]float64
	err := deploy.Until(ctx, 20*time.Second, "a1 tells of the limit, of its peer and of all nodes", func() (ok bool, err error) {
		before, err = metricsOf(ctx, n, "b1", addr["a1"])
		return before[`meshmpi_site_uplink_limit_bytes_per_second{site="alpha"}`] == 5e6 && before["meshmpi_peer_path_up"+peer] == 1 &&
			before["meshmpi_peer_rtt_seconds"+peer] > 0 && before[`meshmpi_nodes_up{site="beta"}`] == 2 && before["meshmpi_hubs_up"] == 1 &&
			before[`meshmpi_link_share_bytes_per_second{site="beta"}`] == float64(share.Safe(40e6, 2))/8, err
	})
	if err != nil {
		t.Fatalf("%v: %v", err, before)
	}
	serve(ctx, t, n.Lab.Host("b1"), "iperf3", "-s", "--forceflush")
	const sent = 4e6 // at least: iperf3 ends with some of its 8 MB in buffers
	must(ctx, t, n, "a1", "iperf3 -c "+addr["b1"]+" -n 8M --connect-timeout 20000")
	grown := func(reader, host string, was map[string]float64, names ...string) {
		t.Helper()
		now, err := metricsOf(ctx, n, reader, addr[host])
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range names {
			if d := now[name] - was[name]; d < sent {
				t.Errorf("%s: after more than %.0f bytes %s is larger by %.0f", host, float64(sent), name, d)
			}
		}
	}
	grown("b1", "a1", before, "meshmpi_peer_transmit_bytes_total"+peer, "meshmpi_flow_sent_bytes_total"+peer, `meshmpi_link_sent_bytes_total{site="beta"}`)
	grown("a1", "b1", nil, `meshmpi_peer_receive_bytes_total{peer="a1",site="alpha"}`)
	relay, err := metricsOf(ctx, n, "a1", addr["hub"])
	if err != nil || relay["meshmpi_relay_nodes"] != 4 || relay["meshmpi_relay_forwarded_packets_total"] == 0 {
		t.Errorf("the hub tells of %v nodes, %v packets that it relays, %v", relay["meshmpi_relay_nodes"], relay["meshmpi_relay_forwarded_packets_total"], err)
	}
	if err := n.Stop(ctx, "a1"); err != nil {
		t.Error(err)
	}
	if out := must(ctx, t, n, "a1", "ss -Hltn"); strings.Contains(out, ":7725") {
		t.Errorf("after the daemon's end somebody listens:\n%s", out)
	}
}
