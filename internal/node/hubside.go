package node

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strconv"
	"syscall"
	"time"

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
	ln    net.Listener
	ends  time.Time // of its issuer
}

// openHub opens the store and the TCP port, if this is a hub.
func (d *daemon) openHub(sock *mesh.Socket) error {
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
	d.onClose("the hub's port", once(ln))
	d.hub = &hubSide{Hub: h, relay: fwd, ln: ln, ends: issuer.Cert.NotAfter}
	if d.port != advertisedPort(d.id.config.Advertise) {
		const text = "this hub listens on port %d and is advertised at %s: other nodes reach it only if that is forwarded here, UDP and TCP"
		d.notes.set("port", fmt.Sprintf(text, d.port, d.id.config.Advertise))
	}
	return nil
}

// serveHub begins to admit nodes and to keep them informed, if this is a hub.
func (d *daemon) serveHub(ctx context.Context) {
	if d.hub != nil {
		d.group.Go(func() error { return d.hub.Serve(ctx, d.hub.ln) })
	}
}

// hubs returns the hubs to keep a session with. A hub's own is reached where it
// listens, which need not be the port that it is known by.
func (d *daemon) hubs() []string {
	list := slices.Clone(d.id.config.Hubs)
	if d.hub == nil {
		return list
	}
	own := loopbackOf(d.id.config.Advertise)
	for i, h := range list {
		if h == own {
			list[i] = net.JoinHostPort("127.0.0.1", strconv.Itoa(int(d.port)))
		}
	}
	return list
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
