package node

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/meshmpi/meshmpi/internal/deaf"
	"github.com/meshmpi/meshmpi/internal/state"
	"github.com/meshmpi/meshmpi/mesh/cert"
	"github.com/meshmpi/meshmpi/mesh/hub"
	"github.com/meshmpi/meshmpi/mesh/peer"
	"github.com/meshmpi/meshmpi/mesh/token"
)

// hubAt is a hub that is reached through a wire which tests can cut.
type hubAt struct {
	*hub.Hub
	cut  func() bool // asked before a hub's bytes are passed on; true drops the connection
	full atomic.Bool // its disk
}

// disk is a hub's store, on a disk that may be full.
type disk struct {
	hub.Store
	full *atomic.Bool
}

func (d disk) Update(f func(hub.Tx) error) error {
	return d.Store.Update(func(tx hub.Tx) error {
		if err := f(tx); err != nil || !d.full.Load() {
			return err
		}
		return syscall.ENOSPC
	})
}

// newHub serves a hub of a new network until the test ends.
func newHub(t *testing.T) *hubAt {
	t.Helper()
	outer := must(net.Listen("tcp", "127.0.0.1:0"))(t)
	root := must(cert.NewRoot(peer.Network{Name: "mesh", Domain: "mesh.internal",
		CIDR4: netip.MustParsePrefix("100.99.0.0/16"), CIDR6: netip.MustParsePrefix("fd99:1:2:3::/64")}, time.Now()))(t)
	network := must(cert.NetworkOf(root.Cert.Raw))(t)
	issuer := must(root.NewIssuer("hub", time.Now()))(t)
	keys := must(cert.NewKeys())(t)
	store := hub.NewMemoryStore()
	self, chain, err := hub.AdmitFirst(store, network, issuer, keys, "hub", "core", time.Now())
	if err != nil {
		t.Fatal(err)
	}
	at := &hubAt{cut: func() bool { return false }}
	at.Hub = must(hub.New(hub.Config{Network: network, Self: self, Keys: keys, Chain: func() [][]byte { return chain },
		Issuer: issuer, Store: disk{store, &at.full}, Advertise: []string{outer.Addr().String()}}))(t)
	inner := must(net.Listen("tcp", "127.0.0.1:0"))(t)
	ctx, cancel := context.WithCancel(context.Background())
	var all sync.WaitGroup
	all.Go(func() {
		if err := at.Serve(ctx, inner); err != nil {
			t.Errorf("hub: %v", err)
		}
	})
	all.Go(func() {
		for {
			c, err := outer.Accept()
			if err != nil {
				return
			}
			at.pass(c, inner.Addr().String())
		}
	})
	t.Cleanup(func() { cancel(); outer.Close(); all.Wait() })
	return at
}

// pass carries one connection.
func (h *hubAt) pass(c net.Conn, to string) {
	defer c.Close()
	s, err := net.Dial("tcp", to)
	if err != nil {
		return
	}
	var up sync.WaitGroup
	up.Go(func() { _, _ = io.Copy(s, c); s.Close() })
	buf := make([]byte, 64<<10)
	for {
		n, err := s.Read(buf)
		if err != nil || h.cut() {
			break
		}
		if _, err := c.Write(buf[:n]); err != nil {
			break
		}
	}
	c.Close()
	s.Close()
	up.Wait()
}

// admitted reports whether the hub has a node of this name.
func (h *hubAt) admitted(name string) bool {
	nodes, _ := h.Nodes()
	for _, n := range nodes {
		if n.Name == name && !n.Removed {
			return true
		}
	}
	return false
}

func filesIn(t *testing.T, dir string) (list []string) {
	t.Helper()
	for _, e := range must(os.ReadDir(dir))(t) {
		list = append(list, e.Name())
	}
	return list
}

// TestJoinAgain: where a hub admits us and its answer is lost, the next attempt
// comes with the same keys, so that a token for one node is enough.
func TestJoinAgain(t *testing.T) {
	h := newHub(t)
	tok := must(h.CreateToken("", 1, 0))(t)
	parent := t.TempDir()
	dir := filepath.Join(parent, "state")
	opt := JoinOptions{State: dir, Name: "a1", Token: tok}

	h.cut = func() bool { return h.admitted("a1") }
	_, _, err := Join(t.Context(), opt)
	wantLine(t, err, "broke off", "try again")
	if _, err := os.Stat(dir); err == nil || !h.admitted("a1") {
		t.Errorf("the state directory is there (%v), or the hub has not admitted us", err)
	}

	h.cut = func() bool { return false }
	wrong := opt // a failure of another kind in between changes nothing
	wrong.Token = must(h.CreateToken("", 1, time.Nanosecond))(t)
	_, _, err = Join(t.Context(), wrong)
	if !errors.Is(err, hub.ErrTokenExpired) {
		t.Errorf("an expired token: %v", err)
	}
	self, _, err := Join(t.Context(), opt)
	if err != nil || self.Name != "a1" {
		t.Fatalf("the second attempt: %v", err)
	}
	if got := filesIn(t, parent); len(got) != 1 {
		t.Errorf("beside the state directory is left: %q", got)
	}
	if _, err := load(must(state.Open(dir))(t), time.Now()); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(filepath.Join(dir, "joining.json")); err == nil {
		t.Error("the mark of a joining is left in the state directory")
	}
}

// TestJoinAgainAtAFullHub: nor does a hub that cannot write now make us forget the keys
// that it has admitted.
func TestJoinAgainAtAFullHub(t *testing.T) {
	h := newHub(t)
	opt := JoinOptions{State: filepath.Join(t.TempDir(), "state"), Name: "a1", Token: must(h.CreateToken("", 1, 0))(t)}
	h.cut = func() bool { return h.admitted("a1") }
	_, _, err := Join(t.Context(), opt)
	wantLine(t, err, "broke off")
	if !h.admitted("a1") {
		t.Error("the hub has not admitted us")
	}
	h.cut = func() bool { return false }
	h.full.Store(true)
	_, _, err = Join(t.Context(), opt)
	wantLine(t, err, "no space left")
	h.full.Store(false)
	if _, _, err = Join(t.Context(), opt); err != nil {
		t.Errorf("when the hub has room again: %v", err)
	}
}

// TestJoinLeavesNothing: a joining that no hub can have heard of, or that a hub
// refuses, leaves no keys to come back with.
func TestJoinLeavesNothing(t *testing.T) {
	h := newHub(t)
	used := must(h.CreateToken("", 1, 0))(t)
	if _, _, err := Join(t.Context(), JoinOptions{State: filepath.Join(t.TempDir(), "s"), Name: "a1", Token: used}); err != nil {
		t.Fatal(err)
	}
	good := must(h.CreateToken("", 9, 0))(t)
	nowhere := must(token.New("mesh", good.Root, []string{deaf.Addr(t, "tcp")}, "core", time.Now().Add(time.Hour)))(t)
	foreign := must(newHub(t).CreateToken("", 1, 0))(t)
	foreign.Hubs = good.Hubs
	done, cancel := context.WithCancel(t.Context())
	cancel()
	for _, tc := range []struct {
		name string
		ctx  context.Context
		opt  JoinOptions
		says []string
	}{
		{"used up", t.Context(), JoinOptions{Name: "x", Token: used}, []string{"used up"}},
		{"taken name", t.Context(), JoinOptions{Name: "a1", Token: good}, []string{"a1", "--name"}},
		{"bad name", t.Context(), JoinOptions{Name: "A1", Token: good}, []string{"--name", `"A1"`}},
		{"no hub", t.Context(), JoinOptions{Name: "x", Token: nowhere}, []string{"cannot reach " + nowhere.Hubs[0], "check"}},
		{"another network's", t.Context(), JoinOptions{Name: "x", Token: foreign}, []string{good.Hubs[0], "another network"}},
		{"interrupted", done, JoinOptions{Name: "x", Token: good}, []string{"canceled"}},
	} {
		parent := t.TempDir()
		tc.opt.State = filepath.Join(parent, "state")
		_, _, err := Join(tc.ctx, tc.opt)
		wantLine(t, err, tc.says...)
		if got := filesIn(t, parent); len(got) != 0 {
			t.Errorf("%s: left behind is %q", tc.name, got)
		}
	}
}

// TestHubCertifiesItself: a hub that was away for longer than its certificate lasts,
// or whose clock was set back, has nobody else to ask for another.
func TestHubCertifiesItself(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "hub")
	found(t, dir)
	open := must(state.Open(dir))(t)
	for _, later := range []time.Duration{cert.Lifetime + 24*time.Hour, 0} {
		id, err := load(open, time.Now().Add(later))
		if err != nil {
			t.Fatal(err)
		}
		if chain := must(open.LoadChain())(t); !bytes.Equal(chain[0], id.chain[0]) || id.expires().Before(time.Now().Add(later)) {
			t.Errorf("after %v it goes by a certificate until %v, which is not the one that it keeps", later, id.expires())
		}
	}
}

// TestLoad: what is wrong with a state directory is told before anything starts.
func TestLoad(t *testing.T) {
	h := newHub(t)
	tok := must(h.CreateToken("", 9, 0))(t)
	dir := filepath.Join(t.TempDir(), "a1")
	self, _, err := Join(t.Context(), JoinOptions{State: dir, Name: "a1", Token: tok})
	if err != nil {
		t.Fatal(err)
	}
	open := must(state.Open(dir))(t)
	_, err = load(open, time.Now().Add(-24*time.Hour))
	wantLine(t, err, "a1", "clock")
	_, err = load(open, self.NotAfter.Add(time.Hour))
	wantLine(t, err, "a1", "expired", "clock", "join again with a new token")
	other := filepath.Join(t.TempDir(), "b1")
	if _, _, err := Join(t.Context(), JoinOptions{State: other, Name: "b1", Token: tok}); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"keys.pem", "chain.pem", "node.json"} {
		path := filepath.Join(dir, name)
		own := must(os.ReadFile(path))(t)
		for what, content := range map[string]string{
			"another node's": string(must(os.ReadFile(filepath.Join(other, name)))(t)),
			"empty":          "", "cut": string(own[:len(own)/2]), "garbage": strings.Repeat("\x00\xff\n", 100),
		} {
			if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
				t.Fatal(err)
			}
			_, err := load(open, time.Now())
			wantLine(t, err, dir, "join again with a new token")
			if err == nil {
				t.Errorf("%s is %s and nobody minds", name, what)
			}
		}
		if err := os.WriteFile(path, own, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}
