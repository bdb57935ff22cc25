// Package token is the string that an administrator hands to whoever sets up a
// new node. It says which network to join (the root's fingerprint), where its
// hubs are, in which site the node stands, and holds the secret that a hub asks
// for. It exists because joining must need nothing else, and because people copy
// such strings by hand: a mistyped or cut one is told apart from a wrong one.
//
// It does not decide whether a token is still good: the hub that made it does.
package token

import (
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"github.com/meshmpi/meshmpi/mesh/cert"
	"github.com/meshmpi/meshmpi/mesh/peer"
)

// Bounds on a token's parts.
const (
	MaxHubs = 8       // addresses of hubs
	MaxLen  = 4 << 10 // bytes of a token's text, white space included

	maxHub = 253 + 1 + 5 // bytes of HOST:PORT
)

// Token admits one node or several to a network.
type Token struct {
	Network string           // the network's name
	Root    peer.Fingerprint // of the network's root certificate
	Hubs    []string         // HOST:PORT, 1 to MaxHubs; UDP and TCP
	Site    string           // where the node stands, or "" to leave that to the hub
	ID      [8]byte          // names the token at the hub; not secret
	Secret  [16]byte
	Expires time.Time // UTC, whole seconds; zero: never
}

// New makes a token with a fresh ID and secret. Its expiry is cut to seconds.
func New(network string, root peer.Fingerprint, hubs []string, site string, expires time.Time) (Token, error) {
	t := Token{Network: network, Root: root, Hubs: append([]string(nil), hubs...), Site: site}
	if !expires.IsZero() {
		t.Expires = expires.UTC().Truncate(time.Second)
	}
	if _, err := rand.Read(t.ID[:]); err != nil {
		return Token{}, fmt.Errorf("token: make token: %w", err)
	}
	if _, err := rand.Read(t.Secret[:]); err != nil {
		return Token{}, fmt.Errorf("token: make token: %w", err)
	}
	if err := t.check(); err != nil {
		return Token{}, fmt.Errorf("token: make token: %w", err)
	}
	return t, nil
}

// SecretHash returns what a hub stores in the secret's stead. It depends on ID
// and Secret alone, so that a hub can form it from what a client presents. The
// secret has 128 random bits; nothing slower than SHA-256 is needed.
func (t Token) SecretHash() [32]byte {
	h := sha256.New()
	h.Write([]byte("meshmpi token secret 1\x00"))
	h.Write(t.ID[:])
	h.Write(t.Secret[:])
	return [32]byte(h.Sum(nil))
}

// Expired reports whether the token says that it no longer holds. The hub has
// the last word, by its own clock.
func (t Token) Expired(now time.Time) bool { return !t.Expires.IsZero() && now.After(t.Expires) }

// LogValue shows a token without its secret.
func (t Token) LogValue() slog.Value {
	return slog.GroupValue(slog.String("id", fmt.Sprintf("%x", t.ID)), slog.String("network", t.Network), slog.String("site", t.Site))
}

// check reports in a line for the user what is wrong with a token.
func (t Token) check() error {
	if err := cert.ValidLabel(t.Network); err != nil {
		return fmt.Errorf("network name: %w", err)
	}
	if t.Site != "" {
		if err := cert.ValidLabel(t.Site); err != nil {
			return fmt.Errorf("site name: %w", err)
		}
	}
	if len(t.Hubs) < 1 || len(t.Hubs) > MaxHubs {
		return fmt.Errorf("a token names 1 to %d hubs, not %d", MaxHubs, len(t.Hubs))
	}
	for _, h := range t.Hubs {
		if err := ValidHub(h); err != nil {
			return err
		}
	}
	if e := t.Expires; !e.IsZero() && (e.Nanosecond() != 0 || e.Unix() <= 0 || e.Unix() > maxExpires) {
		return errors.New("its expiry is out of range")
	}
	return nil
}

// maxExpires is the last second of the year 9999.
const maxExpires = 253402300799

// ValidHub reports in a line for the user whether s is a HOST:PORT that other
// machines can dial: a DNS name or an IP address (IPv6 in brackets, no zone,
// neither unspecified nor multicast) and a port of 1 to 65535.
func ValidHub(s string) error {
	if err := checkHub(s); err != nil {
		return fmt.Errorf("%s is no address of a hub: %w; use HOST:PORT, such as hub.example.org:51820", quote(s), err)
	}
	return nil
}

func checkHub(s string) error {
	if len(s) > maxHub {
		return fmt.Errorf("it is longer than %d bytes", maxHub)
	}
	i := strings.LastIndexByte(s, ':')
	if i < 0 {
		return errors.New("it has no port")
	}
	host, port := s[:i], s[i+1:]
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 || strconv.FormatUint(n, 10) != port {
		return errors.New("its port is not 1 to 65535")
	}
	literal, bracketed := strings.CutPrefix(host, "[")
	if bracketed {
		if literal, bracketed = strings.CutSuffix(literal, "]"); !bracketed {
			return errors.New("its brackets do not match")
		}
	}
	addr, err := netip.ParseAddr(literal)
	switch {
	case err != nil && bracketed:
		return errors.New("there is no IPv6 address between its brackets")
	case err != nil:
		return checkHost(host)
	case addr.Is6() != bracketed:
		return errors.New("an IPv6 address, and no other, stands in brackets")
	case addr.Zone() != "":
		return errors.New("its zone means nothing on another machine")
	case addr.IsUnspecified() || addr.IsMulticast():
		return errors.New("nobody can be reached at that address")
	}
	return nil
}

// checkHost reports what keeps host from being a DNS name (RFC 1123 §2.1, and
// the underscores that are about).
func checkHost(host string) error {
	if len(host) > 253 {
		return errors.New("its host name is longer than 253 bytes")
	}
	var last string
	for last = range strings.SplitSeq(strings.TrimSuffix(host, "."), ".") {
		if last == "" || len(last) > 63 || last[0] == '-' || last[len(last)-1] == '-' {
			return errors.New("its host name is malformed")
		}
		for _, c := range []byte(last) {
			if !(c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '-' || c == '_') {
				return errors.New("its host name has characters that none may have")
			}
		}
	}
	if last[0] >= '0' && last[0] <= '9' && strings.Trim(last, "0123456789") == "" {
		return errors.New("it looks like an IPv4 address but is none")
	}
	return nil
}

// quote makes text of unknown origin fit for one line of an error.
func quote(s string) string {
	const most = 70
	if len(s) > most {
		return fmt.Sprintf("%+q…", s[:most])
	}
	return fmt.Sprintf("%+q", s)
}
