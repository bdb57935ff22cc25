package mpishim

import (
	"slices"
	"strconv"
	"strings"
)

// hydraPattern makes Hydra mark each piece of output with its rank between two
// bytes that no text holds.
const hydraPattern = "\x01%r\x02"

// lastVariable stands last in the environment: of the variables that -genvlist
// names, MPICH 4.0.2 loses the one that comes last.
const lastVariable = "MESHRUN_LAST=1"

// hydraArgs is what MPICH's and Intel's mpiexec have in common. Only named
// variables go to other nodes: HOME and PATH differ between institutes.
func hydraArgs(p Plan, env []string) []string {
	args := []string{
		"-launcher", "ssh", "-launcher-exec", agent, "-iface", p.Overlay.TUN,
		"-hosts", p.hostList(), "-bind-to", "none",
		"-prepend-pattern", hydraPattern, "-genvlist", strings.Join(p.exported(env), ","),
	}
	for i, a := range p.Apps {
		if i > 0 {
			args = append(args, ":")
		}
		args = slices.Concat(args, []string{"-n", strconv.Itoa(a.N), "-wdir", "/"}, a.wrapped())
	}
	return args
}

// hydraEnviron adds the transports' settings.
func hydraEnviron(p Plan) []string {
	more := append(dataVariables(p.Overlay.TUN, p.shared()), hydraNoFork)
	if p.sites() > 1 {
		more = append(more, "UCX_RNDV_THRESH="+strconv.Itoa(wanEager))
	}
	return p.environ(more...)
}

// mpichCommand drives MPICH's mpiexec.hydra, for its UCX and libfabric builds.
func mpichCommand(p Plan) Command {
	env := setenv(hydraEnviron(p), lastVariable)
	return Command{Path: p.Launcher.Path, Args: hydraArgs(p, env), Env: env, tag: hydraTag}
}

// intelCommand drives Intel MPI's mpiexec.hydra, which takes the same options
// and libfabric alone. It was not tried: no Intel MPI was at hand.
func intelCommand(p Plan) Command {
	env := hydraEnviron(p)
	for _, kv := range []string{
		"I_MPI_HYDRA_BOOTSTRAP=ssh", "I_MPI_HYDRA_BOOTSTRAP_EXEC=" + agent,
		"I_MPI_HYDRA_IFACE=" + p.Overlay.TUN, "I_MPI_FABRICS=shm:ofi", "I_MPI_PIN=off",
	} {
		env = setenv(env, kv)
	}
	env = setenv(env, lastVariable)
	args := hydraArgs(p, env)
	if i := slices.Index(args, "-bind-to"); i >= 0 { // pinning has its own variable there
		args = slices.Delete(args, i, i+2)
	}
	return Command{Path: p.Launcher.Path, Args: args, Env: env, tag: hydraTag}
}
