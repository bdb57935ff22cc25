package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/meshmpi/meshmpi/integration/deploy"
	"github.com/meshmpi/meshmpi/integration/lab"
	"github.com/meshmpi/meshmpi/integration/programs"
)

// stage is one act's network, with what is needed to play on it.
type stage struct {
	*story
	net  *deploy.Network
	work string // a directory that all hosts see
	bin  string
}

// polite has waiting ranks give up the processor: the five machines of the demo
// share this one's.
const polite = "OMPI_MCA_mpi_yield_when_idle=1"

// jobTime bounds one program; those here take seconds.
const jobTime = 90 * time.Second

// perform builds a network, plays on it and takes it away. The logs stay when a
// check fails.
func perform(ctx context.Context, s *story, bin, work string, nat lab.NAT, play func(context.Context, *stage) error) error {
	logs, err := os.MkdirTemp("", "meshmpi-demo-logs-")
	if err != nil {
		return err
	}
	cfg := lab.TwoSites(nat)
	cfg.Dir, cfg.Log = logs, slog.New(slog.NewTextHandler(io.Discard, nil))
	l, err := lab.New(ctx, cfg)
	if err != nil {
		return err
	}
	defer l.Close()
	before := len(s.checks)
	err = raise(ctx, s, bin, work, l, play)
	for _, c := range s.checks[before:] {
		if !c.good && err == nil {
			err = fmt.Errorf("%q did not hold", c.what)
		}
	}
	if err != nil {
		return fmt.Errorf("%w; the daemons' logs are in %s/*/", err, logs)
	}
	return os.RemoveAll(logs)
}

func raise(ctx context.Context, s *story, bin, work string, l *lab.Lab, play func(context.Context, *stage) error) error {
	s.text(l.Picture())
	s.command("hub", "meshd init --name hub --site hubs --advertise "+l.Host("hub").Addr4.String()+":"+deploy.Port+" --allow-root-exec && meshd run &")
	s.command("hub", "meshctl token create --site alpha --uses 16")
	s.command("a1", "meshd join mesh1… && meshd run &        # and so on a2, b1, b2")
	began := time.Now()
	n, err := deploy.Up(ctx, l, deploy.Options{Bin: bin, InitArgs: []string{"--allow-root-exec"}})
	if err != nil {
		return err
	}
	s.check(true, "five meshd processes joined and know each other within %.1f s", time.Since(began).Seconds())
	st := &stage{story: s, net: n, work: work, bin: bin}
	return play(ctx, st)
}

// run runs a command line on a host with our commands in PATH, shows it, and
// returns what it printed.
func (st *stage) run(ctx context.Context, host, line string) (string, error) {
	st.command(host, line)
	return st.quiet(ctx, host, line)
}

func (st *stage) quiet(ctx context.Context, host, line string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, jobTime)
	defer cancel()
	return st.net.Lab.Host(host).Run(ctx, "sh", "-c", fmt.Sprintf("PATH=%s:$PATH; export %s; cd %s; %s", st.bin, polite, st.work, line))
}

// compile compiles one of our C programs, as a user does.
func (st *stage) compile(name, mpi string) error {
	out, err := programs.Compile(st.work, name, "mpicc."+mpi)
	if err != nil {
		return err
	}
	st.command("a1", fmt.Sprintf("mpicc.%s -o %s %s.c", mpi, filepath.Base(out), name))
	return nil
}

// pairs pings every pair by name, waits until each path is as it should be, and
// prints the table.
func (st *stage) pairs(ctx context.Context, across string) error {
	hosts := st.net.Lab.Hosts()
	rows := []string{fmt.Sprintf("%-6s", "")}
	for _, to := range hosts {
		rows[0] += fmt.Sprintf("%-20s", to.Name)
	}
	bad := 0
	for _, from := range hosts {
		row := fmt.Sprintf("%-6s", from.Name)
		for _, to := range hosts {
			if from == to {
				row += fmt.Sprintf("%-20s", "-")
				continue
			}
			want := "udp"
			if from.Site != to.Site && from.Name != "hub" && to.Name != "hub" {
				want = across
			}
			p, err := st.net.AwaitPath(ctx, from.Name, to.Name, want, 10*time.Second)
			if _, perr := from.Run(ctx, "ping", "-c1", "-W5", to.Name); err != nil || perr != nil {
				bad++
				row += fmt.Sprintf("%-20s", "FAILED")
				continue
			}
			row += fmt.Sprintf("%-20s", fmt.Sprintf("%s %.1f ms", p.Kind, float64(p.RTT)/1e3))
		}
		rows = append(rows, row)
	}
	st.note("paths and round trips, from the row to the column:")
	st.text(strings.Join(rows, "\n"))
	st.check(bad == 0, "all %d pairs ping by name; pairs across the sites are %s", len(hosts)*(len(hosts)-1), across)
	return nil
}
