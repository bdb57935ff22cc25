package shaper

import (
	"runtime"
	"sync/atomic"

	"github.com/meshmpi/meshmpi/mesh/peer"
)

// Of what packets take: see package peer.
const (
	overheadIPv4 = peer.OverheadIPv4
	sealing      = peer.Sealing
)

// typeData is WireGuard's message type of sealed packets.
const typeData = 4

// Flow is what goes to one peer. Admit belongs to one goroutine; the other
// methods are safe for concurrent use.
type Flow struct {
	link     *Link
	id       peer.ID
	send     func(pkts [][]byte)
	overhead atomic.Int32

	flowState // guarded by Shaper.mu
}

// SetOverhead says what a datagram of this flow takes on the wire beyond its
// sealed bytes: peer.OverheadIPv4, the default, peer.OverheadIPv6, or what a relay's
// header adds to either. It may change with the path.
func (f *Flow) SetOverhead(bytes int) { f.overhead.Store(int32(max(bytes, 0))) }

// few is how many packets are looked at while the lock is held, so that nobody waits
// for it for long.
const few = 16

// Admit is asked before packets are sealed, each in its buffer from offset on. Those
// whose size it leaves are to be sealed now. Of the others, whose size becomes zero, the
// flow's queue has a copy, which Take hands out later, or has dropped and counted them.
func (f *Flow) Admit(bufs [][]byte, sizes []int, offset int) {
	l := f.link
	if l.open.Load() {
		return
	}
	s, now := l.s, int64(0)
	for from := 0; from < len(bufs); from += few {
		to := min(from+few, len(bufs))
		s.mu.lock()
		now = s.clock.now()
		s.m.admit(now, f, bufs[from:to], sizes[from:to], offset)
		s.finish()
	}
	s.poll(now) // now that they wait
}

// Pass notes that a packet of n bytes is sealed now without having been admitted: it
// takes its time on the link like others, but has not waited for its turn.
func (f *Flow) Pass(n int) {
	if f.link.open.Load() {
		return
	}
	s := f.link.s
	s.mu.lock()
	s.m.release(s.clock.now(), f, counted(n))
	s.mu.unlock()
}

// Send sends sealed datagrams, at most as many as the path takes at once: now
// what the rate allows now, the rest, which is copied, at its time.
func (f *Flow) Send(pkts [][]byte) {
	l := f.link
	if l.open.Load() {
		f.send(pkts)
		return
	}
	s := l.s
	s.mu.lock()
	now := s.clock.now()
	n := s.m.direct(now, f, pkts)
	for rest := pkts[n:]; ; {
		k := min(few, len(rest))
		s.m.enqueue(now, f, rest[:k])
		if rest = rest[k:]; len(rest) == 0 {
			break
		}
		s.mu.unlock()
		s.mu.lock()
	}
	s.finish()
	if n > 0 {
		f.send(pkts[:n])
		s.mu.lock()
		now = s.clock.now()
		s.m.sent(now, f)
		s.finish()
	}
	s.poll(now)
}

// Close ends the flow: what waits is dropped and counted. The path is not used
// after Close has returned, which it must not do before a send that is under
// way, so it is not to be called from there.
func (f *Flow) Close() {
	s := f.link.s
	for {
		s.mu.lock()
		done := s.m.removeFlow(f)
		s.finish()
		if done {
			return
		}
		runtime.Gosched()
	}
}
