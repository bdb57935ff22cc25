package node

import (
	"context"
	"fmt"
	"net/netip"
	"time"

	"github.com/meshmpi/meshmpi/mesh/peer"
	"github.com/meshmpi/meshmpi/tun"
)

// Node is a running node as the program that it runs in sees it. It is of use
// until Run returns.
type Node struct{ d *daemon }

// Self returns the node's own description.
func (n *Node) Self() peer.Node { return n.d.id.self }

// Domain returns the overlay's domain.
func (n *Node) Domain() string { return n.d.id.network.Domain }

// Stack returns the TCP/IP stack of a node with Config.Userspace, else nil.
func (n *Node) Stack() *tun.Stack { return n.d.stack }

// lookupEvery is how often Lookup looks again while no hub has told us yet whom
// the network consists of.
const lookupEvery = 20 * time.Millisecond

// Lookup returns the addresses of a node by its name, with or without site and
// domain, IPv4 first. A name that is unknown is unknown for good once a hub has
// told the network's nodes; before that Lookup waits, as long as ctx lets it.
func (n *Node) Lookup(ctx context.Context, name string) ([]netip.Addr, error) {
	label, site := n.d.split(name)
	for {
		informed := n.d.informed()
		h, ok := names{n.d}.ByName(label)
		switch {
		case ok && (site == "" || h.Site == site):
			return []netip.Addr{h.Addr4, h.Addr6}, nil
		case ok:
			return nil, fmt.Errorf("node: %s is at site %s, not %s", label, h.Site, site)
		case informed:
			return nil, fmt.Errorf("node: no node %s in the network %s; meshctl status lists them", label, n.d.id.network.Name)
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("node: look up %s: no hub answers: %w", label, ctx.Err())
		case <-time.After(lookupEvery):
		}
	}
}

// informed reports whether a hub has told us the network's nodes, and would tell us
// of others. What is remembered of an earlier run does not count.
func (d *daemon) informed() bool { return d.links.told.Load() && d.links.connected() }

// uninformed reports whether there may be nodes that this one has not heard of.
func (d *daemon) uninformed() bool { return d.links != nil && !d.informed() }
