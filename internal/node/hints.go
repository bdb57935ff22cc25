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
	d.onClose("programs' hints", s) // where a later step of starting fails
	d.group.Go(func() error { return s.Serve(ctx) })
	return nil
}
