package hub

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/meshmpi/meshmpi/mesh/cert"
	"github.com/meshmpi/meshmpi/mesh/peer"
	"golang.org/x/time/rate"
)

const (
	redialFirst = 200 * time.Millisecond // doubles
	// RedialMax is the longest pause, on average, between attempts to reach a hub. It
	// is shorter in a network of fewer nodes, which together do not try more often.
	RedialMax   = 5 * time.Second
	redialEach  = time.Millisecond
	redialSmall = time.Second
	leaveTime   = time.Second
	renewCheck  = time.Minute

	// recheckTime is what a hub has for an answer when this host's network has
	// changed: then the connection may lead nowhere.
	recheckTime = 3 * time.Second

	maxPosted = 128 // signals that wait for the connection: those of a node that starts among many
)

// link is the client's side of the session with one hub.
type link struct {
	c    *Client
	addr string
	pace *rate.Limiter // of what is heard, over all sessions
	look chan struct{} // of size 1: the host's network has changed

	mu      sync.Mutex // guards what follows
	state   SessionInfo
	out     chan message // the session's signals; nil while down
	pinged  time.Time    // when the last ping went out
	doubted time.Time    // when the connection last was
	nodes   int          // that the hub has told of
}

func newLink(c *Client, addr string) *link {
	l := &link{c: c, addr: addr, pace: rate.NewLimiter(hearPerSec, hearBurst), look: make(chan struct{}, 1)}
	l.state = SessionInfo{Addr: addr, Since: c.cfg.Now(), Err: errors.New("not connected yet")}
	return l
}

func (l *link) info() SessionInfo {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.state
}

// up notes that the session with the named hub takes messages from out.
func (l *link) up(name string, out chan message) {
	l.mu.Lock()
	l.out = out
	l.state = SessionInfo{Addr: l.addr, Name: name, Up: true, Since: l.c.cfg.Now()}
	l.mu.Unlock()
	l.c.cfg.Events.Session(l.addr, true, nil)
}

// complain notes what is wrong with a session that is up, or nil. It passes on
// only news.
func (l *link) complain(err error) {
	l.mu.Lock()
	was := l.state.Err
	l.state.Err = err
	l.mu.Unlock()
	if (was == nil) != (err == nil) || was != nil && was.Error() != err.Error() {
		l.c.cfg.Events.Session(l.addr, true, err)
	}
}

// down notes that there is no session, because of err. It passes on only news.
func (l *link) down(err error) {
	l.mu.Lock()
	was := l.state
	if was.Up {
		l.state.Since = l.c.cfg.Now()
	}
	l.out, l.state.Up, l.state.RTT, l.state.Err = nil, false, 0, err
	l.mu.Unlock()
	if was.Up || was.Err == nil || err == nil || was.Err.Error() != err.Error() {
		l.c.cfg.Events.Session(l.addr, false, err)
	}
}

// post queues a message, if the session is up and has room.
func (l *link) post(m message) error {
	l.mu.Lock()
	out := l.out
	l.mu.Unlock()
	if out == nil {
		return ErrNoHub
	}
	select {
	case out <- m:
		return nil
	default:
		l.c.dropped.Add(1)
		return fmt.Errorf("hub: %s takes signals too slowly", l.addr)
	}
}

// run dials again and again until ctx ends.
func (l *link) run(ctx context.Context) {
	pause := redialFirst
	for ctx.Err() == nil {
		began := time.Now()
		err := l.session(ctx)
		if ctx.Err() != nil {
			err = ctx.Err()
		}
		l.down(err)
		switch {
		case errors.Is(err, errReached):
			pause = RedialMax
		case time.Since(began) > RedialMax:
			pause = redialFirst // it had worked
		}
		select {
		case <-time.After(pause/2 + rand.N(pause)):
			pause = min(2*pause, l.patience())
		case <-l.look:
			pause = redialFirst
		case <-ctx.Done():
		}
	}
}

// patience is the longest pause between attempts.
func (l *link) patience() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return min(max(time.Duration(l.nodes)*redialEach, redialSmall), RedialMax)
}

// session dials and serves one session, and says why it ended. A certificate
// that does not hold is found here: the hub could not say more than no.
func (l *link) session(ctx context.Context) error {
	cfg := &l.c.cfg
	if _, err := cert.Verify(cfg.Chain(), cfg.Network.Root, cfg.Now()); err != nil {
		return err
	}
	conn, name, err := l.connect(ctx)
	if err != nil {
		return err
	}
	defer conn.NetConn().Close()
	return l.serve(ctx, conn, name)
}

// connect dials and shakes hands, unless this host's network changes meanwhile: what
// was begun before may lead nowhere, so run begins anew.
func (l *link) connect(ctx context.Context) (*tls.Conn, string, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	changed := fmt.Errorf("hub: this host's network changed while it reached out for %s; it tries anew", l.addr)
	var watcher sync.WaitGroup
	defer watcher.Wait()
	defer cancel(nil)
	watcher.Go(func() { // ends with ctx
		select {
		case <-l.look:
			cancel(changed)
			l.recheck()
		case <-ctx.Done():
		}
	})
	conn, name, err := l.dial(ctx)
	if err != nil && context.Cause(ctx) == changed {
		err = changed // rather than what became of the attempt by it
	}
	return conn, name, err
}

func (l *link) dial(ctx context.Context) (*tls.Conn, string, error) {
	cfg := &l.c.cfg
	raw, err := cfg.Dial(ctx, "tcp", l.addr)
	if err != nil {
		return nil, "", cannotReach(l.addr, err)
	}
	conn := tls.Client(raw, cert.RenewingTLSConfig(cfg.Keys, cfg.Chain, cfg.Network.Root, cfg.Now, alpnControl))
	name, err := l.greet(ctx, conn)
	if err != nil {
		raw.Close()
		return nil, "", err
	}
	return conn, name, nil
}

// errReached says that a hub known by two addresses needs no second session: each would
// end the other.
var errReached = errors.New("reached")

// recheck has the session, or the attempt at one, see to it that it leads somewhere.
func (l *link) recheck() {
	select {
	case l.look <- struct{}{}:
	default: // it is going to
	}
}

// greet shakes hands and returns the hub's name.
func (l *link) greet(ctx context.Context, conn *tls.Conn) (string, error) {
	cfg := &l.c.cfg
	ctx, cancel := context.WithTimeout(ctx, exchangeTime)
	defer cancel()
	if err := conn.HandshakeContext(ctx); err != nil {
		return "", noHub(l.addr, err)
	}
	hub, _, err := cert.NodeOf(conn.ConnectionState(), cfg.Network.Root, cfg.Now())
	if err != nil {
		return "", err
	}
	if !hub.Roles.Has(peer.RoleHub) {
		return "", fmt.Errorf("hub: %s is %s, which is no hub; check the hub's address", l.addr, hub.Name)
	}
	if by := l.c.reached(hub.Name, l); by != "" {
		return "", fmt.Errorf("hub: %s is %s, %w by %s: one session is enough", l.addr, hub.Name, errReached, by)
	}
	return hub.Name, nil
}

// serve reads until the session ends; another goroutine writes, and ends the
// session when ctx ends; a third looks to the network for both, since the writer may
// be waiting for the hub.
func (l *link) serve(ctx context.Context, conn *tls.Conn, name string) error {
	sctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	out, changed := make(chan message, maxPosted), make(chan struct{}, 1)
	var others sync.WaitGroup
	var lost error
	others.Go(func() { // ends with sctx, or with ctx after the goodbye
		lost = l.write(ctx, sctx, conn, out, changed)
	})
	others.Go(func() { // ends with sctx
		for {
			select {
			case <-l.look:
				l.doubt(conn)
				select {
				case changed <- struct{}{}:
				default: // the writer is yet to ask
				}
			case <-sctx.Done():
				return
			}
		}
	})
	e := ear{l: l, conn: conn, hub: name, out: out, told: map[peer.ID]struct{}{}}
	err := e.listen(sctx)
	cancel()
	conn.NetConn().Close() // under a writer that waits for the hub
	others.Wait()
	if lost != nil {
		return lost
	}
	return err
}

// write owns the writing half of conn: it announces the node, sends what is
// posted, pings, asks for renewals, and says goodbye when ctx ends. It closes
// conn when it has said goodbye or cannot write, which ends the reader; that may
// first hear why. It returns an error when it closes conn because of what the reader
// cannot know.
func (l *link) write(ctx, session context.Context, conn *tls.Conn, out <-chan message, changed <-chan struct{}) error {
	defer conn.NetConn().Close()
	cfg := &l.c.cfg
	stop := context.AfterFunc(ctx, func() { conn.SetWriteDeadline(time.Now().Add(leaveTime)) })
	defer stop()
	ping, renew := time.NewTicker(pingEvery), time.NewTimer(renewCheck/2+rand.N(renewCheck))
	defer ping.Stop()
	defer renew.Stop()
	set := l.clockWatch()
	err := send(ctx, conn, message{Type: typeAnnounce, Advertise: cfg.Advertise, Cores: cfg.Cores})
	if err == nil {
		err = l.ping(ctx, conn)
	}
	for err == nil {
		select {
		case <-session.Done():
			return nil
		case <-ctx.Done():
			_ = send(ctx, conn, message{Type: typeLeave}) // the hub notices anyway when it fails
			err = ctx.Err()
		case m := <-out:
			err = send(ctx, conn, m)
		case <-ping.C:
			if err := set(); err != nil {
				return err
			}
			err = l.ping(ctx, conn)
		case <-changed:
			if err := set(); err != nil {
				return err
			}
			if a := conn.LocalAddr(); l.c.cfg.Gone(a) {
				return fmt.Errorf("hub: %s knows this host at %v, an address that it no longer has", l.addr, a)
			}
			err = l.ping(ctx, conn)
		case <-renew.C:
			if n, ierr := cert.Inspect(cfg.Chain(), cfg.Network.Root); ierr == nil && !cfg.Now().Before(halfLife(n)) {
				err = send(ctx, conn, message{Type: typeRenew})
			}
			renew.Reset(renewCheck/2 + rand.N(renewCheck))
		}
	}
	if ctx.Err() != nil {
		return nil
	}
	select {
	case <-session.Done():
		return nil
	case <-time.After(leaveTime):
		return fmt.Errorf("hub: %s takes nothing that it is told (%w); check that meshd runs well there, and the network on the way", l.addr, bare(err))
	}
}

// await sets how long the reader, which last heard something at that time, waits.
func (l *link) await(conn *tls.Conn, heard time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	wait := silentFor
	if l.doubted.After(heard) { // while the reader was busy with what it had heard
		wait = recheckTime
	}
	conn.SetReadDeadline(time.Now().Add(wait))
}

// doubt gives the hub recheckTime for the pong or anything.
func (l *link) doubt(conn *tls.Conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.doubted = time.Now()
	conn.SetReadDeadline(l.doubted.Add(recheckTime))
}

// clockWatch returns a function that says whether this host's clock has been set by more
// than hubs and nodes may differ: what the hub told until then was judged by another.
func (l *link) clockWatch() func() error {
	wall, began := l.c.cfg.Now().Round(0), time.Now() // Round takes the monotonic time off
	return func() error {
		by := l.c.cfg.Now().Round(0).Sub(wall) - time.Since(began)
		if by.Abs() <= maxSkew {
			return nil
		}
		return fmt.Errorf("hub: this host's clock was set by %v; %s is asked anew for what it told before", by.Round(time.Second), l.addr)
	}
}

func (l *link) ping(ctx context.Context, conn *tls.Conn) error {
	now := time.Now()
	l.mu.Lock()
	l.pinged = now
	l.mu.Unlock()
	return send(ctx, conn, message{Type: typePing, Time: now})
}

// pong takes the answer to a ping of that time.
func (l *link) pong(sent time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if sent.Equal(l.pinged) {
		l.state.RTT = time.Since(l.pinged)
	}
}

// send writes a message within a time that is short once ctx has ended, whether
// that was before or comes while it writes.
func send(ctx context.Context, conn *tls.Conn, m message) error {
	conn.SetWriteDeadline(time.Now().Add(writeTime))
	if ctx.Err() != nil {
		conn.SetWriteDeadline(time.Now().Add(leaveTime))
	}
	return writeMessage(conn, m)
}
