package mpitest

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/meshmpi/meshmpi/mpi"
)

// WAN has messages between hosts go through a simulated network instead of
// memory: between sites they take delay one way and share rate bits per second,
// up and down, of the link of each site; zero means no limit. Inside a site
// nothing is slow.
func WAN(delay time.Duration, rate float64) Option {
	return func(c *config) {
		c.network = &network{delay: delay, rate: rate, listeners: map[string]*listener{}, links: map[string]*link{}}
	}
}

// Break has a connection between sites break when it has carried so many bytes, both
// ways together; what is under way on it then is lost. Connections are numbered from
// 0 as they are dialed, those included that are given up because the other side has
// dialed as well. It needs WAN.
func Break(connection, after int) Option {
	return func(c *config) {
		if c.breaks == nil {
			c.breaks = map[int]int{}
		}
		c.breaks[connection] = after
	}
}

// network is a simulated one. It lives as long as a Run.
type network struct {
	delay time.Duration
	rate  float64

	mu        sync.Mutex // guards what follows
	listeners map[string]*listener
	links     map[string]*link // a site's way up or down
	dialed    int              // connections between sites
	breaks    map[int]int      // bytes after which some break, by number
}

// link is what the messages of a site share in one direction.
type link struct {
	mu   sync.Mutex // guards free
	free time.Time  // when it has sent all that was given to it
}

// pass returns when n bytes that come at t have passed.
func (l *link) pass(t time.Time, n int, rate float64) time.Time {
	if rate <= 0 {
		return t
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.free.Before(t) {
		l.free = t
	}
	l.free = l.free.Add(serialize(n, rate))
	return l.free
}

// serialize is how long n bytes take at rate bits per second.
func serialize(n int, rate float64) time.Duration {
	if rate <= 0 {
		return 0
	}
	return time.Duration(float64(n) * 8 / rate * float64(time.Second))
}

// option makes a rank at a site use the network.
func (n *network) option(rank int, site string) mpi.Option {
	return mpi.WithNetwork(
		func(ctx context.Context, _, address string) (net.Conn, error) { return n.dial(ctx, site, address) },
		func(context.Context) (net.Listener, error) { return n.listen(fmt.Sprintf("%s-%d:1", site, rank)) },
	)
}

func (n *network) listen(address string) (net.Listener, error) {
	l := &listener{n: n, addr: addr(address), conns: make(chan net.Conn), closed: make(chan struct{})}
	n.mu.Lock()
	defer n.mu.Unlock()
	for k := 2; n.listeners[string(l.addr)] != nil; k++ { // of a spawned job
		host, _, _ := strings.Cut(address, ":")
		l.addr = addr(fmt.Sprintf("%s:%d", host, k))
	}
	n.listeners[string(l.addr)] = l
	return l, nil
}

func (n *network) dial(ctx context.Context, from, address string) (net.Conn, error) {
	n.mu.Lock()
	l := n.listeners[address]
	n.mu.Unlock()
	if l == nil {
		return nil, fmt.Errorf("mpitest: nobody listens on %s", address)
	}
	to := address[:strings.LastIndexByte(address, '-')]
	there, back := n.pipe(from, to), n.pipe(to, from)
	if from != to {
		n.arm(there, back)
	}
	near := &conn{in: back, out: there, local: addr(from), remote: l.addr}
	far := &conn{in: there, out: back, local: l.addr, remote: addr(from)}
	select {
	case l.conns <- far:
		return near, nil
	case <-l.closed:
		return nil, fmt.Errorf("mpitest: nobody listens on %s", address)
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// pipe is one direction of a connection.
func (n *network) pipe(from, to string) *pipe {
	p := &pipe{changed: make(chan struct{})}
	if from != to {
		n.mu.Lock()
		defer n.mu.Unlock()
		p.delay, p.rate = n.delay, n.rate
		p.up, p.down = n.link("up "+from), n.link("down "+to)
	}
	return p
}

// arm has the two directions of a connection break if Break said so.
func (n *network) arm(there, back *pipe) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if after, ok := n.breaks[n.dialed]; ok {
		f := &fuse{pipes: [2]*pipe{there, back}}
		f.left.Store(int64(after))
		there.fuse, back.fuse = f, f
	}
	n.dialed++
}

// fuse breaks a connection when it has carried so much.
type fuse struct {
	left  atomic.Int64
	pipes [2]*pipe
}

// burn counts n bytes, and reports whether they were too many: then both directions
// are closed and hold nothing any more. No pipe is locked.
func (f *fuse) burn(n int) bool {
	if f == nil || f.left.Add(int64(-n)) >= 0 {
		return false
	}
	for _, p := range f.pipes {
		p.close()
		p.mu.Lock()
		p.chunks, p.held = nil, 0
		p.mu.Unlock()
	}
	return true
}

func (n *network) link(name string) *link {
	if n.links[name] == nil {
		n.links[name] = &link{}
	}
	return n.links[name]
}

type addr string

func (addr) Network() string  { return "sim" }
func (a addr) String() string { return string(a) }

type listener struct {
	n      *network
	addr   addr
	conns  chan net.Conn
	once   sync.Once
	closed chan struct{}
}

func (l *listener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *listener) Close() error {
	l.once.Do(func() {
		l.n.mu.Lock()
		delete(l.n.listeners, string(l.addr))
		l.n.mu.Unlock()
		close(l.closed)
	})
	return nil
}

func (l *listener) Addr() net.Addr { return l.addr }

// window bounds the bytes that are under way in a pipe: what TCP's buffers hold.
const window = 4 << 20

// pipe carries bytes that arrive later.
type pipe struct {
	delay    time.Duration
	rate     float64
	up, down *link
	fuse     *fuse // nil: it does not break

	mu      sync.Mutex // guards what follows
	chunks  []chunk
	held    int
	closed  bool
	changed chan struct{} // closed and replaced when something has changed
}

type chunk struct {
	at time.Time
	b  []byte
}

func (p *pipe) signal() {
	close(p.changed)
	p.changed = make(chan struct{})
}

func (p *pipe) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.closed {
		p.closed = true
		p.signal()
	}
}

// write waits for room.
func (p *pipe) write(b []byte, deadline <-chan time.Time) (n int, err error) {
	for len(b) > 0 {
		k := min(len(b), 64<<10)
		p.mu.Lock()
		switch {
		case p.closed:
			p.mu.Unlock()
			return n, io.ErrClosedPipe
		case p.held+k > window:
			changed := p.changed
			p.mu.Unlock()
			select {
			case <-changed:
			case <-deadline:
				return n, os.ErrDeadlineExceeded
			}
			continue
		}
		at := time.Now()
		if p.up != nil {
			at = p.up.pass(at, k, p.rate)
			at = p.down.pass(at.Add(-serialize(k, p.rate)), k, p.rate).Add(p.delay) // cut through
		}
		p.chunks = append(p.chunks, chunk{at, append([]byte(nil), b[:k]...)})
		p.held += k
		p.signal()
		p.mu.Unlock()
		if p.fuse.burn(k) {
			return n, io.ErrClosedPipe
		}
		b, n = b[k:], n+k
	}
	return n, nil
}

// read waits for what has arrived.
func (p *pipe) read(b []byte, deadline <-chan time.Time) (int, error) {
	for {
		p.mu.Lock()
		changed := p.changed
		var wait <-chan time.Time
		if len(p.chunks) > 0 {
			c := &p.chunks[0]
			d := time.Until(c.at)
			if d <= 0 {
				n := copy(b, c.b)
				if c.b = c.b[n:]; len(c.b) == 0 {
					p.chunks = p.chunks[1:]
				}
				p.held -= n
				p.signal()
				p.mu.Unlock()
				return n, nil
			}
			wait = time.After(d)
		} else if p.closed {
			p.mu.Unlock()
			return 0, io.EOF
		}
		p.mu.Unlock()
		select {
		case <-wait:
		case <-changed:
		case <-deadline:
			return 0, os.ErrDeadlineExceeded
		}
	}
}

// conn is one end of a connection.
type conn struct {
	in, out       *pipe
	local, remote addr

	mu          sync.Mutex // guards what follows
	readBefore  time.Time
	writeBefore time.Time
}

func (c *conn) Read(b []byte) (int, error)  { return c.in.read(b, c.until(&c.readBefore)) }
func (c *conn) Write(b []byte) (int, error) { return c.out.write(b, c.until(&c.writeBefore)) }

func (c *conn) Close() error {
	c.in.close()
	c.out.close()
	return nil
}

func (c *conn) LocalAddr() net.Addr  { return c.local }
func (c *conn) RemoteAddr() net.Addr { return c.remote }

// until is the channel of a deadline, as it is when the call begins.
func (c *conn) until(t *time.Time) <-chan time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	if t.IsZero() {
		return nil
	}
	return time.After(time.Until(*t))
}

// SetDeadline counts for calls that begin after it.
func (c *conn) SetDeadline(t time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.readBefore, c.writeBefore = t, t
	return nil
}

// SetReadDeadline: see SetDeadline.
func (c *conn) SetReadDeadline(t time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.readBefore = t
	return nil
}

// SetWriteDeadline: see SetDeadline.
func (c *conn) SetWriteDeadline(t time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.writeBefore = t
	return nil
}
