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
	matbRate    = 100_000_000 // bits per second, of each site's uplink
	matbQueue   = 64_000      // bytes that wait for it; then packets are lost
	matbOracle  = 1.10        // of the time over a queue without end, at most
	matbFaster  = 3.0         // times than unpaced, where that times out, at least
	matbFewer   = 20.0        // times fewer retransmitted segments and own drops, at least
	matbWithin  = 3 * time.Minute
	matbOverlay = "100Mb/s" // what is declared: all of it
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

func ways() []way {
	return []way{
		{"unpaced", "off", false, matbQueue, ""},
		{"static B/N", "static", true, matbQueue, ""},
		{"live shares", "live", true, matbQueue, ""},
		{"oracle", "off", false, 0, ""},
	}
}

// suffering is what TCP has had to do again, summed over hosts, and what was lost.
type suffering struct {
	retransmitted, timeouts, dropped float64
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
	t := Table{Title: "All-to-all over a narrow link, paced and not", Head: []string{"delay", "way"}}
	figures := named("alltoall", matbSizes())
	for _, w := range figures {
		t.Head = append(t.Head, size(w.bytes)+", ms", "÷ oracle")
	}
	t.Head = append(t.Head, "retransmitted", "time-outs", "dropped")
	delays := pick(env, []time.Duration{0, 2 * time.Millisecond, 5 * time.Millisecond, 10 * time.Millisecond}, []time.Duration{2 * time.Millisecond})
	for _, delay := range delays {
		rows, err := matbAt(ctx, env, delay, program, figures)
		if err != nil {
			return Table{}, err
		}
		t.Rows = append(t.Rows, rows...)
	}
	return t, nil
}

// matbAt measures every way at one delay.
func matbAt(ctx context.Context, env *Env, delay time.Duration, program string, figures []what) (rows [][]string, err error) {
	rounds := pick(env, 5, 1)
	args := "-only alltoall -loops 5 -seconds 1 "
	for _, n := range matbSizes() {
		args += strconv.Itoa(n*2*siteRanks) + " "
	}
	players, pains := map[string]*player{}, map[string]*suffering{}
	for _, w := range ways() {
		err := func() error {
			s, err := newNarrow(ctx, env, delay, w)
			if err != nil {
				return err
			}
			defer s.net.Lab.Close()
			p := placements(s.a, s.b)[0]
			line := fmt.Sprintf("%s%s -n %d -H %s:1 %s -- %s %s", yielding, s.net.Tool("meshrun"), len(p.hosts), strings.Join(p.hosts, ":1,"), w.run, program, args)
			job := printing{from: s.net.Lab.Host("a1"), hosts: s.net.Lab.Hosts(), program: program, line: line, lines: len(figures), within: matbWithin}
			players[w.name], pains[w.name] = newPlayer(w.name, figures, func() (string, error) { return job.run(ctx) }), &suffering{}
			before, err := s.suffered(ctx)
			if err != nil {
				return err
			}
			for range rounds {
				us, err := players[w.name].run()
				if err != nil {
					return err
				}
				env.say("matb: %v: %s: %s in %.2f ms", delay, w.name, size(figures[0].bytes), us/1e3)
			}
			after, err := s.suffered(ctx)
			if err != nil {
				return err
			}
			*pains[w.name] = suffering{after.retransmitted - before.retransmitted, after.timeouts - before.timeouts, after.dropped - before.dropped}
			return nil
		}()
		if err != nil {
			return nil, fmt.Errorf("%s: %w", w.name, err)
		}
	}
	for _, w := range ways() {
		row := []string{delay.String(), w.name}
		for _, f := range figures {
			own, best := players[w.name].got[f].mean, players["oracle"].got[f].mean
			row = append(row, own.milli().spread("%.1f"), fmt.Sprintf("%.2f", own.median()/best.median()))
		}
		p := pains[w.name]
		rows = append(rows, append(row, fmt.Sprintf("%.0f", p.retransmitted), fmt.Sprintf("%.0f", p.timeouts), fmt.Sprintf("%.0f", p.dropped)))
		env.say("%v", rows[len(rows)-1])
	}
	return rows, nil
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
			if _, err := s.net.Ctl(ctx, "hub", "site", "set", site, "--up", matbOverlay); err != nil {
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
