package engine

import (
	"context"
	"errors"
	"net"
	"slices"
	"time"

	"github.com/meshmpi/meshmpi/internal/oneline"
)

// A process may have several addresses that are used side by side: a machine with
// two ways out. Its card says how many of its addresses are such (field r). Links
// go from the first to the first of the peer's, from the second to the second, and
// so on; with more links than pairs the pairs take turns. A pair that cannot be
// connected is left out, as long as there is one.
//
// A link that breaks later is done without, as long as there is another (lost.go).
// Inside the overlay a way that fails breaks no link: connections are between virtual
// addresses, and it is the mesh that finds another way.

// railPatience is how long further pairs of addresses are waited for when one is
// connected: time for a lost packet of the connection's beginning.
const railPatience = 3 * time.Second

// dialed is a connection and how long it took to come about.
type dialed struct {
	at  int // which of those dialed together
	nc  net.Conn
	rtt time.Duration
	err error
}

// pairs is how many pairs of addresses links to the holder of a card use.
func (e *Engine) pairs(c *card) int {
	return max(1, min(e.me.card.rails, c.rails, len(c.addrs)))
}

// dialAll makes as many connections to a peer as there are to be links.
func (e *Engine) dialAll(ctx context.Context, c *card) ([]dialed, error) {
	n := e.pairs(c)
	if n == 1 {
		return e.dialOne(ctx, c)
	}
	links := min(max(e.cfg.Links, n), mostLinks)
	ctx, cancel := context.WithCancel(ctx)
	results := make(chan dialed, links) // so that none has to be waited for
	for i := range links {
		e.tasks.Go(func() {
			d := e.dialTimed(ctx, i%n, c.addrs[i%n])
			d.at = i
			results <- d
		})
	}
	var all []dialed
	var errs []error
	var enough <-chan time.Time
	begun := links
	for ; begun > 0; begun-- {
		select {
		case d := <-results:
			if d.err != nil {
				errs = append(errs, d.err)
				continue
			}
			if all = append(all, d); enough == nil {
				enough = time.After(railPatience)
			}
			continue
		case <-enough:
			errs = append(errs, errors.New("engine: it takes too long"))
		}
		break
	}
	cancel()
	for ; begun > 0; begun-- { // they end soon, having been cancelled
		if d := <-results; d.nc != nil {
			d.nc.Close()
		}
	}
	if len(all) == 0 {
		return nil, oneline.Join(errs...)
	}
	if len(all) < links {
		e.log.Warn("fewer links than there could be", "links", len(all), "of", links, "err", oneline.Join(errs...))
	}
	slices.SortFunc(all, func(a, b dialed) int { return a.at - b.at })
	return all, nil
}

// dialOne makes all connections to one address: whichever answers first.
func (e *Engine) dialOne(ctx context.Context, c *card) ([]dialed, error) {
	start := time.Now()
	nc, addr, err := e.dialAny(ctx, c.addrs)
	if err != nil {
		return nil, err
	}
	all := []dialed{{nc: nc, rtt: time.Since(start)}}
	for len(all) < e.cfg.Links {
		d := e.dialTimed(ctx, -1, addr)
		if d.err != nil {
			closeDialed(all)
			return nil, d.err
		}
		all = append(all, d)
	}
	return all, nil
}

// dialTimed connects to one address, from one of ours, or from any if rail is -1.
func (e *Engine) dialTimed(ctx context.Context, rail int, addr string) dialed {
	start := time.Now()
	nc, err := e.dialFrom(ctx, rail, addr)
	return dialed{nc: nc, rtt: time.Since(start), err: err}
}

// dialFrom connects to one address. A dialer that was injected chooses itself where
// it begins.
func (e *Engine) dialFrom(ctx context.Context, rail int, addr string) (net.Conn, error) {
	if e.cfg.Dial != nil {
		return e.cfg.Dial(ctx, "tcp", addr)
	}
	var d net.Dialer
	if rail >= 0 {
		host, _, err := net.SplitHostPort(e.me.card.addrs[rail])
		if err != nil {
			return nil, err
		}
		if ip := net.ParseIP(host); ip != nil && !ip.IsUnspecified() {
			d.LocalAddr = &net.TCPAddr{IP: ip}
		}
	}
	return d.DialContext(ctx, "tcp", addr)
}

func closeDialed(all []dialed) {
	for _, d := range all {
		d.nc.Close()
	}
}

// distances are how long an answer takes on each connection: what the system has
// measured, or else what was when it was dialed. Connections between the same
// addresses are equally long. If it is not known of all it is of no use.
func distances(conns []net.Conn, dialed []time.Duration) []time.Duration {
	all := make([]time.Duration, len(conns))
	least := map[string]time.Duration{}
	for i, nc := range conns {
		rtt := roundTrip(nc)
		if rtt == 0 && dialed != nil {
			rtt = dialed[i]
		}
		if rtt == 0 {
			return all
		}
		if old, ok := least[between(nc)]; !ok || rtt < old {
			least[between(nc)] = rtt
		}
	}
	for i, nc := range conns {
		all[i] = least[between(nc)]
	}
	return all
}

// between says which addresses a connection is between.
func between(nc net.Conn) string {
	host := func(a net.Addr) string {
		h, _, err := net.SplitHostPort(a.String())
		if err != nil {
			return a.String()
		}
		return h
	}
	return host(nc.LocalAddr()) + " " + host(nc.RemoteAddr())
}
