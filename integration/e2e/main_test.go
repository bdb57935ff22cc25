package e2e

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/meshmpi/meshmpi/integration/deploy"
	"github.com/meshmpi/meshmpi/integration/lab"
)

// bin holds the daemons and commands under test, built with the race detector.
var bin string

func TestMain(m *testing.M) {
	lab.Main()
	os.Exit(run(m))
}

func run(m *testing.M) int {
	dir, err := os.MkdirTemp("", "meshmpi-e2e-")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	if err := os.Chmod(dir, 0o755); err != nil {
		panic(err)
	}
	bin = filepath.Join(dir, "bin")
	cmd := exec.Command("go", "build", "-race", "-o", bin+"/", "../../cmd/...")
	cmd.Stdout, cmd.Stderr = os.Stderr, os.Stderr
	if err := cmd.Run(); err != nil {
		panic(err)
	}
	return m.Run()
}

// up brings a network up on a fresh lab.
func up(t *testing.T, cfg lab.Config, opt deploy.Options) (context.Context, *deploy.Network) {
	t.Helper()
	l := lab.Start(t, cfg)
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	t.Cleanup(cancel)
	opt.Bin = bin
	n, err := deploy.Up(ctx, l, opt)
	if err != nil {
		t.Fatal(err)
	}
	return ctx, n
}
