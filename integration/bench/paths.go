package bench

import (
	"context"
	"fmt"
	"time"

	"github.com/meshmpi/meshmpi/integration/deploy"
	"github.com/meshmpi/meshmpi/integration/lab"
)

// twoNodes is a public hub and two sites of one host each, behind NATs.
func twoNodes(nat lab.NAT) lab.Config {
	return lab.Config{Sites: []lab.Site{
		{Name: "hubs", Hosts: []string{"hub"}},
		{Name: "alpha", NAT: nat, Hosts: []string{"a1"}},
		{Name: "beta", NAT: nat, Hosts: []string{"b1"}},
	}}
}

// paths measures one stream over the rungs that need no rung below them.
func paths(ctx context.Context, env *Env) (Table, error) {
	if err := needPrograms(map[string]string{"iperf3": "iperf3", "ping": "iputils-ping"}); err != nil {
		return Table{}, err
	}
	seconds, rounds, pings := pick(env, 5, 1), pick(env, 5, 2), pick(env, 200, 50)
	var speeds, trips []*contender
	var rows [][]string
	for _, way := range []struct {
		name, kind string
		nat        lab.NAT
	}{
		{"direct, two NATs that keep ports", "udp", lab.PortPreserving},
		{"relayed by the hub, two symmetric NATs", "relay-udp", lab.Symmetric},
	} {
		n, err := env.up(ctx, "paths-"+way.kind, twoNodes(way.nat))
		if err != nil {
			return Table{}, err
		}
		defer n.Lab.Close() // both labs stay up for the whole table
		speed, trip, err := pathContenders(ctx, n, way.name, way.kind, seconds, pings)
		if err != nil {
			return Table{}, err
		}
		speeds, trips = append(speeds, speed), append(trips, trip)
		rows = append(rows, []string{way.name, "`" + way.kind + "`"})
	}
	for _, set := range [][]*contender{speeds, trips} {
		err := interleave(rounds, set, func(round int, c *contender) {
			env.say("paths: round %d: %s: %.3f", round+1, c.name, c.got[round])
		})
		if err != nil {
			return Table{}, err
		}
	}
	for i := range rows {
		rows[i] = append(rows[i], speeds[i].got.spread("%.2f"), ratio(speeds[i].got, speeds[0].got), trips[i].got.spread("%.3f"))
	}
	return Table{
		Title: "Two sites behind NATs",
		Method: fmt.Sprintf("One host a site, a public hub, no delay, the kernel forwards between the sites; `iperf3 -t %d`, one TCP stream (%s), %d rounds in turns, "+
			"and %d pings in each of as many. The kind is what `meshctl path` said before and after each run. The relay, being a third daemon, shares the machine with the two ends.",
			seconds, congestionControl(), rounds, pings),
		Head: []string{"", "path", "TCP ×1, Gb/s", "÷ direct", "ping, ms"},
		Rows: rows,
	}, nil
}

func pathContenders(ctx context.Context, n *deploy.Network, name, kind string, seconds, pings int) (speed, trip *contender, err error) {
	a, b := n.Lab.Host("a1"), n.Lab.Host("b1")
	to, err := n.Addr(ctx, "b1")
	if err != nil {
		return nil, nil, err
	}
	if err := serveIperf(ctx, b); err != nil {
		return nil, nil, err
	}
	speed = &contender{name: name, run: onPath(ctx, n, "a1", "b1", kind, func() (float64, error) { return iperf(ctx, a, to, seconds) })}
	trip = &contender{name: "ping, " + name, run: func() (float64, error) { return roundTrip(ctx, a, to, pings) }}
	return speed, trip, nil
}

// onPath returns a measurement that begins when packets go by a path of the
// kind, and that fails if they no longer do when it ends.
func onPath(ctx context.Context, n *deploy.Network, from, to, kind string, run func() (float64, error)) func() (float64, error) {
	return func() (float64, error) {
		if _, err := n.AwaitPath(ctx, from, to, kind, 15*time.Second); err != nil {
			return 0, err
		}
		v, err := run()
		if err != nil {
			return 0, err
		}
		p, err := n.Path(ctx, from, to)
		if err == nil && (p.Kind != kind || !p.Works) {
			err = fmt.Errorf("after the measurement the path from %s to %s is %+v, not %s", from, to, p, kind)
		}
		return v, err
	}
}
