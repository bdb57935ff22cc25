package hub

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"
	"unicode"

	"github.com/meshmpi/meshmpi/mesh/cert"
	"github.com/meshmpi/meshmpi/mesh/peer"
	"github.com/meshmpi/meshmpi/mesh/token"
)

// Protocols on a hub's TCP port, told apart by ALPN. Both carry frames inside
// TLS 1.3: a length of four bytes, big-endian, then a JSON object whose "type"
// says which of the other fields count. Unknown types are ignored, so that
// newer ends may say more.
const (
	alpnJoin    = "mesh-join/1"
	alpnControl = "mesh-control/1"
)

// Limits of what is said. What strangers and nodes may say is small, since JSON
// can take many times its length in memory.
const (
	maxNodeFrame    = 16 << 10 // node → hub: a signal in base64 is the longest
	maxJoinFrame    = 64 << 10 // hub → joiner
	maxControlFrame = 1 << 20  // hub → node
	recordsPerFrame = 64       // three certificates of about 700 bytes each, in base64, twice over
	maxRecords      = 1 << 15  // of one hub's, twice what one relay serves
	maxCores        = 1 << 16  // of one node
	maxText         = 512      // of an error, in bytes
)

// Types of messages. Join, in this order:
//
//	hub → node  challenge  an ephemeral X25519 key and a nonce
//	node → hub  join       token, name, public keys, proofs that it holds both private keys
//	hub → node  welcome    certificate chain and hubs; or error
//
// Control, in any order:
//
//	hub → node  hello      who the hub is
//	            records    all (full) or what changed; more: the next frame goes on
//	            signal     from a peer
//	            grant      leave to use this hub's relay
//	            chain      a renewed certificate
//	            revoked    a signed revocation
//	            limits     what is declared of the sites' links, all of it (package sites)
//	node → hub  announce   where the node is reachable, its cores; always first
//	            signal     to a peer
//	            renew      please
//	            leave      goodbye
//	both        ping (the hub's tells its time and needs no answer), pong, error
const (
	typeChallenge = "challenge"
	typeJoin      = "join"
	typeWelcome   = "welcome"
	typeHello     = "hello"
	typeRecords   = "records"
	typeSignal    = "signal"
	typeGrant     = "grant"
	typeChain     = "chain"
	typeRevoked   = "revoked"
	typeLimits    = "limits"
	typeAnnounce  = "announce"
	typeRenew     = "renew"
	typeLeave     = "leave"
	typePing      = "ping"
	typePong      = "pong"
	typeError     = "error"
)

// message is any message; each type uses a few of the fields.
type message struct {
	Type string `json:"type"`

	// challenge, join
	Key   []byte `json:"key,omitempty"`   // X25519: the hub's ephemeral, the node's WireGuard
	Nonce []byte `json:"nonce,omitempty"` // challenge
	Token string `json:"token,omitempty"`
	Name  string `json:"name,omitempty"`
	Sign  []byte `json:"sign,omitempty"`  // Ed25519 public key
	Proof []byte `json:"proof,omitempty"` // HMAC under the shared X25519 secret
	Sig   []byte `json:"sig,omitempty"`   // Ed25519

	// welcome, chain
	Chain [][]byte `json:"chain,omitempty"`
	Hubs  []string `json:"hubs,omitempty"`

	// records
	Full    bool     `json:"full,omitempty"` // replaces what was known
	More    bool     `json:"more,omitempty"` // the next records belong to the same set
	Records []record `json:"records,omitempty"`

	// signal
	Peer *peer.ID `json:"peer,omitempty"` // whom it is to, or from
	Data []byte   `json:"data,omitempty"`

	Grant     json.RawMessage  `json:"grant,omitempty"`
	Limits    json.RawMessage  `json:"limits,omitempty"`
	Revoked   *cert.Revocation `json:"revoked,omitempty"`
	Advertise string           `json:"advertise,omitempty"`
	Cores     int              `json:"cores,omitempty"`
	Time      time.Time        `json:"time,omitzero"` // challenge, hello, ping, pong
	Code      string           `json:"code,omitempty"`
	Text      string           `json:"text,omitempty"`
}

// record is a peer.Record on the wire. What the certificate says is not said
// again: the receiver reads it there.
type record struct {
	ID        peer.ID  `json:"id"`
	Chain     [][]byte `json:"chain,omitempty"`
	Up        bool     `json:"up,omitempty"`
	Advertise string   `json:"advertise,omitempty"`
	Cores     int      `json:"cores,omitempty"`
	Revoked   bool     `json:"revoked,omitempty"`
	Removed   bool     `json:"removed,omitempty"`
}

// Codes of errors that refuse nothing.
const (
	codeAbsent   = "absent"   // answers a signal to a node that is not connected
	codeReplaced = "replaced" // ends a session for a newer one of the same node
)

// codes names the errors that a joiner can act on.
var codes = map[string]error{
	"token-unknown": ErrTokenUnknown, "token-used": ErrTokenUsed, "token-expired": ErrTokenExpired,
	"token-revoked": ErrTokenRevoked, "name-taken": ErrNameTaken, "full": ErrFull, "revoked": ErrRevoked,
	"not-now": ErrNotNow,
}

// refusal is an error that came over the wire, or goes there.
type refusal struct {
	kind error
	text string
}

func (r *refusal) Error() string { return r.text }
func (r *refusal) Unwrap() error { return r.kind }

// errorMessage turns an error into a message.
func errorMessage(err error) message {
	m := message{Type: typeError, Code: "refused", Text: err.Error()}
	for code, kind := range codes {
		if errors.Is(err, kind) {
			m.Code = code
		}
	}
	return m
}

// err turns an error message back into an error of the same kind, in one line
// that does nothing to a terminal.
func (m message) err() error {
	kind := codes[m.Code]
	if kind == nil {
		kind = ErrRefused
	}
	return &refusal{kind, line(m.Text)}
}

// line makes what came from elsewhere fit for one line of a log or a terminal.
func line(s string) string {
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return ' '
		}
		return r
	}, s[:min(len(s), maxText)])
}

// maxSkew is how far two clocks may differ. Beyond it what one certifies does
// not hold yet for the other.
const maxSkew = cert.Backdate

// checkClock compares the clock of a hub, which may not have told it, with ours.
func checkClock(addr string, hub, here time.Time) error {
	if hub.IsZero() || here.Sub(hub).Abs() <= maxSkew {
		return nil
	}
	const layout = "2006-01-02 15:04:05Z"
	return fmt.Errorf("hub: %w: here it is %s, at hub %s %s; set the clock of this node, or that of the hub (timedatectl set-ntp true)",
		ErrClock, here.UTC().Format(layout), addr, hub.UTC().Format(layout))
}

// checkAnnounce reports what is wrong with a node's first message.
func (m message) checkAnnounce() error {
	switch {
	case m.Type != typeAnnounce:
		return fmt.Errorf("%w: it says %.20q where %q is due", ErrRefused, m.Type, typeAnnounce)
	case m.Cores < 0 || m.Cores > maxCores:
		return fmt.Errorf("%w: a node has up to %d processors, not %d", ErrRefused, maxCores, m.Cores)
	case m.Advertise != "":
		if err := token.ValidHub(m.Advertise); err != nil {
			return fmt.Errorf("%w: advertise: %w", ErrRefused, err)
		}
	}
	return nil
}

// writeMessage writes one frame in one Write.
func writeMessage(w io.Writer, m message) error {
	b, err := json.Marshal(m)
	if err != nil {
		return err
	}
	if len(b) > maxControlFrame {
		return fmt.Errorf("hub: a message of %d bytes is too long", len(b))
	}
	frame := binary.BigEndian.AppendUint32(make([]byte, 0, 4+len(b)), uint32(len(b)))
	_, err = w.Write(append(frame, b...))
	return err
}

// readMessage reads one frame of at most limit bytes. It reads no more than
// that from r, and takes memory only as bytes arrive.
func readMessage(r io.Reader, limit int) (message, error) {
	var head [4]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return message{}, err
	}
	n := int64(binary.BigEndian.Uint32(head[:]))
	if n > int64(limit) {
		return message{}, fmt.Errorf("hub: a frame of %d bytes is longer than %d", n, limit)
	}
	b, err := io.ReadAll(io.LimitReader(r, n))
	if err != nil {
		return message{}, err
	}
	if int64(len(b)) < n {
		return message{}, io.ErrUnexpectedEOF
	}
	return decodeMessage(b)
}

// decodeMessage decodes a frame's content.
func decodeMessage(b []byte) (message, error) {
	var m message
	if err := json.Unmarshal(b, &m); err != nil { // whose text quotes what it does not like, however long
		return message{}, fmt.Errorf("hub: message: %s", line(err.Error()))
	}
	if len(m.Records) > recordsPerFrame {
		return message{}, fmt.Errorf("hub: message: %d records are more than %d", len(m.Records), recordsPerFrame)
	}
	return m, nil
}

// verified turns a record of the wire into one that may be believed. What is
// revoked or removed needs no certificate that still holds.
func (r record) verified(root peer.Fingerprint, now time.Time) (peer.Record, error) {
	out := peer.Record{Chain: r.Chain, Up: r.Up, Advertise: r.Advertise, Cores: r.Cores, Revoked: r.Revoked, Removed: r.Removed}
	if r.Advertise != "" && token.ValidHub(r.Advertise) != nil || r.Cores < 0 || r.Cores > maxCores {
		return out, errors.New("hub: record: out of bounds")
	}
	if r.Removed {
		out.Node.ID = r.ID
		return out, nil
	}
	check := cert.Verify
	if r.Revoked {
		check = func(chain [][]byte, root peer.Fingerprint, _ time.Time) (peer.Node, error) {
			return cert.Inspect(chain, root)
		}
	}
	n, err := check(r.Chain, root, now)
	if err != nil {
		return out, err
	}
	if n.ID != r.ID {
		return out, errors.New("hub: record: the certificate is another node's")
	}
	out.Node = n
	return out, nil
}
