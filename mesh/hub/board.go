package hub

import (
	"sync"

	"github.com/meshmpi/meshmpi/mesh/peer"
)

// board is what the hub tells everybody: a record of every node, and the
// sessions that are to hear of changes. A session is told which records
// changed, not how; it sends what they are when it comes to it, so that any
// number of changes to a slow reader cost one record.
type board struct {
	mu       sync.Mutex
	records  map[peer.ID]record
	sessions map[peer.ID]*session
}

func newBoard() *board {
	return &board{records: map[peer.ID]record{}, sessions: map[peer.ID]*session{}}
}

// set replaces a record and has everybody told.
func (b *board) set(r record) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.setLocked(r)
}

func (b *board) setLocked(r record) {
	b.records[r.ID] = r
	for _, s := range b.sessions {
		s.changed(r.ID)
	}
}

// enter adds a node that was just admitted, or its new certificate.
func (b *board) enter(n peer.Node, chain [][]byte) {
	b.mu.Lock()
	defer b.mu.Unlock()
	r := b.records[n.ID]
	r.ID, r.Chain, r.Removed = n.ID, chain, false
	b.setLocked(r)
}

// open makes s the node's session and marks the node up. It returns the session
// that was there before.
func (b *board) open(s *session, chain [][]byte, advertise string, cores int) (old *session) {
	b.mu.Lock()
	defer b.mu.Unlock()
	old = b.sessions[s.id]
	b.sessions[s.id] = s
	r := b.records[s.id]
	r.ID, r.Chain, r.Up, r.Advertise, r.Cores = s.id, chain, true, advertise, cores
	b.setLocked(r)
	return old
}

// close marks the node down, unless a newer session has taken over.
func (b *board) close(s *session) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.sessions[s.id] != s {
		return
	}
	delete(b.sessions, s.id)
	if r, ok := b.records[s.id]; ok && r.Up {
		r.Up = false
		b.setLocked(r)
	}
}

// cut marks a node revoked or removed and ends its session.
func (b *board) cut(id peer.ID, how func(*record)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	r := b.records[id]
	r.ID, r.Up = id, false
	how(&r)
	b.setLocked(r)
	if r.Removed {
		delete(b.records, id)
		for _, s := range b.sessions {
			s.gone(r)
		}
	}
	if s := b.sessions[id]; s != nil {
		delete(b.sessions, id)
		s.end()
	}
}

// session returns the session of a node, or nil.
func (b *board) session(id peer.ID) *session {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.sessions[id]
}

// each calls f for every session.
func (b *board) each(f func(*session)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, s := range b.sessions {
		f(s)
	}
}

// record returns the record of a node.
func (b *board) record(id peer.ID) (record, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	r, ok := b.records[id]
	return r, ok
}

// all returns the IDs of every record.
func (b *board) all() []peer.ID {
	b.mu.Lock()
	defer b.mu.Unlock()
	ids := make([]peer.ID, 0, len(b.records))
	for id := range b.records {
		ids = append(ids, id)
	}
	return ids
}
