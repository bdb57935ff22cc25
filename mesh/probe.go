package mesh

import (
	"crypto/ecdh"
	"crypto/hkdf"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"

	"github.com/meshmpi/meshmpi/internal/wire"
	"github.com/meshmpi/meshmpi/mesh/peer"
	"golang.org/x/crypto/blake2s"
)

// A probe asks whether a path works (ping) and is answered on the same path
// (pong). Both are authenticated with a key that only the two nodes share.
//
//	0      1     2..3   4..11            12..19        20..37            ..end-16
//	Magic  Type  zero   Short of sender  transaction   observed address  MAC
//
// observed is the IPv6 (or IPv4-mapped) address and port the pong's sender saw
// the ping come from; zero in a ping. A ping may carry zeros before its MAC to
// try a path's MTU; a pong never does, so an answer is never longer than what
// it answers. The MAC is keyed BLAKE2s-128 over all that precedes it.
const (
	probeBody   = 38
	probeMAC    = blake2s.Size128
	probeLength = probeBody + probeMAC
	maxProbe    = 9216 + 128 // a jumbo frame's, with room for headers
)

// pairKey is a secret of two nodes.
type pairKey [32]byte

// probe is a decoded, not yet authenticated, ping or pong.
type probe struct {
	typ      wire.Type
	from     peer.Short
	txid     uint64
	observed netip.AddrPort // pong only
	raw      []byte         // borrowed
}

var errNotProbe = errors.New("mesh: not a probe")

// pairKeys derives the keys that self shares with other: one for probes, one
// for signals. They are bound to the network and to both nodes' WireGuard and
// signing keys, hence to both certificates, and survive their renewal.
func pairKeys(wg [32]byte, root peer.Fingerprint, self, other peer.Node) (probeKey, signalKey pairKey, err error) {
	private, err := ecdh.X25519().NewPrivateKey(wg[:])
	if err != nil {
		return probeKey, signalKey, fmt.Errorf("mesh: own WireGuard key: %w", err)
	}
	public, err := ecdh.X25519().NewPublicKey(other.ID[:])
	if err != nil {
		return probeKey, signalKey, fmt.Errorf("mesh: WireGuard key of %s: %w", other.Name, err)
	}
	shared, err := private.ECDH(public)
	if err != nil {
		return probeKey, signalKey, fmt.Errorf("mesh: WireGuard key of %s: %w", other.Name, err)
	}
	lower, upper := self, other
	if string(lower.ID[:]) > string(upper.ID[:]) {
		lower, upper = upper, lower
	}
	info := "meshmpi pair v1" + string(lower.ID[:]) + string(lower.SignKey) + string(upper.ID[:]) + string(upper.SignKey)
	okm, err := hkdf.Key(sha256.New, shared, root[:], info, len(probeKey)+len(signalKey))
	if err != nil {
		return probeKey, signalKey, fmt.Errorf("mesh: pair key with %s: %w", other.Name, err)
	}
	copy(probeKey[:], okm)
	copy(signalKey[:], okm[len(probeKey):])
	return probeKey, signalKey, nil
}

// appendPing appends a ping of at least probeLength and at most size bytes.
func appendPing(b []byte, key *pairKey, from peer.Short, txid uint64, size int) []byte {
	return appendProbe(b, key, wire.TypePing, from, txid, netip.AddrPort{}, size)
}

// appendPong appends the answer to a ping that came from observed.
func appendPong(b []byte, key *pairKey, from peer.Short, txid uint64, observed netip.AddrPort) []byte {
	return appendProbe(b, key, wire.TypePong, from, txid, observed, 0)
}

func appendProbe(b []byte, key *pairKey, typ wire.Type, from peer.Short, txid uint64, observed netip.AddrPort, size int) []byte {
	start := len(b)
	b = append(b, wire.Magic, byte(typ), 0, 0)
	b = append(b, from[:]...)
	b = binary.BigEndian.AppendUint64(b, txid)
	var addr [16]byte
	if observed.IsValid() {
		addr = observed.Addr().As16()
	}
	b = append(b, addr[:]...)
	b = binary.BigEndian.AppendUint16(b, observed.Port())
	if pad := size - probeLength; pad > 0 {
		b = append(b, make([]byte, pad)...)
	}
	mac := probeSum(key, b[start:])
	return append(b, mac[:]...)
}

// parseProbe decodes a datagram of class mesh whose type is ping or pong.
func parseProbe(b []byte) (probe, error) {
	if len(b) < probeLength || len(b) > maxProbe || b[0] != wire.Magic || b[2] != 0 || b[3] != 0 {
		return probe{}, errNotProbe
	}
	p := probe{typ: wire.Type(b[1]), from: peer.Short(b[4:12]), txid: binary.BigEndian.Uint64(b[12:]), raw: b}
	switch p.typ {
	case wire.TypePing:
	case wire.TypePong:
		if len(b) != probeLength {
			return probe{}, errNotProbe
		}
		addr := netip.AddrFrom16([16]byte(b[20:36])).Unmap()
		p.observed = netip.AddrPortFrom(addr, binary.BigEndian.Uint16(b[36:]))
	default:
		return probe{}, errNotProbe
	}
	return p, nil
}

// authentic reports whether the holder of key made the probe.
func (p probe) authentic(key *pairKey) bool {
	body := len(p.raw) - probeMAC
	sum := probeSum(key, p.raw[:body])
	return hmac.Equal(sum[:], p.raw[body:])
}

func probeSum(key *pairKey, b []byte) (sum [probeMAC]byte) {
	h, err := blake2s.New128(key[:])
	if err != nil {
		panic("mesh: a 32-byte BLAKE2s key was refused") // it takes up to 32
	}
	h.Write(b)
	h.Sum(sum[:0])
	return sum
}
