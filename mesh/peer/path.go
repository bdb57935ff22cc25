package peer

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"
)

// Kind is a rung of the ladder of paths, worst first so that larger is better.
type Kind uint8

// The rungs. Nothing makes KindTCP and KindRelayStream yet.
const (
	KindNone Kind = iota
	KindRelayStream
	KindRelayUDP
	KindTCP
	KindUDP
	KindNative
)

var kindNames = [...]string{"none", "relay-stream", "relay-udp", "tcp", "udp", "native"}

// String returns the name that `meshctl path` prints.
func (k Kind) String() string {
	if int(k) < len(kindNames) {
		return kindNames[k]
	}
	return "unknown"
}

// MarshalText implements encoding.TextMarshaler.
func (k Kind) MarshalText() ([]byte, error) { return []byte(k.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (k *Kind) UnmarshalText(text []byte) error {
	for i, name := range kindNames {
		if name == string(text) {
			*k = Kind(i)
			return nil
		}
	}
	return fmt.Errorf("peer: %q is not a kind of path", text)
}

// PathInfo says what is known of a path.
type PathInfo struct {
	Kind   Kind
	Via    []string       // names of the relays, nearest first; nil when direct
	Remote netip.AddrPort // where datagrams go: the peer's or the first relay's address
	RTT    time.Duration  // smoothed; 0 while unmeasured
	Loss   float64        // of probes, 0 to 1, smoothed
	MTU    int            // largest virtual packet known to pass, bytes; 0 while unmeasured
}

// Where says where datagrams go, in words; "" where there is no path. The kernel's own
// way to a neighbour has no port.
func (i PathInfo) Where() string {
	switch {
	case !i.Remote.IsValid():
		return ""
	case i.Remote.Port() == 0:
		return i.Remote.Addr().String()
	}
	return i.Remote.String()
}

// Path is a way to move sealed datagrams to one peer. Send is safe for
// concurrent use, retains nothing of pkts after it returns, and never blocks:
// what cannot be sent now is dropped and counted.
type Path interface {
	Send(pkts [][]byte) error
	Info() PathInfo
	Close() error
}

// Signal passes small messages to peers that cannot be reached yet. Messages
// may be lost; they are sealed end to end by whoever implements it.
type Signal interface {
	// Post hands msg (at most MaxSignal bytes) to whoever knows the way to the peer.
	Post(ctx context.Context, to ID, msg []byte) error
	// Next returns the next message of the exchange from the peer.
	Next(ctx context.Context, from ID) ([]byte, error)
}

// MaxSignal bounds a signal, in bytes.
const MaxSignal = 8 << 10

// Finder finds a path to a peer with one technique. Find takes the lead; the
// peer's Answer is called with the first message that Find posted.
type Finder interface {
	Find(ctx context.Context, to ID, sig Signal) (Path, error)
	Answer(ctx context.Context, from ID, offer []byte, sig Signal) (Path, error)
}

// ErrNoPath says that the technique ended without finding a path.
var ErrNoPath = errors.New("no path found")
