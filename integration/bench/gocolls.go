package bench

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/meshmpi/meshmpi/integration/deploy"
	"github.com/meshmpi/meshmpi/integration/lab"
	"github.com/meshmpi/meshmpi/integration/programs"
	"github.com/meshmpi/meshmpi/mpi/coll"
)

// The two sites, and what package mpi promises on them.
const (
	siteRanks  = 4    // a host each
	collBound  = 1.25 // of the bound, at most
	collRival  = 1.00 // of Open MPI's time, at most, to two digits, unless chance explains it
	collWithin = 5 * time.Minute

	// What takes longer than so to cross differs little from round to round, and takes
	// most of a round's time.
	longBytes = 1 << 20
)

// collRounds are how often what is measured is: everything in so many rounds, and what is
// short in more.
type collRounds struct{ all, short int }

// siteLine is the line of each of the sites.
type siteLine struct {
	delay    time.Duration // one way, between the sites
	rate     int64         // bits per second, both ways
	queue    int           // bytes, drop-tail
	declared bool          // so that nodes pace themselves
	sizes    []int         // that colls is told, bytes
}

// wideLine is that of which promises are made. Its queue holds more than any of the
// operations has under way.
func wideLine() siteLine {
	return siteLine{delay: 10 * time.Millisecond, rate: 100_000_000, queue: 16 << 20, sizes: []int{1, 64 << 10, 4 << 20}}
}

// slowLine takes five times as long for everything, so that this machine's processors
// count for a fifth, and has the queue of a small switch.
func slowLine() siteLine {
	return siteLine{delay: 50 * time.Millisecond, rate: 20_000_000, queue: matbQueue, declared: true, sizes: []int{1, 64 << 10, 1 << 20}}
}

// timed are the operations that colls times, in its order.
func timed() []coll.Collective {
	return []coll.Collective{coll.OpBarrier, coll.OpBcast, coll.OpReduce, coll.OpAllreduce, coll.OpAllgather, coll.OpAlltoall}
}

// short is the line without the long ones of its sizes.
func (l siteLine) short() siteLine {
	l.sizes = slices.DeleteFunc(slices.Clone(l.sizes), func(n int) bool { return n >= longBytes })
	return l
}

// figures lists what colls prints of them.
func (l siteLine) figures() []what {
	all := []what{{coll.OpBarrier.String(), 0}}
	for _, n := range l.sizes {
		for _, c := range timed()[1:] {
			w := what{c.String(), n}
			if c == coll.OpAllgather || c == coll.OpAlltoall {
				w.bytes = max(n/(2*siteRanks), 1)
			}
			all = append(all, w)
		}
	}
	return all
}

// placement is an order of the hosts; rank i is on the i-th.
type placement struct {
	name  string
	hosts []string
}

// placements returns contiguous and interleaved ones of two sites' hosts.
func placements(a, b []string) []placement {
	mixed := make([]string, 0, len(a)+len(b))
	for i := range a {
		mixed = append(mixed, a[i], b[i])
	}
	return []placement{{"contiguous", slices.Concat(a, b)}, {"interleaved", mixed}}
}

// topo is what package coll knows of it: sites by the first letter of their hosts.
func (p placement) topo() *coll.Topo {
	t := &coll.Topo{Size: len(p.hosts)}
	for i, h := range p.hosts {
		t.Host, t.Site = append(t.Host, int32(i)), append(t.Site, int32(h[0]-'a'))
	}
	return t
}

// bound is the least time of an operation, in µs, over a line, and the formula of the
// bytes that have to cross.
func (p placement) bound(l siteLine, w what) (us float64, formula string) {
	i := slices.IndexFunc(timed(), func(c coll.Collective) bool { return c.String() == w.name })
	c, t, a := timed()[i], p.topo(), coll.Args{Count: w.bytes, Elem: 1, Commutes: true}
	least := coll.Bound(c, t, a, coll.WAN{Latency: l.delay, Bandwidth: float64(l.rate) / 8})
	return float64(least) / float64(time.Microsecond), coll.Minimal(c, t, a).Formula
}

// line is meshrun's command line for it.
func (p placement) line(n *deploy.Network, flags, command string) string {
	return fmt.Sprintf("%s %s -n %d -H %s:1 -- %s", n.Tool("meshrun"), flags, len(p.hosts), strings.Join(p.hosts, ":1,"), command)
}

// rankRE is a line of hello.
var rankRE = regexp.MustCompile(`(?m)^rank (\d+) of \d+ on (\S+)`)

// check runs hello and looks whether ranks are where they are to be.
func (p placement) check(ctx context.Context, from *lab.Host, n *deploy.Network, hello string) error {
	out, err := from.Run(ctx, "sh", "-c", p.line(n, "", hello))
	if err != nil {
		return err
	}
	got := map[string]string{}
	for _, m := range rankRE.FindAllStringSubmatch(out, -1) {
		got[m[1]] = m[2]
	}
	for rank, host := range p.hosts {
		if got[fmt.Sprint(rank)] != host {
			return fmt.Errorf("rank %d is not on %s:\n%s", rank, host, out)
		}
	}
	return nil
}

// duel is Go and Open MPI in one placement over one line.
type duel struct {
	placement
	line       siteLine
	own, rival *player
	shorts     []*contender                // their jobs without what is long
	lost       struct{ own, rival uint64 } // frames at the lines' queues
}

// gocolls compares collective operations of package mpi with their bounds and with
// Open MPI's.
func gocolls(ctx context.Context, env *Env) (Table, error) {
	return collectives(ctx, env, "gocolls", wideLine(), pick(env, collRounds{5, 25}, collRounds{1, 1}), pick(env, 6, 2))
}

// gocollsslow does so over lines with which the lab keeps up, and paced.
func gocollsslow(ctx context.Context, env *Env) (Table, error) {
	t, err := collectives(ctx, env, "gocollsslow", slowLine(), pick(env, collRounds{3, 6}, collRounds{1, 1}), 2)
	t.Title += ", where the lab's processors keep up"
	return t, err
}

// collectives is gocolls over a line, with so many loops in a job.
func collectives(ctx context.Context, env *Env, name string, l siteLine, rounds collRounds, loops int) (Table, error) {
	if err := needPrograms(map[string]string{"mpicc.openmpi": "libopenmpi-dev", "mpirun.openmpi": "openmpi-bin"}); err != nil {
		return Table{}, err
	}
	undo, sessions := env.withoutSessions()
	defer undo()
	s, err := newTwoSites(ctx, env, name, l)
	if err != nil {
		return Table{}, err
	}
	defer s.close()
	duels, err := s.duels(ctx, env, loops)
	if err != nil {
		return Table{}, err
	}
	var all, shorts []*contender
	for _, d := range duels {
		all = append(all, &d.own.contender, &d.rival.contender)
		shorts = append(shorts, d.shorts...)
	}
	for _, x := range []struct {
		rounds int
		of     []*contender
	}{{rounds.all, all}, {rounds.short - rounds.all, shorts}} {
		err := interleave(x.rounds, x.of, func(round int, c *contender) {
			env.say("%s: round %d of %d: %s: barrier takes %.2f ms", name, round+1, x.rounds, c.name, c.got[round]/1e3)
		})
		if err != nil {
			return Table{}, err
		}
	}
	if err := s.direct(ctx); err != nil {
		return Table{}, fmt.Errorf("after the measurement: %w", err)
	}
	t := Table{Title: "Collective operations of MPI for Go over two sites", Method: s.method(rounds, loops, duels) + " " + env.insideSites() + " " + sessions,
		Head: []string{"ranks", "operation", "m", "least bytes from site s to t", "bound, ms", "Go, ms", "÷ bound", "Open MPI, ms", "÷ bound", "Go ÷ Open MPI"}}
	for _, d := range duels {
		t.Rows = append(t.Rows, d.rows()...)
	}
	t.Verdicts = judgeDuels(duels)
	return t, nil
}

// yielding has ranks of Open MPI that wait let others run: here all hosts have the same
// processors, and the daemons need them too. Without it a barrier takes ten times as
// long.
const yielding = "OMPI_MCA_mpi_yield_when_idle=1 "

// single is the same for ranks in Go: what they set by themselves where ranks of one
// host have a processor each, which here they have less than.
const single = "-x GOMAXPROCS=1"

// duels prepares the jobs of both placements.
func (s *twoSites) duels(ctx context.Context, env *Env, loops int) (all []*duel, err error) {
	inC, err := programs.Compile(env.Work, "colls", "mpicc.openmpi")
	if err != nil {
		return nil, err
	}
	inGo, err := programs.Build(ctx, env.Work, "colls")
	if err != nil {
		return nil, err
	}
	hello, err := programs.Compile(env.Work, "hello", "mpicc.openmpi")
	if err != nil {
		return nil, err
	}
	from := s.net.Lab.Host("a1")
	for _, p := range placements(s.a, s.b) {
		if err := p.check(ctx, from, s.net, hello); err != nil {
			return nil, err
		}
		d := &duel{placement: p, line: s.line}
		prepare := func(name string, lost *uint64, setting, flags, program string) (*player, *contender) {
			of := func(l siteLine) *player {
				args := fmt.Sprintf(" -global -seconds 0.1 -loops %d %s", loops, words(l.sizes))
				j := printing{from: from, hosts: s.net.Lab.Hosts(), program: program, line: setting + p.line(s.net, flags, program+args), lines: len(l.figures()), within: collWithin}
				return newPlayer(p.name+", "+name, l.figures(), func() (string, error) { return s.losing(lost, func() (string, error) { return j.run(ctx) }) })
			}
			all, short := of(s.line), of(s.line.short())
			short.got = all.got
			return all, &short.contender
		}
		var short, rivals *contender
		d.own, short = prepare("Go", &d.lost.own, "", single, inGo)
		d.rival, rivals = prepare("Open MPI", &d.lost.rival, yielding, "", inC)
		d.shorts = []*contender{short, rivals}
		all = append(all, d)
	}
	return all, nil
}

// losing runs a job and adds the frames that it lost.
func (s *twoSites) losing(lost *uint64, run func() (string, error)) (string, error) {
	before, err := s.dropped()
	if err != nil {
		return "", err
	}
	out, err := run()
	if err != nil {
		return out, err
	}
	after, err := s.dropped()
	*lost += after - before
	return out, err
}

func (s *twoSites) method(rounds collRounds, loops int, duels []*duel) string {
	l, told := s.line, "nothing is declared of it"
	var lost, rivals uint64
	for _, d := range duels {
		lost, rivals = lost+d.lost.own, rivals+d.lost.rival
	}
	if l.declared {
		told = "declared, so that nodes of a site share it (live shares)"
	}
	return fmt.Sprintf("Two sites of %d hosts behind NATs that keep ports, a rank on each host, a public hub; %v one way between the sites, %d Mb/s each way "+
		"with a drop-tail queue of %s in each site's way out (it dropped %d frames of Go's jobs and %d of Open MPI's), %s, TCP cubic. All pairs across the sites had direct paths (`udp`) before and after. "+
		"c/colls.c and go/colls of integration/programs with -global, started by meshrun, which gives Open MPI its settings for WANs, and with mpi_yield_when_idle, and Go with GOMAXPROCS=1, since eight ranks and nine daemons share the machine's processors: each operation begins at a moment that all ranks know, "+
		"on clocks compared by the fastest of 20 round trips, and ends when the last rank returns; who is done sleeps for 5 ms, and leaves the processors to the others; at least %d loops in a job, %d rounds in turns, of what takes less than %s %d, medians of the jobs' means, with the least and the greatest. "+
		"Go ÷ Open MPI is the median of the rounds' quotients, with its 95 %% interval by the bootstrap over rounds. "+
		"m is what each rank gives, for alltoall what it gives each other one; n_s is the number of ranks at site s. The bound is %v + the bytes of the busiest site, up or down, by the line's bare rate B = %.1f MB/s "+
		"(coll.Bound of mpi/coll), and counts no headers: the overlay's and TCP's make %.3f bytes on the line of each byte, at its MTU of %d, acknowledgements aside. "+
		"Root is rank 0; reductions are of bytes by MPI_MAX.",
		siteRanks, l.delay, l.rate/1_000_000, size(l.queue), lost, rivals, told, loops, rounds.all, size(longBytes), rounds.short, l.delay, float64(l.rate)/8e6, wireShare(s.mtu), s.mtu)
}

func (d *duel) rows() (rows [][]string) {
	for _, w := range d.line.figures() {
		bound, formula := d.bound(d.line, w)
		own, rival := d.own.got[w].mean, d.rival.got[w].mean
		rows = append(rows, []string{d.name, w.name, size(w.bytes), formula, fmt.Sprintf("%.1f", bound/1e3),
			own.milli().spread("%.1f"), fmt.Sprintf("%.2f", own.median()/bound), rival.milli().spread("%.1f"), fmt.Sprintf("%.2f", rival.median()/bound), own.over(rival).likely("%.2f")})
	}
	return rows
}

// milli is a thousandth.
func (s sample) milli() sample {
	t := slices.Clone(s)
	for i := range t {
		t[i] /= 1e3
	}
	return t
}

// judgeDuels checks what is promised, and names what is not so.
func judgeDuels(duels []*duel) []Verdict {
	var far, slow, ties []string
	n := 0
	for _, d := range duels {
		for _, w := range d.line.figures() {
			n++
			bound, _ := d.bound(d.line, w)
			own := d.own.got[w].mean
			name := fmt.Sprintf("%s %s of %s", d.name, w.name, size(w.bytes))
			if r := own.median() / bound; r > collBound {
				far = append(far, fmt.Sprintf("%s %.2f", name, r))
			}
			quotients := own.over(d.rival.got[w].mean)
			if quotients.median() < collRival+rounding {
				continue
			}
			name += " " + quotients.likely("%.2f")
			if low, _ := quotients.interval(); low <= collRival {
				ties = append(ties, name)
			} else {
				slow = append(slow, name)
			}
		}
	}
	verdict := func(missed []string, text string) Verdict {
		if len(missed) > 0 {
			text += "; not so: " + strings.Join(missed, ", ")
		}
		return Verdict{len(missed) == 0, fmt.Sprintf("%d of %d %s", n-len(missed), n, text)}
	}
	rival := fmt.Sprintf("operations of Go take at most %.2f of Open MPI's time, or chance explains what they take more (the interval reaches %.2f); all must", collRival, collRival)
	if len(ties) > 0 {
		rival += "; chance explains " + strings.Join(ties, ", ")
	}
	return []Verdict{
		verdict(far, fmt.Sprintf("operations of Go take at most %.2f of their bound; all must", collBound)),
		verdict(slow, rival),
	}
}
