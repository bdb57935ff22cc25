package pmi

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strings"
)

// Under launchers that tell ranks no more than their numbers, ranks meet at a
// server in rank 0: at a socket of the host's if all are on one host, else at the
// node's virtual address, which the others learn from a meshd.

// meeting is what a rank knows of its job.
type meeting struct {
	identity   string // the same text for every rank, and for no other job at a time
	rank, size int
	app        int
	universe   int
	oneHost    bool
	owners     []string // names or addresses of nodes that may keep the job, best first
	launcher   string
	instead    string // what to do without a meshd
}

// key names the job: a hash, since identities hold addresses and are long.
func (m meeting) key() string {
	sum := sha256.Sum256([]byte(m.identity))
	return hex.EncodeToString(sum[:16])
}

// attend connects to where the ranks meet.
func (m meeting) attend(ctx context.Context, env environ) (*Client, error) {
	c := &Client{}
	var err error
	if m.oneHost {
		err = c.meetHere(ctx, m, env)
	} else {
		err = c.meetAtMeshd(ctx, m, env)
	}
	if err != nil {
		return nil, err
	}
	c.appnum, c.universe = m.app, m.universe
	return c, nil
}

// dialOpenMPI learns of a job from mpirun's variables. Its job numbers repeat;
// the address of mpirun itself, or its host and process number, tells jobs apart.
func dialOpenMPI(ctx context.Context, env environ) (*Client, bool, error) {
	if env("OMPI_COMM_WORLD_RANK") == "" {
		return nil, false, nil
	}
	rank, size, err := env.place("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE")
	if err != nil {
		return nil, true, err
	}
	head := env("OMPI_MCA_orte_hnp_uri") // version 4: "JOB.0;tcp://A,B:PORT;tcp6://…"
	m := meeting{
		identity: "openmpi " + env("PMIX_NAMESPACE") + " " + head,
		rank:     rank, size: size, launcher: "Open MPI's mpirun",
		oneHost: env("OMPI_COMM_WORLD_LOCAL_SIZE") == env("OMPI_COMM_WORLD_SIZE"),
		owners:  append(uriHosts(head), namespaceHost(env("PMIX_NAMESPACE"))...),
		instead: "start the program with meshrun or with MPICH's mpiexec, or all its ranks on one host",
	}
	if m.oneHost { // versions 4 and 5
		m.identity += " " + env("PMIX_SERVER_URI2") + " " + env("PMIX_SERVER_URI41")
	}
	m.app, _ = env.number("OMPI_MCA_orte_app_num", 0, MaxSize)
	m.universe, _ = env.number("OMPI_UNIVERSE_SIZE", 0, 1<<30)
	c, err := m.attend(ctx, env)
	return c, true, err
}

// dialSlurm learns of a job step from srun's variables. A batch script has most
// of them too; only a step's task has SLURM_STEP_NUM_TASKS.
func dialSlurm(ctx context.Context, env environ) (*Client, bool, error) {
	if env("SLURM_PROCID") == "" || env("SLURM_STEP_NUM_TASKS") == "" || env("SLURM_STEP_ID") == "" {
		return nil, false, nil
	}
	rank, size, err := env.place("SLURM_PROCID", "SLURM_STEP_NUM_TASKS")
	if err != nil {
		return nil, true, err
	}
	m := meeting{
		identity: strings.Join([]string{"slurm", env("SLURM_CLUSTER_NAME"), env("SLURM_JOB_ID"), env("SLURM_STEP_ID"),
			env("SLURM_RESTART_COUNT"), env("SLURM_SRUN_COMM_PORT")}, " "),
		rank: rank, size: size, launcher: "srun",
		oneHost: env("SLURM_STEP_NUM_NODES") == "1",
		owners:  slices.DeleteFunc([]string{firstNode(env("SLURM_STEP_NODELIST"))}, func(s string) bool { return s == "" }),
		instead: "use srun --mpi=pmi2",
	}
	c, err := m.attend(ctx, env)
	return c, true, err
}

// maxOwners bounds how many nodes a rank names.
const maxOwners = 8

// uriHosts returns the addresses in a contact string of Open MPI 4:
// "JOB.0;tcp://10.0.0.1,192.0.2.1:37467;tcp6://[fd00::1]:3514".
func uriHosts(uri string) (hosts []string) {
	for part := range strings.SplitSeq(uri, ";") {
		_, rest, ok := strings.Cut(part, "://")
		if !ok {
			continue
		}
		if i := strings.LastIndexByte(rest, ':'); i >= 0 {
			rest = rest[:i]
		}
		for h := range strings.SplitSeq(strings.Trim(rest, "[]"), ",") {
			if h != "" && len(hosts) < maxOwners {
				hosts = append(hosts, h)
			}
		}
	}
	return hosts
}

// namespaceHost returns the host in a namespace of Open MPI 5, which is
// "prterun-HOST-PID@JOB".
func namespaceHost(ns string) []string {
	ns, _, _ = strings.Cut(ns, "@")
	_, rest, ok := strings.Cut(ns, "-")
	if i := strings.LastIndexByte(rest, '-'); ok && i > 0 {
		return []string{rest[:i]}
	}
	return nil
}

// firstNode returns the first host of Slurm's "node[3-5,8],other".
func firstNode(list string) string {
	head, rest, bracket := strings.Cut(list, "[")
	if name, _, several := strings.Cut(head, ","); several || !bracket {
		return name
	}
	if i := strings.IndexAny(rest, "-,]"); i > 0 {
		return head + rest[:i]
	}
	return ""
}
