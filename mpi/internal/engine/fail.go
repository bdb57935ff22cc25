package engine

import (
	"errors"
	"fmt"
)

// failure is one that OnFailure has to be told.
type failure struct {
	proc Proc
	err  error
}

// errGoodbye is why a peer that has left cannot be talked to.
var errGoodbye = errors.New("engine: it has left")

// Fail declares a process dead: operations that need it end with ErrProcFailed;
// receives from AnyProc in contexts it is a member of are warned.
func (e *Engine) Fail(p Proc, err error) {
	e.gate.lock()
	defer e.leave()
	if pr, bad := e.peerOf(p); bad == nil && p != e.self {
		e.fail(pr, err)
	}
}

// failure says how a process has failed; nil: it has not.
func (e *Engine) failure(p Proc) error {
	pr, err := e.peerOf(p)
	if err == nil && pr.state == failed {
		err = pr.gone()
	}
	return err
}

// Failed says how a process has failed; nil: it has not. To leave is no failure.
func (e *Engine) Failed(p Proc) error {
	e.gate.lock()
	defer e.leave()
	return e.failure(p)
}

// Gone says why a process cannot be talked to any more: it has failed or has left.
// Nil: it can.
func (e *Engine) Gone(p Proc) error {
	e.gate.lock()
	defer e.leave()
	pr, err := e.peerOf(p)
	if err == nil {
		err = pr.gone()
	}
	return err
}

// fail ends everything that needs a peer.
func (e *Engine) fail(p *peer, err error) {
	if p.state == failed {
		return
	}
	p.state, p.err = failed, err
	e.log.Warn("process failed", "proc", p.proc, "err", err)
	e.sever(p, ErrProcFailed{p.proc, err})
	for _, d := range e.contexts {
		if d != nil && d.open && d.hasMember(p.proc) {
			d.unacked = append(d.unacked, p.proc)
			for r := d.wild.first; r != nil; r = r.next {
				e.warn(r, p.proc)
			}
		}
	}
	e.wakeProbes()
	e.change()
	e.failures = append(e.failures, failure{p.proc, err})
	select {
	case e.failed <- struct{}{}:
	default: // it is about to look
	}
}

// warn tells a receive from AnyProc that who could have sent has failed.
func (e *Engine) warn(r *request, p Proc) {
	if r.state != posted || r.flags&warned != 0 {
		return
	}
	r.flags |= warned
	r.err = ErrProcFailedPending{p}
	e.signal(r)
}

func (d *domain) hasMember(p Proc) bool {
	for _, m := range d.members {
		if m == p {
			return true
		}
	}
	return false
}

// sever closes a peer's links and ends what needs them with err. It reports
// whether anything did.
func (e *Engine) sever(p *peer, err error) bool {
	any := e.unseen(p.proc, err)
	e.endAll(func(r *request) bool {
		hit := r.peer == p.proc && (r.kind == sendRequest || r.kind == recvRequest)
		any = any || hit
		return hit
	}, err)
	for _, l := range p.conns {
		e.discardFrames(&l.out, err)
		e.discardFrames(&l.trail.kept, err)
		e.unlist(l)
		l.broken = true
		l.wire.close()
		if m := l.in.msg; m != nil && m.state == arriving {
			l.in.msg = nil
			e.dropHalf(m)
		}
		if l.in.h.kind == kindPost {
			e.buffers.put(l.in.dst)
			l.in.dst = nil
		}
	}
	p.conns, p.quick, p.cut = nil, nil, 0
	e.discardFrames(&p.posts, err)
	e.dropAnnounced(p)
	return any
}

// discardFrames drops frames that cannot be sent any more.
func (e *Engine) discardFrames(l *frames, err error) {
	for l.first != nil {
		e.written(l.pop(), err)
	}
}

// unlist takes a link out of those that are polled.
func (e *Engine) unlist(c *conn) {
	for i, v := range e.fast {
		if v == c {
			e.fast = append(e.fast[:i:i], e.fast[i+1:]...)
			break
		}
	}
	for i, v := range e.output {
		if v == c {
			e.output = append(e.output[:i:i], e.output[i+1:]...)
			break
		}
	}
	c.listed = false
}

// dropHalf drops a message whose end will not come.
func (e *Engine) dropHalf(m *message) {
	d := e.contexts[m.ctx]
	if m.claimed == nil && !m.orphan && !m.seized && d != nil {
		if d.isEarly(m) {
			d.early.remove(byTime, m)
		} else {
			d.drop(m)
		}
	}
	if m.seized {
		m.orphan = true // Mrecv will find it so
		return
	}
	e.freeMessage(m)
}

func (d *domain) isEarly(m *message) bool {
	for v := d.early.first; v != nil; v = v.links[byTime].next {
		if v == m {
			return true
		}
	}
	return false
}

// dropAnnounced drops the announced messages of a peer that is gone: their data
// cannot be had any more. Messages that are here stay.
func (e *Engine) dropAnnounced(p *peer) {
	for _, d := range e.contexts {
		if d == nil {
			continue
		}
		for m := d.arrived.first; m != nil; {
			next := m.links[byTime].next
			if m.peer == p.proc && m.kind == kindRTS && m.size > 0 {
				d.drop(m)
				e.freeMessage(m)
			}
			m = next
		}
		for m := d.early.first; m != nil; {
			next := m.links[byTime].next
			if m.peer == p.proc {
				d.early.remove(byTime, m)
				e.freeMessage(m)
			}
			m = next
		}
	}
}

// broke is what follows from a broken link.
func (e *Engine) broke(c *conn) {
	p := c.peer
	switch {
	case p.state != up || c.lost:
		return // it was closed on purpose
	case p.leaving:
		e.part(p) // it went before our answer came
	case p.live() != nil && !fatal(c.err):
		e.lose(c)
	case e.closed && p.saidBye:
		e.part(p) // it went while we were going
	default:
		e.fail(p, fmt.Errorf("link: %w", c.err))
	}
}

// goodbye is called when a peer says that it will send nothing more.
func (e *Engine) goodbye(c *conn) {
	p := c.peer
	c.bye = true
	for _, l := range p.conns { // it says so on each link, behind what it sent there
		if !l.bye {
			return
		}
	}
	if p.saidBye {
		e.part(p)
		return
	}
	e.sayBye(p)
	p.leaving = true
	e.leavers = append(e.leavers, p) // not now: the link is being read
}

// sayBye tells a peer that we will send nothing more.
func (e *Engine) sayBye(p *peer) {
	for _, c := range p.conns {
		e.write(c, &header{kind: kindBye}, nil, nil)
	}
	p.saidBye = true
}

// finishLeaving ends the links to a peer that has said goodbye, after our answer
// is with the wire.
func (e *Engine) finishLeaving(p *peer) {
	for _, c := range p.conns {
		if c.out.first != nil && !c.broken {
			e.leavers = append(e.leavers, p)
			return
		}
	}
	e.part(p)
}

// seeOff looks whether our last words to those who leave are with the wire.
func (e *Engine) seeOff() {
	l := e.leavers
	e.leavers = nil
	for _, p := range l {
		e.finishLeaving(p)
	}
}

// part ends the links to a peer that has left in order. If something still
// needed it, that is a failure.
func (e *Engine) part(p *peer) {
	if p.state != up {
		return
	}
	p.state, p.err = departed, errGoodbye
	if e.sever(p, ErrProcFailed{p.proc, errGoodbye}) && !e.closed {
		e.fail(p, errGoodbye)
		return
	}
	if e.cfg.OnLeave != nil && !e.closed {
		e.cfg.OnLeave(&e.op, ErrProcFailed{p.proc, errGoodbye})
	}
	e.wakeProbes()
	e.change()
}

// tellFailures calls OnFailure, so that it may call the engine.
func (e *Engine) tellFailures() {
	defer e.tasks.Done()
	for {
		select {
		case <-e.failed:
			e.gate.lock()
			all := e.failures
			e.failures = nil
			e.gate.unlock()
			for _, f := range all {
				if e.cfg.OnFailure != nil {
					e.cfg.OnFailure(f.proc, f.err)
				}
			}
		case <-e.ctx.Done():
			return
		}
	}
}
