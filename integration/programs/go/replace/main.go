// Command replace has a rank kill itself, and another take its place. It needs a
// launcher that lets the others go on (meshrun --ft), and at least 3 ranks.
//
// With -by spawn all ranks count together, step by step, until one dies. The others
// leave it out, spawn one on the same node, merge with it, and go on where they
// were, by the ranks that they had.
//
// With -by name the rank that dies has published a port by the name of a service,
// and the others connect to it. They spawn another, which publishes a port by that
// name again, look the name up, and connect as before.
//
// In the end each rank prints "rank RANK of SIZE on NODE: STEPS steps, sum SUM", or
// "rank RANK on NODE was served by NODE, pid PID, then by NODE, pid PID".
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"syscall"

	"github.com/meshmpi/meshmpi/mpi"
)

func main() {
	by := flag.String("by", "spawn", "how the replacement is found: spawn or name")
	kill := flag.Int("kill", 1, "rank that kills itself")
	flag.Parse()
	mpi.Main(func(c *mpi.Comm) error {
		spawned := c.World().Parent() != nil
		switch {
		case !spawned && (c.Size() < 3 || *kill < 0 || *kill >= c.Size()):
			return fmt.Errorf("replace: %d ranks, of which %d is to die: at least 3 are needed, and that one", c.Size(), *kill)
		case *by == "spawn" && spawned:
			return join(c)
		case *by == "spawn":
			return count(c, *kill, 0)
		case *by == "name" && spawned:
			return serve(c, false)
		case *by == "name":
			return meet(c, *kill)
		}
		return fmt.Errorf("replace: -by %s; spawn and name are known", *by)
	})
}

// die is kill -9 of this process.
func die() error { return syscall.Kill(os.Getpid(), syscall.SIGKILL) }

// another starts one more process of this program on the node of a rank.
func another(c *mpi.Comm, node, by string) (*mpi.Comm, error) {
	path, err := os.Executable()
	if err != nil {
		return nil, err
	}
	return c.Spawn(0, mpi.Program{N: 1, Path: path, Args: []string{"-by", by}, Info: map[string]string{"host": node}})
}

// died reports whether an error says that somebody is dead, or that somebody else
// has seen that.
func died(err error) bool { return errors.Is(err, mpi.ErrProcFailed) || errors.Is(err, mpi.ErrRevoked) }
