package ice

import (
	"hash/maphash"
	"net/netip"
	"sync"
	"time"
)

// The STUN server's limits. The bucket of a source is that of an IPv4 address
// or an IPv6 /64, since a whole site may be behind one: 200 nodes a second may
// ask from there.
const (
	sourceRate, sourceBurst = 200, 400   // answers a second, at once
	totalRate, totalBurst   = 5000, 5000 // for everybody together
	sourceBuckets           = 1024       // sources that share one share its limit
)

// serve answers a binding request that names no attempt: a client asks for its
// address. It keeps nothing of clients, and an answer has at most 1.6 times the
// bytes of the request, so that forged sources gain nothing by it.
func (x *ICE) serve(m *stunMessage, pkt []byte, from netip.AddrPort) {
	if !x.cfg.Serve || m.strange {
		x.n.refused.Add(1)
		return
	}
	reply := newReply(m.tx, from, m.fingerprint)
	switch {
	case 5*len(reply) > 8*len(pkt):
		x.n.refused.Add(1)
	case !x.limits.allow(from.Addr(), time.Now()):
		x.n.limited.Add(1)
	case x.cfg.Send(reply, from) != nil:
		x.n.sendErrors.Add(1)
	default:
		x.n.served.Add(1)
	}
}

// limiter holds token buckets: one for all, and a fixed number that sources are
// hashed to, so that its memory does not depend on who asks.
type limiter struct {
	seed maphash.Seed

	mu      sync.Mutex
	total   bucket
	sources [sourceBuckets]bucket
}

func newLimiter() *limiter { return &limiter{seed: maphash.MakeSeed()} }

// allow reports whether the source may have one answer more at the time now.
func (l *limiter) allow(source netip.Addr, now time.Time) bool {
	bits := 32
	if source.Is6() {
		bits = 64
	}
	prefix, _ := source.WithZone("").Prefix(bits)
	i := maphash.Comparable(l.seed, prefix) % sourceBuckets
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.sources[i].take(now, sourceRate, sourceBurst) && l.total.take(now, totalRate, totalBurst)
}

// bucket is a token bucket. The zero value is full.
type bucket struct {
	used float64 // tokens taken and not yet grown back, as of at
	at   time.Time
}

func (b *bucket) take(now time.Time, rate, burst float64) bool {
	if elapsed := now.Sub(b.at); elapsed > 0 {
		b.used = max(0, b.used-rate*elapsed.Seconds())
		b.at = now
	}
	if b.used+1 > burst {
		return false
	}
	b.used++
	return true
}
