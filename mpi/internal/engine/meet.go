package engine

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// errPeerClosed is how a link ends that the other side has closed without
// goodbye.
var errPeerClosed = errors.New("engine: closed by the peer")

// errTaken is why a link is not taken: there is one already.
var errTaken = errors.New("engine: there is a link already")

// mostLinks bounds the connections to one peer.
const mostLinks = 16

// reach makes a link to a peer, by a goroutine, unless there is one.
func (e *Engine) reach(p *peer) {
	if p.state != unknown || p.proc == e.self || !e.started || e.stopped {
		return
	}
	p.state = connecting
	e.tasks.Add(1)
	go e.connect(p)
}

// connect makes a link to a peer, or fails the peer. It ends when the engine
// does.
func (e *Engine) connect(p *peer) {
	defer e.tasks.Done()
	ctx, cancel := context.WithTimeout(e.ctx, e.cfg.Patience)
	defer cancel()
	c, err := e.cardOf(ctx, p)
	for wait := time.Millisecond; err == nil; wait = min(2*wait, 200*time.Millisecond) {
		if err = e.try(ctx, p, c); err == nil {
			return
		}
		if !retry(err) {
			break
		}
		e.gate.lock()
		done, changed := p.state != connecting, e.changed
		e.gate.unlock()
		if done { // it came to us
			return
		}
		select {
		case <-changed:
		case <-time.After(wait):
		case <-ctx.Done():
			err = fmt.Errorf("no connection within %v: %w", e.cfg.Patience, err)
			goto failed
		}
		err = nil
	}
failed:
	e.gate.lock()
	defer e.leave()
	if p.state == connecting && !e.stopped {
		e.fail(p, err)
	}
}

// retry reports whether another try may be better than the last.
func retry(err error) bool {
	var soon errNotYet
	return errors.As(err, &soon) || errors.Is(err, errTaken) || transient(err)
}

// cardOf finds a peer's card.
func (e *Engine) cardOf(ctx context.Context, p *peer) (*card, error) {
	e.gate.lock()
	c := p.card
	e.gate.unlock()
	if c != nil {
		return c, nil
	}
	if e.cfg.Resolve == nil {
		return nil, errors.New("engine: nothing resolves cards")
	}
	text, err := e.cfg.Resolve(ctx, p.proc)
	if err != nil {
		return nil, fmt.Errorf("card: %w", err)
	}
	if c, err = parseCard(text); err != nil {
		return nil, err
	}
	e.gate.lock()
	p.card = c
	e.gate.unlock()
	return c, nil
}

// try makes a link by the best way there is.
func (e *Engine) try(ctx context.Context, p *peer, c *card) error {
	if e.cfg.Hub != nil && c.hub == e.cfg.Hub.id {
		return e.cfg.Hub.join(e, c)
	}
	return e.dialPeer(ctx, p, c)
}

// procFor finds who a card's holder is in our table; at is its own number in
// its job.
func (e *Engine) procFor(c *card, at Proc) (*peer, bool) {
	for _, p := range e.peers {
		if p.card != nil && p.card.uid == c.uid {
			return p, true
		}
	}
	if c.job == e.me.card.job && at >= 0 && int(at) < e.cfg.Size && e.peers[at].card == nil {
		return e.peers[at], true
	}
	return nil, false
}

// strangerFor is procFor that adds who is of another job. Such a process connects
// because it was given our card; who it is its caller learns from its messages.
func (e *Engine) strangerFor(c *card, at Proc) (*peer, bool) {
	p, known := e.procFor(c, at)
	if known || c.job == e.me.card.job || len(e.peers) >= mostProcs || e.foreign() >= mostForeign {
		return p, known
	}
	p = newPeer(Proc(len(e.peers)))
	e.peers = append(e.peers, p)
	e.change()
	return p, true
}

// foreign counts the processes of other jobs that have neither left nor failed.
func (e *Engine) foreign() (n int) {
	for _, p := range e.peers[e.cfg.Size:] {
		if p.state != departed && p.state != failed {
			n++
		}
	}
	return n
}

const (
	mostForeign = 1 << 14 // processes of other jobs at one time, when one more connects by itself
	mostProcs   = 1 << 20 // and all processes that there have been: numbers are not used again
)

// meet gives the engine a link within the process.
func (e *Engine) meet(c *card, at Proc, w *heapWire) error {
	e.gate.lock()
	defer e.leave()
	p, ok := e.strangerFor(c, at)
	if !ok {
		return errNotYet{}
	}
	switch {
	case e.closed && (at >= 0 && !p.owed() || e.stopped): // it still reaches those it has something for
		return errGoodbye
	case p.state != unknown && p.state != connecting:
		return errTaken
	}
	if p.card == nil {
		p.card = c
	}
	l := &conn{e: e, peer: p, wire: w, ring: &w.ringWire, pull: w, piece: 4 << 10, swapped: (c.arch^e.cfg.Arch)&bigEndian != 0}
	most := mostFrame(heapSlots) - longHeader
	e.attach(p, []*conn{l}, terms{eager: most, credit: credit{512 << 10, 1 << 12}, theirs: credit{512 << 10, 1 << 12}})
	e.fast = append(e.fast, l)
	return nil
}

// terms are what two ends of a link have agreed on.
type terms struct {
	eager  int    // largest message to send without asking
	piece  int    // largest payload of a data frame
	credit credit // what we may have waiting there
	theirs credit // what it may have waiting here
}

// part is what each of so many links gets.
func (c credit) part(links int) credit { return credit{c.bytes / links, c.messages / links} }

// quickest are the links that messages take: those on which an answer takes hardly
// longer than on the nearest. They stay the same, since messages of one tag must
// not change links.
func quickest(links []*conn) []*conn {
	least := time.Duration(1<<63 - 1)
	for _, c := range links {
		least = min(least, c.gauge.near)
	}
	var quick []*conn
	for _, c := range links {
		if c.gauge.near <= least+least/2+hardlyLonger {
			quick = append(quick, c)
		}
	}
	return quick
}

const hardlyLonger = 500 * time.Microsecond

// unlikeEager is what is sent without asking where some links are farther than
// others: which is the better for a longer message depends on what they carry.
const unlikeEager = 16 << 10

// attach makes a peer reachable over links and sends what has waited for that.
func (e *Engine) attach(p *peer, links []*conn, t terms) {
	p.state, p.conns, p.quick = up, links, quickest(links)
	p.eager = t.eager
	if e.cfg.EagerLimit > 0 {
		p.eager = min(e.cfg.EagerLimit, p.eager)
	}
	for i, c := range links {
		c.index = uint8(i)
		c.left, c.granted = t.credit.part(len(links)), t.theirs.part(len(links))
		p.eager = min(p.eager, max(c.left.bytes/4, 1))
	}
	if len(p.quick) < len(links) {
		p.eager = min(p.eager, unlikeEager)
	}
	p.offered = false
	for first := p.quick[0]; p.posts.first != nil; {
		f := p.posts.pop()
		f.belong(first)
		e.hand(first, f)
	}
	for r := p.blocked.first; r != nil; r = p.blocked.first {
		p.blocked.remove(r)
		e.queue(p, r)
	}
	if e.driver != nil && e.driver.asleep {
		e.bell.ring() // it has one more link to look at
	}
	e.change()
}
