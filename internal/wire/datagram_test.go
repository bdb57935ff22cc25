package wire

import (
	"encoding/binary"
	"testing"
)

func stunMessage(attributes int) []byte {
	b := make([]byte, stunHeaderLen+attributes)
	binary.BigEndian.PutUint16(b, 0x0001)
	binary.BigEndian.PutUint16(b[2:], uint16(attributes))
	binary.BigEndian.PutUint32(b[4:], stunCookie)
	return b
}

func TestClassify(t *testing.T) {
	// A WireGuard datagram whose receiver index is STUN's cookie.
	tricky := make([]byte, 32)
	tricky[0] = 4
	binary.BigEndian.PutUint32(tricky[4:], stunCookie)
	for _, tc := range []struct {
		name string
		in   []byte
		want Class
	}{
		{"empty", nil, ClassOther},
		{"keepalive", append([]byte{4, 0, 0, 0}, make([]byte, 28)...), ClassWireGuard},
		{"too short for WireGuard", append([]byte{4, 0, 0, 0}, make([]byte, 27)...), ClassOther},
		{"receiver index is the cookie", tricky, ClassWireGuard},
		{"binding request", stunMessage(0), ClassSTUN},
		{"with attributes", stunMessage(44), ClassSTUN},
		{"wrong length", stunMessage(44)[:60], ClassOther},
		{"ping", []byte{Magic, byte(TypePing), 0, 0}, ClassMesh},
		{"dns", []byte{0x12, 0x34, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0}, ClassOther},
	} {
		if got := Classify(tc.in); got != tc.want {
			t.Errorf("%s: class %d, want %d", tc.name, got, tc.want)
		}
	}
}

// FuzzClassify checks that no datagram is taken for two things and none panics.
func FuzzClassify(f *testing.F) {
	f.Add(stunMessage(8))
	f.Add([]byte{Magic, 1, 0, 0})
	f.Add(make([]byte, 64))
	f.Fuzz(func(t *testing.T, b []byte) {
		switch Classify(b) {
		case ClassWireGuard:
			if len(b) < wireGuardMin || b[0] > wireGuardTypes {
				t.Fatalf("taken for WireGuard: %x", b)
			}
		case ClassSTUN:
			if len(b) < stunHeaderLen || b[0]&0xC0 != 0 {
				t.Fatalf("taken for STUN: %x", b)
			}
		case ClassMesh:
			if b[0] != Magic {
				t.Fatalf("taken for ours: %x", b)
			}
		}
	})
}
