package bench

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/meshmpi/meshmpi/integration/deploy"
	"github.com/meshmpi/meshmpi/integration/programs"
)

const (
	groupShared = 2                      // connections that the ranks of two sites share
	groupLook   = 250 * time.Millisecond // between looks at a job's connections
)

// groupSizes are the bytes of each rank, and of a ping-pong's messages.
func groupSizes() []int { return []int{8, 64 << 10, 1 << 20} }

// grouping is one setting of a job: connections shared, or not.
type grouping struct {
	name        string
	shared      int // MESH_GROUP_LINKS; 0: each pair has its own
	players     []*player
	connections sample // most between the sites, of each job
}

// grouplinks compares jobs whose ranks share few connections between sites with such
// whose ranks do not.
func grouplinks(ctx context.Context, env *Env) (Table, error) {
	if err := needPrograms(map[string]string{"ss": "iproute2"}); err != nil {
		return Table{}, err
	}
	s, err := newTwoSites(ctx, env, "grouplinks", wideLine())
	if err != nil {
		return Table{}, err
	}
	defer s.close()
	far, err := s.overlay(ctx, s.b)
	if err != nil {
		return Table{}, err
	}
	rounds := pick(env, 5, 1)
	modes := []*grouping{{name: "each its own"}, {name: "shared", shared: groupShared}}
	tasks := groupTasks(env)
	for _, g := range modes {
		if err := s.prepare(ctx, env, g, tasks, far); err != nil {
			return Table{}, err
		}
	}
	for i := range tasks {
		both := []*contender{&modes[0].players[i].contender, &modes[1].players[i].contender}
		err := interleave(rounds, both, func(round int, c *contender) {
			env.say("grouplinks: round %d: %s: %.2f ms", round+1, c.name, c.got[round]/1e3)
		})
		if err != nil {
			return Table{}, err
		}
	}
	return s.groupTable(modes, tasks, rounds), nil
}

// groupTask is a program to run in both settings.
type groupTask struct {
	program, args string
	figures       []what
}

func groupTasks(env *Env) []groupTask {
	var counts []int
	for _, n := range groupSizes() {
		counts = append(counts, 2*siteRanks*n) // colls divides what alltoall gives
	}
	seconds := pick(env, 1.0, 0.2)
	return []groupTask{
		{"colls", fmt.Sprintf("-loops 5 -seconds %g -only allreduce %s", seconds, words(groupSizes())), named("allreduce", groupSizes())},
		{"colls", fmt.Sprintf("-loops 5 -seconds %g -only alltoall %s", seconds, words(counts)), named("alltoall", groupSizes())},
		{"pp", fmt.Sprintf("-least 4 -last -seconds %g %s", seconds, words(groupSizes())), named("pp", groupSizes())},
	}
}

// prepare makes the players of a setting.
func (s *twoSites) prepare(ctx context.Context, env *Env, g *grouping, tasks []groupTask, far map[string]bool) error {
	p := placements(s.a, s.b)[1] // interleaved: the last two ranks are on two sites
	for _, t := range tasks {
		program, err := programs.Build(ctx, env.Work, t.program)
		if err != nil {
			return err
		}
		job := printing{from: s.net.Lab.Host("a1"), hosts: s.net.Lab.Hosts(), program: program, lines: 1 << 20, within: collWithin,
			line: fmt.Sprintf("MESH_GROUP_LINKS=%d %s", g.shared, p.line(s.net, single, program+" "+t.args))}
		g.players = append(g.players, newPlayer(t.figures[0].name+", "+g.name, t.figures, func() (string, error) {
			stop := s.watchConnections(ctx, filepath.Base(program), far)
			out, err := job.run(ctx)
			g.connections = append(g.connections, float64(stop()))
			return out, err
		}))
	}
	return nil
}

// overlay is the set of some hosts' virtual addresses.
func (s *twoSites) overlay(ctx context.Context, hosts []string) (map[string]bool, error) {
	all := map[string]bool{}
	for _, h := range hosts {
		status, err := s.net.Status(ctx, h)
		if err != nil {
			return nil, err
		}
		all[status.Self.Addr4] = true
	}
	return all, nil
}

// watchConnections counts a program's connections from site alpha to some addresses
// until stop is called, which returns the most that there were at one time.
func (s *twoSites) watchConnections(ctx context.Context, program string, far map[string]bool) (stop func() int) {
	ctx, cancel := context.WithCancel(ctx)
	most := 0
	var done sync.WaitGroup
	done.Go(func() { // ends with stop
		tick := time.NewTicker(groupLook)
		defer tick.Stop()
		for {
			most = max(most, countConnections(ctx, s.net, s.a, program, far))
			select {
			case <-tick.C:
			case <-ctx.Done():
				return
			}
		}
	})
	return func() int {
		cancel()
		done.Wait()
		return most
	}
}

// countConnections asks each host; one that does not answer, since the job or the
// bench ends, has none.
func countConnections(ctx context.Context, net *deploy.Network, hosts []string, program string, far map[string]bool) (n int) {
	for _, h := range hosts {
		out, err := net.Lab.Host(h).Run(ctx, "ss", "-Htnp", "state", "established")
		if err == nil {
			n += parseConnections(out, program, far)
		}
	}
	return n
}

// mostProcessName is how much of a program's name the kernel keeps.
const mostProcessName = 15

// parseConnections counts the lines of ss that are about a program's connections to
// some addresses: queues, local and remote address with ports, processes.
func parseConnections(text, program string, far map[string]bool) (n int) {
	program = program[:min(len(program), mostProcessName)]
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		if len(f) < 5 || !strings.Contains(f[4], `"`+program+`"`) {
			continue
		}
		host := f[3][:max(strings.LastIndexByte(f[3], ':'), 0)]
		host = strings.TrimPrefix(strings.Trim(host, "[]"), "::ffff:")
		if far[host] {
			n++
		}
	}
	return n
}

func (s *twoSites) groupTable(modes []*grouping, tasks []groupTask, rounds int) Table {
	t := Table{Title: "Connections between sites that ranks share",
		Method: fmt.Sprintf("Two sites of %d hosts behind NATs, a rank of Go on each, %v one way between the sites, each site's line %d Mb/s both ways. meshrun with MESH_GROUP_LINKS=0, where each pair of ranks that talk has a connection, "+
			"and =%d; ranks interleaved over the sites. go/colls of integration/programs in a loop; go/pp between the last two ranks, whose messages others pass on, half a round trip. %d rounds in turns, medians of the jobs' means. "+
			"Bytes are those that each rank gives (alltoall: to each other one). Connections are those of the program's processes between the sites, the most that `ss` saw in a job, looking every %v.",
			siteRanks, s.line.delay, s.line.rate/1_000_000, groupShared, rounds, groupLook),
		Head: []string{"operation", "message", "each its own, ms", "shared, ms", "shared ÷ each its own"}}
	own, shared := modes[0], modes[1]
	for i, task := range tasks {
		for _, w := range task.figures {
			a, b := own.players[i].got[w].mean, shared.players[i].got[w].mean
			t.Rows = append(t.Rows, []string{w.name, size(w.bytes), a.milli().spread("%.2f"), b.milli().spread("%.2f"), ratio(b, a)})
		}
	}
	t.Rows = append(t.Rows, []string{"connections between the sites", "", own.connections.spread("%.0f"), shared.connections.spread("%.0f"), ""})
	most := shared.connections.quantile(1)
	t.Verdicts = []Verdict{{most > 0 && most <= groupShared, fmt.Sprintf("%.0f connections between the sites where they are shared, up to %.0f where they are not; it must be 1 to %d",
		most, own.connections.quantile(1), groupShared)}}
	return t
}
