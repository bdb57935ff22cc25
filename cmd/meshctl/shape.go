package main

import (
	"fmt"
	"strconv"
	"time"

	"github.com/meshmpi/meshmpi/internal/node/api"
)

type shapeCmd struct {
	Show   shapeShowCmd   `cmd:"" default:"1" help:"Show rates, shares, queues, marks and drops (the default)."`
	Set    shapeSetCmd    `cmd:"" help:"Set what this node sends to a site, until taken back or meshd ends."`
	Clear  shapeClearCmd  `cmd:"" help:"Take that back."`
	Weight shapeWeightCmd `cmd:"" help:"Set what this node counts where the shares that idle nodes leave are divided, until meshd ends."`
}

type shapeShowCmd struct{}

func (c *shapeShowCmd) Run(d *deps) error {
	r, err := d.client.Shape(d.ctx)
	if err != nil {
		return err
	}
	return d.show(r, func(p *printer) { printShape(p, r) })
}

type shapeSetCmd struct {
	Site string `arg:"" help:"The site sent to."`
	Rate bits   `arg:"" help:"At most: 100Mb/s, 2.5G, 12.5MB/s."`
}

func (c *shapeSetCmd) Run(d *deps) error {
	return d.setShape(api.ShapeRequest{Site: c.Site, Rate: int64(c.Rate)})
}

type shapeClearCmd struct {
	Site string `arg:"" help:"The site."`
}

func (c *shapeClearCmd) Run(d *deps) error { return d.setShape(api.ShapeRequest{Site: c.Site}) }

// weight is 1 to 255.
type weight int

// UnmarshalText implements encoding.TextUnmarshaler.
func (w *weight) UnmarshalText(text []byte) error {
	n, err := strconv.Atoi(string(text))
	if err != nil || n < 1 || n > 255 {
		return fmt.Errorf("%q is no weight: it is 1 to 255", text)
	}
	*w = weight(n)
	return nil
}

type shapeWeightCmd struct {
	Weight weight `arg:"" help:"1, which every node has, to 255: a node of weight 2 gets twice as much of the link as others, which keep their equal shares."`
}

func (c *shapeWeightCmd) Run(d *deps) error {
	w := int(c.Weight)
	return d.setShape(api.ShapeRequest{Weight: &w})
}

func (d *deps) setShape(req api.ShapeRequest) error {
	r, err := d.client.SetShape(d.ctx, req)
	if err != nil {
		return err
	}
	return d.show(r, func(p *printer) { printShape(p, r) })
}

func printShape(p *printer, r api.ShapeReply) {
	if r.Mode == "off" {
		p.line("nothing is paced: meshd runs with --pace off")
		return
	}
	p.line("shares are %s; %s here", r.Mode, count(r.Nodes, "node"))
	if r.Weight > 1 {
		p.line("this node counts as %d where the shares that idle ones leave are divided", r.Weight)
	}
	if r.Uplink > 0 {
		p.line("to all sites together this node may send %s", about(r.Uplink, 4))
	}
	if r.Measured != nil {
		p.line("the site's uplink carries %s", foundText(r.Measured))
	}
	for _, l := range r.Links {
		if l.Found != nil {
			p.line("the way to site %s carries %s", l.Site, foundText(l.Found))
		}
	}
	p.line("")
	p.row("SITE", "ALL NODES", "SHARE", "RATE", "BECAUSE", "WAITING", "SENT", "MARKED", "DROPPED")
	for _, l := range r.Links {
		now := shareCell(l.Rate, l.Whole)
		if l.Set > 0 {
			now = rateCell(l.Rate)
		}
		p.row(l.Site, rateCell(l.Whole), shareCell(l.Share, l.Whole), now, l.Why, bytesCell(uint64(l.Waiting+l.Queued)), bytesCell(l.Sent), l.Marked, l.Dropped)
	}
	p.line("")
	p.row("NODE", "SITE", "PACKETS WAITING", "SENT", "MARKED", "DROPPED", "LONGEST WAIT")
	for _, l := range r.Links {
		for _, n := range l.Peers {
			p.row(n.Node, l.Site, n.Waiting+n.Queued, bytesCell(n.Sent), n.Marked, n.Dropped, (time.Duration(n.WorstWait+n.WorstQueue) * time.Microsecond).String())
		}
	}
	if len(r.Programs) == 0 {
		return
	}
	p.line("")
	p.row("PROGRAM", "USER", "DOES", "HOSTS HERE", "MATB", "TOLD OF")
	for _, g := range r.Programs {
		p.row(g.PID, g.UID, g.Op, g.Hosts, rateCell(g.MATB), count(int(g.Entered), "operation"))
	}
}

// count says how many there are of something.
func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// bytesCell says a number of bytes in two or three digits.
func bytesCell(n uint64) string {
	v, unit := float64(n), 0
	for units := "kMGTPE"; v >= 999.5 && unit < len(units); unit++ {
		v /= 1000
	}
	if unit == 0 {
		return fmt.Sprintf("%d B", n)
	}
	return fmt.Sprintf("%.3g %cB", v, "kMGTPE"[unit-1])
}
