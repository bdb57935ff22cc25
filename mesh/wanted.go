package mesh

import (
	"maps"
	"net/netip"
	"sync"
	"time"
)

// wanted is what others want of the loop and must not be lost, however full its
// queue is: it is kept as a state, and the loop looks at it when it can.
type wanted struct {
	wake chan struct{} // size 1: there is something to see

	mu      sync.Mutex // guards what follows
	relays  map[string]wantedRelay
	lives   uint64 // relays added anew so far
	records bool
	recheck bool
}

// wantedRelay is a relay to be used.
type wantedRelay struct {
	relay   Relay
	life    uint64 // tells it from one of the same name that was removed
	changed bool
}

func newWanted() wanted {
	return wanted{wake: make(chan struct{}, 1), relays: map[string]wantedRelay{}}
}

// want changes what is wanted and wakes the loop.
func (w *wanted) want(change func()) {
	w.mu.Lock()
	change()
	w.mu.Unlock()
	select {
	case w.wake <- struct{}{}:
	default: // the loop is going to look anyway
	}
}

// AddRelay makes a relay available to every peer, or takes note that its state
// has changed. It does not block.
func (m *Mesh) AddRelay(relay Relay) {
	w, name := &m.wanted, relay.Name()
	w.want(func() {
		l, ok := w.relays[name]
		if !ok {
			w.lives++
			l.life = w.lives
		}
		l.relay, l.changed = relay, true
		w.relays[name] = l
	})
}

// RemoveRelay forgets a relay and every path through it. It does not block.
func (m *Mesh) RemoveRelay(name string) {
	m.wanted.want(func() { delete(m.wanted.relays, name) })
}

// Recheck probes every path anew and looks for better ones, as after a change
// of the host's network. It does not block.
func (m *Mesh) Recheck() {
	m.wanted.want(func() { m.wanted.recheck = true })
}

// RecordsChanged has the mesh look at the directory again: revoked, expired and
// removed peers are cut off, new addresses of known ones are tried. It does not
// block.
func (m *Mesh) RecordsChanged() {
	m.wanted.want(func() { m.wanted.records = true })
}

// catchUp does what is wanted.
func (m *Mesh) catchUp(now time.Time) {
	w := &m.wanted
	w.mu.Lock()
	records, recheck, relays := w.records, w.recheck, maps.Clone(w.relays)
	w.records, w.recheck = false, false
	for name, l := range w.relays {
		l.changed = false
		w.relays[name] = l
	}
	w.mu.Unlock()

	if records {
		m.checkRecords(now)
	}
	changed := m.syncRelays(now, relays)
	if !changed && !recheck {
		return
	}
	for _, r := range m.loop.remotes {
		if recheck {
			r.paths.recheck(now)
			if r.nearTries, r.nextNear = 0, now; r.near != nil {
				r.near.paths.recheck(now)
			}
			m.searchAnew(now, r)
			r.advertise.recheck(now)
		}
		m.serve(now, r)
	}
}

// syncRelays makes the relays in use those that are wanted and reports whether
// anything changed.
func (m *Mesh) syncRelays(now time.Time, want map[string]wantedRelay) bool {
	changed := false
	for name, l := range m.loop.relays {
		if want[name].life != l.life {
			changed = true
			for _, r := range m.loop.remotes {
				m.unregisterPaths(r, func(v via) bool { return v.relay == name })
			}
		}
	}
	for _, l := range want {
		if l.changed {
			changed = true
			for _, r := range m.loop.remotes {
				m.addRelayed(now, r, l.relay)
			}
		}
	}
	m.loop.relays = want
	if changed {
		m.publishRelays()
	}
	return changed
}

// checkRelays has relays look whether they are still bound: those through which pings
// to the peer get lost, and all when the path in use, of whatever kind, loses them. What
// a NAT has forgotten then is likely to be more than that path.
func (m *Mesh) checkRelays(r *remote) {
	for _, c := range r.paths.cands {
		if !c.doubtful {
			continue
		}
		c.doubtful = false
		for name, l := range m.loop.relays {
			if c == r.paths.current || c.via.relay == name {
				l.relay.Check()
			}
		}
	}
}

// hurryRelays has relays that we are not bound to try at once: others answer again.
func (m *Mesh) hurryRelays() {
	for _, l := range m.loop.relays {
		if !l.relay.Bound() {
			l.relay.Check()
		}
	}
}

// publishRelays shows the relays to the sockets' readers.
func (m *Mesh) publishRelays() {
	byAddr := make(map[netip.AddrPort]Relay, len(m.loop.relays))
	for _, l := range m.loop.relays {
		byAddr[l.relay.Addr()] = l.relay
	}
	m.bind.relays.Store(&byAddr)
}
