package node

import (
	"context"
	"fmt"

	"github.com/meshmpi/meshmpi/shaper/hint"
)

// hintSocket is the socket in the state directory where programs hand over their
// pages; the preload library and package mpi look for it by this name.
const hintSocket = "hints.sock"

// startHints takes what programs on this host say of their traffic.
func (d *daemon) startHints(ctx context.Context) error {
	s, err := hint.Listen(hint.Config{Path: d.id.dir.Path(hintSocket), Log: d.log})
	if err != nil {
		return fmt.Errorf("node: %w", err)
	}
	d.hints = s
	d.tellMaxRate()
	d.onClose("programs' hints", s) // where a later step of starting fails
	d.group.Go(func() error { return s.Serve(ctx) })
	return nil
}

// tellMaxRate tells programs what the link of this site carries.
func (d *daemon) tellMaxRate() {
	if d.hints != nil {
		d.hints.SetMaxRate(d.limits.bandwidth(d.id.self.Site))
	}
}

// asked is what programs ask of a site with so many nodes up: of a program that
// counts more, as one does that guesses, or is wrong, no more of them send.
func (d *daemon) asked(nodes int) hint.Request {
	if d.hints == nil {
		return hint.Request{}
	}
	r := d.hints.Strictest()
	r.Hosts = min(r.Hosts, max(nodes, 1))
	return r
}
