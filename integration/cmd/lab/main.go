// Command lab brings a small Internet up on this machine, so that meshmpi and
// MPI programs can be tried by hand: `lab up` in one terminal, `lab sh a1` in
// others. It needs root, or a system that lets users make namespaces, and ends
// without a trace on ^C.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"time"

	"github.com/alecthomas/kong"

	"github.com/meshmpi/meshmpi/integration/lab"
)

type cli struct {
	Name string `default:"lab" env:"MESHMPI_LAB" help:"Name of the lab, if there are several."`

	Up    upCmd    `cmd:"" help:"Bring a lab up until ^C, or for the duration of a command."`
	Sh    shCmd    `cmd:"" help:"Open a shell on a host."`
	Run   runCmd   `cmd:"" help:"Run a command on a host."`
	Show  showCmd  `cmd:"" help:"Draw the lab."`
	Nat   natCmd   `cmd:"" help:"Change what stands before a site."`
	Wan   wanCmd   `cmd:"" help:"Change a site's link to the Internet."`
	Stats statsCmd `cmd:"" help:"Show the counters of a site's link as JSON."`
	Fail  failCmd  `cmd:"" help:"Break something: cut, reset (a site), unplug, off (a host)."`
	Mend  mendCmd  `cmd:"" help:"Undo it: mend (a site), plug, boot (a host)."`
}

func main() {
	lab.PlayRole()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	var c cli
	k := kong.Parse(&c, kong.Name("lab"), kong.UsageOnError(), kong.ConfigureHelp(kong.HelpOptions{Compact: true}),
		kong.BindTo(ctx, (*context.Context)(nil)))
	err := k.Run(&c)
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		os.Exit(exitCode(exit))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// exitCode is what a shell reports of an ended program.
func exitCode(e *exec.ExitError) int {
	if st, ok := e.Sys().(syscall.WaitStatus); ok && st.Signaled() {
		return 128 + int(st.Signal())
	}
	return e.ExitCode()
}

// ask asks the lab, and draws it if draw says so.
func (c *cli) ask(ctx context.Context, r lab.Request, draw bool) (lab.Reply, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	reply, err := lab.Ask(ctx, c.Name, r)
	if err == nil && draw {
		fmt.Print(reply.Picture)
	}
	return reply, err
}

type showCmd struct{}

func (showCmd) Run(ctx context.Context, c *cli) error {
	_, err := c.ask(ctx, lab.Request{Op: "show"}, true)
	return err
}

type natCmd struct {
	Site string `arg:""`
	NAT  string `arg:""`
}

// Help lists the kinds.
func (natCmd) Help() string { return kinds() }

func (n natCmd) Run(ctx context.Context, c *cli) error {
	_, err := c.ask(ctx, lab.Request{Op: "nat", Site: n.Site, NAT: n.NAT}, true)
	return err
}

type wanCmd struct {
	Site string `arg:""`
	link
}

func (w wanCmd) Run(ctx context.Context, c *cli) error {
	_, err := c.ask(ctx, lab.Request{Op: "wan", Site: w.Site, Link: w.link.wan()}, true)
	return err
}

type statsCmd struct {
	Site string `arg:""`
}

func (s statsCmd) Run(ctx context.Context, c *cli) error {
	reply, err := c.ask(ctx, lab.Request{Op: "stats", Site: s.Site}, false)
	if err != nil {
		return err
	}
	out := json.NewEncoder(os.Stdout)
	out.SetIndent("", "  ")
	return out.Encode(reply.Stats)
}

type failCmd struct {
	What string `arg:"" enum:"cut,reset,unplug,off"`
	Whom string `arg:"" help:"The site or host."`
}

func (f failCmd) Run(ctx context.Context, c *cli) error {
	_, err := c.ask(ctx, lab.Request{Op: f.What, Site: f.Whom, Host: f.Whom}, true)
	return err
}

type mendCmd struct {
	What string `arg:"" enum:"mend,plug,boot"`
	Whom string `arg:"" help:"The site or host."`
}

func (m mendCmd) Run(ctx context.Context, c *cli) error {
	_, err := c.ask(ctx, lab.Request{Op: m.What, Site: m.Whom, Host: m.Whom}, true)
	return err
}
