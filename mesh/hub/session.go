package hub

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/meshmpi/meshmpi/mesh/cert"
	"github.com/meshmpi/meshmpi/mesh/peer"
	"golang.org/x/time/rate"
)

const (
	pingEvery   = 10 * time.Second
	silentFor   = 25 * time.Second // then a session counts as dead
	writeTime   = 10 * time.Second // for one frame; a reader slower than that is cut off
	maxOutgoing = 256              // messages that wait for one node; more are dropped and counted
	reserved    = 16               // places of those that only the hub's own messages may take
	coalesce    = 50 * time.Millisecond

	// How fast a node may talk, in messages: beyond it TCP holds the node back.
	talkPerSec = rate.Limit(500)
	talkBurst  = 1000
)

// session is the hub's end of one node's control session.
type session struct {
	id    peer.ID
	node  peer.Node
	board *board
	conn  *tls.Conn
	wake  chan struct{} // size 1: there is something to send
	told  int           // revocations sent; the writer's own

	mu     sync.Mutex           // guards what follows
	out    []message            // bounded by maxOutgoing
	dirty  map[peer.ID]struct{} // records to send
	full   bool                 // the next records replace all
	limits bool                 // the limits are to be sent
}

func newSession(b *board, n peer.Node, conn *tls.Conn) *session {
	return &session{id: n.ID, node: n, board: b, conn: conn, wake: make(chan struct{}, 1), dirty: map[peer.ID]struct{}{}}
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

// post queues a message, or drops and counts it when the queue is full. What
// nodes send each other cannot crowd out what the hub has to say.
func (s *session) post(m message) {
	room := maxOutgoing
	if m.Type != typeGrant && m.Type != typeChain {
		room -= reserved
	}
	s.mu.Lock()
	full := len(s.out) >= room
	if !full {
		s.out = append(s.out, m)
	}
	s.mu.Unlock()
	if full {
		s.board.dropped.Add(1)
		return
	}
	s.poke()
}

// end closes the connection under both goroutines.
func (s *session) end() { s.conn.NetConn().Close() }

// replaced ends a session for a newer one of the same node. It most often leads nowhere
// any more; but two machines with one node's keys take each other's place again and
// again, and nothing else could tell their administrator.
func (s *session) replaced(by net.Addr) {
	late := time.AfterFunc(leaveTime, s.end) // it may be waiting for the node
	defer late.Stop()
	from, _ := netip.ParseAddrPort(by.String()) // its port differs from time to time
	_ = writeMessage(s.conn, message{Type: typeError, Code: codeReplaced, Text: fmt.Sprintf(
		"a newer session of this node, from %v, takes over; if that is another machine, the two have copies of one state directory: remove it on one of them and join that one with a new token", from.Addr())})
	s.end()
}

// urgent reports whether something waits that is not worth waiting for more.
func (s *session) urgent() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.out) > 0 || s.full
}

// take returns everything that is to be sent now: revocations first, then
// records, so that signals come after what is known of who sent them.
func (s *session) take() (msgs []message) {
	s.mu.Lock()
	out, dirty, full, limits := s.out, s.dirty, s.full, s.limits
	s.out, s.dirty, s.full, s.limits = nil, map[peer.ID]struct{}{}, false, false
	s.mu.Unlock()
	for _, r := range s.board.revocations(s.told) {
		msgs = append(msgs, message{Type: typeRevoked, Revoked: &r})
		s.told++
	}
	var recs []record
	for id := range dirty {
		if r, ok := s.board.record(id); ok {
			recs = append(recs, r)
		}
	}
	for len(recs) > 0 || full {
		n := min(len(recs), recordsPerFrame)
		msgs = append(msgs, message{Type: typeRecords, Full: full, More: n < len(recs), Records: recs[:n]})
		recs, full = recs[n:], false
	}
	if limits {
		if m, err := s.board.limitsMessage(); err == nil { // plain data: it cannot fail
			msgs = append(msgs, m)
		}
	}
	return append(msgs, out...)
}

// write sends until the connection fails or ctx ends. Records that change wait
// for others to go with them; the hub of a network that starts would otherwise
// send as many frames as there are pairs. Its pings tell the time.
func (s *session) write(ctx context.Context, now func() time.Time) {
	ping := time.NewTicker(pingEvery)
	defer ping.Stop()
	var later <-chan time.Time
	for {
		var msgs []message
		select {
		case <-s.wake:
			if !s.urgent() {
				if later == nil {
					later = time.After(coalesce)
				}
				continue
			}
			later, msgs = nil, s.take()
		case <-later:
			later, msgs = nil, s.take()
		case <-ping.C:
			msgs = []message{{Type: typePing, Time: now()}}
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
	conn.SetDeadline(time.Now().Add(exchangeTime))
	// Heard before anything is said: closing with something unread would have TCP
	// throw away the reason for a refusal.
	first, err := readMessage(conn, maxNodeFrame)
	if err != nil {
		return err
	}
	n, chain, err := cert.NodeOf(conn.ConnectionState(), h.cfg.Network.Root, h.cfg.Now())
	if err == nil {
		err = first.checkAnnounce()
	}
	if err != nil {
		farewell(conn, errorMessage(err))
		return err
	}
	if err := h.ledger.good(n.ID); err != nil {
		return h.turnAway(conn, n.ID)
	}
	s := newSession(h.board, n, conn)
	s.post(message{Type: typeHello, Name: h.cfg.Self.Name, Time: h.cfg.Now(), Hubs: h.cfg.Advertise})
	old, ok := h.board.attach(h.cfg.Now(), s, chain, first.Advertise, first.Cores)
	if !ok {
		return h.turnAway(conn, n.ID)
	}
	defer h.board.detach(s)
	if old != nil {
		h.log.Info("a newer session takes over", "peer", n.Name, "from", conn.RemoteAddr(), "before", old.conn.RemoteAddr())
		old.replaced(conn.RemoteAddr())
	}
	h.grant(s)
	if r, _ := h.board.record(n.ID); supersedes(r.Chain, chain, h.cfg.Now()) {
		s.post(message{Type: typeChain, Chain: r.Chain}) // a renewal that it did not get
	}
	authenticated()
	conn.SetDeadline(time.Time{})
	h.log.Info("connected", "peer", n.Name, "from", conn.RemoteAddr())
	wctx, cancel := context.WithCancel(ctx)
	var writer sync.WaitGroup
	writer.Add(1)
	go func() { // ends with wctx, or when the connection fails
		defer writer.Done()
		s.write(wctx, h.cfg.Now)
	}()
	err = h.listen(wctx, s)
	cancel()
	s.end()
	writer.Wait()
	h.log.Info("disconnected", "peer", n.Name, "err", err)
	return nil
}

// turnAway tells a node why it may not take part, with the proof if it was
// revoked.
func (h *Hub) turnAway(conn *tls.Conn, id peer.ID) error {
	err := h.ledger.good(id)
	if err == nil { // admitted again this very moment
		err = fmt.Errorf("%w: try again", ErrRefused)
	}
	m := errorMessage(err)
	for _, r := range h.board.revocations(0) {
		if r.ID == id {
			m.Revoked = &r
		}
	}
	h.log.Debug("turned away", "peer", id, "err", err) // it will ask again and again
	farewell(conn, m)
	return nil
}

// farewell says why the connection ends and hears the other end out until it
// leaves, for a moment: TCP throws away what was said on a connection that is
// closed with something unread. Who misses it asks again.
func farewell(conn *tls.Conn, m message) {
	conn.SetDeadline(time.Now().Add(leaveTime))
	if writeMessage(conn, m) == nil && conn.CloseWrite() == nil {
		_, _ = io.Copy(io.Discard, io.LimitReader(conn, maxNodeFrame))
	}
}

// grant gives a node leave to use the relay beside this hub. The node may be
// revoked or removed meanwhile; that comes to the board first and to the relay
// then, so one of the two ends the grant.
func (h *Hub) grant(s *session) {
	if h.cfg.Relay == nil {
		return
	}
	g, err := h.cfg.Relay.Admit(s.id, s.node.NotAfter)
	if err != nil {
		h.log.Warn("relay", "peer", s.node.Name, "err", err)
		return
	}
	if !h.board.good(s.id) {
		h.cfg.Relay.Revoke(s.id)
		return
	}
	s.post(message{Type: typeGrant, Grant: g})
}

// listen takes a node's messages until it leaves, is lost, or its certificate
// expires.
func (h *Hub) listen(ctx context.Context, s *session) error {
	pace := rate.NewLimiter(talkPerSec, talkBurst)
	for {
		s.conn.SetReadDeadline(time.Now().Add(silentFor))
		m, err := readMessage(s.conn, maxNodeFrame)
		if err != nil {
			return err
		}
		if err := pace.Wait(ctx); err != nil {
			return err
		}
		if h.cfg.Now().After(s.node.NotAfter) {
			return fmt.Errorf("hub: node %s's certificate has expired", s.node.Name)
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
	s.post(message{Type: typeError, Peer: m.Peer, Code: codeAbsent, Text: "the peer is not connected to this hub"})
}

// renew gives a node a new certificate, or again the one it has, if that has not
// lived half of its life.
func (h *Hub) renew(s *session) {
	h.deciding.Lock()
	defer h.deciding.Unlock()
	chain, fresh, err := h.ledger.renew(s.id, h.cfg.Now())
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
	if fresh {
		h.board.enter(n, chain)
		h.grant(s)
	}
	s.post(message{Type: typeChain, Chain: chain})
}
