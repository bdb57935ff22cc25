package main

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/meshmpi/meshmpi/internal/cli"
	"github.com/meshmpi/meshmpi/internal/node/api"
	"github.com/meshmpi/meshmpi/internal/rate"
)

type siteCmd struct {
	List siteListCmd `cmd:"" help:"List the sites, their nodes and their limits."`
	Set  siteSetCmd  `cmd:"" help:"Say what a site's uplink and downlink carry, and whether its LAN is trusted (on a hub)."`
	Link siteLinkCmd `cmd:"" help:"Say what the way between two sites carries (on a hub)."`
}

// bits is a rate on the command line, in bits per second; 0: not given.
type bits int64

// UnmarshalText implements encoding.TextUnmarshaler.
func (b *bits) UnmarshalText(text []byte) error {
	r, err := rate.Parse(string(text))
	*b = bits(r)
	return err
}

// limit is a rate on the command line, or "measured".
type limit struct {
	bits
	measured bool
}

// UnmarshalText implements encoding.TextUnmarshaler.
func (l *limit) UnmarshalText(text []byte) error {
	if string(text) == "measured" {
		*l = limit{measured: true}
		return nil
	}
	*l = limit{}
	if err := l.bits.UnmarshalText(text); err != nil {
		return fmt.Errorf("%w, or measured", err)
	}
	return nil
}

// given reports whether it was on the command line.
func (l limit) given() bool { return l != limit{} }

type siteListCmd struct{}

func (c *siteListCmd) Run(d *deps) error {
	r, err := d.client.Sites(d.ctx)
	if err != nil {
		return err
	}
	return d.show(r, func(p *printer) { printSites(p, r, func(api.SiteStatus) bool { return true }) })
}

type siteSetCmd struct {
	Site   string `arg:"" help:"The site."`
	Up     limit  `placeholder:"RATE" help:"What it can send to others: 100Mb/s, 2.5G, 12.5MB/s, or measured: its nodes are to find it."`
	Down   limit  `placeholder:"RATE" help:"What it can receive from others, or measured: nodes that send there are to find it."`
	Native toggle `placeholder:"on|off" help:"Whether its nodes reach each other over their LAN: at its full speed, but in clear. Whoever is on that LAN can then read and forge what they say."`
	Clear  bool   `help:"Take all of it back."`
}

// toggle is on or off on the command line; nil: not given.
type toggle struct{ on *bool }

// UnmarshalText implements encoding.TextUnmarshaler.
func (t *toggle) UnmarshalText(text []byte) error {
	on := string(text) == "on"
	if !on && string(text) != "off" {
		return fmt.Errorf("%q is neither on nor off", text)
	}
	t.on = &on
	return nil
}

func (c *siteSetCmd) Run(d *deps) error {
	given := c.Up.given() || c.Down.given() || c.Native.on != nil
	switch {
	case c.Clear && given:
		return cli.Usage(errors.New("--clear takes all back that is set for the site; give it without --up, --down and --native"))
	case !c.Clear && !given:
		return cli.Usage(errors.New("give --up RATE, --down RATE or --native on|off, such as --up 100Mb/s, or --clear"))
	}
	r, err := d.client.SetSite(d.ctx, api.SiteRequest{
		Site: c.Site, Up: int64(c.Up.bits), Down: int64(c.Down.bits), MeasureUp: c.Up.measured, MeasureDown: c.Down.measured, Native: c.Native.on, Clear: c.Clear,
	})
	if err != nil {
		return err
	}
	return d.showSites(r, c.Site)
}

type siteLinkCmd struct {
	A         string `arg:"" help:"A site."`
	B         string `arg:"" help:"Another."`
	Bandwidth limit  `placeholder:"RATE" help:"What it carries in either direction: 100Mb/s, 2.5G, 12.5MB/s, or measured: both sites are to find it."`
	Clear     bool   `help:"Take it back."`
}

func (c *siteLinkCmd) Run(d *deps) error {
	switch {
	case c.A == c.B:
		return cli.Usage(fmt.Errorf("a link is between two sites, not from %q to itself", c.A))
	case c.Clear && c.Bandwidth.given():
		return cli.Usage(errors.New("--clear takes the limit back; give it without --bandwidth"))
	case !c.Clear && !c.Bandwidth.given():
		return cli.Usage(errors.New("give --bandwidth RATE, such as --bandwidth 100Mb/s, or --clear"))
	}
	r, err := d.client.SetLink(d.ctx, api.LinkRequest{A: c.A, B: c.B, Bandwidth: int64(c.Bandwidth.bits), Measure: c.Bandwidth.measured, Clear: c.Clear})
	if err != nil {
		return err
	}
	return d.showSites(r, c.A, c.B)
}

// showSites shows what holds after a change: of the named sites, as text. A name
// without a node may be one that is still to come, or a slip.
func (d *deps) showSites(r api.SitesReply, names ...string) error {
	return d.show(r, func(p *printer) {
		printSites(p, r, func(s api.SiteStatus) bool { return slices.Contains(names, s.Site) })
		for _, name := range names {
			if !slices.ContainsFunc(r.Sites, func(s api.SiteStatus) bool { return s.Site == name && s.Nodes > 0 }) {
				p.line("site %s has no node yet", name)
			}
		}
	})
}

// printSites prints a line for every site that is wanted.
func printSites(p *printer, r api.SitesReply, wanted func(api.SiteStatus) bool) {
	p.row("SITE", "NODES UP", "UPLINK", "DOWNLINK", "NATIVE", "LINKS")
	for _, s := range r.Sites {
		if wanted(s) {
			p.row(s.Site, fmt.Sprintf("%d/%d", s.NodesUp, s.Nodes), limitCell(s.Up, s.MeasureUp, s.Found), limitCell(s.Down, s.MeasureDown, nil), nativeCell(s.Native), linksCell(r.Links, s.Site))
		}
	}
}

func nativeCell(on bool) string {
	if on {
		return "yes"
	}
	return "-"
}

// linksCell tells the limits between one site and others.
func linksCell(links []api.LinkStatus, site string) string {
	var list []string
	for _, l := range links {
		switch site {
		case l.A:
			list = append(list, l.B+" "+limitCell(l.Bandwidth, l.Measure, l.Found))
		case l.B:
			list = append(list, l.A+" "+limitCell(l.Bandwidth, l.Measure, l.Found))
		}
	}
	if list == nil {
		return "-"
	}
	return strings.Join(list, ", ")
}

// limitCell tells a limit, or what was found where it is measured.
func limitCell(bits int64, measured bool, found *api.Found) string {
	switch {
	case !measured:
		return rateCell(bits)
	case found == nil:
		return "measured"
	}
	return foundText(found)
}

// foundText tells a rate that was found, in three digits, and when.
func foundText(f *api.Found) string {
	text := about(f.Rate, 3)
	if f.Age < 0 {
		return text + " measured earlier"
	}
	return fmt.Sprintf("%s measured %v ago", text, (time.Duration(f.Age) * time.Millisecond).Round(time.Second))
}

// about tells a rate in so many digits at most, rounded.
func about(bits int64, digits int) string {
	step, most := int64(1), int64(math.Pow10(digits))
	for r := bits; r >= most; r /= 10 {
		step *= 10
	}
	return rate.Format((bits + step/2) / step * step)
}

// shareCell tells a part of a rate: what is beyond four digits is noise, unless it is the whole.
func shareCell(bits, whole int64) string {
	if bits == 0 || bits == whole {
		return rateCell(bits)
	}
	return about(bits, 4)
}

func rateCell(bits int64) string {
	if bits == 0 {
		return "-"
	}
	return rate.Format(bits)
}
