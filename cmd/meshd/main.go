// Command meshd is the daemon that makes this machine a node of a network.
//
// It parses flags, turns signals into the end of a context and errors into exit
// codes; everything else is package node's.
package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/alecthomas/kong"
	"github.com/coreos/go-systemd/v22/daemon"
	"github.com/meshmpi/meshmpi/internal/cli"
	"github.com/meshmpi/meshmpi/internal/node"
	"github.com/meshmpi/meshmpi/mesh/token"
	"github.com/meshmpi/meshmpi/mpishim/exec"
)

type commands struct {
	Init    initCmd    `cmd:"" help:"Found a network; this machine becomes its first hub."`
	Join    joinCmd    `cmd:"" help:"Join the network that a token is for."`
	Run     runCmd     `cmd:"" help:"Run the node in the foreground."`
	Restore restoreCmd `cmd:"" help:"Put the host's routes, rules and resolver back after a crash."`
	Resign  resignCmd  `cmd:"" help:"Have the network's root sign a new issuer for this hub, once in five years."`
}

// stateFlag is what every command takes.
type stateFlag struct {
	State string `help:"State directory (default: $$MESH_STATE, else ${state})." placeholder:"DIR"`
}

func main() {
	if len(os.Args) > 1 && os.Args[1] == node.ExecSession {
		os.Exit(node.RunExecSession())
	}
	var c commands
	cli.Run("meshd", "The meshmpi node daemon.", &c, kong.Vars{"state": node.DefaultState})
}

type initCmd struct {
	stateFlag
	Name          string `required:"" help:"Name of this node, a DNS label."`
	Site          string `required:"" help:"Name of its site, a DNS label."`
	Advertise     string `required:"" placeholder:"HOST:PORT" help:"Where other nodes reach this one, by UDP and TCP."`
	Network       string `default:"mesh" help:"Name of the network, a DNS label."`
	Domain        string `help:"Domain of the nodes' names (default: NETWORK.internal)."`
	CIDR          string `help:"Virtual IPv4 addresses (default: chosen to overlap nothing on this host)."`
	AllowRootExec bool   `help:"Let root on one node run programs as root on the others."`
}

func (c *initCmd) Run() error {
	opt := node.InitOptions{State: node.StateDir(c.State), Name: c.Name, Site: c.Site,
		Advertise: c.Advertise, Network: c.Network, Domain: c.Domain, CIDR: c.CIDR, AllowRootExec: c.AllowRootExec}
	if err := opt.Check(); err != nil {
		return cli.Usage(err)
	}
	self, network, err := node.Init(opt)
	if err != nil {
		return err
	}
	for _, w := range opt.Warnings() {
		fmt.Fprintf(os.Stderr, "meshd: warning: %s\n", w)
	}
	fmt.Printf("network %s (%s) founded; this is %s at site %s, %s\nstart it with: meshd run%s\n",
		network.Name, network.CIDR4, self.Name, self.Site, self.Addr4, c.suffix())
	return nil
}

func (f stateFlag) suffix() string {
	if f.State == "" {
		return ""
	}
	return " --state " + f.State
}

type joinCmd struct {
	stateFlag
	Name  string `help:"Name of this node (default: the host's name)."`
	Token string `arg:"" optional:"" help:"The token, - for standard input, @FILE (default: $$MESH_TOKEN)."`
}

func (c *joinCmd) Run() error {
	t, err := token.Read(c.Token, os.Stdin, os.Getenv("MESH_TOKEN"))
	switch {
	case errors.Is(err, token.ErrNone):
		return cli.Usage(err)
	case err != nil:
		return err
	}
	if c.Name == "" {
		host, err := os.Hostname()
		if err != nil {
			return fmt.Errorf("this host has no name; give one with --name: %w", err)
		}
		host, _, _ = strings.Cut(host, ".")
		c.Name = strings.ToLower(host)
	}
	opt := node.JoinOptions{State: node.StateDir(c.State), Name: c.Name, Token: t}
	if err := opt.Check(); err != nil {
		return cli.Usage(err)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	self, network, err := node.Join(ctx, opt)
	if err != nil {
		return err
	}
	fmt.Printf("joined network %s as %s at site %s, %s\nstart it with: meshd run%s\n",
		network.Name, self.Name, self.Site, self.Addr4, c.suffix())
	return nil
}

type runCmd struct {
	stateFlag
	Listen    string `placeholder:"[:]PORT" help:"UDP port (a hub's TCP port too; default: the advertised one, else 51820)."`
	PortRange string `placeholder:"A-B" help:"Take the first free UDP port of this range instead."`
	TUN       string `name:"tun" default:"mesh0" help:"Name of the network interface."`
	Pace      string `enum:"live,static,off" default:"live" help:"How to share the declared links of this site with its other nodes: live (what idle ones leave is lent to those that send), static (equal shares), off (nothing is paced)."`
	Native    bool   `default:"true" negatable:"" help:"Use the LAN natively where the site says so; --no-native: never, all is sealed."`
	Metrics   string `placeholder:"ADDR:PORT" help:"Serve metrics for Prometheus there, over HTTP at /metrics (default: nowhere); 127.0.0.1 or the virtual address is advised."`
	Verbose   bool   `short:"v" help:"Log debugging detail."`
}

func (c *runCmd) Run() error {
	ports, err := node.ParsePorts(c.Listen, c.PortRange)
	if err != nil {
		return cli.Usage(err)
	}
	metrics, err := node.ParseMetrics(c.Metrics)
	if err != nil {
		return cli.Usage(err)
	}
	level := slog.LevelInfo
	if c.Verbose {
		level = slog.LevelDebug
	}
	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: level}))

	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	keep := make(chan struct{})
	signals := make(chan os.Signal, 1) // one is enough to stop us
	signal.Notify(signals, exec.Heeded(os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)...)
	defer signal.Stop(signals)
	go func() { // ends with the program
		if s := <-signals; s == syscall.SIGHUP {
			close(keep)
		}
		cancel()
	}()
	err = node.Run(ctx, node.Config{State: node.StateDir(c.State), Ports: ports, TUN: c.TUN, Pace: node.Pace(c.Pace), Sealed: !c.Native, Metrics: metrics, Log: log, Keep: keep,
		Ready: func(*node.Node) {
			log.Info("ready")
			if _, err := daemon.SdNotify(false, daemon.SdNotifyReady); err != nil {
				log.Warn("cannot tell systemd", "err", err)
			}
		}})
	if errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

type restoreCmd struct {
	stateFlag
}

func (c *restoreCmd) Run() error {
	changed, err := node.Restore(node.StateDir(c.State))
	for _, what := range changed {
		fmt.Println(what)
	}
	return err
}

type resignCmd struct {
	stateFlag
	RootKey string `placeholder:"FILE" help:"The root's key, which meshd init made (default: hub/root.key in the state directory)."`
}

func (c *resignCmd) Run() error {
	until, err := node.Resign(node.StateDir(c.State), c.RootKey, time.Now())
	if err != nil {
		return err
	}
	fmt.Printf("this hub may admit nodes and renew their certificates until %s; start it with: meshd run%s\n",
		until.Format(time.DateOnly), c.suffix())
	return nil
}
