package pmi

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
)

// owner stands in for the meshds of a job: a local socket, and a record.
type owner struct {
	dir string

	mu      sync.Mutex // guards what follows
	ask     request    // of rank 0
	puts    int
	gone    chan struct{} // closed when rank 0 takes its record back
	refuse  string        // body of every answer about jobs
	failing int           // how many questions are yet to fail
}

// ServeHTTP answers as meshd does, and checks the questions.
func (o *owner) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if r.URL.Path == "/v1/env" {
		fmt.Fprint(w, `{"version":1,"node":"a1","site":"alpha","addr4":"127.0.0.1","tun":"mesh0"}`)
		return
	}
	if o.refuse != "" {
		http.Error(w, o.refuse, http.StatusTooManyRequests)
		return
	}
	if o.failing > 0 {
		o.failing--
		http.Error(w, `{"error":"the owner is not there"}`, http.StatusBadGateway)
		return
	}
	want := []string{"192.0.2.1"}
	var in request
	switch r.Method {
	case http.MethodGet:
		in.Owners = r.URL.Query()["owner"]
		if o.ask.Port != 0 { // otherwise not yet
			json.NewEncoder(w).Encode(where{fmt.Sprintf("127.0.0.1:%d", o.ask.Port), o.ask.Secret})
		} else {
			fmt.Fprint(w, "{}")
		}
	case http.MethodPut:
		json.NewDecoder(r.Body).Decode(&in)
		o.ask = in
		o.puts++
	case http.MethodDelete:
		json.NewDecoder(r.Body).Decode(&in)
		if in.Port == o.ask.Port {
			o.ask = request{}
			close(o.gone)
		}
	}
	if !reflect.DeepEqual(in.Owners, want) || !strings.HasPrefix(r.URL.Path, jobsPath) || len(r.URL.Path) != len(jobsPath)+32 {
		panic(fmt.Sprintf("%s %s of %v", r.Method, r.URL, in.Owners))
	}
}

// newOwner serves until the test ends.
func newOwner(t *testing.T) *owner {
	o := &owner{dir: t.TempDir(), gone: make(chan struct{})}
	ln, err := net.Listen("unix", filepath.Join(o.dir, "meshd.sock"))
	if err != nil {
		t.Fatal(err)
	}
	web := &http.Server{Handler: o}
	go web.Serve(ln) // ends with ln
	t.Cleanup(func() { web.Close() })
	return o
}

// rank is what a rank of two hosts is told.
func (o *owner) rank(r, n int) environ { return openMPI(r, n, 0, "MESH_STATE", o.dir) }

// atMeshd has ranks of several hosts meet.
func atMeshd(t *testing.T, n int) []*Client {
	o := newOwner(t)
	return meet(t, n, func(r int) environ { return o.rank(r, n) })
}

// TestRecord: rank 0 takes its record back when all have come, and the ranks know
// where they are.
func TestRecord(t *testing.T) {
	o := newOwner(t)
	o.failing = 3
	list := meet(t, 2, func(r int) environ { return o.rank(r, 2) })
	for _, c := range list {
		node, site, addr := c.Place()
		if got := node + " " + site + " " + addr; got != "a1 alpha 127.0.0.1" {
			t.Errorf("rank %d is at %s", c.Rank(), got)
		}
	}
	select {
	case <-o.gone:
	case <-limited(t).Done():
		t.Error("the record stays")
	}
	each(t, list, func(c *Client) error { return c.Finalize(limited(t)) })
}

// TestDeadRankZero: a record that leads nowhere is looked up again.
func TestDeadRankZero(t *testing.T) {
	o := newOwner(t)
	ln, addr := listenTCP(t)
	ln.Close()
	if _, err := fmt.Sscanf(addr, "127.0.0.1:%d", &o.ask.Port); err != nil {
		t.Fatal(err)
	}
	o.ask.Secret = "of the dead"
	list := meet(t, 2, func(r int) environ { return o.rank(r, 2) })
	each(t, list, func(c *Client) error { return c.Finalize(limited(t)) })
}

// TestLonely: rank 0 that gives up takes its record back; so do those who wait
// for one that does not come end with ctx.
func TestLonely(t *testing.T) {
	o := newOwner(t)
	c, err := Dial(limited(t), o.rank(0, 2))
	if err != nil {
		t.Fatal(err)
	}
	c.Close()
	select {
	case <-o.gone:
	default:
		t.Error("the record stays")
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Dial(ctx, o.rank(1, 2)); err == nil {
		t.Error("a rank comes to nobody")
	}
}

func TestMeshdRefuses(t *testing.T) {
	o := newOwner(t)
	for body, want := range map[string]string{
		`{"version":1,"error":"you have too many jobs"}`: "you have too many jobs; start the program with meshrun",
		"go away": "is it older",
	} {
		o.refuse = body
		for r := range 2 {
			if _, err := Dial(limited(t), o.rank(r, 2)); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
				t.Errorf("rank %d: got %v, want %q", r, err, want)
			}
		}
	}
	if _, err := Dial(limited(t), openMPI(0, 2, 1, "MESH_STATE", t.TempDir())); err == nil || !strings.Contains(err.Error(), "no meshd runs here") {
		t.Errorf("without a meshd: %v", err)
	}
}

// FuzzAnswer: whatever listens at the local socket.
func FuzzAnswer(f *testing.F) {
	f.Add(200, []byte(`{"addr":"100.80.0.1:99","secret":"x"}`))
	f.Add(200, []byte(`{"addr":"nowhere"}`))
	f.Add(403, []byte(`{"error":"no"}`))
	f.Fuzz(func(t *testing.T, status int, b []byte) {
		var w where
		if err := parseAnswer(status, bytes.NewReader(b), &w); err == nil {
			_ = w.check()
		}
		var p place
		_ = parseAnswer(status, bytes.NewReader(b), &p)
	})
}

// FuzzLauncher: the variables of launchers, which say where their own end is.
func FuzzLauncher(f *testing.F) {
	f.Add("16.0;tcp://192.0.2.1,10.0.0.1:37467;tcp6://[fd00::1]:3514", "prterun-a1-17@1", "node[3-5,8],other")
	f.Fuzz(func(t *testing.T, uri, ns, list string) {
		if n := len(uriHosts(uri)); n > maxOwners {
			t.Errorf("%d owners", n)
		}
		namespaceHost(ns)
		firstNode(list)
	})
}

// transport answers instead of a meshd.
type transport func(*http.Request) (*http.Response, error)

// RoundTrip implements http.RoundTripper.
func (f transport) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// TestImpatientMeshd: one that says at once that rank 0 has not come is not asked again
// at once.
func TestImpatientMeshd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 10*retry+retry/2)
		defer cancel()
		asked := 0
		d := &meshd{http: &http.Client{Transport: transport(func(*http.Request) (*http.Response, error) {
			if asked++; asked > 100 {
				cancel() // no time passes
			}
			return &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(strings.NewReader("{}"))}, nil
		})}}
		if _, err := (meeting{}).find(ctx, d); !errors.Is(err, context.DeadlineExceeded) || asked > 12 { // the last to find that time is over
			t.Errorf("asked %d times: %v", asked, err)
		}
	})
}
