package engine

import "context"

// Probe waits until a message is there that a receive would match, and says
// what it is; its Bytes are the message's.
func (e *Engine) Probe(from Proc, c Context, tag int32) (Status, error) {
	return e.ProbeContext(context.Background(), from, c, tag)
}

// ProbeContext is Probe that gives up when ctx ends, with its error.
func (e *Engine) ProbeContext(ctx context.Context, from Proc, c Context, tag int32) (Status, error) {
	defer e.nudge(ctx)()
	e.gate.lock()
	defer e.leave()
	_, st, err := e.search(ctx, from, c, tag, true)
	return st, err
}

// nudge has probes look again when ctx ends. What it returns ends that.
func (e *Engine) nudge(ctx context.Context) (stop func() bool) {
	if ctx.Done() == nil {
		return func() bool { return true }
	}
	return context.AfterFunc(ctx, func() {
		e.gate.lock()
		defer e.leave()
		e.wakeProbes()
	})
}

// Iprobe is Probe that does not wait.
func (e *Engine) Iprobe(from Proc, c Context, tag int32) (Status, bool, error) {
	e.gate.lock()
	defer e.leave()
	m, st, err := e.search(context.Background(), from, c, tag, false)
	return st, m != nil, err
}

// Mprobe waits until a message is there and takes it out of matching.
func (e *Engine) Mprobe(from Proc, c Context, tag int32) (Message, Status, error) {
	return e.MprobeContext(context.Background(), from, c, tag)
}

// MprobeContext is Mprobe that gives up when ctx ends, with its error.
func (e *Engine) MprobeContext(ctx context.Context, from Proc, c Context, tag int32) (Message, Status, error) {
	defer e.nudge(ctx)()
	e.gate.lock()
	defer e.leave()
	m, st, err := e.search(ctx, from, c, tag, true)
	if err != nil {
		return Message{}, Status{}, err
	}
	return e.seize(m, from, tag), st, nil
}

// Improbe is Mprobe that does not wait.
func (e *Engine) Improbe(from Proc, c Context, tag int32) (Message, Status, bool, error) {
	e.gate.lock()
	defer e.leave()
	m, st, err := e.search(context.Background(), from, c, tag, false)
	if m == nil || err != nil {
		return Message{}, Status{}, false, err
	}
	return e.seize(m, from, tag), st, true, nil
}

// seize takes the message that find has found out of matching.
func (e *Engine) seize(m *message, from Proc, tag int32) Message {
	m = e.take(e.contexts[m.ctx], from, tag)
	m.seized = true
	return Message{m.slot, m.gen}
}

// search finds a message, and waits for one if asked to, until ctx ends.
func (e *Engine) search(ctx context.Context, from Proc, c Context, tag int32, wait bool) (*message, Status, error) {
	for looked := false; ; looked = true {
		d, err := e.checkRecv(from, c, tag)
		if err != nil {
			return nil, Status{}, err
		}
		if m, _ := e.find(d, from, tag); m != nil {
			return m, Status{Source: m.peer, Tag: m.tag, Bytes: int64(m.size)}, nil
		}
		if err := e.hopeless(d, from); err != nil {
			return nil, Status{}, err
		}
		e.indulgeAll(from)
		if wait {
			if err := ctx.Err(); err != nil {
				return nil, Status{}, err
			}
			e.awaitMessage()
			if e.stopped {
				return nil, Status{}, ErrClosed
			}
			continue
		}
		if looked {
			return nil, Status{}, nil
		}
		e.glance()
	}
}

// hopeless says why a probe cannot find anything any more.
func (e *Engine) hopeless(d *domain, from Proc) error {
	if from == AnyProc {
		if len(d.unacked) > 0 {
			return ErrProcFailed{d.unacked[0], e.peers[d.unacked[0]].err}
		}
		return nil
	}
	e.reach(e.peers[from])
	return e.peers[from].gone()
}

// awaitMessage waits until a message has arrived anywhere, or something else has
// happened that a probe should look at.
func (e *Engine) awaitMessage() {
	w := e.newWaiter()
	e.probing = append(e.probing, w)
	e.block(w)
	for i, v := range e.probing {
		if v == w {
			last := len(e.probing) - 1
			e.probing[i] = e.probing[last]
			e.probing = e.probing[:last]
			break
		}
	}
	e.freeWaiter(w)
}

// wakeProbes has all probes look again.
func (e *Engine) wakeProbes() {
	for _, w := range e.probing {
		e.fire(w)
	}
}

// Imrecv begins to receive a message that a matched probe has taken. From,
// Context and Tag of a are ignored.
func (e *Engine) Imrecv(msg Message, a *RecvArgs) (ID, error) {
	e.gate.lock()
	defer e.leave()
	r, err := e.imrecv(msg, a)
	if err != nil {
		return ID{}, err
	}
	return r.id(), nil
}

// Mrecv is Imrecv and Wait.
func (e *Engine) Mrecv(msg Message, a *RecvArgs) (Status, error) {
	e.gate.lock()
	defer e.leave()
	r, err := e.imrecv(msg, a)
	if err != nil {
		return Status{}, err
	}
	return e.await(r)
}

func (e *Engine) imrecv(msg Message, a *RecvArgs) (*request, error) {
	if !e.messages.has(msg.slot) {
		return nil, ErrMessage
	}
	m := e.messages.at(msg.slot)
	if m.gen != msg.gen || m.state == noMessage || !m.seized {
		return nil, ErrMessage
	}
	r, err := e.newRequest(recvRequest)
	if err != nil {
		return nil, err
	}
	m.seized = false
	if m.orphan { // its sender went before it was all here, or our own send was revoked
		err := e.peers[m.peer].gone()
		if err == nil {
			err = ErrRevoked
		}
		e.release(r)
		e.freeMessage(m)
		return nil, err
	}
	if d := e.contexts[m.ctx]; d != nil && d.revoked != nil {
		e.release(r)
		e.discard(m)
		return nil, d.revoked
	}
	r.envelope = m.envelope
	r.buf, r.swap, r.done = a.Buf, a.Swap, a.Done
	e.give(m, r)
	return r, nil
}
