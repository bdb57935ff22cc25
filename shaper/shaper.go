// Package shaper paces what a node sends to other sites, so that a link between
// sites which many nodes share is full and yet no switch on it overflows: a tail
// that a switch drops costs a job a retransmission time-out of 200 ms and more.
//
// A token bucket on a timer is not good enough for that, since it lets bursts
// through. So there is a thread of its own that keeps time to some ten
// microseconds, and two stages:
//
//	program ─ TUN ─ Admit ┬──────────────────────────► WireGuard ─ Send ─ path
//	                      └ queue ─ Kick ─ Take ─────►              │
//	                     (stage 1: fair, ECN)           (stage 2: exact spacing)
//
// Stage 1, before encryption, is where TCP's queue lives: one per peer, served
// by deficit round robin, new messages first and on credit (compare RFC 8290),
// marked (RFC 3168) where more than a message, or than others say, waits longer than
// some ten milliseconds, dropping at its limit only. It lets through what stage 2 needs so
// as not to run dry, some ten milliseconds' worth. Stage 2, after encryption, spaces
// datagrams, two by two, by the generic cell rate algorithm, on bytes on the wire, for
// the link and the node's uplink both.
//
// The package decides nothing of rates: others set them. It does not delay
// traffic on links without a limit, does not reorder within a flow, but for bare
// acknowledgements of TCP that overtake data, and paces nothing that it is not handed.
package shaper

import (
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/meshmpi/meshmpi/mesh/peer"
)

// Rate is in bits per second of bytes on the wire, headers included from
// Ethernet's on. 0 means unlimited.
type Rate int64

// MaxRate is the highest limit; what is set above it counts as unlimited.
const MaxRate Rate = 1e12

// Config says whom a Shaper tells what. None of its functions may block, save Hold, or
// call back into the Shaper, save Poll, which may set rates and ask links what they lack.
type Config struct {
	// Log hears once with which priority the pacing thread runs. Nil: nobody does.
	Log *slog.Logger

	// Kick says that packets have become ready for Take. It is called once
	// until the next Take, mostly by the pacing thread. A goroutine that it
	// makes ready by a channel may wait for a processor, which that thread
	// holds while it paces; a write to an eventfd has no such trouble.
	Kick func()

	// Poll, which may be nil, is called at most every 200 µs by who sends over a
	// limited link, never concurrently; it may set rates.
	Poll func()

	// PollLate, which may be nil, is called by the pacing thread where packets wait and
	// nobody has polled for 2 ms: another goroutine is to do soon what Poll does. What
	// is said of Kick and goroutines holds here, too.
	PollLate func()

	// Freed, which may be nil, is called when nothing waits any more for what a link may
	// send that was asked to give meanwhile (Link.Give), by the pacing thread or by who
	// sends. What is said of Kick and goroutines holds here, too.
	Freed func()

	// Hold is asked by the pacing thread before it sleeps, whether it may keep one
	// of Go's processors meanwhile, and told whether there is traffic for which it
	// wants it. If not, it may be late. If it may, the owner should have seen to one
	// more than others need, before it answers: for that it may block. It should say so
	// until that one is gone: while it is nobody's, Go wakes threads for it. Nil: it may
	// while there is traffic.
	Hold func(traffic bool) bool

	// Active, which may be nil, is called by who sends when something is to be sent over
	// a limited link that has been idle for 10 ms or more.
	Active func(site string)
}

// Shaper paces the traffic of one node. Its methods are safe for concurrent
// use, except that Take belongs to the goroutine that calls Flow.Admit.
type Shaper struct {
	cfg    Config
	clock  clock
	thread *thread

	polling atomic.Bool
	polled  atomic.Int64 // when Poll, or PollLate, was last called, ns

	mu    lock // guards what is below
	m     model
	links map[string]*Link
}

// New starts the pacing thread, which sleeps for good until there is something
// to pace. It fails when the system has no such thread to give.
func New(cfg Config) (*Shaper, error) {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.Kick == nil {
		return nil, errors.New("shaper: Config.Kick is missing")
	}
	s := &Shaper{cfg: cfg, links: map[string]*Link{}}
	var err error
	if s.clock, err = newClock(); err != nil {
		return nil, fmt.Errorf("shaper: read the monotonic clock: %w", err)
	}
	s.polled.Store(s.clock.now())
	s.m.init()
	s.thread = newThread(s)
	go s.thread.run() // until Close
	return s, nil
}

// Close ends the pacing thread. What waits is dropped and counted; what is sent
// later passes unpaced.
func (s *Shaper) Close() error {
	s.mu.lock()
	s.m.close()
	s.mu.unlock()
	s.thread.stop()
	return nil
}

// SetUplink limits what this node sends to all other sites together.
func (s *Shaper) SetUplink(r Rate) {
	s.mu.lock()
	s.m.setUplink(s.clock.now(), clamp(r))
	s.finish()
}

// Link returns the link to a site, made at first use, with no limit of its own.
func (s *Shaper) Link(site string) *Link {
	s.mu.lock()
	defer s.mu.unlock()
	l := s.links[site]
	if l == nil {
		l = &Link{s: s, site: site}
		s.links[site] = l
		s.m.addLink(s.clock.now(), l)
	}
	return l
}

// Take moves packets that stage 1 releases into bufs, each from offset on, sets
// their sizes, and returns how many there are. It is to be called after Kick,
// and again while it fills all buffers.
func (s *Shaper) Take(bufs [][]byte, sizes []int, offset int) int {
	n := 0
	for n < len(bufs) {
		end := min(n+few, len(bufs))
		s.mu.lock()
		k := s.m.take(s.clock.now(), bufs[n:end], sizes[n:end], offset)
		s.finish()
		n += k
		if n < end {
			break
		}
	}
	return n
}

// finish gives up the lock, wakes the pacing thread if something is now due
// before it would look, kicks the reader if there is something to take, and tells
// of what else has changed.
func (s *Shaper) finish() {
	kick, freed := s.m.kick(), s.m.takeFreed()
	woken := s.m.takeWoken()
	wake := s.m.due() < s.thread.until
	if wake {
		s.thread.until = 0 // one wake is enough
	}
	s.mu.unlock()
	if wake {
		s.thread.wake()
	}
	if kick {
		s.cfg.Kick()
	}
	if freed && s.cfg.Freed != nil {
		s.cfg.Freed()
	}
	if s.cfg.Active != nil {
		for _, l := range woken {
			s.cfg.Active(l.site)
		}
	}
}

// hold reports whether the pacing thread is to keep a processor while it sleeps.
func (s *Shaper) hold(traffic bool) bool {
	if s.cfg.Hold == nil {
		return traffic
	}
	return s.cfg.Hold(traffic)
}

// pollEvery is how often at most Poll is called.
const pollEvery = int64(200 * time.Microsecond)

// poll calls Config.Poll when it is time.
func (s *Shaper) poll(now int64) {
	if s.cfg.Poll == nil || now-s.polled.Load() < pollEvery || !s.polling.CompareAndSwap(false, true) {
		return
	}
	s.polled.Store(now)
	s.cfg.Poll()
	s.polling.Store(false)
}

// pollLate is the pacing thread's part: Poll takes locks for which that thread must not
// be parked, and what it readied would wait for the processor that this one keeps.
func (s *Shaper) pollLate() {
	if now := s.clock.now(); s.cfg.PollLate != nil && now-s.polled.Load() >= pollSleep {
		s.polled.Store(now)
		s.cfg.PollLate()
	}
}

// Link is the way to another site, shared by the flows to its nodes.
type Link struct {
	s    *Shaper
	site string
	open atomic.Bool // unlimited, and nothing waits: packets pass untouched

	demand struct{ waiting, sent, last, full atomic.Int64 }

	linkState // guarded by Shaper.mu
}

// SetRate limits the link. It may be called every millisecond, with packets
// waiting, which from then on leave at the new rate.
func (l *Link) SetRate(r Rate) {
	l.s.mu.lock()
	l.s.m.setRate(l.s.clock.now(), l, clamp(r))
	l.s.finish()
}

// SetMost says which rate the link may be given from one moment to the next, when
// others leave theirs, 0, the default, for none but the present. TCP then can fill it
// at once only if enough is under way or queued before, so packets are marked later.
// And a link that was idle may send extra bytes at that rate before its own counts:
// less than what the queue behind holds, divided by those who share it.
func (l *Link) SetMost(r Rate, extra int) {
	l.s.mu.lock()
	l.s.m.setMost(l.s.clock.now(), l, clamp(r), extra)
	l.s.finish()
}

// SetBurst says how many bytes of each flow may wait unmarked, however long: what TCP
// has under way before it hears of a mark, and sends at once after a pause. Cut for that,
// its window would be less than fills the link. What is below 64 KiB counts as that. A
// flow's queue holds four times as much, all of the link's eight times.
func (l *Link) SetBurst(bytes int) {
	l.s.mu.lock()
	l.burst = bytes
	l.s.finish()
}

// SetUplinkMost is SetMost for what leaves to all sites together.
func (s *Shaper) SetUplinkMost(r Rate, extra int) {
	s.mu.lock()
	s.m.setUplinkMost(s.clock.now(), clamp(r), extra)
	s.finish()
}

// Flow returns a new flow over the link: the packets for one peer. send is the
// peer's path: it never blocks, retains nothing, may write behind a packet up to
// its capacity, and is called from the pacing thread and from whoever calls
// Flow.Send; on a limited link never concurrently, on one without a limit as
// Flow.Send is.
func (l *Link) Flow(id peer.ID, send func(pkts [][]byte)) *Flow {
	f := &Flow{link: l, id: id, send: send}
	f.overhead.Store(overheadIPv4)
	l.s.mu.lock()
	defer l.s.mu.unlock()
	l.s.m.addFlow(f)
	return f
}

// Demand tells how much a link is wanted.
type Demand struct {
	Waiting int64     // bytes on the wire that wait, in either stage
	Sent    int64     // bytes on the wire sent while the link had a limit, since it was made
	Last    time.Time // when something was last sent or queued; zero: never
	Full    time.Time // since when Backlog or more has waited; zero: less waits
}

// Backlog is how many bytes wait in a link that could send more than it may.
const Backlog = 2 * 1500

// Demand returns what is wanted of the link. It costs four atomic loads.
func (l *Link) Demand() Demand {
	d := Demand{Waiting: l.demand.waiting.Load(), Sent: l.demand.sent.Load()}
	if last := l.demand.last.Load(); last != 0 {
		d.Last = l.s.clock.time(last)
	}
	if full := l.demand.full.Load(); full != 0 {
		d.Full = l.s.clock.time(full)
	}
	return d
}

func clamp(r Rate) Rate {
	if r <= 0 || r > MaxRate {
		return 0
	}
	return r
}
