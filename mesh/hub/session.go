package hub

import (
	"context"
	"crypto/tls"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/meshmpi/meshmpi/mesh/cert"
	"github.com/meshmpi/meshmpi/mesh/peer"
)

const (
	pingEvery   = 10 * time.Second
	silentFor   = 25 * time.Second // then a session counts as dead
	writeTime   = 10 * time.Second // for one frame; a reader slower than that is cut off
	maxOutgoing = 256              // messages that wait for one node; more are dropped and counted
)

// session is the hub's end of one node's control session.
type session struct {
	id    peer.ID
	node  peer.Node
	board *board
	conn  *tls.Conn
	wake  chan struct{} // size 1: there is something to send
	drops atomic.Uint64

	mu    sync.Mutex
	out   []message            // bounded by maxOutgoing
	dirty map[peer.ID]struct{} // records to send
	full  bool                 // the next records replace all
}

func (s *session) poke() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// changed notes that a record is to be sent.
func (s *session) changed(id peer.ID) {
	s.mu.Lock()
	s.dirty[id] = struct{}{}
	s.mu.Unlock()
	s.poke()
}

// gone has a record sent that the board no longer holds.
func (s *session) gone(r record) {
	s.mu.Lock()
	delete(s.dirty, r.ID)
	s.mu.Unlock()
	s.post(message{Type: typeRecords, Records: []record{{ID: r.ID, Removed: true}}})
}

// post queues a message. It reports false, and counts, when the queue is full.
func (s *session) post(m message) bool {
	s.mu.Lock()
	full := len(s.out) >= maxOutgoing
	if !full {
		s.out = append(s.out, m)
	}
	s.mu.Unlock()
	if full {
		s.drops.Add(1)
		return false
	}
	s.poke()
	return true
}

// end closes the connection under both goroutines.
func (s *session) end() { s.conn.NetConn().Close() }

// take returns everything that is to be sent now.
func (s *session) take() (msgs []message) {
	s.mu.Lock()
	out, dirty, full := s.out, s.dirty, s.full
	s.out, s.dirty, s.full = nil, map[peer.ID]struct{}{}, false
	s.mu.Unlock()
	var recs []record
	for id := range dirty {
		if r, ok := s.board.record(id); ok {
			recs = append(recs, r)
		}
	}
	for len(recs) > 0 || full {
		n := min(len(recs), recordsPerFrame)
		msgs = append(msgs, message{Type: typeRecords, Full: full, Records: recs[:n]})
		recs, full = recs[n:], false
	}
	return append(msgs, out...)
}

// write sends until the connection fails or ctx ends.
func (s *session) write(ctx context.Context) {
	ping := time.NewTicker(pingEvery)
	defer ping.Stop()
	for {
		var msgs []message
		select {
		case <-s.wake:
			msgs = s.take()
		case now := <-ping.C:
			msgs = []message{{Type: typePing, Time: now}}
		case <-ctx.Done():
			return
		}
		for _, m := range msgs {
			s.conn.SetWriteDeadline(time.Now().Add(writeTime))
			if err := writeMessage(s.conn, m); err != nil {
				s.end()
				return
			}
		}
	}
}

// control serves a node's control session. authenticated is called once it is
// known to be one.
func (h *Hub) control(ctx context.Context, conn *tls.Conn, authenticated func()) error {
	n, chain, err := cert.NodeOf(conn.ConnectionState(), h.cfg.Network.Root, h.cfg.Now())
	if err != nil {
		return err
	}
	conn.SetDeadline(time.Now().Add(exchangeTime))
	if err := h.ledger.good(n.ID); err != nil {
		return writeMessage(conn, errorMessage(err))
	}
	first, err := readMessage(conn, maxJoinFrame)
	if err != nil {
		return err
	}
	if first.Type != typeAnnounce || len(first.Advertise) > 255 || first.Cores < 0 {
		return fmt.Errorf("hub: %s announces nothing sensible", n.Name)
	}
	authenticated()
	conn.SetDeadline(time.Time{})
	s := &session{id: n.ID, node: n, board: h.board, conn: conn, wake: make(chan struct{}, 1), dirty: map[peer.ID]struct{}{}, full: true}
	for _, id := range h.board.all() {
		s.changed(id)
	}
	s.post(message{Type: typeHello, Name: h.cfg.Self.Name, Time: h.cfg.Now(), Hubs: h.cfg.Advertise})
	h.grant(s)
	if old := h.board.open(s, chain, first.Advertise, first.Cores); old != nil {
		old.end()
	}
	defer h.board.close(s)
	if err := h.tellRevocations(s); err != nil {
		return err
	}
	h.log.Info("connected", "peer", n.Name, "from", conn.RemoteAddr())
	wctx, cancel := context.WithCancel(ctx)
	var writer sync.WaitGroup
	writer.Add(1)
	go func() { // ends with wctx, or when the connection fails
		defer writer.Done()
		s.write(wctx)
	}()
	err = h.listen(s)
	cancel()
	s.end()
	writer.Wait()
	h.log.Info("disconnected", "peer", n.Name, "err", err)
	return nil
}

// grant gives a node leave to use the relay beside this hub.
func (h *Hub) grant(s *session) {
	if h.cfg.Relay == nil {
		return
	}
	g, err := h.cfg.Relay.Admit(s.id, s.node.NotAfter)
	if err != nil {
		h.log.Warn("relay", "peer", s.node.Name, "err", err)
		return
	}
	s.post(message{Type: typeGrant, Grant: g})
}

func (h *Hub) tellRevocations(s *session) error {
	list, err := h.ledger.revocations(h.cfg.Now())
	for _, r := range list {
		s.post(message{Type: typeRevoked, Revoked: &r})
	}
	return err
}

// listen takes a node's messages until it leaves or is lost.
func (h *Hub) listen(s *session) error {
	for {
		s.conn.SetReadDeadline(time.Now().Add(silentFor))
		m, err := readMessage(s.conn, maxJoinFrame)
		if err != nil {
			return err
		}
		switch m.Type {
		case typeSignal:
			h.forward(s, m)
		case typeRenew:
			h.renew(s)
		case typeLeave:
			return nil
		case typePing:
			s.post(message{Type: typePong, Time: m.Time})
		}
	}
}

// forward passes a sealed signal on.
func (h *Hub) forward(s *session, m message) {
	if m.Peer == nil || len(m.Data) > peer.MaxSignal {
		return
	}
	if to := h.board.session(*m.Peer); to != nil {
		to.post(message{Type: typeSignal, Peer: &s.id, Data: m.Data})
		return
	}
	s.post(message{Type: typeError, Peer: m.Peer, Code: "absent", Text: "the peer is not connected to this hub"})
}

// renew gives a node a new certificate.
func (h *Hub) renew(s *session) {
	chain, err := h.ledger.renew(s.id, h.cfg.Now())
	if err != nil {
		s.post(errorMessage(err))
		return
	}
	n, err := cert.Verify(chain, h.cfg.Network.Root, h.cfg.Now())
	if err != nil {
		s.post(errorMessage(err))
		return
	}
	s.node = n
	h.board.enter(n, chain)
	s.post(message{Type: typeChain, Chain: chain})
	h.grant(s)
}
