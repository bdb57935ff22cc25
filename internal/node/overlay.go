package node

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"strconv"

	"github.com/meshmpi/meshmpi/ice"
	"github.com/meshmpi/meshmpi/internal/node/metrics"
	"github.com/meshmpi/meshmpi/mesh"
	"github.com/meshmpi/meshmpi/mesh/peer"
	"github.com/meshmpi/meshmpi/tun"
)

// inside is the node's own end of the overlay: the host's kernel by a TUN, or a
// stack in this process.
type inside interface {
	Name() string
	Device() tun.Device
	SetPeerMTU(addrs []netip.Addr, mtu int) error
	SetPeerWindow(addrs []netip.Addr, segments int) error
	Watch(ctx context.Context, changed func()) error
}

var (
	_ inside = (*tun.Host)(nil)
	_ inside = userspace{}
)

// userspace is a stack as the inside of a node.
type userspace struct{ *tun.Stack }

// Name implements inside.
func (userspace) Name() string { return "userspace" }

// Device implements inside.
func (u userspace) Device() tun.Device { return u.Stack }

// SetPeerWindow implements inside; see startMesh.
func (userspace) SetPeerWindow([]netip.Addr, int) error { return nil }

// startInside brings up what the overlay's packets come from and go to.
func (d *daemon) startInside(ctx context.Context) error {
	if !d.cfg.Userspace {
		return d.startHost()
	}
	s, err := tun.NewStack(d.id.self.Addrs(), 0)
	if err != nil {
		return err
	}
	d.host, d.stack = userspace{s}, s
	d.onClose("the userspace stack", s)
	d.onLeave("what the program has sent", func() error { s.Leave(ctx); return nil })
	return nil
}

// startHost brings up the TUN, its addresses, routes and firewall.
func (d *daemon) startHost() error {
	n := d.id.network
	h, err := tun.Open(tun.Config{
		Name: d.cfg.TUN, Addr4: d.id.self.Addr4, Addr6: d.id.self.Addr6, CIDR4: n.CIDR4, CIDR6: n.CIDR6,
		StateDir: d.cfg.State, Log: d.log,
	})
	if err != nil {
		return err
	}
	d.host = h
	d.onClose("the TUN", closeFunc(func() error {
		if d.handedOver() {
			return h.Detach()
		}
		return h.Close()
	}))
	for _, w := range h.Warnings() {
		d.notes.set(w, w)
	}
	if tun.TailscaleDrops(n.CIDR4) {
		const text = "Tailscale's firewall on this host drops packets from %s; run tailscale up --netfilter-mode=off or use another --cidr"
		d.notes.set("tailscale", fmt.Sprintf(text, n.CIDR4))
	}
	return nil
}

// startMesh runs the overlay on the socket and the TUN.
func (d *daemon) startMesh(ctx context.Context, sock *mesh.Socket) error {
	finder := ice.New(ice.Config{
		Send:    func(pkt []byte, to netip.AddrPort) error { return sock.Send([][]byte{pkt}, to) },
		Port:    sock.Port,
		Servers: d.links.stunServers,
		Exclude: func(a netip.Addr) bool {
			a = a.Unmap()
			return d.id.network.CIDR4.Contains(a) || d.id.network.CIDR6.Contains(a)
		},
		NewPath: sock.NewPath,
		Serve:   d.hub != nil,
		Log:     d.log,
	})
	d.onClose("ICE", finder)
	d.counted = append(d.counted, func() []metrics.Drop {
		s := finder.Stats()
		return []metrics.Drop{{Part: "ice", Reason: "attempt full", Count: s.QueueFull}, {Part: "ice", Reason: "too many requests", Count: s.Limited},
			{Part: "ice", Reason: "unsent", Count: s.SendErrors}}
	})
	sock.OnSTUN(finder.Input)
	if d.hub != nil {
		sock.Forward(d.hub.relay)
		if err := sock.AnswerWhereAsked(); err != nil {
			d.log.Warn("answers may come from another address than others have asked", "err", err)
		}
	}
	cfg := mesh.Config{
		Network: d.id.network, Self: d.id.self, WGKey: d.id.keys.WG, Socket: sock, TUN: d.host.Device(),
		Directory: d.dir, Finder: finder, Post: d.links.post, Kernel: !d.cfg.Userspace, Log: d.log,
		PathMTU: func(n peer.Node, mtu int) {
			if err := d.host.SetPeerMTU(n.Addrs(), mtu); err != nil {
				d.log.Warn("cannot set the route's MTU", "node", n.Name, "err", err)
			}
		},
		Remember: func(r []mesh.Recent) {
			d.saved.put(pathsFile, func() error { return d.id.dir.SaveJSON(pathsFile, r, 0o600) })
		},
		PathChanged: func(n peer.Node, i peer.PathInfo) {
			d.events.emit("path", n.Name, fmt.Sprintf("%s %s", i.Kind, i.Where()))
		},
	}
	if d.pacing != nil {
		cfg.Pacer = d.pacing
	}
	if d.pacing != nil && !d.cfg.Userspace { // gVisor's TCP has no say in what it begins with
		d.pacing.first.set = d.host.SetPeerWindow
		cfg.PathRTT = d.pacing.first.path
		d.group.Go(func() error { return d.pacing.first.run(ctx) })
	}
	lan := d.openNative()
	if lan != nil {
		cfg.LAN = lan
	}
	m, err := mesh.New(cfg)
	if err != nil {
		if lan != nil {
			lan.conn.Close()
		}
		return err
	}
	d.mesh = m
	if lan != nil {
		d.group.Go(func() error { return lan.run(ctx, m.Near) })
	}
	d.group.Go(func() error { return m.Run(ctx) })
	d.group.Go(func() error { return d.watchNetwork(ctx) })
	d.group.Go(func() error { return d.saved.run(ctx) })
	return nil
}

// advertisedPort returns the port of HOST:PORT, or 0.
func advertisedPort(hostport string) uint16 {
	_, port, err := net.SplitHostPort(hostport)
	if err != nil {
		return 0
	}
	p, err := strconv.ParseUint(port, 10, 16)
	if err != nil {
		return 0
	}
	return uint16(p)
}
