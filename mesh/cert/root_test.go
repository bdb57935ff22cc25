package cert

import (
	"bytes"
	"crypto/ed25519"
	"errors"
	"net/netip"
	"testing"
	"time"

	"github.com/meshmpi/meshmpi/mesh/peer"
)

func TestRootPinsTheNetwork(t *testing.T) {
	want := testNetwork()
	root := must(NewRoot(want, epoch()))
	want.Root = root.Fingerprint()
	got, err := NetworkOf(root.Cert.Raw)
	if err != nil || got != want {
		t.Errorf("NetworkOf = %+v, %v; want %+v", got, err, want)
	}
	if got := root.Cert.NotAfter; !got.Equal(epoch().Add(RootLifetime)) {
		t.Errorf("root holds until %v", got)
	}
}

func TestNewRootRefuses(t *testing.T) {
	tests := map[string]func(*peer.Network){
		"network name":       func(n *peer.Network) { n.Name = "Lab!" },
		"domain":             func(n *peer.Network) { n.Domain = "mesh." },
		"no IPv4 range":      func(n *peer.Network) { n.CIDR4 = netip.Prefix{} },
		"no IPv4 range: wan": func(n *peer.Network) { n.CIDR4 = netip.MustParsePrefix("100.80.0.1/16") },
		"8 to 30 bits":       func(n *peer.Network) { n.CIDR4 = netip.MustParsePrefix("100.80.0.0/31") },
		"reserved":           func(n *peer.Network) { n.CIDR4 = netip.MustParsePrefix("127.0.0.0/8") },
		"224.0.0.0/8 is res": func(n *peer.Network) { n.CIDR4 = netip.MustParsePrefix("224.0.0.0/8") },
		"no unique local":    func(n *peer.Network) { n.CIDR6 = netip.MustParsePrefix("2001:db8::/64") },
		"a /64":              func(n *peer.Network) { n.CIDR6 = netip.MustParsePrefix("fd00::/48") },
	}
	for want, spoil := range tests {
		n := testNetwork()
		spoil(&n)
		_, err := NewRoot(n, epoch())
		wantLine(t, err, want)
	}
}

func TestRootSurvivesPEM(t *testing.T) {
	root := must(NewRoot(testNetwork(), epoch()))
	crt, key, err := root.MarshalPEM()
	if err != nil {
		t.Fatal(err)
	}
	got, err := ParseRoot(crt, key)
	if err != nil || !got.Key.Equal(root.Key) || got.Fingerprint() != root.Fingerprint() {
		t.Fatalf("root changed on the way through PEM: %v", err)
	}
	offline := must(ParseRoot(crt, nil))
	if offline.Key != nil {
		t.Error("an offline root has a key")
	}
	_, err = offline.NewIssuer("h1", epoch())
	wantLine(t, err, "offline", "h1", "lab")
	if crt, key, err := offline.MarshalPEM(); err != nil || key != nil || len(crt) == 0 {
		t.Errorf("offline root: key %q, %v", key, err)
	}
	_, otherKey, _ := must(NewRoot(testNetwork(), epoch())).MarshalPEM()
	_, err = ParseRoot(crt, otherKey)
	wantLine(t, err, "another certificate's key")
}

func TestIssuerSurvivesPEM(t *testing.T) {
	w := newWorld(t)
	crt, key, err := w.issuer.MarshalPEM()
	if err != nil {
		t.Fatal(err)
	}
	got, err := ParseIssuer(crt, key)
	if err != nil || !got.Key.Equal(w.issuer.Key) || !bytes.Equal(got.Cert.Raw, w.issuer.Cert.Raw) || !bytes.Equal(got.RootDER, w.issuer.RootDER) {
		t.Fatalf("issuer changed on the way through PEM: %v", err)
	}
	_, err = ParseIssuer(EncodePEM(w.chain[:1]), key)
	wantLine(t, err, "the root's")
	_, err = ParseIssuer(EncodePEM([][]byte{w.chain[0], w.chain[2]}), key)
	wantLine(t, err, "no issuer")
	_, other, _ := newWorld(t).issuer.MarshalPEM()
	_, err = ParseIssuer(crt, other)
	wantLine(t, err, "another certificate's key")
}

func TestCertifyKeepsTheHubsKeyAtTheHub(t *testing.T) {
	w := newWorld(t)
	pub, key, _ := ed25519.GenerateKey(nil)
	c, err := w.root.Certify("h2", pub, epoch())
	if err != nil {
		t.Fatal(err)
	}
	second := &Issuer{Cert: c, Key: key, RootDER: w.root.Cert.Raw}
	chain, err := second.Issue(w.node, epoch())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Verify(chain, w.pin, epoch()); err != nil {
		t.Errorf("a node of the second hub is refused under the old pin: %v", err)
	}
}

func TestNothingOutlivesItsIssuer(t *testing.T) {
	w := newWorld(t)
	late := w.root.Cert.NotAfter.Add(-10 * 24 * time.Hour)
	issuer := must(w.root.NewIssuer("h1", late))
	if got, want := issuer.Cert.NotAfter, w.root.Cert.NotAfter; !got.Equal(want) {
		t.Errorf("issuer holds until %v, want %v", got, want)
	}
	n, err := Verify(must(issuer.Issue(w.node, late)), w.pin, late)
	if err != nil || !n.NotAfter.Equal(w.root.Cert.NotAfter) {
		t.Errorf("leaf holds until %v, %v", n.NotAfter, err)
	}
	_, err = issuer.Issue(w.node, w.root.Cert.NotAfter.Add(time.Second))
	wantLine(t, err, "this hub's issuer expired on", "clock")
	if !errors.Is(err, ErrExpired) {
		t.Errorf("got %v, want ErrExpired", err)
	}
	if _, err = w.root.NewIssuer("h1", w.root.Cert.NotAfter.Add(time.Second)); !errors.Is(err, ErrExpired) {
		t.Errorf("got %v, want ErrExpired", err)
	}
}

func FuzzNetworkOf(f *testing.F) {
	w := newWorld(f)
	for _, der := range w.chain {
		f.Add(der)
	}
	f.Fuzz(func(t *testing.T, der []byte) {
		n, err := NetworkOf(der)
		if err != nil {
			return
		}
		if n.Root != FingerprintOf(der) {
			t.Error("wrong fingerprint")
		}
		if err := checkNetwork(n); err != nil {
			t.Errorf("NetworkOf took %+v: %v", n, err)
		}
	})
}

// FuzzAuthority reads the files of a root and of an issuer.
func FuzzAuthority(f *testing.F) {
	w := newWorld(f)
	crt, key, _ := w.root.MarshalPEM()
	f.Add(crt, key)
	f.Add(crt, []byte(nil))
	crt, key, _ = w.issuer.MarshalPEM()
	f.Add(crt, key)
	f.Fuzz(func(t *testing.T, crt, key []byte) {
		if r, err := ParseRoot(crt, key); err == nil {
			crt, key, err := r.MarshalPEM()
			if err != nil {
				t.Fatal(err)
			}
			if again := must(ParseRoot(crt, key)); again.Fingerprint() != r.Fingerprint() || !again.Key.Equal(r.Key) {
				t.Error("root does not survive a round trip")
			}
		}
		if i, err := ParseIssuer(crt, key); err == nil {
			crt, key, err := i.MarshalPEM()
			if err != nil {
				t.Fatal(err)
			}
			if again := must(ParseIssuer(crt, key)); !bytes.Equal(again.Cert.Raw, i.Cert.Raw) || !again.Key.Equal(i.Key) {
				t.Error("issuer does not survive a round trip")
			}
		}
	})
}
