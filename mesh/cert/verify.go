package cert

import (
	"crypto/ed25519"
	"crypto/x509"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/meshmpi/meshmpi/mesh/peer"
)

// Verify decides whether to believe a chain (leaf, issuer, root) now, and
// returns what the leaf says. The root must be the pinned one; signatures, name
// constraints and validity must hold; the leaf's names, addresses and extension
// must agree with each other and with the network. Errors wrap ErrUntrusted,
// ErrExpired or ErrNotYetValid.
func Verify(chain [][]byte, root peer.Fingerprint, now time.Time) (peer.Node, error) {
	n, certs, err := inspect(chain, root)
	if err != nil {
		return peer.Node{}, err
	}
	if err := checkTime("node "+n.Name+"'s certificate", "join again with a new token", certs[0], now); err != nil {
		return peer.Node{}, err
	}
	for _, c := range certs[1:] {
		if err := checkTime("the certificate of "+quote(c.Subject.CommonName)+" behind node "+n.Name, resign, c, now); err != nil {
			return peer.Node{}, err
		}
	}
	return n, nil
}

// Inspect is Verify without a clock: a node uses it to learn who it is itself
// when its certificate has expired, and to name the owner of one that has.
func Inspect(chain [][]byte, root peer.Fingerprint) (peer.Node, error) {
	n, _, err := inspect(chain, root)
	return n, err
}

func inspect(chain [][]byte, root peer.Fingerprint) (peer.Node, []*x509.Certificate, error) {
	fail := func(err error) (peer.Node, []*x509.Certificate, error) { return peer.Node{}, nil, err }
	if len(chain) != 3 {
		return fail(untrusted("a node's chain is leaf, issuer and root, not %d certificates", len(chain)))
	}
	certs, network, err := parseChain(chain, root)
	if err != nil {
		return fail(err)
	}
	leaf, roots, middle := certs[0], x509.NewCertPool(), x509.NewCertPool()
	middle.AddCert(certs[1])
	roots.AddCert(certs[2])
	// At its own last instant a leaf that outlives its issuer shows.
	_, err = leaf.Verify(x509.VerifyOptions{
		Roots: roots, Intermediates: middle, CurrentTime: leaf.NotAfter,
		KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth},
	})
	if err != nil {
		return fail(untrusted("certificate of %s: %v", quote(leaf.Subject.CommonName), err))
	}
	n, err := nodeOf(leaf, network)
	if err != nil {
		return fail(untrusted("certificate of %s: %v", quote(leaf.Subject.CommonName), err))
	}
	return n, certs, nil
}

// parseChain reads a chain and its network, whose root must be the pinned one.
func parseChain(chain [][]byte, root peer.Fingerprint) ([]*x509.Certificate, peer.Network, error) {
	if len(chain) == 0 || len(chain) > MaxChain {
		return nil, peer.Network{}, untrusted("a chain of %d certificates is not within 1 to %d", len(chain), MaxChain)
	}
	if got := FingerprintOf(chain[len(chain)-1]); got != root {
		return nil, peer.Network{}, untrusted("the certificate is of another network (root %.8x…, ours is %.8x…); check the address and the token", got[:], root[:])
	}
	certs := make([]*x509.Certificate, len(chain))
	for i, der := range chain {
		c, err := parse(der)
		if err != nil {
			return nil, peer.Network{}, untrusted("%v", err)
		}
		certs[i] = c
	}
	network, err := networkOf(certs[len(certs)-1])
	return certs, network, err
}

// nodeOf reads a leaf whose signature is good.
func nodeOf(leaf *x509.Certificate, network peer.Network) (peer.Node, error) {
	var ext nodeExt
	if err := readExtension(leaf, oidNode(), &ext); err != nil {
		return peer.Node{}, err
	}
	n := peer.Node{
		Name: leaf.Subject.CommonName, Site: ext.Site, Roles: peer.Role(ext.Roles),
		SignKey: leaf.PublicKey.(ed25519.PublicKey), NotBefore: leaf.NotBefore, NotAfter: leaf.NotAfter,
	}
	switch {
	case ext.Version != extVersion:
		return peer.Node{}, fmt.Errorf("it is of version %d; upgrade this node", ext.Version)
	case len(ext.WGKey) != len(n.ID) || ext.Roles != int(n.Roles):
		return peer.Node{}, fmt.Errorf("its WireGuard key or its roles are malformed")
	case len(leaf.IPAddresses) != 2 || len(leaf.EmailAddresses) != 0 || len(leaf.URIs) != 0:
		return peer.Node{}, fmt.Errorf("it names other things than two DNS names and two addresses")
	case leaf.IsCA || leaf.KeyUsage != x509.KeyUsageDigitalSignature || len(leaf.ExtKeyUsage) != 2:
		return peer.Node{}, fmt.Errorf("it allows its key other uses than a node's")
	case leaf.NotAfter.Sub(leaf.NotBefore) > Lifetime+Backdate:
		return peer.Node{}, fmt.Errorf("it would hold longer than %d days", Lifetime/(24*time.Hour))
	}
	copy(n.ID[:], ext.WGKey)
	n.Addr4, _ = netip.AddrFromSlice(leaf.IPAddresses[0])
	n.Addr6, _ = netip.AddrFromSlice(leaf.IPAddresses[1])
	if err := checkNode(n, network); err != nil {
		return peer.Node{}, err
	}
	if want := names(n, network.Domain); !slices.Equal(leaf.DNSNames, want) {
		return peer.Node{}, fmt.Errorf("its DNS names are not %q", want)
	}
	return n, nil
}

// resign is what helps where an issuer has expired.
const resign = "run meshd resign on the hub, with the key of the network's root"

// checkTime reports in a line for the user that a certificate does not hold now.
func checkTime(what, remedy string, c *x509.Certificate, now time.Time) error {
	switch {
	case now.After(c.NotAfter):
		return &reason{ErrExpired, fmt.Sprintf("cert: %s expired on %s and the clock here says %s; check the clock of both nodes, or %s",
			what, day(c.NotAfter), day(now), remedy)}
	case now.Before(c.NotBefore):
		return &reason{ErrNotYetValid, fmt.Sprintf("cert: %s holds from %s on and the clock here says %s; set this node's clock, or its hub's",
			what, day(c.NotBefore), day(now))}
	}
	return nil
}
