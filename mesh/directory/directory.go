// Package directory holds what a node knows of the other nodes, for lookups by
// ID, name and address from any goroutine. It does not learn by itself: the
// hubs' records are applied to it, and it believes what it is given, so records
// must have been verified before.
package directory

import (
	"bytes"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/meshmpi/meshmpi/mesh/peer"
)

// Directory is a set of records. Its zero value is empty and ready to use.
type Directory struct {
	mu   sync.Mutex // serialises writers
	snap atomic.Pointer[snapshot]
}

// snapshot is immutable once stored.
type snapshot struct {
	byID    map[peer.ID]peer.Record
	byShort map[peer.Short]peer.ID
	byAddr  map[netip.Addr]peer.ID
	byName  map[string]peer.ID
	sites   map[string]census
}

// census counts the nodes of a site that are not revoked.
type census struct{ up, all int }

// Apply takes records in. With full they replace everything, else they are
// added or replace those of the same node. Records of removed nodes vanish.
//
// A name or an address belongs to who had it first, for as long as that node is
// there and its certificate holds: a hub that gives it away a second time changes
// nothing for those who know its owner.
func (d *Directory) Apply(full bool, recs []peer.Record) {
	d.mu.Lock()
	defer d.mu.Unlock()
	old := d.snap.Load()
	if old == nil {
		old = &snapshot{}
	}
	next := snapshot{byID: map[peer.ID]peer.Record{}}
	if !full {
		next.byID = maps.Clone(old.byID)
		if next.byID == nil {
			next.byID = map[peer.ID]peer.Record{}
		}
	}
	for _, r := range recs {
		if r.Removed {
			delete(next.byID, r.Node.ID)
			continue
		}
		next.byID[r.Node.ID] = r
	}
	next.index(old, time.Now())
	d.snap.Store(&next)
}

// Down marks every record as not connected, as when the last hub is lost.
func (d *Directory) Down() {
	recs := d.All()
	for i := range recs {
		recs[i].Up = false
	}
	d.Apply(false, recs)
}

// index makes the lookups of s, which comes after old.
func (s *snapshot) index(old *snapshot, now time.Time) {
	n := len(s.byID)
	s.byShort = make(map[peer.Short]peer.ID, n)
	s.byAddr = make(map[netip.Addr]peer.ID, 2*n)
	s.byName = make(map[string]peer.ID, n)
	s.sites = map[string]census{}
	for id, r := range s.byID {
		s.byShort[id.Short()] = id
		if r.Revoked {
			continue // known by its key, so that its traffic can be refused; not found by others
		}
		site := s.sites[r.Node.Site]
		if site.all++; r.Up {
			site.up++
		}
		s.sites[r.Node.Site] = site
		claim(s, s.byName, old.byName, r.Node.Name, r, now)
		for _, a := range r.Node.Addrs() {
			claim(s, s.byAddr, old.byAddr, a, r, now)
		}
	}
}

// claim enters r under a key, unless that belongs to another node.
func claim[K comparable](s *snapshot, index, before map[K]peer.ID, key K, r peer.Record, now time.Time) {
	other, taken := index[key]
	id := r.Node.ID
	better := func() bool {
		if mine, theirs := now.Before(r.Node.NotAfter), now.Before(s.byID[other].Node.NotAfter); mine != theirs {
			return mine
		}
		switch before[key] {
		case id:
			return true
		case other:
			return false
		}
		return bytes.Compare(id[:], other[:]) < 0 // whom all nodes agree on
	}
	if !taken || better() {
		index[key] = id
	}
}

// Owns reports whether name and addresses are the node's own. Whoever believes
// more of a certificate than its key asks this first.
func (d *Directory) Owns(n peer.Node) bool {
	s := d.snap.Load()
	if s == nil || s.byName[n.Name] != n.ID {
		return false
	}
	return !slices.ContainsFunc(n.Addrs(), func(a netip.Addr) bool { return s.byAddr[a] != n.ID })
}

// ByID finds a record by node ID, revoked ones included.
func (d *Directory) ByID(id peer.ID) (peer.Record, bool) {
	s := d.snap.Load()
	if s == nil {
		return peer.Record{}, false
	}
	r, ok := s.byID[id]
	return r, ok
}

// ByShort finds a record by the short name that datagrams carry.
func (d *Directory) ByShort(short peer.Short) (peer.Record, bool) {
	s := d.snap.Load()
	if s == nil {
		return peer.Record{}, false
	}
	id, ok := s.byShort[short]
	if !ok {
		return peer.Record{}, false
	}
	return s.byID[id], true
}

// ByAddr finds the node that owns a virtual address.
func (d *Directory) ByAddr(a netip.Addr) (peer.Record, bool) {
	s := d.snap.Load()
	if s == nil {
		return peer.Record{}, false
	}
	id, ok := s.byAddr[a.Unmap()]
	if !ok {
		return peer.Record{}, false
	}
	return s.byID[id], true
}

// ByName finds a node by its name, in any case of letters.
func (d *Directory) ByName(name string) (peer.Record, bool) {
	s := d.snap.Load()
	if s == nil {
		return peer.Record{}, false
	}
	id, ok := s.byName[strings.ToLower(name)]
	if !ok {
		return peer.Record{}, false
	}
	return s.byID[id], true
}

// HasSite reports whether any node belongs to the site, in any case of letters.
func (d *Directory) HasSite(site string) bool {
	_, all := d.InSite(strings.ToLower(site))
	return all > 0
}

// InSite counts the nodes of a site: those that a hub is connected with, and all
// that take part in the network.
func (d *Directory) InSite(site string) (up, all int) {
	s := d.snap.Load()
	if s == nil {
		return 0, 0
	}
	c := s.sites[site]
	return c.up, c.all
}

// All returns every record, ordered by name.
func (d *Directory) All() []peer.Record {
	s := d.snap.Load()
	if s == nil {
		return nil
	}
	return slices.SortedFunc(maps.Values(s.byID), func(a, b peer.Record) int {
		return strings.Compare(a.Node.Name, b.Node.Name)
	})
}
