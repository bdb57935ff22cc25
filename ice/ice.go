// Package ice finds a direct UDP path between two nodes with Interactive
// Connectivity Establishment (RFC 8445): the nodes tell each other where they
// may be reached, check all of it at once, and agree on what answers.
//
// It exists so that nodes behind NATs exchange packets without a third, and so
// that pion/ice stays behind one narrow door. The mesh owns the one UDP socket;
// this package sends through Config.Send and is given every STUN message the
// socket receives. pion runs the checks and the nomination; candidates, their
// signalling and the demultiplexing are done here, because pion's own gathering
// cannot be cancelled and its mux queues without a bound:
//
//	Find                               Answer
//	  offer: id, ufrag, pwd, hosts →
//	                                 ← answer: id, ufrag, pwd, hosts
//	  the same, and reflexive      →
//	                                 ← the same, and reflexive
//	  check                       ⇄    check          (STUN, directly)
//	  nominate                     →   select
//	  Path                             Path
//
// A message repeats all that its sender has gathered and is posted again from
// time to time, so that signalling may lose and reorder.
//
// It does not move data, measure paths, keep NAT bindings alive or notice that
// a path has died: the mesh's probes do. It does not relay, and speaks no TCP.
package ice

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/meshmpi/meshmpi/mesh/peer"
)

// ErrClosed is returned by what Close ended or prevented.
var ErrClosed = errors.New("ice: closed")

const (
	maxAttempts  = 64               // at once, lingering ones included
	attemptLimit = 20 * time.Second // of one attempt, whatever its context allows
	linger       = 2 * time.Second  // after success: the peer may still need our answers
	closeLimit   = 3 * time.Second  // for an agent to end
)

// Config is what the mesh lends this package.
type Config struct {
	// Send sends one datagram through the shared socket. It must not block and
	// must not retain pkt. Required.
	Send func(pkt []byte, to netip.AddrPort) error
	// Port returns the shared socket's local port. Required.
	Port func() uint16
	// NewPath makes the path that Find and Answer return. Required.
	NewPath func(remote netip.AddrPort) peer.Path

	// Servers returns the STUN servers of now. At most four a family are asked;
	// two on different addresses show what kind of NAT is between. nil: none.
	Servers func() []netip.AddrPort
	// Exclude tells addresses that are never candidates, servers or sources:
	// those inside the overlay. nil excludes none. It must not block.
	Exclude func(netip.Addr) bool
	// LocalAddrs returns this host's addresses, preferred first. nil: the
	// operating system's.
	LocalAddrs func() ([]netip.Addr, error)
	// Serve makes it answer STUN binding requests, as a hub does.
	Serve bool
	// Log receives diagnostics. nil: nobody does.
	Log *slog.Logger
}

// ICE finds direct paths. Its methods are safe for concurrent use.
type ICE struct {
	cfg     Config
	life    context.Context // ends with Close
	end     context.CancelFunc
	slots   chan struct{}  // one taken by each attempt until its agent is closed
	running sync.WaitGroup // attempts; added to under mu, and not once closed
	limits  *limiter       // of the STUN server
	n       counters

	mu       sync.Mutex
	closed   bool
	attempts map[string]*attempt // by our ufrag
	pending  map[txID]responder  // by transaction under way
}

// responder waits for responses. It must not block nor retain pkt.
type responder interface {
	response(pkt []byte, m *stunMessage, from netip.AddrPort)
}

var _ peer.Finder = (*ICE)(nil)

// New returns an ICE that runs nothing until it is asked. It panics where a
// required field of cfg is nil.
func New(cfg Config) *ICE {
	if cfg.Send == nil || cfg.Port == nil || cfg.NewPath == nil {
		panic("ice: Config lacks Send, Port or NewPath")
	}
	if cfg.Servers == nil {
		cfg.Servers = func() []netip.AddrPort { return nil }
	}
	if cfg.Exclude == nil {
		cfg.Exclude = func(netip.Addr) bool { return false }
	}
	if cfg.LocalAddrs == nil {
		cfg.LocalAddrs = systemAddrs
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	x := &ICE{
		cfg:      cfg,
		slots:    make(chan struct{}, maxAttempts),
		limits:   newLimiter(),
		attempts: make(map[string]*attempt),
		pending:  make(map[txID]responder),
	}
	x.life, x.end = context.WithCancel(context.Background())
	return x
}

// Close ends all attempts and waits for them and their goroutines, for at most
// a little over three seconds each, all at once. Signals given to Find and
// Answer must heed their contexts for that.
func (x *ICE) Close() error {
	x.mu.Lock()
	x.closed = true
	x.mu.Unlock()
	x.end()
	x.running.Wait()
	return nil
}

// Input takes a STUN message that the shared socket received. It neither
// blocks nor retains pkt, and tolerates anything.
func (x *ICE) Input(pkt []byte, from netip.AddrPort) {
	from = unmap(from)
	m, ok := parseSTUN(pkt)
	switch {
	case !ok || !from.IsValid():
		x.n.malformed.Add(1)
		return
	case x.cfg.Exclude(from.Addr()) || x.life.Err() != nil:
		x.n.unclaimed.Add(1)
		return
	}
	switch m.kind {
	case kindRequest:
		if m.username == nil {
			x.serve(&m, pkt, from)
			return
		}
		// RFC 8445 §7.2.2: the receiver's fragment comes first.
		ufrag, _, _ := bytes.Cut(m.username, []byte(":"))
		x.mu.Lock()
		a := x.attempts[string(ufrag)]
		x.mu.Unlock()
		if a == nil {
			x.n.unclaimed.Add(1)
			return
		}
		a.request(pkt, from)
	case kindSuccess, kindError:
		x.mu.Lock()
		r := x.pending[m.tx]
		x.mu.Unlock()
		if r == nil {
			x.n.unclaimed.Add(1)
			return
		}
		r.response(pkt, &m, from)
	default:
		x.n.unclaimed.Add(1)
	}
}

// enter takes a slot for an attempt, or says why there is none.
func (x *ICE) enter(ctx context.Context) error {
	select {
	case x.slots <- struct{}{}:
	case <-x.life.Done():
		return ErrClosed
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.closed {
		<-x.slots
		return ErrClosed
	}
	x.running.Add(1)
	return nil
}

// leave gives back what enter took.
func (x *ICE) leave() {
	<-x.slots
	x.running.Done()
}

// expect registers a transaction's owner, unless everything has ended.
func (x *ICE) expect(tx txID, r responder) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if !x.closed {
		x.pending[tx] = r
	}
}

// unexpect forgets transactions.
func (x *ICE) unexpect(txs ...txID) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, tx := range txs {
		delete(x.pending, tx)
	}
}

// Stats counts since New, but for Active, which is of now.
type Stats struct {
	Active     int    // attempts running, or lingering after success
	Found      uint64 // attempts that returned a path
	NotFound   uint64 // attempts that did not
	Served     uint64 // STUN requests answered
	Limited    uint64 // STUN requests dropped by the rate limit
	Refused    uint64 // STUN requests we do not serve, or whose answer would be too much larger
	Malformed  uint64 // datagrams that are no STUN messages
	Unclaimed  uint64 // STUN messages of no attempt or query
	QueueFull  uint64 // STUN messages an attempt had no room for
	Thinned    uint64 // connectivity checks not sent, to spare addresses that stay silent
	SendErrors uint64 // datagrams that Config.Send refused
	BadSignals uint64 // signals that could not be decoded
	Stuck      uint64 // agents that did not end in time
}

type counters struct {
	found, notFound, served, limited, refused, malformed, unclaimed,
	queueFull, thinned, sendErrors, badSignals, stuck atomic.Uint64
}

// Stats returns the counters.
func (x *ICE) Stats() Stats {
	return Stats{
		Active:     len(x.slots),
		Found:      x.n.found.Load(),
		NotFound:   x.n.notFound.Load(),
		Served:     x.n.served.Load(),
		Limited:    x.n.limited.Load(),
		Refused:    x.n.refused.Load(),
		Malformed:  x.n.malformed.Load(),
		Unclaimed:  x.n.unclaimed.Load(),
		QueueFull:  x.n.queueFull.Load(),
		Thinned:    x.n.thinned.Load(),
		SendErrors: x.n.sendErrors.Load(),
		BadSignals: x.n.badSignals.Load(),
		Stuck:      x.n.stuck.Load(),
	}
}

// unmap turns IPv4 in IPv6 into IPv4.
func unmap(a netip.AddrPort) netip.AddrPort {
	return netip.AddrPortFrom(a.Addr().Unmap(), a.Port())
}
