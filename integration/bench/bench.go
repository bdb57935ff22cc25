// Package bench measures meshmpi where its promises are made: on the lab, with
// the commands a user types, beside what a user would pick instead. Each
// [Benchmark] yields one table of docs/benchmarks.md.
//
// Absolute figures belong to the machine they were taken on, which all hosts of
// a lab share. What carries over are ratios, so whatever is compared is measured
// in turns within one run (A B C, B C A, …) and reported as the median with the
// least and the greatest value. A bound that the project has set itself is
// checked, and what does not hold is said in the table.
//
// It is not a test: nothing here fails a build because a machine was busy, and
// nothing looks inside the daemons.
package bench

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/meshmpi/meshmpi/integration/deploy"
	"github.com/meshmpi/meshmpi/integration/lab"
	"github.com/meshmpi/meshmpi/integration/wan"
)

// Benchmark is one table to be made.
type Benchmark struct {
	Name  string // a word, for the command line
	About string // for the help
	run   func(context.Context, *Env) (Table, error)
	with  []string // what can be chosen; see Choices
}

// All returns every benchmark, in the document's order.
func All() []Benchmark {
	return []Benchmark{
		{"lan", "one TCP stream between two nodes of a LAN, beside wireguard-go and the bare wire", lan, nil},
		{"paths", "one TCP stream between two sites, direct and relayed", paths, nil},
		{"cold", "the first packet between nodes that have never talked", cold, nil},
		{"start", "how long a small MPI job takes from the command to its end", start, nil},
		{"netpipe", "NetPIPE over Open MPI", netpipe, nil},
		{"gompi", "ping-pong and more by MPI for Go, beside Open MPI and MPICH", gompi, nil},
		{"gocolls", "collective operations of MPI for Go over two sites, beside their bounds and Open MPI", gocolls, nil},
		{"gocollsslow", "the same over lines with which this machine's processors keep up, paced", gocollsslow, nil},
		{"matb", "programs over a narrow link, paced and not (--with programs=, delays=, rates=, tcp=, ways=, parts=)", matb, matbChoices},
		{"matbfast", "the same over a faster link, and with TCP bbr", matbfast, matbChoices},
		{"matbslow", "the same over a link with which this machine's processors keep up", matbslow, matbChoices},
		{"pacer", "how exact pacing is beside spinning processes, by the kernel's times of arrival (--with rates=)", pacer, []string{"rates"}},
		{"shares", "two jobs and iperf3 share a link: shares, and how soon they settle", shares, nil},
		{"overhead", "throughput and round trip with pacing on and the link not full, beside pacing off", overhead, nil},
		{"soak", "ten million messages of random sizes by MPI for Go, with no loss, leak or growth", soak, nil},
		{"grouplinks", "MPI for Go over two sites whose ranks share two connections, or have each its own", grouplinks, nil},
		{"stripes", "MPI for Go over two lines instead of one, and over one that loses packets", stripes, nil},
	}
}

// Env is what benchmarks run with.
type Env struct {
	Bin    string    // directory of meshd, meshctl, meshrun and meshrsh
	Work   string    // a directory for what is made on the way; hosts see it
	Quick  bool      // fewer and shorter measurements: to see that it works
	Sealed bool      // sites of more than one host do not use their LANs natively
	With   Choices   // what to measure, where a benchmark lets one choose
	Say    io.Writer // progress, one line each

	carried wan.Counters // by the lines of the labs that have ended
}

// Table is what one benchmark has measured.
type Table struct {
	Name     string
	Title    string
	Method   string   // how it was measured, in a sentence or two
	Head     []string // none: there are only parts
	Rows     [][]string
	Parts    []Part // below
	Verdicts []Verdict
	Drawings []Drawing
	Busy     float64 // share of the machine's processors that others used just before
	Took     time.Duration
}

// Drawing is a plot that belongs to a table. It lies in plots/ beside the document.
type Drawing struct {
	File  string // its name there
	About string // what it shows, in a line
	plot  plot
}

// Part is one of several tables, or pictures, under one title.
type Part struct {
	Title string
	Text  string // Markdown, above the table
	Head  []string
	Rows  [][]string
}

// Verdict says whether a bound held.
type Verdict struct {
	Good bool
	Text string
}

// Run makes the table. The error names the benchmark.
func (b Benchmark) Run(ctx context.Context, env *Env) (Table, error) {
	if err := env.With.only(b.with...); err != nil {
		return Table{}, fmt.Errorf("bench: %s: %w", b.Name, err)
	}
	busy, err := busyShare(ctx, busyTime)
	if err != nil {
		return Table{}, fmt.Errorf("bench: %w", err)
	}
	began := time.Now()
	env.carried = wan.Counters{}
	t, err := b.run(ctx, env)
	if err != nil {
		return Table{}, fmt.Errorf("bench: %s: %w", b.Name, err)
	}
	t.punctual(env.carried)
	t.Name, t.Busy, t.Took = b.Name, busy, time.Since(began)
	return t, nil
}

func (e *Env) say(format string, args ...any) { fmt.Fprintf(e.Say, format+"\n", args...) }

// pick returns full, or quick in a quick run.
func pick[T any](e *Env, full, quick T) T {
	if e.Quick {
		return quick
	}
	return full
}

// up builds a lab under the working directory and brings meshmpi up on it. What
// the daemons logged stays there when something fails.
func (e *Env) up(ctx context.Context, name string, cfg lab.Config) (*deploy.Network, error) {
	return e.upWith(ctx, name, cfg, deploy.Options{})
}

// upWith is up with options; the binaries are e's, and root may start programs.
func (e *Env) upWith(ctx context.Context, name string, cfg lab.Config, opt deploy.Options) (*deploy.Network, error) {
	opt.Bin, opt.InitArgs = e.Bin, append(opt.InitArgs, "--allow-root-exec")
	l, err := e.lab(ctx, name, cfg)
	if err != nil {
		return nil, err
	}
	n, err := deploy.Up(ctx, l, opt)
	if err != nil {
		_ = l.Close() // the first error tells more
		return nil, fmt.Errorf("%w; the daemons' logs are in %s/*/", err, l.Dir())
	}
	return n, nil
}

// lab builds a lab under the working directory.
func (e *Env) lab(ctx context.Context, name string, cfg lab.Config) (*lab.Lab, error) {
	cfg.Dir, cfg.Log = filepath.Join(e.Work, name), slog.New(slog.DiscardHandler)
	cfg.Carried = func(c wan.Counters) { e.carried = e.carried.Plus(c) }
	if err := os.MkdirAll(cfg.Dir, 0o755); err != nil {
		return nil, err
	}
	return lab.New(ctx, cfg)
}

// mostLate is what part of the frames may be late while the lab's lines still count as
// those that were asked for.
const mostLate = 0.01

// punctual says of a table whether its lines kept time: else what they limit looks slower
// than it is.
func (t *Table) punctual(c wan.Counters) {
	if c.Frames == 0 {
		return
	}
	late := float64(c.Late) / float64(c.Frames)
	text := fmt.Sprintf("%.2f %% of the frames on the lab's lines left %v late or later", 100*late, wan.LateBy)
	if late <= mostLate {
		t.Method += " " + text + "."
		return
	}
	t.Verdicts = append(t.Verdicts, Verdict{Text: fmt.Sprintf("%s, so that what these limit looks slower than it is; it must be at most %.0f %%", text, 100*mostLate)})
}
