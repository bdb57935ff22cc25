package engine

import (
	"context"
	"time"
)

// Close ends the engine: it refuses new operations, waits until everything that
// was sent has been taken, says goodbye to all peers and waits for their answer.
// When ctx ends before, it returns its error; the engine is closed all the same.
func (e *Engine) Close(ctx context.Context) error {
	e.gate.lock()
	if e.closed {
		e.gate.unlock()
		return ErrClosed
	}
	e.closed = true
	var err error
	if e.started {
		if err = e.until(ctx, e.drained); err == nil {
			err = e.until(ctx, e.parted)
			if err == nil && e.trunk != nil { // others may still need it as a gateway
				err = e.until(ctx, e.trunk.Drained)
			}
		}
	}
	e.stop()
	e.gate.unlock()
	e.unequip()
	return err
}

// until moves things until a condition holds or ctx ends.
func (e *Engine) until(ctx context.Context, holds func() bool) error {
	wait := 20 * time.Microsecond
	for {
		if err := ctx.Err(); err != nil { // whose time is over says nothing any more, not even goodbye
			return err
		}
		e.glance()
		if holds() {
			return nil
		}
		e.gate.unlock()
		select {
		case <-ctx.Done():
			e.gate.lock()
			return ctx.Err()
		case <-time.After(wait):
		}
		if wait < time.Millisecond {
			wait *= 2
		}
		e.gate.lock()
	}
}

// drained reports whether nothing waits to be sent or fetched.
func (e *Engine) drained() bool {
	for _, p := range e.peers {
		if p.blocked.first != nil || p.streams.first != nil || p.posts.first != nil {
			return false
		}
		for _, c := range p.conns {
			if c.out.first != nil || c.blocked.first != nil || c.lost && c.over == nil {
				return false
			}
		}
	}
	for _, chunk := range e.requests.chunks {
		for i := range chunk {
			if r := &chunk[i]; r.kind == sendRequest && (r.state == announced || r.state == moving) && r.peer != e.self {
				return false
			}
		}
	}
	return true
}

// parted reports whether no peer is connected any more. It says goodbye to those
// that are, also if they have only now come to be.
func (e *Engine) parted() bool {
	all := true
	for _, p := range e.peers {
		if p.state != up || p.proc == e.self {
			continue
		}
		if !p.saidBye {
			e.sayBye(p)
		}
		all = false
	}
	return all
}

// stop ends all waiting and closes all links.
func (e *Engine) stop() {
	e.stopped = true
	if e.cfg.Hub != nil {
		e.cfg.Hub.remove(e)
	}
	e.halt()
	for _, p := range e.peers {
		for _, c := range p.conns {
			c.wire.close()
		}
		p.conns, p.quick = nil, nil
		if p.state == up && p.proc != e.self {
			p.state, p.err = departed, ErrClosed
		}
	}
	for nonce, p := range e.parties {
		delete(e.parties, nonce)
		p.end()
	}
	for _, b := range e.boards {
		b.close(ErrClosed)
	}
	e.fast, e.output, e.ready, e.watched = nil, nil, nil, nil
	for e.parked != nil {
		e.unpark(e.parked)
	}
	for _, chunk := range e.requests.chunks {
		for i := range chunk {
			if r := &chunk[i]; r.ended != nil {
				close(r.ended)
				r.ended = nil
			}
		}
	}
	e.change()
	e.bell.ring()
	e.bell.kick()
}
