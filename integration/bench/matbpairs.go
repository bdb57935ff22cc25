package bench

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
)

// pairs compares live shares with static ones and with none, job by job.
func (m *matbRun) pairs(ctx context.Context, t *Table) {
	c := &crossing{setting: m.plan.pairAt, cells: map[string]map[topic]cell{}, pains: map[string]suffering{}}
	loads := m.chosen(m.plan.paired)
	for _, l := range loads {
		for _, w := range l.brief {
			c.topics = append(c.topics, topic{l.name, w})
		}
	}
	if err := m.inTurns(ctx, c, waysNamed(unpaced, static, lived), loads, (*load).once, m.plan.pairs, "pairs"); err != nil {
		t.Verdicts = append(t.Verdicts, Verdict{false, fmt.Sprintf("%v: pairs are measured; not so: %v", c.setting, err)})
		return
	}
	part, verdicts := c.pairsPart()
	t.Parts, t.Verdicts = append(t.Parts, part), append(t.Verdicts, verdicts...)
}

// again measures the all-to-alls of the ways that verdicts set beside each other some more
// times, so that one slow job is not taken for a slow way.
func (m *matbRun) again(ctx context.Context, c *crossing, s sweep) {
	var beside []way
	for _, w := range s.ways {
		if slices.Contains([]string{htb, lived, oracle}, w.name) {
			beside = append(beside, w)
		}
	}
	loads := m.chosen(narrowed(s.loads, []string{loadAlltoall, loadGo}))
	if m.plan.again == 0 || len(beside) < 2 || len(loads) == 0 || ctx.Err() != nil {
		return
	}
	if err := m.inTurns(ctx, c, beside, loads, (*load).run, m.plan.again, "again"); err != nil && ctx.Err() == nil {
		c.fail(m.env, "all-to-alls again", err)
	}
}

// inTurns adds rounds of jobs: a network of each way is up, and they take turns in an order
// that is drawn for each round and load. An error says that there is no network.
func (m *matbRun) inTurns(ctx context.Context, c *crossing, ways []way, loads []*load, job jobForm, rounds int, name string) error {
	var nets []*narrow
	defer func() {
		for _, n := range nets {
			n.close()
		}
	}()
	for _, w := range ways {
		n, err := newNarrow(ctx, m.env, c.setting, w, w.file(c.setting)+"-"+name)
		if err != nil {
			return err
		}
		nets = append(nets, n)
		if c.cells[w.name] == nil {
			c.cells[w.name] = map[topic]cell{}
		}
	}
	rng := rand.New(rand.NewPCG(1, 4)) // the same order in each run
	for round := range rounds {
		for _, l := range loads {
			rng.Shuffle(len(nets), func(i, j int) { nets[i], nets[j] = nets[j], nets[i] })
			m.turn(ctx, c, l, nets, job, fmt.Sprintf("%s, round %d", name, round+1))
			if ctx.Err() != nil {
				return nil
			}
		}
		m.env.say("matb: %v: %s: %d of %d rounds", c.setting, name, round+1, rounds)
	}
	return nil
}

// jobForm is load.run or load.once.
type jobForm func(*load, context.Context, *narrow) (map[what]reading, error)

// turn runs a load once in each network. It counts if all its jobs end well.
func (m *matbRun) turn(ctx context.Context, c *crossing, l *load, nets []*narrow, job jobForm, when string) {
	all := map[string]map[what]reading{}
	for _, n := range nets {
		got, err := job(l, ctx, n)
		if err != nil {
			if ctx.Err() == nil {
				c.fail(m.env, fmt.Sprintf("%s: %s: %s", when, l.name, n.way.name), err)
			}
			return
		}
		all[n.way.name] = got
	}
	for way, got := range all {
		for w, r := range got {
			t := topic{l.name, w}
			c.cells[way][t] = append(c.cells[way][t], r)
		}
	}
}

// pairsPart is the comparison, and what is promised of it.
func (c *crossing) pairsPart() (Part, []Verdict) {
	p := Part{Title: fmt.Sprintf("%v: live shares beside static ones and none, in pairs", c.setting),
		Text: "The three take turns in an order drawn for each round; ratios of times are geometric means over pairs with a 95 % interval (bootstrap over pairs, 4000 times).",
		Head: []string{"program", "pairs", "live shares, ms", "static B/N, ms", "live ÷ static", "unpaced, ms", "live ÷ unpaced"}}
	var k checks
	for _, t := range c.topics {
		live := c.cells[lived][t].times()
		row := []string{t.String(), fmt.Sprint(len(live)), live.milli().spread("%.1f")}
		for _, by := range []string{static, unpaced} {
			other := c.cells[by][t].times()
			mean, low, high := pairedInterval(live.over(other))
			row = append(row, other.milli().spread("%.1f"), fmt.Sprintf("%.3f (%.3f–%.3f)", mean, low, high))
			k.add(high <= matbWorse, "%v ÷ %s %.3f (%.3f–%.3f)", t, by, mean, low, high)
		}
		p.Rows = append(p.Rows, row)
	}
	verdicts := k.verdict("%v: live shares are no more than %.0f %% slower than static ones and than none, by the upper end of the 95 %% interval; all must", c.setting, 100*(matbWorse-1))
	if len(c.failed) > 0 {
		verdicts = append(verdicts, Verdict{false, fmt.Sprintf("%v: all jobs of the pairs end; %d did not: %s", c.setting, len(c.failed), c.failed[0])})
	}
	return p, verdicts
}

// pairedInterval is the geometric mean of ratios, and its 95 % interval by drawing
// as many of them anew, again and again; NaN of none. The same ratios have the same
// interval.
func pairedInterval(ratios sample) (mean, low, high float64) {
	if len(ratios) == 0 {
		return math.NaN(), math.NaN(), math.NaN()
	}
	logs := make(sample, len(ratios))
	for i, r := range ratios {
		logs[i] = math.Log(r)
	}
	rng := rand.New(rand.NewPCG(9, 5))
	means := make(sample, resamplings)
	for i := range means {
		for range logs {
			means[i] += logs[rng.IntN(len(logs))] / float64(len(logs))
		}
	}
	slices.Sort(means)
	return math.Exp(logs.mean()), math.Exp(means[resamplings*25/1000]), math.Exp(means[resamplings*975/1000])
}
