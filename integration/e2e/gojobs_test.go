package e2e

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/meshmpi/meshmpi/integration/deploy"
	"github.com/meshmpi/meshmpi/integration/lab"
)

// goProgram builds the program in a folder, with the race detector, where all
// hosts and users of the lab can run it.
func goProgram(t *testing.T, folder string) string {
	t.Helper()
	built.mu.Lock()
	defer built.mu.Unlock()
	name := filepath.Base(folder)
	path := filepath.Join(bin, name)
	if built.path["go "+name] != "" {
		return path
	}
	if out, err := exec.Command("go", "build", "-race", "-o", path, folder).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if built.path == nil {
		built.path = map[string]string{}
	}
	built.path["go "+name] = path
	return path
}

// TestGoJobs runs a Go program, which nothing says it is, over two sites behind
// NATs: by meshrun, and by launchers of others over meshrsh.
func TestGoJobs(t *testing.T) {
	t.Parallel()
	ctx, n := up(t, lab.TwoSites(lab.PortPreserving), deploy.Options{InitArgs: []string{"--allow-root-exec"}})
	prog := goProgram(t, "../programs/go/pmihello")
	four := "meshrun -n 4 -H a1:1,a2:1,b1:1,b2:1 "
	before := snapshots(ctx, t, n, "a1", "a2", "b1", "b2")

	t.Run("ranks", func(t *testing.T) { goRanks(ctx, t, n, four+"-x FOO -- "+prog) })
	t.Run("two programs", func(t *testing.T) {
		out := must(ctx, t, n, "b1", "meshrun --tag-output -n 1 -H b1:1,a1:2 "+prog+" hello one : -n 2 "+prog+" hello two")
		for rank, where := range []string{"app 0 on b1 site beta", "app 1 on a1 site alpha", "app 1 on a1 site alpha"} {
			if want := fmt.Sprintf("[%d] rank %d of 3 %s", rank, rank, where); !strings.Contains(out, want) {
				t.Errorf("no line %q in:\n%s", want, out)
			}
		}
	})
	t.Run("input", func(t *testing.T) {
		if sum := must(ctx, t, n, "a1", "seq 1 300000 | meshrun -n 2 -H b1:1,a2:1 "+prog+" cat | cksum; seq 1 300000 | cksum"); strings.Split(sum, "\n")[0] != strings.Split(sum, "\n")[1] {
			t.Errorf("rank 0 did not copy its input: %s", sum)
		}
	})
	t.Run("staged", func(t *testing.T) {
		out := must(ctx, t, n, "a1", "cp "+prog+" /run/here && meshrun -n 2 -H a1:1,b1:1 --stage /run/here hello; r=$?; rm /run/here; exit $r")
		if strings.Count(out, "of 2 app 0") != 2 {
			t.Errorf("not two ranks:\n%s", out)
		}
	})
	t.Run("spawn", func(t *testing.T) {
		out := must(ctx, t, n, "a1", "meshrun -n 2 -H a1:1,b1:1 "+prog+" spawn b1")
		if strings.Count(out, "of 2 app 0 on b1 site beta") != 2 {
			t.Errorf("not two spawned ranks on b1:\n%s", out)
		}
	})
	goDeaths(ctx, t, n, four, prog)
	t.Run("ends", func(t *testing.T) { cases(ctx, t, n, badGoJobs(prog)) })
	for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGKILL} {
		t.Run(sig.String(), func(t *testing.T) { interruptGo(ctx, t, n, prog, sig) })
	}
	t.Run("own mpiexec", func(t *testing.T) {
		lab.Need(t, "mpiexec.hydra")
		goRanks(ctx, t, n, `eval "$(meshctl env)" && mpiexec.hydra -n 4 -hosts a1,a2,b1,b2 `+prog)
	})
	t.Run("own mpirun", func(t *testing.T) {
		lab.Need(t, "mpirun.openmpi")
		out := shell(ctx, t, n, "mpirun.openmpi --allow-run-as-root --oversubscribe -n 4 --host a1:4 "+prog)
		if strings.Count(out, "of 4 app 0") != 4 {
			t.Errorf("not four ranks in:\n%s", out)
		}
	})
	wantSnapshots(ctx, t, n, "jobs of Go programs", before)
	t.Run("a node leaves", func(t *testing.T) { leaveGo(ctx, t, n, prog) })
}

// leaveGo has a node leave, cleanly, that runs a rank of two jobs: one ends, the
// other goes on until it is told to end.
func leaveGo(ctx context.Context, t *testing.T, n *deploy.Network, prog string) {
	ends := begin(ctx, t, n.Lab.Host("a1"), n.Tool("meshrun"), "-n", "2", "-H", "a1:1,b1:1", prog, "wait")
	goesOn := begin(ctx, t, n.Lab.Host("a2"), n.Tool("meshrun"), "--ft", "-n", "2", "-H", "a2:1,b1:1", prog, "wait")
	for _, j := range []*job{ends, goesOn} { // a job whose ranks have not met yet ends with any of them
		if err := deploy.Until(ctx, 15*time.Second, "both ranks are up", func() (bool, error) {
			return strings.Count(j.out.String(), "up\n") == 2, nil
		}); err != nil {
			t.Fatal(err)
		}
	}
	began := time.Now()
	if err := n.Stop(ctx, "b1"); err != nil {
		t.Errorf("clean stop: %v\n%s", err, n.Daemon("b1").Log())
	}
	select {
	case err := <-ends.done:
		said := strings.TrimSpace(strings.ReplaceAll(ends.out.String(), "up\n", ""))
		t.Logf("ended after %v: %v: %s", time.Since(began).Round(10*time.Millisecond), err, said)
		if err == nil || !strings.Contains(said, "b1") || !strings.Contains(said, "its node ended the session") || strings.Contains(said, "\n") {
			t.Errorf("meshrun ends with %v; it says\n%s", err, said)
		}
	case <-time.After(15 * time.Second):
		t.Fatal("meshrun has not heard that b1 left")
	}
	awaitRanks(ctx, t, n, prog, 0, "a1", "b1")
	if c := count(t, n, "a2", prog); c != 1 {
		t.Errorf("%d ranks of the job that goes on are on a2", c)
	}
	if err := n.Lab.Host("a2").Kill(syscall.SIGTERM, pidOf(t, n, "a2", n.Tool("meshrun"), "--ft")); err != nil {
		t.Fatal(err)
	}
	err := <-goesOn.done
	said := strings.TrimSpace(strings.ReplaceAll(goesOn.out.String(), "up\n", ""))
	if !strings.Contains(said, "b1") || !strings.HasSuffix(said, "; the job goes on") || strings.Contains(said, "\n") {
		t.Errorf("meshrun --ft ends with %v; it says\n%s", err, said)
	}
	awaitRanks(ctx, t, n, prog, 0, "a2")
}

// goRanks runs a job that says where its ranks are and what they were given.
func goRanks(ctx context.Context, t *testing.T, n *deploy.Network, job string) {
	addr := map[string]string{}
	s, err := n.Status(ctx, "a1")
	if err != nil {
		t.Fatal(err)
	}
	for _, node := range s.Nodes {
		addr[node.Name] = node.Addr4
	}
	hosts := []string{"a1", "a2", "b1", "b2"}
	out := must(ctx, t, n, "a1", "cd /usr; export FOO=bar; "+job+" hello 'a b'")
	for rank, node := range hosts {
		site := map[byte]string{'a': "alpha", 'b': "beta"}[node[0]]
		want := fmt.Sprintf("rank %d of 4 app 0 on %s site %s at %s in /usr FOO=bar [\"a b\"]\n", rank, node, site, addr[node])
		if !strings.Contains(out+"\n", want) {
			t.Errorf("no line %q in:\n%s", want, out)
		}
	}
	if strings.Count(out, "\n") != 3 {
		t.Errorf("not four lines:\n%s", out)
	}
}

// goDeaths lets ranks die that others wait for.
func goDeaths(ctx context.Context, t *testing.T, n *deploy.Network, four, prog string) {
	t.Run("survivors", func(t *testing.T) {
		code, out, errs := try(ctx, t, n, "a1", four+"--ft "+prog+" survive")
		if code != 0 || strings.Count(out, "goes on: died 3") != 3 || !strings.Contains(errs, "killed by signal 9 (SIGKILL); the job goes on") || strings.Contains(errs, "\n") {
			t.Errorf("code %d\n%s%s", code, out, errs)
		}
	})
	t.Run("the first to die", func(t *testing.T) {
		code, _, errs := try(ctx, t, n, "a1", four+prog+" miss")
		if code != 3 || strings.Count(errs, "meshrun: ") != 1 || !strings.Contains(errs, "meshrun: rank 3 on b2 (pid ") {
			t.Errorf("code %d, want 3 and rank 3\n%s", code, errs)
		}
	})
}

// interruptGo signals a meshrun whose two ranks wait for ever. It must say nothing
// of its own, and leave nothing.
func interruptGo(ctx context.Context, t *testing.T, n *deploy.Network, prog string, sig syscall.Signal) {
	j := begin(ctx, t, n.Lab.Host("a1"), n.Tool("meshrun"), "-n", "2", "-H", "a1:1,b1:1", prog, "wait")
	awaitRanks(ctx, t, n, prog, 1, "a1", "b1")
	if err := n.Lab.Host("a1").Kill(sig, pidOf(t, n, "a1", n.Tool("meshrun"), "-n")); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	err := <-j.done
	want := fmt.Sprintf("exit status %d", 128+int(sig))
	if sig == syscall.SIGKILL {
		want = "signal: killed"
	}
	if said := strings.ReplaceAll(j.out.String(), "up\n", ""); err == nil || err.Error() != want || said != "" {
		t.Errorf("meshrun ends with %v, want %s; it says\n%s", err, want, said)
	}
	awaitRanks(ctx, t, n, prog, 0, "a1", "b1")
	t.Logf("%v, and all gone after %v", err, time.Since(began).Round(10*time.Millisecond))
}

// badGoJobs end before a rank runs, or because one has died.
func badGoJobs(prog string) []bad {
	two := "meshrun -n 2 -H a1:1,b1:1 "
	return []bad{
		{"rank exits", "a1", two + prog + " exit", 3, "rank 1 on b1 (pid …) exited with code 3"},
		{"rank is killed", "a1", two + prog + " kill", 137, "rank 1 on b1 (pid …) was killed by signal 9 (SIGKILL)"},
		{"rank aborts", "a1", two + prog + " abort", 7, "rank 1 on b1 aborted the job with code 7"},
		{"rank leaves", "a1", two + prog + " leave", 1, "rank 1 on b1 (pid …) ended without finalizing MPI"},
		{"no program on one node", "a1", "cp " + prog + " /run/here; " + two + "/run/here; r=$?; rm /run/here; exit $r", 127, "b1…/run/here…--stage"},
		{"no executable", "a1", two + "--mpi go /etc/passwd", 126, "/etc/passwd…chmod"},
		{"no working directory", "a1", two + "--wdir /no/such/dir " + prog, 125, "/no/such/dir"},
		{"fault tolerance of others", "a1", two + "--ft --mpi openmpi /bin/true", 125, "--ft…Go"},
	}
}
