package engine

import (
	"context"
	"errors"
	"net"
	"slices"
	"time"

	"github.com/meshmpi/meshmpi/mpi/internal/trunk"
)

// mostStrangers bounds the connections whose holders have not proved yet who
// they are, and strangerTime how long each has for that.
const (
	mostStrangers = 64
	strangerTime  = 5 * time.Second
)

// porch is where connections are before they are links.
type porch struct {
	listeners []net.Listener
	strangers chan struct{}       // of size mostStrangers: one token for each
	parties   map[[16]byte]*party // by nonce; guarded by the gate
	trunk     *trunk.Node         // nil: connections are not shared; set before Start
}

// party is what has come of connections that are offered together.
type party struct {
	conns  []net.Conn // by index
	come   int
	expire *time.Timer
}

// equipListeners opens what peers connect to and notes it in our card.
func (e *Engine) equipListeners() error {
	e.strangers = make(chan struct{}, mostStrangers)
	e.parties = map[[16]byte]*party{}
	switch {
	case e.cfg.Listen != nil:
		l, err := e.cfg.Listen(e.ctx)
		if err != nil {
			return err
		}
		e.admitAt(l, l.Addr().String())
	case e.cfg.Hub == nil:
		if err := e.listenTCP(); err != nil {
			return err
		}
	}
	if e.cfg.SharedMemory && e.cfg.Hub == nil {
		e.listenLocal()
	}
	return nil
}

// admitAt has a listener accepted from and its addresses published.
func (e *Engine) admitAt(l net.Listener, addrs ...string) {
	e.listeners = append(e.listeners, l)
	e.closers = append(e.closers, func() { l.Close() })
	for _, a := range addrs {
		if len(e.me.card.addrs) < mostAddrs {
			e.me.card.addrs = append(e.me.card.addrs, a)
		}
	}
}

// listenTCP listens at the addresses of the configuration, or at all.
func (e *Engine) listenTCP() error {
	if len(e.cfg.Addresses) == 0 {
		l, err := net.Listen("tcp", ":0")
		if err != nil {
			return err
		}
		_, port, _ := net.SplitHostPort(l.Addr().String())
		var addrs []string
		for _, host := range machineAddrs() {
			addrs = append(addrs, net.JoinHostPort(host, port))
		}
		e.admitAt(l, addrs...)
		return nil
	}
	for _, a := range e.cfg.Addresses {
		if _, _, err := net.SplitHostPort(a); err != nil {
			a = net.JoinHostPort(a, "0")
		}
		l, err := net.Listen("tcp", a)
		if err != nil {
			return err
		}
		e.admitAt(l, l.Addr().String())
	}
	e.me.card.rails = len(e.me.card.addrs)
	return nil
}

// machineAddrs are the addresses that others may reach this machine at; those
// that only itself can if there are no others.
func machineAddrs() []string {
	all, _ := net.InterfaceAddrs()
	var out, local []string
	for _, a := range all {
		n, ok := a.(*net.IPNet)
		switch {
		case !ok || n.IP.IsLinkLocalUnicast() || n.IP.IsMulticast():
		case n.IP.IsLoopback():
			local = append(local, n.IP.String())
		default:
			out = append(out, n.IP.String())
		}
	}
	if len(out) == 0 {
		return local
	}
	return out
}

// serve lets others connect from now on. Its goroutines end when the listeners
// are closed and the engine stops.
func (e *Engine) serve() {
	for _, l := range e.listeners {
		e.tasks.Add(1)
		go e.accept(l)
	}
}

// accept takes connections, as many as there may be strangers.
func (e *Engine) accept(l net.Listener) {
	defer e.tasks.Done()
	for {
		select {
		case e.strangers <- struct{}{}:
		case <-e.ctx.Done():
			return
		}
		nc, err := l.Accept()
		if err == nil {
			e.tasks.Add(1)
			go e.welcome(nc)
			continue
		}
		<-e.strangers
		if errors.Is(err, net.ErrClosed) || e.ctx.Err() != nil {
			return
		}
		e.log.Warn("accept", "err", err)
		select { // of files, mostly: some will be closed
		case <-time.After(50 * time.Millisecond):
		case <-e.ctx.Done():
			return
		}
	}
}

// welcome hears who a stranger is.
func (e *Engine) welcome(nc net.Conn) {
	defer e.tasks.Done()
	ctx, cancel := context.WithTimeout(e.ctx, strangerTime)
	defer cancel()
	stop := guard(ctx, []net.Conn{nc})
	defer stop()
	var h *hello
	var err error
	var local *localOffer
	if isLocal(nc) {
		h, local, err = e.hearLocal(nc)
	} else {
		h, err = readHello(nc, e.helloKey(&e.me.card))
	}
	<-e.strangers
	if err == nil && (h.status != offered && h.status != passing || h.to != e.me.card.uid) {
		err = errViolation
	}
	if err == nil {
		err = e.identify(ctx, h)
	}
	if err != nil || !stop() {
		e.log.Debug("a stranger connected", "addr", nc.RemoteAddr(), "err", err)
		local.drop()
		nc.Close()
		return
	}
	if h.status == passing && local == nil {
		e.admitNeighbour(h, nc)
		return
	}
	if local != nil {
		e.admitLocal(h, nc, local)
		return
	}
	if conns := e.gather(h, nc); conns != nil {
		e.admit(h, conns)
	}
}

// identify makes sure that we know the card of the process that a hello says it
// is from, if it says that it is of our job: by it we know whether that is true.
func (e *Engine) identify(ctx context.Context, h *hello) error {
	if e.cfg.Resolve == nil || h.job != e.me.card.job || h.proc < 0 || int(h.proc) >= e.cfg.Size {
		return nil
	}
	e.gate.lock()
	p, known := e.procFor(&card{uid: h.from}, -1)
	if !known {
		p = e.peers[h.proc]
	}
	e.gate.unlock()
	_, err := e.cardOf(ctx, p)
	return err
}

// gather keeps a connection until all that are offered with it have come, and
// returns them then.
func (e *Engine) gather(h *hello, nc net.Conn) []net.Conn {
	if h.count == 1 {
		return []net.Conn{nc}
	}
	e.gate.lock()
	defer e.gate.unlock()
	p := e.parties[h.nonce]
	if p == nil && !e.stopped {
		p = &party{conns: make([]net.Conn, h.count)}
		p.expire = time.AfterFunc(strangerTime, func() { e.disperse(h.nonce) })
		e.parties[h.nonce] = p
	}
	if p == nil || len(p.conns) != int(h.count) || p.conns[h.index] != nil {
		nc.Close()
		return nil
	}
	p.conns[h.index] = nc
	if p.come++; p.come < len(p.conns) {
		return nil
	}
	p.expire.Stop()
	delete(e.parties, h.nonce)
	return p.conns
}

// disperse closes the connections of a party that has not become complete.
func (e *Engine) disperse(nonce [16]byte) {
	e.gate.lock()
	defer e.gate.unlock()
	if p := e.parties[nonce]; p != nil {
		delete(e.parties, nonce)
		p.end()
	}
}

// end closes the connections of a party.
func (p *party) end() {
	p.expire.Stop()
	for _, nc := range p.conns {
		if nc != nil {
			nc.Close()
		}
	}
}

// consider decides about an offer.
func (e *Engine) consider(h *hello) (*peer, status) {
	c := &card{uid: h.from, arch: h.arch, job: h.job}
	if e.closed {
		if p, known := e.procFor(c, h.proc); !known || !p.owed() || e.stopped {
			return nil, gone
		}
	}
	p, known := e.strangerFor(c, h.proc)
	switch {
	case !known:
		return nil, notYet
	case p.state == failed || p.state == departed:
		return nil, gone
	case p.state == up || p.offered && e.me.card.uid.before(&h.from):
		return nil, taken
	}
	if p.card == nil {
		p.card = c
	}
	return p, agreed
}

// admit answers an offer of connections and makes links of them.
func (e *Engine) admit(h *hello, conns []net.Conn) {
	far := distances(conns, nil)
	rtt := slices.Min(far)
	grants := e.grants(rtt)
	wires, err := e.wires(conns)
	if err != nil {
		e.log.Warn("connection", "err", err)
		closeConns(conns)
		return
	}
	key := e.helloKey(&e.me.card)
	a := e.answer(h, grants)
	var early *ahead
	if h.slots != 0 {
		early = e.openAhead(conns).meet(h)
	}
	early.offer(a)
	e.gate.lock()
	defer e.leave()
	p, s := e.consider(h)
	a.status = s
	for i, w := range wires {
		a.index = uint8(i)
		// The answer goes first, and fits into what the system keeps of a new
		// connection, so it needs not wait.
		if n, err := w.write(a.encode(key), nil, 0); n != helloSize {
			e.log.Warn("answer to an offer", "err", err)
			s = gone
		}
	}
	if s != agreed {
		early.close()
		for _, w := range wires {
			w.close()
		}
		return
	}
	early.give(wires)
	e.link(p, h, wires, far, e.streamTerms(rtt, grants, h.grants))
}
