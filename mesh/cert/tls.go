package cert

import (
	"crypto/tls"
	"time"

	"github.com/meshmpi/meshmpi/mesh/peer"
)

// TLSConfig is for either end of a connection between two nodes: TLS 1.3, both
// sides present their chain and check the other's with Verify at now(). It uses
// no server names: NodeOf tells who the other end is, and the caller decides
// whether that is whom it wanted. A client learns only with its first Read that
// the server refused it. With alpn given, connections that agree on none of
// those fail. The root rides along in the chain; sessions are not resumed.
func TLSConfig(k Keys, chain [][]byte, root peer.Fingerprint, now func() time.Time, alpn ...string) *tls.Config {
	return RenewingTLSConfig(k, func() [][]byte { return chain }, root, now, alpn...)
}

// RenewingTLSConfig is TLSConfig for those who outlive their certificate: every
// handshake asks for the chain, from many goroutines.
func RenewingTLSConfig(k Keys, chain func() [][]byte, root peer.Fingerprint, now func() time.Time, alpn ...string) *tls.Config {
	cfg := HubTLSConfig(k, chain, alpn...)
	cfg.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return certificate(k, chain()), nil }
	cfg.ClientAuth = tls.RequireAnyClientCert
	cfg.InsecureSkipVerify = true // VerifyConnection below checks more than the library would
	cfg.VerifyConnection = func(cs tls.ConnectionState) error {
		if _, _, err := NodeOf(cs, root, now()); err != nil {
			return err
		}
		return checkALPN(cs, alpn)
	}
	return cfg
}

// HubTLSConfig is for the hub's end of a connection from somebody who has no
// certificate yet; PinnedTLSConfig is for the other. It says who the hub is and
// asks nothing of the client: the token has to.
func HubTLSConfig(k Keys, chain func() [][]byte, alpn ...string) *tls.Config {
	cfg := base(alpn)
	cfg.GetCertificate = func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return certificate(k, chain()), nil }
	cfg.VerifyConnection = func(cs tls.ConnectionState) error { return checkALPN(cs, alpn) }
	return cfg
}

// PinnedTLSConfig is for a client that joins: it has no certificate yet and
// believes any hub of the network whose root is pinned.
func PinnedTLSConfig(root peer.Fingerprint, now func() time.Time, alpn ...string) *tls.Config {
	cfg := base(alpn)
	cfg.InsecureSkipVerify = true // VerifyConnection below checks more than the library would
	cfg.VerifyConnection = func(cs tls.ConnectionState) error {
		n, _, err := NodeOf(cs, root, now())
		if err != nil {
			return err
		}
		if !n.Roles.Has(peer.RoleHub) {
			return untrusted("node %s is no hub; check the hub's address in the token", n.Name)
		}
		return checkALPN(cs, alpn)
	}
	return cfg
}

// NodeOf returns the node at the other end of a connection and its chain, once
// Verify believes it at now. It works before and after the handshake's end, so
// that a long connection can be checked again.
func NodeOf(cs tls.ConnectionState, root peer.Fingerprint, now time.Time) (peer.Node, [][]byte, error) {
	if len(cs.PeerCertificates) == 0 {
		return peer.Node{}, nil, untrusted("the other end showed no certificate")
	}
	if len(cs.PeerCertificates) > MaxChain {
		return peer.Node{}, nil, untrusted("the other end showed %d certificates, more than %d", len(cs.PeerCertificates), MaxChain)
	}
	chain := make([][]byte, len(cs.PeerCertificates))
	for i, c := range cs.PeerCertificates {
		chain[i] = c.Raw
	}
	n, err := Verify(chain, root, now)
	if err != nil {
		return peer.Node{}, nil, err
	}
	return n, chain, nil
}

func base(alpn []string) *tls.Config {
	return &tls.Config{
		MinVersion:             tls.VersionTLS13,
		NextProtos:             alpn,
		SessionTicketsDisabled: true,
	}
}

func certificate(k Keys, chain [][]byte) *tls.Certificate {
	return &tls.Certificate{Certificate: chain, PrivateKey: k.Sign}
}

// checkALPN refuses a connection without a protocol where one was asked for: the
// library lets a silent other end pass (RFC 7301 §3.2 leaves that open).
func checkALPN(cs tls.ConnectionState, alpn []string) error {
	if len(alpn) > 0 && cs.NegotiatedProtocol == "" {
		return untrusted("the other end speaks none of %q", alpn)
	}
	return nil
}
