package cert

import (
	"bytes"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/meshmpi/meshmpi/mesh/peer"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// epoch is when everything in these tests happens.
func epoch() time.Time { return time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC) }

func testNetwork() peer.Network {
	return peer.Network{
		Name: "lab", Domain: "mesh.internal",
		CIDR4: netip.MustParsePrefix("100.80.0.0/16"), CIDR6: netip.MustParsePrefix("fd12:3456:789a:1::/64"),
		AllowRootExec: true,
	}
}

// world is a network with one hub and one node.
type world struct {
	root   *Root
	issuer *Issuer
	keys   Keys
	node   peer.Node
	chain  [][]byte
	pin    peer.Fingerprint
}

func newWorld(t testing.TB) *world {
	t.Helper()
	w := &world{root: must(NewRoot(testNetwork(), epoch())), keys: must(NewKeys())}
	w.issuer = must(w.root.NewIssuer("h1", epoch()))
	w.node = testNode(w.keys, "b1", 2)
	w.chain = must(w.issuer.Issue(w.node, epoch()))
	w.pin = w.root.Fingerprint()
	return w
}

func testNode(k Keys, name string, host byte) peer.Node {
	n := peer.Node{
		ID: k.ID(), Name: name, Site: "paris", Roles: peer.RoleRelay, SignKey: k.Public(),
		Addr4: netip.AddrFrom4([4]byte{100, 80, 0, host}), Addr6: netip.MustParseAddr(fmt.Sprintf("fd12:3456:789a:1::%x", host)),
		NotBefore: epoch().Add(-Backdate), NotAfter: epoch().Add(Lifetime),
	}
	return n
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func equalNodes(a, b peer.Node) bool {
	return slices.Equal(a.SignKey, b.SignKey) && fmt.Sprint(a) == fmt.Sprint(b)
}

// wantLine checks that err is one line that contains all of want.
func wantLine(t *testing.T, err error, want ...string) {
	t.Helper()
	if err == nil {
		t.Fatalf("got no error, want one with %q", want)
	}
	if strings.ContainsAny(err.Error(), "\n\r") {
		t.Errorf("error has several lines: %q", err)
	}
	for _, w := range want {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("got error %q, want %q in it", err, w)
		}
	}
}

func TestValidLabel(t *testing.T) {
	for _, s := range []string{"a", "b1", "0", "a-b", strings.Repeat("x", 63)} {
		if err := ValidLabel(s); err != nil {
			t.Errorf("ValidLabel(%q): %v", s, err)
		}
	}
	for _, s := range []string{"", "-a", "a-", "A", "a.b", "a_b", "é", "a b", "a\nb", strings.Repeat("x", 64), strings.Repeat("x", 1<<20)} {
		err := ValidLabel(s)
		wantLine(t, err, "is no valid name")
		if len(err.Error()) > 400 {
			t.Errorf("an error of %d bytes", len(err.Error()))
		}
	}
}

func TestValidDomain(t *testing.T) {
	for _, s := range []string{"mesh.internal", "x", strings.Repeat("a.", 62) + "a"} {
		if err := ValidDomain(s); err != nil {
			t.Errorf("ValidDomain(%q): %v", s, err)
		}
	}
	for _, s := range []string{"", ".", "mesh.", ".mesh", "a..b", "Mesh.internal", strings.Repeat("a.", 63) + "a"} {
		wantLine(t, ValidDomain(s), "domain")
	}
}

func TestKeysSurvivePEM(t *testing.T) {
	k := must(NewKeys())
	if k.WG[0]&7 != 0 || k.WG[31]&0xC0 != 0x40 {
		t.Errorf("key %x is not clamped", k.WG[:1])
	}
	text := must(k.MarshalPEM())
	got := must(ParseKeys(text))
	if got.WG != k.WG || !got.Sign.Equal(k.Sign) || got.ID() != k.ID() {
		t.Error("keys changed on the way through PEM")
	}
	for _, format := range []string{"%v", "%+v", "%#v", "%s"} {
		if s := fmt.Sprintf(format, k); s != "private keys of "+k.ID().String() {
			t.Errorf("%s prints %q", format, s)
		}
	}
}

func TestParseKeysRefuses(t *testing.T) {
	k := must(NewKeys())
	text := must(k.MarshalPEM())
	sign := must(marshalKey(k.Sign))
	wg := text[:len(text)-len(sign)]
	tests := map[string][]byte{
		"no PEM":      nil,
		"not PEM":     []byte("hello"),
		"is missing":  wg,
		"one X25519":  slices.Concat(wg, wg),
		"one Ed25519": slices.Concat(sign, sign),
		"more than 2": slices.Concat(text, sign),
		"no plain":    EncodePEM([][]byte{{1}}),
		"limit":       bytes.Repeat([]byte(" "), maxPEM+1),
	}
	for want, in := range tests {
		_, err := ParseKeys(in)
		wantLine(t, err, want)
	}
	if _, err := ParseKeys(slices.Concat(text, []byte("trailing"))); err == nil {
		t.Error("trailing text was taken")
	}
}

func TestChainPEM(t *testing.T) {
	w := newWorld(t)
	got, err := ParsePEM(EncodePEM(w.chain))
	if err != nil || !slices.EqualFunc(got, w.chain, bytes.Equal) {
		t.Errorf("chain changed on the way through PEM (%v)", err)
	}
	five := slices.Concat(w.chain, w.chain[:2])
	if _, err := ParsePEM(EncodePEM(five)); err == nil {
		t.Error("five certificates were taken")
	}
	if _, err := ParsePEM(EncodePEM([][]byte{make([]byte, MaxDER+1)})); err == nil {
		t.Error("an oversized certificate was taken")
	}
}

func TestFingerprintText(t *testing.T) {
	f := FingerprintOf([]byte("x"))
	if got, err := ParseFingerprint(FormatFingerprint(f)); err != nil || got != f {
		t.Errorf("got %x, %v", got, err)
	}
	for _, s := range []string{"", "zz", strings.Repeat("g", 64), strings.Repeat("0", 66)} {
		if _, err := ParseFingerprint(s); err == nil {
			t.Errorf("%q was taken", s)
		}
	}
}

func FuzzParseKeys(f *testing.F) {
	text := must(must(NewKeys()).MarshalPEM())
	f.Add(text)
	f.Add(text[:len(text)/2])
	f.Fuzz(func(t *testing.T, b []byte) {
		k, err := ParseKeys(b)
		if err != nil {
			return
		}
		again := must(ParseKeys(must(k.MarshalPEM())))
		if again.WG != k.WG || !again.Sign.Equal(k.Sign) {
			t.Error("keys do not survive a round trip")
		}
	})
}

func FuzzParsePEM(f *testing.F) {
	f.Add(EncodePEM(newWorld(f).chain))
	f.Fuzz(func(t *testing.T, b []byte) {
		chain, err := ParsePEM(b)
		if err != nil {
			return
		}
		again, err := ParsePEM(EncodePEM(chain))
		if err != nil || !slices.EqualFunc(again, chain, bytes.Equal) {
			t.Errorf("chain does not survive a round trip: %v", err)
		}
	})
}
