package cert

import (
	"bytes"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"

	"github.com/meshmpi/meshmpi/mesh/peer"
)

// Root is a network's root of trust.
type Root struct {
	Cert *x509.Certificate
	Key  ed25519.PrivateKey // nil when taken offline
}

// NewRoot makes the root of a new network. It holds n's facts in an extension;
// n.Root is ignored, since the fingerprint comes of this.
func NewRoot(n peer.Network, now time.Time) (*Root, error) {
	if err := checkNetwork(n); err != nil {
		return nil, fmt.Errorf("cert: make root of %s: %w", quote(n.Name), err)
	}
	facts, err := extension(oidNetwork(), networkExt{
		extVersion, n.Name, n.Domain, encodePrefix(n.CIDR4), encodePrefix(n.CIDR6), n.AllowRootExec,
	})
	if err != nil {
		return nil, fmt.Errorf("cert: make root of %s: %w", n.Name, err)
	}
	pub, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("cert: make root of %s: %w", n.Name, err)
	}
	template := &x509.Certificate{
		Subject:               pkix.Name{CommonName: n.Name + " root"},
		NotBefore:             now.Add(-Backdate),
		NotAfter:              now.Add(RootLifetime),
		KeyUsage:              x509.KeyUsageCertSign,
		BasicConstraintsValid: true,
		IsCA:                  true,
		MaxPathLen:            1,
		ExtraExtensions:       []pkix.Extension{facts},
	}
	c, err := create(template, template, pub, key)
	if err != nil {
		return nil, fmt.Errorf("cert: make root of %s: %w", n.Name, err)
	}
	return &Root{c, key}, nil
}

// Fingerprint returns what tokens pin.
func (r *Root) Fingerprint() peer.Fingerprint { return FingerprintOf(r.Cert.Raw) }

// NewIssuer makes a hub's issuer, key and all. Where the hub is another machine
// than the one with the root, the hub makes the key and Certify signs it.
func (r *Root) NewIssuer(hub string, now time.Time) (*Issuer, error) {
	pub, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("cert: make issuer of %s: %w", quote(hub), err)
	}
	c, err := r.Certify(hub, pub, now)
	if err != nil {
		return nil, err
	}
	return &Issuer{c, key, r.Cert.Raw}, nil
}

// Certify signs an issuer's certificate for a hub whose issuer key is pub. The
// certificate is bound to the network's domain and addresses by critical name
// constraints (RFC 5280 §4.2.1.10) and can sign leaves only.
func (r *Root) Certify(hub string, pub ed25519.PublicKey, now time.Time) (*x509.Certificate, error) {
	if err := ValidLabel(hub); err != nil {
		return nil, fmt.Errorf("cert: make issuer: %w", err)
	}
	n, err := networkOf(r.Cert)
	switch {
	case err != nil:
		return nil, err
	case r.Key == nil:
		return nil, fmt.Errorf("cert: make issuer of %s: the key of network %s's root is offline; bring it back to this node for the while", hub, n.Name)
	case len(pub) != ed25519.PublicKeySize:
		return nil, fmt.Errorf("cert: make issuer of %s: its key is no Ed25519 key", hub)
	case now.After(r.Cert.NotAfter):
		return nil, &reason{ErrExpired, fmt.Sprintf("cert: make issuer of %s: the root of network %s expired on %s; check this node's clock", hub, n.Name, day(r.Cert.NotAfter))}
	}
	c, err := create(&x509.Certificate{
		Subject:                     pkix.Name{CommonName: hub + " issuer"},
		NotBefore:                   later(now.Add(-Backdate), r.Cert.NotBefore),
		NotAfter:                    earlier(now.Add(IssuerLifetime), r.Cert.NotAfter),
		KeyUsage:                    x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
		BasicConstraintsValid:       true,
		IsCA:                        true,
		MaxPathLenZero:              true,
		PermittedDNSDomainsCritical: true,
		PermittedDNSDomains:         []string{n.Domain},
		PermittedIPRanges:           []*net.IPNet{ipNet(n.CIDR4), ipNet(n.CIDR6)},
	}, r.Cert, pub, r.Key)
	if err != nil {
		return nil, fmt.Errorf("cert: make issuer of %s: %w", hub, err)
	}
	return c, nil
}

// MarshalPEM returns the contents of the two files that hold a root. The second
// is nil when the key is offline.
func (r *Root) MarshalPEM() (crt, key []byte, err error) {
	if r.Key != nil {
		if key, err = marshalKey(r.Key); err != nil {
			return nil, nil, fmt.Errorf("cert: write root: %w", err)
		}
	}
	return EncodePEM([][]byte{r.Cert.Raw}), key, nil
}

// ParseRoot reads what MarshalPEM wrote; an empty key means that it is offline.
func ParseRoot(crt, key []byte) (*Root, error) {
	blocks, err := parseBlocks(crt, pemCertificate, 1)
	if err != nil {
		return nil, fmt.Errorf("cert: read root: %w", err)
	}
	c, err := parse(blocks[0])
	if err != nil {
		return nil, fmt.Errorf("cert: read root: %w", err)
	}
	if _, err := networkOf(c); err != nil {
		return nil, err
	}
	r := &Root{Cert: c}
	if len(key) == 0 {
		return r, nil
	}
	if r.Key, err = parseKey(key); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrKey, err)
	}
	if !bytes.Equal(publicOf(r.Key), c.PublicKey.(ed25519.PublicKey)) {
		return nil, fmt.Errorf("%w: it is another certificate's key", ErrKey)
	}
	return r, nil
}

// NetworkOf reads the network's facts from its root, whose fingerprint it fills
// in. It does not decide whether to trust that root: the fingerprint does.
func NetworkOf(rootDER []byte) (peer.Network, error) {
	c, err := parse(rootDER)
	if err != nil {
		return peer.Network{}, fmt.Errorf("cert: read root: %w", err)
	}
	return networkOf(c)
}

func networkOf(c *x509.Certificate) (peer.Network, error) {
	var ext networkExt
	err := readExtension(c, oidNetwork(), &ext)
	if err == nil && ext.Version != extVersion {
		err = fmt.Errorf("it is of version %d; upgrade this node", ext.Version)
	}
	if err == nil && !c.IsCA {
		err = errors.New("it is no authority")
	}
	if err != nil {
		return peer.Network{}, untrusted("read root: %v", err)
	}
	n := peer.Network{Name: ext.Name, Domain: ext.Domain, AllowRootExec: ext.AllowRootExec, Root: FingerprintOf(c.Raw)}
	if n.CIDR4, err = decodePrefix(ext.CIDR4); err == nil {
		n.CIDR6, err = decodePrefix(ext.CIDR6)
	}
	if err == nil {
		err = checkNetwork(n)
	}
	if err != nil {
		return peer.Network{}, untrusted("read root: %v", err)
	}
	return n, nil
}

// create signs a certificate and reads it back, bounds checked.
func create(template, parent *x509.Certificate, pub ed25519.PublicKey, key ed25519.PrivateKey) (*x509.Certificate, error) {
	der, err := x509.CreateCertificate(rand.Reader, template, parent, pub, key)
	if err != nil {
		return nil, err
	}
	return parse(der)
}

// parse reads one certificate, which must have an Ed25519 key.
func parse(der []byte) (*x509.Certificate, error) {
	if len(der) > MaxDER {
		return nil, fmt.Errorf("a certificate of %d bytes is longer than %d", len(der), MaxDER)
	}
	c, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, err
	}
	if _, ok := c.PublicKey.(ed25519.PublicKey); !ok {
		return nil, errors.New("a certificate's key is not Ed25519")
	}
	return c, nil
}

func ipNet(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}

func day(t time.Time) string { return t.UTC().Format("2006-01-02 15:04 UTC") }

func later(a, b time.Time) time.Time {
	if a.Before(b) {
		return b
	}
	return a
}

func earlier(a, b time.Time) time.Time {
	if a.After(b) {
		return b
	}
	return a
}
