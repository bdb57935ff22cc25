package node

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/meshmpi/meshmpi/internal/eventually"
	"github.com/meshmpi/meshmpi/internal/node/api"
	"github.com/meshmpi/meshmpi/internal/node/jobs"
	"github.com/meshmpi/meshmpi/shaper/hint"
)

func TestParseMetrics(t *testing.T) {
	for _, tc := range []struct {
		flag, want string
	}{
		{"", "invalid AddrPort"},
		{":7725", "[::]:7725"},
		{"127.0.0.1:7725", "127.0.0.1:7725"},
		{"[::1]:7725", "[::1]:7725"},
		{"7725", ""}, {"localhost:7725", ""}, {"127.0.0.1", ""}, {"127.0.0.1:0", ""}, {":0", ""}, {":", ""}, {"::1:7725", ""}, {"127.0.0.1:99999", ""},
	} {
		got, err := ParseMetrics(tc.flag)
		if tc.want == "" {
			wantLine(t, err, "--metrics", fmt.Sprintf("%q", tc.flag), "127.0.0.1:7725")
		} else if err != nil || got.String() != tc.want {
			t.Errorf("%q: %v, %v; want %s", tc.flag, got, err, tc.want)
		}
	}
}

// TestListenMetrics: where it cannot listen a line says why.
func TestListenMetrics(t *testing.T) {
	first := must(listenMetrics(netip.MustParseAddrPort("127.0.0.1:0")))(t)
	defer first.Close()
	taken := netip.MustParseAddrPort(first.Addr().String())
	_, err := listenMetrics(taken)
	wantLine(t, err, "metrics", fmt.Sprint(taken.Port()), "in use", "--metrics")
	_, err = listenMetrics(netip.MustParseAddrPort("192.0.2.1:7725"))
	wantLine(t, err, "metrics", "192.0.2.1", "no address of this host", "--metrics")
	all := must(listenMetrics(netip.MustParseAddrPort("[::]:0")))(t)
	all.Close()
}

// fetch returns the value of every series at a place.
func fetch(t *testing.T, client *http.Client, url string) map[string]string {
	t.Helper()
	resp := must(client.Get(url))(t)
	defer resp.Body.Close()
	body := must(io.ReadAll(resp.Body))(t)
	if resp.StatusCode != http.StatusOK {
		t.Fatalf("%s: %s\n%s", url, resp.Status, body)
	}
	values := map[string]string{}
	for line := range strings.Lines(string(body)) {
		if i := strings.LastIndexByte(line, ' '); i > 0 && line[0] != '#' {
			values[line[:i]] = strings.TrimSpace(line[i:])
		}
	}
	return values
}

// askEarly asks for what a daemon that is still to start tells as soon as it listens.
func askEarly(t *testing.T, url string) <-chan error {
	t.Helper()
	req := must(http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil))(t)
	answer := make(chan error, 1)
	go func() { // ends with the daemon's answer, or with the test
		for {
			resp, err := (&http.Transport{DisableKeepAlives: true}).RoundTrip(req)
			if errors.Is(err, syscall.ECONNREFUSED) {
				time.Sleep(time.Millisecond)
				continue
			}
			if err == nil {
				defer resp.Body.Close()
				if resp.StatusCode != http.StatusOK {
					err = fmt.Errorf("who asks early hears %s", resp.Status)
				}
			}
			answer <- err
			return
		}
	}()
	return answer
}

// TestMetricsDaemon: a running node tells by both ways what the local socket does,
// and counts what happens.
func TestMetricsDaemon(t *testing.T) {
	if !ownHost(t) {
		return
	}
	dir := filepath.Join(t.TempDir(), "state")
	found(t, dir)
	var d *daemon
	at := netip.MustParseAddrPort("127.0.0.1:7725")
	early := askEarly(t, "http://"+at.String()+"/metrics")
	r := begin(t, Config{State: dir, Metrics: at, Ready: func(n *Node) { d = n.d }})
	defer r.end(t)
	if err := <-early; err != nil {
		t.Error(err)
	}
	awaitHub(t, dir)
	client, ctx := api.Dial(dir), t.Context()
	must(client.SetSite(ctx, api.SiteRequest{Site: "core", Up: 80 * mbit}))(t)
	b1, c1 := other("b1", "beta", 6), other("c1", "core", 7)
	f := d.pacing.Flow(b1.Node, func([][]byte) {})
	defer f.Close()
	page := must(hint.Dial(d.id.dir.Path(hintSocket)))(t)
	defer page.Close()
	eventually.Holds(t, "the daemon has the page", func() bool { return len(d.hints.Pages()) == 1 })
	page.SetMATB(8 * mbit)
	if err := d.jobs.book.Put(time.Now(), jobs.ID{Key: strings.Repeat("a", 32)}, jobs.Record{Addr: at, Secret: "s"}); err != nil {
		t.Fatal(err)
	}
	d.dir.Apply(false, append(d.dir.All(), b1, c1))
	d.pacing.membersChanged()
	web := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	want := map[string]string{
		`meshmpi_node_info{network="mesh",node="hub",pace="live",site="core"}`: "1",
		`meshmpi_hubs_up`:                                                 "1",
		`meshmpi_nodes_known{site="core"}`:                                "2",
		`meshmpi_nodes_known{site="beta"}`:                                "1",
		`meshmpi_site_uplink_limit_bytes_per_second{site="core"}`:         "1e+07",
		`meshmpi_link_capacity_bytes_per_second{site="beta"}`:             "1e+07",
		`meshmpi_link_share_bytes_per_second{site="beta"}`:                "4.98046875e+06",
		`meshmpi_link_rate_bytes_per_second{site="beta"}`:                 "1e+06",
		`meshmpi_link_rate_info{because="program's MATB",site="beta"}`:    "1",
		`meshmpi_hint_programs`:                                           "1",
		`meshmpi_hint_matb_bytes_per_second`:                              "1e+06",
		`meshmpi_jobs_meeting`:                                            "1",
		`meshmpi_relay_nodes`:                                             "0",
		`meshmpi_lending_lent_bytes_per_second{site="*"}`:                 "0",
		`meshmpi_dropped_total{part="measuring",reason="refused"}`:        "0",
		`meshmpi_dropped_total{part="names",reason="too many questions"}`: "0",
	}
	eventually.Holds(t, "all is told", func() bool {
		f.Admit([][]byte{make([]byte, 100)}, []int{100}, 0) // has the pacer look at the page
		got := fetch(t, web, "http://"+at.String()+"/metrics")
		for k, v := range want {
			if got[k] != v {
				return false
			}
		}
		return true
	})
	local := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", d.id.dir.SocketPath())
	}}}
	if got := fetch(t, local, "http://meshd/metrics"); got["meshmpi_hubs_up"] != "1" {
		t.Errorf("the local socket tells %v", got)
	}
}
