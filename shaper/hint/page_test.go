package hint

import (
	"encoding/binary"
	"sync"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func newPage() page {
	p := page(make([]byte, Size))
	p.format()
	return p
}

// TestPage enters and leaves operations and reads what is left each time.
func TestPage(t *testing.T) {
	p := newPage()
	r := reader{page: p}
	if err := r.check(); err != nil {
		t.Fatal(err)
	}
	want := func(what string, op Op, hosts int) {
		t.Helper()
		if got := r.request(); got != (Request{Op: op, Hosts: hosts}) {
			t.Errorf("%s: %+v, want %v of %d hosts", what, got, op, hosts)
		}
	}
	want("empty", None, 0)
	p.enter(Alltoall, 4)
	want("one", Alltoall, 4)
	p.enter(Alltoallv, 8)
	p.enter(Alltoallv, 8)
	p.enter(Alltoallw, 2)
	want("larger within", Alltoallv, 8)
	p.leave(Alltoallv, 8)
	want("one of two", Alltoallv, 8)
	p.leave(Alltoall, 8) // was never entered
	p.leave(Alltoallv, 8)
	want("what was", Alltoall, 4)
	p.leave(Alltoall, 4)
	p.leave(Alltoallw, 2)
	want("all left", None, 0)
	if e, l := p.entered(Alltoallv).Load(), p.left(Alltoallv).Load(); e != 2 || l != 2 {
		t.Errorf("%d entered and %d left, want 2 of each", e, l)
	}
	for i := range slots + 3 {
		if ok := p.enter(Alltoall, i+1); ok != (i < slots) {
			t.Errorf("entering number %d: %v", i+1, ok)
		}
	}
	if n := p.word(offDropped).Load(); n != 3 {
		t.Errorf("%d dropped, want 3", n)
	}
}

// TestFullSlot: when a slot's count is full, the next of its like is entered in another.
func TestFullSlot(t *testing.T) {
	p := newPage()
	p.slot(0).Store(slotKey(Alltoall, 4) | maxCount)
	if !p.enter(Alltoall, 4) || p.slot(1).Load() != slotKey(Alltoall, 4)|1 {
		t.Errorf("slots hold %#x, %#x", p.slot(0).Load(), p.slot(1).Load())
	}
}

// TestAtOnce: writers and a reader do not disturb each other, and nothing is left
// at the end. The race detector looks on; the memory is the heap's.
func TestAtOnce(t *testing.T) {
	p := newPage()
	const writers, loops = 8, 2000
	var all sync.WaitGroup
	for w := range writers {
		all.Go(func() {
			op, hosts := Op(1+w%3), 1+w%4
			for range loops {
				if !p.enter(op, hosts) {
					t.Error("no room")
				}
				p.leave(op, hosts)
			}
		})
	}
	done := make(chan struct{})
	go func() { all.Wait(); close(done) }() // ends with the writers
	r := reader{page: p}
	for running := true; running; {
		select {
		case <-done:
			running = false
		default:
		}
		if q := r.request(); q.Hosts < 0 || q.Hosts > 4 || (q.Op == None) != (q.Hosts == 0) {
			t.Fatalf("read %+v", q)
		}
	}
	if q := r.request(); q != (Request{}) {
		t.Errorf("left behind: %+v", q)
	}
	for op := Alltoall; op <= Alltoallw; op++ {
		if e, l := p.entered(op).Load(), p.left(op).Load(); e != l || e == 0 {
			t.Errorf("%v: %d entered, %d left", op, e, l)
		}
	}
}

// TestRanges: what a page says is held to ranges.
func TestRanges(t *testing.T) {
	p := newPage()
	for _, tt := range []struct {
		matb, parts, slot uint64
		want              Request
	}{
		{1, 1, 0, Request{MATB: MinMATB, Parts: Whole}},
		{1e9, 4 * Whole, slotKey(Alltoall, 3) | 1, Request{MATB: 1e9, Parts: 4 * Whole, Op: Alltoall, Hosts: 3}},
		{1 << 63, 1 << 63, 1<<63 | 1<<16 | 9, Request{Parts: maxParts, Op: Alltoall, Hosts: MaxHosts}},
		{0, 0, 5<<32 | 1<<16, Request{}},                    // no count
		{0, 0, 1<<16 | 1, Request{}},                        // no hosts
		{0, 0, 5<<32 | 1, Request{}},                        // no operation
		{0, 0, 5<<32 | maxOps<<16 | 1, Request{}},           // one of no page
		{0, 0, 5<<32 | 0x101<<16 | 1, Request{}},            // nor if its low byte is
		{0, 0, 5<<32 | 7<<16 | 1, Request{Op: 7, Hosts: 5}}, // a newer program's
	} {
		p.word(offMATB).Store(tt.matb)
		p.word(offParts).Store(tt.parts)
		p.slot(slots - 1).Store(tt.slot)
		if got := p.request(); got != tt.want {
			t.Errorf("matb %d, parts %d, slot %#x: %+v, want %+v", tt.matb, tt.parts, tt.slot, got, tt.want)
		}
	}
}

func TestRate(t *testing.T) {
	for _, tt := range []struct {
		r       Request
		b, want int64
	}{
		{Request{}, 100, 0},
		{Request{MATB: 50}, 100, 50},
		{Request{MATB: 500, Hosts: 4}, 100, 100},
		{Request{MATB: 500}, 0, 500},
		{Request{Hosts: 4, Parts: 2 * Whole}, 100, 25},
		{Request{Hosts: 4}, 0, 0},
		{Request{Hosts: 4}, 3, 1},
		{Request{Parts: 2 * Whole}, 100, 50},
		{Request{Parts: Whole}, MaxMATB, MaxMATB},
		{Request{Parts: 5 * Whole / 2}, 1e9, 4e8},
	} {
		if got := tt.r.Rate(tt.b); got != tt.want {
			t.Errorf("%+v of %d: %d, want %d", tt.r, tt.b, got, tt.want)
		}
	}
	a, b := Request{Op: Alltoall, Hosts: 4, MATB: 9, Parts: 1}, Request{Op: Alltoallv, Hosts: 5, MATB: 7}
	if got, want := a.join(b), (Request{Op: Alltoallv, Hosts: 5, MATB: 7, Parts: 1}); got != want || b.join(a) != want {
		t.Errorf("joined: %+v and %+v, want %+v", got, b.join(a), want)
	}
}

// FuzzPage reads pages that hold anything.
func FuzzPage(f *testing.F) {
	f.Add([]byte{}, uint16(0))
	f.Add([]byte{1, 0, 1, 0, 4, 0, 0, 0}, uint16(offSlots))
	f.Fuzz(func(t *testing.T, b []byte, off uint16) {
		p := newPage()
		if int(off) < len(p) {
			copy(p[off:], b)
		}
		_ = p.check()
		r := reader{page: p}
		q := r.request()
		if q.Hosts < 0 || q.Hosts > MaxHosts || (q.Hosts == 0) != (q.Op == None) || q.Op >= maxOps ||
			q.MATB < 0 || q.MATB > MaxMATB || q.MATB > 0 && q.MATB < MinMATB || q.Parts < 0 || q.Parts > maxParts || q.Parts > 0 && q.Parts < Whole {
			t.Errorf("%+v", q)
		}
		for _, b := range []int64{0, 1, 1e8, MaxMATB} {
			if v := q.Rate(b); v < 0 || b > 0 && v > b {
				t.Errorf("%+v of %d is %d", q, b, v)
			}
		}
	})
}

// TestBytes: the offsets that the C library knows too.
func TestBytes(t *testing.T) {
	p := newPage()
	p.enter(Alltoallv, 300)
	p.set(offMATB, 0x1122334455)
	for off, want := range map[int]uint64{0: pageMagic | pageVersion<<32, 8: 2, 16: 0x1122334455, 80: 1, 256: 300<<32 | 2<<16 | 1} {
		if binary.NativeEndian.Uint16([]byte{1, 0}) != 1 && off == 0 {
			continue // halves
		}
		if got := binary.NativeEndian.Uint64(p[off:]); got != want {
			t.Errorf("at %d: %#x, want %#x", off, got, want)
		}
	}
}
