package e2e

import (
	"context"
	"fmt"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/meshmpi/meshmpi/integration/deploy"
	"github.com/meshmpi/meshmpi/integration/lab"
)

// badJobs end before a rank runs, or because one has died. The program is built
// for Open MPI and for MPICH.
func badJobs(dies, diesMPICH string) []bad {
	two := "meshrun -n 2 -H a1:1,b1:1 "
	return []bad{
		{"unknown host", "a1", "meshrsh nobody true", 125, `"nobody"…network mesh`},
		{"no host", "a1", "meshrsh", 125, "host…command…usage"},
		{"host that is down", "a1", "meshrsh a2 true", 125, "a2 at site alpha does not answer…meshd runs there"},
		{"no daemon", "a2", "meshrsh a1 true", 125, "/var/lib/meshd…meshd run"},
		{"unknown host for a job", "a1", "meshrun -n 1 -H nobody -- hostname", 125, "nobody…a1, a2"},
		{"host that is down for a job", "a1", "meshrun -n 2 -H a1:1,a2:1 -- " + dies, 125, "a2 is down…-H"},
		{"no daemon for a job", "a2", "meshrun -n 2 -- " + dies, 125, "/var/lib/meshd…meshd run"},
		{"no ranks", "a1", "meshrun -n 0 -- " + dies, 125, "-n"},
		{"no number of ranks", "a1", "meshrun -n x -- " + dies, 125, "x…--help"},
		{"no number of slots", "a1", "meshrun -n 2 -H a1:x -- " + dies, 125, "a1:x…slots"},
		{"no program", "a1", "meshrun -n 2", 125, "program…--help"},
		{"too many ranks", "a1", "meshrun -n 99 -H a1,b1 -- " + dies, 125, "99…--oversubscribe"},
		{"no such MPI", "a1", two + "--mpi lam -- " + dies, 125, "lam…openmpi"},
		{"no MPI", "a1", "PATH=" + bin + " " + two + "-- " + dies, 125, "install"},
		{"no such program", "a1", two + "--mpi openmpi -- /no/such/program", 127, "/no/such/program"},
		{"no such program in PATH", "a1", two + "-- nosuchprogram", 127, "nosuchprogram"},
		{"no program on one node", "a1", "cp " + dies + " /run/here; " + two + "-- /run/here", 127, "b1…/run/here…--stage"},
		{"no executable", "a1", two + "-- /etc/passwd", 126, "/etc/passwd…chmod"},
		{"directory", "a1", two + "--mpi openmpi -- /etc", 126, "/etc"},
		{"no working directory", "a1", two + "--wdir /no/such/dir -- " + dies, 125, "/no/such/dir"},
		{"rank exits", "a1", two + "-- " + dies + " exit", 3, "rank 1 on b1 exited with code 3"},
		{"rank is killed", "a1", two + "-- " + dies + " kill", 137, "rank 1 on b1 was killed by signal 9"},
		{"rank exits, MPICH", "a1", two + "-- " + diesMPICH + " exit", 3, "rank 1 on b1 exited with code 3"},
		{"rank is killed, MPICH", "a1", two + "-- " + diesMPICH + " kill", 137, "rank 1 on b1 was killed by signal 9"},
	}
}

// TestJobsEnd: however a job ends, it is told in one line and exit code, and
// nothing of it is left on any node.
func TestJobsEnd(t *testing.T) {
	t.Parallel()
	lab.Need(t, "mpirun.openmpi", "mpiexec.hydra")
	ctx, n := up(t, lab.TwoSites(lab.PortPreserving), deploy.Options{InitArgs: []string{"--allow-root-exec"}})
	if err := n.Stop(ctx, "a2"); err != nil {
		t.Fatal(err)
	}
	before := snapshots(ctx, t, n, "a1", "b1")
	t.Run("bad", func(t *testing.T) {
		cases(ctx, t, n, badJobs(compiled(t, "dies", "openmpi"), compiled(t, "dies", "mpich")))
	})
	for _, mpi := range []string{"openmpi", "mpich"} {
		t.Run("crash/"+mpi, func(t *testing.T) { crash(ctx, t, n, compiled(t, "dies", mpi)) })
	}
	for _, tc := range []struct {
		mpi string
		sig syscall.Signal
	}{
		{"openmpi", syscall.SIGINT}, {"openmpi", syscall.SIGTERM}, {"openmpi", syscall.SIGKILL},
		{"mpich", syscall.SIGINT}, {"mpich", syscall.SIGTERM}, {"mpich", syscall.SIGKILL},
	} {
		t.Run(fmt.Sprintf("%s/%v", tc.mpi, tc.sig), func(t *testing.T) { interrupt(ctx, t, n, compiled(t, "dies", tc.mpi), tc.sig) })
	}
	wantSnapshots(ctx, t, n, "jobs that were ended", before)
}

// crash lets a rank end by a signal that MPI libraries print a trace for: ours is
// the last word, in one line.
func crash(ctx context.Context, t *testing.T, n *deploy.Network, dies string) {
	code, _, said := try(ctx, t, n, "a1", "meshrun -n 2 -H a1:1,b1:1 -- "+dies+" segv")
	lines := strings.Split(strings.TrimSpace(said), "\n")
	want := "meshrun: rank 1 on b1 was killed by signal 11 (SIGSEGV)"
	if last := lines[len(lines)-1]; code != 139 || !strings.HasPrefix(last, want) || strings.Count(said, "meshrun: ") != 1 {
		t.Errorf("code %d, want 139; the last line should be %q, it says\n%s", code, want, said)
	}
}

// interrupt signals a meshrun whose two ranks wait for ever. It must say no more
// than one line, and leave nothing within seconds.
func interrupt(ctx context.Context, t *testing.T, n *deploy.Network, dies string, sig syscall.Signal) {
	j := begin(ctx, t, n.Lab.Host("a1"), n.Tool("meshrun"), "-n", "2", "-H", "a1:1,b1:1", "--", dies)
	awaitRanks(ctx, t, n, dies, 1, "a1", "b1")
	if err := n.Lab.Host("a1").Kill(sig, pidOf(t, n, "a1", n.Tool("meshrun"), "-n")); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	err := <-j.done
	said := strings.TrimSpace(j.out.String())
	want := fmt.Sprintf("exit status %d", 128+int(sig))
	if sig == syscall.SIGKILL {
		want = "signal: killed"
	}
	if err == nil || err.Error() != want || strings.Contains(said, "\n") {
		t.Errorf("meshrun ends with %v, want %s and one line at most; it says\n%s", err, want, said)
	}
	awaitRanks(ctx, t, n, dies, 0, "a1", "b1")
	t.Logf("%v, and all gone after %v: %s", err, time.Since(began).Round(10*time.Millisecond), said)
}

// TestLeave: a node that leaves ends what others run on it, and they hear of it
// at once, not after a minute's silence.
func TestLeave(t *testing.T) {
	t.Parallel()
	ctx, n := up(t, lab.TwoSites(lab.Symmetric), deploy.Options{InitArgs: []string{"--allow-root-exec"}})
	session := begin(ctx, t, n.Lab.Host("a1"), n.Tool("meshrsh"), "b1", "sleep", "612")
	dies := compiled(t, "dies", "openmpi")
	run := begin(ctx, t, n.Lab.Host("a1"), n.Tool("meshrun"), "-n", "2", "-H", "a1:1,b1:1", "--", dies)
	awaitRanks(ctx, t, n, "sleep", 1, "b1")
	awaitRanks(ctx, t, n, dies, 1, "a1", "b1")
	began := time.Now()
	if err := n.Stop(ctx, "b1"); err != nil {
		t.Errorf("clean stop: %v\n%s", err, n.Daemon("b1").Log())
	}
	t.Logf("meshd took %v to stop", time.Since(began).Round(10*time.Millisecond))
	for what, j := range map[string]*job{"meshrsh": session, "meshrun": run} {
		select {
		case err := <-j.done:
			t.Logf("%s ended after %v: %v\n%s", what, time.Since(began).Round(10*time.Millisecond), err, j.out.String())
			if err == nil || !strings.Contains(j.out.String(), "node b1 is leaving") {
				t.Errorf("%s ends with %v, and without telling that b1 leaves:\n%s", what, err, j.out.String())
			}
		case <-time.After(15 * time.Second):
			t.Errorf("%s has not heard that b1 left", what)
			return
		}
	}
	awaitRanks(ctx, t, n, "sleep", 0, "b1")
	awaitRanks(ctx, t, n, dies, 0, "a1", "b1")

	// A hub that dies takes its relay with it: nobody may read that as a path.
	if _, err := n.AwaitPath(ctx, "a1", "b2", "relay-udp", 10*time.Second); err != nil {
		t.Fatal(err)
	}
	n.Kill("hub")
	silent := regexp.MustCompile(`(?m)^b2 .* down +no answer \(relay-udp by hub.*\)`)
	if err := deploy.Until(ctx, 15*time.Second, "status tells that the relay is dead", func() (bool, error) {
		s, err := n.Ctl(ctx, "a1", "status")
		return silent.MatchString(s) && strings.Contains(s, "warning: no hub answers"), err
	}); err != nil {
		out, _ := n.Ctl(ctx, "a1", "status")
		t.Errorf("%v\n%s", err, out)
	}
	bad{"dead relay", "a1", "meshrsh b2 true", 125, "b2 at site beta does not answer…no hub answers…relay-udp"}.check(ctx, t, n)
}

// count returns how many processes of a host run a program.
func count(t *testing.T, n *deploy.Network, host, program string) (c int) {
	t.Helper()
	procs, err := n.Lab.Host(host).Procs()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range procs {
		if p.Args[0] == program {
			c++
		}
	}
	return c
}

// awaitRanks waits until so many processes of a program run on each host.
func awaitRanks(ctx context.Context, t *testing.T, n *deploy.Network, program string, want int, hosts ...string) {
	t.Helper()
	for _, h := range hosts {
		what := fmt.Sprintf("%d of %s on %s", want, program, h)
		if err := deploy.Until(ctx, 15*time.Second, what, func() (bool, error) { return count(t, n, h, program) == want, nil }); err != nil {
			t.Fatal(err)
		}
	}
}

// pidOf returns the process whose first arguments are these.
func pidOf(t *testing.T, n *deploy.Network, host string, args ...string) int {
	t.Helper()
	procs, err := n.Lab.Host(host).Procs()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range procs {
		if strings.HasPrefix(strings.Join(p.Args, " "), strings.Join(args, " ")) {
			return p.PID
		}
	}
	t.Fatalf("%q does not run on %s", args, host)
	return 0
}

// snapshots takes those of several hosts.
func snapshots(ctx context.Context, t *testing.T, n *deploy.Network, hosts ...string) map[string]string {
	t.Helper()
	m := map[string]string{}
	for _, h := range hosts {
		m[h] = snapshot(ctx, t, n.Lab.Host(h))
	}
	return m
}

// wantSnapshots waits for hosts to be as they were: agents end a moment after
// their job.
func wantSnapshots(ctx context.Context, t *testing.T, n *deploy.Network, what string, before map[string]string) {
	t.Helper()
	for h, was := range before {
		_ = deploy.Until(ctx, 10*time.Second, what, func() (bool, error) { return snapshot(ctx, t, n.Lab.Host(h)) == was, nil })
		wantSame(t, what+" on "+h, was, snapshot(ctx, t, n.Lab.Host(h)))
	}
}
