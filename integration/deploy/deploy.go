// Package deploy puts meshmpi onto the hosts of a lab with the commands that an
// administrator types, and asks it questions the same way. Tests, the demo and
// the benchmarks share it. It knows no shortcut: what it cannot do with the
// commands, a user cannot do either.
package deploy

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/meshmpi/meshmpi/integration/lab"
	"github.com/meshmpi/meshmpi/internal/node/api"
	"golang.org/x/sync/errgroup"
)

// Port is where the daemons listen.
const Port = "51820"

// Options say how the network is founded. The zero value is a good default.
type Options struct {
	Bin      string   // directory of the binaries; required
	Hub      string   // host that founds the network; "": "hub" if there is one, else the first
	InitArgs []string // more flags for meshd init
	RunArgs  []string // more flags for meshd run

	Sites map[string]string // hosts whose site in the network is not the lab's
}

// Network is meshmpi running on a lab's hosts.
type Network struct {
	Lab     *lab.Lab
	Hub     *lab.Host
	opt     Options
	daemons map[string]*lab.Daemon
}

// Up founds a network on the hub, has every other host join it with a token of
// its site, and starts all daemons. It returns when every node knows all others.
func Up(ctx context.Context, l *lab.Lab, opt Options) (*Network, error) {
	n := &Network{Lab: l, opt: opt, daemons: map[string]*lab.Daemon{}}
	if err := n.pickHub(); err != nil {
		return nil, err
	}
	if err := n.Found(ctx); err != nil {
		return nil, err
	}
	if err := n.Run(ctx, n.Hub.Name); err != nil {
		return nil, err
	}
	g, gctx := errgroup.WithContext(ctx)
	tokens := map[string]string{}
	for _, h := range l.Hosts() {
		if h == n.Hub {
			continue
		}
		site := h.Site
		if s := opt.Sites[h.Name]; s != "" {
			site = s
		}
		if tokens[site] == "" {
			t, err := n.Token(ctx, site, 16)
			if err != nil {
				return nil, err
			}
			tokens[site] = t
		}
		token := tokens[site]
		g.Go(func() error { return n.Join(gctx, h.Name, token) })
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	for _, h := range l.Hosts() {
		if h != n.Hub {
			if err := n.Run(ctx, h.Name); err != nil {
				return nil, err
			}
		}
	}
	return n, n.Settled(ctx)
}

func (n *Network) pickHub() error {
	hosts := n.Lab.Hosts()
	if len(hosts) == 0 {
		return errors.New("deploy: the lab has no hosts")
	}
	n.Hub = hosts[0]
	for _, h := range hosts {
		if h.Name == n.opt.Hub || n.opt.Hub == "" && h.Name == "hub" {
			n.Hub = h
		}
	}
	return nil
}

// Tool returns the path of one of our binaries.
func (n *Network) Tool(name string) string { return filepath.Join(n.opt.Bin, name) }

// Found founds the network on the hub.
func (n *Network) Found(ctx context.Context) error {
	args := append([]string{"init", "--name", n.Hub.Name, "--site", n.Hub.Site,
		"--advertise", net.JoinHostPort(n.Hub.Addr4.String(), Port)}, n.opt.InitArgs...)
	_, err := n.Hub.Run(ctx, n.Tool("meshd"), args...)
	return err
}

// Token makes a token on the hub.
func (n *Network) Token(ctx context.Context, site string, uses int) (string, error) {
	out, err := n.Hub.Run(ctx, n.Tool("meshctl"), "token", "create", "--site", site, "--uses", fmt.Sprint(uses))
	return strings.TrimSpace(out), err
}

// Join has a host join, under its own name.
func (n *Network) Join(ctx context.Context, host, token string) error {
	_, err := n.Lab.Host(host).Run(ctx, n.Tool("meshd"), "join", token)
	return err
}

// Run starts a host's daemon and waits until it is ready.
func (n *Network) Run(ctx context.Context, host string) error {
	d, err := n.Lab.Host(host).Start(n.Tool("meshd"), append([]string{"run", "-v"}, n.opt.RunArgs...)...)
	if err != nil {
		return err
	}
	n.daemons[host] = d
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	if err := d.Await(ctx, "msg=ready"); err != nil {
		return fmt.Errorf("deploy: meshd on %s did not get ready: %w\n%s", host, err, d.Log())
	}
	return nil
}

// SetRunArgs replaces Options.RunArgs for daemons that are started from now on.
func (n *Network) SetRunArgs(args ...string) { n.opt.RunArgs = args }

// Daemon returns a host's daemon as it was last started.
func (n *Network) Daemon(host string) *lab.Daemon { return n.daemons[host] }

// Kill ends a daemon with SIGKILL.
func (n *Network) Kill(host string) {
	n.daemons[host].Kill()
}

// Stop ends a daemon with SIGTERM and waits for it.
func (n *Network) Stop(ctx context.Context, host string) error {
	d := n.daemons[host]
	if err := d.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	select {
	case <-d.Done():
		return d.Wait()
	case <-ctx.Done():
		return fmt.Errorf("deploy: meshd on %s does not stop: %w", host, ctx.Err())
	}
}

// Ctl runs meshctl on a host and returns what it printed.
func (n *Network) Ctl(ctx context.Context, host string, args ...string) (string, error) {
	return n.Lab.Host(host).Run(ctx, n.Tool("meshctl"), args...)
}

// ctlJSON runs meshctl --json on a host and decodes what it printed.
func (n *Network) ctlJSON(ctx context.Context, host string, v any, args ...string) error {
	out, err := n.Ctl(ctx, host, append([]string{"--json"}, args...)...)
	if err != nil {
		return err
	}
	return json.Unmarshal([]byte(out), v)
}

// Status returns a host's view.
func (n *Network) Status(ctx context.Context, host string) (s api.Status, err error) {
	return s, n.ctlJSON(ctx, host, &s, "status")
}

// Sites returns what a host knows of the sites.
func (n *Network) Sites(ctx context.Context, host string) (r api.SitesReply, err error) {
	return r, n.ctlJSON(ctx, host, &r, "site", "list")
}

// Shape returns how a host paces what it sends to other sites.
func (n *Network) Shape(ctx context.Context, host string) (r api.ShapeReply, err error) {
	return r, n.ctlJSON(ctx, host, &r, "shape")
}

// Path is the path from one host to another.
type Path struct {
	Node  string   `json:"node"`
	Kind  string   `json:"kind"`
	Via   []string `json:"via"`
	Addr  string   `json:"addr"`
	RTT   int64    `json:"rtt_us"`
	MTU   int      `json:"mtu"`
	Works bool     `json:"works"`
}

// Path returns how packets go from one host to another now.
func (n *Network) Path(ctx context.Context, from, to string) (p Path, err error) {
	return p, n.ctlJSON(ctx, from, &p, "path", to)
}

// Ping measures a round trip between two hosts' daemons.
func (n *Network) Ping(ctx context.Context, from, to string) (time.Duration, error) {
	var r struct {
		RTT int64 `json:"rtt_us"`
	}
	err := n.ctlJSON(ctx, from, &r, "ping", "-c1", to)
	return time.Duration(r.RTT) * time.Microsecond, err
}

// Addr returns a host's virtual IPv4 address.
func (n *Network) Addr(ctx context.Context, host string) (string, error) {
	s, err := n.Status(ctx, host)
	return s.Self.Addr4, err
}

// Settled waits until every running node sees all others up.
func (n *Network) Settled(ctx context.Context) error {
	return Until(ctx, 15*time.Second, "all nodes see each other", func() (bool, error) {
		for host, d := range n.daemons {
			select {
			case <-d.Done():
				continue
			default:
			}
			s, err := n.Status(ctx, host)
			if err != nil {
				return false, err
			}
			up := 0
			for _, node := range s.Nodes {
				if node.Up {
					up++
				}
			}
			if up < len(n.daemons) {
				return false, nil
			}
		}
		return true, nil
	})
}

// AwaitPath waits until the path from one host to another works and is of the
// kind, pinging meanwhile so that there is a reason to look for one.
func (n *Network) AwaitPath(ctx context.Context, from, to, kind string, within time.Duration) (p Path, err error) {
	var last error
	err = Until(ctx, within, fmt.Sprintf("path %s → %s is %s", from, to, kind), func() (bool, error) {
		if _, last = n.Ping(ctx, from, to); last != nil {
			return false, nil // not yet
		}
		p, err = n.Path(ctx, from, to)
		return err == nil && p.Works && p.Kind == kind, err
	})
	if err != nil {
		err = fmt.Errorf("%w (last: %+v, %v)", err, p, last)
	}
	return p, err
}

// Until polls cond until it holds, fails, or time is over.
func Until(ctx context.Context, within time.Duration, what string, cond func() (bool, error)) error {
	deadline := time.Now().Add(within)
	for {
		ok, err := cond()
		if err != nil || ok {
			return err
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("deploy: not within %v: %s", within, what)
		}
		select {
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
