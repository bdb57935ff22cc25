package cert

import (
	"crypto/ecdh"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"

	"github.com/meshmpi/meshmpi/mesh/peer"
)

const pemPrivate = "PRIVATE KEY"

// Keys are a node's private keys; they never leave its disk. Printing them
// shows the public name only.
type Keys struct {
	WG   [32]byte           // Curve25519 private key, clamped (RFC 7748 §5)
	Sign ed25519.PrivateKey // signs handshakes and records
}

// NewKeys makes the keys of a new node.
func NewKeys() (Keys, error) {
	var k Keys
	if _, err := rand.Read(k.WG[:]); err != nil {
		return Keys{}, fmt.Errorf("cert: make keys: %w", err)
	}
	clamp(&k.WG)
	_, sign, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return Keys{}, fmt.Errorf("cert: make keys: %w", err)
	}
	k.Sign = sign
	return k, nil
}

func clamp(k *[32]byte) {
	k[0] &= 248
	k[31] = k[31]&127 | 64
}

// ID returns the WireGuard public key.
func (k Keys) ID() peer.ID {
	priv, err := ecdh.X25519().NewPrivateKey(k.WG[:])
	if err != nil {
		panic("cert: 32 bytes are always an X25519 key: " + err.Error())
	}
	return peer.ID(priv.PublicKey().Bytes())
}

// Public returns the Ed25519 public key, or nil where there is no private one.
func (k Keys) Public() ed25519.PublicKey { return publicOf(k.Sign) }

// publicOf returns the public half of a private key read from anywhere.
func publicOf(k ed25519.PrivateKey) ed25519.PublicKey {
	if len(k) != ed25519.PrivateKeySize {
		return nil
	}
	return ed25519.PublicKey(k[ed25519.PublicKeySize:])
}

// String names the owner, so that a log never shows a private key.
func (k Keys) String() string { return "private keys of " + k.ID().String() }

// GoString is String; it keeps %#v from showing a private key.
func (k Keys) GoString() string { return k.String() }

// MarshalPEM returns both keys as PKCS #8 blocks (RFC 8410), WireGuard's first.
func (k Keys) MarshalPEM() ([]byte, error) {
	wg, err := ecdh.X25519().NewPrivateKey(k.WG[:])
	if err != nil {
		return nil, fmt.Errorf("cert: write keys: %w", err)
	}
	wgDER, err := x509.MarshalPKCS8PrivateKey(wg)
	if err != nil {
		return nil, fmt.Errorf("cert: write keys: %w", err)
	}
	sign, err := marshalKey(k.Sign)
	if err != nil {
		return nil, fmt.Errorf("cert: write keys: %w", err)
	}
	return append(pem.EncodeToMemory(&pem.Block{Type: pemPrivate, Bytes: wgDER}), sign...), nil
}

// ParseKeys reads what MarshalPEM wrote: one key of each kind, in any order,
// and nothing else.
func ParseKeys(b []byte) (Keys, error) {
	blocks, err := parseBlocks(b, pemPrivate, 2)
	if err != nil {
		return Keys{}, fmt.Errorf("cert: read keys: %w", err)
	}
	var k Keys
	var haveWG bool
	for _, der := range blocks {
		key, err := x509.ParsePKCS8PrivateKey(der)
		if err != nil {
			return Keys{}, fmt.Errorf("cert: read keys: %w", err)
		}
		switch key := key.(type) {
		case *ecdh.PrivateKey:
			if key.Curve() != ecdh.X25519() || haveWG {
				return Keys{}, errors.New("cert: read keys: want one X25519 key")
			}
			copy(k.WG[:], key.Bytes())
			clamp(&k.WG)
			haveWG = true
		case ed25519.PrivateKey:
			if k.Sign != nil {
				return Keys{}, errors.New("cert: read keys: want one Ed25519 key")
			}
			k.Sign = key
		default:
			return Keys{}, fmt.Errorf("cert: read keys: a %T is neither X25519 nor Ed25519", key)
		}
	}
	if !haveWG || k.Sign == nil {
		return Keys{}, errors.New("cert: read keys: want an X25519 and an Ed25519 key, one is missing")
	}
	return k, nil
}

// marshalKey returns one Ed25519 key as a PKCS #8 PEM block.
func marshalKey(k ed25519.PrivateKey) ([]byte, error) {
	if len(k) != ed25519.PrivateKeySize {
		return nil, errors.New("there is no Ed25519 key")
	}
	der, err := x509.MarshalPKCS8PrivateKey(k)
	if err != nil {
		return nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: pemPrivate, Bytes: der}), nil
}

// ErrKey says that what is wrong with a certificate and its key is the key.
var ErrKey = errors.New("cert: read key")

// parseKey reads what marshalKey wrote.
func parseKey(b []byte) (ed25519.PrivateKey, error) {
	blocks, err := parseBlocks(b, pemPrivate, 1)
	if err != nil {
		return nil, err
	}
	key, err := x509.ParsePKCS8PrivateKey(blocks[0])
	if err != nil {
		return nil, err
	}
	sign, ok := key.(ed25519.PrivateKey)
	if !ok {
		return nil, fmt.Errorf("a %T is no Ed25519 key", key)
	}
	return sign, nil
}
