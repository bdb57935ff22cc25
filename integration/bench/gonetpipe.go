package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// netpipeGo is the program that does in Go what NetPIPE does.
const netpipeGo = "netpipe"

// pipeWithin bounds a run of NetPIPE for one size, which takes seconds.
const pipeWithin = time.Minute

// pipesMethod says how NetPIPE's rows come about.
const pipesMethod = " Rows of NetPIPE: Debian's NPopenmpi and NPmpich2, and go/netpipe, which has their method and their output, each started as above; " +
	"a fixed number of round trips, the best of seven trials, so there is no percentile (the best stands there again)."

// pipes compares Go with the rivals by NetPIPE, on one host and on two.
func (m *bareLAN) pipes(ctx context.Context, env *Env) (all []*trio, err error) {
	rounds := pick(env, 5, 1)
	m.programs[netpipeGo+" openmpi"], m.programs[netpipeGo+" mpich"] = "NPopenmpi", "NPmpich2"
	for _, x := range []struct {
		place string
		apart bool
	}{{"NetPIPE, one host", false}, {"NetPIPE, two hosts, TCP", true}} {
		t := &trio{place: x.place, figures: named(netpipeGo, []int{smallest, largest})}
		for i, mpi := range []string{"openmpi", "mpich", "go"} {
			t.players[i] = newPlayer(x.place+", "+mpi, t.figures, func() (string, error) {
				var out strings.Builder
				for _, w := range t.figures {
					if err := m.pipe(ctx, env, &out, mpi, x.apart, w); err != nil {
						return "", err
					}
				}
				return out.String(), nil
			})
		}
		err := interleave(rounds, t.contenders(), func(round int, c *contender) {
			env.say("gompi: round %d: %s: %s takes %.2f µs", round+1, c.name, size(t.figures[0].bytes), c.got[round])
		})
		if err != nil {
			return nil, err
		}
		all = append(all, t)
	}
	return all, nil
}

// pipe runs NetPIPE for one size, and adds what it has found in the form of the other
// programs' figures. NetPIPE's Mb are of 1024·1024 bits, ours are not.
func (m *bareLAN) pipe(ctx context.Context, env *Env, out *strings.Builder, mpi string, apart bool, w what) error {
	file := filepath.Join(env.Work, "np.out")
	if err := os.Remove(file); err != nil && !os.IsNotExist(err) {
		return err
	}
	trips := pick(env, 5000, 500)
	if w.bytes > smallest {
		trips /= 20
	}
	args := fmt.Sprintf("-l %d -u %d -p 0 -n %d -o %s", w.bytes, w.bytes, trips, file)
	line := m.hydra(2, apart, netpipeGo, mpi, args)
	if mpi == "openmpi" {
		line = m.openMPI(2, apart, netpipeGo, args)
	}
	job := m.job("cd "+env.Work+"; "+line, m.programs[netpipeGo+" "+mpi], 1<<20) // to its end, since its lines are not on standard output
	job.within = pipeWithin
	_, failed := job.run(ctx)
	text, err := os.ReadFile(file)
	if err != nil {
		return errors.Join(failed, err)
	}
	seconds, _, err := parseNetPIPE(string(text), w.bytes) // a job that hangs in MPI_Finalize has them
	if err != nil {
		return errors.Join(failed, err)
	}
	fmt.Fprintf(out, "%s %d %.3f %.3f %.1f\n", w.name, w.bytes, seconds*1e6, seconds*1e6, float64(w.bytes)*8/seconds/1e6)
	return nil
}
