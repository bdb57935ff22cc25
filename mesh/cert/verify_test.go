package cert

import (
	"crypto/ed25519"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"net"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/meshmpi/meshmpi/mesh/peer"
)

func TestVerifyReturnsWhatWasIssued(t *testing.T) {
	w := newWorld(t)
	got, err := Verify(w.chain, w.pin, epoch())
	if err != nil {
		t.Fatal(err)
	}
	if !equalNodes(got, w.node) {
		t.Errorf("got  %+v\nwant %+v", got, w.node)
	}
	for i, der := range w.chain {
		if len(der) > 1024 {
			t.Errorf("certificate %d has %d bytes; handshakes want them small", i, len(der))
		}
	}
}

func TestVerifyKnowsTheTime(t *testing.T) {
	w := newWorld(t)
	last := epoch().Add(Lifetime)
	tests := []struct {
		name string
		now  time.Time
		want error
		line []string
	}{
		{"at the first instant", epoch().Add(-Backdate), nil, nil},
		{"at the last instant", last, nil, nil},
		{"too late", last.Add(time.Second), ErrExpired, []string{"node b1's certificate expired on 2026-06-03 12:00 UTC", "check the clock of both nodes", "join again"}},
		{"too early", epoch().Add(-Backdate - time.Second), ErrNotYetValid, []string{"node b1", "2026-05-04 11:55 UTC", "clock"}},
		{"clock not set", time.Unix(0, 0), ErrNotYetValid, []string{"1970-01-01"}},
	}
	for _, tt := range tests {
		_, err := Verify(w.chain, w.pin, tt.now)
		if !errors.Is(err, tt.want) {
			t.Errorf("%s: got %v, want %v", tt.name, err, tt.want)
		}
		if tt.want != nil {
			wantLine(t, err, tt.line...)
		}
	}
	if n, err := Inspect(w.chain, w.pin); err != nil || n.Name != "b1" {
		t.Errorf("Inspect = %v, %v", n.Name, err)
	}
}

func TestVerifyRefusesStrangeChains(t *testing.T) {
	w, other := newWorld(t), newWorld(t)
	flip := func(der []byte) []byte {
		der = slices.Clone(der)
		der[len(der)-1] ^= 1 // inside the signature
		return der
	}
	tests := map[string][][]byte{
		"empty":              {},
		"leaf alone":         w.chain[:1],
		"no issuer":          {w.chain[0], w.chain[2]},
		"two issuers":        {w.chain[0], w.chain[1], w.chain[1], w.chain[2]},
		"five":               slices.Concat(w.chain[:2], w.chain),
		"reversed":           {w.chain[2], w.chain[1], w.chain[0]},
		"issuer as leaf":     {w.chain[1], w.chain[1], w.chain[2]},
		"another network":    other.chain,
		"another's leaf":     {other.chain[0], w.chain[1], w.chain[2]},
		"another's issuer":   {other.chain[0], other.chain[1], w.chain[2]},
		"bad leaf signature": {flip(w.chain[0]), w.chain[1], w.chain[2]},
		"bad issuer":         {w.chain[0], flip(w.chain[1]), w.chain[2]},
		"oversized":          {make([]byte, MaxDER+1), w.chain[1], w.chain[2]},
		"not a certificate":  {[]byte("x"), w.chain[1], w.chain[2]},
	}
	for name, chain := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := Verify(chain, w.pin, epoch())
			wantLine(t, err)
			if !errors.Is(err, ErrUntrusted) {
				t.Errorf("got %v, want ErrUntrusted", err)
			}
		})
	}
}

// TestVerifyRefusesDishonestHubs signs, with a hub's genuine key, leaves that a
// hub must not make.
func TestVerifyRefusesDishonestHubs(t *testing.T) {
	w := newWorld(t)
	tests := map[string]func(*x509.Certificate){
		"other name":        func(c *x509.Certificate) { c.Subject.CommonName = "b2" },
		"name in another":   func(c *x509.Certificate) { c.DNSNames = []string{"b1.evil.example", "b1.paris.evil.example"} },
		"more names":        func(c *x509.Certificate) { c.DNSNames = append(c.DNSNames, "b2.mesh.internal") },
		"other site":        func(c *x509.Certificate) { c.DNSNames[1] = "b1.rome.mesh.internal" },
		"no names":          func(c *x509.Certificate) { c.DNSNames = nil },
		"bad name":          func(c *x509.Certificate) { c.Subject.CommonName = "b1\n" },
		"foreign address":   func(c *x509.Certificate) { c.IPAddresses[0] = net.IPv4(10, 0, 0, 1) },
		"foreign address 6": func(c *x509.Certificate) { c.IPAddresses[1] = net.ParseIP("fd99::1") },
		"swapped addresses": func(c *x509.Certificate) { slices.Reverse(c.IPAddresses) },
		"more addresses":    func(c *x509.Certificate) { c.IPAddresses = append(c.IPAddresses, net.IPv4(100, 80, 0, 9)) },
		"network address":   func(c *x509.Certificate) { c.IPAddresses[0] = net.IPv4(100, 80, 0, 0) },
		"broadcast":         func(c *x509.Certificate) { c.IPAddresses[0] = net.IPv4(100, 80, 255, 255) },
		"an email":          func(c *x509.Certificate) { c.EmailAddresses = []string{"a@mesh.internal"} },
		"authority":         func(c *x509.Certificate) { c.IsCA, c.KeyUsage = true, c.KeyUsage|x509.KeyUsageCertSign },
		"no client use":     func(c *x509.Certificate) { c.ExtKeyUsage = c.ExtKeyUsage[1:] },
		"a year":            func(c *x509.Certificate) { c.NotAfter = epoch().Add(365 * 24 * time.Hour) },
		"beyond the issuer": func(c *x509.Certificate) { c.NotAfter = w.issuer.Cert.NotAfter.Add(time.Second) },
		"no extension":      func(c *x509.Certificate) { c.ExtraExtensions = nil },
		"cut extension":     func(c *x509.Certificate) { c.ExtraExtensions[0].Value = c.ExtraExtensions[0].Value[:9] },
		"newer version":     withNodeExt(nodeExt{2, w.node.ID[:], "paris", 0}),
		"roles":             withNodeExt(nodeExt{1, w.node.ID[:], "paris", 256}),
		"short key":         withNodeExt(nodeExt{1, w.node.ID[:31], "paris", 0}),
		"no key":            withNodeExt(nodeExt{1, make([]byte, 32), "paris", 0}),
		"extension's site":  withNodeExt(nodeExt{1, w.node.ID[:], "rome", 0}),
	}
	for name, spoil := range tests {
		t.Run(name, func(t *testing.T) {
			leaf := must(x509.ParseCertificate(w.chain[0]))
			forged := &x509.Certificate{
				Subject: pkix.Name{CommonName: leaf.Subject.CommonName}, NotBefore: leaf.NotBefore, NotAfter: leaf.NotAfter,
				KeyUsage: leaf.KeyUsage, ExtKeyUsage: leaf.ExtKeyUsage, BasicConstraintsValid: true,
				DNSNames: leaf.DNSNames, IPAddresses: leaf.IPAddresses,
				ExtraExtensions: []pkix.Extension{must(extension(oidNode(), nodeExt{1, w.node.ID[:], "paris", 2}))},
			}
			honest := must(create(forged, w.issuer.Cert, w.node.SignKey, w.issuer.Key)).Raw
			if _, err := Verify([][]byte{honest, w.chain[1], w.chain[2]}, w.pin, epoch()); err != nil {
				t.Fatalf("the template itself is refused: %v", err)
			}
			spoil(forged)
			der := must(create(forged, w.issuer.Cert, w.node.SignKey, w.issuer.Key)).Raw
			_, err := Verify([][]byte{der, w.chain[1], w.chain[2]}, w.pin, epoch())
			wantLine(t, err)
			if !errors.Is(err, ErrUntrusted) {
				t.Errorf("got %v, want ErrUntrusted", err)
			}
		})
	}
}

func withNodeExt(v nodeExt) func(*x509.Certificate) {
	return func(c *x509.Certificate) { c.ExtraExtensions[0] = must(extension(oidNode(), v)) }
}

// TestNameConstraintsBindIssuers gives a hub an issuer for other names and
// addresses than the network's: what it signs is refused.
func TestNameConstraintsBindIssuers(t *testing.T) {
	w := newWorld(t)
	_, all4, _ := net.ParseCIDR("100.80.0.0/16")
	_, some4, _ := net.ParseCIDR("100.80.128.0/17")
	_, all6, _ := net.ParseCIDR("fd12:3456:789a:1::/64")
	tests := []struct {
		name    string
		domain  string
		four    *net.IPNet
		trusted bool
	}{
		{"the network's own", "mesh.internal", all4, true},
		{"other domain", "other.internal", all4, false},
		{"other addresses", "mesh.internal", some4, false},
	}
	for _, tt := range tests {
		pub, key, _ := ed25519.GenerateKey(nil)
		c := must(create(&x509.Certificate{
			NotBefore: epoch().Add(-Backdate), NotAfter: epoch().Add(IssuerLifetime), KeyUsage: x509.KeyUsageCertSign,
			BasicConstraintsValid: true, IsCA: true, MaxPathLenZero: true, PermittedDNSDomainsCritical: true,
			PermittedDNSDomains: []string{tt.domain}, PermittedIPRanges: []*net.IPNet{tt.four, all6},
		}, w.root.Cert, pub, w.root.Key))
		_, err := (&Issuer{c, key, w.root.Cert.Raw}).Issue(w.node, epoch())
		if tt.trusted != (err == nil) || err != nil && !errors.Is(err, ErrUntrusted) {
			t.Errorf("%s: got %v", tt.name, err)
		}
	}
	got := w.issuer.Cert
	if !got.PermittedDNSDomainsCritical || !slices.Equal(got.PermittedDNSDomains, []string{"mesh.internal"}) ||
		len(got.PermittedIPRanges) != 2 || !got.MaxPathLenZero || got.MaxPathLen != 0 {
		t.Errorf("the issuer's constraints are %v %v, path length %d", got.PermittedDNSDomains, got.PermittedIPRanges, got.MaxPathLen)
	}
}

func TestIssueRefuses(t *testing.T) {
	w := newWorld(t)
	tests := map[string]func(*peer.Node){
		"node name":           func(n *peer.Node) { n.Name = "B1" },
		"site name":           func(n *peer.Node) { n.Site = "" },
		"no WireGuard key":    func(n *peer.Node) { n.ID = peer.ID{} },
		"no Ed25519 key":      func(n *peer.Node) { n.SignKey = n.SignKey[:31] },
		"is not one of 100.8": func(n *peer.Node) { n.Addr4 = netip.MustParseAddr("10.0.0.1") },
		"invalid IP is not":   func(n *peer.Node) { n.Addr6 = netip.Addr{} },
	}
	for want, spoil := range tests {
		n := w.node
		spoil(&n)
		_, err := w.issuer.Issue(n, epoch())
		wantLine(t, err, want)
	}
}

func FuzzVerify(f *testing.F) {
	w := newWorld(f)
	f.Add(w.chain[0], w.chain[1], w.chain[2])
	f.Add(w.chain[1], w.chain[2], w.chain[2])
	f.Fuzz(func(t *testing.T, leaf, issuer, root []byte) {
		n, err := Verify([][]byte{leaf, issuer, root}, FingerprintOf(root), epoch())
		if err != nil {
			if !errors.Is(err, ErrUntrusted) && !errors.Is(err, ErrExpired) && !errors.Is(err, ErrNotYetValid) {
				t.Errorf("error %v is of no kind", err)
			}
			return
		}
		if err := checkNode(n, must(NetworkOf(root))); err != nil {
			t.Error(err)
		}
	})
}

func BenchmarkVerify(b *testing.B) {
	w := newWorld(b)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Verify(w.chain, w.pin, epoch()); err != nil {
			b.Fatal(err)
		}
	}
}
