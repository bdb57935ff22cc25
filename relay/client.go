package relay

import (
	"context"
	"log/slog"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/meshmpi/meshmpi/internal/wire"
	"github.com/meshmpi/meshmpi/mesh/peer"
)

// ClientConfig says how a client runs. Self and Send are required.
type ClientConfig struct {
	// Self is this node.
	Self peer.ID
	// Send sends up to 128 datagrams to one address. It retains nothing and does
	// not block. A path's frames lie back to back in one buffer and each slice
	// has the buffer's capacity: to join frames for segmentation offload, Send
	// may append the following ones to the first, which moves no byte; it must
	// write nothing else behind them.
	Send func(pkts [][]byte, to netip.AddrPort) error
	// Now is the clock; nil means time.Now.
	Now func() time.Time
	// Log hears of the relay's going up and down; nil is silent.
	Log *slog.Logger
	// Bound is called by Run, one call at a time, when the address at which the
	// relay sees this node changes: with the zero AddrPort when the relay no
	// longer answers. It may be nil. It should not take long: binds wait for it.
	Bound func(observed netip.AddrPort)
}

// Client binds this node to one relay, again and again, and wraps packets for
// it. Its methods are safe for concurrent use.
type Client struct {
	self  peer.ID
	short peer.Short
	send  func(pkts [][]byte, to netip.AddrPort) error
	now   func() time.Time
	log   *slog.Logger
	told  func(netip.AddrPort)
	count clientCounters

	wake    chan struct{}                  // size 1: something changed for Run to see
	live    atomic.Pointer[netip.AddrPort] // where Send goes; nil while not bound
	wrapped sync.Pool                      // of *wrap

	mu sync.Mutex
	b  binding
}

// NewClient returns a client that has no grant yet. It panics without a Send.
func NewClient(cfg ClientConfig) *Client {
	if cfg.Send == nil {
		panic("relay: ClientConfig.Send is nil")
	}
	c := &Client{
		self:  cfg.Self,
		short: cfg.Self.Short(),
		send:  cfg.Send,
		now:   cfg.Now,
		log:   logger(cfg.Log),
		told:  cfg.Bound,
		wake:  make(chan struct{}, 1),
	}
	if c.now == nil {
		c.now = time.Now
	}
	if c.told == nil {
		c.told = func(netip.AddrPort) {}
	}
	c.wrapped.New = func() any { return new(wrap) }
	return c
}

// SetGrant takes a new grant and the relay's address, and makes Run bind at
// once. A binding to the same address stays up meanwhile. A grant for another
// node is refused and logged; the zero Grant ends the binding. One client uses a
// grant: two would take the binding from each other.
func (c *Client) SetGrant(g Grant, relay netip.AddrPort) {
	relay = unmap(relay)
	none := g == Grant{} || !relay.IsValid()
	if !none && g.Short != c.short {
		c.log.Warn("relay grant is for another node", "relay", g.Relay, "node", c.self)
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	b := &c.b
	if none || b.relay != relay || b.name != g.Relay {
		c.unbind()
		b.rtt = 0
	}
	b.name, b.relay, b.mac = g.Relay, relay, nil
	if !none {
		b.mac = newMAC(&g.Key)
	}
	b.restart()
	c.poke()
}

// Rebind makes Run bind at once: call it when this host's network has changed,
// since the relay drops what comes from an address it does not know.
func (c *Client) Rebind() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.b.restart()
	c.poke()
}

// Check makes Run bind soon, unless a bind is on its way or was answered just now:
// call it when packets through the relay get lost, or others do that pass the same NAT,
// since that may have forgotten this node, and then the relay drops what comes from the
// address that it was given instead. While not bound, call it when there are signs that
// an outage is over.
func (c *Client) Check() {
	c.mu.Lock()
	defer c.mu.Unlock()
	b, since := &c.b, c.b.heard
	if b.lost > 0 {
		if since = b.pending[0].at; b.observed.IsValid() {
			return // its answer is due soon
		}
	}
	if c.now().Sub(since) >= checkPause {
		b.due = time.Time{}
		c.poke()
	}
}

// Run binds, retries after 100 ms, 200 ms and so on until bound, and then binds
// every 15 s (±10 %), sooner after a lost answer. After three lost answers, 3 s,
// the relay counts as down until it answers again. When ctx ends, Run tells the
// relay to forget this node and returns ctx's error. It is called once.
func (c *Client) Run(ctx context.Context) error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	var told netip.AddrPort
	frame := make([]byte, bindLen)
	pkts := [][]byte{frame}
	for {
		select {
		case <-ctx.Done():
			c.leave(pkts)
			return ctx.Err()
		case <-c.wake:
		case <-timer.C:
		}
		due, to := c.step(frame, c.now())
		if to.IsValid() {
			_ = c.send(pkts, to) // a bind that is not sent is a lost one
		}
		if due > 0 {
			timer.Reset(due)
		} else {
			timer.Stop()
		}
		if seen := c.Observed(); seen != told {
			told = seen
			c.report(seen)
		}
	}
}

// report tells of a change. Only Run calls it.
func (c *Client) report(seen netip.AddrPort) {
	name := c.name()
	if seen.IsValid() {
		c.log.Info("relay bound", "relay", name, "observed", seen)
	} else {
		c.log.Info("relay unbound", "relay", name)
	}
	c.told(seen)
}

// leave ends the binding on both sides. pkts is room for one bind.
func (c *Client) leave(pkts [][]byte) {
	c.mu.Lock()
	to, bound := c.b.relay, c.b.mac != nil && c.b.observed.IsValid()
	if bound {
		c.makeBind(pkts[0], c.now(), flagLeave)
	}
	c.unbind()
	c.b.restart()
	c.mu.Unlock()
	if bound {
		_ = c.send(pkts, to) // else the binding dies by itself
	}
}

// Unwrap takes a deliver frame apart: payload lies inside pkt. The caller has
// seen that pkt came from Relay; who really made the payload is for WireGuard
// or the probe to tell.
func (c *Client) Unwrap(pkt []byte) (from peer.Short, payload []byte, ok bool) {
	if len(pkt) <= wire.RelayHeaderLen || !isRelay(pkt, wire.TypeRelayDeliver) {
		return from, nil, false
	}
	return peer.Short(pkt[shortAt:]), pkt[wire.RelayHeaderLen:], true
}

// Bound reports whether the relay forwards for this node, as far as is known.
func (c *Client) Bound() bool { return c.live.Load() != nil }

// RTT returns the smoothed round trip time to the relay, 0 while unmeasured.
func (c *Client) RTT() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.b.rtt
}

// Observed returns the address at which the relay sees this node, the zero
// AddrPort while not bound.
func (c *Client) Observed() netip.AddrPort {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.b.observed
}

// Relay returns the relay's address, the zero AddrPort without a grant. Bound
// and deliver frames come from there.
func (c *Client) Relay() netip.AddrPort {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.b.relay
}

// Stats returns what the client did so far.
func (c *Client) Stats() ClientStats { return c.count.read() }

func (c *Client) name() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.b.name
}

// poke makes Run look again.
func (c *Client) poke() {
	select {
	case c.wake <- struct{}{}:
	default: // it will look anyway
	}
}
