package node

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/meshmpi/meshmpi/internal/state"
	"github.com/meshmpi/meshmpi/mesh/cert"
	"github.com/meshmpi/meshmpi/mesh/peer"
)

// founded is the state directory of a new hub.
func founded(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "node")
	if _, _, err := Init(InitOptions{State: dir, Name: "hub", Site: "town", Advertise: "127.0.0.1:51820"}); err != nil {
		t.Fatal(err)
	}
	return dir
}

// TestResign: in the last year of an issuer's life the root, whose key was away, signs
// another, and the hub goes on for five years; so it does after the issuer has ended.
func TestResign(t *testing.T) {
	dir := founded(t)
	away := filepath.Join(t.TempDir(), "root.key")
	if err := os.Rename(filepath.Join(dir, "hub/root.key"), away); err != nil {
		t.Fatal(err)
	}
	d := must(state.Open(dir))(t)
	first := must(d.LoadIssuer())(t)
	for _, now := range []time.Time{first.Cert.NotAfter.AddDate(-1, 0, 0), first.Cert.NotAfter.AddDate(6, 0, 0)} {
		was := must(d.LoadIssuer())(t)
		until := must(Resign(dir, away, now))(t)
		if want := now.Add(cert.IssuerLifetime); until.Sub(want).Abs() > time.Second {
			t.Errorf("signed on %v, holds until %v, want %v", now, until, want)
		}
		next := must(d.LoadIssuer())(t)
		if next.Key.Equal(was.Key) || !next.Cert.NotAfter.Equal(until) {
			t.Errorf("the hub's issuer is another until %v, key new %v", next.Cert.NotAfter, !next.Key.Equal(was.Key))
		}
		// It is the same network's, and the hub itself is well after the first has ended.
		later := until.AddDate(0, 0, -1)
		id := must(load(d, later))(t)
		if id.until.Before(later) || id.network.Root != peer.Fingerprint(cert.FingerprintOf(first.RootDER)) {
			t.Errorf("the hub has a certificate until %v, of root %v", id.until, id.network.Root)
		}
	}
}

// TestResignRefused: whatever is wrong, a line says so, and the issuer stays.
func TestResignRefused(t *testing.T) {
	dir, other := founded(t), founded(t)
	d := must(state.Open(dir))(t)
	was := must(d.LoadIssuer())(t)
	file := func(content string) string {
		f := filepath.Join(t.TempDir(), "key")
		if err := os.WriteFile(f, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		return f
	}
	refused := func(what, dir, key, says string) {
		t.Helper()
		_, err := Resign(dir, key, time.Now())
		if err == nil || !strings.Contains(err.Error(), says) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v, want a line with %q", what, err, says)
		}
	}
	refused("no node", t.TempDir(), "", "holds no node")
	refused("another network's key", dir, filepath.Join(other, "hub/root.key"), "is not the key of this network's root")
	refused("no key", dir, file("not a key"), "is not the key of this network's root")
	refused("nothing in it", dir, file(""), "is empty")
	refused("no file", dir, filepath.Join(dir, "nowhere"), "meshd init made as hub/root.key")
	refused("the issuer's key", dir, filepath.Join(dir, "hub/ca.key"), "is not the key of this network's root")
	unlock := must(d.Lock())(t)
	refused("while meshd runs", dir, "", "is in use by meshd")
	unlock()
	if err := os.Remove(filepath.Join(dir, "hub/root.key")); err != nil {
		t.Fatal(err)
	}
	refused("the key is away", dir, "", "--root-key FILE")
	n := must(d.LoadNode())(t)
	n.Hub = false
	if err := d.SaveNode(n); err != nil {
		t.Fatal(err)
	}
	refused("no hub", dir, "", "hub is no hub")
	if now := must(d.LoadIssuer())(t); !now.Key.Equal(was.Key) {
		t.Error("the issuer is another")
	}
}

func TestIssuerWarning(t *testing.T) {
	for left, says := range map[time.Duration]string{
		91 * 24 * time.Hour: "", 89 * 24 * time.Hour: "expires in 89 days", time.Hour: "expires in 1h0m0s", -time.Hour: "has expired",
	} {
		if got := issuerWarning(left); (got == "") != (says == "") || !strings.Contains(got, says) {
			t.Errorf("%v: %q, want %q", left, got, says)
		}
	}
}
