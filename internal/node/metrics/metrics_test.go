package metrics

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/meshmpi/meshmpi/internal/node/api"
	"github.com/meshmpi/meshmpi/mesh/peer"
	"github.com/meshmpi/meshmpi/relay"
	"github.com/meshmpi/meshmpi/shaper/hint"
	"github.com/meshmpi/meshmpi/shaper/share"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// full is a snapshot in which every metric has a value.
func full() *Snapshot {
	self := api.NodeStatus{Name: "a1", Site: "alpha", Self: true, Up: true}
	direct := &api.Path{Kind: peer.KindUDP, Works: true, RTT: 12_500, MTU: 1400, Loss: 0.25, TxBytes: 1000, TxPkts: 10, RxBytes: 2000, NoPath: 3}
	return &Snapshot{
		Status: api.Status{
			Network: "mesh", CertExpires: time.Unix(1_800_000_000, 0), Self: self, Warnings: []string{"one"},
			Hubs: []api.HubStatus{{Addr: "192.0.2.1:51820", Up: true}, {Addr: "192.0.2.2:51820"}},
			Nodes: []api.NodeStatus{self, {Name: "a2", Site: "alpha"}, {Name: "b1", Site: "beta", Up: true, Path: direct},
				{Name: "b2", Site: "beta", Path: &api.Path{Kind: peer.KindRelayUDP}}},
		},
		Sites: api.SitesReply{
			Sites: []api.SiteStatus{{Site: "alpha", Nodes: 2, NodesUp: 1, Up: 100e6}, {Site: "beta", Nodes: 2, NodesUp: 1, Down: 80e6}},
			Links: []api.LinkStatus{{A: "alpha", B: "beta", Bandwidth: 64e6}},
		},
		Shape: api.ShapeReply{Mode: "live", Nodes: 2, Uplink: 50e6, Links: []api.ShapeLink{{
			Site: "beta", Whole: 64e6, Share: 32e6, Rate: 64e6, Why: "lent by others", Waiting: 3000, Queued: 1500, Healed: 1, Given: 600, Taken: 700, Sent: 5000, Marked: 7, Dropped: 2,
			Peers: []api.ShapePeer{{Node: "b1", Waiting: 2, Queued: 1, Sent: 5000, Marked: 7, Dropped: 2, WorstWait: 11_000, WorstQueue: 90}},
		}}},
		Lending: []share.Share{{Capacity: 100e6, Rate: 50e6, Lent: 8e6, Answers: 1}, {To: "beta", Capacity: 64e6, Capped: 40e6, Rate: 64e6, Leased: 32e6, Senders: 1, Answers: 1}},
		Notices: share.Counters{Sent: 11, Heard: 9},
		Asked:   hint.Request{Hosts: 2, MATB: 8e6, Parts: 3 * hint.Whole / 2}, Programs: 4,
		Relay:    &relay.ServerStats{Bindings: 3, Packets: 100, Bytes: 90_000, Drops: relay.Drops{Absent: 5}},
		Sessions: 2, Meetings: 1,
		Drops: []Drop{{"mesh", "alien", 6}, {"names", "too many questions", 0}},
	}
}

// scrape asks a handler as Prometheus does.
func scrape(t *testing.T, read func(context.Context) (*Snapshot, error), path string) (code int, body string) {
	t.Helper()
	w := httptest.NewRecorder()
	Handler(read, slog.New(slog.DiscardHandler)).ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
	return w.Code, w.Body.String()
}

func of(s *Snapshot) func(context.Context) (*Snapshot, error) {
	return func(context.Context) (*Snapshot, error) { return s, nil }
}

// TestScrape: what a snapshot holds is told, in Prometheus' units.
func TestScrape(t *testing.T) {
	code, body := scrape(t, of(full()), "/metrics")
	if code != http.StatusOK {
		t.Fatalf("code %d:\n%s", code, body)
	}
	for _, want := range []string{
		`meshmpi_node_info{network="mesh",node="a1",pace="live",site="alpha"} 1`,
		`meshmpi_certificate_expiry_timestamp_seconds 1.8e+09`,
		`meshmpi_hubs 2`,
		`meshmpi_hubs_up 1`,
		`meshmpi_nodes_known{site="beta"} 2`,
		`meshmpi_nodes_up{site="beta"} 1`,
		`meshmpi_nodes_reachable{site="alpha"} 0`,
		`meshmpi_nodes_reachable{site="beta"} 1`,
		`meshmpi_site_uplink_limit_bytes_per_second{site="alpha"} 1.25e+07`,
		`meshmpi_site_downlink_limit_bytes_per_second{site="beta"} 1e+07`,
		`meshmpi_site_link_limit_bytes_per_second{a="alpha",b="beta"} 8e+06`,
		`meshmpi_peers{kind="udp"} 1`,
		`meshmpi_peers{kind="relay-udp"} 0`,
		`meshmpi_peers{kind="none"} 1`,
		`meshmpi_peer_path_info{kind="udp",peer="b1",site="beta"} 1`,
		`meshmpi_peer_path_up{peer="b2",site="beta"} 0`,
		`meshmpi_peer_rtt_seconds{peer="b1",site="beta"} 0.0125`,
		`meshmpi_peer_loss_ratio{peer="b1",site="beta"} 0.25`,
		`meshmpi_peer_mtu_bytes{peer="b1",site="beta"} 1400`,
		`meshmpi_peer_transmit_bytes_total{peer="b1",site="beta"} 1000`,
		`meshmpi_peer_transmit_packets_total{peer="b1",site="beta"} 10`,
		`meshmpi_peer_receive_bytes_total{peer="b1",site="beta"} 2000`,
		`meshmpi_peer_no_path_packets_total{peer="b1",site="beta"} 3`,
		`meshmpi_pacing_uplink_rate_bytes_per_second 6.25e+06`,
		`meshmpi_link_rate_bytes_per_second{site="beta"} 8e+06`,
		`meshmpi_link_share_bytes_per_second{site="beta"} 4e+06`,
		`meshmpi_link_rate_info{because="lent by others",site="beta"} 1`,
		`meshmpi_link_backlog_bytes{site="beta",stage="unsealed"} 3000`,
		`meshmpi_link_backlog_bytes{site="beta",stage="sealed"} 1500`,
		`meshmpi_flow_marked_packets_total{peer="b1",site="beta"} 7`,
		`meshmpi_flow_longest_wait_seconds{peer="b1",site="beta",stage="unsealed"} 0.011`,
		`meshmpi_lending_lent_bytes_per_second{site="*"} 1e+06`,
		`meshmpi_lending_borrowed_bytes_per_second{site="beta"} 4e+06`,
		`meshmpi_lending_cap_bytes_per_second{site="beta"} 5e+06`,
		`meshmpi_lending_sent_notices_total 11`,
		`meshmpi_hint_alltoall_hosts 2`,
		`meshmpi_hint_matb_bytes_per_second 1e+06`,
		`meshmpi_hint_pattern_parts 1.5`,
		`meshmpi_relay_forwarded_bytes_total 90000`,
		`meshmpi_relay_dropped_packets_total{reason="absent"} 5`,
		`meshmpi_exec_sessions 2`,
		`meshmpi_jobs_meeting 1`,
		`meshmpi_dropped_total{part="mesh",reason="alien"} 6`,
		`meshmpi_scrape_omitted_series 0`,
	} {
		if !strings.Contains(body, "\n"+want+"\n") {
			t.Errorf("there is no line %s", want)
		}
	}
	if !strings.Contains(body, "\nprocess_resident_memory_bytes ") || !strings.Contains(body, "\ngo_goroutines ") {
		t.Error("the process says nothing of itself")
	}
	if code, _ := scrape(t, of(full()), "/"); code != http.StatusNotFound {
		t.Errorf("elsewhere it answers %d, want %d", code, http.StatusNotFound)
	}
}

// TestAbsent: what is not known is left out, so that nobody takes "no limit" for 0.
func TestAbsent(t *testing.T) {
	code, body := scrape(t, of(&Snapshot{}), "/metrics")
	if code != http.StatusOK {
		t.Fatalf("code %d:\n%s", code, body)
	}
	for _, name := range []string{"limit_bytes_per_second", "link_", "flow_", "relay_", "peer_", "pacing_uplink", "hint_matb", "hint_pattern"} {
		if strings.Contains(body, "\nmeshmpi_"+name) {
			t.Errorf("an empty node tells of meshmpi_%s…", name)
		}
	}
}

// TestLint: names, units and help are as Prometheus wants them.
func TestLint(t *testing.T) {
	problems, err := testutil.CollectAndLint(newCollector(of(full())))
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
}

// TestFull: the snapshot that the tests use makes every metric appear.
func TestFull(t *testing.T) {
	c := newCollector(of(full()))
	for _, r := range c.rows {
		if n := testutil.CollectAndCount(c, r.name); n == 0 {
			t.Errorf("%s has no series", r.name)
		}
	}
}

// TestBounded: a metric has no more series than it may, and what is left out is
// counted.
func TestBounded(t *testing.T) {
	s := &Snapshot{}
	for i := range MaxSeries + 5 {
		s.Drops = append(s.Drops, Drop{"part", fmt.Sprint(i), 1})
	}
	c := newCollector(of(s))
	if n := testutil.CollectAndCount(c, "meshmpi_dropped_total"); n != MaxSeries {
		t.Errorf("%d series, want %d", n, MaxSeries)
	}
	want := "# HELP " + omittedName + " Series that this scrape has left out, since a metric would have more than 2048.\n# TYPE " + omittedName + " gauge\n" + omittedName + " 5\n"
	if err := testutil.CollectAndCompare(c, strings.NewReader(want), omittedName); err != nil {
		t.Error(err)
	}
}

// TestUnknown: a node that cannot say is an error, not zeros.
func TestUnknown(t *testing.T) {
	code, body := scrape(t, func(context.Context) (*Snapshot, error) { return nil, errors.New("it ends") }, "/metrics")
	if code != http.StatusInternalServerError || !strings.Contains(body, "it ends") {
		t.Errorf("code %d: %s", code, body)
	}
	reg := prometheus.NewPedanticRegistry()
	if err := reg.Register(newCollector(of(full()))); err != nil {
		t.Error(err)
	}
	if _, err := reg.Gather(); err != nil { // no series twice
		t.Error(err)
	}
}

// TestDocumented: the table for administrators has every metric and no other.
func TestDocumented(t *testing.T) {
	text, err := os.ReadFile("../../../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, ok := strings.Cut(string(text), "\n## Metrics\n")
	if !ok {
		t.Fatal("operations.md has no section on metrics")
	}
	table, _, _ = strings.Cut(table, "\n## ")
	var want, got []string
	for _, r := range newCollector(nil).rows {
		want = append(want, r.name)
	}
	want = append(want, omittedName)
	for _, m := range regexp.MustCompile("(?m)^\\| `(meshmpi_[a-z_]+)").FindAllStringSubmatch(table, -1) {
		got = append(got, m[1])
	}
	slices.Sort(want)
	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Errorf("the table has %d metrics, there are %d", len(got), len(want))
		for _, n := range want {
			if !slices.Contains(got, n) {
				t.Errorf("the table lacks %s", n)
			}
		}
		for _, n := range got {
			if !slices.Contains(want, n) {
				t.Errorf("there is no %s", n)
			}
		}
	}
}
