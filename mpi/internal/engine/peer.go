package engine

import "fmt"

// peer is what the engine knows of one process.
type peer struct {
	proc  Proc
	state peerState
	err   error // why it failed
	card  *card // nil: to be resolved

	conns   []*conn
	eager   int      // largest message to send without asking
	blocked requests // sends that wait for a link or for credit, in order
	streams requests // sends whose data the other side has asked for
	posts   frames   // active messages that wait for a link

	left    credit // what we may still send
	granted credit // what it may have outstanding here
	held    credit // what it has
	owed    credit // of what was taken, what has not been told yet

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

// gone says why a peer cannot be sent to; nil: it can.
func (p *peer) gone() error {
	if p.state == failed || p.state == departed {
		return ErrProcFailed{p.proc, p.err}
	}
	return nil
}

// takesOne reports whether the peer's credit allows a message to be announced.
func (p *peer) takesOne() bool { return p.left.messages > 0 && p.left.bytes >= overhead }

// takes reports whether the peer's credit allows a message as a whole. It leaves
// what the announcement of as many others as may be sent needs.
func (p *peer) takes(n int) bool {
	return n <= p.eager && p.left.messages > 0 && p.left.bytes >= n+p.left.messages*overhead
}

// hold counts a message that has come against what the peer was granted.
func (p *peer) hold(n int) error {
	p.held.add(n)
	if p.held.bytes > p.granted.bytes || p.held.messages > p.granted.messages {
		return fmt.Errorf("%w: more messages than it has credit for", errViolation)
	}
	return nil
}

// consume counts a message that was taken, and tells the peer now and then.
func (e *Engine) consume(p *peer, n int) {
	p.held.bytes -= n + overhead
	p.held.messages--
	if p.state != up || p.proc == e.self {
		return
	}
	p.owed.add(n)
	if p.owed.bytes >= p.granted.bytes/4 || p.owed.messages >= p.granted.messages/4 {
		e.repay(p)
	}
}

func (e *Engine) repay(p *peer) {
	h := header{kind: kindCredit, ctx: Context(p.owed.bytes), tag: int32(p.owed.messages)}
	p.owed = credit{}
	e.control(p, &h)
}

// credited takes back credit from a peer.
func (p *peer) credited(h *header) error {
	p.left.bytes += int(h.ctx)
	p.left.messages += int(h.tag)
	if p.left.bytes > mostCredit || p.left.messages > mostCredit {
		return fmt.Errorf("%w: %d bytes of credit", errViolation, p.left.bytes)
	}
	return nil
}

// indulge gives a peer credit for more messages if it has nearly none left: what
// is waited for here may be behind those that are here already, and a receive
// whose message has been sent must end (MPI 4.1 §3.5).
func (e *Engine) indulge(p *peer) {
	if p.state != up || p.proc == e.self || p.held.messages < p.granted.messages/4*3 || p.granted.messages >= mostIndulged {
		return
	}
	more := credit{p.granted.messages * overhead, p.granted.messages}
	p.granted.bytes += more.bytes
	p.granted.messages += more.messages
	e.control(p, &header{kind: kindCredit, ctx: Context(more.bytes), tag: int32(more.messages)})
}

// indulgeAll is indulge for those that a receive may be from.
func (e *Engine) indulgeAll(from Proc) {
	if from != AnyProc {
		e.indulge(e.peers[from])
		return
	}
	for _, p := range e.peers {
		e.indulge(p)
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

// mostIndulged bounds the messages that a peer may have waiting here though
// receives wait for others of its.
const mostIndulged = 1 << 22

// mostCredit bounds what a peer can grant; it is far beyond what any does.
const mostCredit = 1 << 32
