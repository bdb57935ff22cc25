package engine

import (
	"encoding/binary"
	"fmt"
)

// MaxPost is the largest payload of an active message, in bytes: with its header
// it is one frame, on every kind of link.
const MaxPost = 16<<10 - 128

// Handler is called for an active message. hdr and payload are valid during the
// call only.
type Handler func(op *Op, from Proc, hdr *[24]byte, payload []byte)

// Handle sets the function for a kind of active messages. It must be set before
// the first can come: before Start.
func (e *Engine) Handle(kind uint8, f Handler) {
	e.gate.lock()
	defer e.leave()
	e.handlers[kind] = f
}

// deferred is a call that was put off until nothing is under way.
type deferred struct {
	done func(*Op, error)
	err  error
	h    header // of a post to ourselves, with done nil
	own  []byte
}

// post sends an active message.
func (e *Engine) post(to Proc, k uint8, hdr *[24]byte, payload []byte, done func(*Op, error)) error {
	if e.closed {
		return ErrClosed
	}
	if len(payload) > MaxPost {
		return ErrTooLarge
	}
	p, err := e.peerOf(to)
	if err != nil {
		return err
	}
	if err := p.gone(); err != nil {
		return err
	}
	h := header{kind: kindPost, n: uint32(len(payload)), tag: int32(k)}
	h.x, h.y, h.z = binary.LittleEndian.Uint64(hdr[0:]), binary.LittleEndian.Uint64(hdr[8:]), binary.LittleEndian.Uint64(hdr[16:])
	if p.proc == e.self {
		own := e.buffers.get(len(payload))
		copy(own, payload)
		e.deferred = append(e.deferred, deferred{h: h, own: own})
		if done != nil {
			e.deferred = append(e.deferred, deferred{done: done})
		}
		return nil
	}
	if p.state == up {
		e.writeFor(p.quick[0], &h, payload, nil, done)
		return nil
	}
	h.encode(&e.hdr)
	f := e.newFrame(&h, payload, 0)
	f.done = done
	p.posts.push(f)
	e.reach(p)
	return nil
}

// handle runs the function for an active message.
func (e *Engine) handle(from Proc, h *header, payload []byte) {
	k := uint8(h.tag)
	f := e.handlers[k]
	if f == nil || h.tag > 255 {
		e.log.Error("active message without a handler", "from", from, "kind", h.tag)
		return
	}
	binary.LittleEndian.PutUint64(e.postHdr[0:], h.x)
	binary.LittleEndian.PutUint64(e.postHdr[8:], h.y)
	binary.LittleEndian.PutUint64(e.postHdr[16:], h.z)
	defer func() {
		if v := recover(); v != nil {
			e.log.Error("handler of an active message panicked", "from", from, "kind", k, "panic", fmt.Sprint(v))
		}
	}()
	f(&e.op, from, &e.postHdr, payload)
}

// putOff reports whether calls were put off.
func (e *Engine) putOff() bool { return e.called < len(e.deferred) }

// runDeferred makes the first call that was put off.
func (e *Engine) runDeferred() {
	d := e.deferred[e.called]
	e.deferred[e.called] = deferred{}
	if e.called++; e.called == len(e.deferred) {
		e.deferred, e.called = e.deferred[:0], 0
	}
	if d.done == nil {
		e.handle(e.self, &d.h, d.own)
		e.buffers.put(d.own)
		return
	}
	defer func() {
		if v := recover(); v != nil {
			e.log.Error("callback of an active message panicked", "panic", fmt.Sprint(v))
		}
	}()
	d.done(&e.op, d.err)
}
