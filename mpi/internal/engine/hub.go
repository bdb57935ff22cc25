package engine

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"sync"
	"sync/atomic"
	"unsafe"
)

// Hub joins engines of one Go process: ranks of a test, mostly. Their links are
// rings on the heap; large messages are copied from buffer to buffer.
type Hub struct {
	id uint64

	mu      sync.Mutex       // guards the rest; taken before an engine's gate, never after
	engines map[uid]*Engine  // nil: it has stopped
	job     map[Proc]*Engine // those that were given no Resolve
	changed chan struct{}
}

// NewHub makes a hub.
func NewHub() *Hub {
	var b [8]byte
	_, _ = rand.Read(b[:]) // it cannot fail
	return &Hub{
		id: binary.LittleEndian.Uint64(b[:]) | 1, engines: map[uid]*Engine{}, job: map[Proc]*Engine{},
		changed: make(chan struct{}),
	}
}

// register makes an engine known. It is called with the engine held, which is
// not known to anybody yet.
func (h *Hub) register(e *Engine) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.engines[e.me.card.uid] = e
	if _, taken := h.job[e.self]; !taken {
		h.job[e.self] = e
	}
	close(h.changed)
	h.changed = make(chan struct{})
}

func (h *Hub) remove(e *Engine) {
	go func() { // not here: the engine is held
		h.mu.Lock()
		defer h.mu.Unlock()
		h.engines[e.me.card.uid] = nil
		if h.job[e.self] == e {
			delete(h.job, e.self)
		}
	}()
}

// resolve finds the card of a process of the job; it waits for it to start.
func (h *Hub) resolve(ctx context.Context, p Proc) ([]byte, error) {
	for {
		h.mu.Lock()
		e, changed := h.job[p], h.changed
		h.mu.Unlock()
		if e != nil {
			return e.Card(), nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// errNotYet is why a link cannot be made at this moment.
type errNotYet struct{}

func (errNotYet) Error() string { return "engine: the other side is not ready" }

// join links two engines. It is called without either held.
func (h *Hub) join(from *Engine, c *card) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	to, known := h.engines[c.uid]
	switch {
	case !known:
		return errNotYet{}
	case to == nil:
		return errGoodbye
	}
	a, b := newHeapLink(from, to)
	defer func() { // at last, since only now are both there to be spoken to
		from.bell.ring()
		to.bell.ring()
	}()
	if err := to.meet(&from.me.card, from.self, b); err != nil {
		return err
	}
	err := from.meet(c, -1, a)
	if err != nil {
		a.close() // the other end is told
	}
	return err
}

const heapSlots = 1024

// newHeapLink makes the two ends of a link in memory of this process.
func newHeapLink(a, b *Engine) (*heapWire, *heapWire) {
	there, back := heapRing(heapSlots), heapRing(heapSlots)
	fromA, fromB := &exposures{data: map[uint64][]byte{}}, &exposures{data: map[uint64][]byte{}}
	wa := &heapWire{mine: fromA, theirs: fromB}
	wa.out, wa.in.ring, wa.asleep, wa.bell = newProducer(there), back, b.asleep, b.bell.ring
	wb := &heapWire{mine: fromB, theirs: fromA}
	wb.out, wb.in.ring, wb.asleep, wb.bell = newProducer(back), there, a.asleep, a.bell.ring
	wa.page, wb.page = b.page, a.page
	gone := new(atomic.Bool)
	wa.gone, wb.gone = gone, gone
	return wa, wb
}

func heapRing(slots int) ring {
	words := make([]uint64, ringBytes(slots)/8)
	return newRing(unsafe.Slice((*byte)(unsafe.Pointer(&words[0])), len(words)*8), slots)
}

// heapWire is a link within the process.
type heapWire struct {
	ringWire
	mine, theirs *exposures
	gone         *atomic.Bool // one end was closed
}

// exposures are the buffers that one end lets the other read.
type exposures struct {
	mu   sync.Mutex // guards data, and its buffers while they are read
	data map[uint64][]byte
}

func (w *heapWire) expose(name uint64, data []byte) uint64 {
	w.mine.mu.Lock()
	defer w.mine.mu.Unlock()
	w.mine.data[name] = data
	return 1
}

func (w *heapWire) conceal(name uint64) {
	w.mine.mu.Lock()
	defer w.mine.mu.Unlock()
	delete(w.mine.data, name)
}

// withdraw and claim: who reads has all at once, under the lock.
func (w *heapWire) withdraw(name uint64) bool {
	w.conceal(name)
	return true
}

func (w *heapWire) claim(uint64) bool { return true }
func (w *heapWire) unclaim(uint64)    {}

func (w *heapWire) pull(name, _ uint64, off int, dst []byte) error {
	w.theirs.mu.Lock()
	defer w.theirs.mu.Unlock()
	data := w.theirs.data[name]
	if off+len(dst) > len(data) {
		return ErrRefused
	}
	copy(dst, data[off:])
	return nil
}

func (w *heapWire) poll(c *conn) (bool, error) {
	did, err := w.ringWire.poll(c)
	if err == nil && !did && w.gone.Load() {
		return false, errPeerClosed
	}
	return did, err
}

func (w *heapWire) close() {
	w.gone.Store(true)
	w.bell()
}
