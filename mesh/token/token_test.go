package token

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/meshmpi/meshmpi/mesh/peer"
)

func epoch() time.Time { return time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC) }

func sample(t testing.TB) Token {
	t.Helper()
	tok, err := New("lab", peer.Fingerprint{1, 2, 3}, []string{"192.0.2.1:51820", "[2001:db8::1]:51820"}, "paris", epoch())
	if err != nil {
		t.Fatal(err)
	}
	return tok
}

// reseal gives a binary form the right checksum and writes it as text.
func reseal(b []byte) string {
	return prefix + encoding().EncodeToString(append(bytes.Clone(b), checksum(b)...))
}

func wantLine(t *testing.T, err error, want string) {
	t.Helper()
	if err == nil {
		t.Fatalf("got no error, want %q", want)
	}
	if !strings.Contains(err.Error(), want) || strings.ContainsAny(err.Error(), "\r\n") {
		t.Errorf("got %q, want one line with %q", err, want)
	}
}

func TestTokenSurvivesText(t *testing.T) {
	full := sample(t)
	bare, err := New("n", peer.Fingerprint{}, []string{"h:1"}, "", time.Time{})
	if err != nil {
		t.Fatal(err)
	}
	host := strings.Repeat(strings.Repeat("a", 62)+".", 4)[:252] + ":65535"
	most, err := New(strings.Repeat("n", 63), peer.Fingerprint{9}, []string{host, host, host, host, host, host, host, host}, strings.Repeat("s", 63), epoch())
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []Token{full, bare, most} {
		s := want.String()
		wrapped := " \t" + s[:20] + "\n  " + s[20:70] + "\r\n" + s[70:] + "\n\n"
		for _, in := range []string{s, wrapped, s + "\u00a0"} {
			got, err := Parse(in)
			if err != nil || !reflect.DeepEqual(got, want) {
				t.Errorf("Parse(%q) = %+v, %v; want %+v", in, got, err, want)
			}
		}
		if strings.Trim(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_") != "" {
			t.Errorf("%q is not one word", s)
		}
	}
	if got := len(bare.String()); got > 120 {
		t.Errorf("the shortest token has %d characters", got)
	}
}

// TestEveryMistypedTokenIsKnown changes, drops and cuts at every place.
func TestEveryMistypedTokenIsKnown(t *testing.T) {
	s := sample(t).String()
	for i := len(prefix); i < len(s); i++ {
		c := byte('A')
		if s[i] == c {
			c = 'B'
		}
		for _, bad := range []string{s[:i] + string(c) + s[i+1:], s[:i] + s[i+1:], s[:i], s[:i] + "!" + s[i:]} {
			_, err := Parse(bad)
			wantLine(t, err, "mistyped or cut short")
		}
	}
}

func TestParseRefuses(t *testing.T) {
	good := sample(t)
	raw, err := encoding().DecodeString(good.String()[len(prefix):])
	if err != nil {
		t.Fatal(err)
	}
	raw = raw[:len(raw)-checksumLen]
	with := func(f func(*Token)) string { tok := sample(t); f(&tok); return tok.String() }
	tests := []struct{ in, want string }{
		{"", "no token"},
		{"hello", "no token"},
		{"mesh2AAAA", "newer"},
		{prefix, "cut short"},
		{good.String() + good.String()[len(prefix):], "cut short"},
		{strings.Repeat("x", MaxLen+1), "longer than any token"},
		{reseal(nil), "too short"},
		{reseal(raw[:fixedLen]), "cut short"},
		{reseal(raw[:len(raw)-1]), "cut short"},
		{reseal(append(bytes.Clone(raw), 0)), "behind it"},
		{reseal(append(bytes.Clone(raw[:fixedLen]), 0x81, 0x00, 'n', 0, 1, 3, 'h', ':', '1')), "unusual way"},
		{reseal(append(bytes.Clone(raw[:fixedLen]), 1, 'n', 0, 9)), "too many hubs"},
		{with(func(t *Token) { t.Hubs = nil }), "1 to 8 hubs"},
		{with(func(t *Token) { t.Network = "Lab" }), "network name"},
		{with(func(t *Token) { t.Site = "a b" }), "site name"},
		{with(func(t *Token) { t.Hubs[0] = "nowhere" }), "no port"},
		{with(func(t *Token) { t.Expires = time.Unix(-1, 0) }), "expiry"},
	}
	for _, tt := range tests {
		_, err := Parse(tt.in)
		wantLine(t, err, tt.want)
	}
}

func TestValidHub(t *testing.T) {
	for _, s := range []string{"hub.example.org:51820", "HUB:1", "hub.:80", "192.0.2.1:65535", "[2001:db8::1]:443", "a_b.c-d:22", "127.0.0.1:51820", "1.2.3.example:9"} {
		if err := ValidHub(s); err != nil {
			t.Error(err)
		}
	}
	for _, s := range []string{"", ":1", "hub", "hub:", "hub:0", "hub:65536", "hub:080", "hub:http", "hub:-1", "::1:22", "[::1:22", "::1]:22", "[hub]:22", "[192.0.2.1]:22",
		"[fe80::1%eth0]:22", "0.0.0.0:22", "[::]:22", "224.0.0.1:22", "300.1.2.3:22", "1.2.3:22", "a..b:22", "-a:22", "a b:22", "a/b:22", "a\n:22", strings.Repeat("a", 300) + ":22"} {
		wantLine(t, ValidHub(s), "no address of a hub")
	}
}

func TestSecretHash(t *testing.T) {
	a := sample(t)
	b := Token{ID: a.ID, Secret: a.Secret}
	if a.SecretHash() != b.SecretHash() {
		t.Error("the hash depends on more than ID and secret")
	}
	b.Secret[15] ^= 1
	c := a
	c.ID[0] ^= 1
	if a.SecretHash() == b.SecretHash() || a.SecretHash() == c.SecretHash() {
		t.Error("another secret or ID has the same hash")
	}
}

func TestExpired(t *testing.T) {
	tok := sample(t)
	for now, want := range map[time.Time]bool{epoch().Add(-time.Hour): false, epoch(): false, epoch().Add(time.Second): true} {
		if got := tok.Expired(now); got != want {
			t.Errorf("at %v: got %v, want %v", now, got, want)
		}
	}
	if (Token{}).Expired(epoch()) {
		t.Error("a token that never expires has expired")
	}
}

func TestLogHidesTheSecret(t *testing.T) {
	tok := sample(t)
	var out bytes.Buffer
	slog.New(slog.NewJSONHandler(&out, nil)).Info("made", "token", tok)
	var line struct{ Token map[string]string }
	if err := json.Unmarshal(out.Bytes(), &line); err != nil {
		t.Fatal(err)
	}
	want := map[string]string{"id": fmt.Sprintf("%x", tok.ID), "network": "lab", "site": "paris"}
	if !reflect.DeepEqual(line.Token, want) {
		t.Errorf("got %v, want %v", line.Token, want)
	}
}

func TestRead(t *testing.T) {
	tok := sample(t)
	dir := t.TempDir()
	file, empty := filepath.Join(dir, "token"), filepath.Join(dir, "empty")
	for name, text := range map[string]string{file: tok.String() + "\n", empty: "\n"} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	in := func(s string) io.Reader { return strings.NewReader(s) }
	tests := []struct {
		name, arg, env string
		stdin          io.Reader
		want           string // of the error
	}{
		{"argument", tok.String(), "bad", in(""), ""},
		{"stdin", "-", "bad", in(tok.String() + "\n"), ""},
		{"file", "@" + file, "bad", in(""), ""},
		{"environment", "", tok.String(), in("bad"), ""},
		{"nothing", "", " ", in(tok.String()), "$MESH_TOKEN"},
		{"bad argument", "bad", tok.String(), in(""), "no token"},
		{"bad environment", "", "bad", in(""), "$MESH_TOKEN"},
		{"empty stdin", "-", "", in(""), "standard input is empty"},
		{"endless stdin", "-", "", endless{}, "longer than any token"},
		{"failing stdin", "-", "", iotest.ErrReader(io.ErrClosedPipe), "standard input"},
		{"no file", "@" + dir + "/none", "", in(""), "/none"},
		{"empty file", "@" + empty, "", in(""), "is empty"},
		{"no name", "@", "", in(""), "token: open"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := Read(tt.arg, tt.stdin, tt.env)
			if tt.want != "" {
				wantLine(t, err, tt.want)
			} else if err != nil || !reflect.DeepEqual(got, tok) {
				t.Errorf("got %+v, %v", got, err)
			}
		})
	}
}

// endless is a reader that never ends, such as /dev/zero.
type endless struct{}

func (endless) Read(b []byte) (int, error) {
	for i := range b {
		b[i] = 'x'
	}
	return len(b), nil
}

func FuzzParse(f *testing.F) {
	f.Add(sample(f).String())
	f.Add(" mesh1 ")
	f.Add(reseal(make([]byte, fixedLen+3)))
	f.Fuzz(func(t *testing.T, s string) {
		tok, err := Parse(s)
		if err != nil {
			if strings.ContainsAny(err.Error(), "\r\n") || len(err.Error()) > 500 {
				t.Errorf("error is no line: %q", err)
			}
			return
		}
		again, err := Parse(tok.String())
		if err != nil || !reflect.DeepEqual(again, tok) {
			t.Errorf("%+v does not survive a round trip: %+v, %v", tok, again, err)
		}
	})
}

// FuzzDecode goes behind the checksum, which stops most of what FuzzParse tries.
func FuzzDecode(f *testing.F) {
	raw, _ := encoding().DecodeString(sample(f).String()[len(prefix):])
	f.Add(raw[:len(raw)-checksumLen])
	f.Fuzz(func(t *testing.T, b []byte) {
		tok, err := Parse(reseal(b))
		if err != nil {
			return
		}
		if got := tok.String(); got != reseal(b) {
			t.Errorf("%x is read but written as %s", b, got)
		}
	})
}
