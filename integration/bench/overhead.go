package bench

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/meshmpi/meshmpi/integration/deploy"
	"github.com/meshmpi/meshmpi/integration/lab"
)

// What pacing may cost while the link is not full.
const (
	overheadRate  = 10_000_000_000 // bits per second, of each site's uplink: more than there is
	overheadClose = 0.01           // difference of the medians, at most, unless chance explains it
)

// pairing is one thing measured of two alternatives in the same rounds.
type pairing struct {
	name, unit, format string
	with, without      sample
}

// difference is by how much the medians differ, of the latter's, with the 95 %
// interval by the bootstrap: rounds are drawn with replacement, both measurements of a
// round together, since they share what the machine did just then.
func (p pairing) difference() (d, low, high float64) {
	const times = 10_000
	rnd := rand.New(rand.NewPCG(1, 1)) // the same rounds give the same interval
	n := min(len(p.with), len(p.without))
	all := make(sample, times)
	a, b := make(sample, n), make(sample, n)
	for i := range all {
		for k := range n {
			at := rnd.IntN(n)
			a[k], b[k] = p.with[at], p.without[at]
		}
		all[i] = a.median()/b.median() - 1
	}
	return p.with.median()/p.without.median() - 1, all.quantile(0.025), all.quantile(0.975)
}

func (p pairing) row() []string {
	d, low, high := p.difference()
	return []string{p.name + ", " + p.unit, p.with.spread(p.format), p.without.spread(p.format), fmt.Sprintf("%+.2f", 100*d), fmt.Sprintf("%+.2f to %+.2f", 100*low, 100*high)}
}

func (p pairing) verdict() Verdict {
	d, low, high := p.difference()
	good := d >= -overheadClose && d <= overheadClose || low <= 0 && high >= 0
	return Verdict{good, fmt.Sprintf("%s differs by %+.2f %%, 95 %% interval %+.2f to %+.2f; at most %.0f %% is wanted, or an interval that contains 0",
		p.name, 100*d, 100*low, 100*high, 100*overheadClose)}
}

// overhead compares pacing that has nothing to hold back with no pacing.
func overhead(ctx context.Context, env *Env) (Table, error) {
	if err := needPrograms(map[string]string{"iperf3": "iperf3", "ping": "iputils-ping"}); err != nil {
		return Table{}, err
	}
	n, err := env.up(ctx, "overhead", twoNodes(lab.PortPreserving))
	if err != nil {
		return Table{}, err
	}
	defer n.Lab.Close()
	for _, site := range []string{"alpha", "beta"} {
		if _, err := n.Ctl(ctx, "hub", "site", "set", site, "--up", fmt.Sprintf("%dMb/s", overheadRate/1_000_000)); err != nil {
			return Table{}, err
		}
	}
	to, err := n.Addr(ctx, "b1")
	if err != nil {
		return Table{}, err
	}
	if err := serveIperf(ctx, n.Lab.Host("b1")); err != nil {
		return Table{}, err
	}
	rounds, seconds, pings := pick(env, 20, 3), pick(env, 4, 1), pick(env, 400, 100)
	speed := pairing{name: "one TCP stream", unit: "Gb/s", format: "%.3f"}
	trip := pairing{name: "ping, median", unit: "ms", format: "%.4f"}
	rnd := rand.New(rand.NewPCG(1, 2))
	for round := range rounds {
		modes := []string{"live", "off"}
		if rnd.IntN(2) == 1 {
			modes[0], modes[1] = modes[1], modes[0]
		}
		for _, mode := range modes {
			if err := restartPaced(ctx, n, mode); err != nil {
				return Table{}, err
			}
			gbps, err := iperf(ctx, n.Lab.Host("a1"), to, seconds)
			if err != nil {
				return Table{}, err
			}
			ms, err := roundTrip(ctx, n.Lab.Host("a1"), to, pings)
			if err != nil {
				return Table{}, err
			}
			if mode == "live" {
				speed.with, trip.with = append(speed.with, gbps), append(trip.with, ms)
			} else {
				speed.without, trip.without = append(speed.without, gbps), append(trip.without, ms)
			}
			env.say("overhead: round %d: --pace %s: %.2f Gb/s, %.3f ms", round+1, mode, gbps, ms)
		}
	}
	return Table{Title: "What pacing costs while the link is not full", Method: overheadMethod(rounds, seconds, pings),
		Head: []string{"", "--pace live", "--pace off", "difference of the medians, %", "95 % interval, %"},
		Rows: [][]string{speed.row(), trip.row()}, Verdicts: []Verdict{speed.verdict(), trip.verdict()}}, nil
}

func overheadMethod(rounds, seconds, pings int) string {
	return fmt.Sprintf("One host a site behind NATs that keep ports, no delay, the kernel forwards between the sites; both uplinks are declared with %d Gb/s, which is more than the machine manages. "+
		"Both daemons are started anew for each measurement, with --pace live or off, so that no difference between two processes is taken for one between the modes; then `iperf3 -t %d`, one TCP stream (%s), and %d pings. "+
		"%d rounds with both modes in each, in random order. The interval is of the difference of the medians, by the bootstrap over rounds.",
		overheadRate/1_000_000_000, seconds, congestionControl(), pings, rounds)
}

// restartPaced starts both ends' daemons anew with a mode of pacing, and waits until
// they go by it over a direct path.
func restartPaced(ctx context.Context, n *deploy.Network, mode string) error {
	n.SetRunArgs("--pace", mode)
	for _, h := range []string{"a1", "b1"} {
		stop, cancel := context.WithTimeout(ctx, 20*time.Second)
		err := n.Stop(stop, h)
		cancel()
		if err == nil {
			err = n.Run(ctx, h)
		}
		if err != nil {
			return err
		}
	}
	for _, h := range []string{"a1", "b1"} {
		err := deploy.Until(ctx, 20*time.Second, h+" paces with --pace "+mode, func() (bool, error) {
			r, err := n.Shape(ctx, h)
			return r.Mode == mode && (mode == "off" || r.Uplink == overheadRate), err
		})
		if err != nil {
			return err
		}
	}
	_, err := n.AwaitPath(ctx, "a1", "b1", "udp", 15*time.Second)
	return err
}
