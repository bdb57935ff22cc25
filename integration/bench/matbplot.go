package bench

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/meshmpi/meshmpi/integration/wan"
)

// recordTime is how much of an all-to-all is drawn.
const recordTime = 600 * time.Millisecond

// drawn tells which ways stand over each other in plots.
func drawn(way string) bool { return way == unpaced || way == lived }

// record runs a short job, and returns what came to the first site's uplink from its
// mark on.
func (n *narrow) record(ctx context.Context, l *load) (*wan.Record, error) {
	begun := func() error { return n.net.Lab.RecordWAN("alpha", recordTime) }
	if _, err := l.watched(ctx, n, l.short, l.brief, begun); err != nil {
		return nil, err
	}
	r, err := n.net.Lab.WANRecords("alpha")
	return &r.Up, err
}

// drawing is the plot of a setting; none unless both its ways were recorded.
func (c *crossing) drawing(records map[string]*wan.Record) []Drawing {
	before, after := records[unpaced], records[lived]
	if before == nil || after == nil {
		return nil
	}
	title := fmt.Sprintf("MPI_Alltoall of 16 KiB, %v", c.setting)
	return []Drawing{{
		File:  fmt.Sprintf("matb-%d-%s-%v.svg", c.rate/1_000_000, c.tcp, c.delay),
		About: title + ", one way: what comes to an uplink in each millisecond, unpaced over paced, and what waits there",
		plot:  trafficPlot(title, float64(c.rate), before, after),
	}}
}

// trafficPlot has what came in each millisecond unpaced over the same paced, and the
// queues of both below.
func trafficPlot(title string, rate float64, before, after *wan.Record) plot {
	const perMs = int(time.Millisecond / wan.Tick)
	traffic := func(name string, r *wan.Record) panel {
		bits := func(bytes []uint32) []float64 {
			return binned(bytes, perMs, func(sum, v float64) float64 { return sum + v*8e3/1e6 })
		}
		arrived := bits(r.Arrived)
		return panel{y: name + ", Mb/s", lines: []line{
			{name: "came in a millisecond", x: indices(arrived), y: arrived, look: area},
			{name: "lost", x: indices(arrived), y: bits(r.Dropped), look: area},
			{name: "the uplink's rate", x: []float64{0, float64(len(arrived))}, y: []float64{rate / 1e6, rate / 1e6}, look: dash},
		}}
	}
	queue := func(name string, r *wan.Record, look look) line {
		most := binned(r.Queue, perMs, func(most, v float64) float64 { return max(most, v/1e3) })
		return line{name: name, x: indices(most), y: most, look: look}
	}
	panels := []panel{traffic(unpaced, before), traffic(lived, after),
		{y: "queue, kB", lines: []line{queue(unpaced, before, step), queue(lived, after, step)}, top: matbQueue / 1e3 * 1.05}}
	top := max(panels[0].highest(), panels[1].highest())
	panels[0].top, panels[1].top = top, top
	return plot{title: title, x: "milliseconds", panels: panels}
}

// binned folds each n values into one.
func binned(values []uint32, n int, fold func(so, v float64) float64) (all []float64) {
	for part := range slices.Chunk(values, n) {
		so := 0.0
		for _, v := range part {
			so = fold(so, float64(v))
		}
		all = append(all, so)
	}
	return all
}

// indices are 0, 1, 2, … for as many values.
func indices(values []float64) []float64 {
	all := make([]float64, len(values))
	for i := range all {
		all[i] = float64(i)
	}
	return all
}
