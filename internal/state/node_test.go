package state

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/meshmpi/meshmpi/mesh/cert"
	"github.com/meshmpi/meshmpi/mesh/peer"
)

// TestDamage spoils one file after another.
func TestDamage(t *testing.T) {
	m := newMade()
	stranger := must(cert.NewKeys())
	mixed := stranger
	mixed.WG = m.keys.WG
	pem := func(k cert.Keys) []byte { return must(k.MarshalPEM()) }
	tests := []struct {
		name, file string
		content    []byte // nil: removed
		want       string
	}{
		{"cut node.json", nodeFile, []byte(`{"version":1,`), "unexpected end of JSON"},
		{"empty node.json", nodeFile, []byte{}, "unexpected end of JSON"},
		{"long node.json", nodeFile, bytes.Repeat([]byte(" "), maxFile+1), "longer than it can be"},
		{"versionless", nodeFile, []byte(`{}`), "version 0"},
		{"bad hub", nodeFile, with(m.node, func(n *Node) { n.Hubs = []string{"hub"} }), "not HOST:PORT"},
		{"too many hubs", nodeFile, with(m.node, func(n *Node) { n.Hubs = make([]string, 65) }), "65 hubs"},
		{"bad address", nodeFile, with(m.node, func(n *Node) { n.Advertise = "a\nb:1" }), "not HOST:PORT"},
		{"nameless", nodeFile, []byte(`{"version":1,"root":"` + strings.Repeat("0", 64) + `"}`), "node name"},
		{"no keys", keysFile, nil, "it is missing"},
		{"no PEM", keysFile, []byte("x\ny"), "not PEM"},
		{"other keys", keysFile, pem(stranger), "another node's keys"},
		{"no chain", chainFile, nil, "it is missing"},
		{"empty chain", chainFile, []byte{}, "no PEM block"},
		{"other network", chainFile, cert.EncodePEM(newMade().chain), "another network"},
		{"other node", chainFile, cert.EncodePEM(m.issue(stranger)), "certificate of node b1"},
		{"other signing key", chainFile, cert.EncodePEM(m.issue(mixed)), "another Ed25519 key"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			d := m.commit(t, filepath.Join(t.TempDir(), "node"))
			spoil(t, d.Path(tt.file), tt.content)
			_, err := d.LoadNode()
			wantLine(t, err, d.Path(tt.file)+" is damaged", tt.want, "restore it from a backup, or remove "+d.path+" and join again")
			if !Corrupt(err) {
				t.Errorf("Corrupt(%v) = false", err)
			}
		})
	}
}

// with returns n's node.json after a change.
func with(n Node, change func(*Node)) []byte {
	change(&n)
	return must(json.Marshal(n.encode()))
}

func TestSaveNodeFillsInWhatIsKnown(t *testing.T) {
	m := newMade()
	d := must(Create(filepath.Join(t.TempDir(), "node")))
	defer d.Abort()
	bare := m.node
	bare.Version, bare.ID, bare.Root = 0, peer.ID{}, peer.Fingerprint{}
	wantLine(t, d.SaveNode(bare), "keys.pem", "missing")
	if err := errors.Join(d.SaveKeys(m.keys), d.SaveChain(m.chain), d.SaveNode(bare)); err != nil {
		t.Fatal(err)
	}
	if n, err := d.LoadNode(); err != nil || !reflect.DeepEqual(n, m.node) {
		t.Errorf("got %+v, %v; want %+v", n, err, m.node)
	}
	bare.Name = "B1"
	wantLine(t, d.SaveNode(bare), "node name")
}

func spoil(t *testing.T, path string, content []byte) {
	t.Helper()
	err := os.Remove(path)
	if content != nil {
		err = os.WriteFile(path, content, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func TestNewerNode(t *testing.T) {
	d := newMade().commit(t, filepath.Join(t.TempDir(), "node"))
	spoil(t, d.Path(nodeFile), []byte(`{"version":2,"name":{}}`))
	_, err := d.LoadNode()
	wantLine(t, err, "newer meshd", "upgrade")
	if Corrupt(err) {
		t.Error("a newer file counts as damaged")
	}
}

func FuzzParseNode(f *testing.F) {
	f.Add(must(json.Marshal(newMade().node.encode())))
	f.Add([]byte(`{"version":2}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		n, err := parseNode(b)
		if err != nil {
			return
		}
		again, err := parseNode(must(json.Marshal(n.encode())))
		if err != nil || !reflect.DeepEqual(again, n) {
			t.Errorf("%+v does not survive a round trip: %+v, %v", n, again, err)
		}
	})
}
