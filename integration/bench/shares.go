package bench

import (
	"context"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/meshmpi/meshmpi/integration/deploy"
	"github.com/meshmpi/meshmpi/integration/lab"
	"github.com/meshmpi/meshmpi/integration/programs"
	"github.com/meshmpi/meshmpi/integration/wan"
)

// The link that is shared, and what live shares promise.
const (
	sharesRate    = 100_000_000 // bits per second, of each site's uplink
	sharesQueue   = 64_000      // bytes that wait for it; then packets are lost
	sharesDelay   = 2 * time.Millisecond
	sharesClose   = 0.10                   // distance from the max–min share, of it, at most
	sharesSettle  = 50 * time.Millisecond  // until the moving average stays as close, at most
	sharesAverage = 20 * time.Millisecond  // what the average is over: it trails
	sharesHold    = 100 * time.Millisecond // how long it has to stay
	sharesSteady  = 200 * time.Millisecond // after a change: then shares count
	sharesBlock   = 32 << 10               // bytes of the jobs' messages: Open MPI sends them without asking first
	sharesFull    = 1000                   // bytes of frames that carry data: acknowledgements do not say who sends
	sharesStream  = 8                      // of them within sharesAverage make a stream
	sharesLead    = 8 * time.Second        // for meshrun to start both jobs
	sharesRounds  = 5                      // of each run: a busy moment is not the rule
)

// second is what is particular of job 2 in a run.
type second struct {
	says   string  // how tables name it
	want   float64 // b/s at most, by --matb; 0: all there is
	weight int     // of its nodes
}

// seconds are the runs.
func seconds() []second {
	return []second{{"takes what it gets", 0, 1}, {"--matb 15Mb/s", 15e6, 1}, {"its node has weight 3", 0, 3}}
}

// sender is a node of the site and what it runs, in phases.
type sender struct {
	name       string
	from, till int // phases
	claim
}

// claim is what a sender has a right to.
type claim struct {
	want   float64 // b/s at most; 0: all there is
	weight int
}

// sharesSenders are who sends when: a job on a1 and a2, another on a3, iperf3 on a4.
func sharesSenders(s second) []sender {
	all := claim{0, 1}
	return []sender{{"a1", 0, 4, all}, {"a2", 0, 4, all}, {"a3", 2, 5, claim{s.want, s.weight}}, {"a4", 1, 3, all}}
}

const sharesPhases = 5

// maxmin divides a rate by weighted max–min: everybody has the same for each unit of
// its weight, but nobody more than it wants, and nobody who wants it less than least.
func maxmin(total, least float64, claims []claim) []float64 {
	got := make([]float64, len(claims))
	share := func(level float64) (sum float64) {
		for i, c := range claims {
			got[i] = max(least, level*float64(c.weight))
			if c.want > 0 {
				got[i] = min(got[i], c.want)
			}
			sum += got[i]
		}
		return sum
	}
	low, high := 0.0, total
	for range 100 { // as exact as a float64 can be
		if mid := (low + high) / 2; share(mid) > total {
			high = mid
		} else {
			low = mid
		}
	}
	share(low)
	return got
}

// shares has jobs and iperf3 share a link while a record is taken of who sends what.
func shares(ctx context.Context, env *Env) (Table, error) {
	if err := needPrograms(map[string]string{"mpicc.openmpi": "libopenmpi-dev", "mpirun.openmpi": "openmpi-bin", "iperf3": "iperf3"}); err != nil {
		return Table{}, err
	}
	program, err := programs.Compile(env.Work, "crowd", "mpicc.openmpi")
	if err != nil {
		return Table{}, err
	}
	restore, err := allowCubic()
	if err != nil {
		return Table{}, err
	}
	defer restore()
	c := &commons{program: program, phase: pick(env, 3*time.Second, 2*time.Second)}
	if err := c.up(ctx, env); err != nil {
		return Table{}, err
	}
	defer c.net.Lab.Close()
	runs := pick(env, seconds(), seconds()[:1])
	t := Table{Title: "Two jobs and iperf3 share a link", Method: c.method() + " " + env.insideSites(),
		Head: []string{"job 2", "phase", "a1, a2, a3, a4 ought to have, Mb/s", "have, Mb/s", "20 ms averages within 10 %, %", "settled after, ms, median", "of each round", "deepest queue, kB"}}
	played := make([]rounds, len(runs))
	for range pick(env, sharesRounds, 1) {
		for i, run := range runs {
			r, err := c.play(ctx, run)
			if err != nil {
				return Table{}, err
			}
			env.say("shares: %s: a run of %v with %d frames", run.says, c.phase*sharesPhases, len(r.all.at))
			played[i] = append(played[i], r)
		}
	}
	for _, rs := range played {
		t.Rows = append(t.Rows, rs.rows()...)
		t.Verdicts = append(t.Verdicts, rs.verdicts()...)
	}
	t.Drawings = append(t.Drawings, Drawing{"shares.svg", "Traffic of four nodes to another site while two jobs and iperf3 begin and end", played[0][0].draw()})
	return t, nil
}

// commons is a network whose link is shared.
type commons struct {
	net     *deploy.Network
	program string
	phase   time.Duration
	far     []netip.Addr // of the other site's hosts
	iperf   string       // where it sends
}

// up brings up two public sites of four hosts each, so that frames on the line tell
// whose they are.
func (c *commons) up(ctx context.Context, env *Env) (err error) {
	var a, b []string
	for i := range siteRanks {
		a, b = append(a, fmt.Sprintf("a%d", i+1)), append(b, fmt.Sprintf("b%d", i+1))
	}
	cfg := lab.Config{Sites: []lab.Site{{Name: "hubs", Hosts: []string{"hub"}}, {Name: "alpha", Hosts: a}, {Name: "beta", Hosts: b}}}
	link := wan.Link{Up: wan.Pipe{Delay: sharesDelay, Rate: sharesRate, Queue: sharesQueue}}
	if c.net, err = env.up(ctx, "shares", cfg.WithWAN(link, "alpha", "beta")); err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = c.net.Lab.Close()
		}
	}()
	for _, h := range b {
		c.far = append(c.far, c.net.Lab.Host(h).Addr4)
	}
	if err := useTCP(ctx, "cubic", c.net.Lab.Hosts()...); err != nil {
		return err
	}
	for _, site := range []string{"alpha", "beta"} {
		if _, err := c.net.Ctl(ctx, "hub", "site", "set", site, "--up", fmt.Sprintf("%dMb/s", sharesRate/1_000_000)); err != nil {
			return err
		}
	}
	for _, h := range a {
		err := deploy.Until(ctx, 20*time.Second, h+" knows its uplink and the nodes of its site", func() (bool, error) {
			r, err := c.net.Shape(ctx, h)
			return r.Nodes == siteRanks && r.Uplink > 0, err
		})
		if err != nil {
			return err
		}
	}
	if c.iperf, err = c.net.Addr(ctx, "b4"); err != nil {
		return err
	}
	if err := serveIperf(ctx, c.net.Lab.Host("b4")); err != nil {
		return err
	}
	s := &twoSites{net: c.net, a: a, b: b}
	if err := s.direct(ctx); err != nil {
		return err
	}
	return s.near(ctx, env)
}

func (c *commons) method() string {
	return fmt.Sprintf("Two public sites of %d hosts. Each site's uplink carries %d Mb/s with a drop-tail queue of %d kB and %v one way, is declared, and live shares divide it; TCP cubic. "+
		"Job 1 is Open MPI on a1, a2, b1 and b2: a1 and a2 send to b1 and b2 each, 32 messages of %s to each under way that it has to take before others follow (c/crowd.c), after as many that are not counted, and its processes stay to the end; job 2 the same on a3 and b3; both are started by meshrun with mpi_yield_when_idle. iperf3 sends from a4 to b4. "+
		"Phases of %v: job 1; and iperf3; and job 2; iperf3 has ended; job 1 has ended. Job 2 may be limited by meshrun's --matb, or its sender has another weight than 1 (meshctl shape weight). Nobody who wants it ought to have less than an equal share. "+
		"What leaves site alpha is stamped by the kernel where it reaches the line. A change is when the last node that begins sends its first full frame, or the last that ends its last. "+
		"Shares are over the phase from %v after the change on, by bytes on the wire. A node has settled when its average over %v, which trails, comes within %.0f %% of its max–min share and stays so for %v; the slowest node counts. "+
		"The deepest queue is what would have waited before a line of the rate. The three kinds of job 2 take turns, %d rounds; shares and averages are means of rounds, the queue is the deepest; the plot is of the first.",
		siteRanks, sharesRate/1_000_000, sharesQueue/1000, sharesDelay, size(sharesBlock), c.phase, sharesSteady, sharesAverage, 100*sharesClose, sharesHold, sharesRounds)
}

// play runs all once and takes the record of it.
func (c *commons) play(ctx context.Context, two second) (*sharing, error) {
	r := &sharing{phase: c.phase, second: two}
	if _, err := c.net.Ctl(ctx, "a3", "shape", "weight", strconv.Itoa(two.weight)); err != nil {
		return nil, err
	}
	span := sharesLead + (sharesPhases+2)*c.phase
	tap, err := c.net.Lab.Tap("alpha", 20_000+int(2*sharesRate/8*span.Seconds()/1000))
	if err != nil {
		return nil, err
	}
	defer tap.Close()
	before, err := c.net.Lab.WANStats("alpha")
	if err != nil {
		return nil, err
	}
	r.begin = time.Now().Add(sharesLead)
	var g errgroup.Group
	matb := ""
	if two.want != 0 {
		matb = fmt.Sprintf("--matb %.0fMb/s ", two.want/1e6)
	}
	g.Go(func() error { return c.job(ctx, "", r.at(0), r.at(4), r.at(5), "a1", "a2", "b1", "b2") })
	g.Go(func() error { return c.job(ctx, matb, r.at(2), r.at(5), r.at(5), "a3", "b3") })
	g.Go(func() error {
		select {
		case <-time.After(time.Until(r.at(1))):
		case <-ctx.Done():
			return ctx.Err()
		}
		_, err := iperf(ctx, c.net.Lab.Host("a4"), c.iperf, int((2 * c.phase).Seconds()))
		return err
	})
	if err := g.Wait(); err != nil {
		return nil, err
	}
	noted, err := tap.Arrivals()
	if err != nil {
		return nil, err
	}
	after, err := c.net.Lab.WANStats("alpha")
	if err != nil {
		return nil, err
	}
	r.lost = after.Up.QueueFull - before.Up.QueueFull
	return r, r.sort(noted, c)
}

// job runs one of the jobs, which sends from one time till another and then stays.
func (c *commons) job(ctx context.Context, flags string, from, till, leave time.Time, hosts ...string) error {
	seconds := func(t time.Time) string { return fmt.Sprintf("%.3f", float64(t.UnixMilli())/1e3) }
	line := fmt.Sprintf("%s%s -n %d -H %s:1 %s-- %s %s %s %s %d", yielding, c.net.Tool("meshrun"), len(hosts), strings.Join(hosts, ":1,"), flags,
		c.program, seconds(from), seconds(till), seconds(leave), sharesBlock)
	ctx, cancel := context.WithTimeout(ctx, time.Until(leave)+30*time.Second)
	defer cancel()
	out, err := c.net.Lab.Host(hosts[0]).Run(ctx, "sh", "-c", line)
	if err != nil {
		return err
	}
	began, err := parseBegan(out)
	if late := began.Sub(from); err == nil && late > c.phase/4 {
		err = fmt.Errorf("it began %v late: something else keeps the processors busy", late.Round(time.Millisecond))
	}
	if err != nil {
		return fmt.Errorf("the job on %v: %w", hosts, err)
	}
	return nil
}

// parseBegan reads crowd's line "began SECONDS".
func parseBegan(out string) (time.Time, error) {
	for line := range strings.Lines(out) {
		f := strings.Fields(line)
		if len(f) != 2 || f[0] != "began" {
			continue
		}
		s, err := strconv.ParseFloat(f[1], 64)
		if err != nil {
			return time.Time{}, err
		}
		return time.UnixMicro(int64(s * 1e6)), nil
	}
	return time.Time{}, fmt.Errorf("no line says when it began: %s", out)
}
