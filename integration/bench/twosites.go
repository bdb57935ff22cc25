package bench

import (
	"context"
	"fmt"
	"time"

	"github.com/meshmpi/meshmpi/integration/deploy"
	"github.com/meshmpi/meshmpi/integration/lab"
	"github.com/meshmpi/meshmpi/integration/wan"
)

// twoSites is a network of two sites behind NATs with a WAN between.
type twoSites struct {
	net     *deploy.Network
	line    siteLine
	restore func() // what hosts may use of TCP
	a, b    []string
	link    string // the overlay's interface
	mtu     int
}

func (s *twoSites) close() {
	if s.restore != nil {
		s.restore()
	}
	_ = s.net.Lab.Close()
}

func newTwoSites(ctx context.Context, env *Env, name string, l siteLine) (_ *twoSites, err error) {
	s := &twoSites{line: l}
	for i := range siteRanks {
		s.a, s.b = append(s.a, fmt.Sprintf("a%d", i+1)), append(s.b, fmt.Sprintf("b%d", i+1))
	}
	cfg := lab.Config{Sites: []lab.Site{
		{Name: "hubs", Hosts: []string{"hub"}},
		{Name: "alpha", NAT: lab.PortPreserving, Hosts: s.a},
		{Name: "beta", NAT: lab.PortPreserving, Hosts: s.b},
	}}
	// Of two sites what one sends is what the other receives: the way in need not be
	// limited, too.
	line := wan.Link{Up: wan.Pipe{Delay: l.delay, Rate: l.rate, Queue: l.queue}}
	if s.net, err = env.up(ctx, name, cfg.WithWAN(line, "alpha", "beta")); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			s.close()
		}
	}()
	if s.restore, err = allowCubic(); err != nil {
		return nil, err
	}
	if err := useTCP(ctx, "cubic", s.net.Lab.Hosts()...); err != nil { // Linux's default, whatever this machine's is
		return nil, err
	}
	status, err := s.net.Status(ctx, "a1")
	if err != nil {
		return nil, err
	}
	s.link = status.TUN
	if s.mtu, err = linkMTU(ctx, s.net.Lab.Host("a1"), s.link); err != nil {
		return nil, err
	}
	if l.declared {
		if err = declareUplinks(ctx, s.net, l.rate); err != nil {
			return nil, err
		}
	}
	if err = s.direct(ctx); err != nil {
		return nil, err
	}
	return s, s.near(ctx, env)
}

// declareUplinks tells the hub what both sites may send.
func declareUplinks(ctx context.Context, n *deploy.Network, rate int64) error {
	for _, site := range []string{"alpha", "beta"} {
		if _, err := n.Ctl(ctx, "hub", "site", "set", site, "--up", fmt.Sprintf("%dMb/s", rate/1_000_000)); err != nil {
			return err
		}
	}
	return nil
}

// direct waits until all pairs across the sites have direct paths.
func (s *twoSites) direct(ctx context.Context) error {
	for _, a := range s.a {
		for _, b := range s.b {
			if _, err := s.net.AwaitPath(ctx, a, b, "udp", 15*time.Second); err != nil {
				return err
			}
		}
	}
	return nil
}

// dropped returns how many frames the lines' queues have refused.
func (s *twoSites) dropped() (n uint64, err error) {
	for _, site := range []string{"alpha", "beta"} {
		stats, err := s.net.Lab.WANStats(site)
		if err != nil {
			return 0, err
		}
		for _, c := range []wan.Counters{stats.Up, stats.Down} {
			n += c.QueueFull + c.Overrun + c.Refused
		}
	}
	return n, nil
}

// What a packet of a TCP stream needs of its own length and beside it, in bytes: IPv4,
// TCP and its time stamps inside; WireGuard's header and tag, UDP, IPv4 and Ethernet
// outside.
const (
	insidePacket  = 20 + 20 + 12
	outsidePacket = 16 + 16 + 8 + 20 + 14
)

// wireShare is how many bytes a line carries for each of a program's, acknowledgements
// aside, in full packets of the overlay's MTU.
func wireShare(mtu int) float64 {
	return float64(mtu+outsidePacket) / float64(mtu-insidePacket)
}
