package hub

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/meshmpi/meshmpi/mesh/cert"
	"github.com/meshmpi/meshmpi/mesh/peer"
)

const (
	redialFirst = 200 * time.Millisecond // doubles
	redialMax   = 5 * time.Second
	leaveTime   = time.Second
	renewCheck  = time.Minute
)

// link is the client's side of the session with one hub.
type link struct {
	c    *Client
	addr string

	mu    sync.Mutex // guards what follows
	state SessionInfo
	conn  *tls.Conn // nil while down

	writing chan struct{} // size 1: holds the right to write to conn
}

func newLink(c *Client, addr string) *link {
	l := &link{c: c, addr: addr, writing: make(chan struct{}, 1)}
	l.state = SessionInfo{Addr: addr, Since: c.cfg.Now(), Err: errors.New("not connected yet")}
	return l
}

func (l *link) info() SessionInfo {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.state
}

// set notes that the session is up with conn, or down with nil because of err.
func (l *link) set(conn *tls.Conn, err error) {
	l.mu.Lock()
	changed := (conn != nil) != l.state.Up || l.state.Err == nil != (err == nil)
	l.conn = conn
	if (conn != nil) != l.state.Up {
		l.state.Since = l.c.cfg.Now()
	}
	l.state.Up, l.state.Err = conn != nil, err
	l.mu.Unlock()
	if changed {
		l.c.cfg.Events.Session(l.addr, conn != nil, err)
	}
}

// post writes a message, if the session is up.
func (l *link) post(ctx context.Context, m message) error {
	l.mu.Lock()
	conn := l.conn
	l.mu.Unlock()
	if conn == nil {
		return ErrNoHub
	}
	select {
	case l.writing <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { <-l.writing }()
	deadline := time.Now().Add(writeTime)
	if d, ok := ctx.Deadline(); ok && d.Before(deadline) {
		deadline = d
	}
	conn.SetWriteDeadline(deadline)
	err := writeMessage(conn, m)
	if err != nil { // TLS cannot go on after a write that failed
		conn.NetConn().Close()
	}
	return err
}

// run dials again and again until ctx ends.
func (l *link) run(ctx context.Context) {
	pause := redialFirst
	for ctx.Err() == nil {
		began := time.Now()
		err := l.session(ctx)
		l.set(nil, err)
		if ctx.Err() != nil {
			return
		}
		if time.Since(began) > redialMax {
			pause = redialFirst // it had worked
		}
		select {
		case <-time.After(pause/2 + rand.N(pause)):
		case <-ctx.Done():
		}
		pause = min(2*pause, redialMax)
	}
}

// session dials and serves one session, and says why it ended.
func (l *link) session(ctx context.Context) error {
	cfg := &l.c.cfg
	raw, err := cfg.Dial(ctx, "tcp", l.addr)
	if err != nil {
		return cannotReach(l.addr, err)
	}
	defer raw.Close()
	conn := tls.Client(raw, cert.RenewingTLSConfig(cfg.Keys, cfg.Chain, cfg.Network.Root, cfg.Now, alpnControl))
	hctx, cancel := context.WithTimeout(ctx, exchangeTime)
	defer cancel()
	if err := conn.HandshakeContext(hctx); err != nil {
		return fmt.Errorf("hub: %s: %w", l.addr, err)
	}
	hub, _, err := cert.NodeOf(conn.ConnectionState(), cfg.Network.Root, cfg.Now())
	if err != nil {
		return err
	}
	if !hub.Roles.Has(peer.RoleHub) {
		return fmt.Errorf("hub: %s is %s, which is no hub", l.addr, hub.Name)
	}
	raw.SetWriteDeadline(time.Now().Add(writeTime))
	if err := writeMessage(conn, message{Type: typeAnnounce, Advertise: cfg.Advertise, Cores: cfg.Cores}); err != nil {
		return err
	}
	return l.serve(ctx, conn, hub.Name)
}

// serve reads until the session ends; another goroutine pings, renews, and says
// goodbye when ctx ends.
func (l *link) serve(ctx context.Context, conn *tls.Conn, name string) error {
	sctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	var tending sync.WaitGroup
	tending.Add(1)
	go func() { // ends with sctx, or with ctx after the goodbye
		defer tending.Done()
		l.tend(ctx, sctx)
	}()
	err := l.listen(conn, name)
	cancel()
	tending.Wait()
	return err
}

// tend keeps the session alive, and ends it when ctx ends.
func (l *link) tend(ctx, session context.Context) {
	ping, renew := time.NewTicker(pingEvery), time.NewTimer(renewCheck/2+rand.N(renewCheck))
	defer ping.Stop()
	defer renew.Stop()
	for {
		select {
		case <-session.Done():
			return
		case <-ctx.Done():
			lctx, cancel := context.WithTimeout(context.Background(), leaveTime)
			_ = l.post(lctx, message{Type: typeLeave}) // the hub notices anyway when it fails
			cancel()
			l.mu.Lock()
			if l.conn != nil {
				l.conn.NetConn().Close()
			}
			l.mu.Unlock()
			<-session.Done()
			return
		case <-ping.C:
			_ = l.post(session, message{Type: typePing, Time: time.Now()}) // a failure ends the reader
		case <-renew.C:
			if l.due() {
				_ = l.post(session, message{Type: typeRenew})
			}
			renew.Reset(renewCheck/2 + rand.N(renewCheck))
		}
	}
}

// due reports whether the certificate has lived half of its life.
func (l *link) due() bool {
	cfg := &l.c.cfg
	n, err := cert.Inspect(cfg.Chain(), cfg.Network.Root)
	return err == nil && cfg.Now().After(n.NotBefore.Add(n.NotAfter.Sub(n.NotBefore)/2))
}

// listen takes the hub's messages. The session counts as up with the first.
func (l *link) listen(conn *tls.Conn, name string) error {
	up := false
	for {
		conn.SetReadDeadline(time.Now().Add(silentFor))
		m, err := readMessage(conn, maxControlFrame)
		var timeout net.Error
		switch {
		case errors.As(err, &timeout) && timeout.Timeout():
			return fmt.Errorf("hub: %s has been silent for %v", l.addr, silentFor)
		case err != nil:
			return fmt.Errorf("hub: %s ended the session: %w", l.addr, err)
		case m.Type == typeError && !up:
			return fmt.Errorf("hub: %s: %w", l.addr, m.err())
		}
		if !up {
			up = true
			l.mu.Lock()
			l.state.Name = name
			l.mu.Unlock()
			l.set(conn, nil)
		}
		l.take(conn, m)
	}
}

// take acts on one message.
func (l *link) take(conn *tls.Conn, m message) {
	ev, cfg := &l.c.cfg.Events, &l.c.cfg
	switch m.Type {
	case typeRecords:
		ev.Records(l.addr, m.Full, l.believe(m.Records))
	case typeSignal:
		if m.Peer != nil && len(m.Data) <= peer.MaxSignal {
			ev.Signal(*m.Peer, m.Data)
		}
	case typeGrant:
		if ap, err := netip.ParseAddrPort(conn.RemoteAddr().String()); err == nil {
			ev.Grant(l.addr, ap, m.Grant)
		}
	case typeChain:
		if n, err := cert.Verify(m.Chain, cfg.Network.Root, cfg.Now()); err == nil && n.ID == cfg.Self.ID {
			ev.Chain(m.Chain)
		} else {
			l.c.bad.Add(1)
		}
	case typeRevoked:
		if m.Revoked != nil && m.Revoked.Verify(cfg.Network.Root, cfg.Now()) == nil {
			ev.Revoked(*m.Revoked)
		} else {
			l.c.bad.Add(1)
		}
	case typePong:
		l.mu.Lock()
		l.state.RTT = time.Since(m.Time)
		l.mu.Unlock()
	case typeError:
		l.c.log.Debug("hub says", "hub", l.addr, "text", m.err())
	}
}

// believe keeps the records that can be verified.
func (l *link) believe(in []record) []peer.Record {
	recs := make([]peer.Record, 0, len(in))
	for _, r := range in {
		rec, err := r.verified(l.c.cfg.Network.Root, l.c.cfg.Now())
		if err != nil {
			l.c.bad.Add(1)
			l.c.log.Debug("record", "hub", l.addr, "err", err)
			continue
		}
		recs = append(recs, rec)
	}
	return recs
}
