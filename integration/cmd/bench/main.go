// Command bench makes the tables of docs/benchmarks.md. It measures in network
// namespaces of its own, so it needs root or a system that lets users make them,
// and ends with 1 when a measurement fails or a bound does not hold.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/alecthomas/kong"

	"github.com/meshmpi/meshmpi/integration/bench"
	"github.com/meshmpi/meshmpi/integration/lab"
)

type options struct {
	Bin    string            `default:"bin" help:"Directory of meshd, meshctl, meshrun and meshrsh."`
	Quick  bool              `help:"Few and short measurements: to see that everything works."`
	Write  string            `placeholder:"FILE" help:"Put the tables into this document too (docs/benchmarks.md), and drawings into plots beside it."`
	Sealed bool              `help:"In tables of two sites, have neighbours talk through the overlay too, not over their LAN."`
	With   map[string]string `placeholder:"WHAT=LIST" help:"Measure only some, where a table has much: --with delays=2ms,5ms --with programs=cg."`
	Tables []string          `arg:"" optional:"" name:"table" enum:"${tables}" help:"Which tables to make (default: all):${about}."`
}

func main() {
	lab.Main()
	var names, about []string
	for _, b := range bench.All() {
		names = append(names, b.Name)
		about = append(about, fmt.Sprintf(" %s, %s", b.Name, b.About))
	}
	var o options
	kong.Parse(&o, kong.Name("bench"), kong.Description("Measures meshmpi on the lab."),
		kong.Vars{"tables": strings.Join(names, ","), "about": strings.Join(about, ";")})
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := o.run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// run makes the tables one after another and prints each when it is done, so
// that a failure loses only those to come.
func (o *options) run(ctx context.Context) (err error) {
	if o.Bin, err = filepath.Abs(o.Bin); err != nil {
		return err
	}
	place, err := bench.Here(ctx, o.Bin)
	if err != nil {
		return err
	}
	work, err := os.MkdirTemp("", "meshmpi-bench-")
	if err != nil {
		return err
	}
	if err := os.Chmod(work, 0o755); err != nil {
		return err
	}
	env := &bench.Env{Bin: o.Bin, Work: work, Quick: o.Quick, Sealed: o.Sealed, Say: os.Stderr, With: o.With}
	missed := 0
	for _, b := range o.chosen() {
		table, err := b.Run(ctx, env)
		if err != nil {
			return fmt.Errorf("%w (logs are in %s)", err, work)
		}
		fmt.Println(table.Markdown(place))
		for _, v := range table.Verdicts {
			if !v.Good {
				missed++
			}
		}
		if o.Write != "" {
			if err := bench.WriteDocument(o.Write, place, []bench.Table{table}); err != nil {
				return err
			}
		}
		if ctx.Err() != nil { // the table has what there was
			return errors.New("bench: interrupted")
		}
	}
	if missed > 0 {
		err = fmt.Errorf("bench: %d bounds do not hold; see the tables", missed)
	}
	return errors.Join(err, os.RemoveAll(work))
}

func (o *options) chosen() []bench.Benchmark {
	if len(o.Tables) == 0 {
		return bench.All()
	}
	var list []bench.Benchmark
	for _, b := range bench.All() {
		for _, name := range o.Tables {
			if name == b.Name {
				list = append(list, b)
				break
			}
		}
	}
	return list
}
