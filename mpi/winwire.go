package mpi

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/meshmpi/meshmpi/mpi/datatype"
	"github.com/meshmpi/meshmpi/mpi/internal/engine"
)

// What the members of a window tell each other, as active messages. Those from
// one rank to another are handled in order, so that an answer to rmaFlush says
// that everything before it has been done.
const (
	rmaPut uint8 = iota + 1
	rmaGet
	rmaAccumulate
	rmaFetch
	rmaSwap
	rmaReply // data that was asked for
	rmaFlush // answered by rmaFlushed
	rmaFlushed
	rmaLock // answered by rmaLocked when it is granted, or refused
	rmaLocked
	rmaUnlock  // answered by rmaFlushed
	rmaExposed // the target has called Post
	rmaDone    // the origin has called Complete
)

// winHeader is 24 bytes: window, kind, operation, byte order, number of what is
// waited for, offset in bytes, length in bytes or lockNow.
type winHeader struct {
	base   uint32
	kind   uint8
	op     uint8
	big    uint8
	number uint32
	offset uint64
	n      uint32
}

func (h *winHeader) encode() (b [24]byte) {
	binary.LittleEndian.PutUint32(b[0:], h.base)
	b[4], b[5], b[6] = h.kind, h.op, h.big
	binary.LittleEndian.PutUint32(b[8:], h.number)
	binary.LittleEndian.PutUint64(b[12:], h.offset)
	binary.LittleEndian.PutUint32(b[20:], h.n)
	return b
}

func parseWinHeader(b *[24]byte) winHeader {
	return winHeader{
		base: binary.LittleEndian.Uint32(b[0:]), kind: b[4], op: b[5], big: b[6], number: binary.LittleEndian.Uint32(b[8:]),
		offset: binary.LittleEndian.Uint64(b[12:]), n: binary.LittleEndian.Uint32(b[20:]),
	}
}

// bigEndian is 1 on machines that are.
var bigEndian = func() uint8 {
	if binary.NativeEndian.Uint16([]byte{0, 1}) == 1 {
		return 1
	}
	return 0
}()

// winReply is where an answer goes.
type winReply struct {
	target int
	dst    []byte
	done   func(*engine.Op, error)
}

// mostOwed is how many bytes of answers a rank asks one target for at a time: what the
// target holds of them, and more than most links have under way.
const mostOwed = 16 << 20

// lane is what goes to one target: in order, and no faster than its answers come. The
// engine guards it.
type lane struct {
	queue   []func(*engine.Op) bool // each sends a message, if any is left, and reports whether more are
	owed    int                     // bytes of answers that have been asked for
	running bool
}

// enqueue sends what next has to send to a target, now or when there is room for the
// answers, after all that was enqueued before.
func (w *window) enqueue(op *engine.Op, target int, next func(*engine.Op) bool) {
	l := &w.lanes[target]
	l.queue = append(l.queue, next)
	l.run(op)
}

// run sends what there is room for.
func (l *lane) run(op *engine.Op) {
	if l.running {
		return
	}
	l.running = true
	for len(l.queue) > 0 && l.owed < mostOwed {
		if !l.queue[0](op) {
			l.queue = slices.Delete(l.queue, 0, 1)
		}
	}
	l.running = false
}

// accessing is one access under way: several messages, if it is large.
type accessing struct {
	w        *window
	target   int
	kind     uint8
	op       datatype.OpKind
	src, dst []byte
	offset   int       // of the rest, in bytes
	rest     int       // bytes for which no message has been sent
	id       engine.ID // of its Request; zero: none
	left     int       // messages and answers that have not ended
	err      error
}

// piece is how many bytes one message of an access is about.
func (a *accessing) piece() int {
	if a.kind == rmaSwap {
		return a.w.size
	}
	return engine.MaxPost / a.w.size * a.w.size
}

// begin sends an access in pieces.
func (a *accessing) begin(op *engine.Op) {
	a.left = 1
	a.w.mu.Lock()
	a.w.targets[a.target].begun += uint64((a.rest + a.piece() - 1) / a.piece())
	a.w.mu.Unlock()
	a.w.enqueue(op, a.target, a.next)
}

// next sends a piece, and reports whether there are more.
func (a *accessing) next(op *engine.Op) bool {
	if a.err == nil && a.w.c.revoked.Load() { // the target may be without the window
		a.err = engine.ErrRevoked
	}
	if a.rest > 0 && a.err == nil {
		a.send(op, min(a.piece(), a.rest))
	}
	if a.rest > 0 && a.err == nil {
		return true
	}
	a.ended(op, nil)
	return false
}

// send sends the message of the next n bytes; an access to our own memory it does.
func (a *accessing) send(op *engine.Op, n int) {
	w := a.w
	h := winHeader{base: uint32(w.c.base), kind: a.kind, op: uint8(a.op), big: bigEndian, offset: uint64(a.offset), n: uint32(n)}
	src := a.src
	if a.kind != rmaSwap && src != nil { // a swap's is two elements
		src, a.src = src[:n], src[n:]
	}
	a.offset, a.rest = a.offset+n, a.rest-n
	if a.target == w.c.rank { // as a message it would be copied, and all of them at once
		a.dst = a.dst[copy(a.dst, w.apply(&h, src)):]
		return
	}
	if a.dst != nil {
		a.left++
		h.number = w.expect(a.target, a.dst[:n], a.ended)
		a.dst = a.dst[n:]
	}
	a.left++
	hdr := h.encode()
	if err := op.Post(w.c.group.procs[a.target], amWindow, &hdr, src, a.ended); err != nil {
		if a.dst != nil {
			w.take(h.number, a.target)
			a.left--
		}
		a.ended(op, err)
	}
}

// ended counts; the last one completes the request.
func (a *accessing) ended(op *engine.Op, err error) {
	if a.err == nil {
		a.err = err
	}
	if a.left--; a.left == 0 && a.id != (engine.ID{}) {
		op.Complete(a.id, engine.Status{}, a.err)
	}
}

// expect gives a number to an answer that will come. The engine is held.
func (w *window) expect(target int, dst []byte, done func(*engine.Op, error)) uint32 {
	w.lanes[target].owed += len(dst)
	w.mu.Lock()
	defer w.mu.Unlock()
	r := winReply{target, dst, done}
	if n := len(w.unused); n > 0 {
		i := w.unused[n-1]
		w.unused = w.unused[:n-1]
		w.gather[i] = r
		return i
	}
	w.gather = append(w.gather, r)
	return uint32(len(w.gather) - 1)
}

// take returns what waits for a rank's answer; nothing, if the peer made the number up.
// The engine is held.
func (w *window) take(n uint32, target int) winReply {
	w.mu.Lock()
	defer w.mu.Unlock()
	if int(n) >= len(w.gather) || w.gather[n].done == nil || w.gather[n].target != target {
		return winReply{}
	}
	r := w.gather[n]
	w.lanes[target].owed -= len(r.dst)
	w.gather[n] = winReply{}
	w.unused = append(w.unused, n)
	return r
}

// handleWindows takes what is sent to the windows of this process.
func (w *World) handleWindows() {
	w.eng.Handle(amWindow, func(op *engine.Op, from engine.Proc, hdr *[24]byte, payload []byte) {
		h := parseWinHeader(hdr)
		c := w.commAt(engine.Context(h.base))
		if c == nil {
			return // freed here, or never there
		}
		win := c.win.Load()
		if rank := c.rankOf.of(from); win != nil && rank >= 0 {
			win.handle(op, rank, &h, payload)
		}
	})
}

// tell sends a message without data.
func (w *window) tell(op *engine.Op, rank int, h winHeader) error {
	h.base = uint32(w.c.base)
	hdr := h.encode()
	return op.Post(w.c.group.procs[rank], amWindow, &hdr, nil, nil)
}

// lost ends what waits for a member that has died, and its locks.
func (w *window) lost(op *engine.Op, rank int, err error) {
	w.mu.Lock()
	var numbers []uint32
	for n, r := range w.gather {
		if r.done != nil && r.target == rank {
			numbers = append(numbers, uint32(n))
		}
	}
	waiters := w.exposure.waiters
	w.exposure.waiters = nil
	w.mu.Unlock()
	for _, n := range numbers {
		w.take(n, rank).done(op, err)
	}
	w.lanes[rank].run(op)        // the rest fails as it is sent
	for _, id := range waiters { // they look who it was
		op.Complete(id, engine.Status{}, nil)
	}
	w.unlockAsked(op, rank)
}

func (w *window) handle(op *engine.Op, from int, h *winHeader, payload []byte) {
	switch h.kind {
	case rmaPut, rmaGet, rmaAccumulate, rmaFetch, rmaSwap:
		if old := w.apply(h, payload); old != nil {
			reply := winHeader{base: uint32(w.c.base), kind: rmaReply, big: bigEndian, number: h.number, n: h.n}
			hdr := reply.encode()
			_ = op.Post(w.c.group.procs[from], amWindow, &hdr, old, nil) // the dead need no answer
		}
	case rmaReply:
		if r := w.take(h.number, from); r.done != nil {
			if copy(r.dst, payload); h.big != bigEndian {
				datatype.Basic(w.kind).Swap(r.dst)
			}
			r.done(op, nil)
			w.lanes[from].run(op)
		}
	case rmaFlush:
		_ = w.tell(op, from, winHeader{kind: rmaFlushed, number: h.number}) // the dead need no answer
	case rmaFlushed, rmaLocked:
		if r := w.take(h.number, from); r.done != nil {
			var err error
			if h.kind == rmaLocked && h.n == lockNow {
				err = errLocked
			}
			r.done(op, err)
		}
	case rmaLock:
		w.lockAsked(op, lockWaiter{from, h.op != 0, h.number}, h.n == lockNow)
	case rmaUnlock:
		w.unlockAsked(op, from)
		_ = w.tell(op, from, winHeader{kind: rmaFlushed, number: h.number})
	case rmaExposed, rmaDone:
		w.exposed(op, from, h.kind)
	}
}

// apply does an access to our memory, and returns what was there if that is asked for.
// What does not fit is a peer's lie, since it has looked, and is dropped.
func (w *window) apply(h *winHeader, payload []byte) (old []byte) {
	if h.offset > uint64(len(w.mem)) || uint64(h.n) > uint64(len(w.mem))-h.offset || h.n > engine.MaxPost || int(h.n)%w.size != 0 || int(h.offset)%w.size != 0 {
		return nil
	}
	at := w.mem[h.offset:][:h.n]
	if h.big != bigEndian {
		payload = bytes.Clone(payload)
		datatype.Basic(w.kind).Swap(payload)
	}
	if h.kind == rmaGet || h.kind == rmaFetch || h.kind == rmaSwap {
		old = bytes.Clone(at)
	}
	switch {
	case h.kind == rmaPut && len(payload) == len(at):
		copy(at, payload)
	case h.kind == rmaSwap && len(payload) == 2*w.size && len(at) == w.size:
		if bytes.Equal(at, payload[:w.size]) {
			copy(at, payload[w.size:])
		}
	case h.kind == rmaAccumulate || h.kind == rmaFetch:
		w.combine(datatype.OpKind(h.op), payload, at)
	}
	return old
}

func (w *window) combine(o datatype.OpKind, in, inout []byte) {
	switch {
	case len(in) != len(inout) || o == datatype.NoOp:
	case o == datatype.Replace:
		copy(inout, in)
	default:
		if kernel := w.kernel(o); kernel != nil {
			kernel(aligned(in, w.size), inout)
		}
	}
}

// kernel is what combines elements of the window by an operation; nil: nothing, as with
// those of pairs.
func (w *window) kernel(o datatype.OpKind) datatype.Kernel {
	if o.ElemSize(w.kind) != w.size {
		return nil
	}
	kernel, _ := datatype.Reduce(o, w.kind)
	return kernel
}

// aligned returns in, or a copy of it that elements of size may be read from.
func aligned(in []byte, size int) []byte {
	if len(in) == 0 || addressOf(in)%uintptr(min(size, 8)) == 0 {
		return in
	}
	return append(make([]byte, 0, len(in)), in...)
}

// String says what a header asks for, in logs.
func (h *winHeader) String() string {
	return fmt.Sprintf("kind %d op %d at %d+%d, number %d", h.kind, h.op, h.offset, h.n, h.number)
}
