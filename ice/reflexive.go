package ice

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"
)

// A query is sent at 0, 100, 300, 700, 1500 and 3100 ms and given up at 6300.
// RFC 8489 §6.2.1 doubles in the same way from 500 ms; ours are few, and a path
// waits for them.
const (
	queryFirst = 100 * time.Millisecond
	queryTries = 6
)

var errSilent = errors.New("no answer")

// query is one transaction with a STUN server.
type query struct {
	server netip.AddrPort
	answer chan netip.AddrPort // size 1: the first answer; invalid for an error response
}

// response implements responder. What comes from elsewhere than the server is
// ignored (RFC 8489 §6.3.1).
func (q *query) response(_ []byte, m *stunMessage, from netip.AddrPort) {
	if from != q.server {
		return
	}
	mapped := netip.AddrPort{}
	if m.kind == kindSuccess {
		mapped = m.mapped
	}
	select {
	case q.answer <- mapped:
	default:
	}
}

// Reflexive asks a STUN server for the address that it sees datagrams of the
// shared socket come from. It returns after 6.3 s at the latest, with ctx's
// error, ErrClosed, or one that names the server.
func (x *ICE) Reflexive(ctx context.Context, server netip.AddrPort) (netip.AddrPort, error) {
	server = unmap(server)
	q := &query{server: server, answer: make(chan netip.AddrPort, 1)}
	tx := newTxID()
	x.expect(tx, q)
	defer x.unexpect(tx)

	pkt := newQuery(tx)
	wait := queryFirst
	timer := time.NewTimer(wait)
	defer timer.Stop()
	for range queryTries {
		// An error may pass, as where an interface has just come up.
		sendErr := x.cfg.Send(pkt, server)
		if sendErr != nil {
			x.n.sendErrors.Add(1)
		}
		timer.Reset(wait)
		select {
		case mapped := <-q.answer:
			if !mapped.IsValid() {
				return mapped, fmt.Errorf("ice: STUN server %v refused the request; check that it is a hub of this network", server)
			}
			return mapped, nil
		case <-x.life.Done():
			return netip.AddrPort{}, ErrClosed
		case <-ctx.Done():
			err := context.Cause(ctx)
			if sendErr != nil {
				err = sendErr
			}
			return netip.AddrPort{}, fmt.Errorf("ice: ask STUN server %v: %w", server, err)
		case <-timer.C:
			wait *= 2
		}
	}
	return netip.AddrPort{}, fmt.Errorf("ice: ask STUN server %v: %w; is UDP to it allowed?", server, errSilent)
}
