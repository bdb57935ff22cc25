package engine

// Op is the engine held. It is given to callbacks and must not be used after
// they return; they must not call the engine's own methods, which would wait
// for themselves, and must not block.
//
// Requests begun here cannot be waited for: they are freed when they end, after
// Done has been called. Their IDs serve Abandon until then.
type Op struct{ e *Engine }

// Do runs f with the engine held.
func (e *Engine) Do(f func(op *Op)) {
	e.gate.lock()
	defer e.leave()
	f(&e.op)
}

// Isend is Engine.Isend.
func (o *Op) Isend(a *SendArgs) (ID, error) { return o.free(o.e.isend(a)) }

// SendNow is Engine.SendNow.
func (o *Op) SendNow(a *SendArgs) (sent bool, err error) { return o.e.sendNow(a) }

// Irecv is Engine.Irecv.
func (o *Op) Irecv(a *RecvArgs) (ID, error) { return o.free(o.e.irecv(a)) }

// Imrecv is Engine.Imrecv.
func (o *Op) Imrecv(m Message, a *RecvArgs) (ID, error) { return o.free(o.e.imrecv(m, a)) }

// free has a request freed at its end, which may have been.
func (o *Op) free(r *request, err error) (ID, error) {
	if err != nil {
		return ID{}, err
	}
	id := r.id()
	r.flags |= detached
	if r.state == complete {
		o.e.release(r)
	}
	return id, nil
}

// Abandon ends a request that is under way, whose buffer is free then. The other
// side is told if it asks. Requests that have ended are ignored.
func (o *Op) Abandon(id ID) {
	r := o.e.lookup(id)
	if r == nil || r.kind == generalRequest || r.state >= ending {
		return
	}
	o.e.detachRequest(r)
	r.status.Cancelled = true
	o.e.end(r, nil)
}

// Complete ends a request made by General. One that is not there, or has ended,
// is ignored.
func (o *Op) Complete(id ID, st Status, err error) {
	r := o.e.lookup(id)
	if r == nil || r.kind != generalRequest || r.state != moving {
		return
	}
	r.status = st
	o.e.end(r, err)
}

// Failed is Engine.Failed.
func (o *Op) Failed(p Proc) error { return o.e.failure(p) }

// Acknowledge is Engine.Acknowledge.
func (o *Op) Acknowledge(c Context) { o.e.acknowledge(c) }

// Revoke is Engine.Revoke.
func (o *Op) Revoke(c Context, err error) { o.e.revoke(c, err) }

// Post sends an active message: at its receiver, the function that Handle has
// set for the kind is called with hdr and payload. Messages posted to a process
// are handled in order, but not in order with others. The payload, at most
// MaxPost bytes, is borrowed until done is called, which may be nil.
func (o *Op) Post(to Proc, kind uint8, hdr *[24]byte, payload []byte, done func(*Op, error)) error {
	return o.e.post(to, kind, hdr, payload, done)
}

// General makes a request that Op.Complete ends. It fails with ErrClosed or ErrLimit.
func (e *Engine) General() (ID, error) {
	e.gate.lock()
	defer e.leave()
	r, err := e.newRequest(generalRequest)
	if err != nil {
		return ID{}, err
	}
	r.state = moving
	return r.id(), nil
}
