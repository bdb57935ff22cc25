// Package cert makes and checks the certificates that admit nodes to a network.
//
// A network has one root. Each hub holds an issuer, an intermediate that the
// root signed and that is constrained to the network's names and addresses. An
// issuer gives every node a leaf that binds its WireGuard key, its Ed25519 key,
// its names, site, roles and virtual addresses for Lifetime. A chain is always
// leaf, issuer, root, in DER. It exists so that nodes believe certificates
// rather than hubs: whoever knows the root's fingerprint can check a chain with
// every hub down.
//
// The root also carries the network's facts, so that pinning its fingerprint
// (as every token does) pins them too.
//
// It keeps no files, talks to nobody but through the TLS configurations that it
// returns, and remembers no revocations: internal/state, mesh/hub and mesh do.
package cert

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"time"

	"github.com/meshmpi/meshmpi/mesh/peer"
)

// How long certificates live. A leaf is renewed at half its life.
const (
	Lifetime       = 30 * 24 * time.Hour
	IssuerLifetime = 5 * 365 * 24 * time.Hour
	RootLifetime   = 20 * 365 * 24 * time.Hour

	// Backdate is how far before its making a certificate begins to hold, for
	// nodes whose clocks are a little behind.
	Backdate = 5 * time.Minute
)

// Bounds on what is decoded.
const (
	MaxChain = 4       // certificates in a chain; one that verifies has three
	MaxDER   = 8 << 10 // bytes of one certificate
	maxPEM   = MaxChain * 2 * MaxDER
)

// What can be wrong with a chain. The errors that wrap these read as one line
// that names the node and the remedy.
var (
	ErrExpired     = errors.New("certificate expired")
	ErrNotYetValid = errors.New("certificate not yet valid")
	ErrUntrusted   = errors.New("certificate not trusted")
)

// reason is an error whose text stands alone and whose kind is a sentinel.
type reason struct {
	kind error
	text string
}

func (r *reason) Error() string { return r.text }
func (r *reason) Unwrap() error { return r.kind }

func untrusted(format string, args ...any) error {
	return &reason{ErrUntrusted, "cert: " + fmt.Sprintf(format, args...)}
}

// FingerprintOf returns the fingerprint of a certificate in DER form.
func FingerprintOf(der []byte) peer.Fingerprint { return sha256.Sum256(der) }

// FormatFingerprint returns f in lowercase hexadecimal.
func FormatFingerprint(f peer.Fingerprint) string { return hex.EncodeToString(f[:]) }

// ParseFingerprint reads what FormatFingerprint wrote.
func ParseFingerprint(s string) (f peer.Fingerprint, err error) {
	if len(s) != hex.EncodedLen(len(f)) {
		return f, fmt.Errorf("cert: a fingerprint has %d hexadecimal digits, not %d", hex.EncodedLen(len(f)), len(s))
	}
	if _, err := hex.Decode(f[:], []byte(s)); err != nil {
		return peer.Fingerprint{}, fmt.Errorf("cert: fingerprint: %w", err)
	}
	return f, nil
}

const pemCertificate = "CERTIFICATE"

// EncodePEM writes a chain as PEM blocks, in its order.
func EncodePEM(chain [][]byte) []byte {
	var out bytes.Buffer
	for _, der := range chain {
		out.Write(pem.EncodeToMemory(&pem.Block{Type: pemCertificate, Bytes: der}))
	}
	return out.Bytes()
}

// ParsePEM reads what EncodePEM wrote: one to MaxChain certificates of at most
// MaxDER bytes and nothing but white space besides. It does not look into them.
func ParsePEM(b []byte) ([][]byte, error) {
	blocks, err := parseBlocks(b, pemCertificate, MaxChain)
	if err != nil {
		return nil, fmt.Errorf("cert: read chain: %w", err)
	}
	return blocks, nil
}

// parseBlocks returns the contents of 1 to most PEM blocks of one type.
func parseBlocks(b []byte, kind string, most int) ([][]byte, error) {
	if len(b) > maxPEM {
		return nil, fmt.Errorf("%d bytes of PEM are more than the limit of %d", len(b), maxPEM)
	}
	var out [][]byte
	for b = bytes.TrimSpace(b); len(b) > 0; b = bytes.TrimSpace(b) {
		block, rest := pem.Decode(b)
		switch {
		case block == nil || !bytes.HasPrefix(b, []byte("-----BEGIN ")):
			return nil, errors.New("there is something that is not PEM")
		case block.Type != kind || len(block.Headers) != 0:
			return nil, fmt.Errorf("there is a PEM block that is no plain %s", kind)
		case len(block.Bytes) == 0 || len(block.Bytes) > MaxDER:
			return nil, fmt.Errorf("a PEM block of %d bytes is not within 1 to %d", len(block.Bytes), MaxDER)
		case len(out) == most:
			return nil, fmt.Errorf("there are more than %d PEM blocks", most)
		}
		out = append(out, block.Bytes)
		b = rest
	}
	if len(out) == 0 {
		return nil, errors.New("there is no PEM block")
	}
	return out, nil
}
