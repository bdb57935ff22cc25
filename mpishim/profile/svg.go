package profile

import (
	"encoding/xml"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
)

// canvas is an SVG under construction, in pixels.
type canvas struct {
	b    strings.Builder
	w, h float64
}

// Colours that both drawings use.
const (
	ink   = "#1f2933"
	faint = "#7b8794"
	rule  = "#e4e7eb"
	empty = "#f5f7fa"
)

// sitePalette tells sites, and ways between them, apart; it goes round. The colours
// are Okabe and Ito's, for all kinds of sight.
func sitePalette(i int) string {
	p := []string{"#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#8c564b", "#4b5563"}
	return p[i%len(p)]
}

func newCanvas(w, h float64) *canvas { return &canvas{w: w, h: h} }

// String is the whole document.
func (c *canvas) String() string {
	return fmt.Sprintf(`<?xml version="1.0" encoding="UTF-8"?>
<svg xmlns="http://www.w3.org/2000/svg" width="%s" height="%s" viewBox="0 0 %[1]s %[2]s" font-family="Helvetica, Arial, 'DejaVu Sans', sans-serif" font-size="12" fill="%s">
<rect width="100%%" height="100%%" fill="#ffffff"/>
%s</svg>
`, num(c.w), num(c.h), ink, c.b.String())
}

// num is a coordinate, to a hundredth of a pixel.
func num(v float64) string { return strconv.FormatFloat(math.Round(v*100)/100, 'f', -1, 64) }

// escape is text as XML has it; what XML cannot have is replaced.
func escape(s string) string {
	var b strings.Builder
	_ = xml.EscapeText(&b, []byte(s)) // into memory
	return b.String()
}

// rect is a rectangle; title, if any, shows under the mouse.
func (c *canvas) rect(x, y, w, h float64, fill, title string) {
	fmt.Fprintf(&c.b, `<rect x="%s" y="%s" width="%s" height="%s" fill="%s"`, num(x), num(y), num(w), num(h), fill)
	if title == "" {
		c.b.WriteString("/>\n")
		return
	}
	fmt.Fprintf(&c.b, "><title>%s</title></rect>\n", escape(title))
}

// squares draws n times n squares of a colour each, "" for none, in a few bytes each: all
// of one colour are one path, in which neighbours in a row are one stroke.
func (c *canvas) squares(x0, y0, side float64, n int, colour func(row, col int) string) {
	paths := map[string][]byte{}
	for row := range n {
		for col := 0; col < n; {
			fill, from := colour(row, col), col
			for col < n && colour(row, col) == fill {
				col++
			}
			if fill != "" {
				paths[fill] = fmt.Appendf(paths[fill], "M%d %dh%d", from, row, col-from)
			}
		}
	}
	fmt.Fprintf(&c.b, `<g transform="translate(%s %s) scale(%g)" stroke-width="1" fill="none" shape-rendering="crispEdges">`+"\n", num(x0), num(y0+side/2), side)
	for _, fill := range slices.Sorted(maps.Keys(paths)) {
		fmt.Fprintf(&c.b, `<path stroke="%s" d="%s"/>`+"\n", fill, paths[fill])
	}
	c.b.WriteString("</g>\n")
}

func (c *canvas) line(x1, y1, x2, y2 float64, stroke string, width float64, more string) {
	fmt.Fprintf(&c.b, `<line x1="%s" y1="%s" x2="%s" y2="%s" stroke="%s" stroke-width="%s"%s/>`+"\n", num(x1), num(y1), num(x2), num(y2), stroke, num(width), more)
}

// Where text is fixed.
const (
	start  = "start"
	middle = "middle"
	end    = "end"
)

// style is how text looks; zero values are the canvas's own.
type style struct {
	size   float64
	fill   string
	bold   bool
	rotate float64 // degrees, about the point
}

func (c *canvas) text(x, y float64, anchor, s string, st style) {
	fmt.Fprintf(&c.b, `<text x="%s" y="%s" text-anchor="%s"`, num(x), num(y), anchor)
	if st.size > 0 {
		fmt.Fprintf(&c.b, ` font-size="%s"`, num(st.size))
	}
	if st.fill != "" {
		fmt.Fprintf(&c.b, ` fill="%s"`, st.fill)
	}
	if st.bold {
		c.b.WriteString(` font-weight="bold"`)
	}
	if st.rotate != 0 {
		fmt.Fprintf(&c.b, ` transform="rotate(%s %s %s)"`, num(st.rotate), num(x), num(y))
	}
	fmt.Fprintf(&c.b, ">%s</text>\n", escape(s))
}

// width is about how wide a text is.
func width(s string, size float64) float64 { return 0.56 * size * float64(len([]rune(s))) }

// fit cuts a text to a width.
func fit(s string, size, room float64) string {
	r := []rune(s)
	for len(r) > 1 && width(string(r), size) > room {
		r = append(r[:len(r)-2], '…')
	}
	return string(r)
}

// logScale maps numbers above 0 to 0…1 by whole decades, and those to colours.
type logScale struct{ low, high float64 } // log10

func newLogScale(least, most uint64) logScale {
	if most == 0 {
		return logScale{0, 1}
	}
	s := logScale{math.Floor(math.Log10(float64(least))), math.Ceil(math.Log10(float64(most)))}
	if s.high <= s.low {
		s.high = s.low + 1
	}
	return s
}

func (s logScale) at(n uint64) float64 {
	return min(1, max(0, (math.Log10(float64(n))-s.low)/(s.high-s.low)))
}

// ramp is a colour from light to dark: yellow, green, blue.
func ramp(v float64) string {
	stops := [][3]float64{{255, 255, 204}, {199, 233, 180}, {127, 205, 187}, {65, 182, 196}, {29, 145, 192}, {34, 94, 168}, {37, 52, 148}, {8, 29, 88}}
	v *= float64(len(stops) - 1)
	i := min(int(v), len(stops)-2)
	var rgb [3]int
	for k := range rgb {
		rgb[k] = int(math.Round(stops[i][k] + (stops[i+1][k]-stops[i][k])*(v-float64(i))))
	}
	return fmt.Sprintf("#%02x%02x%02x", rgb[0], rgb[1], rgb[2])
}

// rampSteps are the colours that are told apart: those of the legend.
const rampSteps = 64

func (s logScale) colour(n uint64) string {
	if n == 0 {
		return empty
	}
	return ramp((math.Floor(min(s.at(n)*rampSteps, rampSteps-1)) + 0.5) / rampSteps)
}

// legend draws the scale upright, with a mark at every decade, or every third where
// they are many, and what 0 looks like beneath.
func (c *canvas) legend(x, y, h float64, s logScale, title string, label func(uint64) string) {
	const w = 14
	c.text(x, y-12, start, title, style{size: 11, fill: faint})
	for i := range rampSteps {
		c.rect(x, y+h*(1-float64(i+1)/rampSteps), w, h/rampSteps+0.5, ramp((float64(i)+0.5)/rampSteps), "")
	}
	every := 1
	for (s.high-s.low)/float64(every)*16 > h {
		every++
	}
	for d := s.low; d <= s.high; d += float64(every) {
		at := y + h*(1-(d-s.low)/(s.high-s.low))
		c.line(x+w, at, x+w+4, at, faint, 1, "")
		c.text(x+w+8, at+4, start, label(uint64(math.Pow(10, d))), style{size: 11})
	}
	c.rect(x, y+h+10, w, 12, empty, "")
	c.text(x+w+8, y+h+20, start, "none", style{size: 11})
}

// ticks are round steps from 0 to most, about n of them.
func ticks(most float64, n int) (step float64) {
	if most <= 0 {
		return 1
	}
	step = math.Pow(10, math.Floor(math.Log10(most/float64(n))))
	for _, f := range []float64{1, 2, 5, 10} {
		if most/(step*f) <= float64(n) {
			return step * f
		}
	}
	return step * 10
}
