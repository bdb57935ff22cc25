package mpishim

import (
	"context"
	"errors"
	"os"
	osexec "os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/meshmpi/meshmpi/mpishim/exec"
)

// localRemote runs a node's command here, in a home of its own.
func localRemote(home string) Remote {
	return func(ctx context.Context, host string, opt exec.RunOptions) (int, error) {
		if host == "a1" {
			return CodeFailed, errors.New("exec: node a1 does not answer")
		}
		cmd := osexec.CommandContext(ctx, "/bin/sh", "-c", opt.Command)
		cmd.Stdin, cmd.Stdout, cmd.Stderr = opt.Stdin, opt.Stdout, opt.Stderr
		cmd.Env = []string{"PATH=/usr/bin:/bin", "HOME=" + filepath.Join(home, host)}
		cmd.Run()
		return cmd.ProcessState.ExitCode(), nil
	}
}

func TestPreflight(t *testing.T) {
	h := testHosts()
	mine := t.TempDir()
	if err := os.WriteFile(filepath.Join(mine, "prog of mine"), nil, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name string
		prog string
		host Host
		part string // launcher's folder
		code int
		err  string
	}{
		{"good", "/bin/sh", h[1], "/bin", 0, ""},
		{"in PATH", "sh", h[1], "/bin", 0, ""},
		{"this node", "/no/such", h[2], "/bin", 0, ""},
		{"missing", "/no/it's such", h[1], "/bin", 127, "node a2 has no program /no/it's such; copy it there or use --stage"},
		{"not in PATH", "no-such", h[1], "/bin", 127, "node a2 has no program no-such"},
		{"not executable", "/etc/passwd", h[1], "/bin", 126, "node a2 cannot execute /etc/passwd"},
		{"directory", "/etc", h[1], "/bin", 126, "/etc on node a2 is a directory, and no program"},
		{"no launcher", "/bin/sh", h[1], "/no/such/bin", 125, "node a2 lacks /no/such/bin/hydra_pmi_proxy; try there: apt install mpich"},
		{"unreachable", "/bin/sh", h[0], "/bin", 125, "node a1 does not answer"},
		{"in the PATH of -x", "prog of mine", h[1], "/bin", 0, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if _, err := osexec.LookPath("/bin/hydra_pmi_proxy"); err != nil && tt.part == "/bin" {
				t.Skip("MPICH is not installed")
			}
			p := Plan{Launcher: Launcher{Kind: MPICH, Path: tt.part + "/mpiexec.hydra"}, Places: []Place{{tt.host, 1}}, Apps: []App{{1, tt.prog, nil}}, Export: []string{"PATH=/nowhere:" + mine}}
			err := Preflight(t.Context(), p, localRemote(t.TempDir()))
			if Code(err) != tt.code || err != nil && !strings.Contains(err.Error(), tt.err) {
				t.Errorf("got %v (code %d), want %q (code %d)", err, Code(err), tt.err, tt.code)
			}
		})
	}
}

func TestStage(t *testing.T) {
	home := t.TempDir()
	t.Setenv("HOME", filepath.Join(home, "b1"))
	t.Setenv("XDG_CACHE_HOME", "")
	h := testHosts()
	p := Plan{Places: []Place{{h[2], 1}, {h[1], 1}}, Apps: []App{{2, "/bin/true", nil}}}
	for range 2 { // the second finds what the first left
		got, err := Stage(t.Context(), p, localRemote(home))
		if err != nil {
			t.Fatal(err)
		}
		rest, ok := strings.CutPrefix(got.Apps[0].Prog, staged)
		if !ok {
			t.Fatalf("got %q", got.Apps[0].Prog)
		}
		for _, node := range []string{"b1", "a2"} {
			if err := osexec.Command(filepath.Join(home, node, ".cache/meshmpi/stage", rest)).Run(); err != nil {
				t.Errorf("node %s: %v", node, err)
			}
		}
		if path, err := rankProgram(got.Apps[0].Prog, ""); err != nil || !strings.HasPrefix(path, filepath.Join(home, "b1")) {
			t.Errorf("a rank finds %q, %v", path, err)
		}
	}
	p.Places = []Place{{h[0], 1}}
	if _, err := Stage(t.Context(), p, localRemote(home)); Code(err) != CodeFailed || !strings.Contains(err.Error(), "a1") {
		t.Errorf("unreachable: got %v", err)
	}
}

// TestResolve: a program's name is looked up in PATH or in what -x gives ranks for it.
func TestResolve(t *testing.T) {
	dir, other := t.TempDir(), t.TempDir()
	for path, mode := range map[string]os.FileMode{filepath.Join(dir, "prog"): 0o700, filepath.Join(dir, "text"): 0o600, filepath.Join(other, "text"): 0o700} {
		if err := os.WriteFile(path, nil, mode); err != nil {
			t.Fatal(err)
		}
	}
	t.Chdir(dir)
	environ := []string{"PATH=/no/such", "PATH=" + dir}
	for _, tt := range []struct {
		prog, path, want string
		code             int
	}{
		{"./prog", "", dir + "/prog", 0},
		{"prog", "", "", CodeNotFound},
		{"prog", ".:", "", CodeNotFound}, // ranks start elsewhere
		{"prog", PathOf([]string{"A=1", "PATH"}, environ), dir + "/prog", 0},
		{"prog", PathOf([]string{"PATH=/nowhere"}, environ), "", CodeNotFound},
		{"prog", PathOf([]string{"A"}, environ), "", CodeNotFound},
		{"text", dir, "", CodeCannotRun},
		{"text", dir + ":" + other, other + "/text", 0},
		{dir, "", "", CodeCannotRun},
		{filepath.Base(dir), filepath.Dir(dir), "", CodeNotFound},
	} {
		if got, err := Resolve(tt.prog, tt.path); got != tt.want || Code(err) != tt.code {
			t.Errorf("Resolve(%q, %q) = %q, %v", tt.prog, tt.path, got, err)
		}
	}
}
