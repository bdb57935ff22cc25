package engine

import "time"

// request is an operation under way, in the engine's slab.
type request struct {
	slot, gen uint32
	envelope
	transfer
	kind   requestKind
	state  requestState
	flags  requestFlags
	stamp  uint64 // order of posting among receives of a context
	buf    []byte
	swap   Swapper
	done   func(*Op, Status, error)
	status Status
	err    error

	next, prev *request // in the list that state says
	waiter     *waiter
	ended      chan struct{} // made by Done; closed at the end
}

// envelope is what messages match by. The peer of a receive may be AnyProc and
// its tag AnyTag.
type envelope struct {
	ctx  Context
	tag  int32
	peer Proc
}

// transfer is how far a large message has come.
type transfer struct {
	moved, total int    // bytes sent or received, and to be
	pieces       int    // send: frames on their way; receive: bytes that frames are bringing
	remote       uint64 // the other side's name for its request
	addr         uint64 // where the sender's data is for the receiver; 0: not to be read

	way   way           // receive whose sender's memory can be read
	began time.Duration // when that was chosen
	until time.Duration // receive whose data may be read, and was asked for: when to wait no longer; 0: it is being read
}

// underWay reports whether messages may still move for the request.
func (r *request) underWay() bool {
	return r.kind != generalRequest && r.state != idle && r.state < ending
}

type requestKind uint8

const (
	generalRequest requestKind = iota + 1
	sendRequest
	recvRequest
)

type requestState uint8

const (
	idle      requestState = iota // not in use
	posted                        // receive: in a context's list. send: in its peer's list of blocked ones
	announced                     // send: the other side knows of it and will answer
	moving                        // data are on their way
	ending                        // its callback has to be run
	complete                      // to be collected by Wait or Test
)

type requestFlags uint8

const (
	detached requestFlags = 1 << iota // freed when it ends
	synchronous
	warned  // of a failed process, by a receive from AnyProc
	swapped // the message is of the other byte order
)

func (r *request) id() ID { return ID{r.slot, r.gen} }

// wire is the request's name in frames.
func (r *request) wire() uint64 { return uint64(r.slot)<<32 | uint64(r.gen) }

// requests is a list of requests, linked through themselves.
type requests struct{ first, last *request }

func (l *requests) push(r *request) {
	r.next, r.prev = nil, l.last
	if l.last == nil {
		l.first = r
	} else {
		l.last.next = r
	}
	l.last = r
}

func (l *requests) remove(r *request) {
	if r.prev == nil {
		l.first = r.next
	} else {
		r.prev.next = r.next
	}
	if r.next == nil {
		l.last = r.prev
	} else {
		r.next.prev = r.prev
	}
	r.next, r.prev = nil, nil
}

// newRequest takes a request from the slab. The engine is held, as everywhere
// below.
func (e *Engine) newRequest(k requestKind) (*request, error) {
	if e.closed {
		return nil, ErrClosed
	}
	r, i := e.requests.get()
	if r == nil {
		return nil, ErrLimit
	}
	r.slot, r.kind = i, k
	if r.gen == 0 {
		r.gen = 1
	}
	return r, nil
}

// lookup finds a request by its ID.
func (e *Engine) lookup(id ID) *request {
	if !e.requests.has(id.slot) {
		return nil
	}
	r := e.requests.at(id.slot)
	if r.gen != id.gen || r.state == idle {
		return nil
	}
	return r
}

// named finds a request by its name in a frame, which a peer may have made up:
// it must be of that kind, in that state and with that peer.
func (e *Engine) named(name uint64, k requestKind, s requestState, p Proc) *request {
	r := e.lookup(ID{uint32(name >> 32), uint32(name)})
	if r == nil || r.kind != k || r.state != s || r.peer != p {
		return nil
	}
	return r
}

// release gives a request back to the slab.
func (e *Engine) release(r *request) {
	gen := r.gen + 1
	if gen == 0 {
		gen = 1
	}
	*r = request{slot: r.slot, gen: gen}
	e.requests.put(r.slot)
}

// end completes a request: at once, or, if it has a callback, after that has
// been run from the work list. The request is in no list any more.
func (e *Engine) end(r *request, err error) {
	if err != nil {
		r.err = err
	}
	e.conceal(r)
	r.flags &^= warned
	if r.done != nil {
		r.state = ending
		e.ending.push(r)
		return
	}
	e.finish(r)
}

// finish makes the end of a request visible.
func (e *Engine) finish(r *request) {
	r.state = complete
	r.buf, r.swap, r.done = nil, nil, nil
	e.signal(r)
	if r.flags&detached != 0 {
		e.release(r)
	}
}

// signal wakes who waits for a request.
func (e *Engine) signal(r *request) {
	if r.ended != nil {
		close(r.ended)
		r.ended = nil
	}
	if r.waiter != nil {
		e.fire(r.waiter)
	}
}

// work runs the callbacks of requests that have ended, until there are none.
// Callbacks start and end further requests; these are appended to the list
// rather than called from within.
func (e *Engine) work() {
	if e.working {
		return
	}
	e.working = true
	for e.ending.first != nil || e.putOff() {
		if r := e.ending.first; r != nil {
			e.ending.remove(r)
			e.callback(r)
			e.finish(r)
			continue
		}
		e.runDeferred()
	}
	e.working = false
}

// callback runs a request's Done function, whose panic becomes the request's error.
func (e *Engine) callback(r *request) {
	defer func() {
		if v := recover(); v != nil {
			r.err = ErrPanic{v}
		}
	}()
	r.done(&e.op, r.status, r.err)
}

// collect takes the result of a complete request and gives the request back.
func (e *Engine) collect(r *request) (Status, error) {
	st, err := r.status, r.err
	e.release(r)
	return st, err
}
