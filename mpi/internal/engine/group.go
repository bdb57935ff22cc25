package engine

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/meshmpi/meshmpi/mpi/internal/trunk"
)

// The processes of a site can share few connections to those of another: package
// trunk, which says how. To the engine what that gives is one more kind of net.Conn.
// The connections between neighbours come and go through the engine's own door: by
// the addresses of cards, and with a hello that proves as much as a link's does.

// Group has processes of other sites be reached over so many connections between
// each two sites, which all processes of the job share. sites says where each
// process of the job is. It must be called before Start, at all processes alike.
func (e *Engine) Group(sites []int, links int) error {
	if len(sites) != e.cfg.Size || e.cfg.Hub != nil {
		return fmt.Errorf("engine: %d sites for %d processes, or a hub: nothing to group", len(sites), e.cfg.Size)
	}
	e.gate.lock()
	defer e.leave()
	if e.started || e.trunk != nil {
		return errors.New("engine: grouped too late, or twice")
	}
	n, err := trunk.New(trunk.Config{Self: int(e.self), Sites: sites, Links: links, Connect: e.connectNeighbour, Log: e.log})
	if err != nil {
		return err
	}
	e.trunk = n
	e.admitAt(n)
	return nil
}

// GroupStats counts what the connections that are shared between sites do; zero
// without Group.
func (e *Engine) GroupStats() trunk.Stats {
	e.gate.lock()
	n := e.trunk
	e.gate.unlock()
	if n == nil {
		return trunk.Stats{}
	}
	return n.Stats()
}

// grouped reports whether a peer is reached through gateways.
func (e *Engine) grouped(p *peer) bool {
	return e.trunk != nil && int(p.proc) < e.cfg.Size && e.trunk.Serves(int(p.proc))
}

// dialGroup makes a link to a peer through gateways.
func (e *Engine) dialGroup(ctx context.Context, p *peer, c *card) error {
	start := time.Now()
	nc, err := e.trunk.Dial(ctx, int(p.proc))
	if err != nil {
		return err
	}
	return e.propose(ctx, p, c, []dialed{{nc: nc, rtt: time.Since(start)}})
}

// connectNeighbour makes a connection to a neighbour in a group.
func (e *Engine) connectNeighbour(ctx context.Context, to int) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, e.cfg.Patience)
	defer cancel()
	e.gate.lock()
	p := e.peers[to]
	e.gate.unlock()
	c, err := e.cardOf(ctx, p)
	if err != nil {
		return nil, err
	}
	if len(c.addrs) == 0 {
		return nil, errors.New("engine: the card has no address")
	}
	nc, _, err := e.dialAny(ctx, c.addrs)
	if err != nil {
		return nil, err
	}
	stop := guard(ctx, []net.Conn{nc})
	h := e.offer(c.uid, credit{})
	h.status = passing
	_, err = e.converse(h, e.helloKey(c), []net.Conn{nc})
	if !stop() && err == nil {
		err = ctx.Err()
	}
	switch {
	case err == nil:
		_ = nc.SetDeadline(time.Time{})
		return nc, nil
	case retry(err):
		err = trunk.ErrComing
	}
	nc.Close()
	return nil, err
}

// admitNeighbour takes a connection that a neighbour in a group has made.
func (e *Engine) admitNeighbour(h *hello, nc net.Conn) {
	e.gate.lock()
	ours := h.job == e.me.card.job && h.proc >= 0 && int(h.proc) < e.cfg.Size && e.peers[h.proc].card != nil && e.peers[h.proc].card.uid == h.from
	n, closed := e.trunk, e.closed && e.stopped
	e.gate.unlock()
	if n == nil || !ours || closed {
		nc.Close()
		return
	}
	a := e.answer(h, credit{})
	key := e.helloKey(&e.me.card)
	_ = nc.SetDeadline(time.Time{})
	err := n.Attach(int(h.proc), nc, func() error { // it fits into what the system keeps of a new connection
		_, err := nc.Write(a.encode(key))
		return err
	})
	if err == nil {
		return
	}
	if a.status = gone; errors.Is(err, trunk.ErrComing) {
		a.status = taken
	}
	_ = nc.SetDeadline(time.Now().Add(netLinger))
	_, _ = nc.Write(a.encode(key)) // who asks will see the end, if not this
	nc.Close()
}
