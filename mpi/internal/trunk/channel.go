package trunk

import (
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"sync"
	"time"
)

// Channel is one end of a connection between two processes. The node's lock guards
// all of it.
type Channel struct {
	n      *Node
	name   flow
	to     int
	lane   uint8
	window int // of each direction

	in      []byte // what has come and was not read
	granted int    // what may still come
	taken   int    // what was read and not granted again
	allowed int    // what may be sent

	sentEnd, gotEnd bool
	err             error
	changed         sync.Cond
	readBefore      time.Time
	writeBefore     time.Time
}

var _ net.Conn = (*Channel)(nil)

func newChannel(n *Node, f flow, to int) *Channel {
	c := &Channel{
		n: n, name: f, to: to, lane: n.plan.lane(n.cfg.Self, to), window: n.plan.window(n.cfg.Sites[n.cfg.Self], n.cfg.Sites[to]),
	}
	c.changed.L = &n.mu
	return c
}

// packet begins one to the other end.
func (c *Channel) packet(k kind, n int) *packet {
	return &packet{
		kind: k, lane: c.lane, n: uint32(n), src: uint32(c.n.cfg.Self), dst: uint32(c.to), number: c.name.number,
		theirs: c.name.opener != uint32(c.n.cfg.Self),
	}
}

// grant lets the other end send more.
func (c *Channel) grant(n int) {
	c.granted += n
	c.n.post(c.packet(kindWindow, n), nil)
}

// opened waits for the first window, and grants one in turn.
func (c *Channel) opened() error {
	c.n.mu.Lock()
	defer c.n.mu.Unlock()
	for c.allowed == 0 && c.err == nil && !c.gotEnd {
		c.changed.Wait()
	}
	switch {
	case c.err != nil:
		return c.err
	case c.gotEnd:
		return ErrEnded
	}
	c.grant(c.window)
	return nil
}

// take handles a packet from the other end. The node is locked.
func (c *Channel) take(p *packet, data []byte) error {
	switch p.kind {
	case kindOpen:
		return fmt.Errorf("%w: a channel is opened twice", errViolation)
	case kindData:
		if len(data) > c.granted || c.gotEnd {
			return fmt.Errorf("%w: data beyond a channel's window or end", errViolation)
		}
		c.granted -= len(data)
		if !c.sentEnd {
			c.in = append(c.in, data...)
		}
	case kindWindow:
		if c.allowed += int(p.n); c.allowed > mostWindow {
			return fmt.Errorf("%w: window of %d bytes", errViolation, c.allowed)
		}
	case kindEnd:
		c.gotEnd = true
		c.forget()
	case kindReset:
		delete(c.n.channels, c.name)
		c.end(ErrEnded)
	}
	c.changed.Broadcast()
	return nil
}

// forget drops a channel that both ends have ended.
func (c *Channel) forget() {
	if c.sentEnd && c.gotEnd {
		delete(c.n.channels, c.name)
	}
}

// end breaks the channel at this side.
func (c *Channel) end(err error) {
	if c.err == nil {
		c.err = err
	}
	c.changed.Broadcast()
}

// reset is end for who does not hold the node.
func (c *Channel) reset(err error) {
	c.n.mu.Lock()
	defer c.n.mu.Unlock()
	c.end(err)
}

// Read waits for what the other end has sent; io.EOF when that has closed.
func (c *Channel) Read(b []byte) (int, error) {
	c.n.mu.Lock()
	defer c.n.mu.Unlock()
	for len(c.in) == 0 {
		switch {
		case c.err != nil:
			return 0, c.err
		case c.sentEnd:
			return 0, net.ErrClosed
		case c.gotEnd:
			return 0, io.EOF
		case past(c.readBefore):
			return 0, os.ErrDeadlineExceeded
		}
		c.changed.Wait()
	}
	n := copy(b, c.in)
	if c.in = c.in[:copy(c.in, c.in[n:])]; len(c.in) == 0 && cap(c.in) > 4*mostData {
		c.in = nil
	}
	if c.taken += n; c.taken >= c.window/4 && !c.gotEnd && c.err == nil {
		c.grant(c.taken)
		c.taken = 0
	}
	return n, nil
}

// Write waits until the other end has room for all of b.
func (c *Channel) Write(b []byte) (n int, err error) {
	c.n.mu.Lock()
	defer c.n.mu.Unlock()
	for n < len(b) {
		switch {
		case c.err != nil:
			return n, c.err
		case c.sentEnd:
			return n, net.ErrClosed
		case c.gotEnd:
			return n, io.ErrClosedPipe
		case past(c.writeBefore):
			return n, os.ErrDeadlineExceeded
		case c.allowed == 0:
			c.changed.Wait()
			continue
		}
		k := min(len(b)-n, c.allowed, mostData)
		c.allowed -= k
		c.n.post(c.packet(kindData, k), b[n:n+k])
		n += k
	}
	return n, nil
}

// Close ends the channel behind what was written.
func (c *Channel) Close() error {
	c.n.mu.Lock()
	defer c.n.mu.Unlock()
	if c.sentEnd {
		return nil
	}
	c.sentEnd = true
	c.in = nil
	if c.n.channels[c.name] == c {
		c.n.post(c.packet(kindEnd, 0), nil)
		c.forget()
	}
	c.changed.Broadcast()
	return nil
}

func past(t time.Time) bool { return !t.IsZero() && !time.Now().Before(t) }

// SetDeadline is both of the following.
func (c *Channel) SetDeadline(t time.Time) error { return c.deadline(t, &c.readBefore, &c.writeBefore) }

// SetReadDeadline bounds Read.
func (c *Channel) SetReadDeadline(t time.Time) error { return c.deadline(t, &c.readBefore) }

// SetWriteDeadline bounds Write.
func (c *Channel) SetWriteDeadline(t time.Time) error { return c.deadline(t, &c.writeBefore) }

func (c *Channel) deadline(t time.Time, which ...*time.Time) error {
	c.n.mu.Lock()
	defer c.n.mu.Unlock()
	for _, w := range which {
		*w = t
	}
	if !t.IsZero() {
		time.AfterFunc(time.Until(t), func() { // it wakes who waits, and is over
			c.n.mu.Lock()
			defer c.n.mu.Unlock()
			c.changed.Broadcast()
		})
	}
	c.changed.Broadcast()
	return nil
}

// endpoint is a process as an address.
type endpoint int

func (endpoint) Network() string  { return "trunk" }
func (p endpoint) String() string { return "proc-" + strconv.Itoa(int(p)) }

// LocalAddr names this process.
func (c *Channel) LocalAddr() net.Addr { return endpoint(c.n.cfg.Self) }

// RemoteAddr names the other.
func (c *Channel) RemoteAddr() net.Addr { return endpoint(c.to) }
