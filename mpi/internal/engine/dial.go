package engine

import (
	"context"
	"crypto/rand"
	"errors"
	"io"
	"net"
	"slices"
	"syscall"
	"time"

	"github.com/meshmpi/meshmpi/internal/oneline"
)

// dialNext is how long one address is tried alone before the next is tried as
// well.
const dialNext = 300 * time.Millisecond

// dialPeer makes links to a peer: through shared memory if it is on this host
// and willing, otherwise by connections to an address of its card.
func (e *Engine) dialPeer(ctx context.Context, p *peer, c *card) error {
	if e.grouped(p) {
		err := e.dialGroup(ctx, p, c)
		if err == nil || retry(err) || ctx.Err() != nil {
			return err
		}
		e.log.Warn("no way through gateways: connecting directly", "proc", p.proc, "err", err)
	}
	// Rings have words in the machine's own byte order.
	if e.me.card.host != "" && c.host == e.me.card.host && c.socket != "" && c.arch&bigEndian == e.me.card.arch&bigEndian {
		err := e.dialLocal(ctx, p, c)
		if err == nil || retry(err) || ctx.Err() != nil {
			return err
		}
		e.log.Debug("no shared memory", "proc", p.proc, "err", err)
	}
	if len(c.addrs) == 0 {
		return errors.New("engine: the card has no address")
	}
	all, err := e.dialAll(ctx, c)
	if err != nil {
		return err
	}
	return e.propose(ctx, p, c, all)
}

// transient reports whether an error says that this machine, not the peer,
// lacks something at the moment.
func transient(err error) bool {
	for _, e := range []error{syscall.EADDRNOTAVAIL, syscall.EAGAIN, syscall.ENOBUFS, syscall.EMFILE, syscall.ENFILE, syscall.ENOMEM} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// dialAny connects to whichever address answers first, the earlier ones having
// a start.
func (e *Engine) dialAny(ctx context.Context, addrs []string) (net.Conn, string, error) {
	ctx, cancel := context.WithCancel(ctx)
	type result struct {
		nc   net.Conn
		addr string
		err  error
	}
	results := make(chan result, len(addrs)) // so that none has to be waited for
	begun, ended := 0, 0
	next := func() {
		addr := addrs[begun]
		begun++
		e.tasks.Go(func() {
			nc, err := e.dialFrom(ctx, -1, addr)
			results <- result{nc, addr, err}
		})
	}
	var won result
	var errs []error
	for next(); ended < len(addrs) && won.nc == nil; {
		var patience <-chan time.Time
		if begun < len(addrs) {
			patience = time.After(dialNext)
		}
		select {
		case r := <-results:
			ended++
			if won = r; r.err != nil {
				won.nc = nil
				errs = append(errs, r.err)
				if begun < len(addrs) {
					next()
				}
			}
		case <-patience:
			next()
		}
	}
	cancel()
	for ; ended < begun; ended++ { // they end soon, having been cancelled
		if r := <-results; r.nc != nil {
			r.nc.Close()
		}
	}
	if won.nc == nil {
		return nil, "", oneline.Join(errs...)
	}
	return won.nc, won.addr, nil
}

// propose offers a peer the connections that are to be links, and makes links of
// them if it agrees.
func (e *Engine) propose(ctx context.Context, p *peer, c *card, all []dialed) (err error) {
	var conns []net.Conn
	var took []time.Duration
	for _, d := range all {
		conns, took = append(conns, d.nc), append(took, d.rtt)
	}
	defer func() {
		if err != nil {
			closeConns(conns)
		}
	}()
	stop := guard(ctx, conns)
	defer stop()
	if err := e.engage(p); err != nil {
		return err
	}
	rtt := slices.Min(took)
	grants := e.grants(rtt)
	h := e.offer(c.uid, grants)
	_, _ = rand.Read(h.nonce[:]) // it cannot fail
	a := e.openAhead(conns)
	defer func() {
		if err != nil {
			a.close()
		}
	}()
	a.offer(h)
	answer, err := e.converse(h, e.helloKey(c), conns)
	e.gate.lock()
	defer e.leave()
	p.offered = false
	e.change()
	switch {
	case err != nil:
		return err
	case p.state != connecting || e.stopped:
		return errTaken
	}
	if !stop() {
		return ctx.Err()
	}
	far := distances(conns, took)
	wires, err := e.wires(conns)
	if err != nil {
		return err
	}
	a = a.meet(answer)
	a.give(wires)
	e.link(p, answer, wires, far, e.streamTerms(rtt, grants, answer.grants))
	return nil
}

// engage notes that a peer is about to be offered links: it decides by that, and
// by who it is, which offer counts if it has made one at the same time.
func (e *Engine) engage(p *peer) error {
	e.gate.lock()
	defer e.gate.unlock()
	if p.state != connecting || e.stopped {
		return errTaken
	}
	p.offered = true
	return nil
}

// converse says hello on all connections and hears the answers.
func (e *Engine) converse(h *hello, key []byte, conns []net.Conn) (*hello, error) {
	h.count = uint8(len(conns))
	for i, nc := range conns {
		h.index = uint8(i)
		if _, err := nc.Write(h.encode(key)); err != nil {
			return nil, err
		}
	}
	var first *hello
	for i, nc := range conns {
		a, err := readHello(nc, key)
		if err != nil {
			return nil, err
		}
		h.index = uint8(i)
		if err := h.heed(a); err != nil {
			return nil, err
		}
		if i == 0 {
			first = a
		}
	}
	return first, nil
}

func readHello(nc net.Conn, key []byte) (*hello, error) {
	var b [helloSize]byte
	if _, err := io.ReadFull(nc, b[:]); err != nil {
		return nil, err
	}
	return decodeHello(b[:], key)
}

// guard closes connections when ctx ends, unless it is stopped before; stop
// reports whether it was.
func guard(ctx context.Context, conns []net.Conn) (stop func() bool) {
	end := context.AfterFunc(ctx, func() { closeConns(conns) })
	stopped := false
	return func() bool {
		stopped = stopped || end()
		return stopped
	}
}

func closeConns(conns []net.Conn) {
	for _, nc := range conns {
		nc.Close()
	}
}

// wires makes wires of connections: of all or, with an error, of none.
func (e *Engine) wires(conns []net.Conn) ([]wire, error) {
	ws := make([]wire, 0, len(conns))
	for _, nc := range conns {
		w, err := e.wireOf(nc)
		if err != nil {
			for _, w := range ws {
				w.close()
			}
			return nil, err
		}
		ws = append(ws, w)
	}
	return ws, nil
}

// What is granted and sent unasked over connections: more where an answer takes
// longer.
const (
	farAway     = 2 * time.Millisecond
	nearEager   = 64 << 10
	farEager    = 256 << 10
	nearCredit  = 1 << 20
	farCredit   = 4 << 20
	creditCount = 1 << 12
	streamPiece = 256 << 10
)

// grants is the credit that a peer gets which is so far away.
func (e *Engine) grants(rtt time.Duration) credit {
	bytes := nearCredit
	switch {
	case e.cfg.Credit > 0:
		bytes = min(e.cfg.Credit, 1<<30)
	case rtt >= farAway:
		bytes = farCredit
	}
	return credit{bytes + creditCount*overhead, creditCount}
}

// streamTerms are those of links over connections.
func (e *Engine) streamTerms(rtt time.Duration, granted, got credit) terms {
	eager := nearEager
	if rtt >= farAway {
		eager = farEager
	}
	if e.cfg.EagerLimit > 0 {
		eager = e.cfg.EagerLimit
	}
	return terms{eager: min(eager, got.bytes/4), credit: got, theirs: granted, piece: streamPiece}
}

// plugger is a wire that has to be told when it becomes a link's: it is polled
// from then on.
type plugger interface{ plug(c *conn) error }

// link makes links of wires that the holder of a hello has at their other ends, so
// far away.
func (e *Engine) link(p *peer, h *hello, wires []wire, far []time.Duration, t terms) {
	links := make([]*conn, len(wires))
	for i, w := range wires {
		links[i] = &conn{e: e, peer: p, wire: w, piece: t.piece, swapped: (h.arch^e.cfg.Arch)&bigEndian != 0}
		links[i].gauge.near = far[i]
		if pull, ok := w.(puller); ok {
			links[i].pull = pull
		}
		if err := w.(plugger).plug(links[i]); err != nil {
			e.breakLink(links[i], err)
		}
	}
	e.attach(p, links, t)
}
