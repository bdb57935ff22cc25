package relay

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/meshmpi/meshmpi/mesh/peer"
)

// maxGrant bounds a grant in its JSON form, in bytes.
const maxGrant = 1 << 10

// maxName bounds a relay's name: a DNS label, RFC 1035 §2.3.4.
const maxName = 63

// Grant is what a relay gives a node over their authenticated control session.
// Its JSON form, {"relay", "short", "key", "expires"} with bytes in base64,
// holds a secret: it travels only there and is never logged.
type Grant struct {
	Relay   string     // the relay's node name
	Short   peer.Short // the grantee's
	Key     [32]byte   // authenticates the grantee's binds and their answers
	Expires time.Time  // by the relay's clock; bindings end then at the latest
}

type grantJSON struct {
	Relay   string    `json:"relay"`
	Short   []byte    `json:"short"`
	Key     []byte    `json:"key"`
	Expires time.Time `json:"expires"`
}

// ParseGrant decodes and checks a grant's JSON form.
func ParseGrant(b []byte) (Grant, error) {
	if len(b) > maxGrant {
		return Grant{}, fmt.Errorf("relay: a grant of %d bytes is longer than %d", len(b), maxGrant)
	}
	var j grantJSON
	if err := json.Unmarshal(b, &j); err != nil {
		return Grant{}, fmt.Errorf("relay: read grant: %w", err)
	}
	g := Grant{Relay: j.Relay, Expires: j.Expires}
	switch {
	case j.Relay == "" || len(j.Relay) > maxName:
		return Grant{}, errors.New("relay: read grant: it names no relay")
	case len(j.Short) != len(g.Short) || len(j.Key) != len(g.Key):
		return Grant{}, fmt.Errorf("relay: read grant of %q: short name or key has the wrong length", j.Relay)
	case j.Expires.IsZero():
		return Grant{}, fmt.Errorf("relay: read grant of %q: it does not say when it expires", j.Relay)
	}
	copy(g.Short[:], j.Short)
	copy(g.Key[:], j.Key)
	if g.Key == ([32]byte{}) {
		return Grant{}, fmt.Errorf("relay: read grant of %q: its key is empty", j.Relay)
	}
	return g, nil
}

// UnmarshalJSON implements json.Unmarshaler by ParseGrant.
func (g *Grant) UnmarshalJSON(b []byte) error {
	parsed, err := ParseGrant(b)
	if err == nil {
		*g = parsed
	}
	return err
}

// MarshalJSON implements json.Marshaler.
func (g Grant) MarshalJSON() ([]byte, error) {
	return json.Marshal(grantJSON{Relay: g.Relay, Short: g.Short[:], Key: g.Key[:], Expires: g.Expires})
}

// String says whose grant it is and how long it lasts, without its key.
func (g Grant) String() string {
	return fmt.Sprintf("grant of %s to %x until %s", g.Relay, g.Short, g.Expires.Format(time.RFC3339))
}

// LogValue keeps the key out of logs.
func (g Grant) LogValue() slog.Value { return slog.StringValue(g.String()) }
