package node

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/meshmpi/meshmpi/mesh"
	"github.com/meshmpi/meshmpi/mesh/udp"
	"github.com/meshmpi/meshmpi/tun"
	"golang.org/x/sync/errgroup"
)

// blindHost cannot watch.
type blindHost struct{ userspace }

func (blindHost) Watch(context.Context, func()) error { return errors.New("no netlink here") }

// TestBlindHost: where the host's network cannot be watched, a node must not take
// it for changed every five seconds.
func TestBlindHost(t *testing.T) {
	d := knowing()
	d.log = slog.New(slog.DiscardHandler)
	d.host = blindHost{}
	sock := must(mesh.NewSocket(udp.Ports{}))(t)
	stack := must(tun.NewStack(d.id.self.Addrs(), 0))(t)
	d.mesh = must(mesh.New(mesh.Config{Network: d.id.network, Self: d.id.self, Socket: sock, TUN: stack, Directory: d.dir}))(t)
	ctx, cancel := context.WithTimeout(t.Context(), 2*watchAgain+time.Second)
	defer cancel()
	d.group = new(errgroup.Group)
	d.group.Go(func() error { return d.mesh.Run(ctx) })
	d.links = newLinks(d, sock)
	n := 0
	tail := d.events.listen()
	_ = d.watchNetwork(ctx)
	_ = d.group.Wait()
	stack.Close()
	for _, e := range tail.take() {
		if e.Kind == "network" {
			n++
		}
	}
	if n > 0 {
		t.Errorf("the network that nobody can see counted as changed %d times", n)
	}
}
