package hub

import (
	"context"
	"crypto/tls"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/meshmpi/meshmpi/mesh/cert"
	"github.com/meshmpi/meshmpi/mesh/peer"
)

// TestRecheckWhileBusy: that the network has changed is not forgotten by a reader that
// is just busy with what the hub said before.
func TestRecheckWhileBusy(t *testing.T) {
	w := newWorld(t)
	var once sync.Once
	busy, done, pings := make(chan struct{}), make(chan struct{}), make(chan struct{}, 8)
	addr := listen(t, func(c net.Conn) {
		conn := tls.Server(c, cert.TLSConfig(w.keys, *w.chain.Load(), w.network.Root, time.Now, alpnControl))
		_ = writeMessage(conn, message{Type: typeSignal, Peer: &peer.ID{1}})
		for {
			m, err := readMessage(conn, maxNodeFrame)
			if err != nil {
				return
			}
			if m.Type == typePing { // which it does not answer
				select {
				case pings <- struct{}{}:
				default:
				}
			}
		}
	})
	v := w.watch(w.member("b"), addr)
	v.Client.cfg.Events.Signal = func(peer.ID, []byte) {
		once.Do(func() { close(busy) })
		<-done
	}
	v.start()
	<-busy
	<-pings // the first of every session
	v.Client.Recheck()
	<-pings // by now the hub has little time
	close(done)
	v.until("the end of the session", func() bool { return v.err != nil })
	oneLine(t, v.err)
}

// TestRecheck: a session whose connection leads nowhere ends soon once the node
// is told that its network has changed, and a node that waits to dial dials at
// once; a session that works goes on.
func TestRecheck(t *testing.T) {
	w := newWorld(t)
	cut := make(chan struct{})
	var dials atomic.Int32
	v := w.connectBy(w.member("a"), func(ctx context.Context, network, addr string) (net.Conn, error) {
		c, err := (&net.Dialer{}).DialContext(ctx, network, addr)
		if err == nil && dials.Add(1) == 1 {
			c = &deafConn{Conn: c, cut: cut}
		}
		return c, err
	})
	v.Client.Recheck()
	since := v.Client.Sessions()[0].Since
	<-time.After(recheckTime + 500*time.Millisecond) // what is watched for is that nothing happens
	if s := v.Client.Sessions()[0]; !s.Up || !s.Since.Equal(since) {
		t.Errorf("a session that works did not outlive the question: %+v", s)
	}
	close(cut)
	began := time.Now()
	v.Client.Recheck()
	v.until("the end of the session", func() bool { return v.err != nil })
	if took := time.Since(began); took > silentFor/2 {
		t.Errorf("noticed after %v", took)
	}
	oneLine(t, v.err)
	v.until("the next session", func() bool { return v.err == nil })
}

// TestAddressGone: a session from an address that the host no longer has ends as soon as
// the node is told that its network has changed, and the next begins at once.
func TestAddressGone(t *testing.T) {
	w := newWorld(t)
	var gone atomic.Bool
	v := w.watch(w.member("a"))
	v.Client.cfg.Gone = func(net.Addr) bool { return gone.Swap(false) }
	v.start()
	v.until("a session", func() bool { return v.ups > 0 })
	gone.Store(true)
	began := time.Now()
	v.Client.Recheck()
	v.until("the end of the session", func() bool { return v.err != nil })
	if took := time.Since(began); took > recheckTime/2 {
		t.Errorf("noticed after %v", took)
	}
	oneLine(t, v.err)
	v.until("the next session", func() bool { return v.err == nil })
}

// deafConn hears nothing more once it is cut, and says nothing.
type deafConn struct {
	net.Conn
	cut <-chan struct{}
}

func (c *deafConn) Read(b []byte) (int, error) {
	for {
		n, err := c.Conn.Read(b)
		select {
		case <-c.cut:
			if err != nil {
				return 0, err
			}
		default:
			return n, err
		}
	}
}

func (c *deafConn) Write(b []byte) (int, error) {
	select {
	case <-c.cut:
		return len(b), nil
	default:
		return c.Conn.Write(b)
	}
}

// TestRecheckWhileDialling: neither a dial that was under way when the network changed,
// and leads nowhere, nor a hub that took the connection and says nothing is waited for;
// and nobody is sent to look for a fault at the hub.
func TestRecheckWhileDialling(t *testing.T) {
	for name, first := range map[string]func(ctx context.Context, begun chan<- struct{}) (net.Conn, error){
		"nobody answers": func(ctx context.Context, begun chan<- struct{}) (net.Conn, error) {
			close(begun)
			<-ctx.Done()
			return nil, ctx.Err()
		},
		"nobody shakes hands": func(_ context.Context, begun chan<- struct{}) (net.Conn, error) {
			near, far := net.Pipe()
			go func() { // ends with near
				b := make([]byte, 1<<16)
				_, err := far.Read(b)
				close(begun)
				for err == nil {
					_, err = far.Read(b)
				}
			}()
			return near, nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			v := w.watch(w.member("a"))
			var dials atomic.Int32
			begun := make(chan struct{})
			v.Client.cfg.Dial = func(ctx context.Context, network, addr string) (net.Conn, error) {
				if dials.Add(1) == 1 {
					return first(ctx, begun)
				}
				return (&net.Dialer{}).DialContext(ctx, network, addr)
			}
			var said []error
			session := v.Client.cfg.Events.Session
			v.Client.cfg.Events.Session = func(hub string, up bool, err error) {
				v.note(func() { said = append(said, err) })
				session(hub, up, err)
			}
			v.start()
			<-begun
			began := time.Now()
			v.Client.Recheck()
			v.until("a session", func() bool { return v.ups > 0 })
			if took := time.Since(began); took > recheckTime {
				t.Errorf("a session %v after the network changed", took)
			}
			v.note(func() {
				if oneLine(t, said[0]); !strings.Contains(said[0].Error(), "this host's network changed") {
					t.Errorf("told %v", said[0])
				}
			})
		})
	}
}
