package hub

import (
	"crypto/x509"
	"sync"
	"sync/atomic"
	"time"

	"github.com/meshmpi/meshmpi/mesh/cert"
	"github.com/meshmpi/meshmpi/mesh/peer"
	"github.com/meshmpi/meshmpi/mesh/sites"
)

// board is what the hub tells everybody: a record of every node, the
// revocations, the limits of sites, and the sessions that are to hear of changes. A session is told
// which records changed, not how; it sends what they are when it comes to it, so
// that any number of changes to a slow reader cost one record and none is lost.
type board struct {
	dropped atomic.Uint64 // messages that found a session's queue full

	mu       sync.Mutex // guards what follows
	records  map[peer.ID]record
	revoked  []cert.Revocation // only ever appended to: a session remembers how many it has sent
	sessions map[peer.ID]*session
	limits   sites.Limits
}

func newBoard() *board {
	return &board{records: map[peer.ID]record{}, sessions: map[peer.ID]*session{}}
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

// full reports whether there is no room for a node: the others would hear of more than
// maxRecords, and end their sessions.
func (b *board) full(id peer.ID) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if r, known := b.records[id]; len(b.records) < maxRecords || known && !r.Removed {
		return false
	}
	told := 0
	for _, r := range b.records {
		if !r.Removed {
			told++
		}
	}
	return told >= maxRecords
}

// attach makes s the node's session, marks the node up and has s told everything.
// It returns the session that was there before, and false, having done nothing,
// if the node has been revoked or removed: who is cut off before it stays out,
// who is cut off after is put out.
//
// Of the certificate that the node showed and the one on the board the newer
// counts, lest a node bring an old name of its own back.
func (b *board) attach(now time.Time, s *session, shown [][]byte, advertise string, cores int) (old *session, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	r := b.records[s.id]
	if r.Revoked || r.Removed {
		return nil, false
	}
	old = b.sessions[s.id]
	b.sessions[s.id] = s
	if supersedes(shown, r.Chain, now) {
		r.Chain = shown
	}
	r.ID, r.Up, r.Advertise, r.Cores = s.id, true, advertise, cores
	s.full = true
	if b.limits.Version > 0 {
		s.redeclared()
	}
	for id, r := range b.records {
		if !r.Removed {
			s.changed(id)
		}
	}
	b.setLocked(r)
	return old, true
}

// supersedes reports whether chain a takes the place of chain b. Either may be absent,
// as that of a node which is removed at this moment. Both have been verified, if not at
// this time. Of two that hold the later one counts; one that does not hold now counts
// for nothing beside one that does: the clock of who issued it was wrong.
func supersedes(a, b [][]byte, now time.Time) bool {
	if len(a) == 0 || len(b) == 0 {
		return len(a) > 0
	}
	ca, erra := x509.ParseCertificate(a[0])
	cb, errb := x509.ParseCertificate(b[0])
	if erra != nil || errb != nil {
		return false
	}
	holds := func(c *x509.Certificate) bool { return !now.Before(c.NotBefore) && !now.After(c.NotAfter) }
	if ha, hb := holds(ca), holds(cb); ha != hb {
		return ha
	}
	return ca.NotBefore.After(cb.NotBefore)
}

// detach marks the node down, unless a newer session has taken over.
func (b *board) detach(s *session) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.sessions[s.id] != s {
		return
	}
	delete(b.sessions, s.id)
	r := b.records[s.id]
	r.Up = false
	b.setLocked(r)
}

// revoke marks a node revoked, ends its session and has everybody told why.
func (b *board) revoke(why cert.Revocation) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.revoked = append(b.revoked, why)
	r := b.records[why.ID]
	r.ID, r.Revoked = why.ID, true
	b.cutLocked(r)
}

// remove forgets all of a node but that it was removed, and ends its session.
func (b *board) remove(id peer.ID) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.cutLocked(record{ID: id, Removed: true})
}

func (b *board) cutLocked(r record) {
	r.Up = false
	s := b.sessions[r.ID]
	delete(b.sessions, r.ID)
	b.setLocked(r)
	if s != nil {
		s.end()
	}
}

// session returns the session of a node, or nil.
func (b *board) session(id peer.ID) *session {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.sessions[id]
}

// revocations returns those behind the first n.
func (b *board) revocations(n int) []cert.Revocation {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.revoked[n:]
}

// record returns the record of a node.
func (b *board) record(id peer.ID) (record, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	r, ok := b.records[id]
	return r, ok
}

// good reports whether a node has been neither revoked nor removed.
func (b *board) good(id peer.ID) bool {
	r, _ := b.record(id)
	return !r.Revoked && !r.Removed
}
