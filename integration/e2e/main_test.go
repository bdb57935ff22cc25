package e2e

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
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
	if out, err := exec.Command("../../scripts/preload", bin).CombinedOutput(); err != nil {
		panic(string(out))
	}
	// Race builds linger a second after their end; launchers wait for them.
	if err := os.Setenv("GORACE", "atexit_sleep_ms=10"); err != nil {
		panic(err)
	}
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
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	t.Cleanup(cancel)
	opt.Bin = bin
	n, err := deploy.Up(ctx, l, opt)
	t.Cleanup(func() { wantNoRaces(t, l) })
	if err != nil {
		t.Fatal(err)
	}
	return ctx, n
}

// serve runs an iperf3 server on a host until the test ends, and returns when it
// listens.
func serve(ctx context.Context, t *testing.T, h *lab.Host, name string, args ...string) {
	t.Helper()
	server, err := h.Start(name, args...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Kill)
	if err := server.Await(ctx, "Server listening"); err != nil {
		t.Fatal(err)
	}
}

// wantNoRaces looks for the race detector's reports in every daemon's log.
func wantNoRaces(t *testing.T, l *lab.Lab) {
	t.Helper()
	for _, h := range l.Hosts() {
		logs, err := filepath.Glob(filepath.Join(h.Dir(), "*.log"))
		if err != nil {
			t.Error(err)
		}
		for _, log := range logs {
			text, err := os.ReadFile(log)
			if err != nil {
				t.Error(err)
				continue
			}
			if i := strings.Index(string(text), "WARNING: DATA RACE"); i >= 0 {
				t.Errorf("%s: %s", h.Name, text[i:min(len(text), i+4000)])
			}
			if i := strings.Index(string(text), "panic:"); i >= 0 {
				t.Errorf("%s: %s", h.Name, text[i:min(len(text), i+4000)])
			}
		}
	}
}
