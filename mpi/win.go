package mpi

import (
	"errors"
	"slices"
	"sync"
	"unsafe"

	"github.com/meshmpi/meshmpi/mpi/datatype"
	"github.com/meshmpi/meshmpi/mpi/internal/engine"
)

// Win is a window: memory of each member of a communicator that all of them
// reach without the owner's help (MPI 4.1 chapter 12). Offsets are in elements of
// T from the beginning of the target's memory. An access belongs to an epoch,
// which Fence, Start or Lock begins; its result, and the memory it was given, may
// be used after the call that ends the epoch, or after Flush.
//
// Accumulates to one element, of whatever operation, are atomic to each other.
type Win[T Scalar] struct {
	*window
	mem []T
}

// window is what does not depend on the type of the elements.
type window struct {
	c     *Comm // of its own
	mem   []byte
	kind  datatype.Kind
	size  int     // bytes of an element
	lens  []int64 // elements of each rank
	lanes []lane  // by rank, as an origin
	attrs attrs

	mu       sync.Mutex // guards what follows; taken with the engine held
	gather   []winReply // what is waited for, by number
	unused   []uint32
	targets  []epoch // by rank, as an origin
	fenced   bool    // Fence has begun an epoch that allows everything
	started  []int   // ranks, from Start to Complete
	lock     lockState
	exposure exposure
	freed    bool
}

// NewWin makes a window of a slice of each member; the slices may differ in
// length. It is collective. The slice belongs to the window until Free.
func NewWin[T Scalar](c *Comm, mem []T) (*Win[T], error) {
	w, err := newWindow(c, bytesOf(mem), kindOf[T]())
	if err != nil {
		return nil, err
	}
	return &Win[T]{w, mem}, nil
}

// AllocateWin makes a window of n elements of each member, which it allocates.
func AllocateWin[T Scalar](c *Comm, n int) (*Win[T], error) {
	if err := c.usable("AllocateWin"); err != nil {
		return nil, err
	}
	if n < 0 {
		return nil, c.misused(fail("AllocateWin", ErrArg, "%d elements", n))
	}
	if int64(n) > mostBytes/int64(kindOf[T]().Size()) {
		return nil, c.misused(fail("AllocateWin", ErrNoMem, "%d elements", n))
	}
	return NewWin(c, make([]T, n))
}

func newWindow(c *Comm, mem []byte, kind datatype.Kind) (*window, error) {
	const op = "NewWin"
	if err := c.usable(op); err != nil {
		return nil, err
	}
	if c.Inter() {
		return nil, fail(op, ErrComm, "this is an intercommunicator")
	}
	w := &window{mem: mem, kind: kind, size: kind.Size(), lanes: make([]lane, c.Size()), targets: make([]epoch, c.Size())}
	o := c.making()
	own, err := w.open(c, o)
	if _, err = o.made(own, err); err != nil { // open has set w.c
		return nil, c.wrap(op, -1, err)
	}
	return w, nil
}

// open makes the window's communicator, and returns when accesses may come.
func (w *window) open(c *Comm, o *circle) (own *Comm, err error) {
	if w.lens, err = o.allgather([]int64{int64(w.length()), int64(w.kind)}); err != nil {
		return nil, err
	}
	for r := range c.Size() {
		if w.lens[2*r+1] != int64(w.kind) {
			return nil, fail("NewWin", ErrType, "rank %d has elements of another type", r)
		}
	}
	if own, err = o.newComm(c.group); err != nil {
		return nil, err
	}
	own.ctx, own.info = c.ctx, c.Info()
	w.c = own
	own.win.Store(w)
	return own, o.allreduce([]int64{0}, opMax)
}

// length is how many elements the caller's part has.
func (w *window) length() int { return len(w.mem) / w.size }

// Memory returns the caller's part of the window.
func (w *Win[T]) Memory() []T { return w.mem }

// Len returns how many elements a rank's part of the window has.
func (w *window) Len(rank int) int { return int(w.lens[2*rank]) }

// Group returns the members.
func (w *window) Group() *Group { return w.c.group }

// Free ends the use of a window; it is collective, and no epoch may be open, unless the
// window is revoked, since then no call can end it. When a
// member has died it fails with ErrProcFailed, and the window is freed nevertheless, without
// waiting for the others; those who still use it are told so by ErrRevoked. So it is where an
// attribute's Delete fails, with that error.
func (w *window) Free() error {
	const op = "Win.Free"
	err := w.usable(op)
	if err != nil && !errors.Is(err, ErrRevoked) { // whose making others have given up
		return err
	}
	w.mu.Lock()
	open := w.lock.all || w.started != nil || w.exposure.open || slices.ContainsFunc(w.targets, func(e epoch) bool { return e.locked || e.locking })
	w.mu.Unlock()
	if open && err == nil {
		return fail(op, ErrRMASync, "an epoch is open")
	}
	if err == nil {
		err = w.bereaved(op)
	}
	if err == nil { // otherwise others may wait for us, and not come
		err = errors.Join(w.flushAll(op), Barrier(w.c)) // a Fence may have been the last call before accesses
	}
	if err != nil && !errors.Is(err, ErrProcFailed) && !errors.Is(err, ErrRevoked) {
		return err
	}
	if err != nil {
		w.c.revoke() // nobody answers here any more
	}
	w.mu.Lock()
	w.freed = true
	w.mu.Unlock()
	return errors.Join(err, w.attrs.clear(op), w.c.Free())
}

// Revoke ends whatever waits for others in the window, at all its members, with ErrRevoked,
// and lets nothing begin any more but Free. Accesses under way may have been done. Any
// member may call it, alone.
func (w *window) Revoke() error {
	if err := w.usable("Win.Revoke"); err != nil && !errors.Is(err, ErrRevoked) {
		return err
	}
	w.c.revoke()
	return nil
}

// bereaved returns the death of a member, if one is known.
func (w *window) bereaved(op string) error {
	dead := w.c.Failed()
	if dead.Size() == 0 {
		return nil
	}
	return &Error{Op: op, Class: ErrProcFailed, Peer: w.c.group.rankOf(dead.procs[0])}
}

func (w *window) usable(op string) error {
	w.mu.Lock()
	freed := w.freed
	w.mu.Unlock()
	if freed {
		return fail(op, ErrWin, "the window was freed")
	}
	return w.c.usable(op)
}

// Put stores src at the target's memory.
func (w *Win[T]) Put(src []T, target, offset int) error {
	_, err := w.access("Put", rmaPut, bytesOf(src), nil, target, offset, len(src), NoOp, 0)
	return err
}

// Get loads dst from the target's memory.
func (w *Win[T]) Get(dst []T, target, offset int) error {
	_, err := w.access("Get", rmaGet, nil, bytesOf(dst), target, offset, len(dst), NoOp, 0)
	return err
}

// Accumulate combines src into the target's memory by a predefined operation;
// Replace stores it, atomically by element.
func (w *Win[T]) Accumulate(src []T, target, offset int, o Op) error {
	_, err := w.access("Accumulate", rmaAccumulate, bytesOf(src), nil, target, offset, len(src), o, 0)
	return err
}

// GetAccumulate is Accumulate that loads what was there before into result. With
// NoOp it is an atomic Get, and src may be nil.
func (w *Win[T]) GetAccumulate(src, result []T, target, offset int, o Op) error {
	if o.op != NoOp.op && len(src) != len(result) {
		return fail("GetAccumulate", ErrCount, "%d elements and %d results", len(src), len(result))
	}
	if o.op == NoOp.op {
		src = nil
	}
	_, err := w.access("GetAccumulate", rmaFetch, bytesOf(src), bytesOf(result), target, offset, len(result), o, 0)
	return err
}

// FetchAndOp is GetAccumulate of one element: result gets what was there.
func (w *Win[T]) FetchAndOp(v T, result *T, target, offset int, o Op) error {
	if result == nil {
		return fail("FetchAndOp", ErrBuffer, "the result is nil")
	}
	one := []T{v}
	if o.op == NoOp.op {
		one = nil
	}
	_, err := w.access("FetchAndOp", rmaFetch, bytesOf(one), bytesOf(unsafe.Slice(result, 1)), target, offset, 1, o, 0)
	return err
}

// CompareAndSwap stores v at the target's element if that is equal to compare,
// bit by bit; result gets what was there.
func (w *Win[T]) CompareAndSwap(compare, v T, result *T, target, offset int) error {
	if result == nil {
		return fail("CompareAndSwap", ErrBuffer, "the result is nil")
	}
	_, err := w.access("CompareAndSwap", rmaSwap, bytesOf([]T{compare, v}), bytesOf(unsafe.Slice(result, 1)), target, offset, 1, Replace, 0)
	return err
}

// Rput is Put as a Request, which is complete when src may be used again.
func (w *Win[T]) Rput(src []T, target, offset int) (Request, error) {
	return w.access("Rput", rmaPut, bytesOf(src), nil, target, offset, len(src), NoOp, wantRequest)
}

// Rget is Get as a Request, which is complete when dst has the data.
func (w *Win[T]) Rget(dst []T, target, offset int) (Request, error) {
	return w.access("Rget", rmaGet, nil, bytesOf(dst), target, offset, len(dst), NoOp, wantRequest)
}

// Raccumulate is Accumulate as a Request.
func (w *Win[T]) Raccumulate(src []T, target, offset int, o Op) (Request, error) {
	return w.access("Raccumulate", rmaAccumulate, bytesOf(src), nil, target, offset, len(src), o, wantRequest)
}

// RgetAccumulate is GetAccumulate as a Request.
func (w *Win[T]) RgetAccumulate(src, result []T, target, offset int, o Op) (Request, error) {
	if o.op != NoOp.op && len(src) != len(result) {
		return Request{}, fail("RgetAccumulate", ErrCount, "%d elements and %d results", len(src), len(result))
	}
	if o.op == NoOp.op {
		src = nil
	}
	return w.access("RgetAccumulate", rmaFetch, bytesOf(src), bytesOf(result), target, offset, len(result), o, wantRequest)
}

const wantRequest = 1

// access begins an access of n elements, in pieces of one message each.
func (w *window) access(op string, kind uint8, src, dst []byte, target, offset, n int, o Op, flags int) (Request, error) {
	if err := w.usable(op); err != nil {
		return Request{}, err
	}
	if target == ProcNull {
		if flags&wantRequest != 0 {
			return w.c.nobody(op)
		}
		return Request{}, nil
	}
	if err := w.checkAccess(op, kind, target, offset, n, o); err != nil {
		return Request{}, err
	}
	a := &accessing{w: w, target: target, kind: kind, op: o.kind, src: src, dst: dst, offset: offset * w.size, rest: n * w.size}
	var err error // of beginning it; what goes wrong later is the engine's to write
	if flags&wantRequest != 0 {
		if a.id, err = w.c.w.eng.General(); err != nil {
			return Request{}, w.c.wrap(op, target, err)
		}
	}
	w.c.w.eng.Do(func(held *engine.Op) {
		a.begin(held)
		err = a.err
	})
	if err != nil {
		if flags&wantRequest != 0 {
			w.c.w.eng.Free(a.id)
		}
		return Request{}, w.c.wrap(op, target, err)
	}
	if flags&wantRequest != 0 {
		return w.c.request(op, target, a.id, nil)
	}
	return Request{}, nil
}

func (w *window) checkAccess(op string, kind uint8, target, offset, n int, o Op) error {
	switch {
	case target < 0 || target >= w.c.Size():
		return fail(op, ErrRank, "target %d of %d", target, w.c.Size())
	case offset < 0 || n < 0 || n > w.Len(target) || offset > w.Len(target)-n:
		return fail(op, ErrRMARange, "%d elements at %d of the %d that rank %d has", n, offset, w.Len(target), target)
	case !w.mayAccess(target):
		return fail(op, ErrRMASync, "no epoch is open to rank %d; call Fence, Start or Lock first", target)
	case o.op == nil:
		return fail(op, ErrOp, "the operation is the zero Op")
	}
	if kind == rmaAccumulate || kind == rmaFetch {
		if o.user != nil {
			return fail(op, ErrOp, "only predefined operations are known at the target")
		}
		if w.kernel(o.kind) == nil && o.kind != datatype.Replace && o.kind != datatype.NoOp {
			return fail(op, ErrOp, "%s does not apply to the window's elements", o.name)
		}
	}
	return nil
}

// SetWinAttr sets an attribute of a window; GetWinAttr returns it, DeleteWinAttr
// deletes it.
func SetWinAttr[T Scalar, V any](w *Win[T], k Key[V], v V) error {
	if err := w.usable("SetWinAttr"); err != nil {
		return err
	}
	return w.attrs.set("SetWinAttr", k.keyState, v)
}

// GetWinAttr returns an attribute and whether it is set.
func GetWinAttr[T Scalar, V any](w *Win[T], k Key[V]) (v V, ok bool) {
	if k.keyState == nil || w == nil {
		return v, false
	}
	a, ok := w.attrs.get(k.keyState)
	if !ok {
		return v, false
	}
	return valueOf[V](a), true
}

// DeleteWinAttr deletes an attribute, running the key's Delete.
func DeleteWinAttr[T Scalar, V any](w *Win[T], k Key[V]) error {
	if err := w.usable("DeleteWinAttr"); err != nil {
		return err
	}
	if k.keyState == nil {
		return fail("DeleteWinAttr", ErrKeyval, "the key was not made by NewKey")
	}
	return w.attrs.delete("DeleteWinAttr", k.keyState, false)
}
