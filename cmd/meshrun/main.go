// Command meshrun runs an MPI program across the nodes of the network, with the
// MPI that the program was built with.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/alecthomas/kong"

	"github.com/meshmpi/meshmpi/internal/cli"
	"github.com/meshmpi/meshmpi/internal/node/api"
	"github.com/meshmpi/meshmpi/mpishim"
	"github.com/meshmpi/meshmpi/mpishim/exec"
)

type options struct {
	State         string   `help:"State directory (default: $$MESH_STATE, else ${state})." placeholder:"DIR"`
	N             int      `short:"n" help:"Ranks of the first program; there is no default." placeholder:"RANKS"`
	Hosts         string   `short:"H" name:"host" help:"Nodes, as a,b:4 with slots; default: all that are up, slots = cores." placeholder:"NODES"`
	MPI           string   `name:"mpi" help:"MPI of the program: auto, openmpi, mpich, intel, go." default:"auto"`
	Export        []string `short:"x" name:"export" sep:"none" help:"Variable that ranks get, as NAME or NAME=VALUE." placeholder:"VAR"`
	Wdir          string   `help:"Working directory of the ranks (default: this one, else home)." placeholder:"DIR"`
	Stage         bool     `help:"Copy the program to every node first."`
	Oversubscribe bool     `help:"Allow more ranks than slots."`
	TagOutput     bool     `help:"Begin every line of output with its rank, as [2]."`
	FT            bool     `name:"ft" help:"Go on when a rank dies, and tell the others (Go programs only)."`
	MATB          string   `name:"matb" help:"Most that each node sends to other sites, as 100Mb/s." placeholder:"RATE"`
	Pattern       string   `help:"How the program communicates, for its nodes' share of links: alltoall, bt, cg, ft, is, lu, mg, sp." placeholder:"NAME"`
	NoHints       bool     `help:"Have ranks tell the pacer nothing of what they do."`
	Profile       string   `help:"Record who sends how much to whom, and write a report, its data and drawings to this folder, which is empty or made." placeholder:"DIR"`
	Verbose       bool     `short:"v" help:"Say what is done, and all that the launcher says."`
	Program       []string `arg:"" passthrough:"" help:"PROG ARGS… [: -n M PROG2 ARGS…]"`
}

func main() {
	if len(os.Args) > 1 && os.Args[1] == mpishim.RankArg {
		os.Exit(mpishim.RunRank(os.Args[2:]))
	}
	if len(os.Args) == 2 && os.Args[1] == mpishim.RanksArg {
		os.Exit(mpishim.RunRanks())
	}
	if len(os.Args) > 1 && os.Args[1] == mpishim.ProfileArg {
		os.Exit(mpishim.RunProfile(os.Args[2:]))
	}
	var o options
	parser := kong.Must(&o, kong.Name("meshrun"), kong.Description("Runs an MPI program across the network: meshrun -n 4 ./prog its arguments"), kong.Vars{"state": api.DefaultState})
	if _, err := cli.Parse(parser, singleDash(os.Args[1:])); err != nil {
		fmt.Fprintf(os.Stderr, "meshrun: %v; see meshrun --help\n", err)
		os.Exit(mpishim.CodeFailed)
	}
	code, err := o.run(context.Background())
	if err != nil {
		fmt.Fprintf(os.Stderr, "meshrun: %s\n", strings.TrimPrefix(err.Error(), "mpishim: "))
	}
	os.Exit(code)
}

// singleDash accepts long flags after one dash, and -np, as every mpirun does.
func singleDash(args []string) []string {
	words := map[string]string{"-np": "-n", "-hosts": "--host"}
	for _, name := range []string{"state", "host", "mpi", "export", "wdir", "stage", "oversubscribe", "tag-output", "ft", "matb", "pattern", "no-hints", "profile", "verbose"} {
		words["-"+name] = "--" + name
	}
	out := append([]string(nil), args...)
	for i, a := range out {
		if !strings.HasPrefix(a, "-") && (i == 0 || !takesValue(out[i-1])) || a == "--" {
			break // the program, or what comes before it
		}
		if long, ok := words[a]; ok {
			out[i] = long
		}
	}
	return out
}

func takesValue(flag string) bool {
	switch flag {
	case "-n", "-H", "-x", "--state", "--host", "--mpi", "--export", "--wdir", "--matb", "--pattern", "--profile":
		return true
	}
	return false
}

func (o *options) run(ctx context.Context) (int, error) {
	signals := make(chan os.Signal, 16) // more than the kinds asked for
	signal.Notify(signals, exec.Heeded(syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGUSR1, syscall.SIGUSR2)...)
	if o.Profile != "" {
		made, err := o.prepare()
		if err != nil {
			return mpishim.CodeFailed, err
		}
		if made {
			defer os.Remove(o.Profile) // if nothing has come of it; what is not empty stays
		}
	}
	client := api.Dial(api.StateDir(o.State))
	before, told := untilSignal(ctx, signals)
	plan, remote, err := o.ready(before, client)
	sig := told()
	if sig != 0 { // what it was at is no matter
		return 128 + int(sig), nil
	}
	if err != nil {
		return mpishim.Code(err), err
	}
	if o.Verbose {
		c := plan.Command()
		o.say("%s %s", c.Path, strings.Join(c.Args, " "))
	}
	streams := mpishim.Streams{Stdin: os.Stdin, Out: os.Stdout, Err: os.Stderr, Signals: signals}
	run := mpishim.Run
	if plan.Launcher.Kind == mpishim.Go {
		run = func(ctx context.Context, p mpishim.Plan, s mpishim.Streams) (int, error) {
			return mpishim.RunGo(ctx, p, s, remote)
		}
	}
	code, err := run(ctx, plan, streams)
	if o.Profile != "" {
		o.profile(ctx, client, plan, remote, signals)
	}
	return code, err
}

// ready plans the job, and sees to it that the nodes can run it.
func (o *options) ready(ctx context.Context, client *api.Client) (plan mpishim.Plan, remote mpishim.Remote, err error) {
	if plan, remote, err = o.plan(ctx, client); err != nil {
		return plan, nil, err
	}
	if o.Profile != "" {
		if plan.Profile, err = mpishim.NewProfile(plan); err != nil {
			return plan, nil, err
		}
	}
	if o.Stage {
		if plan, err = mpishim.Stage(ctx, plan, remote); err != nil {
			return plan, nil, err
		}
	}
	return plan, remote, mpishim.Preflight(ctx, plan, remote)
}

// untilSignal returns a context that ends with the first signal that ends jobs. told
// leaves the signals to others, and says which it was; 0: none has come.
func untilSignal(ctx context.Context, signals <-chan os.Signal) (before context.Context, told func() syscall.Signal) {
	before, cancel := context.WithCancel(ctx)
	var sig syscall.Signal
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() { // ends with told
		defer close(stopped)
		for {
			select {
			case s := <-signals:
				if s == syscall.SIGINT || s == syscall.SIGTERM || s == syscall.SIGHUP {
					sig = s.(syscall.Signal)
					cancel()
					return
				}
			case <-stop:
				return
			}
		}
	}()
	return before, func() syscall.Signal {
		close(stop)
		<-stopped
		cancel()
		return sig
	}
}

func (o *options) say(format string, args ...any) {
	fmt.Fprintf(os.Stderr, "meshrun: "+format+"\n", args...)
}
