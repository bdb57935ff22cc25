package state

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"strings"

	"github.com/meshmpi/meshmpi/mesh/cert"
	"github.com/meshmpi/meshmpi/mesh/peer"
)

// nodeVersion is the version of node.json that this package writes and reads.
const nodeVersion = 1

// maxHubs bounds the hubs that a node remembers.
const maxHubs = 64

// maxHostPort is the longest DNS name, a colon and a port.
const maxHostPort = 253 + 1 + 5

// Node is node.json: who the node is and whom it asks. Where name or site differ
// from the certificate's, a hub has changed them since; the certificate counts.
type Node struct {
	Version   int     // set by SaveNode
	ID        peer.ID // zero in SaveNode: that of the keys saved before
	Name      string
	Site      string
	Network   string           // the network's name
	Root      peer.Fingerprint // of the network; zero in SaveNode: that of the chain saved before
	Hubs      []string         // HOST:PORT, at most 64
	Advertise string           // HOST:PORT where others find this node, or ""
	Hub       bool             // whether hub/ holds an issuer
}

// nodeJSON is Node as it is written: the fingerprint in hexadecimal.
type nodeJSON struct {
	Version   int      `json:"version"`
	ID        peer.ID  `json:"id"`
	Name      string   `json:"name"`
	Site      string   `json:"site"`
	Network   string   `json:"network"`
	Root      string   `json:"root"`
	Hubs      []string `json:"hubs"`
	Advertise string   `json:"advertise,omitempty"`
	Hub       bool     `json:"hub,omitempty"`
}

// LoadNode returns who the node is, once node.json, the keys and the certificate
// agree on it. It does not look at the clock.
func (f files) LoadNode() (Node, error) {
	n, err := f.readNode()
	if err != nil {
		return Node{}, err
	}
	if _, err := f.readKeys(n); err != nil {
		return Node{}, err
	}
	if _, err := f.readChain(n); err != nil {
		return Node{}, err
	}
	return n, nil
}

// SaveNode replaces node.json. It refuses a node that LoadNode would not take.
func (f files) SaveNode(n Node) error {
	if n.ID.IsZero() {
		k, err := f.parseKeys()
		if err != nil {
			return err
		}
		n.ID = k.ID()
	}
	if n.Root == (peer.Fingerprint{}) {
		chain, err := f.parseChain()
		if err != nil {
			return err
		}
		n.Root = cert.FingerprintOf(chain[len(chain)-1])
	}
	if err := n.check(); err != nil {
		return fmt.Errorf("state: write %s: %w", f.Path(nodeFile), err)
	}
	return f.SaveJSON(nodeFile, n.encode(), secretMode)
}

func (n Node) encode() nodeJSON {
	return nodeJSON{nodeVersion, n.ID, n.Name, n.Site, n.Network, cert.FormatFingerprint(n.Root), n.Hubs, n.Advertise, n.Hub}
}

// LoadKeys returns the node's private keys.
func (f files) LoadKeys() (cert.Keys, error) {
	n, err := f.readNode()
	if err != nil {
		return cert.Keys{}, err
	}
	return f.readKeys(n)
}

// SaveKeys writes the node's private keys. They are the node's identity: only a
// draft's should ever be written.
func (f files) SaveKeys(k cert.Keys) error {
	b, err := k.MarshalPEM()
	if err != nil {
		return fmt.Errorf("state: write %s: %w", f.Path(keysFile), err)
	}
	return f.write(keysFile, b, secretMode)
}

// LoadChain returns the node's certificate, its issuer's and the root's. They
// are genuine but may have expired.
func (f files) LoadChain() ([][]byte, error) {
	n, err := f.readNode()
	if err != nil {
		return nil, err
	}
	return f.readChain(n)
}

// SaveChain replaces the node's certificate, its issuer's and the root's.
func (f files) SaveChain(chain [][]byte) error {
	b := cert.EncodePEM(chain)
	if _, err := cert.ParsePEM(b); err != nil {
		return fmt.Errorf("state: write %s: %w", f.Path(chainFile), err)
	}
	return f.write(chainFile, b, secretMode)
}

func (f files) readNode() (Node, error) {
	b, err := f.read(nodeFile, maxFile)
	if err != nil {
		return Node{}, f.judge(nodeFile, err)
	}
	n, err := parseNode(b)
	if errors.Is(err, errNewer) {
		return Node{}, fmt.Errorf("state: %s %w", f.Path(nodeFile), err)
	}
	if err != nil {
		return Node{}, f.damaged(nodeFile, err)
	}
	return n, nil
}

func (f files) readKeys(n Node) (cert.Keys, error) {
	k, err := f.parseKeys()
	if err == nil && k.ID() != n.ID {
		return cert.Keys{}, f.damaged(keysFile, fmt.Errorf("it has another node's keys than %s names", nodeFile))
	}
	return k, err
}

func (f files) readChain(n Node) ([][]byte, error) {
	chain, err := f.parseChain()
	if err != nil {
		return nil, err
	}
	in, err := cert.Inspect(chain, n.Root)
	if err != nil {
		return nil, f.damaged(chainFile, err)
	}
	if in.ID != n.ID {
		return nil, f.damaged(chainFile, fmt.Errorf("it is the certificate of node %s, %s names another", in.Name, nodeFile))
	}
	k, err := f.readKeys(n)
	if err != nil {
		return nil, err
	}
	if !bytes.Equal(in.SignKey, k.Public()) {
		return nil, f.damaged(chainFile, fmt.Errorf("it is for another Ed25519 key than that in %s", keysFile))
	}
	return chain, nil
}

func (f files) parseKeys() (cert.Keys, error) {
	b, err := f.readPart(keysFile)
	if err != nil {
		return cert.Keys{}, err
	}
	k, err := cert.ParseKeys(b)
	if err != nil {
		return cert.Keys{}, f.damaged(keysFile, err)
	}
	return k, nil
}

func (f files) parseChain() ([][]byte, error) {
	b, err := f.readPart(chainFile)
	if err != nil {
		return nil, err
	}
	chain, err := cert.ParsePEM(b)
	if err != nil {
		return nil, f.damaged(chainFile, err)
	}
	return chain, nil
}

// readPart reads a file that is there wherever node.json is.
func (f files) readPart(name string) ([]byte, error) {
	b, err := f.read(name, maxFile)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, f.damaged(name, errors.New("it is missing"))
	}
	return b, f.judge(name, err)
}

var errNewer = errors.New("was written by a newer meshd; upgrade this node")

// parseNode reads node.json.
func parseNode(b []byte) (Node, error) {
	var version struct{ Version int }
	if err := json.Unmarshal(b, &version); err != nil {
		return Node{}, err
	}
	if version.Version > nodeVersion {
		return Node{}, errNewer
	}
	if version.Version < 1 {
		return Node{}, fmt.Errorf("it is of version %d", version.Version)
	}
	var j nodeJSON
	if err := json.Unmarshal(b, &j); err != nil {
		return Node{}, err
	}
	root, err := cert.ParseFingerprint(j.Root)
	if err != nil {
		return Node{}, err
	}
	n := Node{j.Version, j.ID, j.Name, j.Site, j.Network, root, j.Hubs, j.Advertise, j.Hub}
	return n, n.check()
}

// check reports what is wrong with a node.
func (n Node) check() error {
	for _, label := range []struct{ what, name string }{{"node", n.Name}, {"site", n.Site}, {"network", n.Network}} {
		if err := cert.ValidLabel(label.name); err != nil {
			return fmt.Errorf("%s name: %w", label.what, err)
		}
	}
	if n.ID.IsZero() {
		return errors.New("it names no key")
	}
	if len(n.Hubs) > maxHubs {
		return fmt.Errorf("%d hubs are more than %d", len(n.Hubs), maxHubs)
	}
	for _, h := range n.Hubs {
		if err := checkHostPort(h); err != nil {
			return err
		}
	}
	if n.Advertise != "" {
		return checkHostPort(n.Advertise)
	}
	return nil
}

// checkHostPort is lenient: the flag or the token has been looked at before.
func checkHostPort(s string) error {
	host, port, err := net.SplitHostPort(s)
	if err != nil || host == "" || port == "" || len(s) > maxHostPort || strings.ContainsFunc(s, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return fmt.Errorf("%.80q is not HOST:PORT", s)
	}
	return nil
}
