package node

import (
	"context"
	"net/netip"
	"slices"
	"time"

	"github.com/meshmpi/meshmpi/dns"
	"github.com/meshmpi/meshmpi/dns/resolver"
	"github.com/meshmpi/meshmpi/internal/node/metrics"
	"github.com/meshmpi/meshmpi/internal/oneline"
	"github.com/meshmpi/meshmpi/mesh/peer"
)

// names is the directory as the name server asks it.
type names struct{ d *daemon }

var _ dns.Directory = names{}

func hostOf(n peer.Node) dns.Host {
	return dns.Host{Name: n.Name, Site: n.Site, Addr4: n.Addr4, Addr6: n.Addr6}
}

// ByName implements dns.Directory.
func (s names) ByName(name string) (dns.Host, bool) {
	if name == s.d.id.self.Name {
		return hostOf(s.d.id.self), true
	}
	r, ok := s.d.dir.ByName(name)
	return hostOf(r.Node), ok && holds(r)
}

// holds reports whether a node's certificate does: nothing reaches it otherwise.
func holds(r peer.Record) bool { return time.Now().Before(r.Node.NotAfter) }

// InSite implements dns.Directory.
func (s names) InSite(site, name string) (dns.Host, bool) {
	h, ok := s.ByName(name)
	return h, ok && h.Site == site
}

// ByAddr implements dns.Directory.
func (s names) ByAddr(a netip.Addr) (dns.Host, bool) {
	if slices.Contains(s.d.id.self.Addrs(), a) {
		return hostOf(s.d.id.self), true
	}
	r, ok := s.d.dir.ByAddr(a)
	return hostOf(r.Node), ok && holds(r)
}

// HasSite implements dns.Directory.
func (s names) HasSite(site string) bool { return site == s.d.id.self.Site || s.d.dir.HasSite(site) }

// startNames serves the overlay's names and has the host's resolver ask us.
func (d *daemon) startNames(ctx context.Context) error {
	var res *resolver.Resolver
	upstreams := func() []netip.AddrPort {
		if res == nil {
			return nil
		}
		return res.Upstreams()
	}
	self := d.id.self
	srv, err := dns.New(dns.Config{
		Domain: d.id.network.Domain, CIDR4: d.id.network.CIDR4, CIDR6: d.id.network.CIDR6, Self: self.Name,
		Directory: names{d}, Upstreams: upstreams, Log: d.log,
		Listen: []netip.AddrPort{dns.Loopback(), netip.AddrPortFrom(self.Addr4, dns.Port), netip.AddrPortFrom(self.Addr6, dns.Port)},
	})
	if err != nil {
		return err
	}
	if err := srv.Listen(); err != nil {
		return err
	}
	res, err = resolver.Install(resolver.Config{
		StateDir: d.cfg.State, Server: srv.Addrs()[0].Addr(), Domain: d.id.network.Domain, Site: self.Site,
		Routes: srv.ReverseZones(), Link: d.host.Name(), Log: d.log,
	})
	if err != nil {
		return oneline.Join(err, srv.Close())
	}
	d.counted = append(d.counted, func() []metrics.Drop {
		s := srv.Stats()
		return []metrics.Drop{{Part: "names", Reason: "too many questions", Count: s.Dropped}, {Part: "names", Reason: "too many connections", Count: s.TCPClosed},
			{Part: "names", Reason: "no upstream answers", Count: s.Failed}}
	})
	d.onClose("the host's resolver", closeFunc(func() error {
		if d.handedOver() {
			return nil
		}
		return res.Close()
	}))
	d.group.Go(func() error { return ignoreCancel(srv.Serve(ctx)) })
	d.group.Go(func() error { return ignoreCancel(res.Watch(ctx)) })
	return nil
}
