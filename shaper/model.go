package shaper

import (
	"math"
	"slices"
	"time"
)

// never is a time that does not come.
const never = int64(math.MaxInt64)

const (
	idleAfter = int64(10 * time.Millisecond) // a link without traffic for so long is idle
	healAfter = int64(20 * time.Millisecond) // released packets not seen for so long are lost
)

// model is the pacer without threads, locks or clock: every method takes the
// time, ns on any clock that does not go back. stage1.go and stage2.go hold the
// two stages.
type model struct {
	uplink  bucket
	crest   bucket // how fast the uplink's extra bytes leave
	links   []*Link
	busy    []*Link // those with a limit, or with something waiting
	pool    pool
	two     int    // bytes on the wire of two of the largest datagrams seen; until a full one is, Pair
	largest int    // bytes of the largest
	served  uint64 // virtual time of the uplink: of the link served last
	sends   octile // how long sends take
	turn    int    // the link that take begins with
	kicked  bool   // the reader has been told and has not come yet
	woken   []*Link
	closed  bool
}

// linkState is the model's part of a link.
type linkState struct {
	down    bucket // the link itself
	crest   bucket // how fast its extra bytes leave
	most    Rate   // what its limit may become
	burst   int    // of each flow may wait unmarked, bytes; see markBytes
	carried int64  // what its limits would have let through by the time of limited, bytes
	limited int64  // when its limit last changed
	flows   []*Flow
	gone    FlowStats // sums of closed flows
	wait    stage     // stage 1
	out     stage     // stage 2
	urgent  stage     // stage 2's packets that go first

	released int   // bytes that stage 1 has let through and stage 2 has not sent, of all flows
	progress int64 // when something was last released into nothing, or sent
	last     int64 // when something was last sent or queued
	window   int64 // what released may be, ns at the rate
	eased    int64 // when window was last made smaller
	healed   uint64
	virtual  uint64 // bytes served, for sharing the uplink
	wanted   bool   // others have asked it to give, and something waited
	given    uint64 // bytes that other nodes may send instead
	taken    uint64 // bytes that other nodes have given
}

// stage is what waits in one place of a link, over all flows.
type stage struct {
	round
	bytes   int
	packets int
}

// flowState is the model's part of a flow.
type flowState struct {
	wait   fifo
	out    fifo
	urgent fifo
	batch  [][]byte // what is being sent from out or urgent
	from   *fifo    // where batch came from, nil: from the caller
	busy   bool     // a send is under way
	began  int64    // since when
	costs  [4]int64 // what it was charged, ns, by bucket
	closed bool
	stats  FlowStats
	worst  [2]worst // waits in stage 1 and 2

	released int   // its part of the link's
	progress int64 // as the link's
	lost     bool  // what was released of it has not come; see heal
}

func (m *model) init() { m.two = Pair }

// limit is the rate that a link can have at most, 0 for any.
func (m *model) limit(l *Link) Rate {
	if l.down.rate == 0 || m.uplink.rate != 0 && m.uplink.rate < l.down.rate {
		return m.uplink.rate
	}
	return l.down.rate
}

// span is what a link can carry in t ns, bytes; the link has a limit.
func (m *model) span(l *Link, t int64) int {
	return int(float64(m.limit(l)) / 8e9 * float64(t))
}

// carries is what a link's limits would have let through until now, bytes.
func (m *model) carries(now int64, l *Link) int64 {
	return l.carried + int64(m.span(l, now-l.limited))
}

// relimit changes a limit of links.
func (m *model) relimit(now int64, links []*Link, change func()) {
	for _, l := range links {
		l.carried, l.limited = m.carries(now, l), now
	}
	change()
	for _, l := range links {
		m.settle(l)
	}
}

func (m *model) setUplink(now int64, r Rate) {
	m.relimit(now, m.links, func() { m.uplink.set(now, r, m.two) })
}

func (m *model) setRate(now int64, l *Link, r Rate) {
	m.relimit(now, []*Link{l}, func() { l.down.set(now, r, m.two) })
}

// setMost has a link's packets marked as befits a higher rate, and lets extra bytes
// leave at that rate.
func (m *model) setMost(now int64, l *Link, most Rate, extra int) {
	l.most = most
	m.deepen(now, &l.down, &l.crest, most, extra)
	m.settle(l)
}

func (m *model) setUplinkMost(now int64, most Rate, extra int) {
	m.deepen(now, &m.uplink, &m.crest, most, extra)
	for _, l := range m.links {
		m.settle(l)
	}
}

// deepen lets extra bytes through a bucket, spaced by another.
func (m *model) deepen(now int64, b, crest *bucket, most Rate, extra int) {
	if extra == 0 {
		most = 0
	} else if most == 0 {
		extra = 0 // nothing would space them
	}
	b.extra = extra
	if extra == 0 {
		b.gifts.drop() // nothing would space these either
	}
	b.set(now, b.rate, m.two)
	crest.set(now, most, m.two)
}

// grow notes the size of a datagram on the wire: two of the largest may leave
// together.
func (m *model) grow(now int64, wire int) {
	if wire <= m.largest {
		return
	}
	m.largest = wire
	if wire < fullSize || 2*wire == m.two {
		return
	}
	m.two = 2 * wire
	m.uplink.set(now, m.uplink.rate, m.two)
	m.crest.set(now, m.crest.rate, m.two)
	for _, l := range m.links {
		l.down.set(now, l.down.rate, m.two)
		l.crest.set(now, l.crest.rate, m.two)
	}
}

// settle brings what follows from a link's state up to date.
func (m *model) settle(l *Link) {
	limited := m.limit(l) != 0 && !m.closed
	waits := l.waits()
	l.open.Store(!limited && !waits)
	if !limited {
		l.forget()
	}
	at := slices.Index(m.busy, l)
	switch {
	case (limited || waits) && at < 0:
		m.busy = append(m.busy, l)
	case !limited && !waits && at >= 0:
		m.busy = slices.Delete(m.busy, at, at+1)
	}
	waiting := int64(l.wait.bytes + l.out.bytes + l.urgent.bytes)
	l.demand.waiting.Store(waiting)
	switch full := l.demand.full.Load(); {
	case waiting < Backlog && full != 0:
		l.demand.full.Store(0)
	case waiting >= Backlog && full == 0:
		l.demand.full.Store(l.last)
	}
}

// forget counts nothing as released.
func (l *Link) forget() {
	if l.released == 0 {
		return
	}
	l.released = 0
	for _, f := range l.flows {
		f.released = 0
	}
}

func (m *model) addLink(now int64, l *Link) {
	l.window, l.eased, l.limited = windowTime, now, now
	m.links = append(m.links, l)
	m.settle(l)
}

func (m *model) addFlow(f *Flow) {
	f.wait.flow, f.out.flow, f.urgent.flow = f, f, f
	f.batch = make([][]byte, 0, maxBatch)
	f.link.flows = append(f.link.flows, f)
	f.closed = m.closed
}

// removeFlow forgets a flow unless a send is under way. It may be called again.
func (m *model) removeFlow(f *Flow) bool {
	f.closed = true
	if f.busy {
		return false
	}
	l := f.link
	at := slices.Index(l.flows, f)
	if at < 0 {
		return true
	}
	m.discard(f)
	l.released, f.released = l.released-f.released, 0
	l.flows = slices.Delete(l.flows, at, at+1)
	l.gone.add(f.stats)
	m.settle(l)
	return true
}

// discard drops what waits in a flow that is not busy.
func (m *model) discard(f *Flow) {
	l := f.link
	for _, x := range []struct {
		s *stage
		q *fifo
	}{{&l.wait, &f.wait}, {&l.out, &f.out}, {&l.urgent, &f.urgent}} {
		x.s.bytes -= x.q.bytes
		x.s.packets -= x.q.packets
		f.stats.Dropped += uint64(x.q.drain(&m.pool))
		x.s.remove(x.q)
	}
	if l.wait.packets == 0 {
		l.wait.clear()
	}
}

// close lifts every limit and drops what waits, except what is being sent.
func (m *model) close() {
	m.closed = true
	for _, l := range m.links {
		for _, f := range l.flows {
			f.closed = true
			if !f.busy {
				m.discard(f)
			}
		}
		m.settle(l)
	}
}

// wake notes that a link has something to send: if nothing waited before, what
// it could have sent meanwhile is forfeited.
func (m *model) wake(now int64, l *Link) {
	if !l.waits() {
		l.down.gifts.drop()
		l.down.rested(now)
		if !m.backlogged() {
			m.uplink.gifts.drop()
			m.uplink.rested(now)
		}
		l.virtual = max(l.virtual, m.served)
	}
	if now-l.last > idleAfter || l.last == 0 {
		m.woken = append(m.woken, l)
	}
	m.seen(now, l)
}

// seen notes that a link is in use.
func (m *model) seen(now int64, l *Link) {
	l.last = now
	l.demand.last.Store(now)
}

// waits reports whether a link has something waiting.
func (l *linkState) waits() bool { return l.wait.packets+l.out.packets+l.urgent.packets > 0 }

// backlogged reports whether any link has something waiting.
func (m *model) backlogged() bool {
	for _, l := range m.busy {
		if l.waits() {
			return true
		}
	}
	return false
}

// takeWoken returns the links that have woken since it was last asked.
func (m *model) takeWoken() []*Link {
	w := m.woken
	m.woken = nil
	return w
}
