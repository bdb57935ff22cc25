package mesh

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"github.com/meshmpi/meshmpi/mesh/peer"
)

const (
	searchLimit = 8 * time.Second
	searchFirst = 3 * time.Second // pause after the first search in vain; doubles
	searchMax   = 2 * time.Minute

	// A peer offers once in searchFirst, and again when a network changed.
	offersRate, offersBurst = 1, 4 // a second
)

// leads reports whether this node leads searches for paths to the peer: the
// lower ID does, so that two nodes never search for each other twice at once.
func (m *Mesh) leads(r *remote) bool {
	return bytes.Compare(m.cfg.Self.ID[:], r.node.ID[:]) < 0
}

// searchDue is when search wants to be called; zero when something else will.
func (m *Mesh) searchDue(r *remote) time.Time {
	if m.cfg.Finder == nil || r.search != nil {
		return time.Time{}
	}
	return r.nextSearch
}

// search looks for a direct path where there is none, while the peer is being
// talked to. Whoever does not lead asks the other to.
func (m *Mesh) search(now time.Time, r *remote) {
	if due := m.searchDue(r); due.IsZero() || now.Before(due) {
		return
	}
	if kind, ok := r.paths.works(); (ok && kind >= peer.KindUDP) || !r.paths.busy {
		r.nextSearch = now.Add(sampleEvery)
		if ok && kind >= peer.KindUDP {
			r.searches = 0
		}
		return
	}
	r.nextSearch = now.Add(min(searchFirst<<min(r.searches, 8), searchMax))
	r.searches++
	if !m.leads(r) {
		m.call(r, r.moved)
		return
	}
	f := &flow{m: m, seal: &r.signalKey, kind: signalOffer, in: make(chan []byte, flowQueued)}
	id := r.node.ID
	f.key.peer = id
	rand.Read(f.key.id[:])
	m.explore(r, f, func(ctx context.Context) (peer.Path, error) { return m.cfg.Finder.Find(ctx, id, f) })
}

// searchAnew begins a search at once, after a change of this host's network. One that is
// under way has told the peer of addresses that may be gone: its end begins the next, and
// if the peer leads, it is told to end its side of it.
func (m *Mesh) searchAnew(now time.Time, r *remote) {
	r.searches, r.nextSearch = 0, now
	if r.search != nil {
		r.moved = !m.leads(r)
		r.search.cancel()
	}
}

// called does what the peer that follows asks for: a search, and if it has moved a new
// one instead of that which is under way, once a second, lest it keeps us from finding
// anything.
func (m *Mesh) called(now time.Time, r *remote, moved bool) {
	switch {
	case !m.leads(r):
	case r.search == nil:
		r.nextSearch = now
		m.search(now, r)
	case moved && r.offers.AllowN(now, 1):
		m.searchAnew(now, r)
	}
}

// answer takes the other side of a search that the peer leads. A peer has one at
// a time: a new one ends the one before, which it has given up.
func (m *Mesh) answer(now time.Time, r *remote, id flowID, offer []byte) {
	if m.cfg.Finder == nil || m.leads(r) || !r.offers.AllowN(now, 1) {
		return
	}
	f := &flow{m: m, seal: &r.signalKey, kind: signalAnswer, in: make(chan []byte, flowQueued), key: flowKey{r.node.ID, id}}
	from := r.node.ID
	m.explore(r, f, func(ctx context.Context) (peer.Path, error) {
		return m.cfg.Finder.Answer(ctx, from, offer, f)
	})
	if r.search == f {
		r.moved = false // until then a call that said so may have been lost, as with the session to a hub
	}
}

// explore runs one search beside the loop and brings home what it finds.
func (m *Mesh) explore(r *remote, f *flow, find func(ctx context.Context) (peer.Path, error)) {
	if !m.flows.open(f) {
		m.log.Debug("search not begun: too many at once, or it has ended", "node", r.node.Name)
		return
	}
	if r.search != nil {
		r.search.cancel()
	}
	ctx, cancel := context.WithTimeoutCause(m.loop.ctx, searchLimit,
		fmt.Errorf("nothing found within %v", searchLimit))
	f.cancel, r.search = cancel, f
	m.workers.Add(1)
	go func() { // ends within searchLimit, or with the loop's context
		defer m.workers.Done()
		defer m.flows.close(f)
		defer cancel()
		path, err := find(ctx)
		// A result must not be lost to a full queue: wait for the loop, or its end.
		_ = m.do(m.loop.ctx, func(now time.Time) { m.explored(now, r, f, path, err) })
	}()
}

func (m *Mesh) explored(now time.Time, r *remote, f *flow, path peer.Path, err error) {
	if m.loop.remotes[r.node.ID] != r || r.search != f {
		return // the peer was forgotten, or has begun anew
	}
	r.search = nil
	switch {
	case err == nil:
		r.nextSearch = now.Add(searchFirst) // unless probes fail on it
		if c := m.addDirect(now, r, path.Info().Remote, told); c != nil && c.state != up {
			c.next, c.tries = now, 0 // it has answered the finder, whatever it did before
		}
	case errors.Is(err, context.Canceled):
	default:
		m.log.Debug("no direct path", "node", r.node.Name, "err", err)
	}
	m.serve(now, r)
}

// call asks the peer to lead a search. moved says that what it may have begun before is
// in vain.
func (m *Mesh) call(r *remote, moved bool) {
	var msg []byte
	if moved {
		msg = []byte(callMoved)
	}
	b, err := sealSignal(&r.signalKey, m.cfg.Self.ID, signalCall, flowID{}, msg)
	if err != nil {
		m.log.Debug("call", "node", r.node.Name, "err", err)
		return
	}
	id := r.node.ID
	m.workers.Add(1)
	go func() { // one message; bounded by the context
		defer m.workers.Done()
		ctx, cancel := context.WithTimeout(m.loop.ctx, 2*time.Second)
		defer cancel()
		if err := m.cfg.Post(ctx, id, b); err != nil {
			m.log.Debug("call", "err", err)
		}
	}()
}
