package ice

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/meshmpi/meshmpi/mesh/peer"
)

// classify tells from what STUN servers see how the NAT before us maps
// (RFC 5780 §4.3 with two servers in place of one with two addresses). IPv4
// speaks first: where it is translated, IPv6 hardly ever is, and the reverse is
// rarer still.
func classify(seen []mapping, hosts []netip.AddrPort) behaviour {
	if len(seen) == 0 {
		return natSilent
	}
	f := 1
	for _, m := range seen {
		f = min(f, family(m.mapped.Addr()))
	}
	var translated []mapping
	for _, m := range seen {
		if family(m.mapped.Addr()) != f {
			continue
		}
		if slices.Contains(hosts, m.mapped) {
			continue // a server on our side of the NAT, or there is none
		}
		for _, other := range translated {
			if other.mapped != m.mapped {
				return natVaries
			}
		}
		translated = append(translated, m)
	}
	switch {
	case len(translated) == 0:
		return natNone
	case slices.ContainsFunc(translated, func(m mapping) bool { return m.server.Addr() != translated[0].server.Addr() }):
		return natSteady
	}
	return natUnknown
}

// failure says why an attempt found no path: one line that names the peer, the
// reason and the remedy, and wraps peer.ErrNoPath.
func (a *attempt) failure(to peer.ID, cause error) error {
	if !errors.Is(cause, context.DeadlineExceeded) { // cancelled, closed, superseded, or an agent that would not
		return fmt.Errorf("ice: the attempt to reach %v was ended: %w: %w", to, cause, peer.ErrNoPath)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	return fmt.Errorf("ice: no direct path to %v: %s; forward a UDP port to meshd on either side to get one: %w", to, a.reason(), peer.ErrNoPath)
}

// reason says what is known of why. The caller holds a.mu.
func (a *attempt) reason() string {
	if a.theirs == nil {
		if a.postErr != nil {
			return fmt.Sprintf("the offer could not be signalled (%v)", a.postErr)
		}
		return "the peer did not answer the offer"
	}
	ours, theirs := a.ours.NAT, a.theirs.NAT
	if !a.ours.End && len(a.seen) > 0 {
		ours = classify(a.seen, a.hosts)
	}
	varies := ""
	if ours == natVaries {
		varies = a.variance()
	}
	switch {
	case ours == natVaries && theirs == natVaries:
		return "both NATs map per destination (ours: " + varies + ")"
	case ours == natVaries:
		return "our NAT maps per destination (" + varies + ") and the peer's lets only known ports in"
	case theirs == natVaries:
		return "the peer's NAT maps per destination and ours lets only known ports in"
	case ours == natSilent && theirs == natSilent:
		return "no STUN server answers either side, UDP seems to be blocked"
	case ours == natSilent:
		return "no STUN server answers this node, UDP seems to be blocked here"
	case theirs == natSilent:
		return "no STUN server answers the peer, UDP seems to be blocked there"
	}
	return fmt.Sprintf("none of the %d addresses tried answered, a firewall may stand between", a.sock.checked())
}

// variance cites two servers that see us differently.
func (a *attempt) variance() string {
	for i, m := range a.seen {
		for _, other := range a.seen[:i] {
			if family(m.mapped.Addr()) == family(other.mapped.Addr()) && m.mapped != other.mapped &&
				!slices.Contains(a.hosts, m.mapped) && !slices.Contains(a.hosts, other.mapped) {
				return fmt.Sprintf("%v to %v, %v to %v", other.mapped, other.server, m.mapped, m.server)
			}
		}
	}
	return "not the same to every server"
}
