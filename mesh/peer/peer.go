// Package peer holds the nouns that every room of meshmpi shares: who a node
// is, what a network is, how packets can reach a peer, and the contracts
// between the rooms that find paths, carry packets and pass messages.
//
// It exists so that those rooms need not import each other. It holds no
// behaviour beyond formatting and imports the standard library only.
package peer

import (
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"net/netip"
	"time"
)

// ID names a node: it is the node's WireGuard (Curve25519) public key.
type ID [32]byte

// String returns the key in WireGuard's own base64 notation.
func (id ID) String() string { return base64.StdEncoding.EncodeToString(id[:]) }

// IsZero reports whether id is the zero value, which names nobody.
func (id ID) IsZero() bool { return id == ID{} }

// Short is the name of a node inside datagrams: the first eight bytes of the
// SHA-256 of its ID. It is not secret and proves nothing.
type Short [8]byte

// Short returns the node's short name.
func (id ID) Short() Short {
	sum := sha256.Sum256(id[:])
	return Short(sum[:8])
}

// MarshalText implements encoding.TextMarshaler.
func (id ID) MarshalText() ([]byte, error) { return []byte(id.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (id *ID) UnmarshalText(text []byte) error {
	if base64.StdEncoding.DecodedLen(len(text)) > len(id)+2 {
		return fmt.Errorf("peer: an ID is 32 bytes in base64, not %d characters", len(text))
	}
	raw, err := base64.StdEncoding.DecodeString(string(text))
	if err != nil || len(raw) != len(id) {
		return fmt.Errorf("peer: %q is not a node ID", text)
	}
	copy(id[:], raw)
	return nil
}

// Fingerprint is the SHA-256 of a certificate's DER form.
type Fingerprint [32]byte

// Role is a duty a node's certificate allows it.
type Role uint8

// The roles. A node may hold several.
const (
	RoleHub   Role = 1 << iota // admits others and is found by address
	RoleRelay                  // forwards sealed packets for others
)

// Has reports whether r includes all of want.
func (r Role) Has(want Role) bool { return r&want == want }

// Network is what the root certificate says of a network. Nobody can change it
// without changing the fingerprint that every token pins.
type Network struct {
	Name          string       // a DNS label
	Domain        string       // names are NODE.Domain and NODE.SITE.Domain
	CIDR4         netip.Prefix // virtual IPv4 addresses
	CIDR6         netip.Prefix // virtual IPv6 addresses, a unique local /64
	AllowRootExec bool         // whether the exec service may run commands as root
	Root          Fingerprint  // the root certificate's own fingerprint
}

// Node is what a certificate says of a node.
type Node struct {
	ID        ID
	Name      string // a DNS label, unique in the network
	Site      string // a DNS label
	Addr4     netip.Addr
	Addr6     netip.Addr
	Roles     Role
	SignKey   ed25519.PublicKey
	NotBefore time.Time
	NotAfter  time.Time
}

// Addrs returns the node's virtual addresses, IPv4 first.
func (n Node) Addrs() []netip.Addr { return []netip.Addr{n.Addr4, n.Addr6} }

// Record is what the network knows of a node now: its certificate and what its
// hub has seen of it. The Node inside is always the verified content of Chain.
type Record struct {
	Node      Node
	Chain     [][]byte // DER: leaf, hub's intermediate, root
	Up        bool     // the hub holds a control session with it
	Advertise string   // HOST:PORT where the node is reachable without a NAT's help, or ""
	Cores     int      // processors the node offers, 0 when it has not said
	Revoked   bool     // a signed revocation names it
	Removed   bool     // the node has left for good; its name and addresses are kept for its key
}
