package bench

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/meshmpi/meshmpi/integration/deploy"
	"github.com/meshmpi/meshmpi/integration/lab"
	"github.com/meshmpi/meshmpi/integration/programs"
	"github.com/meshmpi/meshmpi/integration/wan"
)

// What pacing promises of an all-to-all over a link with a small queue.
const (
	matbRate   = 100_000_000 // bits per second, of each site's uplink
	matbQueue  = 64_000      // bytes that wait for it; then packets are lost
	matbOracle = 1.10        // of the time over a queue without end, at most
	matbFewer  = 20.0        // times fewer lost and retransmitted packets, at least
	matbWithin = 3 * time.Minute
)

// matbSizes are the bytes between each two ranks.
func matbSizes() []int { return []int{4 << 10, 16 << 10, 128 << 10, 1 << 20} }

// way is how a site's nodes share its uplink.
type way struct {
	name    string
	pace    string // meshd run --pace
	limited bool   // the limit is declared
	queue   int    // of the uplink; 0: without end
	run     string // flags of meshrun
}

// The ways that verdicts are about.
const (
	unpaced = "unpaced"
	lived   = "live shares"
	oracle  = "oracle"
)

func ways() []way {
	return []way{
		{unpaced, "off", false, matbQueue, ""},
		{"static B/N", "static", true, matbQueue, "--no-hints"},
		{"static, hints", "static", true, matbQueue, ""},
		{lived, "live", true, matbQueue, ""},
		{oracle, "off", false, 0, ""},
	}
}

// suffering is what TCP has had to do again, summed over hosts, and what was lost at
// the uplinks and in the pacers' own queues.
type suffering struct {
	retransmitted, timeouts, dropped, own float64
}

func (s suffering) minus(o suffering) suffering {
	return suffering{s.retransmitted - o.retransmitted, s.timeouts - o.timeouts, s.dropped - o.dropped, s.own - o.own}
}

// matb has all-to-alls cross a narrow uplink.
func matb(ctx context.Context, env *Env) (Table, error) {
	if err := needPrograms(map[string]string{"mpicc.openmpi": "libopenmpi-dev", "mpirun.openmpi": "openmpi-bin"}); err != nil {
		return Table{}, err
	}
	program, err := programs.Compile(env.Work, "colls", "mpicc.openmpi")
	if err != nil {
		return Table{}, err
	}
	restore, err := allowCubic()
	if err != nil {
		return Table{}, err
	}
	defer restore()
	rounds := pick(env, 5, 1)
	t := Table{Title: "All-to-all over a narrow link, paced and not", Method: matbMethod(rounds), Head: []string{"delay", "way"}}
	figures := named("alltoall", matbSizes())
	for _, w := range figures {
		t.Head = append(t.Head, size(w.bytes)+", ms", "÷ oracle")
	}
	t.Head = append(t.Head, "retransmitted", "time-outs", "lost at the uplinks", "dropped by the pacers")
	delays := pick(env, []time.Duration{0, 2 * time.Millisecond, 5 * time.Millisecond, 10 * time.Millisecond}, []time.Duration{2 * time.Millisecond})
	for _, delay := range delays {
		c := &crossing{delay: delay, program: program, figures: figures, rounds: rounds, players: map[string]*player{}, pains: map[string]suffering{}}
		for _, w := range ways() {
			if err := c.measure(ctx, env, w); err != nil {
				return Table{}, fmt.Errorf("%v: %s: %w", delay, w.name, err)
			}
		}
		t.Rows = append(t.Rows, c.rows()...)
		t.Verdicts = append(t.Verdicts, c.verdicts()...)
	}
	return t, nil
}

func matbMethod(rounds int) string {
	return fmt.Sprintf("Two sites of %d hosts behind NATs that keep ports, a rank of Open MPI on each, started by meshrun with mpi_yield_when_idle; TCP cubic. "+
		"Each site's uplink carries %d Mb/s with a drop-tail queue of %d kB and the delay, one way; downlinks are free. MPI_Alltoall in a loop (integration/programs/c/colls.c), "+
		"bytes between each two ranks at the head of the columns, %d jobs each, medians of the jobs' means. Unpaced: nothing is declared. Else the uplinks are declared with `meshctl site set`: "+
		"static shares are of --pace static, with meshrun --no-hints and without. The oracle is unpaced over a queue of 256 MiB. Counters are sums over all eight hosts and all jobs, start-up included. "+
		"Open MPI exchanges larger messages pairwise: in most of its steps some nodes of a site have nobody on the other side, which leaves static shares unused.",
		siteRanks, matbRate/1_000_000, matbQueue/1000, rounds)
}

// crossing is all ways at one delay.
type crossing struct {
	delay   time.Duration
	program string
	figures []what
	rounds  int
	players map[string]*player
	pains   map[string]suffering
}

// measure runs the jobs of one way on a network of its own.
func (c *crossing) measure(ctx context.Context, env *Env, w way) error {
	args := "-only alltoall -loops 5 -seconds 1 "
	for _, n := range matbSizes() {
		args += strconv.Itoa(n*2*siteRanks) + " "
	}
	s, err := newNarrow(ctx, env, c.delay, w)
	if err != nil {
		return err
	}
	defer s.net.Lab.Close()
	p := placements(s.a, s.b)[0]
	line := fmt.Sprintf("%s%s -n %d -H %s:1 %s -- %s %s", yielding, s.net.Tool("meshrun"), len(p.hosts), strings.Join(p.hosts, ":1,"), w.run, c.program, args)
	job := printing{from: s.net.Lab.Host("a1"), hosts: s.net.Lab.Hosts(), program: c.program, line: line, lines: len(c.figures), within: matbWithin}
	own := newPlayer(w.name, c.figures, func() (string, error) { return job.run(ctx) })
	before, err := s.suffered(ctx)
	if err != nil {
		return err
	}
	for range c.rounds {
		us, err := own.run()
		if err != nil {
			return err
		}
		env.say("matb: %v: %s: %s in %.2f ms", c.delay, w.name, size(c.figures[0].bytes), us/1e3)
	}
	after, err := s.suffered(ctx)
	c.players[w.name], c.pains[w.name] = own, after.minus(before)
	return err
}

// ratio is a way's time by another's.
func (c *crossing) ratio(f what, way, by string) float64 {
	return c.players[way].got[f].mean.median() / c.players[by].got[f].mean.median()
}

func (c *crossing) rows() (rows [][]string) {
	for _, w := range ways() {
		row := []string{c.delay.String(), w.name}
		for _, f := range c.figures {
			row = append(row, c.players[w.name].got[f].mean.milli().spread("%.1f"), fmt.Sprintf("%.2f", c.ratio(f, w.name, oracle)))
		}
		p := c.pains[w.name]
		for _, n := range []float64{p.retransmitted, p.timeouts, p.dropped, p.own} {
			row = append(row, fmt.Sprintf("%.0f", n))
		}
		rows = append(rows, row)
	}
	return rows
}

func (c *crossing) verdicts() (all []Verdict) {
	for _, f := range c.figures {
		r := c.ratio(f, lived, oracle)
		all = append(all, Verdict{r <= matbOracle, fmt.Sprintf("%v, %s: live shares take %.2f of the oracle's time, %.2f of unpaced; at most %.2f of the oracle's is wanted",
			c.delay, size(f.bytes), r, c.ratio(f, lived, unpaced), matbOracle)})
	}
	without, with := c.pains[unpaced], c.pains[lived]
	few := max(with.retransmitted+with.own, 1)
	return append(all, Verdict{without.retransmitted/few >= matbFewer && with.timeouts == 0,
		fmt.Sprintf("%v: live shares leave %.0f retransmitted segments and %.0f drops of our own where unpaced has %.0f, and %.0f time-outs; wanted are %.0f times fewer and no time-out",
			c.delay, with.retransmitted, with.own, without.retransmitted, with.timeouts, matbFewer)})
}

// allowedCongestion lists the algorithms that hosts of a lab may choose from; it is
// the machine's.
const allowedCongestion = "/proc/sys/net/ipv4/tcp_allowed_congestion_control"

// allowCubic has hosts of a lab be allowed to use cubic, until restore is called.
func allowCubic() (restore func(), err error) {
	old, err := os.ReadFile(allowedCongestion)
	if err != nil || slices.Contains(strings.Fields(string(old)), "cubic") {
		return func() {}, err
	}
	err = os.WriteFile(allowedCongestion, append(bytes.TrimSpace(old), " cubic"...), 0)
	return func() { _ = os.WriteFile(allowedCongestion, old, 0) }, err
}

// newNarrow is two sites whose uplinks are narrow, with a network that shares them in
// one way.
func newNarrow(ctx context.Context, env *Env, delay time.Duration, w way) (_ *twoSites, err error) {
	s := &twoSites{}
	for i := range siteRanks {
		s.a, s.b = append(s.a, fmt.Sprintf("a%d", i+1)), append(s.b, fmt.Sprintf("b%d", i+1))
	}
	queue := w.queue
	if queue == 0 {
		queue = 1 << 28
	}
	link := wan.Link{Up: wan.Pipe{Delay: delay, Rate: matbRate, Queue: queue}}
	cfg := lab.Config{Sites: []lab.Site{
		{Name: "hubs", Hosts: []string{"hub"}},
		{Name: "alpha", NAT: lab.PortPreserving, Hosts: s.a},
		{Name: "beta", NAT: lab.PortPreserving, Hosts: s.b},
	}}
	name := "matb-" + strings.ReplaceAll(w.name, " ", "-")
	name = strings.ReplaceAll(name, "/", "")
	if s.net, err = env.upWith(ctx, name, cfg.WithWAN(link, "alpha", "beta"), deploy.Options{RunArgs: []string{"--pace", w.pace}}); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			_ = s.net.Lab.Close()
		}
	}()
	for _, h := range s.net.Lab.Hosts() {
		if _, err := h.Run(ctx, "sysctl", "-qw", "net.ipv4.tcp_congestion_control=cubic"); err != nil {
			return nil, err
		}
	}
	if w.limited {
		for _, site := range []string{"alpha", "beta"} {
			if _, err := s.net.Ctl(ctx, "hub", "site", "set", site, "--up", fmt.Sprintf("%dMb/s", matbRate/1_000_000)); err != nil {
				return nil, err
			}
		}
	}
	return s, s.direct(ctx)
}

// suffered reads the counters of all hosts and of the uplinks.
func (s *twoSites) suffered(ctx context.Context) (sum suffering, err error) {
	for _, h := range append(s.a, s.b...) {
		out, err := s.net.Lab.Host(h).Run(ctx, "cat", "/proc/net/snmp", "/proc/net/netstat")
		if err != nil {
			return sum, err
		}
		counters := parseCounters(out)
		sum.retransmitted += counters["Tcp.RetransSegs"]
		sum.timeouts += counters["TcpExt.TCPTimeouts"]
		shape, err := s.net.Shape(ctx, h)
		if err != nil {
			return sum, err
		}
		for _, l := range shape.Links {
			sum.own += float64(l.Dropped)
		}
	}
	n, err := s.dropped()
	sum.dropped = float64(n)
	return sum, err
}

// parseCounters reads /proc/net/snmp and netstat: lines of names, each followed by one
// of values.
func parseCounters(text string) map[string]float64 {
	all := map[string]float64{}
	var names []string
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		if len(f) < 2 {
			continue
		}
		if len(names) == len(f) && names[0] == f[0] {
			for i, v := range f[1:] {
				if n, err := strconv.ParseFloat(v, 64); err == nil {
					all[strings.TrimSuffix(f[0], ":")+"."+names[i+1]] = n
				}
			}
			names = nil
			continue
		}
		names = f
	}
	return all
}
