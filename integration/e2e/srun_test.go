package e2e

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/meshmpi/meshmpi/integration/deploy"
	"github.com/meshmpi/meshmpi/integration/lab"
)

// slurmConf is a cluster of two nodes that know each other by overlay names. It
// does without what namespaces may lack: cgroups, accounting, binding to cores.
const slurmConf = `ClusterName=lab
SlurmctldHost=a1(a1.mesh.internal)
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket=/run/munge/socket
MpiDefault=none
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SelectType=select/linear
SlurmdParameters=config_overrides
StateSaveLocation=/run/slurm/ctld
SlurmdSpoolDir=/run/slurm/d
SlurmctldPidFile=/run/slurm/ctld.pid
SlurmdPidFile=/run/slurm/d.pid
ReturnToService=2
InactiveLimit=0
TreeWidth=2
NodeName=a1 NodeHostname=a1 NodeAddr=a1.mesh.internal CPUs=4
NodeName=b1 NodeHostname=b1 NodeAddr=b1.mesh.internal CPUs=4
PartitionName=all Nodes=a1,b1 Default=YES MaxTime=INFINITE OverSubscribe=FORCE:4
`

// slurm starts Slurm on a1 and b1, and waits until both are idle.
func slurm(ctx context.Context, t *testing.T, n *deploy.Network) {
	t.Helper()
	key := strings.Repeat("of this laboratory alone", 4)
	for _, host := range []string{"a1", "b1"} {
		must(ctx, t, n, host, fmt.Sprintf(`umask 022; mkdir -p /run/munge /run/slurm/ctld /run/slurm/d /etc/slurm
cat >/etc/slurm/slurm.conf <<'END'
%sEND
printf %%s '%s' >/run/munge/key && chmod 600 /run/munge/key && chown 0:0 /run/munge/key`, slurmConf, key))
		daemon := func(name string, args ...string) {
			t.Helper()
			if _, err := n.Lab.Host(host).Start(name, args...); err != nil {
				t.Fatal(err)
			}
		}
		daemon("munged", "--foreground", "--socket=/run/munge/socket", "--key-file=/run/munge/key",
			"--pid-file=/run/munge/pid", "--seed-file=/run/munge/seed", "--log-file=/run/munge/log")
		if host == "a1" {
			daemon("slurmctld", "-D", "-c", "-f", "/etc/slurm/slurm.conf")
		}
		daemon("slurmd", "-D", "-N", host, "-f", "/etc/slurm/slurm.conf")
	}
	var said string
	if err := deploy.Until(ctx, 30*time.Second, "Slurm's nodes are idle", func() (bool, error) {
		_, out, errs := try(ctx, t, n, "a1", "sinfo -h -N -o '%N %t'")
		said = out + errs
		return strings.Contains(out, "a1 idle\n") && strings.Contains(out, "b1 idle\n"), nil
	}); err != nil {
		t.Fatalf("%v\n%s", err, said)
	}
}

// TestSrun starts a Go program by Slurm's own launcher on a node of each of two
// sites: by the plugin that speaks PMI, and with nothing but numbers.
func TestSrun(t *testing.T) {
	t.Parallel()
	lab.Need(t, "srun", "slurmctld", "slurmd", "munged")
	ctx, n := up(t, lab.TwoSites(lab.PortPreserving), deploy.Options{InitArgs: []string{"--allow-root-exec"}})
	if _, err := n.AwaitPath(ctx, "a1", "b1", "udp", 10*time.Second); err != nil {
		t.Fatal(err)
	}
	hello, orders := goProgram(t, "../../mpi/examples/hello"), goProgram(t, "../programs/go/orders")
	slurm(ctx, t, n)
	for _, tc := range []struct{ what, line, says string }{
		{"PMI", "srun --mpi=pmi2 -N 2 -n 4 " + hello, "rank 3 of 4 on b1"},
		{"PMI, with messages", "srun --mpi=pmi2 -N 2 -n 4 " + orders, "orders: 4 ranks agree"},
		{"numbers, with messages", "srun --mpi=none -N 2 -n 4 " + orders, "orders: 4 ranks agree"},
		{"numbers", "srun --mpi=none -N 2 -n 4 " + hello, "rank 3 of 4 on b1 at site beta"},
		{"numbers, after the other's settings", `eval "$(meshctl env)"; srun --mpi=none -N 2 -n 2 ` + hello, "rank 0 of 2 on a1 at site alpha"},
		{"one host", "srun --mpi=none -N 1 -w b1 -n 3 " + hello, "rank 2 of 3 on b1"},
	} {
		t.Run(tc.what, func(t *testing.T) {
			began := time.Now()
			code, out, errs := try(ctx, t, n, "a1", tc.line)
			if code != 0 || !strings.Contains(out, tc.says) {
				t.Errorf("code %d, want a line with %q:\n%s%s", code, tc.says, out, errs)
			}
			t.Logf("%v\n%s%s", time.Since(began).Round(time.Millisecond), out, errs)
		})
	}
}
