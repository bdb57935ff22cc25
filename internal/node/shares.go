package node

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"maps"
	"net"
	"net/netip"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/meshmpi/meshmpi/mesh/peer"
	"github.com/meshmpi/meshmpi/shaper/estimate"
	"github.com/meshmpi/meshmpi/shaper/share"
)

// Timing of the live shares' daemon side. Go's timers are about a millisecond
// late; nothing here needs better, since what is urgent comes by a call.
const (
	glanceEvery  = 2 * time.Millisecond   // between looks at links by who sends over them, at least
	lookEvery    = 10 * time.Millisecond  // between other looks, which wake two threads each
	idleLink     = 100 * time.Millisecond // without demand before a link is no longer looked at
	arriveEvery  = 10 * time.Millisecond  // between looks at what arrives, while something does
	arriveRarely = 100 * time.Millisecond // while nothing does
)

// shareConfig is what the live shares take from the rest of the node. The
// functions must not block; all but demand are called by one goroutine.
type shareConfig struct {
	self   peer.Node
	conn   net.PacketConn // at the node's virtual IPv4 address; closed by run
	port   uint16         // that the others have too
	limits shareLimits
	dir    shareDirectory
	// informed reports whether a hub tells who is up; nil: one does. Without, all of
	// the site count, as for the equal share.
	informed func() bool
	// demand tells what is wanted of the link to a site.
	demand func(site string) linkDemand
	// give spends bytes that this node may send to a site for another node, which is to
	// send them within life, and returns how many; if none, whether there will be some
	// within milliseconds. If there are none because it sends or lends, offer is called when
	// that ends. given takes in such bytes, to be sent until a moment.
	give  func(site string, bytes int, life time.Duration) (given int, soon bool)
	given func(site string, bytes int, until time.Time) (used bool)
	// received tells of every node of another site how many bytes on the wire have ever
	// arrived from it; nil: this node does not watch for incast.
	received func(yield func(from peer.ID, bytes int64))
	measure  measureConfig
	// onRate is told what this node may send to a site, whenever that changes; site
	// "" is the uplink.
	onRate func(site string, r lentRate)
	log    *slog.Logger
}

// lentRate is what the live shares say of a link.
type lentRate struct {
	bits      int64 // per second, that this node may send; 0 without limit
	lent      int64 // that others may be using of its share
	contended bool  // others want more than theirs
}

// shareLimits says what sites' links carry, in bits per second; 0 is unlimited.
type shareLimits interface {
	of(site string) (up, down int64)
	between(a, b string) int64
	// toMeasure returns what a site's nodes are to measure: names of other sites,
	// "" for all together. measures reports whether that concerns what goes from one
	// site to another.
	toMeasure(from string) []string
	measures(from, to string) bool
}

// shareDirectory says who there is.
type shareDirectory interface {
	All() []peer.Record
	ByID(peer.ID) (peer.Record, bool)
	ByAddr(netip.Addr) (peer.Record, bool)
}

// liveShares runs a share.Machine. One goroutine, run, owns the machine and reads
// the socket; it sleeps in that read, with the machine's next wake as the deadline, so
// that a notice is handled by who reads it. Others leave a note and cut that sleep short.
// Whoever sends looks at the links besides (glance), and leaves a note only when there is
// something to tell; requests for gifts it sends by itself (ask).
type liveShares struct {
	cfg    shareConfig
	began  time.Time
	m      *share.Machine
	rates  map[string]lentRate // as told last
	sites  []string            // all others that are known
	inflow *inflow
	gauge  *gauge
	look   time.Time                 // when demand is looked at next; zero: nothing sends, or nobody wants to know
	alone  bool                      // no other node of the site is up
	mates  atomic.Pointer[[]peer.ID] // the others that are
	gifts  giftBook

	glanced  atomic.Int64       // when links were looked at last, as now, ns
	watching sync.Mutex         // guards what follows
	senders  map[string]*sender // links that send or have sent, by site

	poked atomic.Bool
	mu    sync.Mutex // guards what follows: notes for run
	fresh bool       // members or limits have changed
	woken map[string]bool
	asked []func(*share.Machine)

	strangers atomic.Uint64 // datagrams from where no notices come from
	unsent    atomic.Uint64 // notices that the socket did not take
}

// newLiveShares returns live shares; nothing runs before run.
func newLiveShares(cfg shareConfig) *liveShares {
	now := time.Now()
	s := &liveShares{
		cfg: cfg, began: now, m: share.New(cfg.self.ID, share.Config{Start: uint64(now.UnixMicro())}),
		senders: map[string]*sender{}, rates: map[string]lentRate{}, woken: map[string]bool{}, fresh: true,
	}
	s.poked.Store(true)
	s.gauge = newGauge(s)
	if cfg.received != nil {
		s.inflow = newInflow()
	}
	return s
}

// changed says that members or limits may have changed. It may be called by
// anybody and does not block.
func (s *liveShares) changed() {
	s.mu.Lock()
	s.fresh = true
	s.mu.Unlock()
	s.poke()
}

// active says that the link to a site has woken or wants much more than a moment
// ago. It may be called by anybody, at any rate, and does not block.
func (s *liveShares) active(site string) {
	s.mu.Lock()
	s.woken[site] = true
	s.mu.Unlock()
	s.poke()
}

// explained is what there is to say of the live shares.
type explained struct {
	links     []share.Share // that are limited
	notices   share.Counters
	measuring estimate.Counters
}

// explain returns what there is to say now.
func (s *liveShares) explain(ctx context.Context) (explained, error) {
	var x explained
	done := make(chan struct{})
	s.mu.Lock()
	s.asked = append(s.asked, func(m *share.Machine) {
		x = explained{m.Explain(), m.Counters(), s.gauge.meter.Counters()}
		close(done)
	})
	s.mu.Unlock()
	s.poke()
	select {
	case <-done:
		return x, nil
	case <-ctx.Done():
		return explained{}, fmt.Errorf("node: live shares: %w", ctx.Err())
	}
}

// poke cuts run's sleep short. Once is enough until run has looked.
func (s *liveShares) poke() {
	if !s.poked.Swap(true) {
		_ = s.cfg.conn.SetReadDeadline(time.Unix(1, 0))
	}
}

// run divides the links until ctx ends.
func (s *liveShares) run(ctx context.Context) error {
	defer s.cfg.conn.Close()
	defer context.AfterFunc(ctx, s.poke)()
	buf := make([]byte, max(share.MaxNotice, estimate.MaxMessage)+1)
	for {
		until := s.turn()
		if err := s.cfg.conn.SetReadDeadline(until); err != nil {
			return s.ended(ctx, err)
		}
		// A poke before the deadline was set is seen here, a later one ends the read.
		if s.poked.Swap(false) {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			s.readNotes()
			continue
		}
		for news := false; !news; { // gifts, of which there are many, are none to the machine
			n, from, err := s.cfg.conn.ReadFrom(buf)
			switch {
			case err == nil:
				news = s.take(buf[:n], from)
			case errors.Is(err, os.ErrDeadlineExceeded):
				news = true
			case errors.Is(err, syscall.ECONNREFUSED): // a node's daemon is down
			default:
				return s.ended(ctx, err)
			}
		}
	}
}

// ended is how run ends when the socket does.
func (s *liveShares) ended(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return fmt.Errorf("node: live shares: %w", err)
}

// now is the machine's time.
func (s *liveShares) now() time.Duration { return time.Since(s.began) }

// readNotes does what others have asked for.
func (s *liveShares) readNotes() {
	s.mu.Lock()
	fresh, woken, asked := s.fresh, s.woken, s.asked
	s.fresh, s.woken, s.asked = false, map[string]bool{}, nil
	s.mu.Unlock()
	if fresh {
		s.reload()
	}
	if len(woken) > 0 {
		s.gauge.meter.Wake(s.now())
	}
	if !s.alone {
		s.watch(maps.Keys(woken))
		s.tellDemand()
	}
	for _, f := range asked {
		f(s.m)
	}
}

// watch has the links to sites looked at from now on, until they are idle.
func (s *liveShares) watch(sites iter.Seq[string]) {
	s.watching.Lock()
	defer s.watching.Unlock()
	for site := range sites {
		if s.senders[site] == nil {
			s.senders[site] = &sender{}
		}
		s.senders[site].asleep = false
		s.look = time.Now()
	}
}

// turn does what is due and returns until when to sleep; zero is for ever.
func (s *liveShares) turn() time.Time {
	now := time.Now()
	if !s.look.IsZero() && !now.Before(s.look) {
		s.lookAtLinks(now)
	}
	until := earliest(s.look, s.gauge.turn())
	if s.inflow != nil {
		until = earliest(until, s.lookAtInflow(now))
	}
	out, wake := s.m.Step(s.now())
	s.tellRates() // before others hear that it is given up
	for _, msg := range out {
		s.send(msg.To, msg.Data)
	}
	return earliest(until, s.at(wake))
}

// at is the time of a wake, zero for none.
func (s *liveShares) at(wake time.Duration) time.Time {
	if wake == 0 {
		return time.Time{}
	}
	return s.began.Add(wake)
}

// earliest returns the earlier of two times of which the zero one is never.
func earliest(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// tellRates tells what has changed.
func (s *liveShares) tellRates() {
	tell := func(site string) {
		rate := lentRate{s.m.Rate(site), s.m.Lent(site), s.m.Contended(site)}
		if was, known := s.rates[site]; known && was == rate {
			return
		}
		s.rates[site] = rate
		s.cfg.onRate(site, rate)
	}
	tell("")
	for _, site := range s.sites {
		tell(site)
	}
}

// reload takes members and limits in anew.
func (s *liveShares) reload() {
	self := s.cfg.self.Site
	var up []peer.ID
	others := map[string]bool{}
	informed := s.cfg.informed == nil || s.cfg.informed()
	for _, r := range s.cfg.dir.All() {
		switch {
		case r.Revoked:
		case r.Node.Site != self:
			others[r.Node.Site] = true
		case r.Up || !informed:
			up = append(up, r.Node.ID)
		}
	}
	now := s.now()
	s.m.Members(now, up)
	mates := slices.DeleteFunc(slices.Clone(up), func(id peer.ID) bool { return id == s.cfg.self.ID })
	s.mates.Store(&mates)
	s.gifts.keep(mates)
	s.gauge.reload(up, others)
	siteUp, siteDown := s.cfg.limits.of(self)
	s.m.Uplink(now, siteUp)
	s.m.Downlink(now, siteDown)
	s.sites = s.sites[:0]
	for site := range others {
		s.sites = append(s.sites, site)
		s.m.Capacity(now, site, s.cfg.limits.between(self, site))
	}
	was := s.alone
	s.alone = !slices.ContainsFunc(up, func(id peer.ID) bool { return id != s.cfg.self.ID })
	switch {
	case was && !s.alone:
		s.watch(slices.Values(s.sites)) // what is awake does not wake
	case s.alone && !was:
		s.watching.Lock()
		defer s.watching.Unlock()
		for site := range s.senders {
			s.m.Demand(now, site, 0, 1)
		}
		clear(s.senders)
		s.look = time.Time{}
	}
}
