package bench

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/meshmpi/meshmpi/integration/lab"
	"github.com/meshmpi/meshmpi/integration/programs"
)

// What package mpi promises beside the better of Open MPI and MPICH.
const (
	goLatency   = 1.0  // of its time at smallest, at most, unless chance explains it
	goTCPBand   = 1.0  // of its bandwidth at largest, at least
	goShmBand   = 0.9  // the same on one host
	goCrowd     = 0.8  // of its rate with more ranks than processors, at least
	goIdle      = 0.05 // of a processor for a rank that waits, at most
	goAllocs    = 0.01 // allocations in a round trip, less than
	smallest    = 1
	largest     = 1 << 20
	crowd       = 8 // ranks on one host
	crowdFigure = "allreduce"
)

// ppSizes are the messages of the ping-pong, crowdSizes those of the crowd.
func ppSizes() []int    { return []int{smallest, 1 << 10, 64 << 10, largest} }
func crowdSizes() []int { return []int{1, 64 << 10} }

// mpiNeeds are the programs of both rivals.
func mpiNeeds() map[string]string {
	return map[string]string{"NPopenmpi": "netpipe-openmpi", "NPmpich2": "netpipe-mpich2", "mpicc.openmpi": "libopenmpi-dev", "mpirun.openmpi": "openmpi-bin", "mpicc.mpich": "libmpich-dev", "mpiexec.hydra": "mpich"}
}

// bareLAN is two hosts of one LAN and nothing else, with the programs to compare.
type bareLAN struct {
	lab      *lab.Lab
	a, b     *lab.Host
	agent    *lab.Agent
	programs map[string]string // "pp openmpi" and so on: the executable
}

func newBareLAN(ctx context.Context, env *Env, name string) (*bareLAN, error) {
	m := &bareLAN{programs: map[string]string{}}
	for _, program := range []string{"pp", "colls", netpipeGo} {
		inGo, err := programs.Build(ctx, env.Work, program)
		if err != nil {
			return nil, err
		}
		m.programs[program+" go"] = inGo
		if program == netpipeGo {
			continue // the rivals' are Debian's
		}
		for _, mpi := range []string{"openmpi", "mpich"} {
			if m.programs[program+" "+mpi], err = programs.Compile(env.Work, program, "mpicc."+mpi); err != nil {
				return nil, err
			}
		}
	}
	var err error
	if m.lab, err = env.lab(ctx, name, lab.OneLAN()); err != nil {
		return nil, err
	}
	m.a, m.b = m.lab.Host("a1"), m.lab.Host("a2")
	if m.agent, err = plainAgent(ctx, m.b, env.Work); err != nil {
		_ = m.lab.Close()
		return nil, err
	}
	return m, nil
}

func (m *bareLAN) close() {
	_ = m.lab.Close()
	m.agent.Close()
}

// openMPI is Open MPI's command line for ranks on one host, or for two on both. It
// is spared the search for faster networks, and told to yield where ranks are more
// than processors, as it does by itself when it knows.
func (m *bareLAN) openMPI(ranks int, apart bool, program, args string) string {
	line := "mpirun.openmpi --allow-run-as-root --mca pml ob1 "
	if apart { // not bound: both hosts' first core is the machine's first
		line += fmt.Sprintf("-n 2 --host %s:1,%s:1 --bind-to none --mca plm_rsh_agent %s --mca oob_tcp_if_include eth0 "+
			"--mca btl tcp,self --mca btl_tcp_if_include eth0 ", m.a.Addr4, m.b.Addr4, m.agent.Script)
	} else {
		line += fmt.Sprintf("-n %d --oversubscribe --mca btl vader,self ", ranks)
	}
	return line + m.programs[program+" openmpi"] + " " + args
}

// inGo is the command line for Go's ranks: Hydra's, but where ranks are more than
// processors as Open MPI's, since Hydra gives each rank a session of its own, between
// which Linux divides the processors evenly (autogroups), so that yielding yields to
// nobody.
func (m *bareLAN) inGo(ranks int, apart bool, program, args string) string {
	if ranks < crowd {
		return m.hydra(ranks, apart, program, "go", args)
	}
	return fmt.Sprintf("mpirun.openmpi --allow-run-as-root -n %d --oversubscribe %s %s", ranks, m.programs[program+" go"], args)
}

// hydra is the command line of Hydra, MPICH's launcher, which starts Go's ranks too.
func (m *bareLAN) hydra(ranks int, apart bool, program, mpi, args string) string {
	program = m.programs[program+" "+mpi] + " " + args
	if !apart {
		return fmt.Sprintf("mpiexec.hydra -n %d %s", ranks, program)
	}
	line := "UCX_TLS=tcp,self UCX_NET_DEVICES=eth0 "
	if mpi == "go" {
		line = ""
	}
	part := func(h *lab.Host) string {
		var env string
		if mpi == "go" {
			env = "-env MESH_ADDRESS " + h.Addr4.String() + " -env GOMAXPROCS 1 " // both hosts have the same two processors
		}
		return "-n 1 " + env + program
	}
	return line + fmt.Sprintf("mpiexec.hydra -launcher rsh -launcher-exec %s -iface eth0 -hosts %s,%s %s : %s", m.agent.Script, m.a.Addr4, m.b.Addr4, part(m.a), part(m.b))
}

// job is a job on the LAN.
func (m *bareLAN) job(line, program string, lines int) printing {
	return printing{from: m.a, hosts: []*lab.Host{m.a, m.b}, program: program, line: line, lines: lines, within: jobTime}
}

// trio are Open MPI, MPICH and Go, in one place.
type trio struct {
	place   string
	figures []what
	players [3]*player
	alone   *player // Go by TCP alone, not judged; nil: it does not play
}

// newTrio has the three run a program.
func (m *bareLAN) newTrio(ctx context.Context, place string, ranks int, apart bool, program, args string, figures []what) *trio {
	t := &trio{place: place, figures: figures}
	for i, x := range []struct{ name, mpi, line string }{
		{"Open MPI", "openmpi", m.openMPI(ranks, apart, program, args)},
		{"MPICH", "mpich", m.hydra(ranks, apart, program, "mpich", args)},
		{"Go", "go", m.inGo(ranks, apart, program, args)},
	} {
		job := m.job(x.line, m.programs[program+" "+x.mpi], len(figures))
		t.players[i] = newPlayer(place+", "+x.name, figures, func() (string, error) { return job.run(ctx) })
	}
	return t
}

func (t *trio) contenders() []*contender {
	all := []*contender{&t.players[0].contender, &t.players[1].contender, &t.players[2].contender}
	if t.alone != nil {
		all = append(all, &t.alone.contender)
	}
	return all
}

// best is the better rival.
func (t *trio) best(w what) *player { return better(w, t.players[0], t.players[1]) }

// faster is Go's rate by that of the better rival.
func (t *trio) faster(w what) float64 { return t.best(w).got[w].mean.by(t.players[2].got[w].mean) }

func (t *trio) rows() [][]string {
	rows := t.rowsOf(t.place, t.players[2])
	if t.alone != nil {
		rows = append(rows, t.rowsOf(t.place+", Go by that alone", t.alone)...)
	}
	return rows
}

// rowsOf are the rivals' figures and those of one of Go's.
func (t *trio) rowsOf(place string, own *player) (rows [][]string) {
	for _, w := range t.figures {
		row := []string{place, size(w.bytes)}
		var worst, band []string
		for _, p := range []*player{t.players[0], t.players[1], own} {
			row = append(row, p.got[w].mean.spread("%.2f"))
			worst = append(worst, fmt.Sprintf("%.1f", p.got[w].worst.median()))
			band = append(band, fmt.Sprintf("%.2f", p.got[w].mbps.median()/1e3))
		}
		best := t.best(w)
		rows = append(rows, append(row, own.got[w].mean.over(best.got[w].mean).likely("%.2f"), strings.Join(worst, " / "),
			strings.Join(band, " / "), own.got[w].mbps.over(best.got[w].mbps).likely("%.2f")))
	}
	return rows
}

// size is a number of bytes as people say it.
func size(bytes int) string {
	switch {
	case bytes >= 1<<20 && bytes%(1<<20) == 0:
		return fmt.Sprintf("%d MiB", bytes>>20)
	case bytes >= 1<<10 && bytes%(1<<10) == 0:
		return fmt.Sprintf("%d KiB", bytes>>10)
	}
	return fmt.Sprintf("%d B", bytes)
}

// named lists the figures of a name.
func named(name string, sizes []int) (all []what) {
	for _, n := range sizes {
		all = append(all, what{name, n})
	}
	return all
}

// words are numbers as arguments.
func words(numbers []int) string { return strings.Trim(fmt.Sprint(numbers), "[]") }

// gompi compares package mpi with Open MPI and MPICH.
func gompi(ctx context.Context, env *Env) (Table, error) {
	if err := needPrograms(mpiNeeds()); err != nil {
		return Table{}, err
	}
	m, err := newBareLAN(ctx, env, "gompi")
	if err != nil {
		return Table{}, err
	}
	defer m.close()
	rounds, tcpRounds, seconds := pick(env, 25, 2), pick(env, 75, 2), pick(env, 0.15, 0.1)
	pp := fmt.Sprintf("-seconds %g %s", seconds, words(ppSizes()))
	colls := fmt.Sprintf("-loops 20 -seconds %g -only %s %s", 2*seconds, crowdFigure, words(crowdSizes()))
	shm := m.newTrio(ctx, "one host, shared memory", 2, false, "pp", pp, named("pp", ppSizes()))
	tcp := m.newTrio(ctx, "two hosts, TCP", 2, true, "pp", pp, named("pp", ppSizes()))
	alone := m.job("MESH_NO_UDP=1 "+m.inGo(2, true, "pp", pp), m.programs["pp go"], len(tcp.figures))
	tcp.alone = newPlayer(tcp.place+", Go by that alone", tcp.figures, func() (string, error) { return alone.run(ctx) })
	many := m.newTrio(ctx, fmt.Sprintf("one host, %s of %d ranks", crowdFigure, crowd), crowd, false, "colls", colls, named(crowdFigure, crowdSizes()))
	for _, t := range []*trio{shm, tcp, many} {
		n := rounds
		if t == tcp { // a switch between two processes takes now this long, now that
			n = tcpRounds
		}
		err := interleave(n, t.contenders(), func(round int, c *contender) {
			env.say("gompi: round %d: %s: %s takes %.2f µs", round+1, c.name, size(t.figures[0].bytes), c.got[round])
		})
		if err != nil {
			return Table{}, err
		}
	}
	costs, err := m.costs(ctx, env)
	if err != nil {
		return Table{}, err
	}
	pipes, err := m.pipes(ctx, env)
	if err != nil {
		return Table{}, err
	}
	t := Table{Title: "MPI for Go beside Open MPI and MPICH", Method: gompiMethod(rounds, tcpRounds, seconds) + pipesMethod,
		Head: []string{"", "message", "Open MPI, µs", "MPICH, µs", "Go, µs", "Go ÷ better rival", "99.9th percentile, µs: Open MPI / MPICH / Go", "Gb/s: Open MPI / MPICH / Go", "Go ÷ better rival"}}
	for _, trio := range []*trio{shm, tcp, many} {
		t.Rows = append(t.Rows, trio.rows()...)
	}
	for _, trio := range pipes {
		t.Rows = append(t.Rows, trio.rows()...)
	}
	t.Verdicts = append(judgeTrios(shm, tcp, many), judgeCosts(costs)...)
	return t, nil
}

func gompiMethod(rounds, tcpRounds int, seconds float64) string {
	return fmt.Sprintf("Two hosts of one LAN (veth, MTU 1500), nothing else on them. Ping-pong (integration/programs: c/pp.c and go/pp), a process for each rank, public API, "+
		"the garbage collector on: half a round trip, for %g s each size in one job, after as many as take an eighth of that, %d rounds in turns, on two hosts %d; times are means, with the median and the least and greatest of the rounds; quotients are medians of the rounds', with their 95 %% interval by the bootstrap over rounds; "+
		"bandwidth is a message by its mean time. Open MPI and MPICH are Debian's. mpiexec.hydra starts MPICH and Go, mpirun Open MPI, and on two hosts a remote-shell agent that only passes the command on starts all of them. "+
		"On one host everything is as it is by default, but Open MPI is told pml ob1 and btl vader,self, which spares it a search. On two hosts all use TCP on eth0: "+
		"Open MPI by btl tcp,self and btl_tcp_if_include, unbound, since both hosts' first core is one; MPICH by UCX_TLS=tcp,self and UCX_NET_DEVICES; Go by MESH_ADDRESS, eth0's, and with GOMAXPROCS=1, as it sets it by itself where two ranks share two processors, which here they do without knowing. By default Go sends small answers ahead of TCP as datagrams, too; the rows of Go by TCP alone are with MESH_NO_UDP=1, and not judged. "+
		"%d ranks on one host: %s in a loop (colls.c, go/colls), after as many as take an eighth of the time; mpirun with --oversubscribe, which makes Open MPI yield, starts Go too, since Hydra gives each rank a session and Linux divides the processors between sessions (autogroups): there, yielding is in vain. "+
		"A job of MPICH that hangs in MPI_Finalize after its last figure is killed after %v. "+
		"Allocations are the runtime's count on both ranks over 20000 round trips, with a buffer declared in the loop up to 256 B; an unexpected message is followed by another that is received first.",
		seconds, rounds, tcpRounds, crowd, crowdFigure, patience)
}

// judgeTrios checks what is promised of speed.
func judgeTrios(shm, tcp, many *trio) (all []Verdict) {
	small, large := what{"pp", smallest}, what{"pp", largest}
	for _, x := range []struct {
		t    *trio
		band float64
	}{{tcp, goTCPBand}, {shm, goShmBand}} {
		own := x.t.players[2]
		best := x.t.best(small)
		q := own.got[small].mean.over(best.got[small].mean)
		low, _ := q.interval()
		all = append(all, Verdict{q.median() < goLatency+rounding || low <= goLatency, fmt.Sprintf("%s: %s in %.2f µs, by the better rival in %.2f, within the rounds %s of its time; it must be at most %.1f, or the interval reach that",
			x.t.place, size(smallest), own.got[small].mean.median(), best.got[small].mean.median(), q.likely("%.2f"), goLatency)})
		r := x.t.faster(large)
		all = append(all, Verdict{r >= x.band, fmt.Sprintf("%s: %s at %.2f Gb/s, by the better rival at %.2f, within the rounds %.2f of its rate; it must be at least %.1f",
			x.t.place, size(largest), own.got[large].mbps.median()/1e3, x.t.best(large).got[large].mbps.median()/1e3, r, x.band)})
	}
	for _, w := range many.figures {
		r := many.faster(w)
		all = append(all, Verdict{r >= goCrowd, fmt.Sprintf("%s, %s: %.2f of the better rival's rate; it must be at least %.1f", many.place, size(w.bytes), r, goCrowd)})
	}
	return all
}

// costs are what Go's messages and waiting take, by place.
type costs struct {
	place  string
	allocs map[what]float64
	idle   float64 // share of a processor
	waited time.Duration
}

// costs measures them in both places.
func (m *bareLAN) costs(ctx context.Context, env *Env) (all []costs, err error) {
	wait := pick(env, 5*time.Second, time.Second)
	for _, x := range []struct {
		place string
		apart bool
	}{{"shared memory", false}, {"TCP", true}} {
		c := costs{place: x.place, waited: wait}
		out, err := m.job(m.hydra(2, x.apart, "pp", "go", "-allocs 1 256 1024"), m.programs["pp go"], 18).run(ctx)
		if err != nil {
			return nil, err
		}
		if c.allocs, err = parseAllocs(out); err != nil {
			return nil, err
		}
		if out, err = m.job(m.hydra(2, x.apart, "pp", "go", fmt.Sprintf("-idle %v", wait)), m.programs["pp go"], 1).run(ctx); err != nil {
			return nil, err
		}
		if _, c.idle, err = parseIdle(out); err != nil {
			return nil, err
		}
		env.say("gompi: %s: allocations %v, idle %.4f", c.place, c.allocs, c.idle)
		all = append(all, c)
	}
	return all, nil
}

// judgeCosts checks what is promised of them.
func judgeCosts(all []costs) (verdicts []Verdict) {
	for _, c := range all {
		var most what
		for w, n := range c.allocs {
			if n >= c.allocs[most] {
				most = w
			}
		}
		verdicts = append(verdicts,
			Verdict{c.allocs[most] < goAllocs, fmt.Sprintf("%s: at most %.4f allocations in a round trip (%s messages of %s); they must be less than %.2f",
				c.place, c.allocs[most], most.name, size(most.bytes), goAllocs)},
			Verdict{c.idle <= goIdle, fmt.Sprintf("%s: a rank that waits %v for a message uses %.1f %% of a processor; it must be at most %.0f %%",
				c.place, c.waited, 100*c.idle, 100*goIdle)})
	}
	return verdicts
}
