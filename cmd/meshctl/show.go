package main

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/meshmpi/meshmpi/internal/cli"
	"github.com/meshmpi/meshmpi/internal/node/api"
	"github.com/meshmpi/meshmpi/mpishim"
)

// printer writes aligned columns.
type printer struct{ w *tabwriter.Writer }

func (p *printer) line(format string, args ...any) { fmt.Fprintf(p.w, format+"\n", args...) }

func (p *printer) row(cells ...any) {
	for i, c := range cells {
		if i > 0 {
			fmt.Fprint(p.w, "\t")
		}
		fmt.Fprint(p.w, c)
	}
	fmt.Fprintln(p.w)
}

// show prints v as JSON or by the function.
func (d *deps) show(v any, text func(*printer)) error {
	if d.json {
		enc := json.NewEncoder(os.Stdout)
		enc.SetIndent("", "  ")
		return enc.Encode(v)
	}
	p := &printer{tabwriter.NewWriter(os.Stdout, 0, 8, 2, ' ', 0)}
	text(p)
	return p.w.Flush()
}

// done tells of a change that has no more to be said of: text says nothing.
func (d *deps) done(err error) error {
	if err != nil {
		return err
	}
	return d.show(struct {
		Version int `json:"version"`
	}{api.Version}, func(*printer) {})
}

type statusCmd struct{}

func (c *statusCmd) Run(d *deps) error {
	s, err := d.client.Status(d.ctx)
	if err != nil {
		return err
	}
	return d.show(s, func(p *printer) {
		p.line("network %s, domain %s, addresses %s and %s", s.Network, s.Domain, s.CIDR4, s.CIDR6)
		p.line("this is %s at site %s, %s on %s, UDP port %d, certificate until %s",
			s.Self.Name, s.Self.Site, s.Self.Addr4, s.TUN, s.Listen, when(s.CertExpires))
		for _, h := range s.Hubs {
			p.line("hub %s: %s", h.Addr, hubState(h))
		}
		p.line("")
		p.row("NODE", "SITE", "ADDRESS", "ROLE", "STATE", "PATH", "RTT", "MTU")
		for _, n := range s.Nodes {
			kind, rtt, mtu := pathCells(n.Path)
			p.row(n.Name, n.Site, n.Addr4, role(n), nodeState(n), kind, rtt, mtu)
		}
		for _, w := range s.Warnings {
			p.line("warning: %s", w)
		}
	})
}

// hubState tells a session that is up but has been refused something, too.
func hubState(h api.HubStatus) string {
	switch {
	case !h.Up:
		return "down: " + h.Error
	case h.Error != "":
		return "up, " + micros(h.RTT) + ", but " + h.Error
	}
	return "up, " + micros(h.RTT)
}

func role(n api.NodeStatus) string {
	switch {
	case n.Hub:
		return "hub"
	case n.Relay:
		return "relay"
	}
	return "node"
}

func nodeState(n api.NodeStatus) string {
	switch {
	case n.Self:
		return "self"
	case n.Revoked:
		return "revoked"
	case n.Up:
		return "up"
	}
	return "down"
}

// pathCells tells how packets go; a path whose probes nobody answers is told as
// what it is, for the hub or peer at its end may be dead.
func pathCells(p *api.Path) (kind, rtt, mtu string) {
	if p == nil {
		return "-", "-", "-"
	}
	if p.Kind.String() == "none" {
		return "none", "-", "-"
	}
	kind, rtt, mtu = p.Kind.String(), micros(p.RTT), "-"
	if len(p.Via) > 0 {
		kind += " by " + strings.Join(p.Via, ", ")
	}
	if p.Addr != "" {
		kind += " " + p.Addr
	}
	if !p.Works {
		return "no answer (" + kind + ")", "-", "-"
	}
	if p.MTU > 0 {
		mtu = fmt.Sprint(p.MTU)
	}
	return kind, rtt, mtu
}

type pathCmd struct {
	Node string `arg:"" optional:"" help:"A node's name or address."`
}

func (c *pathCmd) Run(d *deps) error {
	r, err := d.client.Paths(d.ctx, c.Node)
	if err != nil {
		return err
	}
	if d.json && c.Node != "" {
		return d.show(struct {
			Version int `json:"version"`
			api.Path
		}{r.Version, r.Paths[0]}, nil)
	}
	return d.show(r, func(p *printer) {
		p.row("NODE", "PATH", "RTT", "MTU", "STANDBY")
		for _, path := range r.Paths {
			kind, rtt, mtu := pathCells(&path)
			var standby []string
			for _, s := range path.Standby {
				standby = append(standby, s.Kind.String())
			}
			p.row(path.Node, kind, rtt, mtu, strings.Join(standby, ", "))
		}
	})
}

type pingCmd struct {
	Node  string `arg:"" help:"A node's name or address."`
	Count int    `short:"c" default:"3" help:"How many times."`
}

func (c *pingCmd) Run(d *deps) error {
	if c.Count < 1 {
		return cli.Usage(fmt.Errorf("--count %d: ask at least once", c.Count))
	}
	var last api.PingReply
	for i := range c.Count {
		if i > 0 {
			select {
			case <-time.After(200 * time.Millisecond):
			case <-d.ctx.Done():
				return d.ctx.Err()
			}
		}
		r, err := d.client.Ping(d.ctx, c.Node)
		if err != nil {
			return err // it has tried for seconds
		}
		last = r
		if !d.json {
			kind, _, _ := pathCells(&r.Path)
			if _, err := fmt.Printf("%s: %s by %s\n", r.Path.Node, micros(r.RTT), kind); err != nil {
				return err
			}
		}
	}
	if d.json {
		return d.show(last, nil)
	}
	return nil
}

type envCmd struct {
	Unset bool `help:"Print what undoes it."`
}

func (c *envCmd) Run(d *deps) error {
	e, err := d.client.Env(d.ctx)
	if err != nil {
		return err
	}
	if d.json {
		return d.show(e, nil)
	}
	o, err := overlay(e, d.state)
	if err != nil {
		return err
	}
	_, err = fmt.Print(mpishim.Exports(o, c.Unset))
	return err
}

type eventsCmd struct{}

func (c *eventsCmd) Run(d *deps) error {
	enc := json.NewEncoder(os.Stdout)
	return d.client.Events(d.ctx, func(e api.Event) error {
		if d.json {
			return enc.Encode(e)
		}
		_, err := fmt.Println(eventLine(e))
		return err
	})
}

// eventLine tells an event with its day: the first that come are of before, perhaps long.
func eventLine(e api.Event) string {
	return fmt.Sprintf("%s %-12s %-12s %s", e.Time.Local().Format(time.DateTime), e.Kind, e.Node, e.Text)
}

func micros(us int64) string {
	return time.Duration(us * int64(time.Microsecond)).String()
}

func when(t time.Time) string {
	if t.IsZero() {
		return "never"
	}
	return t.Local().Format("2006-01-02 15:04")
}

// overlay is what a node says of itself, as launchers must be told.
func overlay(e api.Env, state string) (mpishim.Overlay, error) {
	cidr, err := netip.ParsePrefix(e.CIDR4)
	if err != nil {
		return mpishim.Overlay{}, fmt.Errorf("meshd says its addresses are %q: %w", e.CIDR4, err)
	}
	return mpishim.Overlay{Node: e.Node, Site: e.Site, TUN: e.TUN, CIDR: cidr, BinDir: e.BinDir, StateDir: state}, nil
}
