package hub

import (
	"bytes"
	"crypto/ecdh"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/meshmpi/meshmpi/mesh/cert"
	"github.com/meshmpi/meshmpi/mesh/peer"
)

func TestFrames(t *testing.T) {
	w := newNetwork(t, "100.80.0.0/16")
	var buf bytes.Buffer
	sent := []message{
		{Type: typePing, Time: time.Unix(1, 5).UTC()},
		{Type: typeRecords, Full: true, More: true, Records: []record{{ID: peer.ID{1}, Chain: *w.chain.Load(), Up: true, Advertise: "h:1", Cores: 3}}},
		{Type: typeSignal, Peer: &peer.ID{2}, Data: bytes.Repeat([]byte{0xff}, peer.MaxSignal)},
		{Type: "from a later version"},
	}
	for _, m := range sent {
		check(t, writeMessage(&buf, m))
	}
	r := iotest.OneByteReader(&buf)
	for _, want := range sent {
		got, err := readMessage(r, maxNodeFrame)
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("got %+v, %v; want %+v", got, err, want)
		}
	}
	if _, err := readMessage(r, maxNodeFrame); err != io.EOF {
		t.Errorf("at the end: %v", err)
	}
}

func TestFrameLimits(t *testing.T) {
	for name, in := range map[string]string{
		"longer than allowed": "\x00\x00\x40\x01{}", "longest": "\xff\xff\xff\xff", "cut in the length": "\x00\x00",
		"cut": "\x00\x00\x00\x09{}", "empty": "\x00\x00\x00\x00", "no object": "\x00\x00\x00\x01[", "two": "\x00\x00\x00\x04{}{}",
		"wrong type": "\x00\x00\x00\x0a{\"type\":1}",
	} {
		m, err := readMessage(strings.NewReader(in), maxNodeFrame)
		if err == nil {
			t.Errorf("%s: read %+v", name, m)
		}
		oneLine(t, err)
	}
	if err := writeMessage(io.Discard, message{Data: make([]byte, maxControlFrame)}); err == nil {
		t.Error("wrote a frame that nobody reads")
	}
}

// TestLongestRecords has the fullest frame of records fit.
func TestLongestRecords(t *testing.T) {
	long := strings.Repeat("n", 63)
	root, err := cert.NewRoot(peer.Network{Name: long, Domain: long + "." + strings.Repeat("d", 61), CIDR4: newNetwork(t, "100.80.0.0/16").network.CIDR4, CIDR6: newNetwork(t, "100.80.0.0/16").network.CIDR6}, time.Now())
	check(t, err)
	n, err := cert.NetworkOf(root.Cert.Raw)
	check(t, err)
	issuer, err := root.NewIssuer(long, time.Now())
	check(t, err)
	_, chain, err := AdmitFirst(NewMemoryStore(), n, issuer, keys(t), long, long, time.Now())
	check(t, err)
	m := message{Type: typeRecords, Full: true, More: true}
	for range recordsPerFrame {
		m.Records = append(m.Records, record{Chain: chain, Up: true, Advertise: strings.Repeat("a", 255), Cores: maxCores})
	}
	var buf bytes.Buffer
	check(t, writeMessage(&buf, m))
	t.Logf("%d records take %d of %d bytes", recordsPerFrame, buf.Len(), maxControlFrame)
}

func TestErrorsOverTheWire(t *testing.T) {
	for _, kind := range []error{ErrTokenUnknown, ErrTokenUsed, ErrTokenExpired, ErrTokenRevoked, ErrNameTaken, ErrFull, ErrRevoked, ErrRefused, ErrNotNow} {
		var buf bytes.Buffer
		check(t, writeMessage(&buf, errorMessage(fmt.Errorf("%w; do this", kind))))
		m, err := readMessage(&buf, maxNodeFrame)
		check(t, err)
		if back := m.err(); !errors.Is(back, kind) || back.Error() != kind.Error()+"; do this" {
			t.Errorf("%v came as %v", kind, back)
		}
	}
	if err := (message{Code: "of a later version", Text: "\x1b[2Jred\nalert" + strings.Repeat("ü", 1000)}).err(); !errors.Is(err, ErrRefused) || len(err.Error()) > 2*maxText {
		t.Errorf("got %q", err)
	} else {
		oneLine(t, err)
	}
}

func TestAnnouncements(t *testing.T) {
	for _, test := range []struct {
		m  message
		ok bool
	}{
		{message{Type: typeAnnounce}, true},
		{message{Type: typeAnnounce, Advertise: "hub.example:51820", Cores: 128}, true},
		{message{Type: typePing}, false},
		{message{Type: typeAnnounce, Cores: -1}, false},
		{message{Type: typeAnnounce, Cores: 1 << 40}, false},
		{message{Type: typeAnnounce, Advertise: "\x1b[2Jhost:1"}, false},
		{message{Type: typeAnnounce, Advertise: strings.Repeat("a", 300) + ":1"}, false},
	} {
		err := test.m.checkAnnounce()
		if (err == nil) != test.ok {
			t.Errorf("%+v: %v", test.m, err)
		}
		oneLine(t, err)
	}
}

func TestRecordsAreVerified(t *testing.T) {
	w, other := newNetwork(t, "100.80.0.0/16"), newNetwork(t, "100.80.0.0/16")
	chain, now := *w.chain.Load(), time.Now()
	good := record{ID: w.self.ID, Chain: chain, Up: true, Advertise: "h:1", Cores: 2}
	r, err := good.verified(w.network.Root, now)
	if err != nil || r.Node.Name != "hub" || !r.Up || r.Cores != 2 {
		t.Errorf("a good record: %+v, %v", r, err)
	}
	late := now.Add(2 * cert.Lifetime)
	for _, test := range []struct {
		name   string
		change func(*record)
		now    time.Time
		ok     bool
	}{
		{"expired", func(*record) {}, late, false},
		{"revoked and expired", func(r *record) { r.Revoked = true }, late, true},
		{"removed", func(r *record) { *r = record{ID: r.ID, Removed: true} }, late, true},
		{"another's certificate", func(r *record) { r.ID[0]++ }, now, false},
		{"another network's", func(r *record) { r.ID, r.Chain = other.self.ID, *other.chain.Load() }, now, false},
		{"another network's, revoked", func(r *record) { r.ID, r.Chain, r.Revoked = other.self.ID, *other.chain.Load(), true }, now, false},
		{"no certificate", func(r *record) { r.Chain = nil }, now, false},
		{"no address", func(r *record) { r.Advertise = "nowhere" }, now, false},
		{"too many cores", func(r *record) { r.Cores = maxCores + 1 }, now, false},
	} {
		r := good
		test.change(&r)
		if _, err := r.verified(w.network.Root, test.now); (err == nil) != test.ok {
			t.Errorf("%s: %v", test.name, err)
		}
	}
}

func FuzzMessage(f *testing.F) {
	for _, m := range []message{
		{Type: typeChallenge, Key: make([]byte, 32), Nonce: make([]byte, 32)}, {Type: typeRecords, Records: []record{{Up: true}}},
		{Type: typeSignal, Peer: &peer.ID{}, Data: []byte("x")}, {Type: typeError, Code: "full", Text: "no\x00"}, {Type: typeGrant, Grant: json.RawMessage(`{}`)},
		{Type: typeAnnounce, Advertise: "h:1", Cores: 8}, {Type: typeLimits, Limits: json.RawMessage(`{"version":1}`)},
	} {
		var buf bytes.Buffer
		check(f, writeMessage(&buf, m))
		f.Add(buf.Bytes())
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := readMessage(bytes.NewReader(b), maxNodeFrame)
		if err != nil {
			_, _ = decodeMessage(b)
			return
		}
		oneLine(t, m.err())
		oneLine(t, m.checkAnnounce())
		var buf bytes.Buffer
		check(t, writeMessage(&buf, m))
		again, err := readMessage(&buf, maxControlFrame)
		if err != nil {
			t.Fatalf("what was read cannot be read again: %v", err)
		}
		if m.Time.Equal(again.Time) {
			m.Time, again.Time = time.Time{}, time.Time{}
		}
		m.Grant, again.Grant, m.Limits, again.Limits = nil, nil, nil, nil // written without their white space
		if a, b := fmt.Sprintf("%+v", m), fmt.Sprintf("%+v", again); len(m.Records) == 0 && m.Peer == nil && m.Revoked == nil && a != b {
			t.Fatalf("%s became %s", a, b)
		}
	})
}

func FuzzRecord(f *testing.F) {
	w := newNetwork(f, "100.80.0.0/16")
	for _, r := range []record{{ID: w.self.ID, Chain: *w.chain.Load(), Up: true}, {ID: w.self.ID, Removed: true}, {ID: w.self.ID, Chain: *w.chain.Load(), Revoked: true}} {
		b, err := json.Marshal(r)
		check(f, err)
		f.Add(b)
	}
	now := time.Now()
	f.Fuzz(func(t *testing.T, b []byte) {
		var r record
		if json.Unmarshal(b, &r) != nil {
			return
		}
		got, err := r.verified(w.network.Root, now)
		if err == nil && !got.Removed && got.Node.ID != w.self.ID {
			t.Fatalf("believes in %v, whom nobody certified", got.Node)
		}
	})
}

// FuzzJudge has strangers say anything to the hub: in fields of their own
// choosing, with and without the proofs being right.
func FuzzJudge(f *testing.F) {
	w := newNetwork(f, "100.80.0.0/16")
	h, err := New(Config{Network: w.network, Self: w.self, Keys: w.keys, Chain: func() [][]byte { return *w.chain.Load() }, Issuer: w.issuer, Store: w.store, Advertise: []string{"h:1"}})
	check(f, err)
	tok, err := h.CreateToken("", 1, 0)
	check(f, err)
	k := keys(f)
	id := k.ID()
	f.Add(tok.String(), "b1", id[:], []byte(k.Public()), []byte{}, []byte{}, true)
	f.Add("", "", []byte{}, []byte{}, []byte{1}, []byte{2}, false)
	f.Add("mesh1AAAA", "\n", make([]byte, 32), make([]byte, 32), make([]byte, 32), make([]byte, 64), false)
	f.Fuzz(func(t *testing.T, token, name string, key, sign, proof, sig []byte, honest bool) {
		ephemeral, err := ecdh.X25519().GenerateKey(rand.Reader)
		check(t, err)
		challenge := message{Type: typeChallenge, Key: ephemeral.PublicKey().Bytes(), Nonce: make([]byte, 32)}
		m := message{Type: typeJoin, Token: token, Name: name, Key: key, Sign: sign, Proof: proof, Sig: sig}
		if honest {
			m.Key, m.Sign = id[:], k.Public()
			shared, err := agree(k.WG[:], challenge.Key)
			check(t, err)
			said := transcript(challenge, m)
			m.Proof, m.Sig = prove(shared, said), ed25519.Sign(k.Sign, said)
		}
		welcome, err := h.judge(ephemeral, challenge, m)
		if err == nil && (!honest || token != tok.String()) {
			t.Fatalf("admitted %q with token %q", name, token)
		}
		if err != nil {
			oneLine(t, errorMessage(err).err())
		} else if n, err := cert.Verify(welcome.Chain, w.network.Root, time.Now()); err != nil || n.ID != id || n.Name != name {
			t.Fatalf("certified %v, %v", n, err)
		}
	})
}
