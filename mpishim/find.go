package mpishim

import (
	"context"
	osexec "os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// Launcher is an installed mpirun or mpiexec.
type Launcher struct {
	Kind  Kind
	Path  string
	Major int // of its version; 0 where it does not say
}

// family is what sets one kind of launcher apart.
type family struct {
	kind    Kind
	names   []string // the kind's own first: mpirun itself may be anybody's
	pack    string   // Debian package with the launcher
	part    string   // what it needs on every node, besides the program
	command func(Plan) Command
}

// families is a table: a new launcher is a file and a row.
func families() []family {
	return []family{
		{OpenMPI, []string{"mpirun.openmpi", "mpirun", "mpiexec", "orterun", "prterun"}, "openmpi-bin", "orted", openMPICommand},
		{Intel, []string{"mpiexec.hydra", "mpirun", "mpiexec"}, "intel-oneapi-mpi", "hydra_bstrap_proxy", intelCommand},
		{Go, nil, "meshmpi", "meshrun", goCommand},
		{MPICH, []string{"mpiexec.hydra", "mpirun.mpich", "mpiexec.mpich", "mpirun", "mpiexec"}, "mpich", "hydra_pmi_proxy", mpichCommand},
	}
}

func familyOf(k Kind) (family, bool) {
	for _, f := range families() {
		if f.kind == k {
			return f, true
		}
	}
	return family{}, false
}

// Find finds the launcher of a kind; the empty kind is whatever mpirun or
// mpiexec is first in PATH. When there is none, the error says what to install.
// For Go it is meshrun, which the plan knows where to find.
func Find(ctx context.Context, k Kind) (Launcher, error) {
	if k == Go {
		return Launcher{Kind: Go, Path: "meshrun"}, nil
	}
	names, pack := []string{"mpirun", "mpiexec"}, "openmpi-bin (or mpich)"
	if f, ok := familyOf(k); ok {
		names, pack = f.names, f.pack
	}
	for _, name := range names {
		path, err := osexec.LookPath(name)
		if err != nil {
			continue
		}
		if l, ok := probe(ctx, path); ok && (k == "" || l.Kind == k) {
			return l, nil
		}
	}
	what := string(k)
	if k == "" {
		what = "MPI"
	}
	return Launcher{}, failf(CodeFailed, "no launcher for %s in PATH on this node; try: apt install %s", what, pack)
}

func probe(ctx context.Context, path string) (Launcher, bool) {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	cmd := osexec.CommandContext(ctx, path, "--version")
	cmd.WaitDelay = time.Second
	out, err := cmd.CombinedOutput()
	if err != nil {
		return Launcher{}, false
	}
	k, major := parseVersion(string(out))
	// A link into an installation of its own leads to its other parts.
	if real, err := filepath.EvalSymlinks(path); err == nil && filepath.Dir(real) != filepath.Dir(path) {
		path = real
	}
	return Launcher{k, path, major}, k != ""
}

var versionNumber = regexp.MustCompile(`\b(\d+)\.\d+`)

// parseVersion reads what a launcher answers to --version.
func parseVersion(text string) (Kind, int) {
	major := 0
	if m := versionNumber.FindStringSubmatch(text); m != nil {
		major, _ = strconv.Atoi(m[1])
	}
	switch {
	case strings.Contains(text, "Intel(R) MPI"):
		return Intel, major
	case strings.Contains(text, "HYDRA"):
		return MPICH, major
	case strings.Contains(text, "Open MPI"), strings.Contains(text, "OpenRTE"), strings.Contains(text, "Open-MPI"):
		return OpenMPI, major
	case strings.Contains(text, "PRRTE"), strings.Contains(text, "PMIx Reference"):
		return OpenMPI, 5
	}
	return "", 0
}
