package shaper

import (
	"encoding/binary"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/meshmpi/meshmpi/mesh/peer"
)

const (
	us = int64(time.Microsecond)
	ms = int64(time.Millisecond)
)

// departure is a datagram on the wire.
type departure struct {
	at   int64
	flow *Flow
	wire int
	seq  uint64
}

// world drives a model in simulated time, as the pacing thread, the reader and
// WireGuard would.
type world struct {
	t     *testing.T
	now   int64
	m     *model
	log   []departure
	late  func() int64 // how late the thread is, each time
	takes func() int64 // how long a send of the thread's takes; it leaves in the end
	sent  map[*Flow]uint64
	buf   [][]byte
	sizes []int
}

func newWorld(t *testing.T) *world {
	w := &world{t: t, now: int64(1000 * time.Hour), m: &model{}, sent: map[*Flow]uint64{}}
	w.m.init()
	w.sizes = make([]int, 128)
	for range 128 {
		w.buf = append(w.buf, make([]byte, 2048))
	}
	return w
}

func (w *world) link(r Rate) *Link {
	l := &Link{site: "there"}
	w.m.addLink(w.now, l)
	w.m.setRate(w.now, l, r)
	return l
}

func (w *world) flow(l *Link) *Flow {
	f := &Flow{link: l}
	f.id = peer.ID{byte(len(l.flows) + 1)}
	f.overhead.Store(overheadIPv4)
	f.send = func(pkts [][]byte) {
		for _, p := range pkts {
			w.log = append(w.log, departure{w.now, f, len(p) + int(f.overhead.Load()), binary.BigEndian.Uint64(p[8:])})
		}
	}
	w.m.addFlow(f)
	return f
}

// sealed is a datagram of WireGuard's with n bytes in all.
func sealed(seq uint64, n int) []byte {
	p := make([]byte, n)
	p[0] = typeData
	if n >= 16 {
		binary.BigEndian.PutUint64(p[8:], seq)
	}
	return p
}

// admits is Flow.Admit of one packet, and reports whether it is to be sealed.
func (w *world) admits(f *Flow, pkt []byte) bool {
	sizes := []int{len(pkt)}
	w.m.admit(w.now, f, [][]byte{pkt}, sizes, 0)
	return sizes[0] != 0
}

// send is Flow.Send.
func (w *world) send(f *Flow, pkts ...[]byte) {
	n := w.m.direct(w.now, f, pkts)
	w.m.enqueue(w.now, f, pkts[n:])
	if n > 0 {
		f.send(pkts[:n])
		w.m.sent(w.now, f)
	}
}

// run lets time pass until the given time, the thread serving what is due.
// between, unless nil, is called after each of its passes.
func (w *world) run(until int64, between func()) {
	for {
		if between != nil {
			between()
		}
		due := w.m.due()
		if w.late != nil && due != never {
			due = max(due, w.now) + w.late()
		}
		if due > until {
			w.now = until
			return
		}
		w.now = max(w.now, due)
		w.serve()
	}
}

// serve is one pass of the thread.
func (w *world) serve() {
	for n := 0; ; n++ {
		f := w.m.pick(w.now)
		if f == nil {
			break
		}
		if w.takes != nil {
			w.now += w.takes()
		}
		f.send(f.batch)
		w.m.sent(w.now, f)
		if n > 1e6 {
			w.t.Fatal("the thread does not come to rest")
		}
	}
	if w.m.due() <= w.now && w.m.kick() == false {
		w.t.Fatalf("something is due, and yet nothing is to be done: %+v", w.m)
	}
}

// taken is what the reader does after a kick.
func (w *world) taken(do func(pkt []byte)) int {
	n := w.m.take(w.now, w.buf, w.sizes, 16)
	for i := range n {
		do(w.buf[i][16 : 16+w.sizes[i]])
	}
	return n
}

// bytes returns what left by [from, to).
func (w *world) bytes(from, to int64, f *Flow) (sum int) {
	for _, d := range w.log {
		if d.at >= from && d.at < to && (f == nil || d.flow == f) {
			sum += d.wire
		}
	}
	return sum
}

// beyond is what a bucket may let through beyond its rate, bytes: a burst of so many,
// and what was late.
func beyond(r Rate, burst int) int {
	var b bucket
	b.set(0, r, Pair)
	b.late = maxLate
	return burst + int(int64(r)*b.slack()/8e9)
}

// checkBursts verifies that never more than burst bytes leave back to back.
func checkBursts(t *testing.T, log []departure, burst int) {
	t.Helper()
	sum := 0
	for i, d := range log {
		if i > 0 && d.at != log[i-1].at {
			sum = 0
		}
		if sum += d.wire; sum > burst {
			t.Fatalf("datagram %d: %d bytes left at once, want at most %d", i, sum, burst)
		}
	}
}

// checkWindows verifies that no window of any length holds more than rate × t +
// depth bytes, by the largest excess of the arrival curve, in one pass.
func checkWindows(t *testing.T, log []departure, r float64, depth int) {
	t.Helper()
	low, sum := 0.0, 0.0
	for i, d := range log {
		drained := r / 8e9 * float64(d.at-log[0].at)
		low = min(low, sum-drained)
		sum += float64(d.wire)
		if excess := sum - drained - low; excess > float64(depth)+1 {
			t.Fatalf("datagram %d: a window that ends with it has %.0f bytes more than the rate's, want at most %d", i, excess, depth)
		}
	}
}

// sizer returns sizes of sealed datagrams.
type sizer func(r *rand.Rand) int

func fixed(n int) sizer { return func(*rand.Rand) int { return n } }

func mixture(r *rand.Rand) int {
	switch r.IntN(3) {
	case 0:
		return 64
	case 1:
		return 1452
	}
	return 64 + r.IntN(1437)
}
