package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/meshmpi/meshmpi/integration/lab"
	"github.com/meshmpi/meshmpi/integration/wan"
)

// link is a symmetric link in flags.
type link struct {
	Delay     time.Duration `help:"One-way delay between the site and the Internet's core; from site to site it counts twice."`
	Rate      float64       `help:"Mb/s each way; 0: unlimited."`
	Queue     int           `help:"Bytes that may wait for the rate; 0: 50 ms."`
	Loss      float64       `help:"Per cent of packets lost each way."`
	BlackHole int           `help:"Packets longer than this many bytes vanish; 0: none."`
}

func (l link) wan() wan.Link {
	return wan.Symmetric(wan.Pipe{
		Delay: l.Delay, Rate: int64(l.Rate * 1e6), Queue: l.Queue, Loss: l.Loss / 100, BlackHole: l.BlackHole,
	})
}

// kinds lists the NATs there are.
func kinds() string {
	var names []string
	for n := lab.None; n <= lab.SSHOnly; n++ {
		names = append(names, n.String())
	}
	return "Kinds: " + strings.Join(names, ", ") + "."
}

type upCmd struct {
	Topology string `default:"two-sites" enum:"two-sites,one-lan" help:"two-sites: a public hub and the sites alpha (a1, a2) and beta (b1, b2); one-lan: a1 and a2."`
	NAT      string `default:"port-preserving" help:"What stands before the sites alpha and beta; see lab nat --help."`
	IPv6     bool   `name:"ipv6" help:"Give hosts global IPv6 addresses too."`
	Dir      string `help:"Keep logs and the hosts' /var/lib/meshd there; by default they go with the lab."`
	Verbose  bool   `short:"v" help:"Log what is done."`
	link
	Command []string `arg:"" optional:"" passthrough:"" help:"Run this on the machine, beside the lab, and end with it. It finds the lab through MESHMPI_LAB."`
}

func (u upCmd) config() (lab.Config, error) {
	cfg := lab.OneLAN()
	if u.Topology == "two-sites" {
		nat, err := lab.ParseNAT(u.NAT)
		if err != nil {
			return cfg, err
		}
		cfg = lab.TwoSites(nat).WithWAN(u.link.wan(), "alpha", "beta")
	}
	level := slog.LevelWarn
	if u.Verbose {
		level = slog.LevelDebug
	}
	cfg = cfg.With(func(s *lab.Site) { s.IPv6 = u.IPv6 })
	cfg.Dir = u.Dir
	cfg.Log = slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: level}))
	return cfg, nil
}

func (u upCmd) Run(ctx context.Context, c *cli) error {
	lab.Main()
	cfg, err := u.config()
	if err != nil {
		return err
	}
	l, err := lab.New(ctx, cfg)
	if err != nil {
		return err
	}
	g, ctx := errgroup.WithContext(ctx)
	ctx, cancel := context.WithCancel(ctx)
	g.Go(func() error { return l.Serve(ctx, c.Name) })
	g.Go(func() error {
		defer cancel()
		if len(u.Command) > 0 {
			return beside(ctx, c.Name, u.Command)
		}
		fmt.Print(l.Picture())
		fmt.Printf("\nIn other terminals: %[1]s sh a1, %[1]s run a1 -- ping -c1 a2's address, %[1]s --help. End with ^C.\n", os.Args[0])
		<-ctx.Done()
		return nil
	})
	err = g.Wait()
	return errors.Join(err, l.Close())
}

// beside runs a command on the machine.
func beside(ctx context.Context, name string, args []string) error {
	if args[0] == "--" {
		args = args[1:]
	}
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Env = append(os.Environ(), "MESHMPI_LAB="+name)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 5 * time.Second
	return cmd.Run()
}
