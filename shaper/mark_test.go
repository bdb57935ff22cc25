package shaper

import (
	"bytes"
	"encoding/hex"
	"strings"
	"testing"
)

func unhex(t testing.TB, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(strings.ReplaceAll(s, " ", ""))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

const (
	v6rest = " 0008 3a40 fd00000000000000000000000000000a fd00000000000000000000000000000b 8000000000000000"
	v4rest = " 0a500001 0a500002 0000000000000000"
)

// Checksums were computed over the whole header, not incrementally.
func TestMark(t *testing.T) {
	for _, tc := range []struct {
		name, pkt, want string // want "": untouched
	}{
		{"IPv4, ECT(0)", "4502001c 12344000 4006 1404" + v4rest, "4503001c 12344000 4006 1403" + v4rest},
		{"IPv4, ECT(1)", "4501001c 12344000 4006 1405" + v4rest, "4503001c 12344000 4006 1403" + v4rest},
		{"IPv4, DSCP and ECT(0)", "45ba001c 12344000 4006 134c" + v4rest, "45bb001c 12344000 4006 134b" + v4rest},
		{"IPv4, not ECT", "4500001c 12344000 4006 1406" + v4rest, ""},
		{"IPv4, marked before", "4503001c 12344000 4006 1403" + v4rest, ""},
		{"IPv6, ECT(0)", "60200000" + v6rest, "60300000" + v6rest},
		{"IPv6, ECT(1), DSCP and label", "6b9abcde" + v6rest, "6bbabcde" + v6rest},
		{"IPv6, not ECT", "6b8abcde" + v6rest, ""},
		{"IPv6, marked before", "60300000" + v6rest, ""},
		{"IPv4, cut short", "4502001c 12344000 4006 14", ""},
		{"IPv6, cut short", "60200000 0008 3a40 fd00000000000000000000000000000a", ""},
		{"of no known version", "25020000 12344000 4006 1404" + v4rest, ""},
		{"empty", "", ""},
	} {
		pkt := unhex(t, tc.pkt)
		want := tc.want
		if want == "" {
			want = tc.pkt
		}
		if got := mark(pkt); got != (tc.want != "") || !bytes.Equal(pkt, unhex(t, want)) {
			t.Errorf("%s: mark = %v and\n%x, want\n%x", tc.name, got, pkt, unhex(t, want))
		}
	}
}

// headerSum is the Internet checksum over an IPv4 header: 0 when it is right.
func headerSum(h []byte) uint16 {
	var sum uint32
	for i := 0; i+1 < len(h); i += 2 {
		sum += uint32(h[i])<<8 | uint32(h[i+1])
	}
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	return ^uint16(sum)
}

// FuzzMark: only the two bits and IPv4's checksum may change, and a checksum
// that was right stays right.
func FuzzMark(f *testing.F) {
	f.Add(unhex(f, "4502001c 12344000 4006 1404"+v4rest))
	f.Add(unhex(f, "60200000"+v6rest))
	f.Fuzz(func(t *testing.T, pkt []byte) {
		was := bytes.Clone(pkt)
		if !mark(pkt) {
			if !bytes.Equal(pkt, was) {
				t.Fatalf("changed %x to %x and denied it", was, pkt)
			}
			return
		}
		if pkt[0]>>4 == 4 {
			if h := int(pkt[0]&15) * 4; h <= len(pkt) && headerSum(was[:h]) == 0 && headerSum(pkt[:h]) != 0 {
				t.Fatalf("the checksum of %x is wrong", pkt[:h])
			}
			was[10], was[11] = pkt[10], pkt[11]
			was[1] |= 3
		} else {
			was[1] |= 0x30
		}
		if !bytes.Equal(pkt, was) {
			t.Fatalf("got %x, want %x", pkt, was)
		}
		if mark(pkt) {
			t.Fatal("marked twice")
		}
	})
}
