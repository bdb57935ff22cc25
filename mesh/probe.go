package mesh

import (
	"crypto/ecdh"
	"crypto/hkdf"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/meshmpi/meshmpi/internal/wire"
	"github.com/meshmpi/meshmpi/mesh/peer"
	"golang.org/x/crypto/blake2s"
	"golang.zx2c4.com/wireguard/replay"
)

// A probe asks whether a path works (ping) and is answered on the same path
// (pong). Both are authenticated with a key that only the two nodes share.
//
//	0      1     2..3   4..11            12..19       20..27    28..35     ..end-16
//	Magic  Type  zero   Short of sender  transaction  sequence  seen       MAC
//	                                                  asked     zero
//
// transaction is random, so that a pong proves that its sender got the ping. A
// ping's sequence tells it from a replay: it increases with every ping to the
// peer, from the time at which the sender began, and seen is the peer's highest
// that the sender knows, so that a node whose clock went back catches up. What
// a pong asks, if not zero, is a transaction to answer with a pong in its turn:
// a ping from an unproven address is answered by this one datagram alone.
//
// A ping may carry zeros before its MAC to try a path's MTU; a pong never does,
// so an answer is never longer than what it answers. The MAC is keyed
// BLAKE2s-128 over all that precedes it.
const (
	probeBody   = 36
	probeMAC    = blake2s.Size128
	probeLength = probeBody + probeMAC
	maxProbe    = 9216 + 128 // a jumbo frame's, with room for headers
)

// pairKey is a secret of two nodes.
type pairKey [32]byte

// probe is a decoded, not yet authenticated, ping or pong.
type probe struct {
	typ  wire.Type
	from peer.Short
	txid uint64
	seq  uint64 // ping only
	seen uint64 // ping only
	ask  uint64 // pong only; 0: nothing
	raw  []byte // borrowed
}

// ping reports whether it is one.
func (p probe) ping() bool { return p.typ == wire.TypePing }

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
func appendPing(b []byte, key *pairKey, from peer.Short, txid, seq, seen uint64, size int) []byte {
	return appendProbe(b, key, wire.TypePing, from, [3]uint64{txid, seq, seen}, size)
}

// appendPong appends the answer to a ping, or to what a pong asked.
func appendPong(b []byte, key *pairKey, from peer.Short, txid, ask uint64) []byte {
	return appendProbe(b, key, wire.TypePong, from, [3]uint64{txid, ask}, 0)
}

func appendProbe(b []byte, key *pairKey, typ wire.Type, from peer.Short, fields [3]uint64, size int) []byte {
	start := len(b)
	b = append(b, wire.Magic, byte(typ), 0, 0)
	b = append(b, from[:]...)
	for _, f := range fields {
		b = binary.BigEndian.AppendUint64(b, f)
	}
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
	second, third := binary.BigEndian.Uint64(b[20:]), binary.BigEndian.Uint64(b[28:])
	switch p.typ {
	case wire.TypePing:
		p.seq, p.seen = second, third
	case wire.TypePong:
		if len(b) != probeLength || third != 0 {
			return probe{}, errNotProbe
		}
		p.ask = second
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

// sequence numbers pings to one peer, and tells the peer's from replays.
type sequence struct {
	sent uint64 // of our last ping
	seen uint64 // the peer's highest
	past replay.Filter
}

const (
	// seqWindow is how far pings may overtake each other: more than are sent to
	// one peer in the round trip of the slowest path.
	seqWindow = 512
	// seqLimit keeps room above any number that a clock or a peer may claim.
	seqLimit = 1 << 63
)

func newSequence(now time.Time) sequence { return sequence{sent: uint64(max(now.UnixNano(), 0))} }

// next returns the number of the next ping.
func (s *sequence) next() uint64 {
	s.sent++
	return s.sent
}

// fresh reports whether an authentic ping of the peer is no replay, and takes
// note of it.
func (s *sequence) fresh(p probe) bool {
	if s.seen > seqWindow && p.seq < s.seen-seqWindow || !s.past.ValidateCounter(p.seq, seqLimit) {
		return false
	}
	s.seen = max(s.seen, p.seq)
	if p.seen > s.sent && p.seen < seqLimit {
		s.sent = p.seen // of an earlier life of ours, whose clock was ahead
	}
	return true
}
