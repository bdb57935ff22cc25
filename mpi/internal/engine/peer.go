package engine

import "fmt"

// peer is what the engine knows of one process.
type peer struct {
	proc  Proc
	state peerState
	err   error // why it failed
	card  *card // nil: to be resolved

	conns   []*conn
	quick   []*conn  // those that messages take: none is much farther than another
	eager   int      // largest message to send without asking
	blocked requests // sends that wait for a link, in order
	streams requests // sends whose data the other side has asked for
	backlog int      // bytes of those that no link has
	posts   frames   // active messages that wait for a link
	lanes   []lane   // of conns, for pick
	cut     int      // frames that lost links were in the middle of
	own     account  // of messages to ourselves

	out, in []track // by context; with several links only
	offered bool    // we are offering it links
	saidBye bool    // we did
	leaving bool    // it did, and we have answered
}

type peerState uint8

const (
	unknown    peerState = iota
	connecting           // a goroutine of ours is at it
	up
	departed // it said goodbye
	failed
)

// account is the credit between two processes for the messages of one link. Each
// link has its own, so that a link that is held up keeps no other from sending.
type account struct {
	left    credit // what we may still send
	granted credit // what the peer may have outstanding here
	held    credit // what it has
	owed    credit // of what was taken, what has not been told yet
}

// credit is an amount of messages that wait for a receive.
type credit struct{ bytes, messages int }

// overhead is what a message takes of credit besides its bytes.
const overhead = 64

func (c *credit) add(bytes int) { c.bytes += bytes + overhead; c.messages++ }

// peerOf finds a process that may be sent to.
func (e *Engine) peerOf(p Proc) (*peer, error) {
	if p < 0 || int(p) >= len(e.peers) {
		return nil, ErrRankRange{p}
	}
	return e.peers[p], nil
}

// owed reports whether something waits for the peer to be connected.
func (p *peer) owed() bool {
	return p.state == connecting && (p.blocked.first != nil || p.posts.first != nil)
}

// gone says why a peer cannot be sent to; nil: it can.
func (p *peer) gone() error {
	if p.state == failed || p.state == departed {
		return ErrProcFailed{p.proc, p.err}
	}
	return nil
}

// takesOne reports whether the credit allows a message to be announced.
func (a *account) takesOne() bool { return a.left.messages > 0 && a.left.bytes >= overhead }

// takes reports whether the credit allows a message as a whole. It leaves what the
// announcement of as many others as may be sent needs.
func (c *conn) takes(n int) bool {
	return n <= c.peer.eager && c.left.messages > 0 && c.left.bytes >= n+c.left.messages*overhead
}

// hold counts a message that has come against what the peer was granted.
func (a *account) hold(n int) error {
	a.held.add(n)
	if a.held.bytes > a.granted.bytes || a.held.messages > a.granted.messages {
		return fmt.Errorf("%w: more messages than it has credit for", errViolation)
	}
	return nil
}

// consume counts a message that was taken which came by a link, nil if it was our
// own, and tells the peer now and then.
func (e *Engine) consume(c *conn, n int) {
	if c == nil {
		own := &e.peers[e.self].own
		own.held.bytes -= n + overhead
		own.held.messages--
		return
	}
	c.held.bytes -= n + overhead
	c.held.messages--
	if c.peer.state != up {
		return
	}
	c.owed.add(n)
	if c.owed.bytes >= c.granted.bytes/4 || c.owed.messages >= c.granted.messages/4 {
		e.repay(c)
	}
}

func (e *Engine) repay(c *conn) {
	h := header{kind: kindCredit, ctx: Context(c.owed.bytes), tag: int32(c.owed.messages)}
	c.owed = credit{}
	e.control(c, &h)
}

// credited takes back credit from a peer.
func (a *account) credited(h *header) error {
	a.left.bytes += int(h.ctx)
	a.left.messages += int(h.tag)
	if a.left.bytes > mostCredit || a.left.messages > mostCredit {
		return fmt.Errorf("%w: %d bytes of credit", errViolation, a.left.bytes)
	}
	return nil
}

// indulge gives a link credit for more messages if it has nearly none left: what
// is waited for here may be behind those that are here already, and a receive
// whose message has been sent must end (MPI 4.1 §3.5).
func (e *Engine) indulge(c *conn) {
	if c.peer.state != up || c.held.messages < c.granted.messages/4*3 || c.granted.messages >= mostIndulged {
		return
	}
	more := credit{c.granted.messages * overhead, c.granted.messages}
	c.granted.bytes += more.bytes
	c.granted.messages += more.messages
	e.control(c, &header{kind: kindCredit, ctx: Context(more.bytes), tag: int32(more.messages)})
}

// indulgeAll is indulge for those that a receive may be from.
func (e *Engine) indulgeAll(from Proc) {
	if from != AnyProc {
		for _, c := range e.peers[from].conns {
			e.indulge(c)
		}
		return
	}
	for _, p := range e.peers {
		for _, c := range p.conns {
			e.indulge(c)
		}
	}
}

// awaits reports whether a receive, or a probe, waits for a message that may be
// from a peer.
func (e *Engine) awaits(p Proc) bool {
	if len(e.probing) > 0 {
		return true
	}
	for _, d := range e.contexts {
		if d == nil {
			continue
		}
		if d.wild.first != nil {
			return true
		}
		for r := d.bin(p).posted.first; r != nil; r = r.next {
			if r.peer == p {
				return true
			}
		}
	}
	return false
}

// mostIndulged bounds the messages that a link may have brought though
// receives wait for others of its.
const mostIndulged = 1 << 22

// mostCredit bounds what a peer can grant; it is far beyond what any does.
const mostCredit = 1 << 32
