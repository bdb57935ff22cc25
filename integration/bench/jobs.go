package bench

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/meshmpi/meshmpi/integration/lab"
	"github.com/meshmpi/meshmpi/integration/programs"
)

// jobTime bounds one MPI job. Those here take seconds, unless others make ranks
// that spin wait for a core.
const jobTime = 3 * time.Minute

// mpiLAN is the flat LAN with what it takes to run MPI programs on it.
type mpiLAN struct {
	*flatLAN
	agent *lab.Agent
	env   *Env
}

func newMPILAN(ctx context.Context, env *Env, name string) (*mpiLAN, error) {
	f, err := newFlatLAN(ctx, env, name)
	if err != nil {
		return nil, err
	}
	agent, err := plainAgent(ctx, f.b, env.Work)
	if err != nil {
		_ = f.net.Lab.Close()
		return nil, err
	}
	return &mpiLAN{f, agent, env}, nil
}

func (m *mpiLAN) close() {
	_ = m.net.Lab.Close()
	m.agent.Close()
}

// plain is the command line of a plain Open MPI job on the LAN, whose data goes
// over one link. Ranks are not bound, since both hosts' first core is the
// machine's first, and Open MPI is spared the search for faster networks, as it
// is by meshrun.
func (m *mpiLAN) plain(link string, ranks int, program string) string {
	slots := ranks / 2
	return fmt.Sprintf("mpirun.openmpi --allow-run-as-root -n %d --host %s:%d,%s:%d --bind-to none --mca plm_rsh_agent %s "+
		"--mca oob_tcp_if_include eth0 --mca pml ob1 --mca btl tcp,vader,self --mca btl_tcp_if_include %s %s",
		ranks, m.a.Addr4, slots, m.b.Addr4, slots, m.agent.Script, link, program)
}

// meshrun is the command line of the same job over the overlay.
func (m *mpiLAN) meshrun(ranks int, program string) string {
	return fmt.Sprintf("%s -n %d -H a1:%d,a2:%d -- %s", m.net.Tool("meshrun"), ranks, ranks/2, ranks/2, program)
}

// own is the same by the user's own launcher, told by meshctl env.
func (m *mpiLAN) own(ranks int, program string) string {
	return fmt.Sprintf(`eval "$(%s env)" && mpirun.openmpi --allow-run-as-root -n %d --host a1:%d,a2:%d %s`,
		m.net.Tool("meshctl"), ranks, ranks/2, ranks/2, program)
}

// job runs a command line on the first host and returns what it printed and how
// long it took.
func (m *mpiLAN) job(ctx context.Context, line string) (string, time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, jobTime)
	defer cancel()
	began := time.Now()
	out, err := m.a.Run(ctx, "sh", "-c", "cd "+m.env.Work+"; "+line)
	if err != nil {
		err = fmt.Errorf("%w\n%s", err, out)
	}
	return out, time.Since(began), err
}

// start measures how long a job takes that does next to nothing.
func start(ctx context.Context, env *Env) (Table, error) {
	if err := needPrograms(map[string]string{"mpicc.openmpi": "libopenmpi-dev", "mpirun.openmpi": "openmpi-bin"}); err != nil {
		return Table{}, err
	}
	hello, err := programs.Compile(env.Work, "hello", "mpicc.openmpi")
	if err != nil {
		return Table{}, err
	}
	m, err := newMPILAN(ctx, env, "start")
	if err != nil {
		return Table{}, err
	}
	defer m.close()
	const ranks = 4
	rounds := pick(env, 9, 2)
	var all []*contender
	for _, way := range []struct{ name, line string }{
		{"mpirun on the bare LAN, with a remote-shell agent that does no more than pass the command on", m.plain("eth0", ranks, hello)},
		{"mpirun over the overlay, `eval \"$(meshctl env)\"`", m.own(ranks, hello)},
		{"meshrun", m.meshrun(ranks, hello)},
	} {
		all = append(all, &contender{name: way.name, run: func() (float64, error) {
			out, took, err := m.job(ctx, way.line)
			if err == nil && strings.Count(out, "sum 10") != ranks {
				err = fmt.Errorf("not %d ranks in:\n%s", ranks, out)
			}
			return took.Seconds(), err
		}})
	}
	err = interleave(rounds, all, func(round int, c *contender) {
		env.say("start: round %d: %s: %.2f s", round+1, c.name, c.got[round])
	})
	if err != nil {
		return Table{}, err
	}
	t := Table{
		Title: "Starting a job",
		Method: fmt.Sprintf("Open MPI's hello world on %d ranks, two on each of two hosts of one LAN, from the command's start to its end, %d rounds in turns. "+
			"All three tell Open MPI to use TCP and shared memory only.",
			ranks, rounds),
		Head: []string{"", "seconds"},
	}
	for _, c := range all {
		t.Rows = append(t.Rows, []string{c.name, c.got.spread("%.2f")})
	}
	return t, nil
}
