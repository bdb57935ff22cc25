package engine

import (
	"errors"
	"fmt"
	"log/slog"
)

// A peer that is reached by several links outlives the loss of all but the last.
//
// Each wire keeps a trail: copies of the frames that it has carried until the other
// end says that they have come (frames of kind got, which count them). Pieces of
// large messages are not copied while their send waits anyway. When a wire breaks,
// whoever notices tells the other end by another link how many frames have come by
// it (kind lost) and gets the same number back; each then sends what the other lacks,
// and what has waited, over the wire of another link, in the same order. So every
// frame comes exactly once, and those of a tag in order.
//
// The link itself stays: its number is in its frames, whichever wire carries them, so
// credit, the tags that take it and the order of messages are what they were. Only
// pieces of large messages are shared out among the wires that are left.
//
// A piece that the break has cut comes again as a whole, into the same place. A
// message that was being received as it came goes on in the receive that it was
// matched with.

// trail is what is remembered of the frames that a wire has carried. Numbers of
// frames begin at 1 and wrap.
type trail struct {
	sent  uint32 // frames that the wire has taken as a whole
	known uint32 // of those, how many the other end has; the rest is kept
	kept  frames
	many  int // frames in kept
	bytes int // of copies in kept

	forgotten int  // frames that there was no room to keep: a loss before they have come is the peer's failure
	answered  bool // the other end has said how many came before the loss

	got       uint32 // frames that have come
	owed      int    // of those, how many we have not told of
	owedBytes int
}

// What a trail keeps, and how often the other end is told what has come. Credit keeps
// messages below that. Active messages have none: more of them may be on their way if
// what the system buffers and the line holds is more than is kept, and the loss of
// their link before they have come is the peer's failure then (errForgotten).
const (
	keepMost   = 8 << 20 // bytes of copies
	keepFrames = 1 << 16
	tellFrames = 32
	tellBytes  = 128 << 10
)

var (
	errLostThere = errors.New("engine: lost at the other end")
	errForgotten = errors.New("engine: a link is lost with more under way than is kept")
)

// carrier is the link whose wire carries a link's frames.
func (c *conn) carrier() *conn {
	for c.over != nil {
		c = c.over
	}
	return c
}

// live is the nearest link to a peer with a wire that works; nil: there is none.
func (p *peer) live() (best *conn) {
	for _, c := range p.conns {
		if !c.broken && (best == nil || c.gauge.near < best.gauge.near) {
			best = c
		}
	}
	return best
}

// owner is the link that a frame belongs to which has come by the wire of c.
func (c *conn) owner(h *header) (*conn, error) {
	if h.link == c.index {
		return c, nil
	}
	if all := c.peer.conns; int(h.link) < len(all) && all[h.link].lost && h.kind != kindGot {
		return all[h.link], nil
	}
	return nil, fmt.Errorf("%w: frame of link %d by link %d", errViolation, h.link, c.index)
}

// recorded reports whether frames of a kind are counted and kept.
func (c *conn) recorded(k kind) bool { return len(c.peer.conns) > 1 && k != kindGot }

// belong notes in a frame which link it is of.
func (f *frame) belong(c *conn) { f.hdr[2] = c.index }

// carried is called when a link's wire has taken all of a frame.
func (e *Engine) carried(c *conn, f *frame) {
	if !c.recorded(f.kind) {
		e.written(f, nil)
		return
	}
	t, k, r, done := &c.trail, f.kind, f.req, f.done
	t.sent++
	f.num = t.sent
	if k == kindData && r != nil {
		t.keep(f)
		e.spare(r)
		return
	}
	if t.many < keepFrames && t.bytes+len(f.payload) <= keepMost {
		f.done = nil
		f.own(e)
		t.bytes += len(f.payload)
		t.keep(f)
	} else {
		t.forgotten++
		f.req, f.done = nil, nil
		e.freeFrame(f)
	}
	if r != nil {
		e.sent(r, k)
	}
	if done != nil {
		e.deferred = append(e.deferred, deferred{done: done})
	}
}

func (t *trail) keep(f *frame) {
	t.kept.push(f)
	t.many++
}

// spare ends a send whose data have all been carried if there is room for copies of
// those that have not come: a program that sends many messages need not wait for an
// answer to each.
func (e *Engine) spare(r *request) {
	if r.moved < r.total {
		return
	}
	p := e.peers[r.peer]
	for _, c := range p.conns {
		for f := c.out.first; f != nil; f = f.next {
			if f.req == r {
				return
			}
		}
		room := keepMost - c.trail.bytes
		for f := c.trail.kept.first; f != nil; f = f.next {
			if f.req == r {
				room -= len(f.payload)
			}
		}
		if room < 0 {
			return
		}
	}
	for _, c := range p.conns {
		c.disown(r)
	}
	e.end(r, nil)
}

// count counts the frame that has come by a wire, and tells the other end at once of
// a piece of a large message, now and then of others.
func (e *Engine) count(c *conn) {
	h, t := &c.in.h, &c.trail
	if !c.recorded(h.kind) {
		return
	}
	t.got++
	t.owed++
	t.owedBytes += int(h.n)
	a := header{kind: kindGot, seq: t.got}
	if h.kind == kindData {
		a.ctx = Context(h.n)
	} else if t.owed < tellFrames && t.owedBytes < tellBytes {
		return
	}
	t.owed, t.owedBytes = 0, 0
	e.control(c, &a)
}

// acknowledged lets go of the frames of a wire that have come at the other end, which
// are n in all.
func (e *Engine) acknowledged(c *conn, n uint32) error {
	t := &c.trail
	if n-t.known > t.sent-t.known {
		return fmt.Errorf("%w: %d frames have come of %d", errViolation, n, t.sent)
	}
	t.known = n
	for f := t.kept.first; f != nil && int32(f.num-n) <= 0; f = t.kept.first {
		t.kept.pop()
		t.many--
		if f.owned {
			t.bytes -= len(f.payload)
		}
		if f.req != nil {
			e.sent(f.req, f.kind)
		}
		e.freeFrame(f)
	}
	return nil
}

// lose goes on without the wire of a link, which is broken. There is another.
func (e *Engine) lose(c *conn) {
	p := c.peer
	c.lost = true
	c.gauge.under = 0
	e.unlist(c)
	c.wire.close()
	e.cutOff(c)
	level := slog.LevelWarn
	if c.bye && p.saidBye { // they close one after the other
		level = slog.LevelDebug
	}
	e.log.Log(e.ctx, level, "link lost: going on with the others", "proc", p.proc, "link", c.index, "err", c.err)
	e.write(p.live(), &header{kind: kindLost, ctx: Context(c.index), seq: c.trail.got}, nil, nil)
	if c.trail.answered {
		if err := e.reroute(c); err != nil {
			e.fail(p, err)
			return
		}
	}
	e.stream(p)
}

// lostThere is called when a peer says that it has lost a link, and what had come.
func (e *Engine) lostThere(p *peer, h *header) error {
	if int(h.ctx) >= len(p.conns) || p.conns[h.ctx].trail.answered {
		return fmt.Errorf("%w: link %d is lost", errViolation, h.ctx)
	}
	c := p.conns[h.ctx]
	if err := e.acknowledged(c, h.seq); err != nil {
		return err
	}
	c.trail.answered = true
	if c.lost {
		return e.reroute(c)
	}
	e.breakLink(c, errLostThere)
	return nil
}

// reroute has what a lost link has not delivered, and what waits for it, sent by
// another wire, as all its frames are from now on.
func (e *Engine) reroute(c *conn) error {
	t := &c.trail
	if t.many != int(t.sent-t.known) {
		return fmt.Errorf("%w: %d frames, of which %d are kept", errForgotten, t.sent-t.known, t.many)
	}
	w := c.peer.live()
	if w == nil {
		return nil // the break of the last is about to be dealt with
	}
	c.over = w
	now := e.clock()
	for _, l := range []*frames{&t.kept, &c.out} {
		for l.first != nil {
			f := l.pop()
			if f.kind == kindGot { // of the wire that is gone
				e.freeFrame(f)
				continue
			}
			if f.kind == kindData {
				w.gauge.sent(now, len(f.payload))
			}
			f.off = 0
			w.out.push(f)
		}
	}
	t.many, t.bytes = 0, 0
	e.list(w)
	if e.driver != nil && e.driver.asleep {
		e.bell.ring() // nothing else has it see what was moved: the wire was not tried
	}
	return nil
}

// cutOff gives up the frame that a lost wire was bringing; it will come again.
func (e *Engine) cutOff(c *conn) {
	in := &c.in
	if !in.open {
		return
	}
	in.open, in.got = false, 0
	switch in.h.kind {
	case kindEager, kindSync: // it has been matched, and is not to be once more
		in.cut = true
		c.peer.cut++
		return
	case kindData:
		if in.req != nil {
			in.req.pieces -= int(in.h.n)
		}
	case kindPost:
		e.buffers.put(in.dst)
	}
	in.req, in.dst = nil, nil
}

// resume takes up a message that a lost wire has cut, if the one that begins is it.
// Its number says so.
func (e *Engine) resume(p *peer, in *inbound) (bool, error) {
	h := &in.h
	for _, c := range p.conns {
		half := &c.in
		if !half.cut || half.h.ctx != h.ctx || half.h.seq != h.seq {
			continue
		}
		if half.h.kind != h.kind || half.h.n != h.n || half.of != in.of {
			return false, fmt.Errorf("%w: another message of the same number", errViolation)
		}
		in.req, in.msg, in.dst = half.req, half.msg, half.dst
		half.req, half.msg, half.dst, half.cut = nil, nil, nil, false
		p.cut--
		return true, nil
	}
	return false, nil
}
