package node

import (
	"maps"
	"sync"
	"time"

	"github.com/meshmpi/meshmpi/mesh/cert"
	"github.com/meshmpi/meshmpi/mesh/peer"
)

// revokedFile is where a node keeps whom hubs have revoked. Unlike the caches it
// is believed: it says less than anybody could by writing to the directory.
const revokedFile = "revoked.json"

// maxRevoked bounds what hubs, which are trusted with it, may have a node remember.
const maxRevoked = 1 << 16

// revocations are those that this node has seen proof of. They hold whatever a hub
// says later, of nodes that are not known yet too, until no certificate of theirs
// can be left.
type revocations struct {
	mu sync.Mutex // guards at
	at map[peer.ID]time.Time
}

// add keeps a revocation that has been verified, and reports whether it is news.
func (v *revocations) add(r cert.Revocation) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	if _, known := v.at[r.ID]; known || len(v.at) >= maxRevoked {
		return false
	}
	if v.at == nil {
		v.at = map[peer.ID]time.Time{}
	}
	v.at[r.ID] = r.At
	return true
}

// mark marks the records of revoked nodes.
func (v *revocations) mark(recs []peer.Record) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for i := range recs {
		if _, ok := v.at[recs[i].Node.ID]; ok {
			recs[i].Revoked = true
		}
	}
}

// left returns those that still matter.
func (v *revocations) left(now time.Time) map[peer.ID]time.Time {
	v.mu.Lock()
	defer v.mu.Unlock()
	maps.DeleteFunc(v.at, func(id peer.ID, at time.Time) bool { return cert.Revocation{ID: id, At: at}.Moot(now) })
	return maps.Clone(v.at)
}

// saveRevoked remembers the revocations.
func (d *daemon) saveRevoked() {
	d.saved.put(revokedFile, func() error { return d.id.dir.SaveJSON(revokedFile, d.revoked.left(time.Now()), 0o600) })
}

// loadRevoked takes up those that are remembered.
func (d *daemon) loadRevoked() {
	var at map[peer.ID]time.Time
	if d.readCache(revokedFile, &at) != nil {
		return
	}
	for id, t := range at {
		d.revoked.add(cert.Revocation{ID: id, At: t})
	}
}
