package cert

import (
	"bytes"
	"crypto/ed25519"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/meshmpi/meshmpi/mesh/peer"
)

// Issuer is what lets a hub admit nodes: an intermediate that the root signed.
type Issuer struct {
	Cert    *x509.Certificate
	Key     ed25519.PrivateKey
	RootDER []byte
}

// Network returns the facts of the network that the issuer belongs to.
func (i *Issuer) Network() (peer.Network, error) { return NetworkOf(i.RootDER) }

// Issue makes a chain for n: a leaf that holds for Lifetime or as long as the
// issuer does, the issuer and the root. n's NotBefore and NotAfter are ignored.
// The caller has made sure that name, addresses and key are n's alone.
func (i *Issuer) Issue(n peer.Node, now time.Time) (chain [][]byte, err error) {
	fail := func(err error) ([][]byte, error) {
		return nil, fmt.Errorf("cert: issue to %s: %w", quote(n.Name), err)
	}
	network, err := i.Network()
	if err != nil {
		return fail(err)
	}
	if err := checkNode(n, network); err != nil {
		return fail(err)
	}
	if err := checkTime("the certificate of this hub's issuer", resign, i.Cert, now); err != nil {
		return nil, err
	}
	says, err := extension(oidNode(), nodeExt{extVersion, n.ID[:], n.Site, int(n.Roles)})
	if err != nil {
		return fail(err)
	}
	leaf, err := create(&x509.Certificate{
		Subject:               pkix.Name{CommonName: n.Name},
		NotBefore:             later(now.Add(-Backdate), i.Cert.NotBefore),
		NotAfter:              earlier(now.Add(Lifetime), i.Cert.NotAfter),
		KeyUsage:              x509.KeyUsageDigitalSignature,
		ExtKeyUsage:           []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth},
		BasicConstraintsValid: true,
		DNSNames:              names(n, network.Domain),
		IPAddresses:           []net.IP{n.Addr4.AsSlice(), n.Addr6.AsSlice()},
		ExtraExtensions:       []pkix.Extension{says},
	}, i.Cert, n.SignKey, i.Key)
	if err != nil {
		return fail(err)
	}
	chain = [][]byte{leaf.Raw, i.Cert.Raw, i.RootDER}
	if _, err := Verify(chain, network.Root, now); err != nil {
		return nil, err // the issuer itself is not what the root signed
	}
	return chain, nil
}

// MarshalPEM returns the contents of the two files that hold an issuer: its
// certificate with the root's behind it, and its key.
func (i *Issuer) MarshalPEM() (crt, key []byte, err error) {
	if key, err = marshalKey(i.Key); err != nil {
		return nil, nil, fmt.Errorf("cert: write issuer: %w", err)
	}
	return EncodePEM([][]byte{i.Cert.Raw, i.RootDER}), key, nil
}

// ParseIssuer reads what MarshalPEM wrote and checks that the key is the
// certificate's, else the error is ErrKey, and that the root signed it. It does not look
// at the clock.
func ParseIssuer(crt, key []byte) (*Issuer, error) {
	blocks, err := parseBlocks(crt, pemCertificate, 2)
	if err != nil {
		return nil, fmt.Errorf("cert: read issuer: %w", err)
	}
	if len(blocks) != 2 {
		return nil, errors.New("cert: read issuer: want its certificate and the root's")
	}
	i := &Issuer{RootDER: blocks[1]}
	if i.Cert, err = parseIssuerCert(blocks, FingerprintOf(blocks[1])); err != nil {
		return nil, err
	}
	if i.Key, err = parseKey(key); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrKey, err)
	}
	if !bytes.Equal(publicOf(i.Key), i.Cert.PublicKey.(ed25519.PublicKey)) {
		return nil, fmt.Errorf("%w: it is another certificate's key", ErrKey)
	}
	return i, nil
}

// parseIssuerCert returns the first of chain (issuer, root) once the pinned root
// is found to have signed it. It does not look at the clock.
func parseIssuerCert(chain [][]byte, root peer.Fingerprint) (*x509.Certificate, error) {
	if len(chain) != 2 {
		return nil, untrusted("an issuer comes with its root alone, not in a chain of %d", len(chain))
	}
	certs, _, err := parseChain(chain, root)
	if err != nil {
		return nil, err
	}
	c, top := certs[0], certs[1]
	if !c.IsCA || c.KeyUsage&x509.KeyUsageCertSign == 0 {
		return nil, untrusted("%s is no issuer", quote(c.Subject.CommonName))
	}
	pool := x509.NewCertPool()
	pool.AddCert(top)
	_, err = c.Verify(x509.VerifyOptions{Roots: pool, CurrentTime: c.NotAfter, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny}})
	if err != nil {
		return nil, untrusted("issuer %s: %v", quote(c.Subject.CommonName), err)
	}
	return c, nil
}
