package peer

import (
	"bytes"
	"encoding/json"
	"testing"
)

func TestIDText(t *testing.T) {
	id := ID{1, 2, 3, 31: 0xff}
	b, err := json.Marshal(id)
	if err != nil {
		t.Fatal(err)
	}
	var back ID
	if err := json.Unmarshal(b, &back); err != nil || back != id {
		t.Errorf("%s came back as %v, %v", b, back, err)
	}
	for _, bad := range []string{``, `AAAA`, `!!!`, id.String() + "AA"} {
		if err := back.UnmarshalText([]byte(bad)); err == nil {
			t.Errorf("%q was taken for an ID", bad)
		}
	}
}

func FuzzIDText(f *testing.F) {
	f.Add([]byte(ID{7}.String()))
	f.Fuzz(func(t *testing.T, text []byte) {
		var id ID
		if id.UnmarshalText(text) != nil {
			return
		}
		out, _ := id.MarshalText()
		var again ID
		if err := again.UnmarshalText(out); err != nil || again != id {
			t.Fatalf("%q reads as %v, which does not survive %q", text, id, bytes.TrimSpace(out))
		}
	})
}

func FuzzKindText(f *testing.F) {
	f.Add([]byte("udp"))
	f.Fuzz(func(t *testing.T, text []byte) {
		var k Kind
		if k.UnmarshalText(text) == nil && k.String() != string(text) {
			t.Fatalf("%q reads as %v", text, k)
		}
	})
}

func TestKinds(t *testing.T) {
	if KindNative <= KindUDP || KindUDP <= KindRelayUDP || KindRelayUDP <= KindRelayStream {
		t.Error("better rungs of the ladder must compare greater")
	}
	for k := KindNone; k <= KindNative; k++ {
		if k.String() == "unknown" {
			t.Errorf("kind %d has no name", k)
		}
		text, _ := k.MarshalText()
		var back Kind
		if err := back.UnmarshalText(text); err != nil || back != k {
			t.Errorf("%s came back as %v, %v", text, back, err)
		}
	}
	if !(RoleHub | RoleRelay).Has(RoleHub) || RoleHub.Has(RoleRelay) {
		t.Error("Has is wrong")
	}
}
