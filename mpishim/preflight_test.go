package mpishim

import (
	"context"
	"errors"
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
		{"directory", "/etc", h[1], "/bin", 126, "node a2 cannot execute /etc"},
		{"no launcher", "/bin/sh", h[1], "/no/such/bin", 125, "node a2 lacks /no/such/bin/hydra_pmi_proxy; try there: apt install mpich"},
		{"unreachable", "/bin/sh", h[0], "/bin", 125, "node a1 does not answer"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if _, err := osexec.LookPath("/bin/hydra_pmi_proxy"); err != nil && tt.part == "/bin" {
				t.Skip("MPICH is not installed")
			}
			p := Plan{Launcher: Launcher{Kind: MPICH, Path: tt.part + "/mpiexec.hydra"}, Places: []Place{{tt.host, 1}}, Apps: []App{{1, tt.prog, nil}}}
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
		if path, err := rankProgram(got.Apps[0].Prog); err != nil || !strings.HasPrefix(path, filepath.Join(home, "b1")) {
			t.Errorf("a rank finds %q, %v", path, err)
		}
	}
	p.Places = []Place{{h[0], 1}}
	if _, err := Stage(t.Context(), p, localRemote(home)); Code(err) != CodeFailed || !strings.Contains(err.Error(), "a1") {
		t.Errorf("unreachable: got %v", err)
	}
}
