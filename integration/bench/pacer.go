package bench

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"runtime"
	"strconv"
	"time"

	"github.com/meshmpi/meshmpi/integration/deploy"
	"github.com/meshmpi/meshmpi/integration/lab"
	"github.com/meshmpi/meshmpi/integration/programs"
)

// What pacing promises of its accuracy.
const (
	pacerClose   = 0.01                   // the achieved rate's distance from the set one, of it, at most
	pacerWindow  = time.Millisecond       // no longer than so, …
	pacerBurst   = 100 * time.Microsecond // … a window holds this at the rate, or two datagrams, beyond the rate
	pacerCalm    = 0.999                  // of the windows, at least
	pacerLead    = time.Second            // of a run that does not count: TCP begins slowly
	pacerTail    = time.Second            // that senders go on
	pacerPort    = 9                      // where datagrams go: discard
	plainPayload = 1472                   // of datagrams without overlay, bytes
)

// pacerRates are what is set, b/s.
func pacerRates() []int64 { return []int64{10e6, 30e6, 100e6, 300e6, 1000e6} }

// pacerWay is one that paces.
type pacerWay struct {
	name string
	ours bool // bounds are checked
	run  func(ctx context.Context, rate int64, took time.Duration) error
}

// pacerRuns are what arrived, run by run, of one way at one rate.
type pacerRuns struct {
	set             int64
	achieved        sample // by the set rate
	above, fullest  float64
	gaps            sample
	frames, largest int
}

// add takes in what arrived in one run.
func (p *pacerRuns) add(a arrivals, took time.Duration) error {
	if len(a.at) == 0 {
		return errors.New("nothing has arrived")
	}
	from := a.at[0] + int64(pacerLead)
	a = a.between(from, from+int64(took))
	if len(a.at) < 2 {
		return fmt.Errorf("%d datagrams have arrived after the first %v", len(a.at), pacerLead)
	}
	for _, n := range a.size {
		p.largest = max(p.largest, n)
	}
	share, worst := a.exceeding(float64(p.set), pacerWindow, p.burst())
	p.achieved = append(p.achieved, a.rate()/float64(p.set))
	p.above, p.fullest = math.Max(p.above, share), max(p.fullest, worst)
	p.gaps = append(p.gaps, a.gapErrors(float64(p.set))...)
	p.frames += len(a.at)
	return nil
}

// burst is what a window may hold beyond the rate, bytes.
func (p *pacerRuns) burst() float64 {
	return max(float64(2*p.largest), float64(p.set)/8*pacerBurst.Seconds())
}

func (p *pacerRuns) row(name string) []string {
	return []string{megabits(p.set), name, p.achieved.spread("%.4f"), fmt.Sprintf("%.3f", 100*p.above), fmt.Sprintf("%.0f", p.fullest),
		fmt.Sprintf("%.1f / %.1f", p.gaps.quantile(0.5), p.gaps.quantile(0.99)), strconv.Itoa(p.frames)}
}

// verdict checks all runs, not their median.
func (p *pacerRuns) verdict(name string) Verdict {
	off := 0.0
	for _, r := range p.achieved {
		off = math.Max(off, math.Abs(r-1))
	}
	good := off <= pacerClose && 1-p.above >= pacerCalm
	return Verdict{good, fmt.Sprintf("%s, %s: off by %.2f %% at most, %.3f %% of the windows within the bound; wanted are %.0f %% and %.1f %%",
		megabits(p.set), name, 100*off, 100*(1-p.above), 100*pacerClose, 100*pacerCalm)}
}

func megabits(rate int64) string { return fmt.Sprintf("%d Mb/s", rate/1_000_000) }

// pacer measures how exact pacing is, from outside.
func pacer(ctx context.Context, env *Env) (Table, error) {
	if err := needPrograms(map[string]string{"iperf3": "iperf3", "tc": "iproute2", "taskset": "util-linux", "nice": "coreutils"}); err != nil {
		return Table{}, err
	}
	rates, err := env.With.rates(pick(env, pacerRates(), []int64{100e6, 1000e6}))
	if err != nil {
		return Table{}, err
	}
	restore, err := allowCubic()
	if err != nil {
		return Table{}, err
	}
	defer restore()
	p, err := newPaced(ctx, env)
	if err != nil {
		return Table{}, err
	}
	defer p.close()
	took, rounds := pick(env, 5*time.Second, 1500*time.Millisecond), pick(env, 3, 1)
	t := Table{Title: "Accuracy of pacing", Method: p.method(took, rounds),
		Head: []string{"set", "way", "achieved ÷ set", "windows above the bound, %", "fullest exceeds it by, bytes", "gap error, µs: p50 / p99", "datagrams"}}
	for _, rate := range rates {
		if err := p.declare(ctx, rate); err != nil {
			return Table{}, err
		}
		ways := p.ways()
		runs := make([]pacerRuns, len(ways))
		for round := range rounds {
			for i := range ways {
				k := (round + i) % len(ways)
				runs[k].set = rate
				a, err := p.record(ctx, ways[k], rate, took)
				if err == nil {
					err = runs[k].add(a, took)
				}
				if err != nil {
					return Table{}, fmt.Errorf("%s, %s: %w", megabits(rate), ways[k].name, err)
				}
				env.say("pacer: %s, round %d: %s: %.4f of it", megabits(rate), round+1, ways[k].name, runs[k].achieved[round])
			}
		}
		for i, w := range ways {
			t.Rows = append(t.Rows, runs[i].row(w.name))
			if w.ours {
				t.Verdicts = append(t.Verdicts, runs[i].verdict(w.name))
			}
		}
	}
	return t, nil
}

// paced is a network of two nodes in two sites, which a switch joins, with processes
// that spin beside their daemons.
type paced struct {
	net     *deploy.Network
	a, b    *lab.Host
	sink    *net.UDPConn // takes what comes to b's port and lets it overflow
	virtual string       // b's address
	mtu     int          // of the overlay
	program string
	spin    []*lab.Daemon
}

func newPaced(ctx context.Context, env *Env) (_ *paced, err error) {
	p := &paced{}
	if p.program, err = programs.Build(ctx, env.Work, "pace"); err != nil {
		return nil, err
	}
	// One switch instead of routers, over which a datagram of its own costs the
	// kernel 13 µs: too much for 1 Gb/s.
	cfg := lab.Config{Sites: []lab.Site{{Name: "switch", Hosts: []string{"hub", "a1", "b1"}}}}
	if p.net, err = env.upWith(ctx, "pacer", cfg, deploy.Options{Sites: map[string]string{"a1": "alpha", "b1": "beta"}}); err != nil {
		return nil, err
	}
	p.a, p.b = p.net.Lab.Host("a1"), p.net.Lab.Host("b1")
	if err := p.prepare(ctx); err != nil {
		p.close()
		return nil, err
	}
	return p, nil
}

// prepare brings up what is beside the daemons.
func (p *paced) prepare(ctx context.Context) (err error) {
	if p.virtual, err = p.net.Addr(ctx, "b1"); err != nil {
		return err
	}
	status, err := p.net.Status(ctx, "a1")
	if err != nil {
		return err
	}
	if p.mtu, err = linkMTU(ctx, p.a, status.TUN); err != nil {
		return err
	}
	err = p.b.Do(func() (err error) {
		p.sink, err = net.ListenUDP("udp4", &net.UDPAddr{Port: pacerPort})
		return err
	})
	if err != nil {
		return err
	}
	// bbr sends less now and then, to see how short the way is without a queue.
	if err := useTCP(ctx, "cubic", p.a); err != nil {
		return err
	}
	if err := serveIperf(ctx, p.b); err != nil {
		return err
	}
	if _, err := p.net.AwaitPath(ctx, "a1", "b1", "udp", 15*time.Second); err != nil {
		return err
	}
	p.spin, err = spinners(p.a)
	return err
}

// spinners starts a process on each processor that never rests, as ranks that wait do.
func spinners(h *lab.Host) (all []*lab.Daemon, err error) {
	for i := range runtime.NumCPU() {
		d, err := h.Start("taskset", "-c", strconv.Itoa(i), "sh", "-c", "while :; do :; done")
		if err != nil {
			return all, err
		}
		all = append(all, d)
	}
	return all, nil
}

func (p *paced) close() {
	for _, d := range p.spin {
		d.Kill()
	}
	if p.sink != nil {
		p.sink.Close()
	}
	_ = p.net.Lab.Close()
}

func (p *paced) method(took time.Duration, rounds int) string {
	return fmt.Sprintf("Two nodes, of two sites, and a hub on one switch (veth, MTU 1500), the sender's segmentation offloads (TSO, GSO) off. "+
		"%d processes spin at ordinary priority, one bound to each processor, beside senders, receivers and both daemons. Arrivals are stamped by the kernel in a third namespace, where the sender's cable meets the switch, "+
		"and noted by the kernel alone. %v of each run count, from %v after its first datagram, %d runs in turns. "+
		"meshd: the uplink is declared, live shares (one node); a sender of UDP offers 1.2 times the rate to the other node's virtual address (go/pace), or iperf3 sends one TCP stream (cubic); outer datagrams are noted, all that go to the other node. "+
		"The rest sends to the node's own address, without overlay, by datagrams of %d bytes on the wire and with meshd's precedence (nice −20): package shaper by itself; a token bucket looked at after time.Sleep or each tick of a time.Ticker, "+
		"which holds two datagrams or 10 ms of the rate; and the kernel's tbf on the host's interface with our burst bound as its burst, its sender never without something to send. "+
		"Rates and sizes are of Ethernet frames without preamble and FCS. A window of %v begins with each datagram and may hold the rate and a burst beyond: two datagrams or %v at the rate, whichever is more; the share of those that hold more is of the worst run. "+
		"The gap error is how far the gap after a datagram is from its own time at the rate; meshd and package shaper send two by two, so half of their gaps are none and the others double.",
		runtime.NumCPU(), took, pacerLead, rounds, plainPayload+14+20+8, pacerWindow, pacerBurst)
}

// declare sets the site's uplink and waits until the node paces by it.
func (p *paced) declare(ctx context.Context, rate int64) error {
	if _, err := p.net.Ctl(ctx, "hub", "site", "set", "alpha", "--up", fmt.Sprintf("%dMb/s", rate/1_000_000)); err != nil {
		return err
	}
	return deploy.Until(ctx, 20*time.Second, "a1 knows its uplink", func() (bool, error) {
		r, err := p.net.Shape(ctx, "a1")
		return r.Uplink == rate, err
	})
}

// record notes what a way sends for so long, and before and after.
func (p *paced) record(ctx context.Context, w pacerWay, rate int64, took time.Duration) (arrivals, error) {
	all := took + pacerLead + pacerTail
	tap, err := p.a.Tap(20_000 + int(1.5*float64(rate)/8*all.Seconds()/1400))
	if err != nil {
		return arrivals{}, err
	}
	defer tap.Close()
	ctx, cancel := context.WithTimeout(ctx, all+30*time.Second)
	defer cancel()
	if err := w.run(ctx, rate, all); err != nil {
		return arrivals{}, err
	}
	noted, err := tap.Arrivals()
	if err != nil {
		return arrivals{}, err
	}
	return choose(noted, func(a lab.Arrival) bool { return a.From.Addr() == p.a.Addr4 && a.To.Addr() == p.b.Addr4 }), p.drain(ctx)
}

// drain waits until the pacer has nothing left of a run.
func (p *paced) drain(ctx context.Context) error {
	return deploy.Until(ctx, 10*time.Second, "a1 has sent all", func() (bool, error) {
		r, err := p.net.Shape(ctx, "a1")
		waiting := 0
		for _, l := range r.Links {
			waiting += l.Waiting + l.Queued
		}
		return waiting == 0, err
	})
}

// ways lists all that is compared.
func (p *paced) ways() []pacerWay {
	plain := func(way string, depth func(rate int64) int) func(context.Context, int64, time.Duration) error {
		return func(ctx context.Context, rate int64, took time.Duration) error {
			return p.send(ctx, way, p.b.Addr4.String(), plainPayload, depth(rate), rate, took)
		}
	}
	two := func(int64) int { return 0 }
	return []pacerWay{
		{"meshd, UDP", true, func(ctx context.Context, rate int64, took time.Duration) error {
			return p.send(ctx, "flood", p.virtual, p.mtu-28, 0, rate, took)
		}},
		{"meshd, TCP", true, func(ctx context.Context, _ int64, took time.Duration) error {
			_, err := iperf(ctx, p.a, p.virtual, int(math.Ceil(took.Seconds())))
			return err
		}},
		{"package shaper by itself", true, plain("shaper", two)},
		{"time.Sleep, two datagrams", false, plain("sleep", two)},
		{"time.Ticker of 1 ms, two datagrams", false, plain("ticker", two)},
		{"time.Ticker of 1 ms, 10 ms", false, plain("ticker", func(rate int64) int { return int(rate / 8 / 100) })},
		{"kernel tbf", false, p.viaTBF},
	}
}

// send runs the program pace on a1. A flood is an ordinary program, the others have
// meshd's precedence.
func (p *paced) send(ctx context.Context, way, to string, size, depth int, rate int64, took time.Duration) error {
	args := []string{"-n", "-20", p.program}
	if way == "flood" {
		args[1] = "0"
	}
	args = append(args, "-way", way, "-rate", fmt.Sprintf("%dMb/s", rate/1_000_000), "-size", strconv.Itoa(size), "-depth", strconv.Itoa(depth),
		"-seconds", fmt.Sprint(took.Seconds()), net.JoinHostPort(to, strconv.Itoa(pacerPort)))
	_, err := p.a.Run(ctx, "nice", args...)
	return err
}

// viaTBF has the kernel pace on the host's interface, with room for more than the
// sender's socket holds, so that nothing is dropped.
func (p *paced) viaTBF(ctx context.Context, rate int64, took time.Duration) error {
	runs := pacerRuns{set: rate, largest: plainPayload + 14 + 20 + 8}
	limit := max(1<<20, rate/8/10)
	if _, err := p.a.Run(ctx, "tc", "qdisc", "replace", "dev", "eth0", "root", "tbf", "rate", fmt.Sprintf("%dbit", rate),
		"burst", fmt.Sprintf("%.0f", runs.burst()), "limit", strconv.FormatInt(limit, 10)); err != nil {
		return err
	}
	err := p.send(ctx, "socket", p.b.Addr4.String(), plainPayload, 0, rate, took)
	_, derr := p.a.Run(ctx, "tc", "qdisc", "del", "dev", "eth0", "root")
	return errors.Join(err, derr)
}
