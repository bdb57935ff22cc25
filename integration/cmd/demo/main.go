// Command demo shows the main job on one screen: a public hub and two sites of
// two machines behind NATs, five meshd processes, and unmodified MPI programs
// across them. It is told in four acts: over direct paths, over the relay, with the
// hub killed under a running job, and with programs of package mpi, one of which
// outlives a killed rank. It ends with 0 only if every check held, and prints what
// it checked and measured.
//
// All of it happens in network namespaces of its own (package lab) and leaves no
// trace; of a demo that failed the daemons' logs stay. It measures nothing
// worth quoting: all machines share this one's processors. That is for
// benchmarks.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/alecthomas/kong"

	"github.com/meshmpi/meshmpi/integration/lab"
)

type options struct {
	Bin string `default:"bin" help:"Directory of meshd, meshctl, meshrun and meshrsh."`
	Act []int  `help:"Play only these acts (1 direct, 2 relayed, 3 the hub dies, 4 programs in Go)."`
}

// program is the acts there are.
var program = [...]struct {
	name, title string
	nat         lab.NAT
	play        func(context.Context, *stage) error
}{
	{"direct", "Two sites behind NATs that keep ports: pairs meet directly", lab.PortPreserving, direct},
	{"relayed", "The same behind symmetric NATs: the sites cannot meet, the hub relays", lab.Symmetric, relayed},
	{"hub killed", "The hub is killed while a job runs over direct pairs", lab.PortPreserving, hubDies},
	{"Go", "Programs in Go, with no MPI installed: heat, sort, and a farm that loses a worker", lab.PortPreserving, inGo},
}

func main() {
	lab.Main()
	var o options
	kong.Parse(&o, kong.Name("demo"), kong.Description("Two sites behind NATs, unmodified MPI programs across them."))
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	good, err := tell(ctx, newStory(os.Stdout), o)
	stop()
	if err != nil {
		fmt.Fprintf(os.Stderr, "demo: %v\n", err)
	}
	if err != nil || !good {
		os.Exit(1)
	}
}

// tell tells the acts and reports whether all was well. An act that fails does
// not keep the next from being played.
func tell(ctx context.Context, s *story, o options) (bool, error) {
	bin, err := filepath.Abs(o.Bin)
	if err != nil {
		return false, err
	}
	if err := errors.Join(rooted(), installed(bin)); err != nil {
		return false, err
	}
	ws, err := newWorkshop()
	if err != nil {
		return false, err
	}
	defer ws.close()
	for i, a := range program {
		if len(o.Act) > 0 && !slices.Contains(o.Act, i+1) {
			continue
		}
		s.begin(i+1, a.name, a.title)
		err := perform(ctx, s, bin, ws, a.nat, a.play)
		if ctx.Err() != nil {
			return false, errors.New("interrupted; nothing is left behind")
		}
		if errors.Is(err, errNoLab) {
			return false, err
		}
		if err != nil {
			why, _, _ := strings.Cut(err.Error(), "\n") // a log may follow, which has been shown
			s.check(false, "the act was played to its end: %s", why)
		}
		s.finish()
	}
	if len(s.acts) == 0 {
		return false, fmt.Errorf("there is no act %v: acts are 1 to %d", o.Act, len(program))
	}
	return s.end(), nil
}

// rooted says in one line that the demo needs root. The lab itself does not, but
// in the user namespace that it takes instead, the kernel does not let meshd
// take on a user to start that user's ranks.
func rooted() error {
	b, err := os.ReadFile("/proc/self/setgroups")
	if err == nil && strings.TrimSpace(string(b)) == "deny" {
		return errors.New("this needs root, to start ranks as a user of the lab's hosts; run: sudo make demo")
	}
	return nil
}

// installed says in one line what the demo needs and this machine lacks.
func installed(bin string) error {
	for _, tool := range [...]string{"meshd", "meshctl", "meshrun", "meshrsh"} {
		if _, err := os.Stat(filepath.Join(bin, tool)); err != nil {
			return fmt.Errorf("no %s in %s; run make build first", tool, bin)
		}
	}
	var missing []string
	for _, tool := range [...]string{"hpcc", "NPopenmpi", "mpirun.openmpi", "mpicc.openmpi", "mpiexec.hydra", "mpicc.mpich", "nft", "ping"} {
		if _, err := exec.LookPath(tool); err != nil {
			missing = append(missing, tool)
		}
	}
	if len(missing) > 0 {
		return fmt.Errorf("missing programs: %s; run make deps first", strings.Join(missing, " "))
	}
	return nil
}
