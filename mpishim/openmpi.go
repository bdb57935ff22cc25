package mpishim

import (
	"slices"
	"strconv"
)

// wanEager is the eager limit, in bytes, of jobs that span sites: a rendezvous
// costs one more round trip, so messages up to about the bandwidth × delay of
// 100 Mb/s and 20 ms go at once.
const wanEager = 256 << 10

type param struct{ name, value string }

// openMPIParams are the MCA parameters for the overlay. major 0 is for a version
// that is not known: names of both, and no list of transports, since "sm" and
// "vader" exclude each other. Both include parameters take CIDR notation (tried
// with 4.1.4), which holds where nodes call their interfaces differently.
func openMPIParams(cidr string, major int) []param {
	var ps []param
	if major < 5 {
		ps = append(ps, param{"plm_rsh_agent", agent}, param{"oob_tcp_if_include", cidr}, param{"orte_keep_fqdn_hostnames", "1"})
	}
	if major >= 5 {
		ps = append(ps, param{"plm_ssh_agent", agent}, param{"prte_if_include", cidr})
	}
	ps = append(ps, param{"btl_tcp_if_include", cidr}, param{"btl_tcp_disable_family", "6"}, param{"pml", "ob1"})
	switch {
	case major == 0:
		ps = append(ps, param{"btl", "^openib,uct,ofi,usnic"})
	case major < 5:
		ps = append(ps, param{"btl", "tcp,vader,self"})
	default:
		ps = append(ps, param{"btl", "tcp,sm,self"})
	}
	return ps
}

// openMPICommand drives Open MPI's mpirun; from version 5 on, PRRTE's.
func openMPICommand(p Plan) Command {
	major := p.Launcher.Major
	if major == 0 {
		major = 4
	}
	var args []string
	for _, m := range openMPIParams(p.Overlay.CIDR.String(), major) {
		flag := "--mca"
		if major >= 5 && (m.name == "plm_ssh_agent" || m.name == "prte_if_include") {
			flag = "--prtemca"
		}
		args = append(args, flag, m.name, m.value)
	}
	if p.sites() > 1 {
		eager := strconv.Itoa(wanEager)
		for _, name := range []string{"btl_tcp_eager_limit", "btl_tcp_rndv_eager_limit", "btl_tcp_max_send_size"} {
			args = append(args, "--mca", name, eager)
		}
	}
	if prefix := p.prefix(); prefix != "" {
		args = append(args, "--prefix", prefix)
	}
	args = append(args, "--bind-to", "none", "--host", p.hostList())
	if major >= 5 { // the slots are the ranks': what they spawn goes beyond
		args = append(args, "--map-by", ":OVERSUBSCRIBE")
	} else if args = append(args, "--oversubscribe"); !p.Verbose {
		args = append(args, "--quiet") // our own line says who died
	}
	env := p.environ()
	if p.Root {
		env = setenv(setenv(env, "OMPI_ALLOW_RUN_AS_ROOT=1"), "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1")
	}
	for i, a := range p.Apps {
		if i > 0 {
			args = append(args, ":")
		}
		args = append(args, "-n", strconv.Itoa(a.N), "--wdir", "/")
		for _, name := range p.exported(env) {
			args = append(args, "-x", name)
		}
		args = slices.Concat(args, a.wrapped())
	}
	return Command{Path: p.Launcher.Path, Args: args, Env: env}
}
