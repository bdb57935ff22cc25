package mesh

import (
	"bytes"
	"crypto/cipher"
	"crypto/ecdh"
	"crypto/hmac"
	"encoding/binary"
	"errors"

	"github.com/meshmpi/meshmpi/mesh/peer"
	"golang.org/x/crypto/blake2s"
	"golang.org/x/crypto/chacha20poly1305"
	"golang.zx2c4.com/wireguard/device"
	"golang.zx2c4.com/wireguard/tai64n"
)

// wireguard-go has no hook for initiations from peers it does not know, so the
// mesh opens them itself, far enough to learn who speaks (WireGuard paper §5.4.2,
// whose names the comments use) and that it is no impostor.

// Offsets in a handshake initiation:
//
//	0..3  4..7    8..39      40..87        88..115          116..131  132..147
//	type  sender  ephemeral  static+tag    timestamp+tag    mac1      mac2
const (
	initEphemeral = 8
	initStatic    = 40
	initTimestamp = 88
	initMAC1      = 116
	initMAC2      = 132
)

var errInitiation = errors.New("mesh: not an initiation for this node")

// opener opens handshake messages sent to one node.
type opener struct {
	private *ecdh.PrivateKey
	mac1Key [blake2s.Size]byte
	cookies cipher.AEAD
	hash    [blake2s.Size]byte // of construction, identifier and our public key
}

func newOpener(wg [32]byte) (*opener, error) {
	private, err := ecdh.X25519().NewPrivateKey(wg[:])
	if err != nil {
		return nil, err
	}
	public := private.PublicKey().Bytes()
	cookieKey := hashOf([]byte(device.WGLabelCookie), public)
	cookies, err := chacha20poly1305.NewX(cookieKey[:])
	if err != nil {
		return nil, err
	}
	return &opener{
		private: private,
		cookies: cookies,
		mac1Key: blake2s.Sum256(append([]byte(device.WGLabelMAC1), public...)),
		hash:    hashOf(device.InitialHash[:], public),
	}, nil
}

// addressed reports whether msg is an initiation whose sender knows our public
// key. It costs one hash.
func (o *opener) addressed(msg []byte) bool {
	if len(msg) != device.MessageInitiationSize || binary.LittleEndian.Uint32(msg) != device.MessageInitiationType {
		return false
	}
	return o.mac1(msg)
}

// response reports whether msg is a handshake response whose sender knows our
// public key.
func (o *opener) response(msg []byte) bool {
	return len(msg) == device.MessageResponseSize && binary.LittleEndian.Uint32(msg) == device.MessageResponseType && o.mac1(msg)
}

// denies reports whether a cookie reply, made by this node, answers the message with
// that mac1.
func (o *opener) denies(cookie []byte, of mac1) bool {
	_, err := o.cookies.Open(nil, cookie[cookieNonce:cookieSealed], cookie[cookieSealed:], of[:])
	return err == nil
}

// mac1 checks the MAC over everything before it; mac1 and mac2 end a handshake
// message.
func (o *opener) mac1(msg []byte) bool {
	at := len(msg) - 2*blake2s.Size128
	h, err := blake2s.New128(o.mac1Key[:])
	if err != nil {
		return false
	}
	h.Write(msg[:at])
	return hmac.Equal(h.Sum(nil), msg[at:at+blake2s.Size128])
}

// stamp is the time in an initiation (TAI64N), increasing for each sender.
type stamp [tai64n.TimestampSize]byte

func (s stamp) after(t stamp) bool { return bytes.Compare(s[:], t[:]) > 0 }

// open returns who sent the initiation and when it was made. It costs two
// Diffie–Hellman operations. The sender has proved to hold the key, now or
// whenever the message was first sent: only the time tells.
func (o *opener) open(msg []byte) (peer.ID, stamp, error) {
	if !o.addressed(msg) {
		return peer.ID{}, stamp{}, errInitiation
	}
	ephemeral, static, timestamp := msg[initEphemeral:initStatic], msg[initStatic:initTimestamp], msg[initTimestamp:initMAC1]

	var chain, key [blake2s.Size]byte
	hash := hashOf(o.hash[:], ephemeral)
	device.KDF1(&chain, device.InitialChainKey[:], ephemeral)
	id, err := o.step(&chain, &key, &hash, ephemeral, static)
	if err != nil {
		return peer.ID{}, stamp{}, errInitiation
	}
	made, err := o.step(&chain, &key, &hash, id, timestamp)
	if err != nil {
		return peer.ID{}, stamp{}, errInitiation
	}
	return peer.ID(id), stamp(made), nil
}

// step mixes DH(our key, public) into the chaining key and opens one sealed
// field with the result: Noise's "es, s" and "ss, payload".
func (o *opener) step(chain, key, hash *[blake2s.Size]byte, public, sealed []byte) ([]byte, error) {
	p, err := ecdh.X25519().NewPublicKey(public)
	if err != nil {
		return nil, err
	}
	shared, err := o.private.ECDH(p)
	if err != nil {
		return nil, err
	}
	device.KDF2(chain, key, chain[:], shared)
	var aead cipher.AEAD
	if aead, err = chacha20poly1305.New(key[:]); err != nil {
		return nil, err
	}
	plain, err := aead.Open(nil, device.ZeroNonce[:], sealed, hash[:])
	if err != nil {
		return nil, err
	}
	*hash = hashOf(hash[:], sealed)
	return plain, nil
}

func hashOf(parts ...[]byte) (sum [blake2s.Size]byte) {
	h, err := blake2s.New256(nil)
	if err != nil {
		panic("mesh: unkeyed BLAKE2s was refused")
	}
	for _, p := range parts {
		h.Write(p)
	}
	h.Sum(sum[:0])
	return sum
}
