package relay

import (
	"crypto/subtle"
	"encoding/binary"
	"hash"
	"net/netip"

	"github.com/meshmpi/meshmpi/internal/wire"
	"github.com/meshmpi/meshmpi/mesh/peer"
	"golang.org/x/crypto/blake2s"
)

// Layout of bind and bound, see the package comment. They are equally long, so
// that an answer fits into its question's buffer and is never longer.
const (
	shortAt    = 4
	counterAt  = 12
	flagsAt    = 20 // bind
	observedAt = 20 // bound
	macAt      = 40
	bindLen    = macAt + blake2s.Size128
)

// flagLeave, of a bind, says: forget me; it is not answered.
const flagLeave = 2

// bind is what a bind says.
type bind struct {
	short   peer.Short
	counter uint64
	flags   byte
}

// isRelay reports whether b is a relay frame of that type with a whole header.
func isRelay(b []byte, typ wire.Type) bool {
	return len(b) >= wire.RelayHeaderLen && b[0] == wire.Magic && b[1] == byte(typ) && b[2] == 0 && b[3] == 0
}

// putHeader writes the first RelayHeaderLen bytes of b.
func putHeader(b []byte, typ wire.Type, s peer.Short) {
	b[0], b[1], b[2], b[3] = wire.Magic, byte(typ), 0, 0
	copy(b[shortAt:wire.RelayHeaderLen], s[:])
}

// putBind writes a bind but for its MAC into b, which is bindLen long.
func putBind(b []byte, f bind) {
	clear(b)
	putHeader(b, wire.TypeRelayBind, f.short)
	binary.BigEndian.PutUint64(b[counterAt:], f.counter)
	b[flagsAt] = f.flags
}

// parseBind decodes a bind that nobody has authenticated yet.
func parseBind(b []byte) (bind, bool) {
	if len(b) != bindLen || !isRelay(b, wire.TypeRelayBind) {
		return bind{}, false
	}
	f := bind{
		short:   peer.Short(b[shortAt:]),
		counter: binary.BigEndian.Uint64(b[counterAt:]),
		flags:   b[flagsAt],
	}
	return f, f.counter != 0
}

// putBound turns the bind in b into its answer but for the MAC.
func putBound(b []byte, observed netip.AddrPort) {
	b[1] = byte(wire.TypeRelayBound)
	clear(b[observedAt:])
	addr := observed.Addr().As16()
	copy(b[observedAt:], addr[:])
	binary.BigEndian.PutUint16(b[observedAt+16:], observed.Port())
}

// parseBound decodes a bound that nobody has authenticated yet.
func parseBound(b []byte) (short peer.Short, counter uint64, observed netip.AddrPort, ok bool) {
	if len(b) != bindLen || !isRelay(b, wire.TypeRelayBound) {
		return short, 0, observed, false
	}
	addr := netip.AddrFrom16([16]byte(b[observedAt:])).Unmap()
	observed = netip.AddrPortFrom(addr, binary.BigEndian.Uint16(b[observedAt+16:]))
	return peer.Short(b[shortAt:]), binary.BigEndian.Uint64(b[counterAt:]), observed, true
}

// mayForward reports whether b is a send whose payload a relay may carry: what
// WireGuard or a probe has sealed. Relay frames inside relay frames are refused,
// hence nothing goes in circles.
func mayForward(b []byte) bool {
	if !isRelay(b, wire.TypeRelaySend) {
		return false
	}
	payload := b[wire.RelayHeaderLen:]
	switch wire.Classify(payload) {
	case wire.ClassWireGuard:
		return true
	case wire.ClassMesh:
		return payload[1] == byte(wire.TypePing) || payload[1] == byte(wire.TypePong)
	}
	return false
}

// mac signs and checks binds and bounds under one key without allocating. It
// holds the hash's state, so its owner's mutex guards it.
type mac struct {
	h   hash.Hash
	sum [blake2s.Size128]byte
}

func newMAC(key *[32]byte) *mac {
	h, err := blake2s.New128(key[:])
	if err != nil {
		panic("relay: a 32-byte BLAKE2s key was refused") // it takes up to 32
	}
	return &mac{h: h}
}

func (m *mac) compute(b []byte) []byte {
	m.h.Reset()
	m.h.Write(b[:macAt])
	return m.h.Sum(m.sum[:0])
}

// seal writes the MAC of b, which is bindLen long.
func (m *mac) seal(b []byte) { copy(b[macAt:], m.compute(b)) }

// valid reports whether the key's holder sealed b, which is bindLen long.
func (m *mac) valid(b []byte) bool {
	return subtle.ConstantTimeCompare(m.compute(b), b[macAt:]) == 1
}
