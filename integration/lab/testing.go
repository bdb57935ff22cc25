package lab

import (
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// packages says which Debian package holds a program that tests need, where it
// is not named like the program.
var packages = map[string]string{
	"conntrack":     "conntrack",
	"g++":           "g++",
	"ip":            "iproute2",
	"mpicc":         "libopenmpi-dev",
	"mpiexec.hydra": "mpich",
	"mpirun":        "openmpi-bin",
	"munged":        "munge",
	"nc":            "netcat-openbsd",
	"nft":           "nftables",
	"nsenter":       "util-linux",
	"ping":          "iputils-ping",
	"ps":            "procps",
	"setpriv":       "util-linux",
	"srun":          "slurm-client",
	"ss":            "iproute2",
	"ssh":           "openssh-client",
	"sshd":          "openssh-server",
	"tcpdump":       "tcpdump",
	"tracepath":     "iputils-tracepath",
}

// Need fails the test unless all the programs are installed, and says which
// packages to install. Only a user who could not install them, and is not a
// continuous integration, sees the test skipped instead.
func Need(t testing.TB, programs ...string) {
	t.Helper()
	var missing []string
	for _, p := range programs {
		if _, err := exec.LookPath(p); err == nil {
			continue
		}
		pkg := packages[p]
		if pkg == "" {
			pkg = p
		}
		missing = append(missing, pkg)
	}
	switch {
	case len(missing) == 0:
	case os.Getenv("CI") != "" || os.Geteuid() == 0 && os.Getenv(envRootless) == "":
		t.Fatalf("programs are missing: apt-get install %s", strings.Join(missing, " "))
	default:
		t.Skipf("programs are missing: apt-get install %s", strings.Join(missing, " "))
	}
}

// Start builds a lab for the duration of a test. Its log, warnings upward, is
// the test's, and so are the last lines of the daemons' logs when it fails.
func Start(t testing.TB, cfg Config) *Lab {
	t.Helper()
	Need(t, "nft")
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelWarn}))
	}
	l, err := New(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			l.tell(t.Output())
		}
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	return l
}

// tellLines is how many lines of each log tell shows.
const tellLines = 10

// tell writes the ends of all daemons' logs.
func (l *Lab) tell(w io.Writer) {
	for _, h := range l.hosts {
		logs, _ := filepath.Glob(filepath.Join(h.dir, "*.log"))
		for _, log := range logs {
			text, _ := os.ReadFile(log)
			lines := strings.Split(strings.TrimSpace(string(text)), "\n")
			fmt.Fprintf(w, "--- %s: %s\n", h.Name, filepath.Base(log))
			for _, line := range lines[max(0, len(lines)-tellLines):] {
				fmt.Fprintf(w, "    %s\n", line)
			}
		}
	}
}
