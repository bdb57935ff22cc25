package mpishim

import (
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// Plan is a job that is ready to start.
type Plan struct {
	Launcher Launcher
	Overlay  Overlay
	Places   []Place
	Apps     []App
	Export   []string // names, or NAME=value, that ranks get from here (-x)
	Wdir     string   // of the ranks
	MustWdir bool     // the user asked for it: a node without it is an error
	Root     bool     // we are root
	Environ  []string // ours, os.Environ()
	Verbose  bool
	Tag      bool   // lines of output begin with "[RANK] "
	FT       bool   // a rank's death is an event to the others and does not end the job (Go only)
	NoHints  bool   // ranks tell the pacer nothing
	MATB     int64  // what each node may send to other sites, bits per second; 0: as the network says
	Pattern  string // the job's communication pattern, see CheckPattern; "": not known
	Profile  string // of NewProfile: ranks record what they send, for Collect; "": they do not

	secret string // of this run: see secretMark
	output string // of this run: see rankOutput; "": the launcher carries it
}

// Command is a launcher's command line and environment.
type Command struct {
	Path string
	Args []string // without the program's own name
	Env  []string
	tag  tagger // how its output tells ranks apart; nil: not at all, and ranks say it themselves
}

// Variables by which meshrun speaks to its own ranks.
const (
	varLocal = "MESHRUN_LOCAL" // NODE/SITE of this node, for ranks that no session started
	varWdir  = "MESHRUN_WDIR"
	varMust  = "MESHRUN_WDIR_MUST"
	varCIDR  = "MESHRUN_CIDR"
	varBin   = "MESHRUN_BIN"

	varSecret = "MESHRUN_SECRET" // of the job: see secretMark
	varOutput = "MESHRUN_OUTPUT" // HOST:PORT: see rankOutput
)

// Variables that differ from node to node and come from each node's own session.
const (
	varNode    = "MESH_NODE"
	varSite    = "MESH_SITE"
	varAddress = "MESH_ADDRESS" // the node's virtual one, where package mpi listens
)

// Command builds the launcher's command line.
func (p Plan) Command() Command {
	f, _ := familyOf(p.Launcher.Kind)
	return f.command(p) // every family has one
}

// sites counts the sites that the job spans.
func (p Plan) sites() int {
	seen := map[string]bool{}
	for _, pl := range p.Places {
		seen[pl.Host.Site] = true
	}
	return len(seen)
}

func (p Plan) shared() bool {
	return slices.ContainsFunc(p.Places, func(pl Place) bool { return pl.Ranks > 1 })
}

// own are the variables of ours that every rank gets.
func (p Plan) own() []string {
	env := []string{
		varLocal + "=" + p.Overlay.Node + "/" + p.Overlay.Site,
		varWdir + "=" + p.Wdir,
		varCIDR + "=" + p.Overlay.CIDR.String(),
		varBin + "=" + p.Overlay.BinDir,
	}
	if p.MustWdir {
		env = append(env, varMust+"=1")
	}
	for name, value := range map[string]string{varSecret: p.secret, varOutput: p.output} {
		if value != "" {
			env = append(env, name+"="+value)
		}
	}
	if p.Profile != "" {
		env = append(env, varProfile+"="+p.Profile)
	}
	return append(env, p.hintVariables()...)
}

// environ is what the launcher itself gets. It must have no variables of one node
// to hand on to others, nor those of a launcher that has started meshrun.
func (p Plan) environ(more ...string) []string {
	env := p.Environ
	for _, name := range []string{varNode, varSite, varAddress, varRanks, varLibrary, varProfile, varRecords, "PMI_FD", "PMI_SPAWNED"} {
		env = unsetenv(env, name)
	}
	env = setenv(env, "PATH="+p.Overlay.BinDir+":"+getenv(env, "PATH"))
	env = setenv(env, "MESH_STATE="+p.Overlay.StateDir)
	for _, kv := range slices.Concat(p.own(), more) {
		env = setenv(env, kv)
	}
	for _, x := range p.Export {
		name, value, given := strings.Cut(x, "=")
		switch {
		case name == "PATH" && given: // the launcher finds its agent there
			env = setenv(env, "PATH="+p.Overlay.BinDir+":"+value)
		case given:
			env = setenv(env, x)
		}
	}
	return env
}

// settings are the variables that configure package mpi, and those of a job's hints.
// Others that begin with MESH_ are a node's own.
func settings() []string {
	return []string{"MESH_NO_SHM", "MESH_NO_UDP", "MESH_EAGER_LIMIT", "MESH_LINKS", "MESH_GROUP_LINKS", varHints, varRanks, varMATB, varPattern}
}

// exported are the names that ranks elsewhere must get: ours, -x's, and what
// configures an MPI or its transports.
func (p Plan) exported(env []string) []string {
	var names []string
	add := func(name string) {
		if name != "" && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	for _, x := range p.Export {
		name, _, _ := strings.Cut(x, "=")
		add(name)
	}
	for _, kv := range env {
		name, _, _ := strings.Cut(kv, "=")
		if slices.Contains(settings(), name) {
			add(name)
		}
		for _, prefix := range []string{"MESHRUN_", "UCX_", "FI_", "MPIR_CVAR_", "I_MPI_", "OMP_"} {
			if strings.HasPrefix(name, prefix) {
				add(name)
			}
		}
	}
	return names
}

// wrapper runs on every node: it finds meshrun where that node has it.
const wrapper = `PATH="${MESH_BIN:-$MESHRUN_BIN}:$PATH" exec meshrun ` + RankArg + ` "$@"`

func (a App) wrapped() []string {
	return append([]string{"/bin/sh", "-c", wrapper, "meshrun", a.Prog}, a.Args...)
}

// hostList is HOST:SLOTS,… by virtual address, so that no resolver is needed.
func (p Plan) hostList() string {
	var hosts []string
	for _, pl := range p.Places {
		hosts = append(hosts, pl.Host.Addr.String()+":"+strconv.Itoa(pl.Ranks))
	}
	return strings.Join(hosts, ",")
}

// prefix is where the launcher is installed when not where every system has it.
func (p Plan) prefix() string {
	dir := filepath.Dir(p.Launcher.Path)
	switch dir {
	case "/bin", "/usr/bin", "/usr/local/bin":
		return ""
	}
	return filepath.Dir(dir)
}
