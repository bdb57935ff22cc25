package node

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	osexec "os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/meshmpi/meshmpi/internal/node/api"
	"github.com/meshmpi/meshmpi/internal/node/jobs"
	"github.com/meshmpi/meshmpi/mesh/cert"
	"github.com/meshmpi/meshmpi/mesh/directory"
	"github.com/meshmpi/meshmpi/mesh/peer"
	"github.com/meshmpi/meshmpi/mpi/pmi"
	"github.com/meshmpi/meshmpi/tun"
)

// onLoopback is the inside of a node whose virtual address is on the loopback.
type onLoopback struct{}

func (onLoopback) Name() string                          { return "lo" }
func (onLoopback) Device() tun.Device                    { return nil }
func (onLoopback) SetPeerMTU([]netip.Addr, int) error    { return nil }
func (onLoopback) SetPeerWindow([]netip.Addr, int) error { return nil }
func (onLoopback) Watch(context.Context, func()) error   { return nil }

// town is a few nodes that answer questions about jobs.
type town struct {
	nodes []*daemon
	at    map[string]string // where an address's port is taken from, instead of there
}

// newTown founds a network of n nodes: n1 at 100.99.0.1, and so on.
func newTown(t *testing.T, n int) *town {
	t.Helper()
	root := must(cert.NewRoot(peer.Network{Name: "mesh", Domain: "mesh.internal", AllowRootExec: true,
		CIDR4: netip.MustParsePrefix("100.99.0.0/16"), CIDR6: netip.MustParsePrefix("fd99:1:2:3::/64")}, time.Now()))(t)
	issuer := must(root.NewIssuer("hub", time.Now()))(t)
	network := must(cert.NetworkOf(root.Cert.Raw))(t)
	tw := &town{at: map[string]string{}}
	var recs []peer.Record
	for i := 1; i <= n; i++ {
		keys := must(cert.NewKeys())(t)
		chain := must(issuer.Issue(peer.Node{ID: keys.ID(), SignKey: keys.Public(), Name: fmt.Sprintf("n%d", i), Site: "alpha",
			Addr4: netip.AddrFrom4([4]byte{100, 99, 0, byte(i)}), Addr6: netip.AddrFrom16([16]byte{0xfd, 0x99, 0, 1, 0, 2, 0, 3, 15: byte(i)})}, time.Now()))(t)
		self := must(cert.Verify(chain, network.Root, time.Now()))(t)
		recs = append(recs, peer.Record{Node: self, Up: true})
		d := &daemon{cfg: Config{State: t.TempDir()}, log: slog.New(slog.DiscardHandler), dir: &directory.Directory{}, events: newJournal(),
			host: onLoopback{}, id: &identity{self: self, network: network, keys: keys, chain: chain, until: self.NotAfter}}
		d.jobs = newJobSide(d)
		d.jobs.dial = func(ctx context.Context, network, addr string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, network, tw.at[addr])
		}
		tw.nodes = append(tw.nodes, d)
		tw.open(t, d)
	}
	for _, d := range tw.nodes {
		d.dir.Apply(true, recs)
	}
	return tw
}

// open serves a node's two doors until the test ends.
func (tw *town) open(t *testing.T, d *daemon) {
	t.Helper()
	d.door = must(openDoor(filepath.Join(d.cfg.State, "meshd.sock")))(t)
	ln := must(net.Listen("tcp", "127.0.0.1:0"))(t)
	tw.at[netip.AddrPortFrom(d.id.self.Addr4, jobs.Port).String()] = ln.Addr().String()
	ctx, cancel := context.WithCancel(context.Background())
	local, far := d.server(ctx), d.jobs.server(ctx)
	var all sync.WaitGroup
	all.Go(func() { local.Serve(d.door) })
	all.Go(func() { far.ServeTLS(&fairListener{Listener: ln}, "", "") })
	t.Cleanup(func() {
		cancel()
		d.jobs.http.CloseIdleConnections()
		local.Close()
		far.Close()
		all.Wait()
	})
}

// rank is what mpirun on the owner tells a rank on a node of its own.
func (tw *town) rank(r int, owner string) func(string) string {
	vars := map[string]string{
		"OMPI_COMM_WORLD_RANK": fmt.Sprint(r), "OMPI_COMM_WORLD_SIZE": fmt.Sprint(len(tw.nodes)), "OMPI_COMM_WORLD_LOCAL_SIZE": "1",
		"PMIX_NAMESPACE": "17", "OMPI_MCA_orte_hnp_uri": "16.0;tcp://192.0.2.1," + owner + ":4567", "MESH_STATE": tw.nodes[r].cfg.State,
	}
	return func(name string) string { return vars[name] }
}

// TestRanksMeet: ranks under Open MPI's mpirun, each on a node of its own, the
// owner being that of rank 0, of another rank, and of none.
func TestRanksMeet(t *testing.T) {
	if !ownHost(t) {
		return
	}
	tw := newTown(t, 3)
	for _, d := range tw.nodes {
		if out, err := osexec.Command("ip", "addr", "add", d.id.self.Addr4.String(), "dev", "lo").CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	for _, owner := range []string{"100.99.0.1", "100.99.0.3", "n2.mesh.internal"} {
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		var all sync.WaitGroup
		for r := range tw.nodes {
			all.Go(func() {
				c, err := pmi.Dial(ctx, tw.rank(r, owner))
				if err != nil {
					t.Errorf("owner %s: rank %d: %v", owner, r, err)
					cancel() // for the others
					return
				}
				defer c.Close()
				if node, site, addr := c.Place(); node+" "+site+" "+addr != fmt.Sprintf("n%d alpha 100.99.0.%d", r+1, r+1) {
					t.Errorf("rank %d is on %s, %s, %s", r, node, site, addr)
				}
				if err := c.Barrier(ctx); err != nil {
					t.Errorf("owner %s: rank %d: %v", owner, r, err)
				}
				if err := c.Finalize(ctx); err != nil {
					t.Errorf("owner %s: rank %d: %v", owner, r, err)
				}
			})
		}
		all.Wait()
		cancel()
	}
}

// holds reports whether a node has a record of the job of testKey.
func (j *jobSide) holds() bool {
	_, ok, _ := j.book.Get(time.Now(), jobs.ID{UID: uint32(os.Getuid()), Key: testKey})
	return ok
}

const testKey = "0123456789abcdef0123456789abcdef"

// question asks a node's local socket about a job and returns status and answer.
func (tw *town) question(t *testing.T, node int, method, key string, in api.JobRequest) (int, string) {
	t.Helper()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", filepath.Join(tw.nodes[node].cfg.State, "meshd.sock"))
	}}}
	url := "http://meshd/v1/jobs/" + key + "?owner=" + strings.Join(in.Owners, "&owner=")
	body := must(json.Marshal(in))(t)
	req := must(http.NewRequestWithContext(t.Context(), method, url, bytes.NewReader(body)))(t)
	resp := must(client.Do(req))(t)
	defer resp.Body.Close()
	return resp.StatusCode, string(must(io.ReadAll(resp.Body))(t))
}

// TestQuestions: a record goes to the owner under the address of who puts it; the
// same is refused for reasons that a line tells.
func TestQuestions(t *testing.T) {
	tw := newTown(t, 2)
	want := func(node int, method, key string, in api.JobRequest, status int, says ...string) {
		t.Helper()
		got, body := tw.question(t, node, method, key, in)
		for _, s := range says {
			if !strings.Contains(body, s) {
				t.Errorf("%s %s on n%d: %s; want %q", method, key, node+1, body, s)
			}
		}
		if got != status {
			t.Errorf("%s %s on n%d: status %d, want %d: %s", method, key, node+1, got, status, body)
		}
	}
	ask := api.JobRequest{Owners: []string{"192.0.2.1", "n1"}, Port: 99, Secret: "x"}
	want(1, "PUT", testKey, ask, 200)
	for node := range 2 {
		want(node, "GET", testKey, ask, 200, `"addr":"100.99.0.2:99"`, `"secret":"x"`)
	}
	want(0, "DELETE", testKey, ask, 200) // n1 has none there
	want(0, "GET", testKey, ask, 200, "100.99.0.2:99")
	want(1, "DELETE", testKey, ask, 200)
	if tw.nodes[0].jobs.holds() {
		t.Error("the record stays")
	}
	for node := range 2 {
		want(node, "PUT", "short", ask, 400, "no key of a job")
		want(node, "PUT", testKey, api.JobRequest{Owners: ask.Owners, Secret: "x"}, 400, "no address")
		want(node, "PUT", testKey, api.JobRequest{Owners: ask.Owners, Port: 1, Secret: strings.Repeat("x", 65)}, 400, "secret")
		want(node, "PUT", testKey, api.JobRequest{Owners: ask.Owners, Port: 1, Secret: strings.Repeat("x", maxAsk)}, 400, "body")
		want(node, "PUT", testKey, api.JobRequest{Owners: []string{"192.0.2.1"}}, 400, "no node of network mesh")
		want(node, "GET", testKey, api.JobRequest{Owners: make([]string, maxOwners+1)}, 400, "at most 8")
	}
	tw.nodes[1].links = newLinks(tw.nodes[1], nil) // as at the start: the rank is to ask again
	want(1, "GET", testKey, api.JobRequest{Owners: []string{"n3"}}, 503, "no hub", "n2", `n3`, "meshctl status")
	tw.nodes[1].links = nil
	for i := range jobs.MaxOfUser {
		want(i%2, "PUT", fmt.Sprintf("%032x", i), ask, 200)
	}
	want(0, "PUT", testKey, ask, 429, "too many jobs")
	want(1, "PUT", testKey, ask, 429, "too many jobs")
}

// TestOwnerDecides: whom the owner's policy, or its directory, does not let in.
func TestOwnerDecides(t *testing.T) {
	ask := api.JobRequest{Owners: []string{"n1"}, Port: 99, Secret: "x"}
	for name, tc := range map[string]struct {
		spoil func(tw *town)
		says  string
	}{
		"denied": {func(tw *town) {
			os.WriteFile(filepath.Join(tw.nodes[0].cfg.State, "policy.json"), []byte(`{"map":[{"node":"n2","user":"*","deny":true}]}`), 0o600)
		}, "policy denies"},
		"broken policy": {func(tw *town) {
			os.WriteFile(filepath.Join(tw.nodes[0].cfg.State, "policy.json"), []byte(`{`), 0o600)
		}, "correct the file"},
		"revoked": {func(tw *town) {
			rec, _ := tw.nodes[0].dir.ByName("n2")
			rec.Revoked = true
			tw.nodes[0].dir.Apply(false, []peer.Record{rec})
		}, "no longer, known"},
		"not the owner": {func(tw *town) { tw.at["100.99.0.1:7723"] = tw.at["100.99.0.2:7723"] }, "another node than n1"},
		"silent":        {func(tw *town) { tw.at["100.99.0.1:7723"] = "127.0.0.1:1" }, "meshctl ping n1"},
		"in a program":  {func(tw *town) { tw.nodes[1].cfg.Userspace = true }, "inside one program"},
	} {
		t.Run(name, func(t *testing.T) {
			tw := newTown(t, 2)
			tc.spoil(tw)
			if status, body := tw.question(t, 1, "PUT", testKey, ask); status < 400 || !strings.Contains(body, tc.says) {
				t.Errorf("status %d: %s; want %q", status, body, tc.says)
			}
			if tw.nodes[0].jobs.holds() {
				t.Error("it left a record")
			}
		})
	}
}

// TestManyUsers: a node that makes up users has no more than a few of them looked up at
// a time, and others are not held up by it.
func TestManyUsers(t *testing.T) {
	tw := newTown(t, 3)
	owner, n2 := tw.nodes[0].jobs, tw.nodes[1].id.self.ID
	for owner.accounts.enter(n2, maxUsers) {
	}
	in := api.JobRequest{Owners: []string{"n1"}, Port: 99, Secret: "x"}
	if status, body := tw.question(t, 1, "PUT", testKey, in); status != http.StatusServiceUnavailable || !strings.Contains(body, "users of node n2 at a time") {
		t.Errorf("one more: status %d: %s", status, body)
	}
	if status, body := tw.question(t, 2, "PUT", testKey, in); status != http.StatusOK {
		t.Errorf("another node's: status %d: %s", status, body)
	}
	owner.accounts.leave(n2)
	if status, body := tw.question(t, 1, "PUT", testKey, in); status != http.StatusOK {
		t.Errorf("after one has been looked up: status %d: %s", status, body)
	}
	if !owner.accounts.enter(n2, maxUsers) {
		t.Error("what has been looked up counts for ever")
	}
}

// TestOwnerSendsNowhere: an owner cannot have the node that asks it, which runs as
// root, ask somebody else.
func TestOwnerSendsNowhere(t *testing.T) {
	var asked atomic.Int32
	victim := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked.Add(1)
		_ = json.NewEncoder(w).Encode(api.JobReply{Version: api.Version, Addr: "100.99.0.1:99"})
	}))
	defer victim.Close()
	tw := newTown(t, 2)
	n1 := tw.nodes[0]
	ln := must(net.Listen("tcp", "127.0.0.1:0"))(t)
	tw.at["100.99.0.1:7723"] = ln.Addr().String()
	srv := &http.Server{TLSConfig: n1.jobs.tls(), Protocols: onlyHTTP2(), Handler: http.RedirectHandler(victim.URL, http.StatusTemporaryRedirect)}
	var all sync.WaitGroup
	all.Go(func() { srv.ServeTLS(ln, "", "") })
	defer all.Wait()
	defer srv.Close()
	for _, method := range []string{"PUT", "GET"} {
		if v, err := tw.nodes[1].jobs.pass(t.Context(), n1.id.self, "u", ask{method: method, key: testKey}); err == nil || asked.Load() != 0 {
			t.Errorf("%s: %v, %v; somebody else was asked %d times", method, v, err, asked.Load())
		}
	}
	if _, err := tw.nodes[1].jobs.http.Get(victim.URL); err == nil {
		t.Error("asks without TLS")
	}
}

// TestStrangers: who shows no certificate, or one of another network.
func TestStrangers(t *testing.T) {
	tw, other := newTown(t, 1), newTown(t, 1)
	other.at["100.99.0.1:7723"] = tw.at["100.99.0.1:7723"]
	_, err := other.nodes[0].jobs.connect(t.Context(), "tcp", "n1:443")
	if err == nil {
		t.Error("a node of another network passes")
	}
	r := httptest.NewRequest("GET", "/v1/jobs/"+testKey, nil)
	if _, err := tw.nodes[0].jobs.fromNode(r); err == nil {
		t.Error("nobody passes")
	}
}

// FuzzJobAsk: what ranks and nodes ask.
func FuzzJobAsk(f *testing.F) {
	f.Add("PUT", testKey, []byte(`{"owners":["a1"],"port":4567,"secret":"x"}`))
	f.Add("GET", "?", []byte{})
	f.Fuzz(func(t *testing.T, method, key string, body []byte) {
		r := &http.Request{Method: method, Body: io.NopCloser(bytes.NewReader(body)), URL: httptest.NewRequest("GET", "/", nil).URL}
		r.SetPathValue("key", key)
		a, err := readAsk(r)
		if err != nil || a.method != http.MethodPut && a.method != http.MethodDelete { // others wait
			return
		}
		d := knowing()
		d.jobs = newJobSide(d)
		_, _ = d.jobs.answer(t.Context(), 1000, d.id.self, a)
	})
}

// FuzzJobAnswer: what an owner answers is passed on only if it is sound.
func FuzzJobAnswer(f *testing.F) {
	f.Add(200, []byte(`{"version":1,"addr":"100.80.0.1:99","secret":"x"}`))
	f.Add(403, []byte(`{"error":"no"}`))
	f.Add(1000, []byte(`{"error":"no"}`))
	f.Fuzz(func(t *testing.T, status int, b []byte) {
		v, err := parseAnswer(status, bytes.NewReader(b))
		reply(httptest.NewRecorder(), v, err) // panics where the status is none
	})
}
