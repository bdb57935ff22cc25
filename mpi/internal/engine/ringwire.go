package engine

import "sync/atomic"

// ringWire is a link made of two rings.
type ringWire struct {
	out     producer
	in      consumer
	asleep  *atomic.Uint32 // of the peer: ring its bell
	bell    func()
	page    []byte // what the peer shows: whether it sleeps, and its boards
	closing func()
}

// pollFrames bounds what one poll of a ring takes, so that other links get their
// turn.
const pollFrames = 64

func (w *ringWire) write(hdr, payload []byte, _ int) (int, error) {
	ok, err := w.out.push(hdr, payload)
	if !ok {
		return 0, err
	}
	if w.asleep.Load() != 0 {
		w.bell()
	}
	return len(hdr) + len(payload), nil
}

func (w *ringWire) poll(c *conn) (bool, error) {
	for i := range pollFrames {
		f, err := w.in.peek()
		if f == nil || err != nil {
			return i > 0, err
		}
		if err := c.e.packet(c, f); err != nil {
			return true, err
		}
		if c.broken { // the peer was failed in between, and the memory may be gone
			return true, nil
		}
		if w.in.advance(f) && w.asleep.Load() != 0 {
			w.bell()
		}
	}
	return true, nil
}

func (w *ringWire) close() {
	if w.closing != nil {
		w.closing()
		w.closing = nil
	}
}
