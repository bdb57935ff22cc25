package cert

import (
	"bytes"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"errors"
	"fmt"
	"net/netip"

	"github.com/meshmpi/meshmpi/mesh/peer"
)

// extVersion opens meshmpi's two certificate extensions. Their identifiers lie
// below iso.org.dod.internet.experimental. Both are marked not critical, so that
// other tools can check our chains. In ASN.1 (DER, ITU-T X.690):
//
//	id-meshmpi          ::= { 1 3 6 1 3 28019 }
//
//	id-meshmpi-network  ::= { id-meshmpi 1 }  -- in the root
//	Network ::= SEQUENCE {
//	    version        INTEGER,          -- 1
//	    name           IA5String,        -- a label
//	    domain         IA5String,        -- labels joined by dots
//	    cidr4          OCTET STRING,     -- 4 address bytes, 1 of prefix length
//	    cidr6          OCTET STRING,     -- 16 address bytes, 1 of prefix length
//	    allowRootExec  BOOLEAN }
//
//	id-meshmpi-node     ::= { id-meshmpi 2 }  -- in a leaf
//	Node ::= SEQUENCE {
//	    version        INTEGER,          -- 1
//	    wgKey          OCTET STRING,     -- 32 bytes
//	    site           IA5String,        -- a label
//	    roles          INTEGER }         -- 1 hub, 2 relay, or their sum
const extVersion = 1

func oidNetwork() asn1.ObjectIdentifier { return asn1.ObjectIdentifier{1, 3, 6, 1, 3, 28019, 1} }
func oidNode() asn1.ObjectIdentifier    { return asn1.ObjectIdentifier{1, 3, 6, 1, 3, 28019, 2} }

type networkExt struct {
	Version       int
	Name          string `asn1:"ia5"`
	Domain        string `asn1:"ia5"`
	CIDR4         []byte
	CIDR6         []byte
	AllowRootExec bool
}

type nodeExt struct {
	Version int
	WGKey   []byte
	Site    string `asn1:"ia5"`
	Roles   int
}

// extension encodes v as an extension that is not critical.
func extension(id asn1.ObjectIdentifier, v any) (pkix.Extension, error) {
	der, err := asn1.Marshal(v)
	return pkix.Extension{Id: id, Value: der}, err
}

// readExtension decodes the extension id of c into v, which points to T. Only
// the one DER form of a value is taken.
func readExtension[T any](c *x509.Certificate, id asn1.ObjectIdentifier, v *T) error {
	for _, e := range c.Extensions {
		if !e.Id.Equal(id) {
			continue
		}
		if rest, err := asn1.Unmarshal(e.Value, v); err != nil || len(rest) != 0 {
			return errors.New("its meshmpi extension is malformed or of a newer version; upgrade this node")
		}
		if again, err := asn1.Marshal(*v); err != nil || !bytes.Equal(again, e.Value) {
			return errors.New("its meshmpi extension is not in DER form")
		}
		return nil
	}
	return errors.New("it lacks the meshmpi extension")
}

func encodePrefix(p netip.Prefix) []byte { return append(p.Addr().AsSlice(), byte(p.Bits())) }

func decodePrefix(b []byte) (netip.Prefix, error) {
	if len(b) == 0 {
		return netip.Prefix{}, errors.New("empty address range")
	}
	addr, ok := netip.AddrFromSlice(b[:len(b)-1])
	if !ok {
		return netip.Prefix{}, fmt.Errorf("an address range of %d bytes", len(b))
	}
	return netip.PrefixFrom(addr, int(b[len(b)-1])), nil
}

// checkNetwork reports what is wrong with a network's facts.
func checkNetwork(n peer.Network) error {
	if err := ValidLabel(n.Name); err != nil {
		return fmt.Errorf("network name: %w", err)
	}
	if err := ValidDomain(n.Domain); err != nil {
		return err
	}
	four, six := n.CIDR4, n.CIDR6
	switch {
	case !four.IsValid() || !four.Addr().Is4() || four != four.Masked() || four.Bits() < 8 || four.Bits() > 30:
		return fmt.Errorf("%v is no IPv4 range: want a prefix of 8 to 30 bits with no address bits below it, such as 100.80.0.0/16", four)
	case four.Addr().IsMulticast(), four.Addr().IsLoopback(), four.Addr().IsLinkLocalUnicast(), four.Addr().As4()[0] == 0, four.Addr().As4()[0] >= 224:
		return fmt.Errorf("%v is reserved; choose a private range such as 100.80.0.0/16", four)
	case !six.IsValid() || !six.Addr().Is6() || six.Addr().Is4In6() || six.Addr().Zone() != "" || six != six.Masked() || six.Bits() != 64 || six.Addr().As16()[0] != 0xfd:
		return fmt.Errorf("%v is no unique local IPv6 range: want a /64 below fd00::/8", six)
	}
	return nil
}

// checkNode reports what is wrong with what a certificate would say of a node.
func checkNode(n peer.Node, net peer.Network) error {
	if err := ValidLabel(n.Name); err != nil {
		return fmt.Errorf("node name: %w", err)
	}
	if err := ValidLabel(n.Site); err != nil {
		return fmt.Errorf("site name: %w", err)
	}
	switch {
	case n.ID.IsZero():
		return fmt.Errorf("node %s has no WireGuard key", n.Name)
	case len(n.SignKey) != 32:
		return fmt.Errorf("node %s has no Ed25519 key", n.Name)
	case !n.Addr4.Is4() || !usable(n.Addr4, net.CIDR4):
		return fmt.Errorf("node %s: address %v is not one of %v", n.Name, n.Addr4, net.CIDR4)
	case !n.Addr6.Is6() || !usable(n.Addr6, net.CIDR6):
		return fmt.Errorf("node %s: address %v is not one of %v", n.Name, n.Addr6, net.CIDR6)
	}
	return nil
}

// usable reports whether a node can have the address a of p: not the network's
// own, and for IPv4 not the broadcast address.
func usable(a netip.Addr, p netip.Prefix) bool {
	if !p.Contains(a) || a == p.Masked().Addr() || a.Zone() != "" {
		return false
	}
	return a.Is6() || p.Contains(a.Next())
}

// names returns the DNS names of a node.
func names(n peer.Node, domain string) []string {
	return []string{n.Name + "." + domain, n.Name + "." + n.Site + "." + domain}
}
