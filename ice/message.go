package ice

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"

	"github.com/meshmpi/meshmpi/mesh/peer"
)

const (
	maxCandidates = 32 // in one message
	maxName       = 64 // bytes of an attempt's name, a fragment, a type, …
	minPassword   = 22 // characters: 128 bits in base64 (RFC 8445 §5.3)
	maxPassword   = 128
)

// Types of candidates (RFC 8445 §5.1.1).
const (
	typeHost  = "host"
	typeSrflx = "srflx"
)

// behaviour is what a node knows of the NAT before it.
type behaviour string

const (
	natUnknown behaviour = ""       // only one STUN server answered
	natNone    behaviour = "none"   // servers see an address of the node's own
	natSteady  behaviour = "steady" // every server sees the same address
	natVaries  behaviour = "varies" // different servers see different addresses
	natSilent  behaviour = "silent" // no server answered
)

// message is a signal: all that its sender has gathered so far, so that one is
// as good as all before it.
type message struct {
	ID         string      `json:"id"`               // of the attempt, chosen by Find
	Answer     bool        `json:"answer,omitempty"` // from Answer, else from Find
	Ufrag      string      `json:"ufrag"`
	Pwd        string      `json:"pwd"`
	Candidates []candidate `json:"candidates"`    // preferred first within a type
	NAT        behaviour   `json:"nat,omitempty"` // known at the end
	End        bool        `json:"end,omitempty"` // nothing more will be gathered
}

type candidate struct {
	Type string         `json:"t"`
	Addr netip.AddrPort `json:"a"`
}

var errMessage = errors.New("ice: not a signal of this protocol")

// encode fits in peer.MaxSignal, as nothing is told beyond maxCandidates.
func (m *message) encode() ([]byte, error) { return json.Marshal(m) }

// decodeMessage reads a signal. Candidates of unknown types or useless
// addresses are left out, so that later versions may tell more.
func decodeMessage(b []byte) (*message, error) {
	if len(b) > peer.MaxSignal {
		return nil, fmt.Errorf("%w: %d bytes long", errMessage, len(b))
	}
	var m message
	if err := json.Unmarshal(b, &m); err != nil {
		return nil, fmt.Errorf("%w: %w", errMessage, err)
	}
	switch {
	case !plain(m.ID, 1, maxName):
		return nil, fmt.Errorf("%w: no name of an attempt", errMessage)
	case !plain(m.Ufrag, 4, maxName) || !plain(m.Pwd, minPassword, maxPassword):
		return nil, fmt.Errorf("%w: no credentials", errMessage)
	case len(m.Candidates) > maxCandidates:
		return nil, fmt.Errorf("%w: %d candidates", errMessage, len(m.Candidates))
	}
	switch m.NAT {
	case natUnknown, natNone, natSteady, natVaries, natSilent:
	default:
		m.NAT = natUnknown
	}
	kept := m.Candidates[:0]
	for _, c := range m.Candidates {
		known := c.Type == typeHost || c.Type == typeSrflx
		if c.Addr = unmap(c.Addr); known && usable(c.Addr.Addr()) && c.Addr.Port() != 0 {
			kept = append(kept, c)
		}
	}
	m.Candidates = kept
	return &m, nil
}

// plain reports whether s consists of least to most ice-chars (RFC 8839 §5.1):
// letters, digits, plus and slash.
func plain(s string, least, most int) bool {
	if len(s) < least || len(s) > most {
		return false
	}
	for i := range len(s) {
		c := s[i]
		if !('a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '+' || c == '/') {
			return false
		}
	}
	return true
}
