package bench

import (
	"encoding/xml"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestTicks(t *testing.T) {
	for _, tt := range []struct {
		from, to float64
		want     []float64
	}{
		{0, 100, []float64{0, 20, 40, 60, 80, 100}},
		{0, 8, []float64{0, 1, 2, 3, 4, 5, 6, 7, 8}},
		{0.9, 1.5, []float64{0.9, 1, 1.1, 1.2, 1.3, 1.4, 1.5}},
		{-3, 1, []float64{-3, -2.5, -2, -1.5, -1, -0.5, 0, 0.5, 1}},
		{1, 1, nil},
	} {
		if got := ticks(tt.from, tt.to); !slices.Equal(got, tt.want) {
			t.Errorf("from %v to %v: %v, want %v", tt.from, tt.to, got, tt.want)
		}
	}
}

// TestPlot: the file is well-formed, has every text, and draws each line once.
func TestPlot(t *testing.T) {
	p := plot{title: "a < b & c", x: "seconds", panels: []panel{
		{y: "Mb/s", lines: []line{
			{name: "one", x: []float64{0, 1, 2, 3}, y: []float64{10, 10, 20, 5}},
			{name: "two", x: []float64{0, 1, 2, 3}, y: []float64{1, 2, 3, 4}, look: area},
			{name: "limit", x: []float64{0, 3}, y: []float64{20, 20}, look: dash},
		}, marks: []moment{{1.5, "iperf3 begins"}}},
		{y: "kB", own: true, lines: []line{{x: []float64{1, 1.5}, y: []float64{0, 64}}}, top: 64},
		{y: "nothing"},
	}}
	path := filepath.Join(t.TempDir(), "plots", "p.svg")
	if err := p.write(path); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	dec := xml.NewDecoder(strings.NewReader(string(text)))
	for {
		if _, err := dec.Token(); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatalf("%v in\n%s", err, text)
		}
	}
	for _, want := range []string{"a &lt; b &amp; c", "seconds", "Mb/s", "one", "two", "limit", "iperf3 begins", "prefers-color-scheme:dark",
		`<path class="c0 l"`, `<path class="c1 f"`, `<path class="c2 d"`} {
		if !strings.Contains(string(text), want) {
			t.Errorf("%q is missing", want)
		}
	}
	for _, no := range []string{"NaN", "Inf"} {
		if strings.Contains(string(text), no) {
			t.Errorf("there is %s", no)
		}
	}
	a := axes{from: 0, to: 3, top: 20, y: 0}
	if got, want := a.path(p.panels[0].lines[0]), "M64.0 120.0H650.7V0.0H944.0V180.0H944.0"; got != want {
		t.Errorf("path %s, want %s", got, want)
	}
}

// TestDrawings: the document links a table's drawings, which lie beside it.
func TestDrawings(t *testing.T) {
	path := filepath.Join(t.TempDir(), "benchmarks.md")
	table := Table{Name: "matb", Title: "T", Head: []string{"a"}, Drawings: []Drawing{{"one.svg", "What it shows", plot{title: "one"}}}}
	if err := WriteDocument(path, Place{}, []Table{table}); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(path)
	if err != nil || !strings.Contains(string(text), "![What it shows](plots/one.svg)") {
		t.Errorf("%v: %s", err, text)
	}
	if svg, err := os.ReadFile(filepath.Join(filepath.Dir(path), "plots", "one.svg")); err != nil || !strings.HasPrefix(string(svg), "<svg ") {
		t.Errorf("%v: %s", err, svg)
	}
}
