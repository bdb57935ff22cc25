package hub

import (
	"context"
	"net"
	"sync/atomic"
	"testing"
)

// lastMoment is a listener that accepts one connection just as ctx ends.
type lastMoment struct {
	net.Listener
	conn   net.Conn
	end    context.CancelFunc
	closed atomic.Bool
}

func (l *lastMoment) Accept() (net.Conn, error) {
	l.end()
	return l.conn, nil
}

func (l *lastMoment) Close() error {
	l.closed.Store(true)
	return nil
}

// watched is a connection that tells whether it was closed.
type watched struct {
	net.Conn
	closed atomic.Bool
}

func (c *watched) Close() error {
	c.closed.Store(true)
	return nil
}

// TestServeEndsClean: when Serve has returned nobody can connect any more, and a
// connection that came at the last moment is not left hanging.
func TestServeEndsClean(t *testing.T) {
	w := newWorld(t)
	ctx, cancel := context.WithCancel(context.Background())
	conn := &watched{}
	ln := &lastMoment{conn: conn, end: cancel}
	check(t, w.hub.Serve(ctx, ln))
	if !ln.closed.Load() {
		t.Error("the port is still open")
	}
	if !conn.closed.Load() {
		t.Error("the last connection is still open")
	}
}
