package node

import (
	"context"
	"time"

	"github.com/meshmpi/meshmpi/tun"
)

// watchAgain is how long to wait before watching anew when the kernel has ended it.
const watchAgain = 5 * time.Second

// Watch implements inside.
func (userspace) Watch(ctx context.Context, changed func()) error { return tun.Watch(ctx, changed) }

// watchNetwork follows the host's network until ctx ends. Where it cannot, the
// node finds out by what stays unanswered, as ever.
func (d *daemon) watchNetwork(ctx context.Context) error {
	for warned := false; ; {
		began := time.Now()
		err := d.host.Watch(ctx, d.networkChanged)
		if ctx.Err() != nil {
			return nil
		}
		worked := time.Since(began) >= watchAgain
		if worked || !warned {
			d.log.Warn("cannot watch the host's network", "err", err)
			warned = true
		}
		select {
		case <-time.After(watchAgain):
		case <-ctx.Done():
			return nil
		}
		if worked {
			d.networkChanged() // unseen, perhaps
		}
	}
}

// networkChanged has everything that goes by the host's addresses look anew:
// relays know us by ours, control sessions may lead nowhere, and there may be
// better ways to peers.
func (d *daemon) networkChanged() {
	d.log.Info("this host's addresses or default routes have changed")
	d.events.emit("network", d.id.self.Name, "addresses or default routes of this host have changed")
	d.links.rebind()
	d.mesh.Recheck()
}
