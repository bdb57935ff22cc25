package cert

import (
	"crypto/ed25519"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/meshmpi/meshmpi/mesh/peer"
)

// MaxRevocation bounds a revocation in JSON, in bytes.
const MaxRevocation = 24 << 10

// maxAhead is how far a revocation may lie in the future of a clock here. It is
// wide, since a revocation put off is worse than one from a wrong clock.
const maxAhead = 24 * time.Hour

// Revocation is the signed statement of an issuer that a node's keys are no
// longer good. It never ends; see Moot.
type Revocation struct {
	ID    peer.ID   `json:"id"`
	Name  string    `json:"name"`  // the node's, for people
	At    time.Time `json:"at"`    // UTC, whole seconds
	Chain [][]byte  `json:"chain"` // DER: the signing issuer's certificate, the root's
	Sig   []byte    `json:"sig"`   // Ed25519 by the issuer's key
}

// Revoke states that n's keys are no longer good.
func (i *Issuer) Revoke(n peer.Node, at time.Time) (Revocation, error) {
	r := Revocation{ID: n.ID, Name: n.Name, At: at.UTC().Truncate(time.Second), Chain: [][]byte{i.Cert.Raw, i.RootDER}}
	if len(i.Key) != ed25519.PrivateKeySize {
		return Revocation{}, fmt.Errorf("cert: revoke %s: this hub's issuer has no key", quote(n.Name))
	}
	r.Sig = ed25519.Sign(i.Key, r.signed())
	if err := r.Verify(FingerprintOf(i.RootDER), at); err != nil {
		return Revocation{}, err
	}
	return r, nil
}

// signed returns the bytes that Sig covers: a label that keeps these signatures
// apart from others of the same key, then
//
//	root fingerprint 32, ID 32, Unix seconds 8 (big-endian), name
func (r Revocation) signed() []byte {
	b := []byte("meshmpi revocation 1\x00")
	if len(r.Chain) > 0 {
		root := FingerprintOf(r.Chain[len(r.Chain)-1])
		b = append(b, root[:]...)
	}
	b = append(b, r.ID[:]...)
	b = binary.BigEndian.AppendUint64(b, uint64(r.At.Unix()))
	return append(b, r.Name...)
}

// Verify decides whether to believe r. Its issuer must have held at r.At, not
// now: a revocation outlives the certificate of the hub that made it. An r.At
// more than a day after now is ErrNotYetValid; everything else ErrUntrusted.
func (r Revocation) Verify(root peer.Fingerprint, now time.Time) error {
	if err := r.check(); err != nil {
		return untrusted("revocation: %v", err)
	}
	issuer, err := parseIssuerCert(r.Chain, root)
	if err != nil {
		return err
	}
	switch {
	case !ed25519.Verify(issuer.PublicKey.(ed25519.PublicKey), r.signed(), r.Sig):
		return untrusted("revocation of node %s: its signature is wrong", r.Name)
	case r.At.Before(issuer.NotBefore) || r.At.After(issuer.NotAfter):
		return untrusted("revocation of node %s: its issuer %s did not hold on %s", r.Name, quote(issuer.Subject.CommonName), day(r.At))
	case r.At.After(now.Add(maxAhead)):
		return &reason{ErrNotYetValid, fmt.Sprintf("cert: revocation of node %s is of %s and the clock here says %s; check the clock of this node and of its hub", r.Name, day(r.At), day(now))}
	}
	return nil
}

// Moot reports whether every certificate issued before r has surely expired, so
// that whoever issues none to a revoked key may forget r.
func (r Revocation) Moot(now time.Time) bool { return now.After(r.At.Add(Lifetime + maxAhead)) }

// check reports what is wrong with r's shape.
func (r Revocation) check() error {
	if err := ValidLabel(r.Name); err != nil {
		return err
	}
	if len(r.Chain) != 2 || len(r.Chain[0]) > MaxDER || len(r.Chain[1]) > MaxDER {
		return errors.New("its chain is not an issuer's")
	}
	year := r.At.UTC().Year()
	switch {
	case r.ID.IsZero():
		return errors.New("it names no key")
	case len(r.Sig) != ed25519.SignatureSize:
		return errors.New("its signature has the wrong length")
	case r.At.Nanosecond() != 0 || year < 1970 || year > 9999:
		return errors.New("its time is not a whole second of this age")
	}
	return nil
}

// UnmarshalJSON reads a revocation of at most MaxRevocation bytes and checks its
// shape, not its signature.
func (r *Revocation) UnmarshalJSON(b []byte) error {
	if len(b) > MaxRevocation {
		return fmt.Errorf("cert: a revocation of %d bytes is longer than %d", len(b), MaxRevocation)
	}
	type plain Revocation
	var p plain
	if err := json.Unmarshal(b, &p); err != nil {
		return fmt.Errorf("cert: read revocation: %w", err)
	}
	p.At = p.At.UTC()
	if err := Revocation(p).check(); err != nil {
		return fmt.Errorf("cert: read revocation: %w", err)
	}
	*r = Revocation(p)
	return nil
}
