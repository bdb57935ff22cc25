package hub

import (
	"net"
	"net/netip"
	"slices"
	"sync"

	"golang.org/x/time/rate"
)

// Limits on strangers. A site's nodes may all come at once from behind one NAT,
// hence the bursts.
const (
	maxStrangers  = 256            // connections that have not authenticated
	connsPerSec   = rate.Limit(50) // from one source; a handshake costs about a millisecond
	connBurst     = 1024
	joinsPerSec   = rate.Limit(5) // from one source; a joining costs a write to the disk
	joinBurst     = 64
	maxRemembered = 4096 // sources whose rates are remembered
)

// door keeps strangers from crowding out others. When all places are taken the
// oldest stranger has to go: whoever only holds a place cannot hold it for long,
// and a node needs it for one handshake.
type door struct {
	mu      sync.Mutex // guards what follows
	waiting []net.Conn // oldest first
	sources map[netip.Prefix]*source
	turned  uint64 // away
}

// source is where connections come from: an IPv4 address, or an IPv6 network of
// the size that one customer gets.
type source struct{ conns, joins *rate.Limiter }

func newDoor() *door { return &door{sources: map[netip.Prefix]*source{}} }

// enter gives a connection a place, or reports that its source has had too many.
func (d *door) enter(c net.Conn) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.source(c.RemoteAddr()).conns.Allow() {
		d.turned++
		return false
	}
	if len(d.waiting) >= maxStrangers {
		d.turned++
		d.waiting[0].Close()
		d.waiting = slices.Delete(d.waiting, 0, 1)
	}
	d.waiting = append(d.waiting, c)
	return true
}

// leave gives the place back, once.
func (d *door) leave(c net.Conn) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if i := slices.Index(d.waiting, c); i >= 0 {
		d.waiting = slices.Delete(d.waiting, i, i+1)
	}
}

// mayJoin reports whether one more from there may try to join now.
func (d *door) mayJoin(from net.Addr) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	ok := d.source(from).joins.Allow()
	if !ok {
		d.turned++
	}
	return ok
}

// refused counts the connections and joiners that were turned away.
func (d *door) refused() uint64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.turned
}

// source finds or makes the rates of an address. d.mu is held.
func (d *door) source(a net.Addr) *source {
	ap, _ := netip.ParseAddrPort(a.String()) // what is no network address shares one source
	addr, bits := ap.Addr().Unmap().WithZone(""), 32
	if addr.Is6() {
		bits = 64
	}
	key, _ := addr.Prefix(bits)
	s := d.sources[key]
	if s == nil {
		if len(d.sources) >= maxRemembered {
			for old := range d.sources { // any one will do
				delete(d.sources, old)
				break
			}
		}
		s = &source{rate.NewLimiter(connsPerSec, connBurst), rate.NewLimiter(joinsPerSec, joinBurst)}
		d.sources[key] = s
	}
	return s
}
