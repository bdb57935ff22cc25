package state

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/meshmpi/meshmpi/mesh/cert"
	"github.com/meshmpi/meshmpi/mesh/peer"
)

func TestMain(m *testing.M) {
	if path := os.Getenv(childEnv); path != "" {
		child(path)
		return
	}
	goleak.VerifyTestMain(m)
}

func epoch() time.Time { return time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC) }

// made is all that init gives a hub.
type made struct {
	root   *cert.Root
	issuer *cert.Issuer
	keys   cert.Keys
	chain  [][]byte
	node   Node
}

func newMade() *made {
	m := &made{
		root: must(cert.NewRoot(peer.Network{
			Name: "lab", Domain: "mesh.internal",
			CIDR4: netip.MustParsePrefix("100.80.0.0/16"), CIDR6: netip.MustParsePrefix("fd12::/64"),
		}, epoch())),
		keys: must(cert.NewKeys()),
	}
	m.issuer = must(m.root.NewIssuer("b1", epoch()))
	m.chain = m.issue(m.keys)
	m.node = Node{
		Version: 1, ID: m.keys.ID(), Name: "b1", Site: "paris", Network: "lab", Root: m.root.Fingerprint(),
		Hubs: []string{"192.0.2.1:51820"}, Advertise: "hub.example.org:51820", Hub: true,
	}
	return m
}

func (m *made) issue(k cert.Keys) [][]byte {
	return must(m.issuer.Issue(peer.Node{
		ID: k.ID(), Name: "b1", Site: "paris", Roles: peer.RoleHub, SignKey: k.Public(),
		Addr4: netip.MustParseAddr("100.80.0.1"), Addr6: netip.MustParseAddr("fd12::1"),
	}, epoch()))
}

// saveTo writes all of m into a draft.
func (m *made) saveTo(d *Draft) error {
	return errors.Join(d.SaveKeys(m.keys), d.SaveRoot(m.root), d.SaveIssuer(m.issuer), d.SaveChain(m.chain), d.SaveNode(m.node))
}

// commit makes m's node at path.
func (m *made) commit(t *testing.T, path string) *Dir {
	t.Helper()
	d, err := Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Abort()
	if err := m.saveTo(d); err != nil {
		t.Fatal(err)
	}
	if err := d.Commit(); err != nil {
		t.Fatal(err)
	}
	return &Dir{files{d.target}}
}

// wantWhole checks that dir holds all of m, with the modes it should have.
func (m *made) wantWhole(t *testing.T, dir *Dir) {
	t.Helper()
	if n, err := dir.LoadNode(); err != nil || !reflect.DeepEqual(n, m.node) {
		t.Errorf("node is %+v, %v; want %+v", n, err, m.node)
	}
	if k, err := dir.LoadKeys(); err != nil || k.WG != m.keys.WG || !k.Sign.Equal(m.keys.Sign) {
		t.Errorf("keys changed: %v", err)
	}
	if c, err := dir.LoadChain(); err != nil || !slices.EqualFunc(c, m.chain, bytes.Equal) {
		t.Errorf("chain changed: %v", err)
	}
	if r, err := dir.LoadRoot(); err != nil || !r.Key.Equal(m.root.Key) {
		t.Errorf("root changed: %v", err)
	}
	if i, err := dir.LoadIssuer(); err != nil || !i.Key.Equal(m.issuer.Key) {
		t.Errorf("issuer changed: %v", err)
	}
	want := map[string]fs.FileMode{
		".": 0o711, nodeFile: 0o600, keysFile: 0o600, chainFile: 0o600, hubDir: 0o700,
		rootCert: 0o600, rootKey: 0o600, issuerCert: 0o600, issuerKey: 0o600,
	}
	err := filepath.WalkDir(dir.path, func(path string, e fs.DirEntry, err error) error {
		name, _ := filepath.Rel(dir.path, path)
		if err != nil || name == lockFile {
			return err
		}
		info, err := e.Info()
		if err == nil && info.Mode().Perm() != want[name] {
			t.Errorf("%s has mode %o, want %o", name, info.Mode().Perm(), want[name])
		}
		delete(want, name)
		return err
	})
	if err != nil || len(want) != 0 {
		t.Errorf("missing: %v, %v", want, err)
	}
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func wantLine(t *testing.T, err error, want ...string) {
	t.Helper()
	if err == nil {
		t.Fatalf("got no error, want %q", want)
	}
	if strings.ContainsAny(err.Error(), "\r\n") {
		t.Errorf("error has several lines: %q", err)
	}
	for _, w := range want {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("got %q, want %q in it", err, w)
		}
	}
}

func TestOpen(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{dir, file, filepath.Join(dir, "none")} {
		_, err := Open(path)
		wantLine(t, err, path+" holds no node; run meshd init or meshd join first")
	}
	path := filepath.Join(dir, "node")
	newMade().commit(t, path)
	d, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := d.SocketPath(), path+"/meshd.sock"; got != want {
		t.Errorf("socket is %s, want %s", got, want)
	}
}

func TestLockAdmitsOneDaemon(t *testing.T) {
	d := newMade().commit(t, filepath.Join(t.TempDir(), "node"))
	unlock, err := d.Lock()
	if err != nil {
		t.Fatal(err)
	}
	_, err = must(Open(d.path)).Lock()
	wantLine(t, err, fmt.Sprintf("%s is in use by meshd (pid %d); stop it first", d.path, os.Getpid()))
	unlock()
	unlock, err = d.Lock()
	if err != nil {
		t.Fatalf("after unlock: %v", err)
	}
	unlock()
}

func TestLockSweepsAfterCrashes(t *testing.T) {
	m := newMade()
	d := m.commit(t, filepath.Join(t.TempDir(), "node"))
	left := []string{".node.json123456", "hub/.ca.crt99", unfinished}
	keep := []string{".node.json", "hub/x.1", ".profile1"}
	for _, name := range slices.Concat(left, keep) {
		if err := os.WriteFile(d.Path(name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	unlock, err := d.Lock()
	if err != nil {
		t.Fatal(err)
	}
	unlock()
	for _, name := range left {
		if _, err := os.Lstat(d.Path(name)); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s is still there (%v)", name, err)
		}
	}
	for _, name := range keep {
		if err := os.Remove(d.Path(name)); err != nil {
			t.Errorf("%s was swept away", name)
		}
	}
	m.wantWhole(t, d)
}

func TestHubFiles(t *testing.T) {
	m := newMade()
	d := m.commit(t, filepath.Join(t.TempDir(), "node"))
	spoil(t, d.Path(rootKey), nil)
	if r, err := d.LoadRoot(); err != nil || r.Key != nil {
		t.Errorf("offline root: %v", err)
	}
	// Between the steps of SaveIssuer there is always a key for the certificate.
	next := must(m.root.NewIssuer("b1", epoch()))
	crt, key, err := next.MarshalPEM()
	if err != nil {
		t.Fatal(err)
	}
	steps := []struct {
		file    string
		content []byte
		want    *cert.Issuer
	}{{issuerNewKey, key, m.issuer}, {issuerCert, crt, next}, {issuerKey, key, next}}
	for _, s := range steps {
		if err := d.write(s.file, s.content, secretMode); err != nil {
			t.Fatal(err)
		}
		if i, err := d.LoadIssuer(); err != nil || !i.Key.Equal(s.want.Key) {
			t.Errorf("after %s: %v", s.file, err)
		}
	}
	for _, name := range []string{issuerKey, issuerNewKey} {
		spoil(t, d.Path(name), nil)
	}
	_, err = d.LoadIssuer()
	wantLine(t, err, d.Path(issuerKey)+" is damaged", "it is missing", "backup of this hub")
	spoil(t, d.Path(issuerKey), key[:len(key)/2])
	_, err = d.LoadIssuer()
	wantLine(t, err, d.Path(issuerKey)+" is damaged", "remove nothing")
	spoil(t, d.Path(rootKey), key[:len(key)/2])
	_, err = d.LoadRoot()
	wantLine(t, err, d.Path(rootKey)+" is damaged", "remove nothing")
	spoil(t, d.Path(rootCert), []byte("x"))
	_, err = d.LoadRoot()
	wantLine(t, err, "damaged")
	for _, name := range []string{rootCert, issuerCert} {
		spoil(t, d.Path(name), nil)
	}
	_, rootErr := d.LoadRoot()
	_, issuerErr := d.LoadIssuer()
	if !errors.Is(rootErr, fs.ErrNotExist) || !errors.Is(issuerErr, fs.ErrNotExist) {
		t.Errorf("on a node that is no hub: %v, %v", rootErr, issuerErr)
	}
}

func TestJSON(t *testing.T) {
	d := newMade().commit(t, filepath.Join(t.TempDir(), "node"))
	want := map[string]int{"a": 1}
	if err := d.SaveJSON("peers.json", want, 0o640); err != nil {
		t.Fatal(err)
	}
	var got map[string]int
	if err := d.LoadJSON("peers.json", &got, 100); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, %v", got, err)
	}
	if info := must(os.Stat(d.Path("peers.json"))); info.Mode().Perm() != 0o640 {
		t.Errorf("mode %o", info.Mode().Perm())
	}
	size := must(os.Stat(d.Path("peers.json"))).Size()
	if err := d.LoadJSON("peers.json", &got, size); err != nil {
		t.Errorf("a file just within the limit: %v", err)
	}
	err := d.LoadJSON("peers.json", &got, size-1)
	wantLine(t, err, "peers.json is damaged", "longer", "remove it")
	if !Corrupt(err) {
		t.Errorf("Corrupt(%v) = false", err)
	}
	if err := d.LoadJSON("none.json", &got, 10); !errors.Is(err, fs.ErrNotExist) || Corrupt(err) {
		t.Errorf("got %v, want fs.ErrNotExist", err)
	}
	for _, name := range []string{"../x", "/x", ""} {
		wantLine(t, d.LoadJSON(name, &got, 10), "leaves the directory")
		wantLine(t, d.SaveJSON(name, got, 0o600), "leaves the directory")
	}
}

// TestReadersSeeWholeFiles reads a file again and again while it is replaced.
func TestReadersSeeWholeFiles(t *testing.T) {
	d := newMade().commit(t, filepath.Join(t.TempDir(), "node"))
	sizes := []int{10, 20000}
	save := func(i int) error { return d.SaveJSON("x.json", bytes.Repeat([]byte{7}, sizes[i%2]), 0o600) }
	if err := save(0); err != nil {
		t.Fatal(err)
	}
	written := make(chan error)
	go func() {
		var err error
		for i := 0; i < 50 && err == nil; i++ {
			err = save(i)
		}
		written <- err
	}()
	for {
		var got []byte
		if err := d.LoadJSON("x.json", &got, 1<<20); err != nil || !slices.Contains(sizes, len(got)) {
			t.Errorf("read %d bytes, %v", len(got), err)
		}
		select {
		case err := <-written:
			if err != nil {
				t.Error(err)
			}
			return
		default:
		}
	}
}
