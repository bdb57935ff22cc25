package exec

import (
	"bytes"
	"crypto/ed25519"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"time"

	"github.com/meshmpi/meshmpi/internal/oneline"
)

// maxConfig bounds the configuration of a session, in bytes.
const maxConfig = maxPolicy + 16<<10

// reportFD is where a session tells its parent, in lines, what became of it.
const reportFD = 5

// sessionConfig is what Serve tells a session on file descriptor 4.
type sessionConfig struct {
	Seed     []byte         `json:"seed"`     // of the host's Ed25519 key
	SignKey  []byte         `json:"sign_key"` // the caller node's Ed25519 public key
	Caller   Caller         `json:"caller"`   // User is empty
	Source   netip.AddrPort `json:"source"`   // of the connection
	Dest     netip.AddrPort `json:"dest"`
	Policy   Policy         `json:"policy"`
	StateDir string         `json:"state_dir"`
	Node     string         `json:"node"` // ours
	Site     string         `json:"site"`
	BinDir   string         `json:"bin_dir"` // where our binaries are
	Silence  time.Duration  `json:"silence"` // ns without an acknowledgement that end a session
	Report   bool           `json:"report"`  // reportFD is open
}

func (c sessionConfig) check() error {
	switch {
	case len(c.Seed) != ed25519.SeedSize:
		return fmt.Errorf("exec: session: host key seed has %d bytes", len(c.Seed))
	case len(c.SignKey) != ed25519.PublicKeySize:
		return fmt.Errorf("exec: session: node %.70q has a signing key of %d bytes", c.Caller.Node, len(c.SignKey))
	case c.StateDir == "":
		return errors.New("exec: session: no state directory")
	case c.Silence < 0:
		return errors.New("exec: session: negative silence")
	}
	return oneline.Join(checkName("node", c.Caller.Node), checkName("node", c.Node), c.Policy.check())
}

func parseConfig(raw []byte) (sessionConfig, error) {
	var c sessionConfig
	if len(raw) > maxConfig {
		return c, fmt.Errorf("exec: session: configuration is longer than %d bytes", maxConfig)
	}
	if err := unmarshalStrict(raw, &c); err != nil {
		return sessionConfig{}, fmt.Errorf("exec: session: configuration: %w", err)
	}
	if err := c.check(); err != nil {
		return sessionConfig{}, err
	}
	return c, nil
}

// unmarshalStrict refuses unknown fields and anything after the value.
func unmarshalStrict(raw []byte, to any) error {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.DisallowUnknownFields()
	if err := d.Decode(to); err != nil {
		return err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return errors.New("data after the value")
	}
	return nil
}
