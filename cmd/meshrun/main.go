// Command meshrun runs an MPI program across the nodes of the network, with the
// MPI that the program was built with.
package main

import (
	"cmp"
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/alecthomas/kong"
	"golang.org/x/crypto/ssh"

	"github.com/meshmpi/meshmpi/internal/cli"
	"github.com/meshmpi/meshmpi/internal/node/api"
	"github.com/meshmpi/meshmpi/internal/rate"
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

// plan asks the daemon for the network and decides what runs where.
func (o *options) plan(ctx context.Context, client *api.Client) (p mpishim.Plan, remote mpishim.Remote, err error) {
	kind, err := mpishim.ParseKind(o.MPI)
	if err != nil {
		return p, nil, err
	}
	apps, total, err := o.apps()
	if err != nil {
		return p, nil, err
	}
	matb, err := o.pace()
	if err != nil {
		return p, nil, err
	}
	if err := o.exports(); err != nil {
		return p, nil, err
	}
	status, err := client.Status(ctx)
	if err != nil {
		return p, nil, err
	}
	env, err := client.Env(ctx)
	if err != nil {
		return p, nil, err
	}
	cidr, err := netip.ParsePrefix(env.CIDR4)
	if err != nil {
		return p, nil, fmt.Errorf("meshd's answer: %w", err)
	}
	p = mpishim.Plan{
		Overlay: mpishim.Overlay{Node: env.Node, Site: env.Site, TUN: env.TUN, CIDR: cidr, BinDir: env.BinDir, StateDir: api.StateDir(o.State)},
		Export:  o.Export, MustWdir: o.Wdir != "", Root: os.Geteuid() == 0, Environ: os.Environ(), Verbose: o.Verbose, Tag: o.TagOutput, FT: o.FT,
		NoHints: o.NoHints, MATB: matb, Pattern: o.Pattern,
	}
	nodes := hosts(status)
	for _, h := range nodes {
		if h.Self {
			p.Overlay.Addr = h.Addr
		}
	}
	if p.Places, err = mpishim.Put(nodes, o.Hosts, total, o.Oversubscribe); err != nil {
		return p, nil, err
	}
	if p.Apps, p.Launcher, err = o.resolve(ctx, kind, apps, p.Places); err != nil {
		return p, nil, err
	}
	if o.FT && p.Launcher.Kind != mpishim.Go {
		return p, nil, fmt.Errorf("--ft is for programs of Go's package mpi, and %s is for %s; leave it out", p.Apps[0].Prog, p.Launcher.Kind)
	}
	if p.Wdir, err = filepath.Abs(o.Wdir); err != nil {
		return p, nil, err
	}
	return p, remoteOf(client), nil
}

// pace checks what is said of the job's traffic and returns --matb, in bits per second.
func (o *options) pace() (matb int64, err error) {
	switch {
	case o.NoHints && (o.MATB != "" || o.Pattern != ""):
		return 0, errors.New("--no-hints excludes --matb and --pattern; leave one of them out")
	case o.MATB != "" && o.Pattern != "":
		return 0, errors.New("--matb and --pattern exclude each other; leave one of them out")
	}
	if err := mpishim.CheckPattern(o.Pattern); err != nil {
		return 0, fmt.Errorf("--pattern: %s", strings.TrimPrefix(err.Error(), "mpishim: "))
	}
	if o.MATB == "" {
		return 0, nil
	}
	if matb, err = rate.Parse(o.MATB); err != nil {
		return 0, fmt.Errorf("--matb: %w", err)
	}
	return matb, nil
}

// exports checks what -x names, and leaves out what is not set here, which ranks do not
// get, as with Open MPI's mpirun: scripts name LD_LIBRARY_PATH whether it is set or not.
func (o *options) exports() error {
	var set []string
	for _, x := range o.Export {
		name, _, valued := strings.Cut(x, "=")
		if name == "" {
			return fmt.Errorf("-x %q names no variable; write -x NAME or -x NAME=VALUE", x)
		}
		if _, here := os.LookupEnv(name); !here && !valued {
			o.say("warning: -x %s: there is no such variable here, so ranks do not get it", name)
			continue
		}
		set = append(set, x)
	}
	o.Export = set
	return nil
}

// resolve finds programs and the launcher that fits them.
func (o *options) resolve(ctx context.Context, kind mpishim.Kind, apps []mpishim.App, places []mpishim.Place) ([]mpishim.App, mpishim.Launcher, error) {
	here := o.Stage
	for _, pl := range places {
		here = here || pl.Host.Self
	}
	paths := make([]string, len(apps)) // "" where this node has none
	for i, a := range apps {
		path, err := mpishim.Resolve(a.Prog, cmp.Or(mpishim.PathOf(o.Export, os.Environ()), os.Getenv("PATH")))
		switch {
		case err != nil && here:
			return nil, mpishim.Launcher{}, err
		case err == nil:
			paths[i] = path
		}
		if strings.Contains(a.Prog, "/") || o.Stage {
			if apps[i].Prog = path; err != nil {
				apps[i].Prog, _ = filepath.Abs(a.Prog)
			}
		}
	}
	why := "--mpi says so"
	if kind == "" {
		var err error
		if kind, why, err = detect(apps, paths); err != nil {
			return nil, mpishim.Launcher{}, err
		}
	}
	l, err := mpishim.Find(ctx, kind)
	if err != nil {
		return nil, l, err
	}
	if kind == "" {
		o.say("cannot tell the MPI of %s; using %s (%s), --mpi chooses another", apps[0].Prog, l.Path, l.Kind)
	} else if o.Verbose {
		o.say("the job is for %s (%s); using %s", kind, why, l.Path)
	}
	return apps, l, nil
}

// detect tells the MPI of the programs by the first that shows it, and refuses
// others that are for another one: the ranks of a job could not talk to each other.
// why is for a line: which program shows it, and how.
func detect(apps []mpishim.App, paths []string) (kind mpishim.Kind, why string, err error) {
	first := ""
	for i, path := range paths {
		if path == "" || slices.Contains(paths[:i], path) {
			continue
		}
		k, reason, err := mpishim.Detect(path)
		switch {
		case err != nil:
			return "", "", err
		case k == "" || k == kind:
		case kind == "":
			kind, why, first = k, apps[i].Prog+": "+reason, apps[i].Prog
		default:
			return "", "", fmt.Errorf("%s is for %s and %s for %s: ranks of one job need one MPI; start two jobs, or say --mpi if you know better", first, kind, apps[i].Prog, k)
		}
	}
	return kind, why, nil
}

// apps splits the command line at colons.
func (o *options) apps() (apps []mpishim.App, total int, err error) {
	words, n := o.Program, o.N
	for {
		if len(words) > 0 && words[0] == "--" {
			words = words[1:]
		} else if len(words) > 0 && strings.HasPrefix(words[0], "-") {
			return nil, 0, fmt.Errorf("unknown flag %s; see meshrun --help", words[0])
		}
		end := slices.Index(words, ":")
		if end < 0 {
			end = len(words)
		}
		if end == 0 || n < 1 {
			return nil, 0, fmt.Errorf("every program needs -n with at least 1 rank, and a name")
		}
		if n > mpishim.MaxRanks-total {
			return nil, 0, fmt.Errorf("a job has at most %d ranks", mpishim.MaxRanks)
		}
		apps = append(apps, mpishim.App{N: n, Prog: words[0], Args: words[1:end]})
		total += n
		if end == len(words) {
			return apps, total, nil
		}
		words = words[end+1:]
		if len(words) < 3 || words[0] != "-n" && words[0] != "-np" {
			return nil, 0, fmt.Errorf("after a colon comes -n RANKS PROG")
		}
		if n, err = strconv.Atoi(words[1]); err != nil {
			return nil, 0, fmt.Errorf("-n %s is no number", words[1])
		}
		words = words[2:]
	}
}

func hosts(s api.Status) (hosts []mpishim.Host) {
	for _, n := range s.Nodes {
		addr, err := netip.ParseAddr(n.Addr4)
		if err != nil || n.Revoked {
			continue
		}
		addr6, _ := netip.ParseAddr(n.Addr6) // an invalid one names nobody
		hosts = append(hosts, mpishim.Host{
			Name: n.Name, Site: n.Site, Domain: s.Domain, Addr: addr, Addr6: addr6, Cores: n.Cores,
			Up: n.Up || n.Self, Self: n.Self, Spare: n.Hub || n.Relay,
		})
	}
	return hosts
}

// remoteOf runs commands on nodes with one key and a ticket each.
func remoteOf(client *api.Client) mpishim.Remote {
	return func(ctx context.Context, host string, opt exec.RunOptions) (int, error) {
		_, private, err := ed25519.GenerateKey(nil)
		if err != nil {
			return exec.CodeFailed, err
		}
		key, err := ssh.NewSignerFromKey(private)
		if err != nil {
			return exec.CodeFailed, err
		}
		ticket, err := client.Ticket(ctx, host, "", string(ssh.MarshalAuthorizedKey(key.PublicKey())))
		if err != nil {
			return exec.CodeFailed, err
		}
		return exec.Run(ctx, ticket, key, opt)
	}
}
