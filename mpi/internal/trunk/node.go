package trunk

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
)

// Config says what a node is to be.
type Config struct {
	Self  int
	Sites []int // of each process of the job, by number
	Links int   // connections between two sites, of 1 to 16

	// Connect makes a connection to a neighbour, who is told that it is for this.
	// ErrComing: the neighbour is making one itself, and Attach will bring it. It is
	// called from a goroutine, one at a time for each neighbour.
	Connect func(ctx context.Context, to int) (net.Conn, error)

	Log *slog.Logger // nil: nowhere
}

// ErrComing is returned by Connect if the connection is made by the other side.
var ErrComing = errors.New("trunk: the neighbour connects")

// ErrEnded is how a channel ends that nothing can reach any more.
var ErrEnded = errors.New("trunk: the way to the process is gone")

// errClosed is how calls fail on a node that was closed.
var errClosed = errors.New("trunk: closed")

// Node is one process's end of all its channels and, if it is a gateway, what
// forwards those of others. Its methods may be called from any goroutine.
type Node struct {
	cfg   Config
	plan  *plan
	log   *slog.Logger
	ctx   context.Context
	halt  context.CancelFunc
	tasks sync.WaitGroup

	mu       sync.Mutex // guards what follows, and all hops and channels
	hops     map[int]*hop
	channels map[flow]*Channel
	transit  map[flow]ends // channels of others that go through here
	dropped  uint64        // packets that there was no way for
	number   uint32        // of the last channel that was opened
	come     chan *Channel // of size mostComing: channels that nobody has accepted
	closed   bool
}

// mostComing bounds the channels that wait to be accepted; further ones are reset.
// mostTransit bounds those that go through a gateway.
const (
	mostComing  = 1 << 12
	mostTransit = 1 << 17
)

// New makes a node. Nothing runs before it is used; Close ends it.
func New(cfg Config) (*Node, error) {
	if cfg.Links < 1 || cfg.Links > mostLanes || cfg.Self < 0 || cfg.Self >= len(cfg.Sites) {
		return nil, fmt.Errorf("trunk: %d connections between sites, process %d of %d: out of range", cfg.Links, cfg.Self, len(cfg.Sites))
	}
	n := &Node{
		cfg: cfg, plan: newPlan(cfg.Sites, cfg.Links), log: cfg.Log, hops: map[int]*hop{}, channels: map[flow]*Channel{},
		transit: map[flow]ends{}, come: make(chan *Channel, mostComing),
	}
	if n.log == nil {
		n.log = slog.New(slog.DiscardHandler)
	}
	n.ctx, n.halt = context.WithCancel(context.Background())
	return n, nil
}

// Serves reports whether a process is reached by a channel: it is at another site.
func (n *Node) Serves(to int) bool {
	return to >= 0 && to < len(n.cfg.Sites) && n.cfg.Sites[to] != n.cfg.Sites[n.cfg.Self]
}

// Dial opens a channel to a process of another site and waits until it is there.
func (n *Node) Dial(ctx context.Context, to int) (net.Conn, error) {
	if !n.Serves(to) {
		return nil, fmt.Errorf("trunk: process %d is not at another site", to)
	}
	n.mu.Lock()
	if n.closed {
		n.mu.Unlock()
		return nil, errClosed
	}
	n.number++
	f := flow{uint32(n.cfg.Self), uint32(to), n.number}
	c := newChannel(n, f, to)
	n.channels[f] = c
	n.post(c.packet(kindOpen, 0), nil)
	n.mu.Unlock()
	stop := context.AfterFunc(ctx, func() { c.reset(ctx.Err()) })
	defer stop()
	if err := c.opened(); err != nil {
		c.Close()
		return nil, fmt.Errorf("trunk: dial %d: %w", to, err)
	}
	return c, nil
}

// Accept waits for the next channel that another process opens.
func (n *Node) Accept() (net.Conn, error) {
	select {
	case c := <-n.come:
		return c, nil
	case <-n.ctx.Done():
		return nil, net.ErrClosed
	}
}

// Addr says nothing: there is no address.
func (n *Node) Addr() net.Addr { return endpoint(n.cfg.Self) }

// Close ends all channels and connections at once, and returns when all goroutines
// have ended.
func (n *Node) Close() error {
	n.mu.Lock()
	n.closed = true
	for _, c := range n.channels {
		c.end(errClosed)
	}
	for _, h := range n.hops {
		h.end(errClosed)
	}
	n.mu.Unlock()
	n.halt()
	n.tasks.Wait()
	return nil
}

// Drained reports whether nobody needs this node any more: no channel of its own is
// open, none goes through it, and what it has sent is with the system.
func (n *Node) Drained() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, h := range n.hops {
		if h.held > 0 {
			return false
		}
	}
	return len(n.channels) == 0 && len(n.transit) == 0
}

// Stats counts what a node has at the moment.
type Stats struct {
	Channels int    // its own
	Transit  int    // that go through it
	Far      int    // connections to other sites
	Held     int    // bytes that wait for a connection
	Dropped  uint64 // packets that there was no way for
}

// Stats returns the counters.
func (n *Node) Stats() Stats {
	n.mu.Lock()
	defer n.mu.Unlock()
	s := Stats{Channels: len(n.channels), Transit: len(n.transit), Dropped: n.dropped}
	for to, h := range n.hops {
		s.Held += h.held
		if h.nc != nil && n.Serves(to) {
			s.Far++
		}
	}
	return s
}

// post sends a packet towards its end. The node is locked.
func (n *Node) post(p *packet, data []byte) {
	if n.closed {
		return
	}
	to := n.plan.next(n.cfg.Self, int(p.dst), p.lane)
	h := n.hops[to]
	if h == nil {
		h = &hop{n: n, to: to}
		h.changed.L = &n.mu
		n.hops[to] = h
		n.tasks.Add(1)
		go h.connect()
	}
	h.push(p, data)
}

// take handles a packet that a hop has brought. The node is locked.
func (n *Node) take(from *hop, p *packet, data []byte) error {
	f := p.flow()
	if int(p.dst) != n.cfg.Self {
		return n.forward(from, f, p, data)
	}
	c := n.channels[f]
	if c == nil && p.kind == kindOpen && !p.theirs && n.Serves(int(p.src)) {
		n.welcome(f, p)
		return nil
	}
	if c == nil {
		if p.kind != kindReset && p.kind != kindEnd && p.kind != kindWindow {
			n.refuse(p)
		}
		return nil
	}
	return c.take(p, data)
}

// welcome makes the other end of a channel.
func (n *Node) welcome(f flow, p *packet) {
	c := newChannel(n, f, int(p.src))
	select {
	case n.come <- c:
	default:
		n.refuse(p)
		return
	}
	n.channels[f] = c
	c.grant(c.window)
}

// refuse answers what there is no channel for.
func (n *Node) refuse(p *packet) {
	n.dropped++
	n.post(&packet{kind: kindReset, lane: p.lane, theirs: !p.theirs, src: p.dst, dst: p.src, number: p.number}, nil)
}

// forward passes a packet on and keeps count of whose channels go through here.
func (n *Node) forward(from *hop, f flow, p *packet, data []byte) error {
	to := n.plan.next(n.cfg.Self, int(p.dst), p.lane)
	if to == from.to || n.cfg.Sites[p.src] == n.cfg.Sites[p.dst] || n.plan.lane(int(p.src), int(p.dst)) != p.lane {
		return fmt.Errorf("%w: from %d to %d by lane %d does not go through here", errViolation, p.src, p.dst, p.lane)
	}
	switch {
	case p.kind == kindOpen && len(n.transit) < mostTransit:
		n.transit[f] = ends{}
	case !n.passes(f):
		if p.kind != kindReset && p.kind != kindEnd {
			n.refuse(p)
		}
		return nil
	case p.kind == kindReset:
		delete(n.transit, f)
	case p.kind == kindEnd:
		n.passEnd(f, p.theirs)
	}
	n.post(p, data)
	return nil
}

// ends says which ends of a channel in transit have ended.
type ends struct{ opener, other bool }

func (n *Node) passes(f flow) bool {
	_, ok := n.transit[f]
	return ok
}

// passEnd notes that an end of a channel has ended.
func (n *Node) passEnd(f flow, other bool) {
	e := n.transit[f]
	e.opener, e.other = e.opener || !other, e.other || other
	n.transit[f] = e
	if e.opener && e.other {
		delete(n.transit, f)
	}
}

// lost ends what went through a hop that is gone. The node is locked.
func (n *Node) lost(h *hop, err error) {
	for f, c := range n.channels {
		if n.plan.next(n.cfg.Self, c.to, c.lane) == h.to {
			n.log.Debug("channel ended", "to", c.to, "err", err)
			c.end(fmt.Errorf("%w: %w", ErrEnded, err))
			delete(n.channels, f)
		}
	}
	for f := range n.transit {
		lane := n.plan.lane(int(f.opener), int(f.other))
		for _, end := range [2]struct{ to, from uint32 }{{f.opener, f.other}, {f.other, f.opener}} {
			if n.plan.next(n.cfg.Self, int(end.from), lane) == h.to { // who was behind it; the other is told
				n.post(&packet{kind: kindReset, lane: lane, theirs: end.to == f.opener, src: end.from, dst: end.to, number: f.number}, nil)
				delete(n.transit, f)
				break
			}
		}
	}
}
