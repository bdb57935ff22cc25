package profile

import (
	"fmt"
	"slices"
	"strings"
)

// Measures of the timeline, in pixels.
const (
	plotLeft   = 96.0
	plotWidth  = 760.0
	plotTop    = 82.0
	plotHeight = 240.0
	plotRight  = 190.0
	stripGap   = 74.0
	drawnWays  = 8  // series of the upper part
	drawnNodes = 96 // rows of the lower one
)

// TimelineSVG draws when how much was sent as SVG: above, rates by what they go
// between, one on the other; below, a row for each node, of what leaves its site.
func (p *Profile) TimelineSVG() string {
	rows := min(len(p.Timeline.Nodes), drawnNodes)
	rowHeight := min(18, max(5, 320/float64(max(rows, 1))))
	stripTop := plotTop + plotHeight + stripGap
	c := newCanvas(plotLeft+plotWidth+plotRight, stripTop+max(rowHeight*float64(rows), 150)+60)
	c.text(24, 30, start, "What ranks sent over time", style{size: 18, bold: true})
	c.text(24, 50, start, fit(p.Program+" · "+p.headline()+" · "+p.Pattern.Name, 12, c.w-40), style{fill: faint})
	p.rates(c)
	p.strips(c, stripTop, rowHeight, rows)
	return c.String()
}

// way is one layer of the upper part.
type way struct {
	name, fill string
	bits       []float64 // per second, by bucket
}

// ways are the layers, from the ground up: what stays, in grey, then what crosses.
func (p *Profile) ways() (list []way) {
	t := p.Timeline
	grey := []string{"#cbd2d9", "#9aa5b1", "#b8c1cb", "#7b8794"}
	own := 1 + len(p.where.sites)
	cross := 0
	for i, s := range t.Ways {
		if slices.Max(s.Bytes) == 0 {
			continue
		}
		w := way{name: s.Name, bits: make([]float64, len(s.Bytes))}
		for k, n := range s.Bytes {
			w.bits[k] = 8 * float64(n) / t.Width
		}
		if i < own {
			w.fill = grey[i%len(grey)]
		} else {
			w.fill = sitePalette(cross)
			cross++
		}
		list = append(list, w)
	}
	if len(list) <= drawnWays {
		return list
	}
	rest := way{name: fmt.Sprintf("%d more", len(list)-drawnWays+1), fill: "#52606d", bits: make([]float64, len(list[0].bits))}
	for _, w := range list[drawnWays-1:] {
		for k, v := range w.bits {
			rest.bits[k] += v
		}
	}
	return append(list[:drawnWays-1], rest)
}

func (p *Profile) rates(c *canvas) {
	list := p.ways()
	sum := make([]float64, len(p.Timeline.Ways[0].Bytes))
	most := 0.0
	for _, w := range list {
		for k, v := range w.bits {
			sum[k] += v
			most = max(most, sum[k])
		}
	}
	step := ticks(most, 6)
	upper := max(step, step*float64(int(most/step+0.999)))
	bottom := plotTop + plotHeight
	c.text(plotLeft, plotTop-10, start, "rate given to MPI, stacked", style{size: 11, fill: faint})
	for v := 0.0; v <= upper*1.001; v += step {
		y := bottom - plotHeight*v/upper
		c.line(plotLeft, y, plotLeft+plotWidth, y, rule, 1, "")
		c.text(plotLeft-8, y+4, end, bitRate(v), style{size: 11})
	}
	base := make([]float64, len(sum))
	for _, w := range list {
		c.layer(base, w, bottom, plotHeight/upper)
	}
	p.timeAxis(c, bottom)
	for i, w := range slices.Backward(list) {
		y := plotTop + 18*float64(len(list)-1-i)
		c.rect(plotLeft+plotWidth+20, y, 12, 12, w.fill, "")
		c.text(plotLeft+plotWidth+38, y+10, start, fit(w.name, 12, plotRight-44), style{})
	}
}

// bitRate is a rate on an axis.
func bitRate(bits float64) string {
	if bits == 0 {
		return "0"
	}
	s := size(uint64(bits))
	return strings.TrimSuffix(s, "B") + "b/s"
}

// layer draws one way on top of what is below, and adds it to that.
func (c *canvas) layer(base []float64, w way, bottom, perBit float64) {
	dx := plotWidth / float64(len(base))
	var there, back strings.Builder
	for k := range base {
		x, low := plotLeft+dx*float64(k), base[k]
		high := low + w.bits[k]
		letter := "L"
		if k == 0 {
			letter = "M"
		}
		fmt.Fprintf(&there, "%s%s %sH%s", letter, num(x), num(bottom-perBit*high), num(x+dx))
		base[k] = high
	}
	for k := range slices.Backward(base) {
		low := base[k] - w.bits[k]
		fmt.Fprintf(&back, "L%s %sH%s", num(plotLeft+dx*float64(k+1)), num(bottom-perBit*low), num(plotLeft+dx*float64(k)))
	}
	fmt.Fprintf(&c.b, `<path d="%s%sZ" fill="%s"><title>%s</title></path>`+"\n", there.String(), back.String(), w.fill, escape(w.name))
}

func (p *Profile) timeAxis(c *canvas, y float64) {
	whole := p.Timeline.Width * float64(len(p.Timeline.Ways[0].Bytes))
	c.line(plotLeft, y, plotLeft+plotWidth, y, faint, 1, "")
	step := ticks(whole, 8)
	for i := 0; float64(i)*step <= whole*1.0001; i++ {
		v := float64(i) * step
		x := plotLeft + plotWidth*v/whole
		c.line(x, y, x, y+5, faint, 1, "")
		label := "0"
		if i > 0 {
			label = seconds(v)
		}
		c.text(x, y+18, middle, label, style{size: 11})
	}
	c.text(plotLeft+plotWidth/2, y+34, middle, "since MPI_Init, in steps of "+seconds(p.Timeline.Width), style{size: 11, fill: faint})
}

// strips draws a row of colours for each node, the sites one below the other.
func (p *Profile) strips(c *canvas, top, height float64, rows int) {
	what := "bytes that leave the site, by node"
	if len(p.where.sites) == 1 {
		what = "bytes that leave the node"
	}
	if rows < len(p.Nodes) {
		what += fmt.Sprintf(", the first %d of %d", rows, len(p.Nodes))
	}
	c.text(plotLeft, top-10, start, what, style{size: 11, fill: faint})
	var least, most uint64
	for _, s := range p.Timeline.Nodes {
		for _, n := range s.Bytes {
			if n > 0 && (least == 0 || n < least) {
				least = n
			}
			most = max(most, n)
		}
	}
	scale := newLogScale(least, most)
	g := grid{node: func(i int) int { return i }}
	for s := range p.where.sites {
		for n := range p.Nodes {
			if p.where.site[n] == s && len(g.order) < rows {
				g.order = append(g.order, n)
			}
		}
	}
	for at, n := range g.order {
		y := top + height*float64(at)
		p.strip(c, p.Timeline.Nodes[n], y, height, scale)
		if every := int(11/height) + 1; at%every == 0 {
			c.text(plotLeft-22, y+height/2+4, end, fit(p.Nodes[n].Name, 11, plotLeft-30), style{size: min(11, height)})
		}
	}
	for _, r := range runs(g.order, func(i int) int { return p.where.site[i] }) {
		y := top + height*float64(r.from)
		c.rect(plotLeft-16, y+1, 10, height*float64(r.to-r.from)-2, sitePalette(r.of), "site "+p.where.sites[r.of])
		if r.from > 0 {
			c.line(plotLeft-16, y, plotLeft+plotWidth, y, ink, 1.5, "")
		}
	}
	p.timeAxis(c, top+height*float64(len(g.order)))
	p.siteKey(c, top)
	c.legend(plotLeft+plotWidth+20, top+16+18*float64(min(len(p.where.sites), 6)), 96, scale, "bytes a step, log scale", size)
}

// siteKey names the sites' colours.
func (p *Profile) siteKey(c *canvas, top float64) {
	for i, s := range p.where.sites[:min(len(p.where.sites), 6)] {
		y := top - 18 + 18*float64(i)
		c.rect(plotLeft+plotWidth+20, y, 10, 12, sitePalette(i), "")
		c.text(plotLeft+plotWidth+38, y+10, start, fit("site "+s, 12, plotRight-44), style{})
	}
}

// strip is one row; steps of the same colour are one rectangle.
func (p *Profile) strip(c *canvas, s Series, y, height float64, scale logScale) {
	c.rect(plotLeft, y, plotWidth, height-1, empty, s.Name)
	dx := plotWidth / float64(len(s.Bytes))
	for k, n := range s.Bytes {
		if n > 0 {
			c.rect(plotLeft+dx*float64(k), y, dx+0.2, height-1, scale.colour(n), "")
		}
	}
}
