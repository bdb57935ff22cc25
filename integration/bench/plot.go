package bench

import (
	"fmt"
	"html"
	"math"
	"os"
	"path/filepath"
	"strings"
)

// plot draws lines over time as SVG: panels, one over the other, on one time
// axis. It is written by hand, so that what stands in the document is small, can be
// compared line by line, and needs nothing to be read; its colours follow the
// reader's preference for light or dark.
type plot struct {
	title  string
	x      string // what the horizontal axis is, with its unit
	panels []panel
}

// panel is one diagram.
type panel struct {
	y     string // what the vertical axis is, with its unit
	lines []line
	top   float64 // of the vertical axis; 0: what the lines need
	marks []moment
	own   bool // its time axis is its lines' alone, not all panels': a part of another, larger
}

// line is a series of values that hold from their x to the next one's.
type line struct {
	name string // for the legend; "" for none
	x, y []float64
	look look
}

// look is how a line is drawn.
type look uint8

const (
	step look = iota // a line of steps
	area             // steps, filled down to the axis
	dash             // steps, thin and dashed: what is expected, or a limit
)

// moment is a point of time with a name.
type moment struct {
	x    float64
	name string
}

// Sizes in SVG's units, and how many colours there are; lines take them in turn.
const (
	plotWidth, panelHeight     = 960.0, 240.0
	plotLeft, plotRight        = 64.0, 16.0
	plotTop, panelGap, plotEnd = 34.0, 46.0, 44.0
	plotColours                = 6
)

// plotStyle has each colour twice, for light and dark; all differ in lightness too.
const plotStyle = `<style>
svg{background:#fff;font:12px system-ui,sans-serif}
text{fill:#222}.t{font-size:15px;font-weight:600}.a{stroke:#555;fill:none}.g{stroke:#ddd}.m{stroke:#888;stroke-dasharray:2 3}
.l{fill:none;stroke-width:1.4;stroke-linejoin:round}.f{stroke-width:.5;fill-opacity:.25}.d{fill:none;stroke-width:1.2;stroke-dasharray:6 4}
.c0{stroke:#0b5fb0;fill:#0b5fb0}.c1{stroke:#c8500a;fill:#c8500a}.c2{stroke:#18794a;fill:#18794a}.c3{stroke:#8a3fb0;fill:#8a3fb0}.c4{stroke:#9a7300;fill:#9a7300}.c5{stroke:#555;fill:#555}
@media(prefers-color-scheme:dark){svg{background:#15181c}text{fill:#ddd}.a{stroke:#999}.g{stroke:#333a41}.m{stroke:#888}
.c0{stroke:#6cb6ff;fill:#6cb6ff}.c1{stroke:#ff9d5c;fill:#ff9d5c}.c2{stroke:#5fd39a;fill:#5fd39a}.c3{stroke:#d3a0f0;fill:#d3a0f0}.c4{stroke:#e6c84d;fill:#e6c84d}.c5{stroke:#aaa;fill:#aaa}}
.l,.d{fill:none}
</style>
`

// svg returns the drawing.
func (f plot) svg() string {
	height := plotTop + float64(len(f.panels))*(panelHeight+panelGap) - panelGap + plotEnd
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %g %g" role="img"><title>%s</title>`+"\n"+plotStyle, plotWidth, height, html.EscapeString(f.title))
	fmt.Fprintf(&b, `<text class="t" x="%g" y="20">%s</text>`+"\n", plotLeft, html.EscapeString(f.title))
	for i, p := range f.panels {
		a := axes{top: p.highest(), y: plotTop + float64(i)*(panelHeight+panelGap)}
		if a.from, a.to = extent(f.panels...); p.own {
			a.from, a.to = extent(p)
		}
		a.draw(&b, p)
	}
	fmt.Fprintf(&b, `<text x="%g" y="%g" text-anchor="middle">%s</text>`+"\n</svg>\n", (plotLeft+plotWidth-plotRight)/2, height-8, html.EscapeString(f.x))
	return b.String()
}

// extent is the time axis of panels.
func extent(panels ...panel) (from, to float64) {
	from, to = math.Inf(1), math.Inf(-1)
	for _, p := range panels {
		for _, l := range p.lines {
			for _, x := range l.x {
				from, to = min(from, x), max(to, x)
			}
		}
	}
	if !(to > from) {
		return 0, 1
	}
	return from, to
}

// highest is the value at the panel's upper edge.
func (p panel) highest() float64 {
	top := p.top
	for _, l := range p.lines {
		for _, y := range l.y {
			if p.top == 0 && y > top {
				top = y
			}
		}
	}
	if !(top > 0) {
		return 1
	}
	return top
}

// axes places one panel.
type axes struct{ from, to, top, y float64 }

func (a axes) px(x float64) float64 {
	return plotLeft + (x-a.from)/(a.to-a.from)*(plotWidth-plotLeft-plotRight)
}

func (a axes) py(y float64) float64 {
	return a.y + panelHeight*(1-min(max(y/a.top, 0), 1))
}

func (a axes) draw(b *strings.Builder, p panel) {
	right, bottom := plotWidth-plotRight, a.y+panelHeight
	for _, v := range ticks(0, a.top) {
		fmt.Fprintf(b, `<path class="g" d="M%g %.1fH%g"/><text x="%g" y="%.1f" text-anchor="end">%g</text>`+"\n", plotLeft, a.py(v), right, plotLeft-6, a.py(v)+4, v)
	}
	for _, v := range ticks(a.from, a.to) {
		fmt.Fprintf(b, `<path class="a" d="M%.1f %gv4"/><text x="%.1f" y="%g" text-anchor="middle">%g</text>`+"\n", a.px(v), bottom, a.px(v), bottom+17, v)
	}
	for _, k := range []look{area, step, dash} { // areas behind, what ought to be before all
		for i, l := range p.lines {
			if l.look == k {
				fmt.Fprintf(b, `<path class="c%d %c" d="%s"/>`+"\n", i%plotColours, "lfd"[k], a.path(l))
			}
		}
	}
	for i, m := range p.marks {
		down := 12 + 14*float64(i%2) // names of moments that follow each other soon do not meet
		fmt.Fprintf(b, `<path class="m" d="M%.1f %gV%g"/><text x="%.1f" y="%g">%s</text>`+"\n", a.px(m.x), a.y, bottom, a.px(m.x)+4, a.y+down, html.EscapeString(m.name))
	}
	fmt.Fprintf(b, `<path class="a" d="M%g %gV%gH%g"/>`+"\n", plotLeft, a.y, bottom, right)
	fmt.Fprintf(b, `<text transform="translate(14 %g) rotate(-90)" text-anchor="middle">%s</text>`+"\n", a.y+panelHeight/2, html.EscapeString(p.y))
	a.legend(b, p)
}

// legend stands over the panel, from the right.
func (a axes) legend(b *strings.Builder, p panel) {
	x := plotWidth - plotRight
	for i := len(p.lines) - 1; i >= 0; i-- {
		if p.lines[i].name == "" {
			continue
		}
		fmt.Fprintf(b, `<text x="%g" y="%g" text-anchor="end">%s</text>`, x, a.y-6, html.EscapeString(p.lines[i].name))
		x -= 7*float64(len([]rune(p.lines[i].name))) + 16
		fmt.Fprintf(b, `<rect class="c%d" x="%g" y="%g" width="10" height="%g"/>`+"\n", i%plotColours, x, a.y-15, map[bool]float64{true: 2, false: 10}[p.lines[i].look == dash])
		x -= 14
	}
}

// path is a line's shape. Steps that nobody could see are left out.
func (a axes) path(l line) string {
	var d strings.Builder
	end, was := "", ""
	for i := range min(len(l.x), len(l.y)) {
		x, y := fmt.Sprintf("%.1f", a.px(l.x[i])), fmt.Sprintf("%.1f", a.py(l.y[i]))
		switch {
		case i == 0 && l.look == area:
			fmt.Fprintf(&d, "M%s %.1fV%s", x, a.py(0), y)
		case i == 0:
			fmt.Fprintf(&d, "M%s %s", x, y)
		case y != was:
			fmt.Fprintf(&d, "H%sV%s", x, y)
		}
		end, was = x, y
	}
	if end != "" {
		d.WriteString("H" + end)
	}
	if end != "" && l.look == area {
		fmt.Fprintf(&d, "V%.1fZ", a.py(0))
	}
	return d.String()
}

// ticks are round values on an axis, about eight.
func ticks(from, to float64) (all []float64) {
	if !(to > from) || math.IsInf(to-from, 0) {
		return nil
	}
	rough := (to - from) / 8
	unit := math.Pow(10, math.Floor(math.Log10(rough)))
	for _, m := range []float64{1, 2, 5, 10} {
		if unit*m >= rough {
			unit *= m
			break
		}
	}
	for i := math.Ceil(from/unit - 1e-9); i*unit <= to*(1+1e-9); i++ {
		all = append(all, math.Round(i*unit*1e9)/1e9+0) // + 0: there is no -0
	}
	return all
}

// write puts the drawing into a file.
func (f plot) write(path string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return fmt.Errorf("bench: %w", err)
	}
	if err := os.WriteFile(path, []byte(f.svg()), 0o644); err != nil {
		return fmt.Errorf("bench: %w", err)
	}
	return nil
}
