package profile

import (
	"fmt"

	"github.com/meshmpi/meshmpi/mpishim/profile/traffic"
)

// drawnRows is up to how many ranks the matrix is drawn by rank. Larger jobs' is by node;
// of more nodes than that neighbours in a site share a row. More rows nobody could read.
const drawnRows = 192

// titledRows is up to how many rows squares say under the mouse what they are.
const titledRows = 64

// grid is what the matrix shows: ranks, or nodes.
type grid struct {
	m     *traffic.Matrix
	order []int // rows and columns: sites together
	what  string
	each  int // nodes in a row together, else 1
	name  func(i int) string
	node  func(i int) int // the first, of several
}

func (p *Profile) grid() grid {
	if p.ranks.N > drawnRows {
		return p.nodeGrid()
	}
	g := grid{m: p.ranks, what: "rank", each: 1, name: func(i int) string { return fmt.Sprint(i) }, node: func(i int) int { return p.where.node[i] }}
	for s := range p.where.sites {
		for n := range p.Nodes {
			for i := 0; p.where.site[n] == s && i < g.m.N; i++ {
				if g.node(i) == n {
					g.order = append(g.order, i)
				}
			}
		}
	}
	return g
}

// nodeGrid has a row for each node, or for as few of a site as there is room for.
func (p *Profile) nodeGrid() grid {
	each := 1
	row, first := p.rows(each)
	for len(first) > drawnRows && each < len(p.Nodes) {
		each++
		row, first = p.rows(each)
	}
	g := grid{m: p.nodes.Fold(row, len(first)), what: "node", each: each, name: func(i int) string { return p.Nodes[first[i]].Name }, node: func(i int) int { return first[i] }}
	for i := range first {
		g.order = append(g.order, i)
	}
	return g
}

// rows puts so many nodes of a site after each other in a row: it returns each node's
// row, and each row's first node.
func (p *Profile) rows(each int) (row, first []int) {
	row = make([]int, len(p.Nodes))
	for s := range p.where.sites {
		seen := 0 // of the site
		for n := range p.Nodes {
			if p.where.site[n] != s {
				continue
			}
			if seen%each == 0 {
				first = append(first, n)
			}
			row[n] = len(first) - 1
			seen++
		}
	}
	return row, first
}

// at is what is drawn in a square: a rank's or node's own traffic is not.
func (g grid) at(i, j int) uint64 {
	if i == j && g.each == 1 {
		return 0
	}
	return g.m.At(i, j)
}

// title says what the matrix shows.
func (g grid) title() string {
	if g.each > 1 {
		return fmt.Sprintf("Bytes from node to node, up to %d of a site in a row", g.each)
	}
	return "Bytes from " + g.what + " to " + g.what
}

// Matrix draws who sent how much to whom as SVG: senders in rows, receivers in
// columns, by site and node, with colours for the logarithm of bytes.
func (p *Profile) Matrix() string {
	const top, bands, right = 74, 46, 150
	g := p.grid()
	n := float64(len(g.order))
	side := min(46, max(3.5, 620/n))
	labels := 34.0
	if g.what == "node" {
		labels = 70
	}
	left := 30 + bands + labels
	size0 := side * n
	c := newCanvas(max(left+size0+right, 680), top+bands+labels+max(size0, 220)+40)
	c.text(24, 30, start, g.title(), style{size: 18, bold: true})
	c.text(24, 50, start, fit(p.Program+" · "+p.headline()+" · "+p.Pattern.Name, 12, c.w-40), style{fill: faint})
	x0, y0 := left, top+bands+labels
	scale := p.cells(c, g, x0, y0, side)
	p.bands(c, g, x0, y0, side, labels)
	c.legend(x0+size0+30, y0+16, max(120, min(size0-50, 260)), scale, "bytes, log scale", size)
	c.text(x0+size0/2, y0-labels-bands+8, middle, "to", style{size: 12, fill: faint})
	c.text(x0-labels-bands+2, y0+size0/2, middle, "from", style{size: 12, fill: faint, rotate: -90})
	return c.String()
}

// cells draws the squares.
func (p *Profile) cells(c *canvas, g grid, x0, y0, side float64) logScale {
	var least, most uint64
	for i := range g.m.N {
		for j := range g.m.N {
			if n := g.at(i, j); n > 0 {
				if least == 0 || n < least {
					least = n
				}
				most = max(most, n)
			}
		}
	}
	scale := newLogScale(least, most)
	n := len(g.order)
	c.rect(x0, y0, side*float64(n), side*float64(n), empty, "")
	if n <= titledRows {
		g.titled(c, x0, y0, side, scale)
	} else {
		c.squares(x0, y0, side, n, func(row, col int) string {
			if bytes := g.at(g.order[row], g.order[col]); bytes > 0 {
				return scale.colour(bytes)
			}
			return ""
		})
	}
	if g.each == 1 { // the diagonal is nobody's traffic
		for r := range g.order {
			x, y := x0+side*float64(r), y0+side*float64(r)
			c.line(x, y, x+side, y+side, "#cbd2d9", 1, "")
		}
	}
	return scale
}

// titled draws squares that say what they are.
func (g grid) titled(c *canvas, x0, y0, side float64, scale logScale) {
	for r, i := range g.order {
		for k, j := range g.order {
			bytes := g.at(i, j)
			if bytes == 0 {
				continue
			}
			x, y := x0+side*float64(k), y0+side*float64(r)
			c.rect(x, y, side, side, scale.colour(bytes), fmt.Sprintf("%s %s → %s: %s", g.what, g.name(i), g.name(j), size(bytes)))
			if side >= 40 {
				fill := ink
				if scale.at(bytes) > 0.5 {
					fill = "#ffffff"
				}
				c.text(x+side/2, y+side/2+3.5, middle, size(bytes), style{size: 9.5, fill: fill})
			}
		}
	}
}

// run is rows that belong together.
type run struct {
	from, to int
	of       int
}

func runs(order []int, of func(i int) int) (list []run) {
	for at, i := range order {
		if k := len(list) - 1; k >= 0 && list[k].of == of(i) {
			list[k].to = at + 1
		} else {
			list = append(list, run{at, at + 1, of(i)})
		}
	}
	return list
}

// bands draws the lines between nodes and sites, and their names on both sides.
func (p *Profile) bands(c *canvas, g grid, x0, y0, side, labels float64) {
	whole := side * float64(len(g.order))
	for _, r := range runs(g.order, g.node) {
		from, to := side*float64(r.from), side*float64(r.to)
		if r.from > 0 && side >= 5 {
			c.line(x0+from, y0, x0+from, y0+whole, "#ffffff", 1.5, "")
			c.line(x0, y0+from, x0+whole, y0+from, "#ffffff", 1.5, "")
		}
		if name := p.Nodes[r.of].Name; g.what == "rank" && to-from >= 11 {
			c.text(x0+(from+to)/2, y0-labels-4, middle, fit(name, 11, to-from), style{size: 11, fill: faint})
			c.text(x0-labels-4, y0+(from+to)/2, middle, fit(name, 11, to-from), style{size: 11, fill: faint, rotate: -90})
		}
	}
	for _, r := range runs(g.order, func(i int) int { return p.where.site[g.node(i)] }) {
		from, to := side*float64(r.from), side*float64(r.to)
		name, fill := p.where.sites[r.of], sitePalette(r.of)
		c.rect(x0+from+1, y0-labels-30, to-from-2, 14, fill, "site "+name)
		c.rect(x0-labels-30, y0+from+1, 14, to-from-2, fill, "site "+name)
		c.text(x0+(from+to)/2, y0-labels-19, middle, fit(name, 11, to-from-4), style{size: 11, fill: "#ffffff", bold: true})
		c.text(x0-labels-19, y0+(from+to)/2, middle, fit(name, 11, to-from-4), style{size: 11, fill: "#ffffff", bold: true, rotate: -90})
		if r.from > 0 {
			c.line(x0+from, y0-labels-30, x0+from, y0+whole, ink, 1.5, "")
			c.line(x0-labels-30, y0+from, x0+whole, y0+from, ink, 1.5, "")
		}
	}
	c.line(x0, y0, x0+whole, y0, faint, 1, "")
	c.line(x0, y0, x0, y0+whole, faint, 1, "")
	for at, i := range g.order {
		every := int(13/side) + 1
		if at%every != 0 {
			continue
		}
		mid := side * (float64(at) + 0.5)
		c.text(x0-6, y0+mid+4, end, fit(g.name(i), 11, labels-6), style{size: 11})
		if g.what == "rank" && side >= 13 {
			c.text(x0+mid, y0-6, middle, g.name(i), style{size: 11})
		} else {
			c.text(x0+mid+4, y0-6, start, fit(g.name(i), 11, labels-6), style{size: 11, rotate: -90})
		}
	}
}
