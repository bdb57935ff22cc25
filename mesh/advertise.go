package mesh

import (
	"context"
	"net"
	"net/netip"
	"time"

	"github.com/meshmpi/meshmpi/mesh/peer"
)

// advertise is the state of looking up where a peer says it is reachable.
type advertise struct {
	done  string    // looked up last, with success
	until time.Time // so long that holds; longer while the peer is reached directly
	busy  bool      // a look-up is under way
	stale bool      // and began before the network changed: its answer may be an old one
	again time.Time // not before; after a failure
}

const (
	resolveLimit = 10 * time.Second
	resolveAgain = 15 * time.Second // after a failure: the resolver may come up after us
	resolveFor   = time.Minute      // then the peer's address may have changed
)

// recheck has the name looked up anew: from here it may lead elsewhere.
func (a *advertise) recheck(now time.Time) {
	a.until, a.again, a.stale = now, now, a.busy
}

// resolveAdvertised tries the addresses a peer says it is reachable at, unless
// that has been done, and again where no direct path works: a name may lead elsewhere.
func (m *Mesh) resolveAdvertised(now time.Time, r *remote, rec peer.Record) {
	a := &r.advertise
	kind, works := r.paths.works()
	holds := rec.Advertise == a.done && (now.Before(a.until) || works && kind >= peer.KindUDP || !r.paths.busy)
	if rec.Advertise == "" || holds || a.busy || now.Before(a.again) {
		return
	}
	if ap, err := netip.ParseAddrPort(rec.Advertise); err == nil {
		m.resolved(now, r, rec, []netip.AddrPort{ap}, nil)
		return
	}
	a.busy = true
	m.workers.Add(1)
	go func() { // ends with the look-up, at the latest with the loop's context
		defer m.workers.Done()
		ctx, cancel := context.WithTimeout(m.loop.ctx, resolveLimit)
		defer cancel()
		addrs, err := resolve(ctx, rec.Advertise)
		_ = m.do(m.loop.ctx, func(now time.Time) { m.resolved(now, r, rec, addrs, err) })
	}()
}

func (m *Mesh) resolved(now time.Time, r *remote, rec peer.Record, addrs []netip.AddrPort, err error) {
	a := &r.advertise
	stale := a.stale
	a.busy, a.stale = false, false
	if m.loop.remotes[rec.Node.ID] != r {
		return
	}
	if err != nil {
		m.log.Debug("advertised address", "node", rec.Node.Name, "err", err)
		if !stale {
			a.again = now.Add(resolveAgain)
		}
		return
	}
	if a.done, a.until = rec.Advertise, now; !stale {
		a.until = now.Add(resolveFor)
	}
	r.paths.unkeep()
	for _, addr := range addrs {
		m.addDirect(now, r, addr, kept)
	}
	m.serve(now, r)
}

// resolve turns HOST:PORT, HOST a name, into addresses.
func resolve(ctx context.Context, hostport string) ([]netip.AddrPort, error) {
	host, service, err := net.SplitHostPort(hostport)
	if err != nil {
		return nil, err
	}
	port, err := net.DefaultResolver.LookupPort(ctx, "udp", service)
	if err != nil {
		return nil, err
	}
	ips, err := net.DefaultResolver.LookupNetIP(ctx, "ip", host)
	if err != nil {
		return nil, err
	}
	var addrs []netip.AddrPort
	for _, ip := range ips {
		addrs = append(addrs, netip.AddrPortFrom(ip.Unmap(), uint16(port)))
	}
	return addrs, nil
}
