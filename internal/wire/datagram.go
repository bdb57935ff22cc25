// Package wire fixes how meshmpi's own datagrams and frames look on the wire,
// and gives bounded codecs for them. It knows sizes and layouts, never meaning:
// keys, paths and policies live with those who use it.
//
// One UDP socket carries four protocols. Classify tells them apart:
//
//	WireGuard   first byte 1..4, then three zero bytes, at least 32 bytes
//	STUN        RFC 8489 §5: two zero bits, magic cookie at 4, length matching
//	mesh        first byte Magic, then a Type
//
// A STUN message whose type and length bytes look like WireGuard's would have
// to be 20 bytes long, which no WireGuard message is; so no datagram is two
// things, whatever receiver index WireGuard chose.
package wire

import "encoding/binary"

// Magic opens every datagram of meshmpi's own. It lies above the ranges that
// RFC 7983 §7 gives to STUN, DTLS, TURN and RTP.
const Magic = 0xED

// Type is the second byte of a mesh datagram.
type Type uint8

// The types of mesh datagrams. Probes are the mesh's, the others the relay's.
const (
	TypePing         Type = 0x01
	TypePong         Type = 0x02
	TypeRelayBind    Type = 0x10 // client → relay: here I am
	TypeRelayBound   Type = 0x11 // relay → client: I see you at this address
	TypeRelaySend    Type = 0x12 // client → relay: forward to the peer named
	TypeRelayDeliver Type = 0x13 // relay → client: this came from the peer named
)

// MaxDatagram bounds a UDP payload, in bytes.
const MaxDatagram = 65535

// RelayHeaderLen is the length of the header before a relayed datagram:
//
//	0      1     2..3      4..11
//	Magic  Type  zero      Short of the destination (send) or source (deliver)
const RelayHeaderLen = 12

// Class is what a datagram is.
type Class uint8

// The classes of datagrams on the shared socket.
const (
	ClassOther Class = iota
	ClassWireGuard
	ClassSTUN
	ClassMesh
)

const (
	stunHeaderLen  = 20
	stunCookie     = 0x2112A442
	wireGuardMin   = 32
	wireGuardTypes = 4
)

// Classify tells what protocol a datagram belongs to. It looks at no more than
// the first eight bytes and the length.
func Classify(b []byte) Class {
	if len(b) < 4 {
		return ClassOther
	}
	switch {
	case b[0] == Magic:
		return ClassMesh
	case b[0] >= 1 && b[0] <= wireGuardTypes && b[1] == 0 && b[2] == 0 && b[3] == 0 && len(b) >= wireGuardMin:
		return ClassWireGuard
	case b[0]&0xC0 == 0 && len(b) >= stunHeaderLen &&
		binary.BigEndian.Uint32(b[4:]) == stunCookie &&
		int(binary.BigEndian.Uint16(b[2:])) == len(b)-stunHeaderLen && len(b)%4 == 0:
		return ClassSTUN
	}
	return ClassOther
}
