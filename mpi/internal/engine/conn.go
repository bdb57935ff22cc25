package engine

import "errors"

// conn is one link to a peer; with several links a peer has several.
type conn struct {
	e       *Engine
	peer    *peer
	index   uint8 // among the peer's
	wire    wire
	pull    puller    // nil: memory cannot be read across
	ring    *ringWire // of a wire through shared memory, to look at between polls; else nil
	piece   int       // largest payload of a data frame
	swapped bool      // the peer's byte order is the other one
	out     frames    // what the wire has not taken yet
	in      inbound
	account          // of the messages that take this link
	gauge   gauge    // of the pieces of large messages
	trail   trail    // of the frames that the wire has carried
	over    *conn    // the link whose wire carries this one's frames since its own is lost; nil: its own
	blocked requests // sends that wait for credit, in order
	listed  bool     // in the engine's list of links with output
	bye     bool     // the peer has said goodbye on it
	broken  bool     // the wire
	lost    bool     // and the peer has been told so
	err     error
}

// wire moves the bytes of frames. Its methods are called with the engine held
// and do not block.
type wire interface {
	// write takes the bytes of a frame, which is hdr and then payload, from
	// offset off on, and returns how many it took: any number if it is a stream,
	// all or none otherwise.
	write(hdr, payload []byte, off int) (int, error)
	// poll gives what has come to c and reports whether anything has.
	poll(c *conn) (bool, error)
	// close ends the link at once.
	close()
}

// puller is a wire whose ends can read each other's memory. A message is known
// by its sender's name for it. Its data go one way only: either the receiver has
// claimed it before the sender withdraws it, or the other way round.
type puller interface {
	expose(name uint64, data []byte) (addr uint64) // lets the other end read; zero: it cannot
	withdraw(name uint64) bool                     // takes that back, unless the other end has claimed the message
	conceal(name uint64)                           // the same whatever it does: what it reads from now on does not count
	claim(name uint64) bool                        // the message is read from here on, and not sent
	unclaim(name uint64)                           // or sent after all
	pull(name, addr uint64, off int, dst []byte) error
}

// errNoPull is how pull fails if the system does not let it.
var errNoPull = errors.New("engine: cannot read the peer's memory")

// frame is one that waits for its wire.
type frame struct {
	hdr     [longHeader]byte
	size    int // of the header
	off     int // bytes that the wire has taken
	kind    kind
	owned   bool   // payload is ours
	num     uint32 // among the frames that the wire has carried
	payload []byte
	req     *request // whose data it is
	done    func(*Op, error)
	next    *frame
}

// frames is a queue of frames.
type frames struct{ first, last *frame }

func (l *frames) push(f *frame) {
	if l.last == nil {
		l.first = f
	} else {
		l.last.next = f
	}
	l.last = f
}

func (l *frames) pop() *frame {
	f := l.first
	if l.first = f.next; l.first == nil {
		l.last = nil
	}
	f.next = nil
	return f
}

// rail is the link that messages of a context and tag take.
func (p *peer) rail(c Context, tag int32) *conn {
	if len(p.quick) == 1 {
		return p.quick[0]
	}
	h := (uint64(c)<<32 | uint64(uint32(tag))) * 0x9E3779B97F4A7C15
	return p.quick[h>>32%uint64(len(p.quick))]
}

// control sends a frame without payload; not to a peer that is gone. What is about
// a message goes by the link the message came by: another may be held up by a
// lost packet that is none of this message's business.
func (e *Engine) control(c *conn, h *header) {
	if c.peer.state == up && !c.peer.saidBye {
		e.write(c, h, nil, nil)
	}
}

// write sends a frame, now or when the wire takes it. The payload is borrowed
// until sent is called for r.
func (e *Engine) write(c *conn, h *header, payload []byte, r *request) {
	e.writeFor(c, h, payload, r, nil)
}

// writeFor is write that has done called as well, after the payload was borrowed.
func (e *Engine) writeFor(c *conn, h *header, payload []byte, r *request, done func(*Op, error)) {
	h.link = c.index
	c = c.carrier()
	n := 0
	size := h.encode(&e.hdr)
	if c.out.first == nil && !c.broken {
		n = e.writeNow(c, e.hdr[:size], payload)
	}
	if n == size+len(payload) && !c.recorded(h.kind) {
		if r != nil {
			e.sent(r, h.kind)
		}
		if done != nil {
			e.deferred = append(e.deferred, deferred{done: done})
		}
		return
	}
	f := e.newFrame(h, payload, n)
	f.req, f.done = r, done
	e.hand(c, f)
}

// hand has a link see a frame, of which its wire has taken some, to its end.
func (e *Engine) hand(c *conn, f *frame) {
	if f.whole() {
		e.carried(c, f)
		return
	}
	c.out.push(f)
	e.list(c)
}

// list has a link's output flushed.
func (e *Engine) list(c *conn) {
	if !c.listed && !c.lost {
		c.listed = true
		e.output = append(e.output, c)
	}
}

// writeCopy is write of a small payload that is borrowed during the call only. It is
// done with false if it finds the peer's last wire broken.
func (e *Engine) writeCopy(c *conn, h *header, payload []byte) bool {
	h.link = c.index
	c = c.carrier()
	size := h.encode(&e.hdr)
	n := e.writeNow(c, e.hdr[:size], payload)
	switch {
	case n == size+len(payload) && !c.recorded(h.kind):
		return true
	case n == 0 && c.peer.live() == nil:
		return false
	}
	own := e.buffers.get(len(payload))
	copy(own, payload)
	f := e.newFrame(h, own, n)
	f.owned = true
	e.hand(c, f)
	return true
}

// writeNow offers a frame to the wire.
func (e *Engine) writeNow(c *conn, hdr, payload []byte) int {
	n, err := c.wire.write(hdr, payload, 0)
	if err != nil {
		e.breakLink(c, err)
	}
	return n
}

// newFrame takes a frame from the free ones, for the rest of what e.hdr has the
// header of.
func (e *Engine) newFrame(h *header, payload []byte, off int) *frame {
	f := e.freeFrames
	if f == nil {
		f = new(frame)
	} else {
		e.freeFrames = f.next
	}
	*f = frame{hdr: e.hdr, size: h.kind.size(), off: off, kind: h.kind, payload: payload}
	return f
}

// whole reports whether the wire has taken all of a frame.
func (f *frame) whole() bool { return f.off == f.size+len(f.payload) }

// freeFrame gives a frame back after it was sent, or will not be.
func (e *Engine) freeFrame(f *frame) {
	if f.owned {
		e.buffers.put(f.payload)
	}
	*f = frame{next: e.freeFrames}
	e.freeFrames = f
}

// flush offers the wire of a link what waits for it, and then pieces of large
// messages. It reports whether the wire took anything.
func (e *Engine) flush(c *conn) bool {
	any := false
	for !c.broken {
		f := c.out.first
		if f == nil {
			e.stream(c.peer)
			if c.out.first == nil {
				break
			}
			continue
		}
		n, err := c.wire.write(f.hdr[:f.size], f.payload, f.off)
		if err != nil {
			e.breakLink(c, err)
			break
		}
		any = any || n > 0
		if f.off += n; !f.whole() {
			break
		}
		c.out.pop()
		e.carried(c, f)
	}
	return any
}

// written tells who waits for it that a frame is with the wire, or will never be.
func (e *Engine) written(f *frame, err error) {
	if f.req != nil && err == nil {
		e.sent(f.req, f.kind)
	}
	if f.done != nil {
		e.deferred = append(e.deferred, deferred{done: f.done, err: err})
	}
	e.freeFrame(f)
}

// flushAll flushes the links that have output.
func (e *Engine) flushAll() bool {
	any := false
	for i := 0; i < len(e.output); {
		c := e.output[i]
		any = e.flush(c) || any
		if c.out.first != nil && !c.broken {
			i++
			continue
		}
		c.listed = false
		last := len(e.output) - 1
		e.output[i] = e.output[last]
		e.output[last] = nil
		e.output = e.output[:last]
	}
	return any
}

// breakLink notes that a link does not work any more. What follows from that
// happens when the engine is left or polled: callers are in the middle of
// something.
func (e *Engine) breakLink(c *conn, err error) {
	switch {
	case !c.broken:
		c.broken, c.err = true, err
		e.breaking = append(e.breaking, c)
	case fatal(err):
		c.err = err // the link may have others that it could be done without for
	}
}

// fatal reports whether an error ends the peer, whatever other links there are.
func fatal(err error) bool { return errors.Is(err, errViolation) || errors.Is(err, errForgotten) }

// incoming gives a wire's bytes to a link: as much of p as makes whole frames
// and the beginning of one. It returns how much it took.
func (e *Engine) incoming(c *conn, p []byte, within bool) (took int, in bool, err error) {
	for {
		if within {
			n := min(c.in.left(), len(p)-took)
			c.in.fill(p[took : took+n])
			if took += n; c.in.left() > 0 {
				return took, true, nil
			}
			if err := e.complete(c); err != nil {
				return took, false, err
			}
		}
		n, err := c.in.h.decode(p[took:])
		if n == 0 || err != nil {
			return took, false, err
		}
		took += n
		if err := e.begin(c); err != nil {
			return took, false, err
		}
		within = true
	}
}

// packet gives a link one whole frame.
func (e *Engine) packet(c *conn, p []byte) error {
	n, err := c.in.h.decode(p)
	if err != nil {
		return err
	}
	if n == 0 || len(p)-n != int(c.in.h.n) {
		return errViolation
	}
	if err := e.begin(c); err != nil {
		return err
	}
	c.in.fill(p[n:])
	return e.complete(c)
}
