package ice

import (
	"crypto/rand"
	"encoding/binary"
	"hash/crc32"
	"net/netip"
)

// A STUN message (RFC 8489 §5), all fields big-endian:
//
//	0..1   type: two zero bits, method and class
//	2..3   length of what follows the header, a multiple of 4
//	4..7   magic cookie
//	8..19  transaction ID
//	20..   attributes: type (2), length (2), value, padding to 4
const (
	stunHeaderLen = 20
	stunCookie    = 0x2112A442
	// maxSTUN bounds what is looked at: checks and their answers have about 100 bytes.
	maxSTUN = 1280
)

// Types of messages: the binding method in each class but indication.
const (
	kindRequest = 0x0001
	kindSuccess = 0x0101
	kindError   = 0x0111
)

// Attributes (RFC 8489 §14, RFC 8445 §16.1).
const (
	attrUsername         = 0x0006
	attrXORMappedAddress = 0x0020
	attrUseCandidate     = 0x0025
	attrFingerprint      = 0x8028
	attrSoftware         = 0x8022
	// attrOptional is the least type that may be ignored where it is unknown.
	attrOptional = 0x8000
)

const (
	familyIPv4     = 1
	familyIPv6     = 2
	fingerprintXOR = 0x5354554E
	fingerprintLen = 8
)

// software stands in our requests so that the answers, even with an IPv6
// address, are hardly larger than they.
const software = "meshmpi"

// txID is a STUN transaction ID.
type txID [12]byte

func newTxID() (tx txID) {
	_, _ = rand.Read(tx[:]) // never fails (crypto/rand)
	return tx
}

// stunMessage is what is looked at in a STUN message. Slices point into it.
type stunMessage struct {
	kind         uint16
	tx           txID
	username     []byte         // nil where absent
	mapped       netip.AddrPort // XOR-MAPPED-ADDRESS, invalid where absent
	fingerprint  bool           // present, and correct
	useCandidate bool
	strange      bool // has attributes that must be understood, beyond these
}

// parseSTUN reads a STUN message. It reports whether b is one, whole and of at
// most maxSTUN bytes.
func parseSTUN(b []byte) (m stunMessage, ok bool) {
	if len(b) < stunHeaderLen || len(b) > maxSTUN || len(b)%4 != 0 || b[0]&0xC0 != 0 ||
		int(binary.BigEndian.Uint16(b[2:])) != len(b)-stunHeaderLen ||
		binary.BigEndian.Uint32(b[4:]) != stunCookie {
		return m, false
	}
	m.kind = binary.BigEndian.Uint16(b)
	m.tx = txID(b[8:])
	for at := stunHeaderLen; at < len(b); {
		kind, n := binary.BigEndian.Uint16(b[at:]), int(binary.BigEndian.Uint16(b[at+2:]))
		next := at + 4 + (n+3)&^3
		if next > len(b) || m.fingerprint {
			return m, false // cut short, or something after the fingerprint
		}
		value := b[at+4 : at+4+n : at+4+n]
		switch kind {
		case attrUsername:
			if m.username == nil { // of several, the first counts (RFC 8489 §14)
				m.username = value
			}
		case attrUseCandidate:
			m.useCandidate = true
		case attrXORMappedAddress:
			m.mapped, ok = decodeXORMapped(value, m.tx)
			if !ok {
				return m, false
			}
		case attrFingerprint:
			if n != 4 || binary.BigEndian.Uint32(value) != crc32.ChecksumIEEE(b[:at])^fingerprintXOR {
				return m, false
			}
			m.fingerprint = true
		default:
			m.strange = m.strange || kind < attrOptional
		}
		at = next
	}
	return m, true
}

// xorPad is what addresses are combined with: RFC 8489 §14.2.
func xorPad(tx txID) (pad [16]byte) {
	binary.BigEndian.PutUint32(pad[:], stunCookie)
	copy(pad[4:], tx[:])
	return pad
}

// decodeXORMapped reads the value: zero (1), family (1), port (2), address.
func decodeXORMapped(v []byte, tx txID) (netip.AddrPort, bool) {
	if len(v) < 4 || !(v[1] == familyIPv4 && len(v) == 8 || v[1] == familyIPv6 && len(v) == 20) {
		return netip.AddrPort{}, false
	}
	pad := xorPad(tx)
	for i, c := range v[4:] {
		pad[i] ^= c
	}
	addr, _ := netip.AddrFromSlice(pad[:len(v)-4])
	return unmap(netip.AddrPortFrom(addr, binary.BigEndian.Uint16(v[2:])^stunCookie>>16)), true
}

// appendHeader begins a message; finish completes it.
func appendHeader(b []byte, kind uint16, tx txID) []byte {
	b = binary.BigEndian.AppendUint16(b, kind)
	b = binary.BigEndian.AppendUint16(b, 0)
	b = binary.BigEndian.AppendUint32(b, stunCookie)
	return append(b, tx[:]...)
}

// appendAttr adds an attribute.
func appendAttr(b []byte, kind uint16, value []byte) []byte {
	b = binary.BigEndian.AppendUint16(b, kind)
	b = binary.BigEndian.AppendUint16(b, uint16(len(value)))
	b = append(b, value...)
	return append(b, make([]byte, -len(value)&3)...)
}

// finish sets the length of a message that began at b[0] and, if asked to, adds
// the fingerprint.
func finish(b []byte, fingerprint bool) []byte {
	n := len(b) - stunHeaderLen
	if fingerprint {
		n += fingerprintLen
	}
	binary.BigEndian.PutUint16(b[2:], uint16(n))
	if fingerprint {
		b = appendAttr(b, attrFingerprint, binary.BigEndian.AppendUint32(nil, crc32.ChecksumIEEE(b)^fingerprintXOR))
	}
	return b
}

// newQuery builds a binding request of ours to a STUN server.
func newQuery(tx txID) []byte {
	return finish(appendAttr(appendHeader(nil, kindRequest, tx), attrSoftware, []byte(software)), true)
}

// newReply builds the answer that tells a client its address.
func newReply(tx txID, client netip.AddrPort, fingerprint bool) []byte {
	family := byte(familyIPv4)
	if client.Addr().Is6() {
		family = familyIPv6
	}
	value := binary.BigEndian.AppendUint16([]byte{0, family}, client.Port()^stunCookie>>16)
	pad := xorPad(tx)
	for i, c := range client.Addr().AsSlice() {
		value = append(value, c^pad[i])
	}
	b := make([]byte, 0, 64)
	return finish(appendAttr(appendHeader(b, kindSuccess, tx), attrXORMappedAddress, value), fingerprint)
}
