package node

import (
	"context"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/meshmpi/meshmpi/internal/node/api"
	"github.com/meshmpi/meshmpi/mesh/udp"
	"github.com/meshmpi/meshmpi/shaper/hint"
	"go.uber.org/goleak"
)

// found founds a network in a fresh directory.
func found(t *testing.T, dir string) {
	t.Helper()
	_, _, err := Init(InitOptions{State: dir, Name: "hub", Site: "core", Advertise: "127.0.0.1:51820", CIDR: "100.99.0.0/16"})
	if err != nil {
		t.Fatal(err)
	}
}

// running is a daemon in this process.
type running struct {
	stop context.CancelFunc
	keep chan struct{}
	done chan error
}

// begin starts a daemon and waits until it is ready.
func begin(t *testing.T, cfg Config) *running {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	r := &running{stop: cancel, keep: make(chan struct{}), done: make(chan error, 1)}
	ready := make(chan struct{})
	tell := cfg.Ready
	cfg.Log, cfg.Keep, cfg.Ready = slog.New(slog.DiscardHandler), r.keep, func(n *Node) {
		if tell != nil {
			tell(n)
		}
		close(ready)
	}
	go func() { r.done <- Run(ctx, cfg) }()
	select {
	case <-ready:
	case err := <-r.done:
		t.Fatalf("the daemon has ended: %v", err)
	case <-time.After(20 * time.Second):
		t.Fatal("the daemon does not get ready")
	}
	return r
}

func (r *running) end(t *testing.T) {
	t.Helper()
	r.stop()
	select {
	case err := <-r.done:
		if err != nil {
			t.Errorf("the daemon ends with %v", err)
		}
	case <-time.After(20 * time.Second):
		t.Fatal("the daemon does not end")
	}
}

func wantSame(t *testing.T, what, before string) {
	t.Helper()
	if after := snapshot(t); after != before {
		t.Errorf("%s changes the host from\n%s\nto\n%s", what, before, after)
	}
}

// TestRun: a daemon starts, answers, and leaves host and process as they were;
// one that hands over leaves the TUN, and its successor takes it all away.
func TestRun(t *testing.T) {
	if !ownHost(t) {
		return
	}
	dir := filepath.Join(t.TempDir(), "state")
	found(t, dir)
	before := snapshot(t)
	goroutines := goleak.IgnoreCurrent()

	r := begin(t, Config{State: dir, Ports: udp.Ports{First: 4000, Last: 4000}})
	s := must(api.Dial(dir).Status(t.Context()))(t)
	if s.Self.Name != "hub" || s.Listen != 4000 || s.TUN != DefaultTUN {
		t.Errorf("status says %+v", s)
	}
	if len(s.Warnings) == 0 || !strings.Contains(strings.Join(s.Warnings, "\n"), "listens on port 4000 and is advertised at 127.0.0.1:51820") {
		t.Errorf("no warning that another port is advertised: %q", s.Warnings)
	}
	awaitHub(t, dir) // at the port where it listens
	if p := must(hint.Dial(filepath.Join(dir, hintSocket)))(t); !p.Connected() {
		t.Error("no program can give hints")
	} else if info, err := os.Stat(filepath.Join(dir, hintSocket)); err != nil || info.Mode().Perm() != 0o666 {
		t.Errorf("the socket for hints: %v, %v", info.Mode(), err)
	} else {
		p.Close()
	}
	_, err := Restore(dir)
	wantLine(t, err, "in use")
	r.end(t)
	wantSame(t, "a clean stop", before)

	r = begin(t, Config{State: dir})
	close(r.keep)
	r.end(t)
	if _, err := net.InterfaceByName(DefaultTUN); err != nil {
		t.Errorf("handing over takes the TUN away: %v", err)
	}
	begin(t, Config{State: dir}).end(t)
	wantSame(t, "a successor's clean stop", before)
	goleak.VerifyNone(t, goroutines)
}

// awaitHub waits for the control session.
func awaitHub(t *testing.T, dir string) {
	t.Helper()
	client := api.Dial(dir)
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		s := must(client.Status(t.Context()))(t)
		if len(s.Hubs) == 1 && s.Hubs[0].Up {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("no session with the own hub: %+v", s.Hubs)
		}
	}
}

// TestStartFails: whichever step of starting fails, one line says why, and of
// the steps before nothing is left, on the host or in the process.
func TestStartFails(t *testing.T) {
	if !ownHost(t) {
		return
	}
	dir := filepath.Join(t.TempDir(), "state")
	found(t, dir)
	listen := func(network, addr string) func(t *testing.T) func() {
		return func(t *testing.T) func() {
			if strings.HasPrefix(network, "udp") {
				c := must(net.ListenPacket(network, addr))(t)
				return func() { c.Close() }
			}
			c := must(net.Listen(network, addr))(t)
			return func() { c.Close() }
		}
	}
	// replaced puts something in the place of a file of the state directory.
	replaced := func(name string, put func(path string) error) func(t *testing.T) func() {
		return func(t *testing.T) func() {
			path := filepath.Join(dir, name)
			saved := filepath.Join(t.TempDir(), "saved")
			moved := os.Rename(path, saved) == nil
			if err := put(path); err != nil {
				t.Fatal(err)
			}
			return func() {
				os.RemoveAll(path)
				if moved {
					if err := os.Rename(saved, path); err != nil {
						t.Error(err)
					}
				}
			}
		}
	}
	garbage := func(path string) error { return os.WriteFile(path, []byte("no such thing\n"), 0o600) }
	for _, tc := range []struct {
		name    string
		prevent func(t *testing.T) (mend func())
		want    []string
	}{
		{"UDP port", listen("udp4", ":51820"), []string{"udp", "51820", "--listen"}},
		{"TCP port", listen("tcp4", ":51820"), []string{"TCP port 51820 is in use", "--listen"}},
		{"store", replaced(storeFile, garbage), []string{"store.db", "backup"}},
		{"issuer", replaced("hub/ca.crt", garbage), []string{"hub/ca.crt", "backup"}},
		{"name server", listen("udp4", "0.0.0.0:53"), []string{"dns", "53"}},
		{"port of meetings", listen("tcp4", "0.0.0.0:7723"), []string{"7723", "in use"}},
		{"live shares' port", listen("udp4", "0.0.0.0:7724"), []string{"7724", "in use"}},
		{"exec port", listen("tcp4", "0.0.0.0:7722"), []string{"7722", "in use"}},
		{"exec policy", replaced("policy.json", garbage), []string{"policy.json"}},
		{"metrics' port", listen("tcp4", "127.0.0.1:7725"), []string{"7725", "in use", "--metrics"}},
		{"programs' socket", replaced("hints.sock", func(path string) error { return os.MkdirAll(filepath.Join(path, "full"), 0o700) }), []string{"hints.sock"}},
		{"local socket", replaced("meshd.sock", func(path string) error { return os.MkdirAll(filepath.Join(path, "full"), 0o700) }), []string{"meshd.sock"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
			mend := tc.prevent(t)
			defer mend()
			before := snapshot(t)
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			defer cancel()
			err := Run(ctx, Config{State: dir, Metrics: netip.MustParseAddrPort("127.0.0.1:7725"), Log: slog.New(slog.DiscardHandler), Ready: func(*Node) { t.Error("it gets ready"); cancel() }})
			wantLine(t, err, tc.want...)
			wantSame(t, "failing", before)
		})
	}
	begin(t, Config{State: dir}).end(t) // nothing is left that bars the way
}
