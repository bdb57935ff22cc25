package bench

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/meshmpi/meshmpi/integration/deploy"
	"github.com/meshmpi/meshmpi/integration/lab"
	"github.com/meshmpi/meshmpi/integration/wan"
	"github.com/meshmpi/meshmpi/internal/node/api"
)

// What the project promises of pairs behind NATs that keep ports.
const (
	firstReply = 300 * time.Millisecond // and firstTrips round trips, at the 95th percentile
	firstTrips = 4
	directIn   = 2 * time.Second
)

// giveUp is how long a pair may take to become direct before we look no longer.
const giveUp = 5 * time.Second

// coldCase is one row: what stands between the two sites.
type coldCase struct {
	nat    lab.NAT
	oneWay time.Duration // between any two sites
	direct bool          // pairs are to become direct; else to stay relayed
}

// coldPair is what happened when one node first spoke to another.
type coldPair struct {
	from, to string
	answered bool
	reply    time.Duration // from the first packet to its answer
	direct   time.Duration // from the first packet until the path was direct; 0: not seen
	kind     string        // of the path after all pairs have met
	trip     time.Duration // round trip then
}

// cold measures first contacts.
func cold(ctx context.Context, env *Env) (Table, error) {
	if err := needPrograms(map[string]string{"ping": "iputils-ping"}); err != nil {
		return Table{}, err
	}
	hosts := pick(env, 10, 3)
	t := Table{
		Title: "The first packet between two nodes",
		Method: fmt.Sprintf("%d + %d hosts behind two NATs and a public hub, all up and known to each other; each of the %d pairs across the sites talks for the first time, one pair "+
			"after another, directions alternating. One `ping -c1` is sent: the reply's time is ping's own, from that packet on, and a lost packet counts as no answer. "+
			"The path is read from meshd's socket every 5 ms, until it is `udp` or %v have passed. The delay is one way, between any two of the three sites; "+
			"RTT is that of the path in the end, after all pairs have met.", hosts, hosts, hosts*hosts, giveUp),
		Head: []string{"NATs", "delay", "RTT, ms", "answered", "first reply, ms: p50 / p95 / max", "direct after, ms: p50 / p95 / max", "path in the end"},
	}
	for _, c := range []coldCase{
		{lab.PortPreserving, 0, true},
		{lab.PortPreserving, 10 * time.Millisecond, true},
		{lab.Symmetric, 0, false},
		{lab.Symmetric, 10 * time.Millisecond, false},
	} {
		pairs, err := c.measure(ctx, env, hosts)
		if err != nil {
			return Table{}, fmt.Errorf("%v, %v: %w", c.nat, c.oneWay, err)
		}
		row, verdicts := c.judge(pairs)
		t.Rows, t.Verdicts = append(t.Rows, row), append(t.Verdicts, verdicts...)
	}
	return t, nil
}

// measure brings up a lab of its own and has all pairs across the sites meet.
func (c coldCase) measure(ctx context.Context, env *Env, hosts int) ([]coldPair, error) {
	cfg := lab.Config{Sites: []lab.Site{
		{Name: "hubs", Hosts: []string{"hub"}},
		{Name: "alpha", NAT: c.nat},
		{Name: "beta", NAT: c.nat},
	}}
	for i := range hosts {
		cfg.Sites[1].Hosts = append(cfg.Sites[1].Hosts, fmt.Sprintf("a%d", i+1))
		cfg.Sites[2].Hosts = append(cfg.Sites[2].Hosts, fmt.Sprintf("b%d", i+1))
	}
	// What goes from site to site crosses two links.
	cfg = cfg.WithWAN(wan.Symmetric(wan.Pipe{Delay: c.oneWay / 2}))
	n, err := env.up(ctx, fmt.Sprintf("cold-%v-%v", c.nat, c.oneWay), cfg)
	if err != nil {
		return nil, err
	}
	defer n.Lab.Close()
	hub, err := n.Status(ctx, "hub")
	if err != nil {
		return nil, err
	}
	addrs := map[string]string{}
	for _, node := range hub.Nodes {
		addrs[node.Name] = node.Addr4
	}
	var pairs []coldPair
	for shift := range hosts { // no host is in two pairs running
		for i := range hosts {
			p := coldPair{from: cfg.Sites[1].Hosts[i], to: cfg.Sites[2].Hosts[(i+shift)%hosts]}
			if len(pairs)%2 == 1 {
				p.from, p.to = p.to, p.from
			}
			if err := p.meet(ctx, n, addrs[p.to], c.direct); err != nil {
				return nil, fmt.Errorf("%s to %s: %w", p.from, p.to, err)
			}
			pairs = append(pairs, p)
			env.say("cold: %v, %v: pair %d of %d: %s → %s: answered %v after %v, direct after %v",
				c.nat, c.oneWay, len(pairs), hosts*hosts, p.from, p.to, p.answered, p.reply, p.direct)
		}
	}
	for i := range pairs {
		if err := pairs[i].settle(ctx, n, addrs[pairs[i].to]); err != nil {
			return nil, err
		}
	}
	return pairs, nil
}

// settle notes how the pair talks after all have met.
func (p *coldPair) settle(ctx context.Context, n *deploy.Network, addr string) error {
	trip, err := roundTrip(ctx, n.Lab.Host(p.from), addr, 5)
	if err != nil {
		return err
	}
	p.trip = time.Duration(trip * float64(time.Millisecond))
	after, err := n.Path(ctx, p.from, p.to)
	p.kind = after.Kind
	return err
}

// meet has from ping to for the first time and follows the path.
func (p *coldPair) meet(ctx context.Context, n *deploy.Network, addr string, direct bool) error {
	from := n.Lab.Host(p.from)
	// The socket that meshctl uses, without the start of a process each time.
	client := api.Dial(filepath.Join(from.Dir(), "state"))
	if r, err := client.Paths(ctx, ""); err != nil {
		return err
	} else if hasPath(r, p.to) {
		return fmt.Errorf("they have talked before")
	}
	pinged := make(chan error, 1)
	var echoes []echo
	began := time.Now()
	go func() { // ends with the ping
		var err error
		echoes, err = pingHost(ctx, from, addr, 1, time.Second)
		pinged <- err
	}()
	seen, err := followPath(ctx, client, p.to, direct)
	if perr := <-pinged; perr != nil {
		return perr
	}
	if err != nil {
		return err
	}
	if len(echoes) == 1 {
		p.answered, p.reply, began = true, echoes[0].rtt, echoes[0].sent
	}
	if !seen.IsZero() {
		p.direct = seen.Sub(began)
	}
	return nil
}

func hasPath(r api.PathReply, node string) bool {
	for _, p := range r.Paths {
		if p.Node == node {
			return true
		}
	}
	return false
}

// followPath returns when the path to a node was first seen to be direct; the
// zero Time if it has not become so, or is not meant to.
func followPath(ctx context.Context, client *api.Client, node string, direct bool) (time.Time, error) {
	if !direct {
		return time.Time{}, nil
	}
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for began := time.Now(); time.Since(began) < giveUp; {
		r, err := client.Paths(ctx, node)
		if err != nil {
			return time.Time{}, err
		}
		if len(r.Paths) == 1 && r.Paths[0].Works && r.Paths[0].Kind.String() == "udp" {
			return time.Now(), nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return time.Time{}, ctx.Err()
		}
	}
	return time.Time{}, nil
}

// judge makes the row and holds it against the promises.
func (c coldCase) judge(pairs []coldPair) (row []string, verdicts []Verdict) {
	var replies, directs, trips sample
	kinds := map[string]int{}
	inTime := 0
	for _, p := range pairs {
		if p.answered {
			replies = append(replies, milliseconds(p.reply))
		}
		if p.direct > 0 {
			directs = append(directs, milliseconds(p.direct))
		}
		if p.direct > 0 && p.direct <= directIn {
			inTime++
		}
		trips = append(trips, milliseconds(p.trip))
		kinds[p.kind]++
	}
	var ends []string
	for _, kind := range []string{"udp", "tcp", "relay-udp", "relay-stream", "none"} {
		if kinds[kind] > 0 {
			ends = append(ends, fmt.Sprintf("`%s` %d", kind, kinds[kind]))
		}
	}
	row = []string{fmt.Sprint(c.nat), fmt.Sprint(c.oneWay), trips.spread("%.1f"), fmt.Sprintf("%d of %d", len(replies), len(pairs)),
		replies.tail("%.0f"), directs.tail("%.0f"), strings.Join(ends, ", ")}
	where := fmt.Sprintf("%v NATs, %v", c.nat, c.oneWay)
	if !c.direct {
		return row, []Verdict{{len(replies) == len(pairs) && kinds["relay-udp"] == len(pairs),
			fmt.Sprintf("%s: %d of %d pairs answer, %d stay relayed; all must", where, len(replies), len(pairs), kinds["relay-udp"])}}
	}
	bound := milliseconds(firstReply) + firstTrips*trips.median()
	p95 := replies.quantile(0.95) // of those that answered: none may be missing
	return row, []Verdict{
		{len(replies) == len(pairs) && p95 <= bound, fmt.Sprintf("%s: first reply at the 95th percentile %.0f ms, %d of %d answered; "+
			"it must be at most %v + %d RTT = %.0f ms, for all", where, p95, len(replies), len(pairs), firstReply, firstTrips, bound)},
		{inTime == len(pairs), fmt.Sprintf("%s: %d of %d pairs direct within %v; all must", where, inTime, len(pairs), directIn)},
	}
}
