package node

import (
	"encoding/json"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/meshmpi/meshmpi/mesh/sites"
)

// limitsFile is what the node remembers of the limits, so that it keeps to them
// with every hub down.
const limitsFile = "limits.json"

// maxEvents bounds the events that one new set of limits makes.
const maxEvents = 16

// limits are what the network's administrators say of the sites' links, in bits
// per second, 0: not said, and of which sites use their LAN. The newest that any hub has told hold. The zero value
// is ready: nothing is said.
type limits struct {
	// changed is called after each change that makes a difference, never twice at
	// once, and must not block or take limits itself; nil: nobody wants to know. It
	// is set before anything runs.
	changed func()

	taking sync.Mutex // held while a set is taken; guards from and found
	from   string
	found  map[string]int64
	now    atomic.Pointer[sites.Limits] // as said
	filled atomic.Pointer[sites.Limits] // with what has been found in the place of what is to be measured
}

// all returns everything that is said. It is the reader's to read only.
func (l *limits) all() sites.Limits {
	if p := l.now.Load(); p != nil {
		return *p
	}
	return sites.Limits{}
}

// held returns what is said, with what this site's nodes have found. It is the
// reader's to read only.
func (l *limits) held() sites.Limits {
	if p := l.filled.Load(); p != nil {
		return *p
	}
	return l.all()
}

// of returns what a site's own link carries.
func (l *limits) of(site string) (up, down int64) { return l.held().Of(site) }

// pair returns what the way between two sites carries, named in any order.
func (l *limits) pair(a, b string) int64 { return l.held().Pair(a, b) }

// toMeasure returns what the nodes of a site are to measure; see sites.Limits.
func (l *limits) toMeasure(from string) []string { return l.all().ToMeasure(from) }

// measures reports whether something on the way from one site to another is to be
// measured.
func (l *limits) measures(from, to string) bool { return l.all().Measures(from, to) }

// measured takes in what may be sent from this site to each that toMeasure names,
// in the place of limits that nobody has said.
func (l *limits) measured(from string, found map[string]int64) {
	l.taking.Lock()
	defer l.taking.Unlock()
	l.from, l.found = from, found
	l.fill()
	if l.changed != nil {
		l.changed()
	}
}

// fill is called with taking held.
func (l *limits) fill() {
	f := l.all().Filled(l.from, func(to string) int64 { return l.found[to] })
	l.filled.Store(&f)
}

// between returns the limit of what goes from site a to site b: the least of a's
// uplink, b's downlink and the pair's; 0: unlimited.
func (l *limits) between(a, b string) int64 { return l.held().Between(a, b) }

// bandwidth returns what a program may take for the bandwidth of a site's link: the
// site's uplink, else the least limit of what goes to another site; 0: none is said.
func (l *limits) bandwidth(site string) (bits int64) {
	all := l.held()
	if up, _ := all.Of(site); up > 0 {
		return up
	}
	least := func(other string) {
		if r := all.Between(site, other); r > 0 && (bits == 0 || r < bits) {
			bits = r
		}
	}
	for _, s := range all.Sites {
		least(s.Name)
	}
	for _, p := range all.Pairs {
		switch site {
		case p.A:
			least(p.B)
		case p.B:
			least(p.A)
		}
	}
	return bits
}

// take makes next what holds, unless it is no newer, and returns what differs.
func (l *limits) take(next sites.Limits) (changes []sites.Change, newer bool) {
	l.taking.Lock()
	defer l.taking.Unlock()
	before := l.all()
	if next.Version <= before.Version {
		return nil, false
	}
	l.now.Store(&next)
	l.fill()
	if changes = sites.Changes(before, next); len(changes) > 0 && l.changed != nil {
		l.changed()
	}
	return changes, true
}

// takeLimits takes what a hub says, remembers it and tells who listens.
func (d *daemon) takeLimits(next sites.Limits) {
	changes, newer := d.limits.take(next)
	if !newer {
		return
	}
	d.saved.put(limitsFile, func() error { return d.id.dir.SaveJSON(limitsFile, d.limits.all(), 0o600) })
	for i, c := range changes {
		if i == maxEvents-1 && len(changes) > maxEvents {
			d.events.emit("site", "", fmt.Sprintf("%d more limits have changed; see meshctl site list", len(changes)-i))
			break
		}
		d.events.emit("site", "", c.String())
	}
	if len(changes) > 0 {
		d.log.Info("limits of sites", "version", next.Version, "changes", len(changes))
	}
}

// loadLimits takes what is remembered. A broken file is like none: a hub tells.
func (d *daemon) loadLimits() {
	var raw json.RawMessage
	if d.readCache(limitsFile, &raw) != nil {
		return
	}
	l, err := sites.Parse(raw)
	if err != nil {
		err = fmt.Errorf("node: %s is damaged (%w); it is ignored until a hub tells the limits of sites", d.id.dir.Path(limitsFile), err)
		d.log.Warn("ignoring what was remembered", "err", err)
		d.notes.set(limitsFile, err.Error())
		return
	}
	d.limits.take(l)
}

// siteNodes counts a site's nodes that take part in the network, as the hubs have
// said last: those that are up, and all. This node counts among its site's, and
// is up.
func (d *daemon) siteNodes(site string) (up, all int) {
	up, all = d.dir.InSite(site)
	if site != d.id.self.Site {
		return up, all
	}
	switch rec, known := d.dir.ByID(d.id.self.ID); {
	case !known || rec.Revoked:
		return up + 1, all + 1
	case !rec.Up:
		return up + 1, all
	}
	return up, all
}
