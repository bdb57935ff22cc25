package hub

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/meshmpi/meshmpi/mesh/cert"
	"github.com/meshmpi/meshmpi/mesh/peer"
	"github.com/meshmpi/meshmpi/mesh/sites"
)

// Events is what a client passes on. Each is called by the goroutine of one
// hub's session, never twice at once for one hub, and must not block.
type Events struct {
	Records func(hub string, full bool, recs []peer.Record)
	Signal  func(from peer.ID, msg []byte)
	Grant   func(hub string, addr netip.AddrPort, grant json.RawMessage) // addr: the hub's, as dialled
	Chain   func(chain [][]byte)                                         // a renewed certificate, verified
	Revoked func(cert.Revocation)                                        // verified
	Limits  func(hub string, l sites.Limits)                             // checked; perhaps no newer than those before
	Session func(hub string, up bool, err error)                         // err: see SessionInfo
}

// ClientConfig configures a Client. Every event is required.
type ClientConfig struct {
	Network   peer.Network
	Self      peer.Node
	Keys      cert.Keys
	Chain     func() [][]byte
	Hubs      []string // HOST:PORT
	Advertise string   // where this node is reachable, or ""
	Cores     int      // processors to offer
	Events    Events
	Dial      dialFunc            // nil: a net.Dialer, with small segments
	Gone      func(net.Addr) bool // that this host no longer has the address; nil: asks the system
	Now       func() time.Time    // nil: time.Now
	Log       *slog.Logger        // nil: discard
}

// ErrNoHub says that no control session is up.
var ErrNoHub = errors.New("hub: no hub is connected")

// SessionInfo is the state of the session with one hub.
type SessionInfo struct {
	Addr  string // as configured
	Name  string // once it has said so
	Up    bool
	Since time.Time     // of Up's last change
	RTT   time.Duration // of the last ping; 0: none yet
	Err   error         // why it is not up, or what is wrong although it is
}

// Client is the node's end: one control session with every hub, kept up.
type Client struct {
	cfg   ClientConfig
	log   *slog.Logger
	links []*link
	turn  atomic.Uint32 // spreads signals over the hubs

	bad     atomic.Uint64 // records, revocations and limits that could not be believed
	dropped atomic.Uint64 // signals that found a hub's queue full
}

// NewClient makes a client. It starts nothing.
func NewClient(cfg ClientConfig) *Client {
	if cfg.Dial == nil {
		cfg.Dial = dialer()
	}
	if cfg.Gone == nil {
		cfg.Gone = gone
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	c := &Client{cfg: cfg, log: cfg.Log}
	for _, addr := range cfg.Hubs {
		c.links = append(c.links, newLink(c, addr))
	}
	return c
}

// Run keeps the sessions up until ctx ends; then it says goodbye to the hubs.
// It returns after its goroutines have ended.
func (c *Client) Run(ctx context.Context) error {
	var links sync.WaitGroup
	for _, l := range c.links {
		links.Add(1)
		go func() { // ends with ctx
			defer links.Done()
			l.run(ctx)
		}()
	}
	links.Wait()
	return ctx.Err()
}

// Post queues a copy of a sealed signal, of at most peer.MaxSignal bytes, for a
// hub that takes it. It does not wait; that no hub is connected is ErrNoHub.
func (c *Client) Post(ctx context.Context, to peer.ID, msg []byte) error {
	if len(msg) > peer.MaxSignal {
		return fmt.Errorf("hub: a signal of %d bytes is longer than %d", len(msg), peer.MaxSignal)
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	m := message{Type: typeSignal, Peer: &to, Data: bytes.Clone(msg)}
	first, err := int(c.turn.Add(1)), ErrNoHub
	for i := range c.links {
		l := c.links[(first+i)%len(c.links)]
		perr := l.post(m)
		if perr == nil {
			return nil
		}
		if perr != ErrNoHub {
			err = perr
		}
	}
	return err
}

// Recheck has every session prove at once that it works, or begin anew, as after
// a change of this host's network. It does not wait.
func (c *Client) Recheck() {
	for _, l := range c.links {
		l.recheck()
	}
}

// reached returns by which address, other than of's, there is a session with a hub; ""
// for none.
func (c *Client) reached(hub string, of *link) string {
	for _, l := range c.links {
		if s := l.info(); l != of && s.Up && s.Name == hub {
			return s.Addr
		}
	}
	return ""
}

// Sessions tells the state of every session.
func (c *Client) Sessions() []SessionInfo {
	list := make([]SessionInfo, len(c.links))
	for i, l := range c.links {
		list[i] = l.info()
	}
	return list
}

// Disbelieved counts records and revocations that could not be verified, and
// limits that nobody may declare.
func (c *Client) Disbelieved() uint64 { return c.bad.Load() }

// Dropped counts signals that no hub took fast enough.
func (c *Client) Dropped() uint64 { return c.dropped.Load() }
