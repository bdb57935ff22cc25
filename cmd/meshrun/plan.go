package main

import (
	"cmp"
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/crypto/ssh"

	"github.com/meshmpi/meshmpi/internal/node/api"
	"github.com/meshmpi/meshmpi/internal/rate"
	"github.com/meshmpi/meshmpi/mpishim"
	"github.com/meshmpi/meshmpi/mpishim/exec"
)

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
