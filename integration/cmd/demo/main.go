// Command demo shows the main job on one screen: a public hub and two sites of
// two machines behind NATs, five meshd processes, and unmodified MPI programs
// across them. It ends with 0 only if every check held.
//
// All of it happens in network namespaces of its own and leaves no trace.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/alecthomas/kong"

	"github.com/meshmpi/meshmpi/integration/lab"
)

type options struct {
	Bin string `default:"bin" help:"Directory of meshd, meshctl, meshrun and meshrsh."`
}

func main() {
	lab.Main()
	var o options
	kong.Parse(&o, kong.Name("demo"), kong.Description("Two sites behind NATs, unmodified MPI programs across them."))
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	s := newStory(os.Stdout)
	if err := tell(ctx, s, o); err != nil {
		fmt.Fprintf(os.Stderr, "demo: %v\n", err)
		os.Exit(1)
	}
	if !s.end() {
		os.Exit(1)
	}
}

// tell tells the three acts.
func tell(ctx context.Context, s *story, o options) error {
	bin, err := filepath.Abs(o.Bin)
	if err != nil {
		return err
	}
	if _, err := os.Stat(filepath.Join(bin, "meshd")); err != nil {
		return fmt.Errorf("no meshd in %s; run make build first", bin)
	}
	work, err := os.MkdirTemp("", "meshmpi-demo-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	if err := os.Chmod(work, 0o755); err != nil {
		return err
	}
	for _, act := range []struct {
		title string
		nat   lab.NAT
		play  func(context.Context, *stage) error
	}{
		{"Two sites behind NATs that keep ports: pairs meet directly", lab.PortPreserving, direct},
		{"The same behind symmetric NATs: pairs cannot meet, the hub relays", lab.Symmetric, relayed},
		{"The hub is killed while a job runs over direct pairs", lab.PortPreserving, hubDies},
	} {
		began := time.Now()
		s.act(act.title)
		if err := perform(ctx, s, bin, work, act.nat, act.play); err != nil {
			return err
		}
		s.note("this act took %.0f s", time.Since(began).Seconds())
	}
	return nil
}
