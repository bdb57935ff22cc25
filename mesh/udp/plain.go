package udp

import (
	"maps"
	"net/netip"
	"sync/atomic"
	"time"
)

const (
	plainFor = time.Minute // then segmentation is tried again: routes and interfaces change
	maxPlain = 256         // destinations; then all are forgotten and found out anew
)

// plain holds the destinations whose interface refused segmentation offload,
// since one interface without it must not slow what leaves by others. It is
// safe for concurrent use; while it is empty, asking it costs one load.
type plain struct {
	since atomic.Pointer[map[netip.Addr]time.Time] // replaced, never changed
}

// has reports whether datagrams to an address must be sent one by one.
func (p *plain) has(to netip.Addr) bool {
	m := p.since.Load()
	if m == nil {
		return false
	}
	at, ok := (*m)[to]
	return ok && time.Since(at) < plainFor
}

func (p *plain) add(to netip.Addr) {
	old := p.since.Load()
	next := map[netip.Addr]time.Time{}
	if old != nil && len(*old) < maxPlain {
		next = maps.Clone(*old)
	}
	next[to] = time.Now()
	p.since.Store(&next) // of two at once one is lost, until it is refused again
}
