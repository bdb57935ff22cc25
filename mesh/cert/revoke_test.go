package cert

import (
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"
)

func TestRevocationSurvivesJSON(t *testing.T) {
	w := newWorld(t)
	r := must(w.issuer.Revoke(w.node, epoch().Add(1500*time.Millisecond)))
	text := must(json.Marshal(r))
	if len(text) > MaxRevocation/4 {
		t.Errorf("a revocation has %d bytes", len(text))
	}
	var got Revocation
	if err := json.Unmarshal(text, &got); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(got, r) {
		t.Errorf("got %+v, want %+v", got, r)
	}
	if err := got.Verify(w.pin, epoch()); err != nil {
		t.Error(err)
	}
}

func TestRevocationHoldsAfterItsIssuer(t *testing.T) {
	w := newWorld(t)
	r := must(w.issuer.Revoke(w.node, epoch()))
	for _, now := range []time.Time{epoch(), epoch().Add(-23 * time.Hour), w.issuer.Cert.NotAfter.Add(time.Hour)} {
		if err := r.Verify(w.pin, now); err != nil {
			t.Errorf("at %v: %v", now, err)
		}
	}
	err := r.Verify(w.pin, epoch().Add(-25*time.Hour))
	wantLine(t, err, "node b1", "clock")
	if !errors.Is(err, ErrNotYetValid) {
		t.Errorf("got %v, want ErrNotYetValid", err)
	}
	if r.Moot(epoch().Add(Lifetime)) || !r.Moot(epoch().Add(Lifetime+25*time.Hour)) {
		t.Error("Moot comes at the wrong time")
	}
}

func TestRevocationRefusesForgery(t *testing.T) {
	w, other := newWorld(t), newWorld(t)
	tests := map[string]func(*Revocation){
		"other node":      func(r *Revocation) { r.ID[0] ^= 1 },
		"other name":      func(r *Revocation) { r.Name = "b2" },
		"other time":      func(r *Revocation) { r.At = r.At.Add(time.Second) },
		"before issuer":   func(r *Revocation) { r.At = epoch().Add(-time.Hour) },
		"fraction":        func(r *Revocation) { r.At = r.At.Add(1) },
		"signature":       func(r *Revocation) { r.Sig[0] ^= 1 },
		"no signature":    func(r *Revocation) { r.Sig = nil },
		"no chain":        func(r *Revocation) { r.Chain = nil },
		"other network":   func(r *Revocation) { r.Chain = other.chain[1:] },
		"signed by leaf":  func(r *Revocation) { r.Chain = [][]byte{w.chain[0], w.chain[2]} },
		"long chain":      func(r *Revocation) { r.Chain = w.chain },
		"name of no node": func(r *Revocation) { r.Name = "b1\nb2" },
	}
	for name, spoil := range tests {
		r := must(w.issuer.Revoke(w.node, epoch()))
		spoil(&r)
		err := r.Verify(w.pin, epoch())
		if !errors.Is(err, ErrUntrusted) {
			t.Errorf("%s: got %v, want ErrUntrusted", name, err)
		}
	}
	// A node signs with its own key what only an issuer may.
	leaf := &Issuer{Cert: must(parse(w.chain[0])), Key: w.keys.Sign, RootDER: w.chain[2]}
	if _, err := leaf.Revoke(w.node, epoch()); !errors.Is(err, ErrUntrusted) {
		t.Errorf("a node revoked another: %v", err)
	}
}

func TestRevocationJSONIsBounded(t *testing.T) {
	var r Revocation
	for _, s := range []string{`{}`, `null`, `"x"`, `{"id":"` + strings.Repeat("A", MaxRevocation) + `"}`} {
		if err := json.Unmarshal([]byte(s), &r); err == nil {
			t.Errorf("%.20s was taken", s)
		}
	}
}

func FuzzRevocation(f *testing.F) {
	w := newWorld(f)
	f.Add(must(json.Marshal(must(w.issuer.Revoke(w.node, epoch())))))
	f.Add([]byte(`{"at":"0000-01-01T00:00:00+23:00"}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		var r, again Revocation
		if r.UnmarshalJSON(b) != nil {
			return
		}
		if err := json.Unmarshal(must(json.Marshal(r)), &again); err != nil || !reflect.DeepEqual(r, again) {
			t.Errorf("%+v does not survive a round trip: %+v, %v", r, again, err)
		}
		if err := r.Verify(FingerprintOf(r.Chain[1]), epoch()); err != nil {
			wantLine(t, err)
		}
	})
}
