package node

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"syscall"

	"github.com/meshmpi/meshmpi/mesh"
	"github.com/meshmpi/meshmpi/mesh/hub"
	"github.com/meshmpi/meshmpi/relay"
)

// storeFile is the hub's database, in the state directory.
const storeFile = "hub/store.db"

// hubSide is what a hub runs besides being a node.
type hubSide struct {
	*hub.Hub
	relay *relay.Server
}

// startHub opens the store and serves admission and control, if this is a hub.
func (d *daemon) startHub(ctx context.Context, sock *mesh.Socket) error {
	if !d.id.config.Hub {
		return nil
	}
	issuer, err := d.id.dir.LoadIssuer()
	if err != nil {
		return err
	}
	store, err := hub.OpenBolt(d.id.dir.Path(storeFile))
	if err != nil {
		return err
	}
	d.onClose("the hub's store", store)
	fwd := relay.NewServer(relay.ServerConfig{Name: d.id.self.Name, Send: sock.Send, Log: d.log})
	h, err := hub.New(hub.Config{
		Network: d.id.network, Self: d.id.self, Keys: d.id.keys, Chain: d.id.Chain, Issuer: issuer,
		Store: store, Relay: fwd, Advertise: []string{d.id.config.Advertise}, Log: d.log,
	})
	if err != nil {
		return err
	}
	ln, err := listenTCP(sock.Port())
	if err != nil {
		return err
	}
	d.hub = &hubSide{Hub: h, relay: fwd}
	d.group.Go(func() error { return h.Serve(ctx, ln) })
	return nil
}

func listenTCP(port uint16) (net.Listener, error) {
	ln, err := net.Listen("tcp", ":"+strconv.Itoa(int(port)))
	if errors.Is(err, syscall.EADDRINUSE) {
		return nil, fmt.Errorf("node: TCP port %d is in use; stop what holds it (ss -ltnp) or choose another with --listen", port)
	}
	if errors.Is(err, os.ErrPermission) {
		return nil, fmt.Errorf("node: listening on TCP port %d needs CAP_NET_BIND_SERVICE; run meshd as root or choose a port above 1023", port)
	}
	return ln, err
}
