package trunk

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"
)

// mostHeld bounds what waits for a connection to a neighbour, in bytes. Windows keep
// it far below; a hop that is given more breaks.
const mostHeld = 512 << 20

// retryTime is how often a connection that the neighbour is to make is looked for.
const retryTime = 100 * time.Millisecond

// hop is the connection to a neighbour, and what waits for it. The node's lock
// guards all of it.
type hop struct {
	n       *Node
	to      int
	nc      net.Conn // nil: it is being made
	dialing bool     // by us, at this moment
	out     []byte
	held    int // bytes in out, and of it what is being written
	changed sync.Cond
	ended   bool
}

// connect is the goroutine that makes the connection; it ends when there is one, or
// with the node.
func (h *hop) connect() {
	defer h.n.tasks.Done()
	for {
		h.n.mu.Lock()
		if h.nc != nil || h.ended {
			h.n.mu.Unlock()
			return
		}
		h.dialing = true
		h.n.mu.Unlock()
		nc, err := h.n.cfg.Connect(h.n.ctx, h.to)
		h.n.mu.Lock()
		h.dialing = false
		switch {
		case err == nil && (h.nc != nil || h.ended):
			nc.Close()
		case err == nil:
			h.use(nc)
		case !errors.Is(err, ErrComing) && h.nc == nil:
			h.end(fmt.Errorf("trunk: connect to %d: %w", h.to, err))
		}
		h.n.mu.Unlock()
		select {
		case <-time.After(retryTime):
		case <-h.n.ctx.Done():
			return
		}
	}
}

// Attach gives the node a connection that a neighbour has made, unless there is one
// or is about to be. greet says so to the neighbour, before anything else is sent;
// it must not wait. The connection is the node's if Attach returns nil.
func (n *Node) Attach(from int, nc net.Conn, greet func() error) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	h := n.hops[from]
	switch {
	case n.closed:
		return errClosed
	case from < 0 || from >= len(n.cfg.Sites) || from == n.cfg.Self:
		return fmt.Errorf("%w: process %d", errViolation, from)
	case h != nil && (h.nc != nil || h.dialing && n.cfg.Self < from):
		return ErrComing
	}
	if err := greet(); err != nil {
		return err
	}
	if h == nil {
		h = &hop{n: n, to: from}
		h.changed.L = &n.mu
		n.hops[from] = h
	}
	h.use(nc)
	return nil
}

// use begins to use a connection. The node is locked.
func (h *hop) use(nc net.Conn) {
	h.nc = nc
	h.n.tasks.Add(2)
	go h.read(nc)
	go h.write(nc)
}

// push has a packet sent. It never waits: windows bound what there is.
func (h *hop) push(p *packet, data []byte) {
	if h.ended {
		return
	}
	if h.held+headerSize+len(data) > mostHeld {
		h.n.dropped++
		h.end(fmt.Errorf("%w: more than its windows allow", errViolation))
		return
	}
	h.out = append(p.encode(h.out), data...)
	h.held += headerSize + len(data)
	h.changed.Signal()
}

// end ends a hop and what needs it. The node is locked.
func (h *hop) end(err error) {
	if h.ended {
		return
	}
	h.ended = true
	h.out, h.held = nil, 0
	if h.nc != nil {
		h.nc.Close()
	}
	h.changed.Broadcast()
	if h.n.hops[h.to] == h {
		delete(h.n.hops, h.to)
	}
	if !h.n.closed {
		h.n.log.Debug("neighbour gone", "proc", h.to, "err", err)
		h.n.lost(h, err)
	}
}

// write is the goroutine that sends; it ends with the hop.
func (h *hop) write(nc net.Conn) {
	defer h.n.tasks.Done()
	var buf []byte
	for {
		h.n.mu.Lock()
		h.held = len(h.out)
		for len(h.out) == 0 && !h.ended {
			h.changed.Wait()
		}
		if h.ended {
			h.n.mu.Unlock()
			return
		}
		if cap(buf) > 1<<20 { // of a burst that is over
			buf = nil
		}
		buf, h.out = h.out, buf[:0]
		h.n.mu.Unlock()
		if _, err := nc.Write(buf); err != nil {
			h.n.mu.Lock()
			h.end(err)
			h.n.mu.Unlock()
			return
		}
	}
}

// read is the goroutine that receives; it ends with the hop.
func (h *hop) read(nc net.Conn) {
	defer h.n.tasks.Done()
	err := h.receive(bufio.NewReaderSize(nc, 64<<10))
	h.n.mu.Lock()
	h.end(err)
	h.n.mu.Unlock()
}

// receive handles packets until the connection ends.
func (h *hop) receive(r io.Reader) error {
	var head [headerSize]byte
	data := make([]byte, mostData)
	for {
		if _, err := io.ReadFull(r, head[:]); err != nil {
			return err
		}
		var p packet
		if err := p.decode(head[:], len(h.n.cfg.Sites)); err != nil {
			return err
		}
		if p.lane != h.n.plan.lane(int(p.src), int(p.dst)) || h.n.plan.next(h.to, int(p.dst), p.lane) != h.n.cfg.Self {
			return fmt.Errorf("%w: from %d to %d by lane %d does not come this way", errViolation, p.src, p.dst, p.lane)
		}
		if _, err := io.ReadFull(r, data[:p.payload()]); err != nil {
			return err
		}
		h.n.mu.Lock()
		err := error(nil)
		if !h.ended {
			err = h.n.take(h, &p, data[:p.payload()])
		}
		h.n.mu.Unlock()
		if err != nil {
			return err
		}
	}
}
