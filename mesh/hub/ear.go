package hub

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"

	"github.com/meshmpi/meshmpi/mesh/cert"
	"github.com/meshmpi/meshmpi/mesh/peer"
	"golang.org/x/time/rate"
)

// How fast a hub may talk, in messages and records: a record costs two signatures to
// verify, about 0.2 ms. Beyond it TCP holds the hub back.
const (
	hearPerSec = rate.Limit(1000)
	hearBurst  = maxRecords + 1000
)

// ear is the reader of one session. It believes nothing but certificates.
type ear struct {
	l    *link
	conn *tls.Conn
	hub  string
	out  chan message

	up    bool
	clock error                // what is wrong with it
	told  map[peer.ID]struct{} // of whom
	recs  []peer.Record        // of a set whose end is still to come
	heard int                  // records of that set, believed or not
	full  bool                 // that set replaces all
	early bool                 // some of it does not hold yet
}

// listen takes the hub's messages. The session counts as up with the first.
func (e *ear) listen(ctx context.Context) error {
	for heard := time.Now(); ; {
		e.l.await(e.conn, heard)
		m, err := readMessage(e.conn, maxControlFrame)
		if err != nil {
			return ended(e.l.addr, time.Since(heard), err)
		}
		heard = time.Now()
		if err := e.l.pace.WaitN(ctx, 1+len(m.Records)); err != nil {
			return err
		}
		if m.Type == typeError && !e.up {
			if m.Revoked != nil {
				e.revoked(*m.Revoked)
			}
			return fmt.Errorf("hub: %s: %w", e.l.addr, m.err())
		}
		if !e.up {
			e.up = true
			e.l.up(e.hub, e.out)
		}
		if err := e.take(m); err != nil {
			return err
		}
	}
}

// ended says in one line why a session that had begun, and has been silent for a
// while, is over.
func ended(addr string, silent time.Duration, err error) error {
	var timeout net.Error
	var op *net.OpError
	switch {
	case errors.As(err, &timeout) && timeout.Timeout():
		return fmt.Errorf("hub: %s has been silent for %v", addr, silent.Round(time.Second))
	case errors.As(err, &op) && op.Op == "remote error": // a TLS alert
		return fmt.Errorf("hub: %s refuses this node's certificate (%w); check the clock of this node and of the hub, or join again with a new token", addr, op.Err)
	}
	return fmt.Errorf("hub: %s ended the session: %w", addr, bare(err))
}

// take acts on one message.
func (e *ear) take(m message) error {
	ev, cfg := &e.l.c.cfg.Events, &e.l.c.cfg
	switch m.Type {
	case typeHello:
		e.clock = checkClock(e.l.addr, m.Time, cfg.Now())
		e.l.complain(e.clock)
	case typeRecords:
		return e.records(m)
	case typeSignal:
		if m.Peer != nil && len(m.Data) <= peer.MaxSignal {
			ev.Signal(*m.Peer, m.Data)
		}
	case typeGrant:
		if ap, err := netip.ParseAddrPort(e.conn.RemoteAddr().String()); err == nil {
			ev.Grant(e.l.addr, ap, m.Grant)
		}
	case typeChain:
		n, err := cert.Verify(m.Chain, cfg.Network.Root, cfg.Now())
		switch {
		case err != nil || !same(n, cfg.Self, cfg.Keys):
			e.l.c.bad.Add(1)
		case supersedes(m.Chain, cfg.Chain(), cfg.Now()):
			ev.Chain(m.Chain)
			e.l.complain(e.clock) // and no longer that there was none
		}
	case typeRevoked:
		if m.Revoked != nil {
			e.revoked(*m.Revoked)
		}
	case typeLimits:
		e.limits(m)
	case typePing:
		e.tick(m.Time)
	case typePong:
		e.l.pong(m.Time)
	case typeError:
		switch m.Code {
		case codeAbsent:
			e.l.c.log.Debug("signal not delivered", "hub", e.l.addr, "to", m.Peer)
		case codeReplaced:
			return fmt.Errorf("hub: %s: %s", e.l.addr, line(m.Text))
		default:
			e.l.complain(fmt.Errorf("hub: %s: %w", e.l.addr, m.err()))
		}
	}
	return nil
}

// tick compares clocks again: what was wrong at the hello is set right meanwhile, as by
// NTP after a hub without a battery has started, or the other way round.
func (e *ear) tick(hub time.Time) {
	now := checkClock(e.l.addr, hub, e.l.c.cfg.Now())
	if (now == nil) == (e.clock == nil) {
		return
	}
	e.clock = now
	e.l.complain(now)
}

// same reports whether a certificate is for these keys and addresses. Its holder
// could not serve with others.
func same(n, self peer.Node, k cert.Keys) bool {
	return n.ID == self.ID && n.SignKey.Equal(k.Public()) && n.Addr4 == self.Addr4 && n.Addr6 == self.Addr6
}

func (e *ear) revoked(r cert.Revocation) {
	cfg := &e.l.c.cfg
	if r.Verify(cfg.Network.Root, cfg.Now()) != nil {
		e.l.c.bad.Add(1)
		return
	}
	cfg.Events.Revoked(r)
}

// records gathers a set that comes in several frames and passes it on whole:
// half of a set that replaces all would take the other half away.
func (e *ear) records(m message) error {
	if m.Full {
		e.recs, e.heard, e.full, e.early = nil, 0, true, false
		clear(e.told)
	}
	for _, r := range m.Records {
		if e.told[r.ID] = struct{}{}; r.Removed {
			delete(e.told, r.ID)
		}
	}
	if e.heard += len(m.Records); e.heard > maxRecords || len(e.told) > maxRecords {
		return fmt.Errorf("hub: %s tells of more than %d nodes", e.l.addr, maxRecords)
	}
	recs, early := e.l.believe(m.Records)
	e.recs, e.early = append(e.recs, recs...), e.early || early
	if m.More {
		return nil
	}
	e.l.mu.Lock()
	e.l.nodes = len(e.told)
	e.l.mu.Unlock()
	full := e.full && !e.early // by a clock that is behind nobody is to be taken away
	recs = e.recs
	e.recs, e.heard, e.full, e.early = nil, 0, false, false
	e.l.c.cfg.Events.Records(e.l.addr, full, recs)
	return nil
}

// believe keeps the records that can be verified, and reports whether some do not hold yet.
func (l *link) believe(in []record) (recs []peer.Record, early bool) {
	for _, r := range in {
		rec, err := r.verified(l.c.cfg.Network.Root, l.c.cfg.Now())
		if err != nil {
			early = early || errors.Is(err, cert.ErrNotYetValid)
			l.c.bad.Add(1)
			l.c.log.Debug("record", "hub", l.addr, "err", err)
			continue
		}
		recs = append(recs, rec)
	}
	return recs, early
}
