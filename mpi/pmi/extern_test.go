package pmi

import (
	"bytes"
	"errors"
	"maps"
	"net"
	"os"
	osexec "os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

func listenTCP(t *testing.T) (net.Listener, string) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return ln, ln.Addr().String()
}

func sameSpawn(a, b SpawnRequest) bool {
	if len(a.Apps) != len(b.Apps) || !maps.Equal(a.Keys, b.Keys) {
		return false
	}
	for i := range a.Apps {
		x, y := a.Apps[i], b.Apps[i]
		if x.N != y.N || x.Prog != y.Prog || !slices.Equal(x.Args, y.Args) || !maps.Equal(x.Info, y.Info) {
			return false
		}
	}
	return true
}

func TestMeetingDirIsOurs(t *testing.T) {
	if st, err := os.Stat("/dev/shm"); err != nil || !st.IsDir() {
		t.Skip("no /dev/shm")
	}
	dir, err := meetingDir(env())
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	defer os.Chmod(dir, 0o700)
	if _, err := meetingDir(env()); err == nil {
		t.Error("a directory that everybody may write to passes")
	}
}

// outcome runs somebody's launcher and returns its sorted lines and exit code.
func outcome(t *testing.T, name string, args ...string) (lines []string, code int, errs string) {
	t.Helper()
	cmd := osexec.CommandContext(limited(t), launcher(t, name), args...)
	cmd.WaitDelay = time.Second
	cmd.Env = withEnv("OMPI_ALLOW_RUN_AS_ROOT=1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1", "OMPI_MCA_rmaps_base_oversubscribe=1")
	var out, e bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &e
	if err := cmd.Run(); err != nil && !errors.As(err, new(*osexec.ExitError)) {
		t.Fatal(err)
	}
	lines = strings.Split(strings.TrimSpace(out.String()), "\n")
	slices.Sort(lines)
	return lines, cmd.ProcessState.ExitCode(), e.String()
}

// TestLaunchersOfOthers starts ranks by Debian's launchers.
func TestLaunchersOfOthers(t *testing.T) {
	prog := buildProbe(t)
	for _, tt := range []struct {
		name     string
		launcher string
		args     []string
		want     []string
		code     int
	}{
		{"Hydra", "mpiexec.hydra", []string{"-n", "3", prog, "names"}, []string{"rank 0 of 3 app 0 under PMI", "rank 1 of 3 app 0 under PMI", "rank 2 of 3 app 0 under PMI"}, 0},
		{"Hydra by port", "mpiexec.hydra", []string{"-pmi-port", "-n", "2", prog}, []string{"rank 0 of 2 app 0 under PMI", "rank 1 of 2 app 0 under PMI"}, 0},
		{"Hydra, two programs", "mpiexec.hydra", []string{"-n", "1", prog, ":", "-n", "1", prog}, []string{"rank 0 of 2 app 0 under PMI", "rank 1 of 2 app 1 under PMI"}, 0},
		{"Hydra spawns", "mpiexec.hydra", []string{"-n", "1", prog, "spawn"}, []string{
			`child 0 of 3 app 0 "a b": parent known true, spawned true`, `child 1 of 3 app 0 "a b": parent known true, spawned true`,
			`child 2 of 3 app 1 "c": parent known true, spawned true`, "rank 0 of 1 app 0 under PMI"}, 0},
		{"Hydra aborts", "mpiexec.hydra", []string{"-n", "2", prog, "abort"}, []string{""}, 9},
		{"Open MPI", "mpirun.openmpi", []string{"-n", "3", prog, "names"}, []string{"rank 0 of 3 app 0 under Open MPI", "rank 1 of 3 app 0 under Open MPI", "rank 2 of 3 app 0 under Open MPI"}, 0},
		{"Open MPI, two programs", "mpirun.openmpi", []string{"-n", "1", prog, ":", "-n", "1", prog}, []string{"rank 0 of 2 app 0 under Open MPI", "rank 1 of 2 app 1 under Open MPI"}, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			lines, code, errs := outcome(t, tt.launcher, tt.args...)
			if !slices.Equal(lines, tt.want) || code != tt.code {
				t.Errorf("got %q, code %d, want %q, code %d; %s", lines, code, tt.want, tt.code, errs)
			}
		})
	}
}

// TestMPICHAtOurServer: a C program's PMI client, both ways to connect.
func TestMPICHAtOurServer(t *testing.T) {
	prog := filepath.Join(t.TempDir(), "hello")
	if out, err := osexec.Command(launcher(t, "mpicc.mpich"), "-o", prog, "testdata/hello.c").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	j := serve(t, Config{Size: 2, Keys: map[string]string{"PMI_process_mapping": "(vector,(0,1,2))"}})
	var all sync.WaitGroup
	outs := make([]string, 2)
	for r := range 2 {
		cmd := osexec.CommandContext(limited(t), prog)
		cmd.Env = withEnv("PMI_PORT="+j.addr, "PMI_ID="+itoa(r), "UCX_TLS=self,sm", "MPIR_CVAR_ENABLE_GPU=0")
		all.Go(func() {
			out, err := cmd.CombinedOutput()
			if outs[r] = string(out); err != nil {
				t.Errorf("rank %d: %v: %s", r, err, out)
			}
		})
	}
	all.Wait()
	for r, out := range outs {
		if want := sprintf("rank %d of 2 has 1\n", r); out != want {
			t.Errorf("got %q, want %q", out, want)
		}
	}
	select {
	case <-j.srv.Idle():
	case <-limited(t).Done():
		t.Error("both have ended and the server does not know")
	}
	if len(j.news) != 0 {
		t.Errorf("%d notices", len(j.news))
	}
}
