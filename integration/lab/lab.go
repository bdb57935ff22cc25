// Package lab builds small Internets on one Linux machine: hosts with their own
// processes, names, files and networks, LANs, NATs and firewalls in front of
// them, and wide-area links between them. End-to-end tests, benchmarks and the
// demo run meshmpi and unmodified MPI programs on them, and could not tell them
// from real machines.
//
// Everything is anonymous and hangs on this process: network namespaces are
// open files, hosts end when their standard input does. When the process dies,
// by kill -9 even, nothing remains. Nothing is ever made in the machine's own
// network. It runs as root, and without root inside a user namespace (see
// [Main], which every program that uses the lab calls first).
//
// The lab does not limit CPU or memory: all hosts share the machine's.
//
// # Shape
//
//	     ┌───────────── core ─────────────┐        a router: the Internet
//	 wire│                            wire│        package wan, or plain kernel forwarding
//	carrier (only before a NAT)           │        a router, or a second NAT
//	     │                                │
//	  router: NAT, firewall            router      one for each site
//	  └─┬──────┬─ LAN             LAN ─┬─┘
//	   a1     a2                      hub
package lab

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/meshmpi/meshmpi/integration/wan"
)

// Lab is a small Internet that runs. Its methods may be called from any
// goroutine.
type Lab struct {
	cfg     Config
	log     *slog.Logger
	dir     string
	ownsDir bool
	core    *netspace
	wires   *netspace // holds both ends of every site's uplink
	wan     *wanProcess
	sites   []*site
	hosts   []*Host

	probed   sync.Once
	bypasses bool // see Bypasses

	mu    sync.Mutex // guards lines
	lines int        // how many there were
}

// New builds a lab and starts its hosts; Close ends it. ctx bounds the building
// only.
func New(ctx context.Context, cfg Config) (*Lab, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if r := os.Getenv(envRole); r != "" {
		return nil, fmt.Errorf("lab: a lab cannot be built inside %s: the program must call lab.Main first", r)
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	l := &Lab{cfg: cfg, log: cfg.Log}
	start := time.Now()
	if err := l.build(ctx); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	l.log.Info("the lab is up", "sites", len(l.sites), "hosts", len(l.hosts), "took", time.Since(start))
	return l, nil
}

func (l *Lab) build(ctx context.Context) error {
	if err := l.makeDir(); err != nil {
		return err
	}
	var err error
	if l.core, err = newNetspace("core"); err != nil {
		return err
	}
	if l.wires, err = newNetspace("wires"); err != nil {
		return err
	}
	// Wires say nothing of their own.
	if err := l.wires.sysctl(map[string]string{"ipv6.conf.default.disable_ipv6": "1"}); err != nil {
		return err
	}
	if err := l.core.forward(); err != nil {
		return err
	}
	l.wan = &wanProcess{space: l.wires}
	for i, s := range l.cfg.Sites {
		l.addSite(i+1, s)
	}
	g, ctx := errgroup.WithContext(ctx)
	for _, s := range l.sites {
		g.Go(func() error { return s.build(ctx) })
	}
	if err := g.Wait(); err != nil {
		return err
	}
	for _, s := range l.sites {
		if !s.WAN.IsPlain() {
			if err := s.setWAN(s.WAN); err != nil {
				return err
			}
		}
	}
	return nil
}

func (l *Lab) makeDir() (err error) {
	if l.dir = l.cfg.Dir; l.dir == "" {
		l.ownsDir = true
		l.dir, err = os.MkdirTemp("", "meshmpi-lab-")
	} else {
		l.dir, err = filepath.Abs(l.dir)
	}
	if err != nil {
		return fmt.Errorf("lab: %w", err)
	}
	return os.MkdirAll(l.dir, 0o755)
}

// addSite lists a site and its hosts; nothing is made yet.
func (l *Lab) addSite(i int, cfg Site) {
	cfg.Hosts, cfg.Forwards = slices.Clone(cfg.Hosts), slices.Clone(cfg.Forwards)
	s := &site{Site: cfg, lab: l, plan: planSite(i, cfg)}
	l.sites = append(l.sites, s)
	for n, name := range cfg.Hosts {
		h := &Host{
			Name: name, Site: cfg.Name, lab: l, site: s, dir: filepath.Join(l.dir, name),
			Addr4: s.plan.lanAddr(firstHost + n), Addr6: s.plan.lanAddr6(firstHost + n),
		}
		s.hosts = append(s.hosts, h)
		l.hosts = append(l.hosts, h)
	}
}

// Close ends the lab: every process in it is killed, and it returns when they
// are gone. It may be called twice.
func (l *Lab) Close() error {
	var g errgroup.Group
	for _, h := range l.hosts {
		g.Go(h.PowerOff)
	}
	err := g.Wait()
	for _, s := range l.sites {
		s.close()
	}
	if l.wan != nil {
		if l.cfg.Carried != nil {
			total, lost := l.wan.total()
			err = errors.Join(err, lost)
			l.cfg.Carried(total)
		}
		err = errors.Join(err, l.wan.close())
	}
	l.core.close()
	l.wires.close()
	l.core, l.wires, l.sites = nil, nil, nil
	if l.ownsDir {
		err = errors.Join(err, os.RemoveAll(l.dir))
	}
	return err
}

// Dir returns the directory of logs and state, a subdirectory for each host.
func (l *Lab) Dir() string { return l.dir }

// Hosts returns all hosts in the order of the configuration.
func (l *Lab) Hosts() []*Host { return slices.Clone(l.hosts) }

// Host returns the host of that name. It panics if there is none: names are
// the program's own.
func (l *Lab) Host(name string) *Host {
	h, err := l.FindHost(name)
	if err != nil {
		panic(err)
	}
	return h
}

// FindHost returns the host of that name.
func (l *Lab) FindHost(name string) (*Host, error) {
	for _, h := range l.hosts {
		if h.Name == name {
			return h, nil
		}
	}
	return nil, fmt.Errorf("lab: there is no host %q: hosts are %v", name, l.hostNames())
}

func (l *Lab) hostNames() (names []string) {
	for _, h := range l.hosts {
		names = append(names, h.Name)
	}
	return names
}

func (l *Lab) site(name string) (*site, error) {
	var names []string
	for _, s := range l.sites {
		if s.Name == name {
			return s, nil
		}
		names = append(names, s.Name)
	}
	return nil, fmt.Errorf("lab: there is no site %q: sites are %v", name, names)
}

// SetNAT replaces what stands before a site and forgets all its mappings, as a
// new router would. Public sites stay public and private ones private.
func (l *Lab) SetNAT(site string, nat NAT) error {
	s, err := l.site(site)
	if err != nil {
		return err
	}
	return s.setNAT(nat)
}

// ResetNAT restarts a site's router: its mappings are forgotten.
func (l *Lab) ResetNAT(site string) error {
	s, err := l.site(site)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.loadRules()
}

// SetWAN replaces a site's link to the core. Packets under way arrive when they
// were due, unless the link becomes or ceases to be plain.
func (l *Lab) SetWAN(site string, link wan.Link) error {
	s, err := l.site(site)
	if err != nil {
		return err
	}
	return s.setWAN(link)
}

// WANStats returns the counters of a site's link. They are zero while it is plain, and do
// not count what goes in a direction that is, where the lab Bypasses.
func (l *Lab) WANStats(site string) (wan.Stats, error) {
	s, err := l.site(site)
	if err != nil {
		return wan.Stats{}, err
	}
	return l.wan.stats(s.Name)
}

// RecordWAN starts to record what crosses a site's link, for d; the link must not be
// plain. WANRecords returns it (see wan.Records).
func (l *Lab) RecordWAN(site string, d time.Duration) error {
	s, err := l.site(site)
	if err != nil {
		return err
	}
	return l.wan.record(s.Name, d)
}

// WANRecords returns what RecordWAN has recorded so far.
func (l *Lab) WANRecords(site string) (wan.Records, error) {
	s, err := l.site(site)
	if err != nil {
		return wan.Records{}, err
	}
	return l.wan.records(s.Name)
}

// Cut cuts a site off the Internet, and Mend joins it again.
func (l *Lab) Cut(site string) error { return l.cut(site, true) }

// Mend undoes Cut.
func (l *Lab) Mend(site string) error { return l.cut(site, false) }

func (l *Lab) cut(site string, cut bool) error {
	s, err := l.site(site)
	if err != nil {
		return err
	}
	if err := errors.Join(l.wires.setUp(s.nearEnd(), !cut), l.wires.setUp(s.farEnd(), !cut)); err != nil || cut {
		return err
	}
	return s.settle()
}

// PublicAddr returns the address that the Internet sees of a site: its
// translator's, or the zero Addr if its hosts have their own.
func (l *Lab) PublicAddr(site string) (netip.Addr, error) {
	s, err := l.site(site)
	if err != nil {
		return netip.Addr{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case !s.NAT.translates():
		return netip.Addr{}, nil
	case s.NAT == Double:
		return s.plan.carrier, nil
	}
	return s.plan.public, nil
}
